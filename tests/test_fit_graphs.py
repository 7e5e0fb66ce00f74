"""Graphs by name and from files: how nodes become agents, and what is refused."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcgs.learn.files.graphs import GraphSpec, random_graph


@pytest.mark.parametrize(
    ("name", "agents", "graph"),
    [
        ("cycle", 5, nx.cycle_graph(5)),
        ("cycle", 2, nx.path_graph(2)),
        ("cycle", 1, nx.empty_graph(1)),
        ("path", 4, nx.path_graph(4)),
        ("star", 4, nx.star_graph(3)),
        ("star", 1, nx.empty_graph(1)),
        ("complete", 4, nx.complete_graph(4)),
        ("grid", 6, nx.grid_2d_graph(2, 3)),
        ("grid", 7, nx.path_graph(7)),
        ("grid:3x2", 6, nx.grid_2d_graph(3, 2)),
        ("hypercube", 8, nx.hypercube_graph(3)),
        ("barbell", 6, nx.barbell_graph(3, 0)),
        ("barbell", 7, nx.barbell_graph(3, 1)),
    ],
)
def test_named_graphs_are_those_of_networkx(name: str, agents: int, graph: nx.Graph) -> None:
    made = GraphSpec(name).build(agents).graph
    assert sorted(made) == list(range(agents))
    assert nx.is_isomorphic(made, graph)
    assert not list(nx.nodes_with_selfloops(made))


def test_agents_of_a_grid_are_counted_along_its_rows() -> None:
    assert sorted(GraphSpec("grid:2x3").build(6).graph[1]) == [0, 2, 4]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.integers(1, 30), st.floats(0.0, 40.0), st.integers(0, 5))
def test_random_graphs_are_connected_and_have_the_mean_degree(agents: int, degree: float, seed: int) -> None:
    graph = random_graph(agents, degree, seed)
    assert sorted(graph) == list(range(agents))
    assert nx.is_connected(graph)
    assert not list(nx.nodes_with_selfloops(graph))
    tree, complete = agents - 1, agents * (agents - 1) // 2
    assert graph.number_of_edges() == min(complete, max(tree, round(agents * degree / 2)))
    assert nx.utils.graphs_equal(graph, random_graph(agents, degree, seed))


def test_a_seed_makes_another_random_graph() -> None:
    one, two = (GraphSpec("random:3", seed).build(12).graph for seed in (0, 1))
    assert one.number_of_edges() == two.number_of_edges() == 18
    assert set(one.edges) != set(two.edges)


@pytest.mark.parametrize(
    ("text", "names", "edges"),
    [
        ("0 1\n1 2\n", ("0", "1", "2"), {(0, 1), (1, 2)}),
        ("1,2\n2,10\n", ("1", "2", "10"), {(0, 1), (1, 2)}),
        ("# links\nrome; oslo\noslo; bonn # slow\n\n", ("rome", "oslo", "bonn"), {(0, 1), (1, 2)}),
        ("b\ta\na\tb\n", ("b", "a"), {(0, 1)}),
        ("here\n", ("here",), set()),
    ],
)
def test_edge_lists_are_read_and_numbered(
    text: str, names: tuple[str, ...], edges: set[tuple[int, int]], tmp_path: Path
) -> None:
    file = tmp_path / "g.edges"
    file.write_text(text)
    spec = GraphSpec(str(file))
    assert spec.node_count() == len(names)
    built = spec.build(len(names))
    assert built.labels == names
    assert {(min(e), max(e)) for e in built.graph.edges} == edges


def test_graphml_keeps_the_order_of_its_nodes(tmp_path: Path) -> None:
    graph = nx.Graph([("rome", "oslo"), ("oslo", "bonn")])
    nx.write_graphml(graph, tmp_path / "g.graphml")
    built = GraphSpec(str(tmp_path / "g.graphml")).build(3)
    assert built.labels == ("rome", "oslo", "bonn")
    assert {(min(e), max(e)) for e in built.graph.edges} == {(0, 1), (1, 2)}


@pytest.mark.parametrize(
    ("name", "agents", "sentence"),
    [
        ("ring", 3, "must be one of cycle, path, .*; got 'ring', and there is no such file"),
        ("hypercube", 6, "a hypercube must have 2, 4, 8, 16, … agents; got 6"),
        ("barbell", 3, "a barbell must have at least 4 agents; got 3"),
        ("grid:2x3", 5, "a grid must have a place for each agent; 2x3 has 6 and there are 5"),
    ],
)
def test_impossible_named_graphs_are_refused(name: str, agents: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        GraphSpec(name).build(agents)


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("g.txt", "0 1\n2 3\n", r"the graph in .*g.txt must be connected; it has 2 parts: 0, 1; 2, 3"),
        ("g.txt", "0 1\n1 1\n", r"line 2 of .*g.txt must have two different nodes, an edge; it is '1 1'"),
        ("g.txt", "0 1 2.5\n", r"line 1 of .*g.txt must have two different nodes"),
        ("g.txt", "# none\n", r"g.txt must have at least one node"),
        ("g.txt", "0 1\n1 2\n2 3\n", r"a node for each agent; .*g.txt has 4 nodes, and there are 3 agents"),
        ("g.graphml", "<graphml", r"g.graphml must be GraphML; it cannot be read"),
    ],
)
def test_invalid_graph_files_have_their_error_message(
    file: str, content: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(ValueError, match=sentence):
        GraphSpec(str(tmp_path / file)).build(3)


def test_graphml_must_be_undirected_and_without_loops(tmp_path: Path) -> None:
    file = tmp_path / "g.graphml"
    nx.write_graphml(nx.DiGraph([("a", "b")]), file)
    with pytest.raises(ValueError, match="must be undirected; it is directed"):
        GraphSpec(str(file)).build(2)
    nx.write_graphml(nx.Graph([("a", "b"), ("b", "b")]), file)
    with pytest.raises(ValueError, match="must have no loops; 'b' is its own neighbor"):
        GraphSpec(str(file)).build(2)
