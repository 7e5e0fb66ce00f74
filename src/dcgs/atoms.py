"""Atoms: the extreme points that linear oracles return.

An atom is frozen, hashable and small. It computes its inner product with a dense direction, its dense
array, and its sum with one. It is a key of the active set.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg.blas import dger

from dcgs.points import Point, vdot


class Atom(ABC):
    """An extreme point of a set, in the form that takes the least memory.

    A checkpoint saves atoms that are dataclasses.

    >>> import dcgs, numpy as np
    >>> s = dcgs.L1Ball(3, radius=2.0).lmo(np.array([0.0, 5.0, 1.0]))
    >>> isinstance(s, dcgs.Atom), s.dot(np.ones(3)), s.dense()
    (True, -2.0, array([ 0., -2.,  0.]))
    """

    @abstractmethod
    def dot(self, direction: Point) -> float:
        """Return ⟨direction, atom⟩ for a dense direction."""

    @abstractmethod
    def add_to(self, x: Point, weight: float) -> None:
        """Add weight × atom to the C-contiguous x, in place."""

    @abstractmethod
    def norm_squared(self) -> float:
        """Return ‖atom‖²."""

    @abstractmethod
    def dense(self) -> Point:
        """Return the atom as an array of its own, which the caller may change."""

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return self.dense() if dtype is None else self.dense().astype(dtype)


@final
@dataclass(frozen=True, slots=True)
class Spike(Atom):
    """``height`` at one flat ``index``, zero elsewhere: a vertex of an ℓ₁ ball or a simplex.

    >>> import dcgs, numpy as np
    >>> s = dcgs.Spike(index=1, height=-2.0, shape=(3,))
    >>> s.dense(), s.dot(np.array([0.0, 5.0, 1.0]))
    (array([ 0., -2.,  0.]), -10.0)
    """

    index: int
    height: float
    shape: tuple[int, ...] = field(compare=False)

    def dot(self, direction: Point) -> float:
        return self.height * direction.item(self.index)

    def add_to(self, x: Point, weight: float) -> None:
        x.reshape(-1)[self.index] += weight * self.height

    def norm_squared(self) -> float:
        return self.height * self.height

    def dense(self) -> Point:
        array = np.zeros(self.shape)
        self.add_to(array, 1.0)
        return array


@final
@dataclass(frozen=True, eq=False)
class Sparse(Atom):
    """``values`` at flat ``indices`` (increasing), zero elsewhere: sparse vertices, permutations.

    >>> import dcgs, numpy as np
    >>> s = dcgs.Sparse(np.array([0, 3]), np.array([1.0, -1.0]), shape=(2, 2))
    >>> s.dense()
    array([[ 1.,  0.],
           [ 0., -1.]])
    """

    indices: NDArray[np.intp]
    values: NDArray[np.float64]
    shape: tuple[int, ...]

    def dot(self, direction: Point) -> float:
        return float(self.values @ direction.reshape(-1)[self.indices])

    def add_to(self, x: Point, weight: float) -> None:
        x.reshape(-1)[self.indices] += weight * self.values

    def norm_squared(self) -> float:
        return vdot(self.values, self.values)

    def dense(self) -> Point:
        array = np.zeros(self.shape)
        self.add_to(array, 1.0)
        return array

    @cached_property
    def _key(self) -> tuple[bytes, bytes]:
        return self.indices.tobytes(), self.values.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sparse) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@final
@dataclass(frozen=True, eq=False)
class Vertex(Atom):
    """A dense extreme point (of a box, a convex hull, a polytope), or where a run starts from.

    >>> import dcgs, numpy as np
    >>> s = dcgs.Vertex(np.array([1.0, -1.0]))
    >>> s.dot(np.array([2.0, 3.0])), s.norm_squared()
    (-1.0, 2.0)
    """

    array: Point

    def dot(self, direction: Point) -> float:
        return vdot(self.array, direction)

    def add_to(self, x: Point, weight: float) -> None:
        x += weight * self.array

    def norm_squared(self) -> float:
        return vdot(self.array, self.array)

    def dense(self) -> Point:
        return self.array.copy()

    @cached_property
    def _key(self) -> bytes:
        return self.array.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vertex) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@final
@dataclass(frozen=True, eq=False)
class RankOne(Atom):
    """scale · u vᵀ with unit u and v: an extreme point of a nuclear-norm ball or a spectraplex.

    >>> import dcgs, numpy as np
    >>> s = dcgs.RankOne(2.0, u=np.array([1.0, 0.0]), v=np.array([0.0, 1.0]))
    >>> s.dense()
    array([[0., 2.],
           [0., 0.]])
    """

    scale: float
    u: NDArray[np.float64]
    v: NDArray[np.float64]

    def dot(self, direction: Point) -> float:
        return self.scale * float(self.u @ (direction @ self.v))

    def add_to(self, x: Point, weight: float) -> None:
        # BLAS updates the Fortran-ordered view in place: no d₁×d₂ temporary.
        dger(weight * self.scale, self.v, self.u, a=x.T, overwrite_a=True)

    def norm_squared(self) -> float:
        return self.scale * self.scale

    def dense(self) -> Point:
        return np.outer(self.scale * self.u, self.v)


def cross(a: Atom, b: Atom) -> float:
    """Return ⟨a, b⟩, without making a dense array where the two forms allow it."""
    match a, b:
        case Spike(), Spike():
            return a.height * b.height if a.index == b.index else 0.0
        case RankOne(), RankOne():
            return a.scale * b.scale * float(a.u @ b.u) * float(a.v @ b.v)
        case _, Vertex():
            return a.dot(b.array)
        case Vertex(), _:
            return b.dot(a.array)
        case _:
            return a.dot(b.dense())
