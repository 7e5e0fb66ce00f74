"""A spanning tree of the graph, along which the agents compute sums over the whole network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final


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
    """Return the agent whose farthest other agent is nearest; the first of them."""
    return min(range(len(neighbors)), key=lambda i: max(depths_from(neighbors, i)))
