"""The distributed program equals the stacked reference of the paper in ``stacked.py``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Literal

import networkx as nx
import numpy as np
import pytest

import dcgs
import stacked
from dcgs import (
    CG,
    DCGS,
    DFW,
    NIDS,
    PCG,
    FastDCGS,
    L1Ball,
    Params,
    PGExtra,
    PrimalDual,
    ProjectedAGD,
    Theorem1,
    Theorem2,
)
from dcgs.counting import CountedOracle
from dcgs.facts import Facts, ProjectionFacts
from dcgs.methods import Agent
from dcgs.sets import ConvexSet, L2Ball, Simplex
from problems import GRAPHS, Array, Fits, laplacian_matrix, norm_of, random_fits

RADIUS = 3.0
HORIZON = 4
DISTANCE = 3.0
# The two programs do the same arithmetic in another order: each operation differs by rounding,
# 1e-16 relative, and a few hundred steps of conditional gradient carry that on without enlarging it
# much, as long as no vertex ties (the data are generic). Four digits are left for that.
TOLERANCE = 1e-10 * RADIUS

SETS: dict[str, tuple[ConvexSet, stacked.Oracle]] = {
    "l1": (L1Ball(5, RADIUS), stacked.l1_oracle(RADIUS)),
    "simplex": (Simplex(5, RADIUS), stacked.simplex_oracle(RADIUS)),
}
STEPS: dict[str, tuple[CG, bool]] = {
    "agnostic": (CG(step="agnostic"), False),
    "line search": (CG(step="line-search"), True),
}


def assert_same(
    fits: Fits,
    X: ConvexSet,
    graph: nx.Graph,
    method: dcgs.Method,
    reference: Iterator[stacked.Iterate],
    iterations: Sequence[int] = range(1, HORIZON + 1),
) -> None:
    """Compare answers, rounds and oracle calls of all agents after these iterations."""
    iterates = list(islice(reference, iterations[-1]))
    for k in iterations:
        expected = iterates[k - 1]
        result = dcgs.minimize(fits.objectives(), X, graph, method, iterations=k, every=0)
        np.testing.assert_allclose(result.agents, expected.x_bar, rtol=0.0, atol=TOLERANCE)
        np.testing.assert_array_equal(result.lmo_calls, expected.lmo_calls)
        assert result.rounds == expected.rounds


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("where", SETS)
@pytest.mark.parametrize("name", GRAPHS)
def test_dcgs_with_cg_and_theorem_1_equals_the_transcription(name: str, where: str, step: str) -> None:
    graph, (X, oracle), (inner, searching) = GRAPHS[name], SETS[where], STEPS[step]
    fits = random_fits(len(graph), rows=3, columns=5, seed=11)
    L = laplacian_matrix(graph)
    parameters = stacked.theorem1(HORIZON, len(graph), norm_of(L), DISTANCE)
    procedure = stacked.cg(oracle, searching)
    reference = stacked.sliding(fits.A, fits.b, L, X.start(), parameters, procedure)
    schedule = Theorem1(distance=DISTANCE, horizon=HORIZON)
    assert_same(fits, X, graph, DCGS(inner=inner, schedule=schedule), reference)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("where", SETS)
@pytest.mark.parametrize("name", GRAPHS)
def test_dcgs_with_cg_and_theorem_2_equals_the_transcription(name: str, where: str, step: str) -> None:
    graph, (X, oracle), (inner, searching) = GRAPHS[name], SETS[where], STEPS[step]
    fits = random_fits(len(graph), rows=9, columns=5, seed=25)
    L, u = laplacian_matrix(graph), fits.strong_convexity
    parameters = stacked.theorem2(HORIZON, len(graph), norm_of(L), DISTANCE, u)
    procedure = stacked.cg(oracle, searching)
    reference = stacked.sliding(fits.A, fits.b, L, X.start(), parameters, procedure)
    schedule = Theorem2(distance=DISTANCE, horizon=HORIZON)
    assert_same(fits, X, graph, DCGS(inner=inner, schedule=schedule), reference)


@pytest.mark.parametrize("where", SETS)
@pytest.mark.parametrize("name", GRAPHS)
def test_dcgs_with_pcg_equals_the_transcription_with_its_active_sets_kept(name: str, where: str) -> None:
    graph, (X, oracle) = GRAPHS[name], SETS[where]
    fits = random_fits(len(graph), rows=3, columns=5, seed=20)
    L = laplacian_matrix(graph)

    def parameters(k: int) -> stacked.Parameters:
        # Gaps that are met at some iterations and not at others.
        return k / (k + 1), 1.5 * norm_of(L), 2.5 * norm_of(L), k + 1.0, 20.0 * 0.8**k

    procedure = stacked.pcg(oracle, X.start(), len(graph), max_steps=1)
    reference = stacked.sliding(fits.A, fits.b, L, X.start(), parameters, procedure)
    method = DCGS(inner=PCG(max_steps=1), schedule=lambda k: Params(*parameters(k)))
    assert_same(fits, X, graph, method, reference, iterations=(1, 2, 3, 8, 16))


@pytest.mark.parametrize("schedule", ["theorem1", "theorem2"])
def test_the_named_schedules_are_the_papers_with_the_diameter_and_the_iterations(
    schedule: Literal["theorem1", "theorem2"],
) -> None:
    graph, (X, oracle) = GRAPHS["cycle"], SETS["simplex"]
    fits = random_fits(len(graph), rows=9, columns=5, seed=13)
    L, u = laplacian_matrix(graph), fits.strong_convexity
    diameter = RADIUS * np.sqrt(2.0)
    parameters = {
        "theorem1": stacked.theorem1(HORIZON, len(graph), norm_of(L), diameter),
        "theorem2": stacked.theorem2(HORIZON, len(graph), norm_of(L), diameter, u),
    }[schedule]
    procedure = stacked.cg(oracle, searching=True)
    reference = stacked.sliding(fits.A, fits.b, L, X.start(), parameters, procedure)
    expected = list(islice(reference, HORIZON))[-1]
    method = DCGS(inner="cg", schedule=schedule)
    result = dcgs.minimize(fits.objectives(), X, graph, method, iterations=HORIZON)
    np.testing.assert_allclose(result.agents, expected.x_bar, rtol=0.0, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["one edge", "star", "random of 7"])
def test_the_last_iterate_is_that_of_the_transcription(name: str) -> None:
    graph, (X, oracle) = GRAPHS[name], SETS["l1"]
    fits = random_fits(len(graph), rows=9, columns=5, seed=14)
    L, u = laplacian_matrix(graph), fits.strong_convexity
    parameters = stacked.theorem2(HORIZON, len(graph), norm_of(L), DISTANCE, u)
    procedure = stacked.cg(oracle, searching=True)
    reference = stacked.sliding(fits.A, fits.b, L, X.start(), parameters, procedure)
    method = DCGS(inner="cg", schedule=Theorem2(distance=DISTANCE, horizon=HORIZON), answer="last")
    for k, expected in enumerate(islice(reference, HORIZON), start=1):
        result = dcgs.minimize(fits.objectives(), X, graph, method, iterations=k, every=0)
        np.testing.assert_allclose(result.agents, expected.x, rtol=0.0, atol=TOLERANCE)


def test_starting_elsewhere_starts_every_agent_there() -> None:
    graph, (X, oracle) = GRAPHS["path"], SETS["l1"]
    fits = random_fits(len(graph), rows=3, columns=5, seed=15)
    x0 = np.array([1.0, -0.5, 0.0, 0.25, 0.0])
    L = laplacian_matrix(graph)
    parameters = stacked.theorem1(HORIZON, len(graph), norm_of(L), DISTANCE)
    procedure = stacked.cg(oracle, searching=True)
    expected = list(islice(stacked.sliding(fits.A, fits.b, L, x0, parameters, procedure), HORIZON))[-1]
    method = DCGS(inner="cg", schedule=Theorem1(distance=DISTANCE, horizon=HORIZON))
    result = dcgs.minimize(fits.objectives(), X, graph, method, iterations=HORIZON, x0=x0)
    np.testing.assert_allclose(result.agents, expected.x_bar, rtol=0.0, atol=TOLERANCE)


@pytest.mark.parametrize("name", GRAPHS)
def test_primal_dual_over_a_ball_equals_algorithm_1_solved_by_bisection(name: str) -> None:
    graph, X = GRAPHS[name], L2Ball(5, radius=0.5)
    fits = random_fits(len(graph), rows=3, columns=5, seed=16)
    L = laplacian_matrix(graph)
    parameters = stacked.theorem1(HORIZON, len(graph), norm_of(L), X.diameter)
    procedure = stacked.exact_on_ball(0.5)
    reference = stacked.sliding(fits.A, fits.b, L, X.start(), parameters, procedure)
    for k, expected in enumerate(islice(reference, HORIZON), start=1):
        result = dcgs.minimize(
            fits.objectives(), X, graph, PrimalDual(schedule="theorem1"), iterations=k, every=0
        )
        # Both solve by a closed form to rounding error; condition numbers here are below a hundred.
        np.testing.assert_allclose(result.agents, expected.x_bar, rtol=0.0, atol=TOLERANCE)
        assert result.rounds == expected.rounds


@pytest.mark.parametrize("name", GRAPHS)
def test_primal_dual_over_a_polytope_equals_algorithm_1_solved_face_by_face(name: str) -> None:
    graph, X = GRAPHS[name], Simplex(4, radius=1.0)
    fits = random_fits(len(graph), rows=6, columns=4, seed=17)
    L, u = laplacian_matrix(graph), fits.strong_convexity
    parameters = stacked.theorem2(HORIZON, len(graph), norm_of(L), X.diameter, u)
    procedure = stacked.exact_on_simplex(1.0)
    reference = stacked.sliding(fits.A, fits.b, L, X.start(), parameters, procedure)
    # An iterative solver stops at a gap e of 1e-12 times that of fᵢ at x⁰, at most 100 here; φ being
    # u-strongly convex, its point is within √(e/u) of the minimizer, and HORIZON such errors add up.
    tolerance = HORIZON * np.sqrt(1e-12 * 100.0 / u)
    for k, expected in enumerate(islice(reference, HORIZON), start=1):
        result = dcgs.minimize(
            fits.objectives(), X, graph, PrimalDual(schedule="theorem2"), iterations=k, every=0
        )
        np.testing.assert_allclose(result.agents, expected.x_bar, rtol=0.0, atol=tolerance)
        assert result.rounds == expected.rounds


@pytest.mark.parametrize("where", SETS)
@pytest.mark.parametrize("name", GRAPHS)
def test_dfw_with_tracking_equals_the_transcription(name: str, where: str) -> None:
    graph, (X, oracle) = GRAPHS[name], SETS[where]
    fits = random_fits(len(graph), rows=3, columns=5, seed=18)
    reference = stacked.dfw_tracking(fits.A, fits.b, laplacian_matrix(graph), X.start(), oracle)
    assert_same(fits, X, graph, DFW(), reference)


@pytest.mark.parametrize("where", SETS)
@pytest.mark.parametrize("name", GRAPHS)
def test_dfw_with_repeated_averaging_equals_the_transcription(name: str, where: str) -> None:
    graph, (X, oracle) = GRAPHS[name], SETS[where]
    fits = random_fits(len(graph), rows=3, columns=5, seed=19)
    reference = stacked.dfw_averaging(fits.A, fits.b, laplacian_matrix(graph), X.start(), oracle)
    assert_same(fits, X, graph, DFW(tracking=False), reference)


@pytest.mark.parametrize(
    "method",
    [
        DCGS(),
        DCGS(answer="last"),
        FastDCGS(),
        PrimalDual(),
        PrimalDual(answer="last"),
        DFW(),
        DFW(tracking=False),
        PGExtra(),
        NIDS(),
        ProjectedAGD(),
    ],
    ids=repr,
)
def test_a_program_returns_what_it_showed_last(method: dcgs.Method) -> None:
    fits, (X, _) = random_fits(1, rows=9, columns=5, seed=21), SETS["l1"]
    shown: list[tuple[int, Any]] = []
    agent = Agent(
        index=0,
        f=fits.objectives()[0],
        X=X,
        lmo=CountedOracle(X),
        x0=X.start(),
        degrees={},
        facts=Facts(
            1,
            norm_L=0.0,
            strong_convexity=fits.strong_convexity,
            set_diameter=X.diameter,
            horizon=HORIZON,
            projection=ProjectionFacts((0.0, 0.0), (0.0,), 1.0, 1.0),
        ),
        iterations=HORIZON,
        rng=np.random.default_rng(0),
        observe=lambda k, answer, dual=None: shown.append((k, answer)),
    )

    def alone() -> Iterator[Array]:
        """Answer every message of the agent's with an empty inbox; yield what it returns."""
        program = method.program(agent)
        next(program)
        try:
            while True:
                program.send({})
        except StopIteration as end:
            yield end.value

    (returned,) = alone()
    assert [k for k, _ in shown] == list(range(1, HORIZON + 1))
    np.testing.assert_array_equal(returned, shown[-1][1])
