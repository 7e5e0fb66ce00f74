"""What all agents know before a run, worked out from what only the front door sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

from dcgs.front.network import Network
from dcgs.objectives.objective import Objective
from dcgs.schedules import Facts
from dcgs.sets.base import ConvexSet

# Up to this side a matrix is formed, column by column; beyond, its largest eigenvalue is found by Lanczos
# steps to a relative accuracy of 1e-6, and raised by as much.
_DENSE_SIDE = 32
_SLACK = 1e-6


def facts_of(objectives: Sequence[Objective], X: ConvexSet, network: Network, smoothness: bool) -> Facts:
    """Return the facts of a problem; those about mixing and smoothness, which cost time, if asked for."""
    known = Facts(
        len(network),
        network.norm_L,
        min(f.strong_convexity for f in objectives),
        X.diameter,
        network.hops,
        *network.spread,
        network.hub,
    )
    if not smoothness:
        return known
    each = [f.smoothness for f in objectives]
    modes = network.modes()
    return replace(
        known,
        mixing=network.mixing() if not modes else (modes[0], modes[-1]),
        modes=modes,
        smoothness=max(each),
        mean_smoothness=min(sum(each), sum_smoothness(objectives)) / len(objectives),
    )


def sum_smoothness(objectives: Sequence[Objective]) -> float:
    """Return an l with ‖∇f(x) − ∇f(y)‖ ≤ l ‖x − y‖ for f = Σ fᵢ: the largest eigenvalue of Σ cᵢ AᵢᵀAᵢ.

    cᵢ bounds the curvature of agent i's loss. Found on the side of the points or of all images,
    whichever is smaller.
    """
    points = int(np.prod(objectives[0].shape))
    images = sum(f.map.size for f in objectives)
    roots = [np.sqrt(f.loss.curvature[1]) for f in objectives]
    cuts = np.cumsum([f.map.size for f in objectives])[:-1]

    def image(x: NDArray[np.float64]) -> NDArray[np.float64]:
        x = x.reshape(objectives[0].shape)
        return np.concatenate([c * f.map.image(x) for c, f in zip(roots, objectives, strict=True)])

    def adjoint(r: NDArray[np.float64]) -> NDArray[np.float64]:
        parts = zip(roots, objectives, np.split(r.reshape(-1), cuts), strict=True)
        total = np.zeros(objectives[0].shape)
        for c, f, part in parts:
            total += f.map.adjoint(c * part)
        return total.reshape(-1)

    def gram(v: NDArray[np.float64]) -> NDArray[np.float64]:
        return adjoint(image(v)) if points <= images else image(adjoint(v))

    return _largest_eigenvalue(LinearOperator((min(points, images),) * 2, matvec=gram, dtype=np.float64))


def _largest_eigenvalue(gram: LinearOperator) -> float:
    side = gram.shape[0]
    if side <= _DENSE_SIDE:
        return max(0.0, float(np.linalg.eigvalsh(gram @ np.eye(side))[-1]))
    start = np.random.default_rng(0).standard_normal(side)
    if not gram.matvec(start).any():  # a random vector is in the null space of zero alone
        return 0.0
    (largest,) = eigsh(gram, k=1, tol=_SLACK, v0=start, return_eigenvectors=False)
    return float(largest) * (1.0 + _SLACK)
