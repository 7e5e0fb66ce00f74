"""Statistics, designs, folds and paths over several sites equal those of the pooled rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from importlib import import_module

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import dcgs
from dcgs.learn.linear.design import Design, DesignSpec, Statistics, designs, statistics
from dcgs.learn.linear.fit import RowsSpec, fit_rows
from dcgs.learn.radius.folds import HoldOut, deal, fold_numbers
from dcgs.learn.radius.path import path_steps
from dcgs.learn.sites import Rows, Sites, SitesError
from dcgs.learn.sums import Reductions
from dcgs.objectives.centered import CenteredMap

GRAPH = nx.path_graph(3)


def rows(seed: int = 0, n: int = 90, d: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features with means far from zero, targets, and weights, some of them 0."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d)) * [1.0, 10.0, 0.1, 1.0] + [0.0, 500.0, -3.0, 1e4]
    A[A < -3.0] = 0.0
    y = A @ [1.0, -0.2, 5.0, 0.0] + rng.standard_normal(n)
    return A, y, rng.integers(0, 4, n).astype(float)


def noisy_labels(y: np.ndarray) -> np.ndarray:
    """Return labels that features explain in part, so that coefficients without bounds are small."""
    return np.where(y > np.median(y) + 20.0 * np.random.default_rng(1).standard_normal(len(y)), 1.0, -1.0)


def split(A: np.ndarray, y: np.ndarray, w: np.ndarray | None, sparse: bool = False) -> dict[int, Rows]:
    places = np.array_split(np.arange(len(y)), 3)
    features = sp.csr_array(A) if sparse else A
    return {i: Rows(features[p], y[p], None if w is None else w[p]) for i, p in enumerate(places)}


def found_statistics(sites: dict[int, Rows], network: Reductions) -> Statistics:
    (found,) = network.run(statistics(sites))
    return found


def design(sites: dict[int, Rows], network: Reductions, loss: Callable[..., dcgs.Loss]) -> Design:
    (made,) = designs([sites], network, DesignSpec(loss))
    return made


@pytest.mark.parametrize("sparse", [False, True])
def test_statistics_are_those_of_all_rows_with_their_weights(sparse: bool) -> None:
    A, y, w = rows()
    network = Reductions(GRAPH)
    found = found_statistics(split(A, y, w, sparse), network)
    repeated = np.repeat(A, w.astype(int), axis=0)
    # Means and deviations of a few hundred numbers: rounding error.
    np.testing.assert_allclose(found.mean, repeated.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation, repeated.std(axis=0), rtol=1e-9)
    assert found.rows == np.count_nonzero(w)
    assert found.weight == w.sum()
    assert [one.rounds for one in network.sent] == [2, 2]
    assert sum(one.bytes for one in network.sent) == network.bytes > 0
    json.dumps([one.to_dict() for one in network.sent])


def test_a_constant_column_has_deviation_zero() -> None:
    A, y, _ = rows()
    A[:, 3] = 0.1
    assert found_statistics(split(A, y, None), Reductions(GRAPH)).constant.tolist() == [3]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("b", "a", "c"), "site 1 has 'b', 'a' where the first site has 'a', 'b'. Give X its columns in one"),
        (("a", "b", "C"), "site 0 has no column 'C'; site 1 has no column 'c'. Rename them, or leave them"),
        (None, "site 0 has names; site 1 has no names. Give all sites data frames, or none."),
    ],
)
def test_sites_with_other_names_of_columns_are_named(columns: tuple[str, ...] | None, message: str) -> None:
    sites = [Rows(np.ones((2, 3)), np.ones(2), columns=names) for names in (("a", "b", "c"), columns)]
    with pytest.raises(SitesError, match=re.escape(message)):
        fit_rows(Sites.of(sites), RowsSpec(radius=1.0))


def test_sites_with_other_columns_or_without_rows_are_named() -> None:
    other = [Rows(np.ones((2, 3)), np.ones(2)), Rows(np.ones((2, 2)), np.ones(2))]
    with pytest.raises(SitesError, match="same features; site 1 has 2, and 3 are asked for or another"):
        fit_rows(Sites.of(other), RowsSpec(radius=1.0))
    empty = [Rows(np.ones((2, 2)), np.ones(2)), Rows(np.ones((0, 2)), np.ones(0))]
    with pytest.raises(SitesError, match=r"every site must have rows; there are none at site 1\. Leave it"):
        fit_rows(Sites.of(empty), RowsSpec(radius=1.0))


def fitted(made: Design, sites: dict[int, Rows], radius: float) -> np.ndarray:
    ball = dcgs.L1Ball(len(made.statistics.mean), radius)
    X = made.set_of(ball)
    result = dcgs.minimize(made.objectives(sites), X, GRAPH, x0=made.start(ball), gap=1e-8, every=None)
    model = made.model(result.x)
    return np.append(model.coef, model.intercept)


@pytest.mark.parametrize("loss", [dcgs.SquaredLoss, dcgs.LogisticLoss, partial(dcgs.HuberLoss, delta=2.0)])
def test_a_wide_radius_gives_the_model_without_bounds_in_the_units_of_the_user(
    loss: Callable[..., dcgs.Loss],
) -> None:
    A, y, w = rows()
    y = noisy_labels(y) if loss is dcgs.LogisticLoss else y
    sites = split(A, y, w)
    found = fitted(design(sites, Reductions(GRAPH), loss), sites, 20.0)
    z = A @ found[:-1] + found[-1]
    slopes = w * loss(y).grad(z)
    # Without bounds the gradient is zero; it is compared with its value where there is no model.
    first = w * loss(y).grad(np.full(len(y), y.mean()))
    scales = A.std(axis=0)
    gradient = np.append(((A - A.mean(axis=0)) / scales).T @ slopes, slopes.sum())
    assert np.abs(gradient).max() <= 1e-3 * np.abs(first).sum()


@pytest.mark.parametrize("loss", [dcgs.SquaredLoss, dcgs.LogisticLoss])
def test_sparse_rows_give_the_model_of_dense_rows(
    loss: Callable[..., dcgs.Loss], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("dcgs.learn.linear.design"), "_SMALL", 0)
    A, y, w = rows()
    y = noisy_labels(y) if loss is dcgs.LogisticLoss else y
    models = []
    for sparse in (False, True):
        sites = split(A, y, w, sparse)
        made = design(sites, Reductions(GRAPH), loss)
        models.append(fitted(made, sites, 1.5))
        centered = isinstance(made.objective(sites[0]).map, CenteredMap)
        assert centered == sparse
    # Both are certified to 1e-8 of the decrease; coefficients are off by its root at most.
    np.testing.assert_allclose(models[0], models[1], rtol=2e-4, atol=2e-4)


def test_equal_rows_are_dealt_and_held_out_together_and_weights_count_as_copies() -> None:
    A, y, w = rows()
    w[w == 0.0] = 1.0
    copies = np.repeat(np.arange(len(y)), w.astype(int))
    assert deal(A[copies], y[copies], 3).tolist() == deal(A, y, 3)[copies].tolist()
    how = HoldOut(5, 5)
    weighted = fold_numbers(Rows(A, y, w), how)
    repeated = fold_numbers(Rows(A[copies], y[copies]), how)
    assert repeated.tolist() == weighted[copies].tolist()
    shares = np.bincount(repeated, minlength=5) / len(copies)
    assert np.abs(shares - 0.2).max() < 0.03  # a row has a weight of at most 3 of about 180
    assert fold_numbers(Rows(sp.csr_array(A), y, w), how).tolist() == weighted.tolist()


def test_the_path_goes_from_no_model_to_one_without_bounds_and_finds_the_true_size() -> None:
    rng = np.random.default_rng(3)
    A = rng.standard_normal((240, 12))
    y = A @ np.append([3.0, -2.0], np.zeros(10)) + 2.0 * rng.standard_normal(240)
    sites = split(A, y, None)
    network = Reductions(GRAPH)
    made = design(sites, network, dcgs.SquaredLoss)
    folds = HoldOut(5, 5).of(sites, made)
    (found,) = network.run(path_steps(network, folds, lambda r: made.set_of(dcgs.L1Ball(12, r))))
    assert 4.0 < found.best.radius < 7.0
    assert found.one_standard_error.radius <= found.best.radius
    assert found.points[0].features <= 2.0 <= found.points[-1].features
    assert found.best.error < 0.5 * found.null.error
    assert found.rounds == 4  # one sum with the Hessians of all folds, one with the losses of all radii
    assert [point.radius for point in found.points] == found.to_frame()["radius"].tolist()
    assert json.loads(found.to_json())["best_radius"] == found.best.radius
    assert "is best" in str(found)
    table = found.columns()
    assert (np.diff(table["loss"]) <= 1e-9).all()  # a larger set has no larger loss


def test_the_path_by_minimize_agrees_with_that_by_newton_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    A, y, _ = rows(n=120)
    sites = split(A, noisy_labels(y), None)
    made = design(sites, Reductions(GRAPH), dcgs.LogisticLoss)
    folds = HoldOut(1, 4, by_class=True).of(sites, made)
    ball = dcgs.L1Ball(4, 1.0)

    def set_of(radius: float) -> dcgs.ConvexSet:
        return made.set_of(dcgs.L1Ball(4, radius))

    paths = []
    for few in (64, 0):
        monkeypatch.setattr(import_module("dcgs.learn.radius.path"), "_FEW", few)
        paths.append(
            dcgs.path(
                folds,
                lambda r: made.set_of(dcgs.L1Ball(4, r)),
                GRAPH,
                radii=[0.5, 2.0],
                start=made.start(ball),
            )
        )
    errors = [path.columns()["error"] for path in paths]
    # Both find models to a gap of 3 % of what they explain.
    np.testing.assert_allclose(errors[0], errors[1], rtol=0.03)
    assert [path.folds for path in paths] == [1, 1]


def test_a_weighted_loss_counts_an_entry_as_often_as_its_weight() -> None:
    z, b, w = np.array([0.3, -2.0, 1.0]), np.array([1.0, -1.0, -1.0]), np.array([2.0, 0.0, 3.0])
    copies = np.array([0, 0, 2, 2, 2])
    for make in (dcgs.SquaredLoss, dcgs.LogisticLoss, dcgs.HuberLoss):
        weighted, plain = dcgs.WeightedLoss(make(b), w), make(b[copies])
        assert weighted.value(z) == pytest.approx(plain.value(z[copies]), rel=1e-14)
        assert float(weighted.grad(z).sum()) == pytest.approx(float(plain.grad(z[copies]).sum()), rel=1e-14)
        assert float(weighted.hess(z).sum()) == pytest.approx(float(plain.hess(z[copies]).sum()), rel=1e-14)
    with pytest.raises(ValueError, match=r"weights must be at least 0; the smallest is -1.00e\+00"):
        dcgs.WeightedLoss(dcgs.SquaredLoss(b), np.array([1.0, -1.0, 1.0]))
