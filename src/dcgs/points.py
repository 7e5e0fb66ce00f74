"""Points: NumPy arrays of float64, which most methods compute with; matrices in factors are LowRank."""

from __future__ import annotations

import hashlib
import math
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import daxpy

Point: TypeAlias = NDArray[np.float64]
A = TypeVar("A", bound=NDArray[Any])

EPS = float(np.finfo(np.float64).eps)


def vdot(x: Point, y: Point) -> float:
    """Return ⟨x, y⟩, the sum of products of all entries.

    >>> import dcgs, numpy as np
    >>> dcgs.vdot(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    11.0
    """
    return float(np.vdot(x, y))


def norm(x: Point) -> float:
    """Return ‖x‖, Euclidean (Frobenius for matrices).

    >>> import dcgs, numpy as np
    >>> dcgs.norm(np.array([[3.0, 0.0], [0.0, 4.0]]))
    5.0
    """
    return math.sqrt(vdot(x, x))


def upper_triangle(H: Point) -> Point:
    """Return the upper triangle of a square matrix, row by row."""
    return H[np.triu_indices(len(H))]


def symmetric(triangle: Point, side: int) -> Point:
    """Return the symmetric matrix with this upper triangle, row by row."""
    H, at = np.empty((side, side)), 0
    for i in range(side):
        H[i, i:] = H[i:, i] = triangle[at : at + side - i]
        at += side - i
    return H


def add_scaled(a: float, x: Point, out: Point) -> None:
    """Add a·x to the C-contiguous out, in place and without a temporary."""
    daxpy(x.reshape(-1), out.reshape(-1), a=a)


def is_finite(x: Point) -> bool:
    """Return whether all entries are finite; a finite sum proves it without a temporary."""
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(np.isfinite(x.sum()) or np.isfinite(x).all())


def frozen(x: Point) -> Point:
    """Return a read-only copy of x, which later changes of x do not affect."""
    return read_only(np.array(x, dtype=np.float64, order="C"))


def read_only(array: A) -> A:
    """Return the array itself, which nobody can change from now on."""
    array.flags.writeable = False
    return array


def content_rng(*arrays: NDArray[np.float64]) -> np.random.Generator:
    """Return a generator that is seeded with the SHA-256 digest of the shapes and bytes of arrays.

    Equal arrays give equal bits in every process. Whoever chooses the arrays cannot choose what is drawn.
    """
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(repr(array.shape).encode())
        digest.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
    return np.random.default_rng(int.from_bytes(digest.digest(), "little"))
