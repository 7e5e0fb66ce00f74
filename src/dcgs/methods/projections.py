"""Euclidean projections, for methods that project, and the count of projections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from dcgs.methods.base import Agent, Method
from dcgs.objectives.objective import Objective
from dcgs.points import Point
from dcgs.sets.base import ConvexSet, ProjectableSet

Projection: TypeAlias = Callable[[Point], Point]
"""y ↦ the point of a set that is nearest to y."""


class ProjectedMethod(Method):
    """A method that projects onto X, one round an iteration.

    >>> import dcgs
    >>> isinstance(dcgs.NIDS(), dcgs.ProjectedMethod), dcgs.NIDS().projects, dcgs.DFW().projects
    (True, True, False)
    """

    rounds_per_iteration = 1
    projects = True

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        if projection(X) is not None:
            return None
        return (
            f"{type(self).__name__} needs a set with a Euclidean projection; "
            f"{type(X).__name__} has none. Use a method that calls the linear oracle, such as dcgs.DCGS()."
        )


def projection(X: ConvexSet) -> Projection | None:
    """Return the exact Euclidean projection onto X, or None if X has none.

    >>> import numpy as np
    >>> from dcgs.sets import L1Ball
    >>> project = projection(L1Ball(3, radius=2.0))
    >>> project(np.array([3.0, -2.0, 0.5]))
    array([ 1.5, -0.5,  0. ])
    """
    return X.project if isinstance(X, ProjectableSet) else None


def projector(agent: Agent) -> Projection:
    """Return the projection onto the agent's set, every use of it counted.

    >>> import dcgs, networkx as nx, numpy as np
    >>> class Steps(dcgs.ProjectedMethod):
    ...     def program(self, agent):
    ...         x, project = agent.x0, dcgs.projector(agent)
    ...         for k in agent.iterations_left:
    ...             x = yield from dcgs.average(x, agent.metropolis)
    ...             x = project(x - agent.f.grad(x) / agent.facts.smoothness)
    ...             agent.observe(k, x)
    ...         return x
    >>> objectives = [dcgs.LeastSquares(np.eye(2), [1.0, 0.0])] * 2
    >>> result = dcgs.minimize(objectives, dcgs.L1Ball(2), nx.path_graph(2), Steps(), iterations=5)
    >>> result.x, result.projections
    (array([1., 0.]), array([5, 5]))
    """
    X = agent.X
    assert isinstance(X, ProjectableSet)

    def counted(y: Point) -> Point:
        agent.projections.count += 1
        return X.project(y)

    return counted
