"""A spanning tree of the graph, along which the agents compute sums over the whole network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

# Up to this number of agents the center is exact.
_EXACT_AGENTS = 1000
# For more agents all searches together visit about this number of agents.
_VISITS = 1_000_000


@final
@dataclass(frozen=True)
class TreeNode:
    """One agent's place in the tree: its parent (None at the root), its children, and its depth.

    ``height`` is the depth of the deepest agent: a sum takes that many rounds to the root, and as many back.
    """

    parent: int | None = None
    children: tuple[int, ...] = ()
    depth: int = 0
    height: int = 0


def spanning_tree(neighbors: Sequence[Sequence[int]], root: int) -> tuple[TreeNode, ...]:
    """Return every agent's place in the tree of shortest paths to the root.

    The parent is the neighbor with the smallest number among those nearest to the root.
    """
    depths = depths_from(neighbors, root)
    height = max(depths)
    parents: list[int | None] = [
        None if i == root else min(j for j in near if depths[j] == depths[i] - 1)
        for i, near in enumerate(neighbors)
    ]
    children: list[list[int]] = [[] for _ in neighbors]
    for i, parent in enumerate(parents):
        if parent is not None:
            children[parent].append(i)
    return tuple(
        TreeNode(parent, tuple(below), depth, height)
        for parent, below, depth in zip(parents, children, depths, strict=True)
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
