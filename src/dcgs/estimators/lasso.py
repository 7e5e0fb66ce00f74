"""DecentralizedLasso: a sparse linear regression over several sites."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from dcgs.estimators.linear import LinearSpec, fit_linear, warn_of_path, warn_unless_certified
from dcgs.estimators.sites import SitePlan, as_seed, column_names, row_weights
from dcgs.objectives.losses import SquaredLoss
from dcgs.preprocessing import Reductions, SiteData


@final
@dataclass(eq=False, repr=False)
class DecentralizedLasso(RegressorMixin, BaseEstimator):
    """Least squares with bounded coefficients, for rows at several sites that stay there.

    It minimizes Σ (⟨aᵢ, coef⟩ + intercept − yᵢ)² over all rows of all sites, such that the coefficients are
    in an ℓ₁ ball, or in another set. For every radius there is a penalty with which scikit-learn's ``Lasso``
    has the same coefficients.

    Parameters
    ----------
    radius : float or "auto", default="auto"
        How large the coefficients may be. With ``standardize`` that is in standardized units: the sum of
        |coefⱼ| · (deviation of column j) is at most the radius. ``"auto"`` finds it on rows that the sites
        hold out; see :func:`dcgs.path`.
    set : set of dcgs, or function, default=None
        What the coefficients must be in, in the same units: a set, or a function of the number of features
        and the radius such as ``dcgs.L2Ball``. None is the ℓ₁ ball. The intercept is never bounded.
    graph : networkx.Graph, default=None
        Which sites exchange messages. Its nodes are the sites. None connects all sites with each other.
    n_sites : int, default=4
        The number of sites to which rows are dealt out if neither ``sites`` nor a graph is given.
    runtime : runtime of dcgs, default=None
        Who sends messages; None is :class:`dcgs.Lockstep`. With :class:`dcgs.MPI` every process fits with
        its own rows, and all get the same model.
    fit_intercept : bool, default=True
        Whether the model has an intercept.
    standardize : bool, default=True
        Whether columns are divided by their deviation over all sites. Coefficients are in the units of X.
    gap : float, default=1e-4
        The loss exceeds the least one by at most this share of what the model explains; certified.
    folds : int, default=None
        How many folds ``radius="auto"`` uses. None is five for at most 63 features, and one fold, a quarter
        of the rows of each site, for more.
    random_state : int, RandomState or None, default=None
        Which rows are dealt where, and held out. None is the same as 0.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
    intercept_ : float
    n_iter_ : int
        Iterations of the last run.
    rounds_, bytes_ : int
        Communication rounds, and bytes that the sites of this process sent, for everything.
    gap_ : float
        The certificate: the sum of losses exceeds the least possible by at most this. It is nan if the run
        ended before it had one; a ``ConvergenceWarning`` says why.
    radius_ : float
        The radius of the model; 0 if one without features was as good on held-out rows.
    path_ : dcgs.Path or None
        How the radius was found; None if it was given.
    result_ : dcgs.Result
        The run that found the model.
    sent_ : list of dcgs.Sent
        What the sites computed together: name, numbers, rounds and bytes.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> hospital = np.arange(len(y)) % 4
    >>> model = DecentralizedLasso().fit(X, y, sites=hospital)
    >>> round(model.score(X, y), 2), model.coef_.shape
    (0.51, (10,))
    """

    # scikit-learn reads the parameters from the signature that these make.
    radius: float | str = "auto"
    _: KW_ONLY
    set: Any = None
    graph: Any = None
    n_sites: int = 4
    runtime: Any = None
    fit_intercept: bool = True
    standardize: bool = True
    gap: float = 1e-4
    folds: int | None = None
    random_state: Any = None

    def fit(self, X: Any, y: Any, sites: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model; ``sites`` has the label of a site for each row, and None deals rows out."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=True)
        weights = row_weights(sample_weight, X)
        seed = as_seed(self.random_state)
        rows = SiteData(X, np.asarray(y, dtype=np.float64), weights, columns=column_names(self))
        where = SitePlan(self.graph, self.n_sites, self.runtime, seed).sites(rows, sites)
        network = Reductions(where.graph, where.runtime)
        spec = LinearSpec(
            self.radius, self.set, self.fit_intercept, self.standardize, self.gap, self.folds, seed
        )
        (fit,) = fit_linear([where.data(rows)], network, SquaredLoss, spec)
        self.coef_: NDArray[np.float64] = fit.model.coef
        self.intercept_ = fit.model.intercept
        self.n_iter_ = max(1, fit.result.iterations)
        self.rounds_, self.bytes_ = network.rounds, network.bytes
        self.gap_, self.radius_, self.path_, self.result_ = fit.gap, fit.radius, fit.path, fit.result
        self.sent_ = list(network.sent)
        warn_of_path(fit.path)
        warn_unless_certified([fit.result], self.gap)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the predicted target of each row."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return np.asarray(X @ self.coef_ + self.intercept_)

    def __sklearn_tags__(self) -> Tags:
        tags = RegressorMixin.__sklearn_tags__(self)
        tags.input_tags.sparse = True
        return tags
