"""Membership of a point in a set, written down a second time, with sums that have one rounding error."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

import dcgs
from dcgs.sets.product_set import Product

EPS = float(np.finfo(np.float64).eps)
# What dcgs promises: the largest violation, in units of ε times the magnitude of the set.
MOST = 10.0


def roundings(X: dcgs.ConvexSet, x: NDArray[np.float64]) -> float:
    """Return the violation of X at x, in units of ε times the magnitude of X; for products, of each part."""
    if isinstance(X, Product):
        return max(roundings(part, own) for part, own in zip(X.parts, X.split(x), strict=True))
    violation = _violation(X, x)
    return violation / (EPS * X.magnitude) if violation > 0.0 else 0.0


def _violation(X: dcgs.ConvexSet, x: NDArray[np.float64]) -> float:
    flat: list[float] = x.reshape(-1).tolist()
    sizes = [abs(entry) for entry in flat]
    match X:
        case dcgs.Simplex():
            return max(-min(flat), abs(math.fsum(flat) - X.radius))
        case dcgs.L1Ball():
            return math.fsum(sizes) - X.radius
        case dcgs.L2Ball():
            return math.hypot(*flat) - X.radius
        case dcgs.LInfBall():
            return max(sizes) - X.radius
        case dcgs.Box():
            return max(float((X.lower - x).max()), float((x - X.upper).max()))
        case dcgs.KSparseBall():
            return max(math.fsum(sizes) - X.k * X.radius, max(sizes) - X.radius)
        case dcgs.GroupL1Ball():
            return math.fsum(math.hypot(*(flat[j] for j in group)) for group in X.groups) - X.radius
        case dcgs.BirkhoffPolytope():
            sums = [math.fsum(line) for line in (*x.tolist(), *x.T.tolist())]
            return max(-min(flat), *(abs(total - 1.0) for total in sums))
        case dcgs.NuclearNormBall():
            return math.fsum(np.linalg.svd(x, compute_uv=False).tolist()) - X.radius
        case dcgs.Spectraplex():
            trace = math.fsum(np.diag(x).tolist())
            lowest = float(np.linalg.eigvalsh(0.5 * (x + x.T))[0])
            return max(-lowest, abs(trace - X.radius), float(np.abs(x - x.T).max()))
        case dcgs.Polytope():
            above = _rows(X.A_ub.toarray().tolist(), flat, X.b_ub.tolist())
            off = _rows(X.A_eq.toarray().tolist(), flat, X.b_eq.tolist())
            return max([0.0, *above, *map(abs, off)])
        case _:
            return X.violation(x)


def _rows(A: Iterable[list[float]], x: list[float], b: list[float]) -> list[float]:
    """Return A x − b."""
    return [
        math.fsum([a * y for a, y in zip(row, x, strict=True)] + [-c]) for row, c in zip(A, b, strict=True)
    ]
