"""Estimators with the interface of scikit-learn: arrays become sites, are fitted, and the fit has attributes.

They need scikit-learn: ``pip install dcgs[sklearn]``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, Self, final
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dcgs.floors import Floors
from dcgs.learn.arrays import SitePlan, as_seed, nodes_of, row_weights, site_labels
from dcgs.learn.linear.classes import class_numbers, class_probabilities
from dcgs.learn.linear.design import DesignSpec, LinearModel, LossOf
from dcgs.learn.linear.fit import RowsFit, RowsSpec, agree_on_rows, fit_models, fit_rows
from dcgs.learn.private import ENOUGH, Bounds, PrivateSpec, fit_private
from dcgs.learn.radius.result import RadiusPath
from dcgs.learn.ratings.fit import GAP, Ratings, RatingsSpec, fit_ratings
from dcgs.learn.ratings.ids import as_texts
from dcgs.learn.sites import Rows, RunSpec, Sites
from dcgs.learn.sums import Reductions
from dcgs.objectives.losses import LogisticLoss, SquaredLoss
from dcgs.run.result import Result
from dcgs.validation import FLAG, NOT_NEGATIVE, POSITIVE, instance, shown, vector

_COMPARED = ("radius", "fit_intercept", "standardize", "gap", "folds", "rule", "class_weight", "ridge")
"""The parameters that must be the same at all sites; a graph and a set are compared by ``minimize``."""


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
        How many folds ``radius="auto"`` uses. None is five, and one fold, a quarter of the rows of each
        site, for at least 1,000 features and 4,000 rows.
    rule : {"best", "one_standard_error"}, default="best"
        Which radius of ``"auto"`` is taken: that of the smallest error on held-out rows, or the smallest one
        within one standard error of it, for a model with fewer features.
    random_state : int, RandomState or None, default=None
        Which rows are dealt where, and held out. None is the same as 0.
    secure : bool, default=False
        Whether sums over the sites are masked, of the run too (docs/privacy.md); it needs three sites.
    floors : dcgs.Floors or None, default=None
        How many people, at how many sites, all must be about that leaves a site; every row is a person. None
        is no floors. Floors hold for sums over all sites: between neighbors they need secure sums.
    epsilon : float or None, default=None
        With a number: a private fit, by noisy masked sums, with a promise of (epsilon, delta)-differential
        privacy for each row (docs/privacy.md). The radius, then in units of the bounds, and ``bounds`` are
        given, for all that is computed from rows in the open way would break the promise.
    delta : float, default=1e-6
        That of the promise.
    bounds : dcgs.learn.Bounds or None, default=None
        What each column, and the target, may be, known without a look at the data.
    budget : dcgs.learn.PrivacyBudget or None, default=None
        Where the sites of this process write down what is spent, before anything leaves.

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
    path_ : dcgs.RadiusPath or None
        How the radius was found; None if it was given.
    result_ : dcgs.Result
        The run that found the model.
    sent_ : list of dcgs.Sent
        What the sites computed together: name, numbers, rounds and bytes.
    private_ : dcgs.learn.PrivateFit
        Of a private fit: what is promised, a noisy number of rows, and the signal. It certifies no gap.
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
    rule: str = "best"
    random_state: Any = None
    secure: bool = False
    floors: Any = None
    epsilon: float | None = None
    delta: float = 1e-6
    bounds: Any = None
    budget: Any = None

    def fit(self, X: Any, y: Any, sites: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model; ``sites`` has the label of a site for each row, and None deals rows out."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=True)
        weights = row_weights(sample_weight, X)
        rows = Rows(X, np.asarray(y, dtype=np.float64), weights, columns=_column_names(self))
        if self.epsilon is not None:
            return self._keep(_fit_private(self, rows, sites, "squared"))
        spec = _rows_spec(self, SquaredLoss)
        fit = fit_rows(_plan(self).places(rows, sites).split(rows), spec)
        (fitted,) = fit.fitted
        self._keep(fit.model)
        self.n_iter_ = max(1, fitted.result.iterations)
        self.gap_, self.radius_ = certified_gap(fitted.result), fitted.radius
        self.path_, self.result_ = fitted.path, fitted.result
        _set_counts(self, fit.network)
        _warn_of_notes(fit.notes)
        _warn([fitted.path], [fitted.result], self.gap)
        return self

    def _keep(self, model: LinearModel) -> Self:
        self.coef_: NDArray[np.float64] = model.coef
        self.intercept_ = model.intercept
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
    radius, set, graph, n_sites, runtime, fit_intercept, standardize, gap, folds, rule, random_state, floors,
    epsilon, delta, bounds, budget
        As those of :class:`DecentralizedLasso`.
    class_weight : dict, "balanced" or None, default=None
        A factor for the weights of the rows of each class. ``"balanced"`` makes all classes count the same.

    secure : bool, default=False
        Whether sums over the sites are masked, of the run too (docs/privacy.md); it needs three sites.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    coef_ : array of shape (1, n_features), or (n_classes, n_features) for more than two classes
    intercept_, n_iter_ : array of shape (1,) or (n_classes,)
    gap_, radius_ : float, or array of shape (n_classes,)
    path_, result_ : dcgs.RadiusPath and dcgs.Result, or lists of them; no path if the radius was given
    rounds_, bytes_, sent_, n_features_in_, feature_names_in_
        As those of :class:`DecentralizedLasso`.

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
    rule: str = "best"
    class_weight: Any = None
    random_state: Any = None
    secure: bool = False
    floors: Any = None
    epsilon: float | None = None
    delta: float = 1e-6
    bounds: Any = None
    budget: Any = None

    def fit(self, X: Any, y: Any, sites: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model; ``sites`` has the label of a site for each row, and None deals rows out."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        weights = row_weights(sample_weight, X)
        if self.epsilon is not None:
            return self._fit_private(X, y, sites, weights)
        codes = np.unique(y, return_inverse=True)[1].astype(np.float64)
        rows, spec = Rows(X, codes, weights, columns=_column_names(self)), _rows_spec(self, LogisticLoss)
        places = _plan(self).places(rows, sites)
        labels = {i: y[local].tolist() for i, local in places.rows.items()}
        agreed = agree_on_rows(places.split(rows), labels, spec)
        classes = np.array(agreed.labels)
        texts = y.dtype.kind in "OUS" and classes.dtype.kind == "U"
        self.classes_ = classes if texts else classes.astype(y.dtype)
        spec = replace(spec, class_weight=self._class_weight())
        codes = np.zeros(len(y))
        for local in places.rows.values():
            codes[local] = class_numbers(y[local].tolist(), self.classes_.tolist())
        split = places.split(rows.with_targets(codes))
        self._keep(fit_models(split.data, agreed, places.network, spec))
        return self

    def _fit_private(self, X: Any, y: Any, sites: Any, weights: Any) -> Self:
        labels = getattr(self.bounds, "labels", None)
        if labels is None or self.class_weight is not None:
            raise ValueError(
                "a private fit must be given its two classes, Bounds(low, high, labels=(0, 1)), and no "
                f"class_weight; got labels {shown(labels)} and class_weight {shown(self.class_weight)}."
            )
        others = sorted({*y.tolist()} - {*labels}, key=repr)
        if others:
            raise ValueError(
                f"labels must be among {shown(labels)}, the classes of bounds; got {shown(others)}."
            )
        self.classes_ = np.array(labels)
        targets = 2.0 * class_numbers(y.tolist(), list(labels)) - 1.0
        self._keep_model(_fit_private(self, Rows(X, targets, weights), sites, "logistic"))
        return self

    def _keep_model(self, model: LinearModel) -> None:
        self.coef_: NDArray[np.float64] = np.atleast_2d(model.coef)
        self.intercept_ = np.atleast_1d(model.intercept)

    def _class_weight(self) -> Any:
        """Return the weights of classes; raise unless they can be used."""
        if self.class_weight is None or self.class_weight == "balanced":
            return self.class_weight
        if not isinstance(self.class_weight, dict):
            raise ValueError(
                "class_weight must be None, 'balanced', or a dict from classes to weights; got "
                f"{shown(self.class_weight)}."
            )
        unknown = sorted(self.class_weight.keys() - {*self.classes_.tolist()}, key=repr)
        if unknown:
            raise ValueError(
                f"class_weight must be for classes of the rows, {shown(self.classes_.tolist())}; got "
                f"{shown(unknown)}."
            )
        for label, weight in self.class_weight.items():
            NOT_NEGATIVE(weight, f"class_weight[{label!r}]")
        return self.class_weight

    def _keep(self, fit: RowsFit) -> None:
        """Set the attributes of the fitted models; with two classes there is one model."""
        fitted = fit.fitted
        self._keep_model(fit.model)
        self.n_iter_ = np.array([max(1, item.result.iterations) for item in fitted])
        self.gap_: Any = np.array([certified_gap(item.result) for item in fitted])
        self.radius_: Any = np.array([item.radius for item in fitted])
        self.path_: Any = [item.path for item in fitted]
        self.result_: Any = [item.result for item in fitted]
        _set_counts(self, fit.network)
        _warn_of_notes(fit.notes, 4)
        _warn(self.path_, self.result_, self.gap, 4)
        if len(fitted) == 1:
            self.gap_, self.radius_ = float(self.gap_[0]), float(self.radius_[0])
            self.path_, self.result_ = fitted[0].path, fitted[0].result
        elif fitted[0].path is None:
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


@final
@dataclass(eq=False, repr=False)
class DecentralizedCompletion(BaseEstimator):
    """Offsets and a matrix of small nuclear norm, for entries at several sites that stay there.

    A value is predicted as mean + offset of its row + offset of its column + an entry of a matrix whose
    singular values sum to at most the radius. Rows belong to a site, as users to a shop: their ids are never
    sent, and equal ids at two sites are two rows. The ids of columns are agreed on by all sites.

    Parameters
    ----------
    radius : float or "auto", default="auto"
        The bound of the nuclear norm. ``"auto"`` finds it on a tenth of the values, which sites hold out.
    graph : networkx.Graph, default=None
        Which sites exchange messages; its nodes are the sites. None connects all sites with each other.
    n_sites : int, default=4
        The number of sites to which rows are dealt out if neither ``sites`` nor a graph is given.
    runtime : runtime of dcgs, default=None
        Who sends messages; None is :class:`dcgs.Lockstep`.
    ridge : float, "auto" or None, default="auto"
        How much offsets are shrunk; an offset counts this number of zeros. None leaves offsets out.
        ``"auto"`` finds it on values that are held out, if the radius is to be found, and is 5 else.
    gap : float, default=None
        The loss exceeds the least one by at most this share of what the matrix explains; certified. None is
        1e-3, and with ``radius="auto"`` the gap at which the error on held-out values falls no more.
    rule : {"best", "one_standard_error"}, default="best"
        Which radius of ``"auto"`` is taken: that of the smallest error on held-out rows, or the smallest one
        within one standard error of it, for a model with fewer features.
    random_state : int, RandomState or None, default=None
        Which values are held out. None is the same as 0.
    secure : bool, default=False
        Whether sums over the sites are masked, of the run too (docs/privacy.md); it needs three sites.

    Attributes
    ----------
    ratings_ : RatingsFit
        The model of each site; ``ratings_.agents[0].top(row)`` lists the best columns of a row.
    result_, path_, radius_, gap_, n_iter_, rounds_, bytes_, sent_
        As those of :class:`DecentralizedLasso`.

    Examples
    --------
    >>> rows, cols = np.divmod(np.arange(24), 6)
    >>> values = 3.0 + (rows % 2) - (cols % 2)
    >>> model = DecentralizedCompletion(radius=1.0, ridge=0.01).fit(rows, cols, values, sites=rows // 2)
    >>> model.predict([0, 1], [0, 0]).round(1)
    array([3., 4.])
    """

    # scikit-learn reads the parameters from the signature that these make.
    radius: float | str = "auto"
    _: KW_ONLY
    graph: Any = None
    n_sites: int = 4
    runtime: Any = None
    ridge: float | str | None = "auto"
    gap: float | None = None
    rule: str = "best"
    random_state: Any = None
    secure: bool = False
    floors: Any = None

    def fit(self, rows: ArrayLike, cols: ArrayLike, values: ArrayLike, sites: Any = None) -> Self:
        """Fit the model to values at pairs of ids of rows and columns.

        ``sites`` has the label of a site for each value. None deals rows out.
        """
        run = RunSpec({"gap": POSITIVE.or_none(self.gap, "gap")}, seed=as_seed(self.random_state))
        options, floors = _options(self), _floors(self)
        spec = RatingsSpec(self.radius, self.ridge, self.rule, run=run, options=options, floors=floors)
        given = as_texts(rows), as_texts(cols), vector(values, "values")
        self.ratings_ = fit_ratings(self._split(*given, sites), spec)
        self.result_, self.path_ = self.ratings_.result, self.ratings_.path
        self.radius_, self.n_iter_ = self.ratings_.radius, self.result_.iterations
        self.gap_ = certified_gap(self.result_)
        _set_counts(self, self.ratings_.network)
        _warn_of_notes(self.ratings_.notes)
        default = GAP if self.path_ is None else self.path_.gap
        _warn([self.path_], [self.result_], self.gap or default)
        return self

    def predict(self, rows: ArrayLike, cols: ArrayLike) -> NDArray[np.float64]:
        """Return predictions for pairs of ids; an unseen id gets the offsets that are known."""
        check_is_fitted(self, "ratings_")
        return self.ratings_.predict(rows, cols)

    def score(self, rows: ArrayLike, cols: ArrayLike, values: ArrayLike) -> float:
        """Return R² of the predictions."""
        return float(r2_score(values, self.predict(rows, cols)))

    def _split(self, rows: Any, cols: Any, values: NDArray[np.float64], labels: Any) -> Sites[Ratings]:
        """Return the sites with the ids and values of each one of this process."""
        if not len(rows) == len(cols) == len(values) > 0:
            raise ValueError(
                "rows, cols and values must have one length, at least 1; got "
                f"{len(rows)}, {len(cols)} and {len(values)}."
            )
        plan, kept = _plan(self), np.arange(len(rows))
        if labels is None:
            graph = plan.dealt_graph(len({*rows.tolist()}))
            given, plan = self._dealt(rows, graph, plan), replace(plan, graph=graph)
        else:
            given = site_labels(labels, len(rows))
        places = plan.by_label(given, kept)
        data = {i: (rows[local], cols[local], values[local]) for i, local in places.rows.items()}
        return Sites(places.network, data, places.names())

    def _dealt(self, rows: Any, graph: Any, plan: SitePlan) -> list[Any]:
        """Return a site for each value: rows are dealt out, in the order of their hashes."""
        nodes = nodes_of(graph)
        hosts = list(plan.where.hosts(len(nodes)))
        ids = sorted({*rows.tolist()}, key=lambda text: (crc32(text, plan.seed), text))
        place = {text: nodes[hosts[n * len(hosts) // len(ids)]] for n, text in enumerate(ids)}
        return [place[text] for text in rows.tolist()]


def certified_gap(result: Result) -> float:
    """Return the certified gap of a run: the loss exceeds the least one by at most this; nan without one."""
    certified = result.about.get("certified")
    return math.nan if certified is None else max(0.0, float(certified["gap"]))


def _plan(estimator: Any) -> SitePlan:
    seed = as_seed(estimator.random_state)
    secure = FLAG(estimator.secure, "secure") or getattr(estimator, "epsilon", None) is not None
    return SitePlan(estimator.graph, estimator.n_sites, estimator.runtime, seed, secure)


def _fit_private(
    estimator: Any, rows: Rows, labels: Any, loss: Literal["logistic", "squared"]
) -> LinearModel:
    """Return the model of a private fit, and set what all estimators have of it."""
    usual = type(estimator)()
    names = ("set", "fit_intercept", "standardize", "folds", "rule", "gap", "floors")
    odd = [name for name in names if getattr(estimator, name) != getattr(usual, name)]
    if odd or not isinstance(estimator.radius, int | float):
        raise ValueError(
            "a private fit must have a radius that is a number, and its own intercept, scales and end; got "
            f"radius={estimator.radius!r}{''.join(f', {name}={getattr(estimator, name)!r}' for name in odd)}."
        )
    instance(estimator.bounds, Bounds, "bounds", "be dcgs.learn.Bounds(low, high)")
    spec = PrivateSpec(loss, estimator.radius, estimator.bounds, estimator.epsilon, estimator.delta)
    sites = _plan(estimator).places(rows, labels).split(rows)
    if estimator.budget is not None:
        estimator.budget.spend(spec.rho, type(estimator).__name__)
    fit = fit_private(sites, spec)
    estimator.private_, estimator.radius_, estimator.gap_ = fit, float(spec.radius), math.nan
    estimator.n_iter_, estimator.path_, estimator.result_ = spec.steps, None, None
    _set_counts(estimator, sites.network)
    if fit.signal < ENOUGH:
        warnings.warn(
            f"the signal is {fit.signal:.0f}, below {ENOUGH:.0f}: as a rule the model of one site alone is "
            "better. Take more rows, fewer columns, tighter bounds or a larger epsilon.",
            UserWarning,
            stacklevel=3 if loss == "squared" else 4,
        )
    return fit.model


def _rows_spec(estimator: Any, loss: LossOf) -> RowsSpec:
    """Return the specification of the model that an estimator of rows fits."""
    return RowsSpec(
        DesignSpec(loss, estimator.fit_intercept, estimator.standardize),
        estimator.radius,
        estimator.set,
        estimator.folds,
        estimator.rule,
        run=RunSpec({"gap": POSITIVE(estimator.gap, "gap")}, seed=as_seed(estimator.random_state)),
        options=_options(estimator),
        floors=_floors(estimator),
    )


def _floors(estimator: Any) -> Floors | None:
    """Return the floors of an estimator; raise unless they are such."""
    if estimator.floors is not None:
        instance(estimator.floors, Floors, "floors", "be dcgs.Floors(), or None")
    return estimator.floors  # type: ignore[no-any-return]


def _options(estimator: Any) -> dict[str, str]:
    """Return the parameters that sites compare, as texts."""
    given = estimator.get_params(deep=False)
    return {name: repr(given[name]) for name in _COMPARED if name in given}


def _column_names(estimator: Any) -> tuple[str, ...] | None:
    """Return the names of the features that scikit-learn found in the rows; None if they have none."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else tuple(names.tolist())


def _set_counts(estimator: Any, network: Reductions) -> None:
    """Set the attributes on what was sent."""
    estimator.rounds_, estimator.bytes_ = network.rounds, network.bytes
    estimator.sent_ = list(network.sent)


def _warn_of_notes(notes: Sequence[str], level: int = 3) -> None:
    """Warn of what is odd in the data, and of columns that are left out."""
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=level)


def _warn(paths: Sequence[RadiusPath | None], results: Sequence[Result], gap: float, level: int = 3) -> None:
    """Warn of a path that ran out of steps or of rows, and of runs that have not certified the gap."""
    for path in paths:
        if path is not None and path.ran_out:
            warnings.warn(str(path), ConvergenceWarning, stacklevel=level)
        elif path is not None and math.isnan(path.best.error):
            warnings.warn(f"{path} Give a radius, or more rows.", UserWarning, stacklevel=level)
    for result in results:
        if not result.status.success:
            reasons = " ".join((str(result.status), *result.notes))
            warnings.warn(
                f"the model must be certified to a gap of {gap:.1e} of what it explains; its gap_ is "
                f"{certified_gap(result):.1e} after {result.iterations} iterations and {result.rounds} "
                f"rounds: {reasons}",
                ConvergenceWarning,
                stacklevel=level,  # the line that calls fit
            )
