"""Certificates do not depend on the luck of an iterative oracle, whatever the data are."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator

import dcgs
from dcgs.objectives.maps import largest_by_lanczos
from dcgs.run.measuring import certify
from dcgs.sets import lanczos, spectraplex, top_eigenvalue
from dcgs.sets.top_eigenvalue import TopEigenvalue
from problems import Array

SIDE, RADIUS, GAP = 80, 2.0, 1e-2
ROUNDING = 1e-12  # of a Gram matrix with sums of some hundred terms, relative to its largest eigenvalue


def known_starts(side: int) -> list[Array]:
    """Return the vectors with which earlier versions started, whatever the data were."""
    sizes: list[Any] = [side, (side, 8), (side, 7), (side, 6), (side, 12), (side, 11), (side, 9)]
    found = [np.random.default_rng(2012).standard_normal(size).reshape(side, -1) for size in sizes]
    return [*found, np.random.default_rng(2017).standard_normal((side, 4))]


def crafted(side: int, symmetric: bool = False) -> Array:
    """Return a matrix whose top singular vector is orthogonal to all known starts; its second is one."""
    rng = np.random.default_rng(1)
    starts = known_starts(side)
    left, right = np.linalg.qr(np.hstack([*starts, rng.standard_normal((side, 1))]))[0][:, [-1, 0]].T
    pair = np.linalg.qr(rng.standard_normal((side, 2)))[0].T
    u, w = (left, right) if symmetric else pair
    return 10.0 * np.outer(u, left) + 5.0 * np.outer(w, right)


def entries(B: Array, owners: int = 1) -> list[dcgs.Objective]:
    """Return ‖x − B‖² as matrix completion, rows divided among agents."""
    i, j = (index.reshape(-1) for index in np.indices(B.shape))
    owner = i * owners // len(B)
    return [
        dcgs.MatrixCompletion(i[owner == k], j[owner == k], B[i[owner == k], j[owner == k]], B.shape)
        for k in range(owners)
    ]


def relative_error(B: Array, X: Any, result: dcgs.Result) -> float:
    """Return (f(x) − f*)/(f(x⁰) − f*), where all agents together have a multiple of ‖x − B‖²."""
    nearest = X.project(B)  # by a dense decomposition
    value, start, best = (
        float(((np.asarray(x) - B) ** 2).sum()) for x in (result.x, np.asarray(X.start()), nearest)
    )
    return (value - best) / (start - best)


CG_EDGES = dcgs.FastDCGS(form="edges", inner="cg")
RUNS: dict[str, tuple[Callable[[Array], list[dcgs.Objective]], dcgs.Method]] = {
    "DFW": (lambda B: entries(B) * 2, dcgs.DFW()),
    "DCGS": (lambda B: entries(B) * 2, dcgs.DCGS()),
    "PrimalDual": (entries, dcgs.PrimalDual()),
    "edges": (lambda B: entries(B) * 2, CG_EDGES),
    "factors": (lambda B: entries(B, 2), dcgs.FastDCGS()),
    "shared factors": (lambda B: entries(B) * 2, dcgs.FastDCGS()),
    "one agent": (entries, dcgs.FastDCGS()),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_success_over_a_nuclear_norm_ball_is_true_for_crafted_data(run: Any) -> None:
    make, method = run
    B, X = crafted(SIDE), dcgs.NuclearNormBall((SIDE, SIDE), RADIUS)
    objectives = make(B)
    result = dcgs.minimize(objectives, X, nx.path_graph(len(objectives)), method, gap=GAP, iterations=100)
    assert result.status.success
    assert relative_error(B, X, result) <= GAP


@pytest.mark.parametrize("method", [dcgs.FastDCGS(), dcgs.DFW(), CG_EDGES], ids=["fast", "DFW", "edges"])
def test_a_success_over_a_spectraplex_is_true_for_crafted_data(method: dcgs.Method) -> None:
    B, X = crafted(70, symmetric=True), dcgs.Spectraplex(70, RADIUS)
    objectives = entries(B) * 2
    result = dcgs.minimize(objectives, X, nx.path_graph(2), method, gap=GAP, iterations=100)
    assert result.status.success
    assert relative_error(B, X, result) <= GAP


def test_default_settings_take_crafted_data_over_a_nuclear_norm_ball() -> None:
    """The scale of the first tolerance was a negative gap: its square root was a math domain error."""
    B, X = crafted(SIDE), dcgs.NuclearNormBall((SIDE, SIDE), RADIUS)
    f = dcgs.LeastSquares(sp.eye_array(SIDE**2, format="csr"), B.reshape(-1), shape=B.shape)
    result = dcgs.minimize([f, f], X, nx.path_graph(2), gap=GAP)
    assert result.status.success
    assert relative_error(B, X, result) <= GAP


# A blind oracle: its start is orthogonal to the top singular vector.


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(image: Array, size: int, near: Array | None) -> Array:
        return np.random.default_rng(2012).standard_normal(size)

    for module in (lanczos, spectraplex):
        monkeypatch.setattr(module, "start_vector", start)


@pytest.mark.usefixtures("blind")
@pytest.mark.parametrize("method", [dcgs.DFW(), dcgs.DCGS(), CG_EDGES], ids=["DFW", "DCGS", "edges"])
def test_the_answer_of_a_blind_oracle_is_no_certificate(method: dcgs.Method) -> None:
    B, ball = crafted(SIDE), dcgs.NuclearNormBall((SIDE, SIDE), RADIUS)
    result = dcgs.minimize(entries(B) * 2, ball, nx.path_graph(2), method, gap=GAP, iterations=30)
    assert result.status is dcgs.Status.ITERATIONS
    B, plex = crafted(70, symmetric=True), dcgs.Spectraplex(70, RADIUS)
    result = dcgs.minimize(entries(B) * 2, plex, nx.path_graph(2), method, gap=GAP, iterations=30)
    assert result.status is dcgs.Status.ITERATIONS


# The bound itself.


def spectra(count: int) -> list[Array]:
    """Return singular values: clustered, multiple, falling, of rank one, random."""
    rng = np.random.default_rng(3)
    falls = np.arange(count)
    return [
        np.ones(count),
        1.0 - 1e-9 * falls,
        1.0 - 1e-4 * falls,
        np.r_[np.ones(5), np.linspace(0.99, 0.0, count - 5)],
        np.r_[1.0, 0.999, np.full(count - 2, 0.5)],
        0.5**falls,
        1.0 / (1.0 + falls),
        np.r_[1.0, np.zeros(count - 1)],
        *(np.sort(rng.random(count))[::-1] for _ in range(4)),
    ]


def with_values(values: Array, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    left, right = (np.linalg.qr(rng.standard_normal((side, len(values))))[0] for side in shape)
    return np.asarray((left * values) @ right.T)


def matrices(rng: np.random.Generator) -> list[Array]:
    """Return matrices with known singular values, among them such with a vector orthogonal to the probe."""
    shapes = [(30, 20), (20, 30), (25, 25)]
    found = [with_values(values, shape, rng) for shape in shapes for values in spectra(20)]
    away = [G - np.outer(G @ (p := lanczos.probe(G.shape[1])), p) / (p @ p) for G in found]
    return [*found, *away]


FORMS: list[Callable[[Array], Any]] = [np.asarray, np.asfortranarray, sp.csr_array, aslinearoperator]


def test_the_bound_of_the_nuclear_norm_ball_is_the_minimum_for_every_spectrum_and_form() -> None:
    rng = np.random.default_rng(4)
    for G in matrices(rng):
        sigma = float(np.linalg.norm(G, 2))
        X = dcgs.NuclearNormBall(G.shape, 3.0)
        for form in FORMS:
            bound = X.lower_bound(form(G), X.lmo(form(G)))
            assert bound.value - bound.error <= -3.0 * sigma
            assert bound.value + bound.error == pytest.approx(-3.0 * sigma, rel=ROUNDING)


def test_the_bound_of_the_spectraplex_is_the_minimum_for_every_spectrum() -> None:
    rng = np.random.default_rng(5)
    for values in spectra(20):
        Q = np.linalg.qr(rng.standard_normal((20, 20)))[0]
        for signs in (1.0, -1.0, rng.choice([-1.0, 1.0], 20)):
            S = (Q * (signs * values)) @ Q.T
            X, lowest = dcgs.Spectraplex(20, 3.0), 3.0 * float(np.linalg.eigvalsh(S)[0])
            bound = X.lower_bound(S, X.lmo(S))
            assert bound.value - bound.error <= lowest
            assert bound.value + bound.error == pytest.approx(lowest, rel=ROUNDING, abs=ROUNDING)


@pytest.mark.parametrize("scale", [1e-280, 1e-150, 1.0, 1e150, 1e280])
def test_the_bound_does_not_depend_on_the_scale(scale: float) -> None:
    G = np.random.default_rng(6).standard_normal((30, 20))
    sigma = float(np.linalg.norm(G, 2))
    ball, plex, S = dcgs.NuclearNormBall((30, 20)), dcgs.Spectraplex(20), G[:20] + G[:20].T
    bound = ball.lower_bound(scale * G, ball.lmo(G))
    assert bound.value / scale == pytest.approx(-sigma, rel=ROUNDING)
    bound = plex.lower_bound(scale * S, plex.lmo(S))
    assert bound.value / scale == pytest.approx(float(np.linalg.eigvalsh(S)[0]), rel=ROUNDING)


@pytest.mark.parametrize("form", FORMS)
def test_the_bound_of_a_zero_direction_is_zero(form: Callable[[Array], Any]) -> None:
    G = form(np.zeros((6, 6)))
    for X in (dcgs.NuclearNormBall((6, 6)), dcgs.Spectraplex(6)):
        assert X.lower_bound(G, X.lmo(G)) == dcgs.LowerBound(0.0, 0.0)


def test_the_bound_of_a_product_is_that_of_its_parts() -> None:
    rng = np.random.default_rng(7)
    G, g = rng.standard_normal((6, 5)), rng.standard_normal(4)
    X = dcgs.ProductSet(dcgs.NuclearNormBall((6, 5), 2.0), dcgs.L1Ball(4, 3.0))
    direction = np.r_[G.reshape(-1), g]
    least = -2.0 * float(np.linalg.norm(G, 2)) - 3.0 * float(np.abs(g).max())
    assert X.lower_bound(direction, X.lmo(direction)).value == pytest.approx(least, rel=ROUNDING)


# Operators that are too large for a dense decomposition.


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_eigenvalue, "DENSE_SIDE", 10)


@pytest.mark.usefixtures("large")
def test_the_bound_of_a_large_operator_is_above_its_largest_singular_value_and_close_to_it() -> None:
    rng = np.random.default_rng(8)
    X = dcgs.NuclearNormBall((120, 90), 2.0)
    for values, form in zip(spectra(90), 3 * FORMS, strict=True):
        G = with_values(values, (120, 90), rng)
        bound = X.lower_bound(form(G), X.lmo(form(G)))
        assert bound.value - bound.error <= -2.0 * values[0] * (1.0 - ROUNDING)
        assert bound.value >= -2.0 * values[0] * (1.0 + 2.0 * X.tolerance)


@pytest.mark.usefixtures("large")
def test_the_bound_of_a_large_symmetric_operator_is_below_its_smallest_eigenvalue() -> None:
    rng = np.random.default_rng(9)
    for values in spectra(90):
        Q = np.linalg.qr(rng.standard_normal((90, 90)))[0]
        spectrum = rng.choice([-1.0, 1.0], 90) * values
        X, S = dcgs.Spectraplex(90, 2.0), (Q * spectrum) @ Q.T
        bound = X.lower_bound(S, X.lmo(S))
        assert bound.value - bound.error <= 2.0 * float(spectrum.min()) + ROUNDING
        assert bound.value >= 2.0 * float(spectrum.min()) - 4.0 * X.tolerance


@pytest.mark.usefixtures("large")
def test_a_slack_saves_products() -> None:
    G = with_values(np.linspace(1.0, 0.0, 200), (220, 200), np.random.default_rng(10))
    X, counts = dcgs.NuclearNormBall((220, 200), 2.0), []
    for slack in (0.0, 0.2):
        calls: list[int] = []
        operator = aslinearoperator(G)
        operator.matmat = lambda B, calls=calls: (calls.append(B.shape[1]), G @ B)[1]
        bound = X.lower_bound(operator, X.lmo(G), slack)
        assert -2.2 <= bound.value <= -2.0
        counts.append(sum(calls))
    assert counts[1] < counts[0]


def test_the_bound_fails_no_more_often_than_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FAILURE", 0.1), ("_RANDOM", 1), ("_MOST_RANDOM", 1)):
        monkeypatch.setattr(top_eigenvalue, name, value)
    A, failed = np.diag(np.r_[1.05, np.repeat(np.linspace(0.2, 1.0, 5), 8)]), 0
    for seed in range(200):
        search = TopEigenvalue.start(np.zeros((41, 0)), np.random.default_rng(seed))
        while search.steps < 5:
            search.add(A @ search.block, 1e-3)
        failed += search.bound < 1.05
    # Failures have an expectation of at most 20 and a deviation of at most 4.3; three deviations are allowed.
    assert 0 < failed <= 20 + 13


def test_equal_directions_have_equal_bounds_in_all_threads(large: None) -> None:
    G = np.random.default_rng(11).standard_normal((70, 60))
    X = dcgs.NuclearNormBall(G.shape)
    with ThreadPoolExecutor(4) as pool:
        bounds = set(pool.map(lambda _: X.lower_bound(G.copy(), X.lmo(G)), range(8)))
    assert len(bounds) == 1


def test_certify_returns_an_upper_bound_for_a_blind_oracle(blind: None) -> None:
    B, X = crafted(SIDE), dcgs.NuclearNormBall((SIDE, SIDE), RADIUS)
    left, _, right = np.linalg.svd(B)
    x = RADIUS * np.outer(left[:, 1], right[1])
    gap = float(np.vdot(2.0 * (x - B), x)) + RADIUS * float(np.linalg.norm(2.0 * (x - B), 2))
    assert certify(entries(B), X, x)[1] == pytest.approx(gap, rel=ROUNDING)
    u, sigma, vt = np.linalg.svd(x)
    factors = dcgs.LowRank(u[:, :1] * sigma[:1], vt[:1].T, (SIDE, SIDE))
    assert certify(entries(B), X, factors)[1] == pytest.approx(gap, rel=ROUNDING)


def test_the_smoothness_of_an_operator_orthogonal_to_the_first_start_is_found() -> None:
    start, rng = np.random.default_rng(0).standard_normal(50), np.random.default_rng(12)
    Q = np.linalg.qr(np.column_stack([start, rng.standard_normal((50, 25))]))[0]
    seen = Q[:, :25] @ np.linalg.qr(rng.standard_normal((25, 25)))[0]  # its span has the start
    A = (seen * 0.9 ** np.arange(25)) @ seen.T + 1.5 * np.outer(Q[:, 25], Q[:, 25])
    assert largest_by_lanczos(aslinearoperator(A)) == pytest.approx(1.5, rel=1e-5)


@pytest.mark.parametrize("seed", range(30))
def test_the_bound_of_a_polytope_holds_whichever_vertex_the_oracle_finds(seed: int) -> None:
    """A box with cuts; the judge is the least value at all corners, to which rounding adds 1e-9 at most."""
    rng = np.random.default_rng((26, seed))
    d, scale = 3, 10.0 ** rng.uniform(-6.0, 6.0)
    A = np.vstack([np.eye(d), -np.eye(d), rng.standard_normal((3, d))])
    b = scale * np.concatenate([np.ones(2 * d), rng.uniform(0.1, 1.0, 3)])
    X, g = dcgs.Polytope(A, b), rng.standard_normal(d) * 10.0 ** rng.uniform(-4.0, 4.0, d)
    corners = [
        np.linalg.solve(A[list(rows)], b[list(rows)])
        for rows in itertools.combinations(range(len(A)), d)
        if abs(np.linalg.det(A[list(rows)])) > 1e-9
    ]
    inside = [x for x in corners if (A @ x <= b + 1e-12 * scale).all()]
    least = min(float(g @ x) for x in inside)
    found = X.lower_bound(g, X.lmo(g))
    size = float(np.abs(g).sum()) * scale
    assert least - 1e-9 * size <= found.value - found.error <= least + 1e-15 * size
    for x in inside:  # also of a wrong vertex
        wrong = X.lower_bound(g, dcgs.Vertex(x))
        assert wrong.value - wrong.error <= least + 1e-15 * size
