"""Atoms: the extreme points that linear oracles answer with.

An atom is frozen, hashable and small. It knows its inner product with a dense direction, how to
become a dense array and how to add itself to one; it keys the active set.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg.blas import dger

from dcgs.memory import Memory, Past, Remembers
from dcgs.points import Point, vdot


class Atom(Remembers):
    """An extreme point of a set, in whatever form is smallest."""

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

    def memory(self) -> Memory:
        raise TypeError(
            f"an atom must be a Spike, a Sparse, a Vertex or a RankOne to be kept in a checkpoint; "
            f"got a {type(self).__name__}."
        )

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return self.dense() if dtype is None else self.dense().astype(dtype)


@final
@dataclass(frozen=True, slots=True)
class Spike(Atom):
    """``height`` at one flat ``index``, zero elsewhere: a vertex of an ℓ₁ ball or a simplex."""

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

    def memory(self) -> Memory:
        return {"kind": "spike", "index": self.index, "height": self.height}


@final
@dataclass(frozen=True, eq=False)
class Sparse(Atom):
    """``values`` at flat ``indices`` (increasing), zero elsewhere: sparse vertices, permutations."""

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

    def memory(self) -> Memory:
        return {"kind": "sparse", "indices": self.indices, "values": self.values}

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
    """A dense extreme point (of a box, a convex hull, a polytope), or where a run starts from."""

    array: Point

    def dot(self, direction: Point) -> float:
        return vdot(self.array, direction)

    def add_to(self, x: Point, weight: float) -> None:
        x += weight * self.array

    def norm_squared(self) -> float:
        return vdot(self.array, self.array)

    def dense(self) -> Point:
        return self.array.copy()

    def memory(self) -> Memory:
        return {"kind": "vertex", "array": self.array}

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
    """scale · u vᵀ with unit u and v: an extreme point of a nuclear-norm ball or a spectraplex."""

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

    def memory(self) -> Memory:
        return {"kind": "rank one", "scale": self.scale, "u": self.u, "v": self.v}


def atom_again(past: Past, shape: tuple[int, ...]) -> Atom:
    """Return the atom of a memory, among points of this shape."""
    match past.word("kind"):
        case "spike":
            return Spike(past.whole("index"), past.number("height"), shape)
        case "sparse":
            return Sparse(past.array("indices"), past.point("values"), shape)
        case "rank one":
            return RankOne(past.number("scale"), *past.points("u", "v"))
        case _:
            return Vertex(past.point("array"))


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
