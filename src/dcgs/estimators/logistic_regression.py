"""DecentralizedLogisticRegression: a sparse classifier over several sites."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dcgs.estimators.linear import LinearFit, LinearSpec, fit_linear, warn_of_path, warn_unless_certified
from dcgs.estimators.sites import SitePlan, Sites, as_seed, column_names, row_weights
from dcgs.objectives.losses import LogisticLoss
from dcgs.preprocessing import (
    Reductions,
    SiteData,
    against_rest,
    agree_on_classes,
    balanced_weights,
    class_numbers,
    class_probabilities,
    row_factors,
    stacked,
)
from dcgs.validation import NOT_NEGATIVE, shown


@final
@dataclass(eq=False, repr=False)
class DecentralizedLogisticRegression(ClassifierMixin, BaseEstimator):
    """Logistic regression with bounded coefficients, for rows at several sites that stay there.

    It minimizes the sum of the logistic losses of all rows of all sites, such that the coefficients are in an
    ℓ₁ ball, or in another set. The intercept is free. More than two classes: one model per class against all
    others, each with its own certificate and, if it is found, its own radius. A joint softmax would couple
    the classes of a row; the sums, Newton steps and certificates here are for losses that are sums over
    single numbers. A site may lack a class that another site has.

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
    class_weight : dict, "balanced" or None, default=None
        A factor for the weights of the rows of each class. ``"balanced"`` makes all classes count the same.
    random_state : int, RandomState or None, default=None
        Which rows are dealt where, and held out. None is the same as 0.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    coef_ : array of shape (1, n_features), or (n_classes, n_features) for more than two classes
    intercept_ : array of shape (1,) or (n_classes,)
    n_iter_ : array
        Iterations of the last run.
    rounds_, bytes_ : int
        Communication rounds, and bytes that the sites of this process sent, for everything.
    gap_ : float, or array of shape (n_classes,)
        The certificate: the sum of losses exceeds the least possible by at most this. It is nan if the run
        ended before it had one; a ``ConvergenceWarning`` says why.
    radius_ : float, or array of shape (n_classes,)
        The radius of the model; 0 if one without features was as good on held-out rows.
    path_ : dcgs.Path, list of them, or None
        How the radius was found; None if it was given.
    result_ : dcgs.Result, or list of them
        The run that found the model.
    sent_ : list of dcgs.Sent
        What the sites computed together: name, numbers, rounds and bytes.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> hospital = np.arange(len(y)) % 4
    >>> model = DecentralizedLogisticRegression(radius=10.0).fit(X, y, sites=hospital)
    >>> model.score(X, y) > 0.97, model.classes_
    (True, array([0, 1]))
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
    class_weight: Any = None
    random_state: Any = None

    def fit(self, X: Any, y: Any, sites: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model; ``sites`` has the label of a site for each row, and None deals rows out."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        weights = row_weights(sample_weight, X)
        seed = as_seed(self.random_state)
        codes = np.unique(y, return_inverse=True)[1].astype(np.float64)
        rows = SiteData(X, codes, weights, columns=column_names(self))
        where = SitePlan(self.graph, self.n_sites, self.runtime, seed).sites(rows, sites)
        network = Reductions(where.graph, where.runtime)
        self.classes_ = self._classes(y, where, network)
        weights = self._weights(y, weights, where, network)
        spec = LinearSpec(
            self.radius, self.set, self.fit_intercept, self.standardize, self.gap, self.folds, seed
        )
        codes = class_numbers(y.tolist(), self.classes_.tolist())
        rows = replace(rows, targets=codes, weights=weights)
        classes = list(against_rest(where.data(rows), len(self.classes_)))
        fits = fit_linear(classes, network, LogisticLoss, spec)
        self._keep(fits)
        self.rounds_, self.bytes_ = network.rounds, network.bytes
        self.sent_ = list(network.sent)
        for fit in fits:
            warn_of_path(fit.path)
        warn_unless_certified([fit.result for fit in fits], self.gap)
        return self

    def _classes(self, y: Any, where: Sites, network: Reductions) -> NDArray[Any]:
        """Return the classes that the sites agree on."""
        labels = {i: y[own] for i, own in where.rows.items()}
        classes = agree_on_classes(labels, network, where.names)
        if len(classes) < 2:
            raise ValueError(
                f"the rows of all sites must have at least two classes; they have one class, {classes[0]!r}."
            )
        return classes if y.dtype.kind in "OUS" and classes.dtype.kind == "U" else classes.astype(y.dtype)

    def _weights(self, y: Any, weights: Any, where: Sites, network: Reductions) -> Any:
        """Return the weights of rows, times those of their classes."""
        if self.class_weight is None:
            return weights
        counts = np.ones(len(y)) if weights is None else weights
        if isinstance(self.class_weight, dict):
            unknown = sorted(self.class_weight.keys() - set(self.classes_.tolist()), key=repr)
            if unknown:
                raise ValueError(
                    f"class_weight must be for classes of the rows, {shown(self.classes_.tolist())}; got "
                    f"{shown(unknown)}."
                )
            for label, weight in self.class_weight.items():
                NOT_NEGATIVE(weight, f"class_weight[{label!r}]")
            return counts * row_factors(y, self.class_weight)
        if self.class_weight != "balanced":
            raise ValueError(
                "class_weight must be None, 'balanced', or a dict from classes to weights; got "
                f"{shown(self.class_weight)}."
            )
        labels = {i: y[own] for i, own in where.rows.items()}
        own_counts = {i: counts[own] for i, own in where.rows.items()}
        return counts * row_factors(y, balanced_weights(labels, own_counts, self.classes_, network))

    def _keep(self, fits: list[LinearFit]) -> None:
        """Set the attributes of the fitted models; with two classes there is one model."""
        model = stacked([fit.model for fit in fits])
        self.coef_: NDArray[np.float64] = model.coef
        self.intercept_ = np.asarray(model.intercept)
        self.n_iter_ = np.array([max(1, fit.result.iterations) for fit in fits])
        self.gap_: Any = np.array([fit.gap for fit in fits])
        self.radius_: Any = np.array([fit.radius for fit in fits])
        self.path_: Any = [fit.path for fit in fits]
        self.result_: Any = [fit.result for fit in fits]
        if len(fits) == 1:
            self.gap_, self.radius_ = fits[0].gap, fits[0].radius
            self.path_, self.result_ = fits[0].path, fits[0].result
        elif fits[0].path is None:
            self.path_ = None

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return ⟨a, coef⟩ + intercept: one number per row for two classes, else one per class."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        scores = np.asarray(X @ self.coef_.T + self.intercept_)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class; with more than two, the models' own divided by their sum."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return class_probabilities(scores)

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the logarithms of the probabilities."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each row."""
        scores = self.decision_function(X)
        best = (scores > 0.0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[best])

    def __sklearn_tags__(self) -> Tags:
        tags = ClassifierMixin.__sklearn_tags__(self)
        tags.input_tags.sparse = True
        return tags
