"""A spanning tree of the graph, along which the agents compute sums over the whole network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

# Up to this number of agents the center is exact.
_EXACT_AGENTS = 1000
# For more agents all searches together visit about this number of agents.
_VISITS = 1_000_000
# Up to this number of agents the diameter is exact.
_EXACT_DIAMETER = 200


@final
@dataclass(frozen=True)
class TreeNode:
    """One agent's place in the tree: its parent (None at the root), its children, and its depth.

    ``height`` is the depth of the deepest agent: a sum takes that many rounds to the root, and as many back.
    ``diameter`` is the largest distance of two agents in the graph, or a bound of it, twice the height.
    ``load`` is the largest number of children of an agent but the root, divided by that of neighbors.
    """

    parent: int | None = None
    children: tuple[int, ...] = ()
    depth: int = 0
    height: int = 0
    diameter: int = 0
    load: float = 0.0


def spanning_tree(neighbors: Sequence[Sequence[int]], root: int) -> tuple[TreeNode, ...]:
    """Return every agent's place in the tree of shortest paths to the root.

    The parent is, among the neighbors nearest to the root, the one with the fewest neighbors, which sends
    least; of these the one with the smallest number.
    """
    depths = depths_from(neighbors, root)
    height, exact = max(depths), len(neighbors) <= _EXACT_DIAMETER
    diameter = max(max(depths_from(neighbors, i)) for i in range(len(neighbors))) if exact else 2 * height

    def parent_of(i: int) -> int:
        nearest = [j for j in neighbors[i] if depths[j] == depths[i] - 1]
        return min(nearest, key=lambda j: (len(neighbors[j]), j))

    parents = [None if i == root else parent_of(i) for i in range(len(neighbors))]
    children: list[list[int]] = [[] for _ in neighbors]
    for i, parent in enumerate(parents):
        if parent is not None:
            children[parent].append(i)
    most = max(map(len, neighbors))
    load = max((len(children[i]) for i in range(len(neighbors)) if i != root), default=0) / max(most, 1)
    return tuple(
        TreeNode(parent, tuple(below), depth, height, diameter, load)
        for parent, below, depth in zip(parents, children, depths, strict=True)
    )


def star(tree: Sequence[TreeNode], root: int) -> tuple[TreeNode, ...]:
    """Return the spanning tree of a complete graph with another root."""
    hub = next(node for node in tree if node.parent is None)
    leaf = next((node for node in tree if node.parent is not None), hub)
    others = tuple(i for i in range(len(tree)) if i != root)
    return tuple(
        replace(hub, children=others) if i == root else replace(leaf, parent=root) for i in range(len(tree))
    )


def depths_from(neighbors: Sequence[Sequence[int]], root: int) -> list[int]:
    """Return the distance of every agent from the root of a connected graph, by breadth-first search."""
    depths = [-1] * len(neighbors)
    depths[root] = 0
    level = [root]
    while level:
        following = []
        for i in level:
            for j in neighbors[i]:
                if depths[j] < 0:
                    depths[j] = depths[i] + 1
                    following.append(j)
        level = following
    return depths


def center(neighbors: Sequence[Sequence[int]]) -> int:
    """Return the agent whose farthest other agent is nearest; the first of them.

    A breadth-first search from agent j gives its distances d(i, j) to all agents i, and its largest distance
    e(j). It also bounds e(i) from below, by d(i, j) and by e(j) − d(i, j). The next search starts at the
    agent with the lowest bound, and one more at the agent farthest from it, until the lowest bound is that
    of an agent that was searched from.

    For more than 1,000 agents the searches end after a million visits of agents, however many agents remain.
    The result is then the agent with the smallest e among those searched from.
    """
    agents = len(neighbors)
    bounds, searched = np.zeros(agents, dtype=np.intp), np.zeros(agents, dtype=np.bool_)
    for _ in range(max(1, _VISITS // (2 * agents)) if agents > _EXACT_AGENTS else agents):
        lowest = int(np.argmin(bounds))
        if searched[lowest]:
            return lowest
        depths = _search(neighbors, lowest, bounds, searched)
        farthest = int(np.argmax(depths))
        if not searched[farthest]:
            _search(neighbors, farthest, bounds, searched)
    return int(np.argmin(np.where(searched, bounds, agents)))


def _search(
    neighbors: Sequence[Sequence[int]], start: int, bounds: NDArray[np.intp], searched: NDArray[np.bool_]
) -> NDArray[np.intp]:
    """Return the distances from an agent; raise the bounds by them, and mark the agent as searched from."""
    depths = np.array(depths_from(neighbors, start), dtype=np.intp)
    np.maximum(bounds, np.maximum(depths, depths.max() - depths), out=bounds)
    searched[start] = True
    return depths
