"""Sums over the network: equal bits at all agents, few rounds, also where messages are lost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcgs import L1Ball, LeastSquares, Lockstep
from dcgs.counting import CountedOracle
from dcgs.link import Link
from dcgs.methods import Agent
from dcgs.methods import reduction as reduction_module
from dcgs.methods.reduction import (
    Reduction,
    Value,
    added,
    cut,
    flooded_answer,
    is_flooded,
    joined,
    network_answer,
    tree_answer,
)
from dcgs.network import as_network
from dcgs.protocol import Program
from dcgs.run.distributed import facts_of
from dcgs.runtime import Job, Traffic
from dcgs.tree import TreeNode, spanning_tree
from problems import GRAPHS, Array, neighbors_of


def connected(agents: int, seed: int) -> nx.Graph:
    """Return a random tree with some more edges."""
    rng = np.random.default_rng(seed)
    graph = nx.empty_graph(agents)
    graph.add_edges_from((i, int(rng.integers(0, i))) for i in range(1, agents))
    more = rng.integers(0, agents, size=(int(rng.integers(0, agents)), 2)).tolist()
    graph.add_edges_from((i, j) for i, j in more if i != j)
    return graph


def agents_of(graph: nx.Graph) -> list[Agent]:
    """Return agents that know their place in the network and nothing else."""
    network, X, f = as_network(graph), L1Ball(1), LeastSquares(np.eye(1), [0.0])
    facts = facts_of([f] * len(graph), X, network, smoothness=False)

    def agent(i: int) -> Agent:
        return Agent(
            index=i,
            f=f,
            X=X,
            lmo=CountedOracle(X),
            x0=X.start(),
            degrees=network.degrees(i),
            facts=facts,
            tree=network.tree[i],
            iterations=1,
            rng=np.random.default_rng(0),
            observe=lambda k, answer, dual=None: None,
        )

    return [agent(i) for i in range(len(graph))]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What every agent has at the end, and what was counted."""

    values: list[Any]
    traffic: Traffic


def run(graph: nx.Graph, program: Callable[[Agent], Program[Any]]) -> Outcome:
    """Run one program for each agent, until all of them return."""
    agents, found, traffic = agents_of(graph), {}, Traffic(len(graph))

    def with_answer(i: int) -> Program[Any]:
        found[i] = yield from program(agents[i])
        return found[i]

    Lockstep().run(Job(with_answer, neighbors_of(graph), traffic, lambda: True))
    return Outcome([found[i] for i in range(len(graph))], traffic)


def of_all_sizes(agents: int, count: int, seed: int = 101) -> Array:
    """Return numbers whose sum depends on the order to its last bits."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((agents, count)) * 10.0 ** rng.uniform(-6.0, 6.0, (agents, count))


def network_sum(value: Array, agent: Agent) -> Program[Array]:
    """Return the sum of all agents' values."""
    if agent.facts.is_complete:
        (total,) = yield from flooded_answer((value,), agent, lambda total: total)
        return total
    (total,) = yield from network_answer((value,), agent, lambda total: total)
    return total


def rounds_of(graph: nx.Graph) -> int:
    """Return the rounds of a sum: one on a complete graph, else twice the radius of the graph."""
    return 1 if nx.density(graph) == 1.0 else max(1, 2 * int(nx.radius(graph)))


@given(agents=st.integers(1, 14), seed=st.integers(0, 10_000))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_all_agents_have_the_same_sum_to_the_bit_in_few_rounds(agents: int, seed: int) -> None:
    graph = connected(agents, seed)
    values = of_all_sizes(agents, 40, seed)
    outcome = run(graph, lambda agent: network_sum(values[agent.index], agent))
    assert len({total.tobytes() for total in outcome.values}) == 1
    assert outcome.traffic.rounds == (rounds_of(graph) if agents > 1 else 1)
    exact = np.array([math.fsum(column) for column in values.T])
    # A dozen additions, each off by 1e-16 of the largest term.
    np.testing.assert_allclose(outcome.values[0], exact, rtol=0.0, atol=1e-14 * np.abs(values).max() * agents)


@pytest.mark.parametrize(
    ("graph", "rounds"),
    [
        (nx.path_graph(2), 1),
        (nx.complete_graph(5), 1),
        (nx.star_graph(4), 2),
        (nx.wheel_graph(6), 2),
        (nx.path_graph(5), 4),
        (nx.cycle_graph(6), 6),
        (nx.path_graph(9), 8),
    ],
)
def test_a_sum_takes_the_rounds_worked_out_by_hand(graph: nx.Graph, rounds: int) -> None:
    outcome = run(graph, lambda agent: network_sum(np.ones(3), agent))
    assert outcome.traffic.rounds == rounds
    np.testing.assert_array_equal(outcome.values, np.full((len(graph), 3), float(len(graph))))


@pytest.mark.parametrize("name", [name for name in GRAPHS if name != "one node"])
def test_a_flooded_sum_has_equal_bits_at_all_agents_after_the_diameter(name: str) -> None:
    graph, shapes = GRAPHS[name], ((), (3,), (2, 2))
    rng = np.random.default_rng(7)
    values = [tuple(rng.standard_normal(shape) for shape in shapes) for _ in graph]
    outcome = run(graph, lambda agent: flooded_answer(values[agent.index], agent, lambda total: total))
    assert outcome.traffic.rounds == nx.diameter(graph)
    for k, shape in enumerate(shapes):
        exact = sum(value[k] for value in values)
        assert {(total[k].shape, total[k].tobytes()) for total in outcome.values} == {
            (shape, outcome.values[0][k].tobytes())
        }
        # A dozen additions of numbers about 1.
        np.testing.assert_allclose(outcome.values[0][k], exact, rtol=0.0, atol=1e-14)


def test_short_sums_are_flooded_where_that_takes_less_time_and_long_ones_go_along_the_tree() -> None:
    """On a cycle of ten 5 rounds in place of 10, of 20 ms, but up to ten values in a link of 12.5 MB/s."""

    def is_known(graph: nx.Graph, nbytes: int, link: str | None = None) -> bool:
        agent = agents_of(graph)[0]
        sizes = replace(agent.facts.sizes, most_neighbors=max(dict(graph.degree).values()))
        given = None if link is None else Link.parse(link)
        return is_flooded(replace(agent, facts=replace(agent.facts, sizes=sizes), link=given), nbytes)

    cycle = nx.cycle_graph(10)
    # 5 · 0.02 + 11 K < 5 (0.04 + K): K < 16.7 ms, 208 kB.
    assert [is_known(cycle, nbytes) for nbytes in (208_000, 209_000)] == [True, False]
    # At 1 Gbit/s with 0.2 ms, K < 0.167 ms: 20.8 kB.
    assert [is_known(cycle, nbytes, "1Gbit/s,0.2ms") for nbytes in (20_800, 20_900)] == [True, False]
    assert not any(is_known(graph, 8) for graph in (nx.star_graph(9), nx.path_graph(9)))
    assert is_known(nx.complete_graph(9), 10**9)


@pytest.mark.parametrize("name", ["path", "star", "grid", "random of 12"])
def test_an_agent_sends_one_value_up_and_one_answer_to_each_child(name: str) -> None:
    graph = GRAPHS[name]
    tree = as_network(graph).tree
    outcome = run(graph, lambda agent: network_sum(np.ones(1000), agent))
    messages = [len(node.children) + (node.parent is not None) for node in tree]
    # Arrays of 1000 numbers. All else is headers.
    size = np.array(outcome.traffic.bytes) // 8000
    np.testing.assert_array_equal(size, messages)


def test_only_the_root_computes_the_answer() -> None:
    graph = GRAPHS["grid"]
    called: list[int] = []

    def program(agent: Agent) -> Program[Value]:
        def answer(total: Value) -> Value:
            called.append(agent.index)
            return total[0] * 2.0, np.array([7.0])

        return network_answer((np.array([1.0 + agent.index]),), agent, answer)

    outcome = run(graph, program)
    (root,) = [i for i, node in enumerate(as_network(graph).tree) if node.parent is None]
    assert called == [root]
    assert {(float(a[0]), float(b[0])) for a, b in outcome.values} == {(72.0, 7.0)}


def test_values_are_added_array_by_array_and_missing_arrays_are_taken_as_they_are() -> None:
    a, b = (np.array([1.0]),), (np.array([2.0]), np.array([5.0]))
    assert [part.tolist() for part in added(a, b)] == [[3.0], [5.0]]
    assert [part.tolist() for part in added(b, a)] == [[3.0], [5.0]]


def test_an_array_where_a_tuple_is_expected_names_its_sender() -> None:
    graph = nx.path_graph(3)

    def program(agent: Agent) -> Program[Any]:
        if agent.index == 2:
            yield np.ones(1)
            return None
        return (yield from network_answer((np.ones(1),), agent, lambda total: total))

    with pytest.raises(ValueError, match=r"^a message must be a tuple of arrays; agent 2 sent an array\."):
        run(graph, program)


def test_a_message_that_is_repeated_counts_once() -> None:
    """Where a message is lost, a runtime may deliver the last one again."""

    def program(agent: Agent) -> Program[Any]:
        if agent.index == 4:
            for _ in range(4):
                yield (np.ones(1),)
            return None
        return (yield from network_answer((np.ones(1),), agent, lambda total: total))

    outcome = run(nx.path_graph(5), program)
    assert [float(answer[0][0]) for answer in outcome.values[:4]] == [5.0] * 4


# In pieces.

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "a vector": [(40,)],
    "a matrix and numbers": [(11, 3), (7,)],
    "few rows, and none": [(2, 5), (0, 0), (1,), (13, 2, 2)],
}


def in_pieces(
    graph: nx.Graph, shapes: list[tuple[int, ...]], pieces: int, of_answer: int | None = None
) -> Outcome:
    """Sum values of these shapes in pieces; the answer has other shapes than the values."""
    count = sum(math.prod(shape) for shape in shapes)
    numbers = of_all_sizes(len(graph), count, seed=7)

    def value(i: int) -> Value:
        cuts = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        return tuple(
            part.reshape(shape) for part, shape in zip(np.split(numbers[i], cuts), shapes, strict=True)
        )

    def answer(total: Value) -> Value:
        return np.concatenate([part.reshape(-1) for part in total]), np.array([[3.0]]), *total[:1]

    count_pieces = None if of_answer is None else lambda answered: of_answer
    return run(
        graph,
        lambda agent: tree_answer(
            value(agent.index), agent.tree, added, answer, pieces=pieces, answer_pieces=count_pieces
        ),
    )


def bits(value: Value) -> list[tuple[tuple[int, ...], bytes]]:
    return [(part.shape, part.tobytes()) for part in value]


@pytest.mark.parametrize("pieces", [2, 3, 8, 50])
@pytest.mark.parametrize("name", ["path", "cycle", "star", "grid", "random of 12"])
@pytest.mark.parametrize("shapes", SHAPES)
def test_sums_in_pieces_have_the_same_bits_in_more_rounds(shapes: str, name: str, pieces: int) -> None:
    graph = GRAPHS[name]
    whole, parted = (in_pieces(graph, SHAPES[shapes], c) for c in (1, pieces))
    assert len(whole.values) == len(graph)
    for one, other in zip(whole.values, parted.values, strict=True):
        assert bits(one) == bits(other)
    height = as_network(graph).tree[0].height
    assert (whole.traffic.rounds, parted.traffic.rounds) == (2 * height, 2 * height + 2 * pieces - 2)


@pytest.mark.parametrize(("pieces", "of_answer", "sent"), [(5, 1, 1), (5, 3, 3), (2, 7, 2), (1, 1, 1)])
@pytest.mark.parametrize("name", ["path", "star", "grid", "random of 12"])
def test_an_answer_may_have_fewer_pieces(name: str, pieces: int, of_answer: int, sent: int) -> None:
    graph = GRAPHS[name]
    shapes = SHAPES["a matrix and numbers"]
    whole, parted = in_pieces(graph, shapes, 1), in_pieces(graph, shapes, pieces, of_answer)
    for one, other in zip(whole.values, parted.values, strict=True):
        assert bits(one) == bits(other)
    assert parted.traffic.rounds == 2 * as_network(graph).tree[0].height + pieces + sent - 2


@pytest.mark.parametrize("first", [(), (np.ones(2),), (np.zeros(1),), (np.array([1.5]),), (np.array([4.0]),)])
def test_an_answer_without_its_number_of_pieces_is_refused(first: Value) -> None:
    def program(agent: Agent) -> Program[Any]:
        if agent.tree.parent is None:
            for _ in range(4):
                yield dict.fromkeys(agent.tree.children, first)
            return None
        return (
            yield from tree_answer(
                (np.ones(6),), agent.tree, added, lambda total: total, pieces=3, answer_pieces=lambda t: 1
            )
        )

    with pytest.raises(ValueError, match=r"^an answer must begin with its number of pieces, 1 to 3; agent 0"):
        run(nx.star_graph(3), program)


def test_a_round_has_one_piece_on_an_edge_and_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    count_round = Traffic.count_round

    def counted(traffic: Traffic, packets: Any, neighbors: Any) -> None:
        sizes.append(max((p.nbytes for sent in packets.values() for p in sent.values()), default=0))
        count_round(traffic, packets, neighbors)

    monkeypatch.setattr(Traffic, "count_round", counted)
    value = np.ones(4000)
    run(nx.path_graph(7), lambda agent: tree_answer((value,), agent.tree, added, lambda t: t, pieces=4))
    # The tree has height 3: 3 + 4 − 1 rounds up and as many down, each of 1000 numbers and a header.
    assert [size // 8000 for size in sizes] == [1] * 12
    assert max(sizes) < 8100


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("cut", lambda value, pieces: cut(value, pieces)[::-1]),
        ("joined", lambda pieces: joined(pieces[::-1])),
        ("joined", lambda pieces: joined([pieces[1], pieces[0], *pieces[2:]])),
    ],
    ids=["sent backwards", "joined backwards", "two exchanged"],
)
def test_pieces_in_a_wrong_order_are_noticed(
    name: str, wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = in_pieces(nx.path_graph(5), SHAPES["a vector"], 1)
    monkeypatch.setattr(reduction_module, name, wrong)
    parted = in_pieces(nx.path_graph(5), SHAPES["a vector"], 4)
    assert [*map(bits, whole.values)] != [*map(bits, parted.values)]


def test_an_array_that_only_some_agents_have_is_summed_in_pieces_too() -> None:
    def program(agent: Agent, pieces: int) -> Program[Value]:
        more = (np.arange(9.0) + agent.index,) if agent.index in (1, 3) else ()
        return tree_answer((np.ones(4), *more), agent.tree, added, lambda total: total, pieces=pieces)

    for pieces in (1, 3):
        outcome = run(nx.path_graph(5), partial(program, pieces=pieces))
        for first, second in outcome.values:
            assert (first.tolist(), second.tolist()) == ([5.0] * 4, (2.0 * np.arange(9.0) + 4.0).tolist())


@given(rows=st.integers(0, 30), pieces=st.integers(1, 40))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_pieces_are_of_nearly_equal_size_and_joined_to_the_whole(rows: int, pieces: int) -> None:
    value = np.arange(2.0 * rows).reshape(rows, 2), np.arange(5.0)
    parts = cut(value, pieces)
    sizes = [len(part[0]) for part in parts]
    assert (len(parts), max(sizes) - min(sizes) <= 1) == (pieces, True)
    assert bits(joined(parts)) == bits(value)


def test_an_agent_that_knows_the_link_sends_pieces_as_the_rule_says() -> None:
    # 80 kB take 8 ms at 10 MB/s; on a path of 9 the height is 4: five pieces take 16 rounds of 2.6 ms, four
    # 14 of 3 ms, 1 % more.
    link, graph = Link(10e6, 1e-3), nx.path_graph(9)
    values = of_all_sizes(9, 10_000)

    def program(agent: Agent, known: Link | None) -> Program[Array]:
        return network_sum(values[agent.index], replace(agent, link=known))

    runs = [run(graph, partial(program, known=known)) for known in (None, link)]
    assert [each.traffic.rounds for each in runs] == [8, 2 * 4 + 2 * 4 - 2]
    np.testing.assert_array_equal(runs[0].values, runs[1].values)


# Messages may be lost.


@dataclass
class Node:
    """One agent's series of reductions over links that lose messages; the root answers as soon as it can."""

    tree: TreeNode
    reduction: Reduction
    answers: list[Value]

    def own(self) -> Value:
        """Return the value of the current reduction."""
        return (np.array([1.0 + self.reduction.number]),)

    def end(self, answer: Value) -> None:
        """Use an answer: start the next reduction."""
        self.answers.append(answer)
        self.reduction = self.reduction.following(self.tree, (), answer)
        self.reduction.own = self.own()


def lossy_rounds(graph: nx.Graph, loss: float, reductions: int, seed: int) -> tuple[list[Node], int]:
    """Run reductions until all agents have so many answers; return the agents and the rounds."""
    rng = np.random.default_rng(seed)
    network = as_network(graph)
    nodes = [Node(tree, Reduction((np.array([1.0]),)), []) for tree in network.tree]
    for k in range(1, 100_000):
        for node in nodes:
            if node.tree.parent is None and node.reduction.is_complete(node.tree):
                node.end(node.reduction.total())
        sent = [node.reduction.outgoing(node.tree, reliable=False) for node in nodes]
        heads = [(node.reduction.number, set(node.reduction.partial)) for node in nodes]
        for i, node in enumerate(nodes):
            near = [node.tree.parent, *node.tree.children]
            for j in [j for j in near if j is not None and rng.random() >= loss]:
                number, has = heads[j]
                node.reduction.acknowledge(node.tree, j, number, i in has)
                if i in sent[j]:
                    answer = node.reduction.receive(node.tree, j, number, sent[j][i])
                    if answer is not None:
                        node.end(answer)
        if min(len(node.answers) for node in nodes) >= reductions:
            return nodes, k
    raise AssertionError("no end")


@pytest.mark.parametrize("loss", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("name", ["one node", "path", "star", "random of 12"])
def test_every_answer_arrives_once_and_in_order_though_messages_are_lost(name: str, loss: float) -> None:
    graph = GRAPHS[name]
    nodes, _ = lossy_rounds(graph, loss, reductions=5, seed=3)
    for node in nodes:
        # In the n-th reduction every agent adds n: nothing is missing, and nothing counted twice.
        expected = [[len(graph) * (1.0 + n)] for n in range(5)]
        assert [answer[0].tolist() for answer in node.answers[:5]] == expected


def test_without_losses_a_reduction_takes_twice_the_height_once_it_is_under_way() -> None:
    graph = nx.path_graph(7)
    rounds = {count: lossy_rounds(graph, 0.0, count, seed=0)[1] for count in (2, 6)}
    # Up and down; what an agent has not been told is sent again, which delays nothing.
    assert rounds[6] - rounds[2] == 4 * 2 * 3


def test_what_has_arrived_is_not_sent_again() -> None:
    tree = TreeNode(parent=0, children=(2, 3), depth=1, height=2)
    reduction = Reduction((np.ones(1),), number=4, last=(np.ones(1),), unsent=[2, 3])
    assert sorted(reduction.outgoing(tree, reliable=False)) == [2, 3]
    reduction.acknowledge(tree, 2, number=4, has_partial=False)  # it has the answer of reduction 3
    reduction.acknowledge(tree, 3, number=3, has_partial=True)  # it has not
    assert sorted(reduction.outgoing(tree, reliable=False)) == [3]
    reduction.receive(tree, 2, 4, (np.ones(1),))
    assert reduction.receive(tree, 3, 3, (np.ones(1),)) is None  # of the reduction before: not used
    assert not reduction.is_complete(tree)
    reduction.receive(tree, 3, 4, (np.ones(1),))
    assert sorted(reduction.outgoing(tree, reliable=False)) == [0, 3]
    reduction.acknowledge(tree, 0, number=4, has_partial=True)
    assert 0 not in reduction.outgoing(tree, reliable=False)
    # The parent is one reduction ahead when it sends an answer; an older answer is not used.
    assert reduction.receive(tree, 0, 4, (np.ones(1),)) is None
    assert reduction.receive(tree, 0, 5, (np.ones(1),)) is not None


@given(agents=st.integers(1, 14), seed=st.integers(0, 10_000))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_tree_has_shortest_paths_to_an_agent_in_the_middle(agents: int, seed: int) -> None:
    graph = connected(agents, seed)
    tree = as_network(graph).tree
    (root,) = [i for i, node in enumerate(tree) if node.parent is None]
    lengths = nx.shortest_path_length(graph, root)
    assert [node.depth for node in tree] == [lengths[i] for i in range(agents)]
    assert {node.height for node in tree} == {int(nx.radius(graph)) if agents > 1 else 0}
    for i, node in enumerate(tree):
        assert all(tree[child].parent == i and graph.has_edge(i, child) for child in node.children)


def test_the_parent_is_the_first_neighbor_that_is_nearest_to_the_root() -> None:
    tree = spanning_tree([(1, 2), (0, 3), (0, 3), (1, 2)], root=0)
    assert [node.parent for node in tree] == [None, 0, 0, 1]
    assert [node.children for node in tree] == [(1, 2), (3,), (), ()]
