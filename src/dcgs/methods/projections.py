"""Euclidean projections, for the methods that need them.

They are not in ``sets/``, where a set is known through its linear oracle alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dcgs.methods.base import Agent, Method
from dcgs.points import Point, norm, onto_simplex
from dcgs.sets import Box, GroupL1Ball, L1Ball, L2Ball, LInfBall, NuclearNormBall, Simplex, Spectraplex
from dcgs.sets.base import ConvexSet

Projection: TypeAlias = Callable[[Point], Point]
"""A function that returns the point of a set that is nearest to y."""


def projection(X: ConvexSet) -> Projection | None:
    """Return the exact Euclidean projection onto X, or None if none is implemented.

    >>> project = projection(L1Ball(3, radius=2.0))
    >>> project(np.array([3.0, -2.0, 0.5]))
    array([ 1.5, -0.5,  0. ])
    """
    match X:
        case L1Ball():
            return partial(_onto_l1_ball, radius=X.radius)
        case Simplex():
            return partial(onto_simplex, radius=X.radius)
        case L2Ball():
            return partial(_onto_l2_ball, radius=X.radius)
        case LInfBall():
            return partial(_onto_box, lower=-X.radius, upper=X.radius)
        case Box():
            return partial(_onto_box, lower=X.lower, upper=X.upper)
        case GroupL1Ball():
            return partial(_onto_group_l1_ball, label=_labels(X), radius=X.radius)
        case NuclearNormBall():
            return partial(_onto_nuclear_norm_ball, radius=X.radius)
        case Spectraplex():
            return partial(_onto_spectraplex, radius=X.radius)
    return None


def projector(agent: Agent) -> Projection:
    """Return the projection onto the agent's set; each call is counted in ``result.projections``."""
    project = projection(agent.X)
    if project is None:
        raise TypeError(
            f"a method that projects needs a projection onto X; {type(agent.X).__name__} has none. "
            "Use a method that calls the linear oracle."
        )

    def counted(y: Point) -> Point:
        agent.projections.count += 1
        return project(y)

    return counted


def projection_incompatibility(method: Method, X: ConvexSet) -> str | None:
    """Return why the method cannot be used over X, or None if there is a projection onto X."""
    if projection(X) is not None:
        return None
    return (
        f"{type(method).__name__} needs a set with a Euclidean projection; "
        f"{type(X).__name__} has none. Use a method that calls the linear oracle, such as dcgs.DCGS()."
    )


def check_step(step: float | None) -> None:
    """Raise ValueError unless the step is a positive finite number or None."""
    if step is not None and not (isinstance(step, Real) and 0.0 < step < float("inf")):
        raise ValueError(f"step must be a positive finite number, or None; got {step!r}.")


def _onto_l1_ball(y: Point, radius: float) -> Point:
    size = np.abs(y)
    if float(size.sum()) <= radius:
        return y
    return np.copysign(onto_simplex(size, radius), y)


def _onto_l2_ball(y: Point, radius: float) -> Point:
    size = norm(y)
    return y if size <= radius else (radius / size) * y


def _onto_box(y: Point, lower: float | Point, upper: float | Point) -> Point:
    return np.clip(y, lower, upper)


def _onto_group_l1_ball(y: Point, label: NDArray[np.intp], radius: float) -> Point:
    """Return y with each group scaled: the norms of the groups are projected onto the ℓ₁ ball."""
    flat = y.reshape(-1)
    sizes = np.sqrt(np.bincount(label, weights=np.square(flat)))
    shares = _onto_l1_ball(sizes, radius) / np.where(sizes > 0.0, sizes, 1.0)
    return (shares[label] * flat).reshape(y.shape)


def _onto_nuclear_norm_ball(y: Point, radius: float) -> Point:
    u, sigma, vt = np.linalg.svd(y, full_matrices=False)
    if float(sigma.sum()) <= radius:
        return y
    sigma = onto_simplex(sigma, radius)
    rank = int(np.count_nonzero(sigma))
    return np.asarray((u[:, :rank] * sigma[:rank]) @ vt[:rank])


def _onto_spectraplex(y: Point, radius: float) -> Point:
    values, v = np.linalg.eigh(0.5 * (y + y.T))
    root = v * np.sqrt(onto_simplex(values, radius))
    return np.asarray(root @ root.T)  # a matrix times its own transpose: symmetric to the last bit


def _labels(X: GroupL1Ball) -> NDArray[np.intp]:
    """Return for every flat index the number of its group."""
    label = np.empty(sum(map(len, X.groups)), dtype=np.intp)
    for g, group in enumerate(X.groups):
        label[list(group)] = g
    return label
