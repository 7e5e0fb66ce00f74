"""Graphs by name or from a file. Their nodes are the agents, 0 … m−1."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final
from xml.etree.ElementTree import ParseError

import networkx as nx
import numpy as np

from dcgs.datasets import BrokenDataError
from dcgs.datasets.store import unreadable, whole_lines
from dcgs.learn.files.text import decoded

_GRID = re.compile(r"grid:(\d+)x(\d+)")
_RANDOM = re.compile(r"random(?::(\d+(?:\.\d+)?))?")
_SEPARATOR = re.compile(r"[\s,;]+")
_DEGREE = 4.0

NAMED = "cycle, path, star, complete, grid, grid:RxC, hypercube, barbell, random, random:DEGREE"


@final
@dataclass(frozen=True, eq=False)
class LabeledGraph:
    """A graph on 0 … m−1, and the names of its nodes if it is from a file."""

    graph: nx.Graph
    labels: tuple[str, ...] | None = None


@final
@dataclass(frozen=True)
class GraphSpec:
    """The user's ``--graph``: a name, or a file of edges or GraphML."""

    text: str = "cycle"
    seed: int = 0

    def node_count(self) -> int | None:
        """Return how many nodes the graph has; None if it can have any number."""
        grid = _GRID.fullmatch(self.text)
        if grid is not None:
            return int(grid[1]) * int(grid[2])
        return None if self._is_named() else len(self._read().graph)

    def build(self, agents: int) -> LabeledGraph:
        """Return the graph for this number of agents."""
        if self._is_named():
            return LabeledGraph(self._named(agents))
        labeled = self._read()
        if len(labeled.graph) != agents:
            raise ValueError(
                f"the graph must have a node for each agent; {self.text} has {len(labeled.graph)} nodes, "
                f"and there are {agents} agents."
            )
        return labeled

    def _is_named(self) -> bool:
        return self.text in _MAKERS or any(form.fullmatch(self.text) for form in (_GRID, _RANDOM))

    def _named(self, agents: int) -> nx.Graph:
        grid, random = _GRID.fullmatch(self.text), _RANDOM.fullmatch(self.text)
        if grid is not None:
            rows, cols = map(int, grid.groups())
            if rows * cols != agents:
                raise ValueError(
                    f"a grid must have a place for each agent; {rows}x{cols} has {rows * cols} and there are "
                    f"{agents} agents."
                )
            return _numbered(nx.grid_2d_graph(rows, cols))
        if random is not None:
            return random_graph(agents, float(random[1] or _DEGREE), self.seed)
        return nx.empty_graph(1) if agents == 1 else _MAKERS[self.text](agents)

    def _read(self) -> LabeledGraph:
        file = Path(self.text).expanduser()
        if not file.exists():
            raise ValueError(
                f"the graph must be one of {NAMED}, or a file of edges or GraphML; got {self.text!r}, "
                "and there is no such file."
            )
        graph = _graphml(file) if file.suffix.lower() == ".graphml" else _edge_list(file)
        return _labeled(graph, file)


def random_graph(agents: int, degree: float, seed: int) -> nx.Graph:
    """Return a connected random graph of this mean degree: a random tree, and random edges added to it.

    The mean degree is at least that of a tree and at most that of the complete graph.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(agents)
    graph = nx.empty_graph(agents)
    for index in range(1, agents):
        graph.add_edge(int(order[index]), int(order[rng.integers(index)]))
    edges = min(round(agents * degree / 2), agents * (agents - 1) // 2)
    while graph.number_of_edges() < edges:
        i, j = map(int, rng.integers(agents, size=2))
        if i != j:
            graph.add_edge(i, j)
    return graph


def _numbered(graph: nx.Graph) -> nx.Graph:
    return nx.convert_node_labels_to_integers(graph, ordering="sorted")


def _grid(agents: int) -> nx.Graph:
    """Return the grid that is closest to a square."""
    rows = next(side for side in range(math.isqrt(agents), 0, -1) if agents % side == 0)
    return _numbered(nx.grid_2d_graph(rows, agents // rows))


def _hypercube(agents: int) -> nx.Graph:
    dimension = agents.bit_length() - 1
    if agents != 1 << dimension:
        raise ValueError(f"a hypercube must have 2, 4, 8, 16, … agents; got {agents}.")
    return _numbered(nx.hypercube_graph(dimension))


def _barbell(agents: int) -> nx.Graph:
    """Return two complete graphs joined by an edge, or by the agent in the middle."""
    if agents < 4:
        raise ValueError(f"a barbell must have at least 4 agents; got {agents}.")
    return nx.barbell_graph(agents // 2, agents % 2)


_MAKERS: dict[str, Callable[[int], nx.Graph]] = {
    "cycle": nx.cycle_graph,
    "path": nx.path_graph,
    "star": lambda agents: nx.star_graph(agents - 1),
    "complete": nx.complete_graph,
    "grid": _grid,
    "hypercube": _hypercube,
    "barbell": _barbell,
}


def _edge_list(file: Path) -> nx.Graph:
    """Return the graph of a text file: two names on a line are an edge, one name is a node."""
    graph = nx.Graph()
    for first_line, content in whole_lines(file, 1 << 20):
        for number, line in enumerate(decoded(file, first_line, content).split("\n"), first_line):
            text = line.partition("#")[0].strip().removeprefix("\ufeff")
            ends = [end for end in _SEPARATOR.split(text) if end]
            if len(ends) == 1:
                graph.add_node(ends[0])
            elif len(ends) == 2 and ends[0] != ends[1]:
                graph.add_edge(*ends)
            elif ends:
                raise BrokenDataError(
                    f"line {number} of {file} must have two different nodes, an edge; "
                    f"it is {line.strip()[:60]!r}."
                )
    return graph


def _graphml(file: Path) -> nx.Graph:
    try:
        graph: Any = nx.read_graphml(file)
    except OSError as error:
        raise unreadable(file, error) from error
    except (ParseError, nx.NetworkXError, KeyError, ValueError, TypeError) as error:
        raise BrokenDataError(f"{file} must be GraphML; it cannot be read: {error}.") from error
    if graph.is_directed():
        raise BrokenDataError(
            f'the graph in {file} must be undirected; it is directed. Write edgedefault="undirected".'
        )
    loop = next(nx.nodes_with_selfloops(graph), None)
    if loop is not None:
        raise BrokenDataError(f"the graph in {file} must have no loops; {str(loop)!r} is its own neighbor.")
    return nx.Graph(graph)


def _labeled(graph: nx.Graph, file: Path) -> LabeledGraph:
    """Return the graph on agents: in order of the names if all are numbers, else in order of the file."""
    if len(graph) == 0:
        raise BrokenDataError(f"{file} must have at least one node; it has none.")
    nodes = sorted(graph, key=int) if all(str(node).isdecimal() for node in graph) else list(graph)
    agent = {node: i for i, node in enumerate(nodes)}
    parts = [sorted(part, key=agent.__getitem__) for part in nx.connected_components(graph)]
    if len(parts) > 1:
        listed = "; ".join(", ".join(map(str, part[:5])) + ", …" * (len(part) > 5) for part in parts[:3])
        raise BrokenDataError(f"the graph in {file} must be connected; it has {len(parts)} parts: {listed}.")
    numbered = nx.empty_graph(len(nodes))
    numbered.add_edges_from((agent[a], agent[b]) for a, b in graph.edges)
    return LabeledGraph(numbered, tuple(map(str, nodes)))
