"""The path of radii by batched sums: its models are certified, cheap in rounds, and judged without a leak."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LassoCV, LogisticRegressionCV
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dcgs
from dcgs.estimators import DecentralizedLasso, DecentralizedLogisticRegression
from dcgs.learn.linear.design import DesignSpec, designs
from dcgs.learn.linear.fit import rows_paths
from dcgs.learn.radius.folds import HoldOut
from dcgs.learn.radius.path import path_steps
from dcgs.learn.radius.sums_finder import _as_sent, _Control, _Point, _Run, _shortened
from dcgs.learn.sites import Rows
from dcgs.learn.sums import Reductions, Steps

GRAPH = nx.cycle_graph(4)
Vector = NDArray[np.float64]
TEXTS = Path(os.environ.get("DCGS_DATA", "DCGS_DATA is not set"), "sparse-regression", "womens-clothing.npz")


def wide_folds(seed: int = 0) -> list[dcgs.Fold]:
    """Two folds of 160 rows with 80 features, six of which matter, over four sites."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((4, 40, 80))
    b = A[:, :, :6] @ np.array([3.0, -2.0, 1.5, 1.0, -1.0, 0.5]) + rng.standard_normal((4, 40))
    return [
        dcgs.Fold(
            {i: dcgs.LeastSquares(np.delete(A[i], out, 0), np.delete(b[i], out)) for i in range(4)},
            {i: dcgs.LeastSquares(A[i, out], b[i, out]) for i in range(4)},
        )
        for out in (np.arange(10), np.arange(10, 20))
    ]


def test_models_of_the_path_are_as_good_as_promised() -> None:
    folds = wide_folds()
    found = dcgs.path(folds, lambda r: dcgs.L1Ball(80, r), GRAPH, radii=[1.0, 9.0])
    for point, models in zip(found.points, found.models, strict=True):
        for fold, x in zip(folds, models, strict=True):
            X, objectives = dcgs.L1Ball(80, point.radius), list(fold.train.values())
            best = dcgs.minimize(objectives, X, GRAPH, gap=1e-4, every=None).x
            value, least, null = (sum(f.value(at) for f in objectives) for at in (x, best, np.zeros(80)))
            assert X.violation(x) <= 1e-9
            assert value - least <= 0.03 * (null - value)  # the gap to which a path is found


def test_the_path_finds_the_true_size_in_few_rounds() -> None:
    folds = wide_folds()
    found = dcgs.path(folds, lambda r: dcgs.L1Ball(80, r), GRAPH)
    assert 5.0 < found.best.radius < 13.0  # the true one is 9
    # Over edges: with Hessians, as default settings, a fit of 80 unknowns takes two sums, of 26 kB.
    objectives, X = list(folds[0].train.values()), dcgs.L1Ball(80, found.best.radius)
    one_fit = dcgs.minimize(objectives, X, GRAPH, dcgs.FastDCGS(form="edges"), gap=1e-4, every=None)
    assert found.rounds <= 3 * one_fit.rounds  # with the fit itself at most four times
    radii = found.columns()["radius"]
    assert (np.diff(radii) > 0.0).all()
    assert 7 <= len(radii) <= 14
    assert found.stopped == "the error on held-out rows rises with a larger radius"


@pytest.mark.parametrize("sums", [1, 3, 8])
def test_a_model_that_runs_out_of_steps_is_not_finished_and_never_worse(
    sums: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dcgs.learn.radius.sums_finder._MOST_SUMS", sums)
    with pytest.warns(RuntimeWarning, match="the steps were not enough for the models of radius"):
        found = dcgs.path(wide_folds(), lambda r: dcgs.L1Ball(80, r), GRAPH)
    assert found.stopped.startswith("the steps ran out, so that no larger radius was tried")
    assert found.to_dict()["ran_out"] == list(found.ran_out)
    radii = {point.radius for point in found.points}
    # With one sum no model is finished, so that there are no others.
    assert radii == set(found.ran_out) or radii.isdisjoint(found.ran_out)
    assert len(found.models) == len(found.points)


def large_folds(seed: int = 0) -> list[dcgs.Fold]:
    """One fold of 600 rows with 80 features, whose curvatures differ by 10⁴, over four sites."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((4, 200, 80)) * np.logspace(0.0, -2.0, 80)
    w = np.zeros(80)
    w[[1, 20, 60]] = 2.0, -4.0, 20.0
    labels = np.where(A @ w + rng.logistic(size=(4, 200)) > 0.0, 1.0, -1.0)
    return [
        dcgs.Fold(
            {i: dcgs.Logistic(A[i, 50:], labels[i, 50:]) for i in range(4)},
            {i: dcgs.Logistic(A[i, :50], labels[i, :50]) for i in range(4)},
        )
    ]


def test_with_many_rows_a_site_the_data_of_the_root_are_the_model_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folds, radii = large_folds(), [2.0, 8.0, 32.0]
    found = dcgs.path(folds, lambda r: dcgs.L1Ball(80, r), GRAPH, radii=radii)
    for point, (x,) in zip(found.points, found.models, strict=True):
        X, objectives = dcgs.L1Ball(80, point.radius), list(folds[0].train.values())
        best = dcgs.minimize(objectives, X, GRAPH, gap=1e-4, every=None).x
        value, least, null = (sum(f.value(at) for f in objectives) for at in (x, best, np.zeros(80)))
        assert X.violation(x) <= 1e-9
        assert value - least <= 0.03 * (null - value)  # the gap to which a path is found
    monkeypatch.setattr("dcgs.learn.radius.sums_finder._MANY_ROWS", 1000)
    projected = dcgs.path(folds, lambda r: dcgs.L1Ball(80, r), GRAPH, radii=radii)
    assert found.rounds < 0.5 * projected.rounds
    assert found.bytes < 0.5 * projected.bytes
    errors, others = (path.columns()["error"] for path in (found, projected))
    np.testing.assert_allclose(errors, others, rtol=0.03)  # the gap of both


@pytest.mark.parametrize("features", [20, 80])
def test_sites_with_other_names_find_the_same_radius(features: int) -> None:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((110, features))
    y = X[:, 0] - X[:, 1] + rng.standard_normal(110)
    sites = np.minimum(rng.geometric(0.4, 110) - 1, 4)
    radii = [
        DecentralizedLasso(gap=0.1).fit(X, y, sites=names[sites]).radius_
        for names in (np.arange(5), np.array([3, 1, 4, 0, 2]))
    ]
    assert radii[0] == pytest.approx(radii[1], rel=1e-9)  # sums are in another order


@pytest.mark.parametrize(
    ("estimator", "seed"), [(DecentralizedLasso, 1), (DecentralizedLogisticRegression, 0)]
)
def test_no_model_is_taken_unless_one_is_clearly_better(
    estimator: Callable[..., DecentralizedLasso], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((90, 8)), rng.standard_normal(90)  # there is nothing to find
    targets = y if estimator is DecentralizedLasso else (y > 0.8).astype(int)
    model = estimator(gap=0.1).fit(X, targets, sites=np.arange(90) % 3)
    assert model.path_ is not None
    least, null = min(model.path_.points, key=lambda point: point.error), model.path_.null
    # The least of some errors is less by chance, but not by a standard error of the difference.
    assert least.error + 0.5 * least.paired_error < null.error <= least.error + least.paired_error
    assert least.paired_error < 0.5 * least.standard_error
    assert model.path_.best.error <= least.error + 0.25 * least.paired_error
    assert model.radius_ == 0.0


@pytest.mark.parametrize(("null", "radius"), [(1.9, 2.0), (2.1, 4.0)])
def test_where_the_evidence_for_a_model_is_weak_a_smaller_radius_is_taken(null: float, radius: float) -> None:
    errors = {1.0: 1.1, 2.0: 1.04, 4.0: 1.0, 8.0: 1.02}
    points = [dcgs.PathPoint(r, error, 0.1, 0.5, r, paired_error=0.2) for r, error in errors.items()]
    none = dcgs.PathPoint(0.0, 1.0 + 0.2 * null, 0.1, 1.0, 0.0)
    path = dcgs.RadiusPath(tuple(points), none, 1, 1, 1, "all radii that were given", ())
    assert path.best.radius == radius  # within 0.25 of 0.2, if no model is less than 2 · 0.2 worse
    assert not path.needs_no_model


def test_sums_of_the_path_have_the_features_that_matter_and_certify_with_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dcgs.learn.radius.sums_finder._MANY_FEATURES", 400)
    rng = np.random.default_rng(0)
    A = rng.standard_normal((4, 50, 400))
    A[:, :, 200:] = 0.8 * A[:, :, :200] + 0.6 * A[:, :, 200:]  # each feature has one that can replace it
    b = A[:, :, :5].sum(axis=2) + rng.standard_normal((4, 50))
    train = {i: dcgs.LeastSquares(A[i, 10:], b[i, 10:]) for i in range(4)}
    fold = dcgs.Fold(train, {i: dcgs.LeastSquares(A[i, :10], b[i, :10]) for i in range(4)})
    network = Reductions(GRAPH)
    steps = path_steps(network, [fold], lambda r: dcgs.L1Ball(400, r), [5.0])
    (path,) = network.run(steps)
    numbers = np.array(
        [sent.numbers for sent in network.sent if sent.name.startswith("losses and gradients")]
    )
    assert numbers.min() < 100
    assert numbers.mean() < 300
    assert numbers[-1] == 6 + 400  # with the losses and four sums over the rows held out
    x, X = path.models[0][0], dcgs.L1Ball(400, 5.0)
    best = dcgs.minimize(list(train.values()), X, GRAPH, gap=1e-4, every=None).x
    value, least, null = (sum(f.value(at) for f in train.values()) for at in (x, best, np.zeros(400)))
    assert value - least <= 0.03 * (null - value)  # the gap to which a path is found


def test_a_gradient_without_some_features_certifies_nothing() -> None:
    # At 0 ∇f = (1, 4, 0). With the first entry alone f seems to be at least 1 in the ball; the bound is −2.
    at = _Point(np.zeros(3), {0: np.zeros(2)})
    lower = {}
    for entries in (np.array([1.0, 4.0, 0.0]), np.array([1.0])):
        control = _Control(dcgs.L1Ball(3, 1.0), None, 10.0, 1.0, at.x)
        run = _Run(0, at, at, at, sent=None if len(entries) == 3 else np.array([True, False, False]))
        control.correction = np.zeros(3)
        grad = control.gradient(entries, run, np.zeros(3))
        assert control.judge(run, (2.0, 2.0), grad, (0.0, 0.0, np.zeros(3)))
        lower[len(entries)] = control.lower
    assert lower == {3: -2.0, 1: -np.inf}


def test_columns_have_the_deviation_of_the_rows_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    # With the deviations of all rows, held-out rows would know which words are rare among them.
    rng = np.random.default_rng(1)
    rows, b = sp.random_array((200, 70), density=0.05, rng=rng, format="csr"), rng.standard_normal(200)
    sites = {i: Rows(rows[i::4], b[i::4]) for i in range(4)}
    network = Reductions(GRAPH)
    (made,) = designs([sites], network, DesignSpec())
    given: list[dcgs.Fold] = []

    def recorded(network: Reductions, folds: list[dcgs.Fold], *rest: object, **more: object) -> Steps[None]:
        given.extend(folds)
        yield from ()

    monkeypatch.setattr(import_module("dcgs.learn.linear.fit"), "path_steps", recorded)
    rows_paths([(sites, made)], network, lambda r: dcgs.L1Ball(70, r), HoldOut())
    (fold,) = given
    squares = np.sum([f.map.column_squares for f in fold.train.values()], axis=0)
    trained_on = sum(f.loss.size for f in fold.train.values())
    constant = squares < 1e-9
    np.testing.assert_allclose(squares[~constant], trained_on, rtol=1e-9)  # rounding


@dataclass(frozen=True, eq=False)
class Poisson(dcgs.Loss):
    """Σ exp(zᵢ) − yᵢ zᵢ, the likelihood of counts; beyond a mean of 50 its curvature stays 50."""

    y: Vector
    curvature = (0.0, 50.0)

    def values(self, z: Vector) -> Vector:
        inside = np.minimum(z, np.log(50.0))
        beyond = z - inside
        return np.asarray(np.exp(inside) * (1.0 + beyond) + 25.0 * beyond**2 - self.y * z)

    def value(self, z: Vector) -> float:
        return float(self.values(z).sum())

    def grad(self, z: Vector) -> Vector:
        inside = np.minimum(z, np.log(50.0))
        return np.asarray(np.exp(inside) + 50.0 * (z - inside) - self.y)

    def hess(self, z: Vector) -> Vector:
        return np.asarray(np.exp(np.minimum(z, np.log(50.0))))

    def data(self) -> dict[str, Vector]:
        return {"y": self.y}


@pytest.mark.parametrize("features", [6, 80])  # by Newton steps, and by sums of gradients
@pytest.mark.parametrize("intercept", [False, True])
def test_a_loss_with_negative_values_gets_its_best_radius(features: int, intercept: bool) -> None:
    rng = np.random.default_rng(1)
    A, w = rng.standard_normal((800, features)), np.zeros(features)
    w[:3] = 0.5, -0.3, 0.2  # their sizes sum to 1
    counts = rng.poisson(8.0 * np.exp(A @ w)).astype(float)
    sites = {i: Rows(A[i::4], counts[i::4]) for i in range(4)}
    network = Reductions(GRAPH)
    (made,) = designs([sites], network, DesignSpec(Poisson, intercept))
    (path,) = rows_paths([(sites, made)], network, lambda r: dcgs.L1Ball(features, r), HoldOut())
    errors = path.columns()["error"]
    assert errors.min() < 0.0
    assert path.best.error <= errors.min() + 0.01 * path.best.standard_error  # as Path.best promises
    assert path.best.error < path.null.error
    # With an intercept the true size is 1; without one a model must also explain the mean, by larger numbers.
    assert 0.8 < path.best.radius < (1.3 if intercept else 5.0)


def test_the_intercept_of_no_model_is_the_best_constant_of_any_loss() -> None:
    counts = {0: np.zeros(30), 1: np.array([7.0, 9.0, 4.0])}  # the best constant of site 0 alone is −∞
    sites = {i: Rows(np.ones((len(y), 1)), y) for i, y in counts.items()}
    (made,) = designs([sites], Reductions(nx.path_graph(2)), DesignSpec(Poisson))
    assert made.bound is not None
    assert made.bound.start == pytest.approx(np.log(20.0 / 33.0), abs=1e-2)  # three sums of 65 constants
    low, high = made.bound.interval(dcgs.L1Ball(1))
    assert low < made.bound.start < high


FEW = dcgs.Fold(
    {i: dcgs.LeastSquares(np.eye(3), np.arange(3.0)) for i in range(2)},
    {i: dcgs.LeastSquares(np.eye(3), np.ones(3)) for i in range(2)},
)
WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "no set": (
        lambda: dcgs.path(FEW, lambda r: r, nx.path_graph(2)),  # type: ignore[arg-type,return-value]
        "must return a set of points of shape",
    ),
    "another shape": (
        lambda: dcgs.path(FEW, lambda r: dcgs.L1Ball(4, r), nx.path_graph(2)),
        r"points of shape \(3,\), which the objectives take; for radius 1 it returned L1Ball\(shape=\(4,\)",
    ),
    "two arguments": (
        lambda: dcgs.path(FEW, lambda n, r: dcgs.L1Ball(n, r), nx.path_graph(2)),  # type: ignore[arg-type,misc]
        "set_of must be a function of the radius",
    ),
    "an agent without a fold": (
        lambda: dcgs.path(FEW, lambda r: dcgs.L1Ball(3, r), nx.path_graph(3)),
        r"train and held_out of the agents \[0, 1, 2\], .* one has none for \[2\]",
    ),
    "a start of another shape": (
        lambda: dcgs.path(FEW, lambda r: dcgs.L1Ball(3, r), nx.path_graph(2), start=np.zeros(2)),
        r"start must be of shape \(3,\), as the sets; got shape \(2,\)",
    ),
    "a list of objectives": (
        lambda: dcgs.Fold([FEW.train[0]], [FEW.held_out[0]]),  # type: ignore[arg-type]
        "train must be a mapping from agents to objectives",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_path_of_bad_sets_or_folds_says_what_must_hold(wrong: str) -> None:
    find, message = WRONG[wrong]
    with pytest.raises((ValueError, TypeError), match=message):
        find()


@pytest.mark.parametrize("seed", [0, 1])
def test_the_radius_found_is_as_good_as_that_of_pooled_rows(seed: int) -> None:
    X, y = load_diabetes(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=seed)
    model = DecentralizedLasso().fit(X_train, y_train, sites=np.arange(len(y_train)) % 4)
    pooled = make_pipeline(StandardScaler(), LassoCV()).fit(X_train, y_train)
    assert model.score(X_test, y_test) >= 0.99 * pooled.score(X_test, y_test)

    X, y = load_breast_cancer(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=seed)
    classifier = DecentralizedLogisticRegression().fit(X_train, y_train, sites=np.arange(len(y_train)) % 4)
    inner = LogisticRegressionCV(
        l1_ratios=(1.0,), solver="liblinear", scoring="neg_log_loss", use_legacy_attributes=False
    )
    judge = make_pipeline(StandardScaler(), inner).fit(X_train, y_train)
    own, theirs = (roc_auc_score(y_test, one.decision_function(X_test)) for one in (classifier, judge))
    assert own >= theirs - 0.005


@pytest.mark.skipif(not TEXTS.exists(), reason="DCGS_DATA has no sparse-regression/womens-clothing.npz")
def test_reviews_get_the_radius_and_the_error_of_pooled_rows_within_four_times_the_rounds() -> None:
    with np.load(TEXTS) as npz:
        X = sp.csr_array((npz["data"], npz["indices"], npz["indptr"]), shape=tuple(npz["shape"]))
        y = npz["y"].astype(float)
    rows = np.random.default_rng(0).permutation(len(y))[:4000]
    X = X[rows]
    X = X[:, np.flatnonzero((X > 0).sum(axis=0) >= 20)]
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)  # as scikit-learn needs them
    X_train, X_test, y_train, y_test = train_test_split(X, y[rows], test_size=0.25, random_state=0)
    sites = np.arange(len(y_train)) % 10
    model = DecentralizedLasso().fit(X_train, y_train, sites=sites)
    known = DecentralizedLasso(model.radius_).fit(X_train, y_train, sites=sites)
    pooled = make_pipeline(StandardScaler(with_mean=False), LassoCV(alphas=15, cv=3, eps=2e-2, tol=1e-3))
    pooled.fit(X_train, y_train)
    errors = [np.mean((one.predict(X_test) - y_test) ** 2) for one in (model, pooled)]
    assert errors[0] <= 1.01 * errors[1]
    assert model.rounds_ <= 4 * known.rounds_


def test_points_are_shortened_where_they_stay_in_the_set_and_sent_without_loss() -> None:
    rng = np.random.default_rng(0)
    for X in (dcgs.L1Ball(100, 3.0), dcgs.L2Ball(100, 3.0), dcgs.Simplex(100, 3.0)):
        x = X.project(rng.standard_normal(100))
        short = _shortened(x, X)
        sent = _as_sent(short)
        assert X.holds(short)
        assert (sent == short).all()
        np.testing.assert_allclose(short, x, rtol=2.0**-23)
        assert (sent.dtype == np.float32) == (not isinstance(X, dcgs.Simplex))
    assert _as_sent(np.array([1e300, 1.0])).dtype == np.float64


def test_models_of_a_path_are_in_their_sets() -> None:
    rng = np.random.default_rng(1)
    A, b = rng.standard_normal((3, 40, 80)), rng.standard_normal((3, 40))
    train = {i: dcgs.LeastSquares(A[i, :30], b[i, :30]) for i in range(3)}
    held_out = {i: dcgs.LeastSquares(A[i, 30:], b[i, 30:]) for i in range(3)}
    for set_of in (lambda r: dcgs.L1Ball(80, r), lambda r: dcgs.Simplex(80, r)):
        found = dcgs.path(dcgs.Fold(train, held_out), set_of, nx.path_graph(3), radii=[0.1, 0.5, 2.0])
        for point, models in zip(found.points, found.models, strict=True):
            assert all(set_of(point.radius).holds(x) for x in models)
