"""The estimators follow scikit-learn's interface and agree with its own models on pooled rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning, SkipTestWarning
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from threadpoolctl import threadpool_limits

import dcgs
from dcgs.estimators import DecentralizedCompletion, DecentralizedLasso, DecentralizedLogisticRegression
from mpi_estimators import many_columns

X_DIABETES, Y_DIABETES = load_diabetes(return_X_y=True)
X_CANCER, Y_CANCER = load_breast_cancer(return_X_y=True)


@pytest.mark.parametrize("estimator", [DecentralizedLasso(5.0), DecentralizedLogisticRegression(5.0)])
def test_an_estimator_passes_all_checks_of_scikit_learn(estimator: object) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)  # array API input needs an environment variable
        check_estimator(estimator)


@pytest.mark.parametrize("n_sites", [1, 4])
def test_the_lasso_is_that_of_scikit_learn_at_the_matching_penalty(n_sites: int) -> None:
    scaler = StandardScaler().fit(X_DIABETES)
    reference = Lasso(alpha=2.0, tol=1e-10).fit(scaler.transform(X_DIABETES), Y_DIABETES)
    radius = np.abs(reference.coef_).sum()
    model = DecentralizedLasso(radius, n_sites=n_sites, gap=1e-9).fit(X_DIABETES, Y_DIABETES)
    # The issue asks for 1e-4 of coefficients of size 1; the certificates allow about that of size 25.
    np.testing.assert_allclose(model.coef_ * scaler.scale_, reference.coef_, atol=1e-4)
    assert model.intercept_ == pytest.approx(Y_DIABETES.mean() - X_DIABETES.mean(axis=0) @ model.coef_)
    assert model.gap_ <= 1e-9 * ((Y_DIABETES - Y_DIABETES.mean()) ** 2).sum()


@pytest.mark.parametrize("n_sites", [1, 4])
def test_logistic_regression_is_that_of_scikit_learn_at_the_matching_penalty(n_sites: int) -> None:
    scaler = StandardScaler().fit(X_CANCER)
    Z = scaler.transform(X_CANCER)
    reference = LogisticRegression(l1_ratio=1.0, C=0.05, solver="saga", tol=1e-9, max_iter=100_000)
    reference.fit(Z, Y_CANCER)
    radius = np.abs(reference.coef_).sum()
    model = DecentralizedLogisticRegression(radius, n_sites=n_sites, gap=1e-8).fit(X_CANCER, Y_CANCER)
    # As above; the root of the gap bounds coefficients along directions with little curvature.
    np.testing.assert_allclose(model.coef_ * scaler.scale_, reference.coef_, atol=1e-4)
    np.testing.assert_allclose(model.decision_function(X_CANCER), reference.decision_function(Z), atol=1e-3)


def test_sites_with_other_scales_get_the_model_of_the_pooled_rows_and_the_radius_costs_few_rounds() -> None:
    rng = np.random.default_rng(0)
    sites = rng.integers(4, size=len(Y_DIABETES))
    X = X_DIABETES + 0.02 * sites[:, None]
    found = DecentralizedLasso(graph=nx.cycle_graph(4)).fit(X, Y_DIABETES, sites=sites)
    known = DecentralizedLasso(found.radius_, graph=nx.cycle_graph(4)).fit(X, Y_DIABETES, sites=sites)
    # Both are certified to 1e-4 of what the model explains.
    assert found.score(X, Y_DIABETES) == pytest.approx(known.score(X, Y_DIABETES), abs=1e-4)
    assert found.rounds_ <= 4 * known.rounds_
    assert found.path_ is not None
    assert found.path_.best.radius == found.radius_
    assert known.path_ is None
    assert sum(one.rounds for one in found.sent_) == found.rounds_
    assert found.bytes_ > known.bytes_ > 0


def test_the_radius_of_a_classifier_is_found_within_four_times_the_rounds_of_one_fit() -> None:
    sites = np.arange(len(Y_CANCER)) % 4
    graph = nx.cycle_graph(4)
    found = DecentralizedLogisticRegression(graph=graph).fit(X_CANCER, Y_CANCER, sites=sites)
    known = DecentralizedLogisticRegression(found.radius_, graph=graph).fit(X_CANCER, Y_CANCER, sites=sites)
    assert found.rounds_ <= 4 * known.rounds_
    assert found.path_.best.error < 0.2 * found.path_.null.error


def test_it_works_in_pipelines_searches_and_with_routed_sites() -> None:
    search = GridSearchCV(
        make_pipeline(StandardScaler().set_output(transform="pandas"), DecentralizedLasso()),
        {"decentralizedlasso__radius": [10.0, 50.0]},
        cv=3,
    ).fit(X_DIABETES, Y_DIABETES)
    assert search.best_params_ == {"decentralizedlasso__radius": 50.0}
    assert len(search.best_estimator_[-1].feature_names_in_) == 10
    with sklearn.config_context(enable_metadata_routing=True):
        model = DecentralizedLasso(50.0).set_fit_request(sites=True)
        sites = np.arange(len(Y_DIABETES)) % 3
        scores = cross_val_score(model, X_DIABETES, Y_DIABETES, params={"sites": sites}, cv=3)
    assert scores.min() > 0.3


def test_three_classes_pandas_and_sparse_rows_give_one_model() -> None:
    X, y = load_iris(return_X_y=True, as_frame=True)
    names = np.array(["a", "b", "c"])[y]
    model = DecentralizedLogisticRegression(5.0).fit(X, names)
    sparse = clone(model).fit(sp.csr_array(X.to_numpy()), names)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.coef_.shape == (3, 4)
    assert model.feature_names_in_.tolist() == X.columns.tolist()
    assert model.score(X, names) > 0.9
    # Certified to 1e-4 of what the models explain.
    np.testing.assert_allclose(model.predict_proba(X), sparse.predict_proba(sp.csr_array(X)), atol=0.02)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


def test_a_site_may_lack_a_class_and_balanced_weights_are_those_of_all_sites() -> None:
    y = Y_CANCER[:200]
    order = np.argsort(y, kind="stable")
    X, y = X_CANCER[order][:, :5], y[order]
    sites = np.where(np.arange(200) < 50, "north", "south")  # the north has one class
    balanced = DecentralizedLogisticRegression(3.0, class_weight="balanced").fit(X, y, sites=sites)
    weights = {label: 100.0 / np.count_nonzero(y == label) for label in (0, 1)}
    given = DecentralizedLogisticRegression(3.0, class_weight=weights).fit(X, y, sites=sites)
    np.testing.assert_allclose(balanced.coef_, given.coef_, rtol=1e-6)
    assert any(one.name == "weights of the classes" for one in balanced.sent_)


@pytest.mark.parametrize(
    ("set_", "violation"),
    [
        (dcgs.L2Ball, lambda w: np.linalg.norm(w) - 30.0),
        (dcgs.Box(np.zeros(10), np.full(10, 9.0)), lambda w: -w.min()),
    ],
)
def test_any_set_bounds_the_standardized_coefficients_and_not_the_intercept(
    set_: object, violation: Callable[[NDArray[np.float64]], float]
) -> None:
    model = DecentralizedLasso(30.0, set=set_).fit(X_DIABETES, Y_DIABETES)
    assert violation(model.coef_ * X_DIABETES.std(axis=0)) <= 1e-9
    assert model.intercept_ == pytest.approx(Y_DIABETES.mean() - X_DIABETES.mean(axis=0) @ model.coef_)


def test_bad_arguments_get_a_sentence() -> None:
    X, y = X_DIABETES[:20], Y_DIABETES[:20]
    model = DecentralizedLasso(1.0, graph=nx.path_graph(["north", "south"]))
    with pytest.raises(ValueError, match=r"every site must be a node of the graph; \['west'\] are not among"):
        model.fit(X, y, sites=["west"] * 20)
    with pytest.raises(ValueError, match=r"every site must have rows; there are none at \['south'\]"):
        model.fit(X, y, sites=["north"] * 20)
    with pytest.raises(ValueError, match="sites must have one label per row; got shape"):
        model.fit(X, y, sites=["north"])
    with pytest.raises(ValueError, match=r"radius .* must be a positive finite number; got -1"):
        DecentralizedLasso(-1.0).fit(X, y)
    with pytest.raises(ValueError, match="set must be of vectors with 10 entries"):
        DecentralizedLasso(1.0, set=dcgs.L1Ball(3)).fit(X, y)
    with pytest.raises(ValueError, match="class_weight must be None, 'balanced', or a dict"):
        DecentralizedLogisticRegression(1.0, class_weight="some").fit(X, y > 100)
    with pytest.raises(ValueError, match="must be two classes; all rows are of one class"):
        DecentralizedLogisticRegression(1.0).fit(X, np.zeros(20))


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "no folds": (
        lambda: DecentralizedLasso(folds=-1).fit(X_DIABETES, Y_DIABETES),
        r"folds must be a whole number of at least 1, or None; got -1",
    ),
    "sites of two kinds": (
        lambda: DecentralizedLasso(1.0).fit(X_DIABETES[:2], Y_DIABETES[:2], sites=["north", 1]),
        r"sites must be all texts or all numbers, .* got 1 in row 1 and 'north' in row 0",
    ),
    "a site that is missing": (
        lambda: DecentralizedCompletion(1.0).fit([0, 1], [0, 1], [1.0, 2.0], sites=[None, "a"]),
        r"none may be missing; got None in row 0\.",
    ),
    "too few sites": (
        lambda: DecentralizedCompletion(1.0).fit([0, 1], [0, 1], [1.0, 2.0], sites=["a"]),
        r"sites must have one label per row; got shape \(1,\) for 2 rows",
    ),
    "sites that are no nodes": (
        lambda: DecentralizedCompletion(1.0, graph=nx.path_graph(2)).fit(
            [0, 1, 2], [0, 1, 1], [1.0, 2.0, 3.0], sites=[0, 1, 2]
        ),
        r"every site must be a node of the graph; \[2\] are not among \[0, 1\]",
    ),
    "a negative weight": (
        lambda: DecentralizedLasso(1.0).fit(X_DIABETES[:3], Y_DIABETES[:3], sample_weight=[1.0, -2.0, 1.0]),
        r"sample_weight must be at least 0 in all rows; it is -2 in row 1, and negative in 1 of 3 rows",
    ),
    "a weight that is not finite": (
        lambda: DecentralizedLasso(1.0).fit(X_DIABETES[:2], Y_DIABETES[:2], sample_weight=[1.0, np.inf]),
        r"sample_weight contains infinity",
    ),
    "a negative weight of a class": (
        lambda: DecentralizedLogisticRegression(1.0, class_weight={0: -1.0}).fit(X_CANCER, Y_CANCER),
        r"class_weight\[0\] must be a finite number of at least 0; got -1",
    ),
    "a weight of no class": (
        lambda: DecentralizedLogisticRegression(1.0, class_weight={"ill": 2.0}).fit(X_CANCER, Y_CANCER),
        r"class_weight must be for classes of the rows, \[0, 1\]; got \['ill'\]",
    ),
    "a flag that is a number": (
        lambda: DecentralizedLasso(1.0, fit_intercept=2).fit(X_DIABETES, Y_DIABETES),  # type: ignore[arg-type]
        r"fit_intercept must be True or False; got 2",
    ),
    "a set of another signature": (
        lambda: DecentralizedLasso(1.0, set=lambda radius: dcgs.L1Ball(10, radius)).fit(
            X_DIABETES, Y_DIABETES
        ),
        r"set must be a set of dcgs, or a function of the number of features and the radius",
    ),
    "an id that is missing": (
        lambda: DecentralizedCompletion(1.0).fit(np.array(["ann", None]), [0, 1], [1.0, 2.0]),
        r"no id may be missing; 1 of 2 are, first 1",
    ),
    "more users than items": (
        lambda: DecentralizedCompletion(1.0).fit([0, 1], [0, 1], [1.0, 2.0]).predict([0, 1], [0]),
        r"there must be one item for each user; got 2 and 1",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_each_wrong_argument_gets_its_own_sentence(wrong: str) -> None:
    fit, message = WRONG[wrong]
    with pytest.raises(ValueError, match=message):
        fit()


def test_completion_finds_a_radius_and_predicts_better_than_offsets() -> None:
    rng = np.random.default_rng(0)
    rows, cols = (index.reshape(-1) for index in np.indices((40, 30)))
    values = 3.0 + np.outer(rng.standard_normal(40), rng.standard_normal(30)).reshape(-1)
    seen = rng.uniform(size=len(values)) < 0.5
    model = DecentralizedCompletion(graph=nx.cycle_graph(4))
    model.fit(rows[seen], cols[seen], values[seen], sites=rows[seen] % 4)
    assert model.score(rows[~seen], cols[~seen], values[~seen]) > 0.9
    assert model.path_ is not None
    assert model.radius_ == model.path_.best.radius
    assert model.path_.best.error < 0.5 * model.path_.null.error
    frame = pd.DataFrame({"row": rows[seen], "col": cols[seen], "value": values[seen]})
    known = clone(model).set_params(radius=model.radius_, graph=None)
    known.fit(frame["row"], frame["col"], frame["value"])
    assert known.score(rows[~seen], cols[~seen], values[~seen]) > 0.9
    assert known.predict(["nobody"], ["nothing"])[0] == pytest.approx(values[seen].mean(), abs=0.2)


def test_a_fit_has_the_same_bits_for_any_number_of_threads_that_blas_may_use() -> None:
    A, b = many_columns()
    models = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            models.append(DecentralizedLasso(gap=0.1).fit(A, b, sites=np.arange(len(b)) % 2))
    assert models[0].coef_.tolist() == models[1].coef_.tolist()


def test_processes_with_their_own_rows_get_the_bits_of_one_process() -> None:
    X, y = X_CANCER[:, :6], Y_CANCER
    sites = np.arange(len(y)) % 2
    graph = nx.complete_graph(2)
    classifier = DecentralizedLogisticRegression(graph=graph).fit(X, y, sites=sites)
    lasso = DecentralizedLasso(graph=graph).fit(X, X_CANCER[:, 6], sites=sites)
    A, b = many_columns()
    wide = DecentralizedLasso(gap=0.1, graph=graph).fit(A, b, sites=np.arange(len(b)) % 2)
    done = subprocess.run(
        [str(Path(sys.executable).with_name("mpiexec")), "-n", "2", sys.executable, "mpi_estimators.py"],
        capture_output=True,
        text=True,
        check=False,
        timeout=600.0,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        cwd=Path(__file__).parent,
    )
    assert done.returncode == 0, done.stderr
    models = [classifier.coef_[0].tolist(), lasso.coef_.tolist(), wide.coef_.tolist()]
    refused = (
        "all sites must have the same columns in the same order; site 1 has 'hb', 'age' where the first site "
        "has 'age', 'hb'. Give X its columns in one order at all sites, such as X[sorted(X)]."
    )
    expected = [*models, classifier.rounds_, wide.rounds_, True, refused]
    assert json.loads(done.stdout) == expected


@pytest.mark.parametrize(
    "fit",
    [
        lambda: DecentralizedLasso(5.0).fit(X_DIABETES, Y_DIABETES),
        lambda: DecentralizedLogisticRegression(5.0).fit(*load_iris(return_X_y=True)),
        lambda: DecentralizedCompletion(5.0).fit(*np.divmod(np.arange(24), 6), np.sin(np.arange(24))),
    ],
)
def test_a_fit_that_ends_at_a_limit_has_no_gap_and_warns(
    fit: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("dcgs.learn.linear.fit", "dcgs.learn.ratings.fit"):
        monkeypatch.setattr(f"{module}.minimize", partial(dcgs.minimize, iterations=1))
    with pytest.warns(ConvergenceWarning, match=r"its gap_ is nan after 1 iterations .* limit on iterations"):
        model = fit()
    assert np.isnan(model.gap_).all()


UNRELIABLE = {
    "lost messages": dcgs.Lockstep(faults=dcgs.Faults(loss=0.2)),
    "late messages": dcgs.Lockstep(faults=dcgs.Faults(delay=2, sleep=0.1)),
    "edges that are down": dcgs.Lockstep(faults=dcgs.Faults(down=0.1), allow_faults=True),
    "own pace": dcgs.Lockstep(speeds={0: 0.3}),
}


@pytest.mark.parametrize("runtime", UNRELIABLE)
@pytest.mark.parametrize("radius", [3.0, "auto"])
def test_linear_models_are_certified_on_every_runtime_that_minimize_takes(
    runtime: str, radius: float | str
) -> None:
    X, y = X_CANCER[:200, [1, 4, 5, 8]], Y_CANCER[:200]
    settings: dict[str, Any] = {"graph": nx.cycle_graph(4), "gap": 1e-2}
    for kind in (DecentralizedLasso, DecentralizedLogisticRegression):
        plain = kind(radius, **settings).fit(X, y)
        model = kind(radius, runtime=UNRELIABLE[runtime], **settings).fit(X, y)
        assert model.radius_ == plain.radius_  # all before the last run is in rounds without faults
        assert 0.0 <= model.gap_ < 1.0
        # Certified to 1e-2 of what the models explain; two rows of 200 may change their class.
        assert model.score(X, y) == pytest.approx(plain.score(X, y), abs=0.01)


@pytest.mark.parametrize("runtime", UNRELIABLE)
def test_ratings_refuse_a_runtime_on_which_messages_are_lost_or_late(runtime: str) -> None:
    model = DecentralizedCompletion(1.0, runtime=UNRELIABLE[runtime])
    with pytest.raises(ValueError, match="ratings are fitted in rounds in which every message arrives"):
        model.fit(*np.divmod(np.arange(24), 6), np.sin(np.arange(24)))


def test_a_runtime_that_cannot_serve_a_fit_is_refused_with_a_sentence(tmp_path: Path) -> None:
    X, y = X_DIABETES[:40], Y_DIABETES[:40]
    noisy = dcgs.Lockstep(faults=dcgs.Faults(noise=1e-3))
    with pytest.raises(ValueError, match="cannot if messages are noisy"):
        DecentralizedLasso(1.0, runtime=noisy).fit(X, y)
    recorded = dcgs.Lockstep(speeds=1.0, record=tmp_path / "run.npz")
    with pytest.raises(ValueError, match="record and replay are for one run; a fit of several classes has 3"):
        DecentralizedLogisticRegression(1.0, runtime=recorded).fit(*load_iris(return_X_y=True))
    for runtime in ("mpi", dcgs.Lockstep):
        with pytest.raises(TypeError, match="runtime must be a runtime such as"):
            DecentralizedLasso(1.0, runtime=runtime).fit(X, y)
        with pytest.raises(TypeError, match="runtime must be a runtime such as"):
            DecentralizedCompletion(1.0, runtime=runtime).fit([0, 1], [0, 1], [1.0, 2.0])


def test_constant_ratings_columns_and_targets_give_the_constant() -> None:
    rows, cols = np.divmod(np.arange(96), 8)
    ratings = DecentralizedCompletion().fit(rows, cols, np.full(96, 4.0))
    assert ratings.predict([0, 5], [0, 1]).tolist() == [4.0, 4.0]
    ones, half = np.ones((40, 3)), np.arange(40) % 2
    with pytest.warns(UserWarning, match="nothing could be held out, so that radius 0.25 was taken"):
        lasso = DecentralizedLasso().fit(ones, np.full(40, 7.0))
    assert (lasso.coef_.tolist(), lasso.intercept_) == ([0.0, 0.0, 0.0], 7.0)
    with pytest.warns(UserWarning, match="nothing could be held out"):
        classifier = DecentralizedLogisticRegression().fit(ones, half)
    np.testing.assert_allclose(classifier.predict_proba(ones), 0.5, atol=1e-6)  # the gap, near the minimum
    with pytest.raises(ValueError, match=r"there are 2 distinct rows for the sites \[0, 1, 2\]\. Give fewer"):
        DecentralizedLogisticRegression(graph=nx.path_graph(3)).fit(ones, half)


@pytest.mark.parametrize("features", [5, 80])
def test_no_model_is_taken_where_its_error_on_held_out_rows_is_as_low(features: int) -> None:
    rng = np.random.default_rng(0)
    X, y, labels = rng.standard_normal((200, features)), rng.standard_normal(200), np.arange(200) % 2
    for model, mean in (
        (DecentralizedLasso(folds=5).fit(X, y), y.mean()),
        (DecentralizedLogisticRegression(folds=5).fit(X, labels), 0.0),
    ):
        assert model.path_ is not None
        assert model.path_.needs_no_model
        assert "a model without features is as good as radius" in str(model.path_)
        assert model.radius_ == 0.0
        assert not model.coef_.any()
        assert np.ravel(model.intercept_)[0] == pytest.approx(mean, abs=1e-6)  # the gap, near the minimum
        assert model.gap_ <= 1e-9


def test_the_path_of_ratings_says_if_offsets_alone_are_as_good() -> None:
    rows, cols = np.divmod(np.arange(240), 12)
    noise = np.random.default_rng(0).standard_normal(240)
    model = DecentralizedCompletion().fit(rows, cols, noise)
    assert model.path_ is not None
    assert model.path_.needs_no_model
    assert "offsets alone are as good as radius" in str(model.path_)
    signs = np.where(rows % 2, 1.0, -1.0) * np.where(cols % 3, 1.0, -1.5)
    model.fit(rows, cols, signs + 0.1 * noise)
    assert not model.path_.needs_no_model


def test_several_values_of_one_pair_count_as_their_mean() -> None:
    rows, cols = np.divmod(np.arange(24), 6)
    values = np.sin(np.arange(24.0))
    pairs = np.append(rows, rows[:3]), np.append(cols, cols[:3])
    with pytest.warns(UserWarning, match="site 0 has 3 ratings that repeat a pair, 2 of them with another"):
        twice = DecentralizedCompletion(1.0, n_sites=1).fit(
            *pairs, np.append(values, values[:3] + np.arange(3.0))
        )
    once = DecentralizedCompletion(1.0, n_sites=1).fit(rows, cols, values + np.eye(24)[1] / 2 + np.eye(24)[2])
    np.testing.assert_array_equal(twice.predict(rows, cols), once.predict(rows, cols))


def test_a_path_that_ran_out_of_steps_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dcgs.learn.radius.sums_finder._MOST_SUMS", 3)
    X = np.random.default_rng(0).standard_normal((120, 70))
    with pytest.warns(ConvergenceWarning, match="the steps were not enough for the models of radius"):
        DecentralizedLasso(gap=0.1).fit(X, X[:, :5].sum(axis=1))
