"""A small quadratic over the simplex, minimized by an active-set method."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dcgs.inner.active_set import Vector

# Added to the diagonal of the scaled Hessian, which may be singular.
_RIDGE = 1e-14
# A multiplier that is negative by less than this share of the largest entry of the gradient is zero.
_TOLERANCE = 1e-13


def minimizer_over_simplex(H: NDArray[np.float64], g: Vector, w: Vector) -> Vector:
    """Return a u ≥ 0 of sum 1 that about minimizes ⟨g, u − w⟩ + ½ (u − w)ᵀ H (u − w).

    The entries that are not fixed to zero move to the minimizer of the quadratic, or until one of them is
    zero, which is then fixed. An entry whose multiplier is negative is freed (Nocedal and Wright, *Numerical
    Optimization*, section 16.5). The number of steps is bounded.
    """
    u, free = w.copy(), w > 0.0
    for _ in range(3 * len(w)):
        r = g + H @ (u - w)
        places = np.flatnonzero(free)
        d = _newton_direction(H[np.ix_(places, places)], r[places])
        short = u[places] + d < 0.0
        ratios = -u[places][short] / d[short]
        step = min(1.0, float(ratios.min(initial=1.0)))
        u[places] = np.maximum(u[places] + step * d, 0.0)
        if step < 1.0:
            blocking = places[short][int(ratios.argmin())]
            u[blocking], free[blocking] = 0.0, False
            continue
        r = g + H @ (u - w)
        level = r - float(r[places].mean())
        lowest = int(np.where(free, np.inf, level).argmin())
        if free.all() or level[lowest] >= -_TOLERANCE * float(np.abs(r).max()):
            break
        free[lowest] = True
    return np.asarray(u / u.sum())


def _newton_direction(H: NDArray[np.float64], r: Vector) -> Vector:
    """Return the d of sum 0 that minimizes ⟨r, d⟩ + ½ dᵀ H d."""
    diagonal = np.diag(H)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    system = scale[:, None] * H * scale + _RIDGE * np.eye(len(r))
    ones = scale[:, None]
    kkt = np.block([[system, ones], [ones.T, np.zeros((1, 1))]])
    solution = np.linalg.lstsq(kkt, np.append(-scale * (r - r.mean()), 0.0))[0]
    d = scale * solution[:-1]
    return np.asarray(d - d.mean())
