"""Step sizes of FastDCGS: values by hand, a metric that is positive definite, and changes of finite sum."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcgs import L1Ball, LeastSquares, Logistic, Objective
from dcgs.counting import CountedOracle
from dcgs.facts import Facts
from dcgs.methods import Agent
from dcgs.methods.fast.step_size import StepSize, balancing_factor, local_eta
from dcgs.network import as_network
from dcgs.run.distributed import facts_of
from problems import GRAPHS, Array, laplacian_matrix
from stacked import MARGIN, degrees, edge_weights, resisting


def connected(seed: int) -> nx.Graph:
    """Return a random tree of 2 to 15 agents with some more edges."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 16))
    graph = nx.Graph([(i, int(rng.integers(0, i))) for i in range(1, m)])
    more = rng.integers(0, m, size=(int(rng.integers(0, 2 * m)), 2)).tolist()
    graph.add_edges_from((i, j) for i, j in more if i != j)
    return graph


def weighted(graph: nx.Graph) -> Array:
    """Return the Laplacian that agents use."""
    return resisting(laplacian_matrix(graph))


def agents_of(graph: nx.Graph, reliable: bool = True) -> list[Agent]:
    """Return agents that know their edges and nothing else."""
    network, X, f = as_network(graph), L1Ball(2), LeastSquares(np.eye(2), [1.0, 0.0])
    facts = facts_of([f] * len(graph), X, network, smoothness=False)

    def agent(i: int) -> Agent:
        return Agent(
            index=i,
            f=f,
            X=X,
            lmo=CountedOracle(X),
            x0=np.zeros(2),
            degrees=network.degrees(i),
            resistances=network.resistances_of(i),
            tree=network.tree[i],
            reliable=reliable,
            facts=facts,
            iterations=1,
            rng=np.random.default_rng(0),
            observe=lambda k, answer, dual=None: None,
        )

    return [agent(i) for i in range(len(graph))]


def after_meeting(
    graph: nx.Graph, local_etas: Array, common: bool = False, reliable: bool = True
) -> list[StepSize]:
    """Return all agents' step sizes after one exchange of scales."""
    agents = agents_of(graph, reliable)
    steps = [StepSize.local(agent, float(eta)) for agent, eta in zip(agents, local_etas, strict=True)]
    if common:
        totals = float(local_etas.sum()), sum(step.degree for step in steps)
        for step in steps:
            step.update([*totals, 0.0, 0.0], switch=0)
            step.advance(1)
    scales = [step.scale for step in steps]
    for i, step in enumerate(steps):
        step.meet({j: scales[j] for j in sorted(graph[i])})
    return steps


def metric(steps: list[StepSize]) -> Array:
    """Return I − D^(−1/2) Lρ D^(−1/2)/2 with D = diag(η): the proof needs it to be positive definite."""
    rho = np.array([[step.weights.get(j, 0.0) for j in range(len(steps))] for step in steps])
    root = np.sqrt([step.eta for step in steps])
    L = np.diag(rho.sum(axis=1)) - rho
    return np.asarray(np.eye(len(steps)) - 0.5 * L / np.outer(root, root))


@given(seed=st.integers(0, 10_000), wild=st.sampled_from([0.0, 1.0, 10.0]))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_weights_are_equal_at_both_ends_and_eta_is_their_sum_with_a_margin_while_scales_differ(
    seed: int, wild: float
) -> None:
    graph = connected(seed)
    L = weighted(graph)
    local_etas = np.exp(wild * np.random.default_rng(seed).standard_normal(len(L)))
    steps = after_meeting(graph, local_etas)
    # To the bit, else dual variables would not sum to zero.
    assert all(step.weights[j] == steps[j].weights[i] for i, step in enumerate(steps) for j in step.weights)
    expected = edge_weights(L, local_etas / degrees(L))
    found = [[step.weights.get(j, 0.0) for j in range(len(steps))] for step in steps]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=0.0)
    np.testing.assert_allclose([step.eta for step in steps], MARGIN * expected.sum(axis=1), rtol=1e-9)
    # D − Lρ/2 = (D + weights)/2 is diagonally dominant, and the margin is added to D.
    assert np.linalg.eigvalsh(metric(steps))[0] >= 1.0 - 1.0 / MARGIN - 1e-12


@given(seed=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_with_a_common_scale_the_metric_is_positive_definite_by_the_margin_alone(seed: int) -> None:
    graph = connected(seed)
    steps = after_meeting(graph, np.random.default_rng(seed).uniform(0.1, 10.0, len(graph)), common=True)
    # ν is the smallest number with ν D ⪰ L: the margin remains, up to rounding.
    assert np.linalg.eigvalsh(metric(steps))[0] == pytest.approx(1.0 - 1.0 / MARGIN, rel=1e-9)


@pytest.mark.parametrize("name", GRAPHS)
def test_with_a_common_scale_the_mean_of_all_eta_is_the_mean_of_the_local_ones(name: str) -> None:
    graph = GRAPHS[name]
    local_etas = np.random.default_rng(81).uniform(0.1, 10.0, len(graph))
    for reliable in (True, False):
        steps = after_meeting(graph, local_etas, common=True, reliable=reliable)
        # Sums and products of a dozen numbers.
        assert sum(step.eta for step in steps) == pytest.approx(local_etas.sum(), rel=1e-13)


def test_where_messages_may_be_lost_eta_is_the_sum_of_the_weights_and_the_scale_stays() -> None:
    graph = GRAPHS["random of 7"]
    steps = after_meeting(graph, np.full(7, 2.0), common=True, reliable=False)
    for step in steps:
        assert step.eta == pytest.approx(sum(step.weights.values()), rel=1e-14)
        before = step.scale
        step.update([14.0, 7.0, 1e9, 1.0], switch=0)
        step.advance(2)
        assert step.scale == before


@pytest.mark.parametrize("seed", range(5))
def test_where_messages_may_be_lost_equal_agents_have_the_common_scale_from_the_start(seed: int) -> None:
    graph = connected(seed)
    local_etas = np.full(len(graph), 3.0)
    first = after_meeting(graph, local_etas, reliable=False)
    later = after_meeting(graph, local_etas, common=True, reliable=False)
    for before, after in zip(first, later, strict=True):
        # Resistances have mean 1 up to rounding error.
        assert before.weights == pytest.approx(after.weights, rel=1e-12)
        assert before.eta == pytest.approx(after.eta, rel=1e-12)


def test_where_messages_may_be_lost_the_scale_with_a_preconditioner_is_by_the_mean_degree_too() -> None:
    agent = agents_of(nx.star_graph(3), reliable=False)[0]
    step = StepSize.local(agent, 2.0)
    assert step.degree == pytest.approx(3.0)
    assert step.scale == pytest.approx(2.0 / 1.5)
    step.precondition(agent, np.array([1.0, 3.0]), switch=0)
    step.advance(1)
    assert step.scale == pytest.approx(step.local_eta / 1.5)


def test_all_agents_switch_to_the_preconditioner_after_the_same_iteration() -> None:
    """If one end of an edge switched before the other, dual variables would not sum to zero."""
    (agent, *_), curvature = agents_of(nx.path_graph(2)), np.array([3.0, 1.0])
    step = StepSize.local(agent, 1.0)
    before = step.scale
    step.precondition(agent, curvature, switch=7)
    step.advance(6)
    assert (step.preconditioner, step.scale) == (None, before)
    step.advance(7)
    assert step.preconditioner is not None
    np.testing.assert_array_equal(step.preconditioner, curvature / 2.0)
    assert step.scale == step.local_eta / step.degree


def test_all_agents_switch_to_a_new_scale_after_the_same_iteration() -> None:
    """Then center and dual variable stay, and only the metric changes; else the method may diverge."""
    steps = after_meeting(GRAPHS["random of 7"], np.full(7, 2.0), common=True)
    step = steps[0]
    before, eta, weights = step.scale, step.eta, dict(step.weights)
    step.update([14.0, 7.0, 1e9, 1.0], switch=7)
    step.advance(6)
    assert (step.scale, step.eta) == (before, eta)
    step.advance(7)
    assert step.scale < before
    # η and the weights change at once, by one factor.
    assert step.eta / eta == pytest.approx(step.scale / before, rel=1e-14)
    assert all(step.weights[j] / weights[j] == pytest.approx(step.scale / before, rel=1e-14) for j in weights)


def test_the_resistances_of_a_triangle_with_a_tail_are_what_one_works_out_by_hand() -> None:
    # Beside an edge of the triangle there is a way of length 2: 1/(1 + 1/2) = 2/3. The tail has 1, and the
    # mean of the four is 3/4. The inverse of a matrix of four rows is right to 1e-15 or so.
    network = as_network(nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3)]))
    found = [network.resistances_of(i) for i in range(4)]
    expected = [
        {1: 8.0 / 9.0, 2: 8.0 / 9.0},
        {0: 8.0 / 9.0, 2: 8.0 / 9.0},
        {0: 8.0 / 9.0, 1: 8.0 / 9.0, 3: 4.0 / 3.0},
        {2: 4.0 / 3.0},
    ]
    assert [list(each) for each in found] == [list(each) for each in expected]
    assert found == [pytest.approx(each, rel=1e-13) for each in expected]


@given(seed=st.integers(0, 10_000))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_resistances_are_those_of_networkx_and_the_same_at_both_ends(seed: int) -> None:
    graph = connected(seed)
    network = as_network(graph)
    found = {(i, j): weight for i in range(len(graph)) for j, weight in network.resistances_of(i).items()}
    # To the bit, else dual variables would not sum to zero.
    assert found == {(j, i): weight for (i, j), weight in found.items()}
    distances = nx.resistance_distance(graph)
    mean = np.mean([distances[i][j] for i, j in graph.edges])
    assert set(found) == {*graph.edges, *((j, i) for i, j in graph.edges)}
    # Inverses of matrices of up to 15 rows, whose condition is below 1000.
    assert found == pytest.approx({(i, j): distances[i][j] / mean for i, j in found}, rel=1e-10)


def test_agents_alone_or_too_many_have_no_resistances() -> None:
    assert as_network(nx.empty_graph(1)).resistances_of(0) == {}
    # A star and an edge more: not all of these resistances are equal.
    many = nx.star_graph(1001)
    many.add_edge(1, 2)
    assert as_network(many).resistances_of(1) == {0: 1.0, 2: 1.0}


def spectrum(graph: nx.Graph) -> tuple[float, float]:
    network = as_network(graph)
    return network.normalized_norm, network.connectivity


def test_the_normalized_norm_and_the_connectivity_of_a_graph_are_those_worked_out_by_hand() -> None:
    # D^(−1/2) L D^(−1/2) has the eigenvalues 0, 1 (m − 2 times) and 2 on a star, 0 and m/(m − 1) on a
    # complete graph, 1 − cos(2πj/m) on a cycle. Dense eigenvalues are right to 1e-15 or so.
    assert spectrum(nx.star_graph(4)) == pytest.approx((2.0, 0.5), rel=1e-13)
    assert spectrum(nx.complete_graph(4)) == pytest.approx((4.0 / 3.0, 1.0), rel=1e-13)
    assert spectrum(nx.cycle_graph(6)) == pytest.approx((2.0, 0.25), rel=1e-13)
    assert spectrum(nx.empty_graph(1)) == (2.0, 1.0)


@pytest.mark.parametrize(
    ("graph", "complete"),
    [
        (nx.empty_graph(1), True),
        (nx.path_graph(2), True),
        (nx.complete_graph(4), True),
        (nx.path_graph(3), False),
        (nx.star_graph(4), False),
    ],
)
def test_a_graph_is_complete_if_all_agents_are_neighbors(graph: nx.Graph, complete: bool) -> None:
    assert as_network(graph).is_complete == complete


def test_the_spectrum_of_a_large_graph_is_the_one_worked_out_by_hand() -> None:
    # 0, 1 and 2 again, however many agents; beyond 1000 they are found by Lanczos steps.
    assert spectrum(nx.star_graph(1001)) == pytest.approx((2.0, 0.5), rel=1e-9)


@pytest.mark.parametrize(
    ("primal", "dual", "epoch", "factor"),
    [
        (5.0, 1.0, 1, 1.0),  # within [0.1, 5] nothing changes
        (0.1, 1.0, 1, 1.0),
        (20.0, 1.0, 1, 0.5),  # 4 times too much: by √4 down
        (0.1, 4.0, 1, 2.0),  # 4 times too little: by √4 up
        (1e9, 1.0, 1, math.exp(-3.0)),  # no more than the limit, 3 after the first epoch
        (1.0, 1e9, 1, math.exp(3.0)),
        (1e9, 1.0, 1024, math.exp(-3.0 / 2048.0)),  # 1024^1.1 = 2048
        (1.0, 0.0, 1, math.exp(-3.0)),  # agents agree: η is too large
        (0.0, 1.0, 1, 1.0),  # nobody moves: nothing to learn
        (0.0, 0.0, 1, 1.0),
    ],
)
def test_the_edge_step_changes_by_a_factor_worked_out_by_hand(
    primal: float, dual: float, epoch: int, factor: float
) -> None:
    # A logarithm and an exponential, each right to 1e-16.
    assert balancing_factor(primal, dual, epoch) == pytest.approx(factor, rel=1e-13)


HALVES = st.one_of(st.just(0.0), st.floats(1e-150, 1e150))


@given(
    halves=st.lists(st.tuples(HALVES, HALVES), min_size=1, max_size=60),
    same_way=st.booleans(),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_all_changes_together_are_bounded_whatever_the_residuals(
    halves: list[tuple[float, float]], same_way: bool
) -> None:
    worst = [(1.0, 0.0)] * len(halves)
    steps = [
        abs(math.log(balancing_factor(*pair, j)))
        for j, pair in enumerate(worst if same_way else halves, start=1)
    ]
    # Σ 3/j^1.1 ≤ 3 (1 + ∫₁^∞ t^(−1.1) dt) = 33.
    assert sum(steps) <= 33.0
    assert all(step <= 3.0 / j**1.1 * (1.0 + 1e-13) for j, step in enumerate(steps, start=1))


@pytest.mark.parametrize(
    ("f", "eta"),
    [
        # Second derivatives 2·1², 2·2² and 2·0²: the largest is 8, the mean 10/3.
        (LeastSquares(np.diag([1.0, 2.0, 0.0]), [0.0, 2.0, 1.0]), math.sqrt(8.0 * 10.0 / 3.0)),
        # A quarter of 9, 0 and 0 at most: 9/4 and 3/4.
        (Logistic([[3.0, 0.0, 0.0]], [1.0]), math.sqrt(27.0 / 16.0)),
        (LeastSquares(np.zeros((1, 3)), [1.0]), 0.0),
    ],
    ids=["squares", "logistic", "nothing"],
)
@pytest.mark.parametrize(("connectivity", "factor"), [(1.0, 1.0), (1.0 / 16.0, 2.0)])
def test_the_local_eta_is_what_one_works_out_by_hand(
    f: Objective, eta: float, connectivity: float, factor: float
) -> None:
    X = L1Ball(3)
    oracle = CountedOracle(X)
    agent = Agent(
        index=0,
        f=f,
        X=X,
        lmo=oracle,
        x0=np.zeros(3),
        degrees={},
        facts=Facts(3, 3.0, 0.0, X.diameter, is_complete=False, connectivity=connectivity),
        iterations=1,
        rng=np.random.default_rng(0),
        observe=lambda k, answer, dual=None: None,
    )
    # An eigenvalue is right to 1e-15 or so.
    assert local_eta(agent) == pytest.approx(0.6 * eta * factor, rel=1e-12)
    assert oracle.calls == 0
