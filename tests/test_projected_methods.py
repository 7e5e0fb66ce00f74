"""Methods that project: equal to stacked versions, at the optimum in the end, and counted exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Literal

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.polynomial import chebyshev as chebyshev_series

import dcgs
from dcgs import NIDS, L1Ball, PGExtra, ProjectedAGD
from dcgs.counting import CountedOracle
from dcgs.facts import Facts, ProjectionFacts
from dcgs.methods import Agent
from dcgs.methods import mixing as gossip
from dcgs.network import as_network, extreme_eigenvalues
from dcgs.run.distributed import sum_smoothness
from dcgs.run.stopping import Status
from dcgs.runtime import Job, Lockstep, Traffic
from dcgs.runtime.encoding import EncodedArray
from dcgs.runtime.wire import FRAME, HEADER
from problems import GRAPHS, Array, EndedByObserver, Fits, laplacian_matrix, neighbors_of, random_fits
from reference import optimum
from stacked import gradients, metropolis

RADIUS = 1.5
X = L1Ball(5, RADIUS)
PROJECTED: dict[str, dcgs.Method] = {
    "PGExtra": PGExtra(),
    "PGExtra, hasty": PGExtra(laziness=0.0),
    "NIDS": NIDS(),
    "AGD": ProjectedAGD(),
    "AGD, exact": ProjectedAGD(gossip="exact"),
    "AGD, chebyshev": ProjectedAGD(gossip="chebyshev"),
    "AGD, repeated": ProjectedAGD(gossip="repeated"),
}
every_projected = pytest.mark.parametrize("projected", PROJECTED.values(), ids=PROJECTED)
every_graph = pytest.mark.parametrize("name", GRAPHS)
# The two programs do the same arithmetic in another order; a few dozen iterations of methods that
# converge carry rounding errors of 1e-16 on without enlarging them much.
TOLERANCE = 1e-10 * RADIUS
HORIZON = 30


def uneven_fits(agents: int, rows: int, seed: int) -> Fits:
    """Return agents whose data differ in size, up to threefold, and so in smoothness, about ninefold."""
    fits = random_fits(agents, rows, columns=5, seed=seed)
    return Fits(fits.A * np.linspace(1.0, 3.0, agents)[:, None, None], fits.b)


# Stacked versions: all agents at once, a row each, mixing by a matrix and projecting by bisection.


def onto_l1(rows: Array) -> Array:
    """Return each row projected onto ‖x‖₁ ≤ RADIUS: its entries shrunk by a threshold found by bisection."""
    return np.stack([_onto_l1(row) for row in rows])


def _onto_l1(y: Array) -> Array:
    if np.abs(y).sum() <= RADIUS:
        return y
    low, high = 0.0, float(np.abs(y).max())
    for _ in range(200):
        middle = 0.5 * (low + high)
        inside = np.maximum(np.abs(y) - middle, 0.0).sum() <= RADIUS
        low, high = (low, middle) if inside else (middle, high)
    return np.asarray(np.sign(y) * np.maximum(np.abs(y) - high, 0.0))


def smoothnesses(fits: Fits) -> Array:
    return np.array([2.0 * np.linalg.norm(A, 2) ** 2 for A in fits.A])


def mean_smoothness(fits: Fits) -> float:
    return float(2.0 * np.linalg.norm(fits.A.reshape(-1, 5), 2) ** 2 / len(fits))


def pg_extra(fits: Fits, W: Array, laziness: float) -> Iterator[Array]:
    """Yield the iterates of PG-EXTRA, as printed in its paper."""
    m = len(fits)
    V = laziness * np.eye(m) + (1.0 - laziness) * W
    smallest = laziness if m == 1 else float(np.linalg.eigvalsh(V)[0])
    alpha = 0.99 * (5.0 + 3.0 * smallest) / (4.0 * smoothnesses(fits).max())
    x_prev = np.zeros((m, 5))
    half = V @ x_prev - alpha * gradients(fits.A, fits.b, x_prev)
    x = onto_l1(half)
    while True:
        yield x
        change = gradients(fits.A, fits.b, x) - gradients(fits.A, fits.b, x_prev)
        half = V @ x + half - 0.5 * (np.eye(m) + V) @ x_prev - alpha * change
        x_prev, x = x, onto_l1(half)


def nids(fits: Fits, W: Array) -> Iterator[Array]:
    """Yield the iterates of NIDS in its primal-dual form, with the dual d."""
    m = len(fits)
    alpha = 1.9 / smoothnesses(fits).max()
    smallest = 0.0 if m == 1 else float(np.linalg.eigvalsh(W)[0])
    c = 1.0 / (alpha * (1.0 - smallest))
    d = np.zeros((m, 5))
    z = -alpha * gradients(fits.A, fits.b, d)
    while True:
        x = onto_l1(z)
        step = alpha * gradients(fits.A, fits.b, x)
        d = d + c * (np.eye(m) - W) @ (2.0 * x - z - step - alpha * d)
        z = x - step - alpha * d
        yield onto_l1(z)


def agd(fits: Fits, mix: Array) -> Iterator[Array]:
    """Yield the iterates of the accelerated method, points and tracked gradients mixed by a matrix."""
    m = len(fits)
    alpha = 1.0 / mean_smoothness(fits)
    x = y = np.zeros((m, 5))
    s, before, t = np.zeros((m, 5)), np.zeros((m, 5)), np.ones((m, 1))
    while True:
        now = gradients(fits.A, fits.b, y)
        y, s, before = mix @ y, mix @ (s + now - before), now
        x_prev, x = x, onto_l1(y - alpha * s)
        t_prev = np.where(np.sum((y - x) * (x - x_prev), axis=1, keepdims=True) > 0.0, 1.0, t)
        t = (1.0 + np.sqrt(1.0 + 4.0 * t_prev**2)) / 2.0
        y = x + (t_prev - 1.0) / t * (x - x_prev)
        yield x


def chebyshev_matrix(W: Array, K: int) -> Array:
    """Return T((W − c)/e)/T((1 − c)/e), T of degree K and c ± e the eigenvalues of W but 1."""
    values, vectors = np.linalg.eigh(W)
    low, high = values[0], values[-2]
    series = [0.0] * K + [1.0]

    def scaled(at: Any) -> Any:
        return chebyshev_series.chebval((2.0 * at - high - low) / (high - low), series)

    return np.asarray((vectors * (scaled(values) / scaled(1.0))) @ vectors.T)


def assert_same(fits: Fits, graph: nx.Graph, projected: dcgs.Method, reference: Iterator[Array]) -> None:
    """Compare the points of all agents after one, two, three and thirty iterations."""
    expected = list(islice(reference, HORIZON))
    for k in (1, 2, 3, HORIZON):
        result = dcgs.minimize(fits.objectives(), X, graph, projected, iterations=k, every=0)
        np.testing.assert_allclose(result.agents, expected[k - 1], rtol=1e-10, atol=TOLERANCE)


@pytest.mark.parametrize("laziness", [0.0, 0.5])
@every_graph
def test_pg_extra_equals_the_stacked_version(name: str, laziness: float) -> None:
    fits = uneven_fits(len(GRAPHS[name]), rows=3, seed=31)
    W = metropolis(laplacian_matrix(GRAPHS[name]))
    assert_same(fits, GRAPHS[name], PGExtra(laziness=laziness), pg_extra(fits, W, laziness))


@every_graph
def test_nids_equals_its_primal_dual_form(name: str) -> None:
    fits = uneven_fits(len(GRAPHS[name]), rows=3, seed=32)
    assert_same(fits, GRAPHS[name], NIDS(), nids(fits, metropolis(laplacian_matrix(GRAPHS[name]))))


@every_graph
def test_accelerated_gradient_with_exact_averages_equals_the_centralized_method(name: str) -> None:
    m = len(GRAPHS[name])
    fits = uneven_fits(m, rows=3, seed=33)
    assert_same(fits, GRAPHS[name], ProjectedAGD(gossip="exact"), agd(fits, np.full((m, m), 1.0 / m)))


@pytest.mark.parametrize("K", [2, 5, 9])
@pytest.mark.parametrize("name", ["path", "cycle", "star", "random of 7", "random of 12"])
def test_accelerated_gradient_with_chebyshev_gossip_equals_the_stacked_version(name: str, K: int) -> None:
    fits = uneven_fits(len(GRAPHS[name]), rows=3, seed=34)
    mix = chebyshev_matrix(metropolis(laplacian_matrix(GRAPHS[name])), K)
    projected = ProjectedAGD(gossip_rounds=K)
    assert_same(fits, GRAPHS[name], projected, agd(fits, mix))


@pytest.mark.parametrize("K", [1, 4])
@every_graph
def test_accelerated_gradient_with_repeated_gossip_equals_the_stacked_version(name: str, K: int) -> None:
    fits = uneven_fits(len(GRAPHS[name]), rows=3, seed=35)
    mix = np.linalg.matrix_power(metropolis(laplacian_matrix(GRAPHS[name])), K)
    assert_same(fits, GRAPHS[name], ProjectedAGD(gossip="repeated", gossip_rounds=K), agd(fits, mix))


@every_projected
def test_a_step_that_is_given_is_taken(projected: dcgs.Method) -> None:
    # Two agents with ‖x − b‖², both l = 2; the first steps stay inside X, so x¹ = x⁰ − step · gradient.
    fits = [dcgs.LeastSquares(np.eye(2), b) for b in ([1.0, 0.0], [0.0, 3.0])]
    wide = dcgs.L2Ball(2, radius=100.0)
    method = type(projected)(step=0.01)  # type: ignore[call-arg]
    result = dcgs.minimize(fits, wide, nx.path_graph(2), method, iterations=1, every=0)
    # NIDS is a step ahead: its first point asks nobody, and its first iteration is the second step.
    steps = {PGExtra: 0.01, NIDS: 0.01 + 0.01 * (1.0 - 2.0 * 0.01), ProjectedAGD: 0.01}
    np.testing.assert_allclose(result.x, steps[type(projected)] * np.array([1.0, 3.0]), rtol=1e-12)


# They converge.


def assert_solved(
    pairs: list[tuple[Array, Array]], where: dcgs.ConvexSet, graph: nx.Graph, projected: dcgs.Method
) -> None:
    """Assert that all agents reach the independent solver's value, at points of the set."""
    objectives = [dcgs.LeastSquares(A, b, shape=where.shape) for A, b in pairs]
    result = dcgs.minimize(objectives, where, graph, projected, gap=1e-7, iterations=20_000, every=25)
    best = optimum(pairs, where)[1]
    first = float(result.history.worst_loss[0])
    assert result.status is Status.AGREED
    # Ten times what the reference promises.
    assert -1e-8 * (1.0 + best) <= result.history.mean_loss[-1] - best <= 1e-6 * first
    # All agents have the model that they certified.
    assert result.history.worst_loss[-1] - best <= 1e-6 * first
    assert max(where.violation(x) for x in result.agents) <= 1e-9


def pairs_of(fits: Fits) -> list[tuple[Array, Array]]:
    return list(zip(fits.A, fits.b, strict=True))


@every_projected
@pytest.mark.parametrize("name", ["one node", "path", "complete", "random of 12"])
def test_with_its_own_step_each_solves_a_lasso(name: str, projected: dcgs.Method) -> None:
    """On every graph its iterations are those of the stacked version."""
    graph = GRAPHS[name]
    assert_solved(pairs_of(uneven_fits(len(graph), rows=2, seed=41)), X, graph, projected)


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        (dcgs.Simplex(6, radius=2.0), 3),
        (dcgs.L2Ball(6, radius=0.4), 8),
        (dcgs.L2Ball(6, radius=50.0), 8),
        (dcgs.Box(np.full(6, -0.1), np.full(6, 0.3)), 3),
        (dcgs.NuclearNormBall((2, 3), radius=0.8), 4),
    ],
    ids=["simplex", "strongly convex, at the border", "strongly convex, inside", "box", "nuclear norm"],
)
@every_projected
def test_each_solves_other_problems(where: dcgs.ConvexSet, rows: int, projected: dcgs.Method) -> None:
    fits = random_fits(5, rows, columns=6, seed=42)
    assert_solved(pairs_of(fits), where, GRAPHS["path"], projected)


@every_projected
def test_logistic_regression_reaches_a_certified_gap(projected: dcgs.Method) -> None:
    rng = np.random.default_rng(43)
    objectives = [dcgs.Logistic(rng.standard_normal((9, 4)), rng.choice([-1.0, 1.0], 9)) for _ in range(6)]
    result = dcgs.minimize(
        objectives, L1Ball(4, radius=1.0), GRAPHS["cycle"], projected, gap=1e-6, iterations=5000, every=10
    )
    assert result.status is Status.AGREED


@every_projected
def test_data_that_are_all_zero_leave_the_agents_where_they_start(projected: dcgs.Method) -> None:
    objectives = [dcgs.LeastSquares(np.zeros((2, 5)), np.ones(2)) for _ in range(3)]
    result = dcgs.minimize(objectives, X, nx.path_graph(3), projected, iterations=3)
    np.testing.assert_array_equal(result.agents, np.zeros((3, 5)))


@pytest.mark.parametrize("name", ["one edge", "path", "star", "random of 7"])
def test_the_step_of_pg_extra_is_sharp(name: str) -> None:
    """Just beyond the bound the slowest disagreement grows, until the far border of X stops it."""
    graph = GRAPHS[name]
    m = len(graph)
    large = dcgs.L2Ball(m, radius=1e6)
    objectives = [dcgs.LeastSquares(np.eye(m), np.eye(m)[i]) for i in range(m)]  # l = 2 for all
    smallest = float(np.linalg.eigvalsh(metropolis(laplacian_matrix(graph)))[0])
    bound = (5.0 + 3.0 * smallest) / (4.0 * 2.0)

    def disagreement(step: float) -> float:
        method = PGExtra(step=step, laziness=0.0)
        return float(
            dcgs.minimize(objectives, large, graph, method, iterations=2000, every=0).history.disagreement[-1]
        )

    assert disagreement(0.99 * bound) <= 1e-6
    assert disagreement(1.01 * bound) >= 1.0


# What is counted.


def message_bytes(*arrays: Array) -> int:
    """Return the bytes of a message of these arrays, headers included."""
    return HEADER + FRAME + sum(EncodedArray(array).nbytes for array in arrays)


@pytest.mark.parametrize(
    ("projected", "rounds", "shape", "more"),
    [
        (PGExtra(), 1, (5,), 0),
        (NIDS(), 1, (5,), 1),
        (ProjectedAGD(gossip="exact"), 4, (5,), 0),
        (ProjectedAGD(gossip_rounds=3), 3, (2, 5), 0),
        (ProjectedAGD(gossip="repeated", gossip_rounds=2), 2, (2, 5), 0),
    ],
    ids=repr,
)
def test_rounds_bytes_and_projections_are_counted(
    projected: dcgs.Method, rounds: int, shape: tuple[int, ...], more: int
) -> None:
    """On a path of five W has five eigenvalues; two vectors travel as one message of double size."""
    graph = GRAPHS["path"]
    objectives = random_fits(5, rows=3, columns=5, seed=51).objectives()
    result = dcgs.minimize(objectives, X, graph, projected, iterations=7)
    degrees = np.array([1, 2, 2, 2, 1])
    assert result.rounds == 7 * rounds
    np.testing.assert_array_equal(result.messages, 7 * rounds * degrees)
    np.testing.assert_array_equal(result.bytes, 7 * rounds * degrees * message_bytes(np.ones(shape)))
    np.testing.assert_array_equal(result.projections, [7 + more] * 5)
    np.testing.assert_array_equal(result.lmo_calls, [0] * 5)
    np.testing.assert_array_equal(result.history.rounds, np.arange(8) * rounds)
    np.testing.assert_array_equal(result.history.projections, [0, *np.arange(1, 8) + more])


def test_methods_that_ask_the_oracle_project_nothing() -> None:
    objectives = random_fits(5, rows=3, columns=5, seed=52).objectives()
    result = dcgs.minimize(objectives, X, GRAPHS["path"], dcgs.DFW(), iterations=3)
    np.testing.assert_array_equal(result.projections, [0] * 5)
    np.testing.assert_array_equal(result.history.projections, [0] * 4)


@pytest.mark.parametrize(
    ("name", "gossip_rounds"), [("one node", 1), ("one edge", 1), ("complete", 1), ("cycle", 3), ("path", 4)]
)
def test_the_exact_average_is_taken_where_it_is_cheapest(name: str, gossip_rounds: int) -> None:
    graph = GRAPHS[name]
    objectives = random_fits(len(graph), rows=3, columns=5, seed=53).objectives()
    assert dcgs.minimize(objectives, X, graph, ProjectedAGD(), iterations=1).rounds == gossip_rounds


def test_chebyshev_gossip_is_taken_where_a_graph_has_many_eigenvalues() -> None:
    graph = nx.gnp_random_graph(40, 0.3, seed=1)
    objectives = random_fits(40, rows=3, columns=5, seed=54).objectives()
    result = dcgs.minimize(objectives, X, graph, EndedByObserver(ProjectedAGD()), gap=1e-6, iterations=500)
    fewest, left = divmod(result.rounds, result.iterations)
    assert (fewest < 12, left, result.status) == (True, 0, Status.GAP)
    # Stacked messages: points and gradients.
    assert result.bytes[0] == result.messages[0] * message_bytes(np.ones((2, 5)))


# Gossip.


def talk(graph: nx.Graph, values: Array, program: Callable[[Array, dict[int, float]], Any]) -> Array:
    """Return what the agents hold after a conversation with Metropolis weights."""
    W = metropolis(laplacian_matrix(graph))
    found_by: dict[int, Array] = {}

    def one(i: int) -> Any:
        weights = {j: float(W[i, j]) for j in graph[i]}
        found_by[i] = yield from program(values[i], dict(sorted(weights.items())))
        return found_by[i]

    Lockstep().run(Job(one, neighbors_of(graph), Traffic(len(graph)), lambda: True))
    return np.stack([found_by[i] for i in range(len(graph))])


@pytest.mark.parametrize(
    "graph", [nx.path_graph(20), nx.cycle_graph(30), nx.gnp_random_graph(25, 0.3, seed=3)]
)
def test_the_exact_average_is_exact_with_many_eigenvalues_too(graph: nx.Graph) -> None:
    values = np.random.default_rng(61).standard_normal((len(graph), 3))
    eigenvalues = gossip.well_ordered(as_network(graph).mixing_eigenvalues())
    found = talk(graph, values, lambda value, W: gossip.exact(value, W, eigenvalues))
    # A product of two dozen factors in Leja's order loses a few digits; in increasing order all of them.
    np.testing.assert_allclose(found, np.tile(values.mean(axis=0), (len(graph), 1)), rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("factor", [0.5, 1e-2, 1e-4])
@pytest.mark.parametrize("way", ["chebyshev", "repeated"])
@pytest.mark.parametrize("name", ["one edge", "path", "star", "complete", "random of 12"])
def test_gossip_shrinks_disagreement_as_promised_and_keeps_the_average(
    name: str, way: Literal["chebyshev", "repeated"], factor: float
) -> None:
    graph = GRAPHS[name]
    eigenvalues = as_network(graph).mixing_eigenvalues()
    mixing = (eigenvalues[0], eigenvalues[-1])
    values = np.random.default_rng(62).standard_normal((len(graph), 4))
    K = {"chebyshev": gossip.chebyshev_rounds, "repeated": gossip.repeated_rounds}[way](mixing, factor)
    found = {
        "chebyshev": lambda: talk(graph, values, lambda value, W: gossip.chebyshev(value, W, mixing, K)),
        "repeated": lambda: talk(graph, values, lambda value, W: gossip.repeated(value, W, K)),
    }[way]()
    average = values.mean(axis=0)
    np.testing.assert_allclose(found.mean(axis=0), average, rtol=0.0, atol=1e-12)
    # The norm over all agents, for each entry; 1e-12 for rounding where the factor is met far below.
    before, after = (np.linalg.norm(rows - average, axis=0) for rows in (values, found))
    assert (after <= factor * before + 1e-12).all()


# What is known beforehand.


@every_graph
def test_the_modes_are_the_eigenvalues_of_the_metropolis_matrix_each_once(name: str) -> None:
    graph = GRAPHS[name]
    eigenvalues = np.array(as_network(graph).mixing_eigenvalues())
    expected = np.linalg.eigvalsh(metropolis(laplacian_matrix(graph)))[:-1]
    assert (np.diff(eigenvalues) > 1e-9).all()
    distances = np.abs(np.subtract.outer(np.append(expected, eigenvalues[0]), eigenvalues))
    assert distances.min(axis=1).max() <= 1e-9  # every eigenvalue is a mode
    assert len(eigenvalues) == max(1, len(set(expected.round(8).tolist())))


def test_the_extremes_of_many_agents_are_found_without_all_eigenvalues() -> None:
    network = as_network(nx.cycle_graph(1002))
    assert network.mixing_eigenvalues() == ()
    # On a cycle W = I/3 + the neighbors/3, with eigenvalues 1/3 + 2/3 cos(2πk/m).
    expected = (-1.0 / 3.0, 1.0 / 3.0 + 2.0 / 3.0 * math.cos(2.0 * math.pi / 1002))
    smallest, second = extreme_eigenvalues(network.neighbors)
    # The largest eigenvalue of I − W is raised by up to 1e-3, so that the smallest of W is a lower bound.
    assert expected[0] - 1e-3 * (1.0 - expected[0]) <= smallest <= expected[0]
    np.testing.assert_allclose(1.0 - second, 1.0 - expected[1], rtol=1e-6)  # as accurate as the iteration is


@pytest.mark.parametrize("columns", [4, 40, 90])
def test_the_smoothness_of_the_sum_is_that_of_all_data_together(columns: int) -> None:
    rng = np.random.default_rng(63)
    matrices = [rng.standard_normal((rows, columns)) for rows in (5, 12, 30)]
    labels = rng.choice([-1.0, 1.0], 12)
    objectives = [
        dcgs.LeastSquares(matrices[0], np.zeros(5)),
        dcgs.Logistic(matrices[1], labels),
        dcgs.LeastSquares(sp.csr_array(matrices[2]), np.zeros(30)),
    ]
    pooled = sum(c * A.T @ A for c, A in zip((2.0, 0.25, 2.0), matrices, strict=True))
    exact = float(np.linalg.eigvalsh(pooled)[-1])
    assert exact * (1.0 - 1e-12) <= sum_smoothness(objectives) <= exact * (1.0 + 1e-5)


def test_the_smoothness_of_a_sum_of_samplings_is_how_often_an_entry_is_seen() -> None:
    seen = [dcgs.MatrixCompletion([0, 1], [j, 1], [1.0, 1.0], shape=(9, 9)) for j in range(3)]
    assert sum_smoothness(seen) == pytest.approx(2.0 * 3.0, rel=1e-5)
    nothing = [dcgs.LeastSquares(np.zeros((3, 50)), np.zeros(3)) for _ in range(20)]
    assert sum_smoothness(nothing) == 0.0


# What is refused.


@every_projected
@pytest.mark.parametrize("step", [0.0, -1.0, math.nan, math.inf, "large"])
def test_a_step_that_is_not_positive_is_refused(projected: dcgs.Method, step: Any) -> None:
    with pytest.raises(ValueError, match=r"^step must be a positive finite number, or None; got .+\.$"):
        type(projected)(step=step)  # type: ignore[call-arg]


@every_projected
def test_a_set_without_projection_is_refused(projected: dcgs.Method) -> None:
    objectives = random_fits(5, rows=3, columns=5, seed=71).objectives()
    name = type(projected).__name__
    message = (
        rf"^{name} needs a set with a Euclidean projection; ConvexHull has none\. "
        r"Use a method that calls the linear oracle, such as dcgs\.DCGS\(\)\.$"
    )
    with pytest.raises(ValueError, match=message):
        dcgs.minimize(objectives, dcgs.ConvexHull(np.eye(5)), GRAPHS["path"], projected, iterations=1)


@every_projected
def test_a_limit_on_oracle_calls_which_would_end_no_run_is_refused(projected: dcgs.Method) -> None:
    objectives = random_fits(5, rows=3, columns=5, seed=72).objectives()
    message = (
        rf"^lmo_calls must be None for {type(projected).__name__}, which projects and asks no oracle; "
        r"got 9\. "
        r"Limit its iterations, rounds or seconds\.$"
    )
    with pytest.raises(ValueError, match=message):
        dcgs.minimize(objectives, X, GRAPHS["path"], projected, lmo_calls=9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gossip": "loud"}, r"^gossip must be 'auto', 'exact', 'chebyshev' or 'repeated'; got 'loud'\.$"),
        ({"gossip_rounds": 0}, r"^gossip_rounds must be a whole number of at least 1, or None; got 0\.$"),
        (
            {"gossip_rounds": 1.5},
            r"^gossip_rounds must be a whole number of at least 1, or None; got 1\.5\.$",
        ),
        (
            {"gossip": "exact", "gossip_rounds": 3},
            r"^gossip_rounds must be None with gossip='exact', whose rounds the graph decides; got 3\.$",
        ),
    ],
)
def test_gossip_that_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProjectedAGD(**settings)


def test_exact_gossip_of_too_many_agents_is_refused() -> None:
    X = L1Ball(1)
    agent = Agent(
        index=0,
        f=dcgs.LeastSquares(np.ones((1, 1)), [0.5]),
        X=X,
        lmo=CountedOracle(X),
        x0=X.start(),
        degrees={1: 1},
        facts=Facts(
            agents=1002,
            norm_L=1.0,
            strong_convexity=0.0,
            set_diameter=2.0,
            projection=ProjectionFacts((-0.5, 0.5), (), 1.0, 1.0),
        ),
        iterations=1,
        rng=np.random.default_rng(0),
        observe=lambda k, answer, dual=None: None,
    )
    with pytest.raises(
        ValueError, match=r"^gossip='exact' needs all eigenvalues of W, .* 1002 agents\. Use "
    ):
        next(ProjectedAGD(gossip="exact").program(agent))


@pytest.mark.parametrize("laziness", [-0.1, 1.0, math.nan])
def test_a_laziness_that_mixes_nothing_is_refused(laziness: float) -> None:
    with pytest.raises(ValueError, match=r"^laziness must be at least 0 and less than 1; got .+\.$"):
        PGExtra(laziness=laziness)
