"""The product of sets: each part of a vector is in its own set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeAlias, final

import numpy as np

from dcgs.atoms import Atom, Sparse, Spike, Vertex
from dcgs.points import Point, read_only
from dcgs.projections import Derivative, ProjectedPoint
from dcgs.sets.base import (
    ConvexSet,
    DiagonallyProjectableSet,
    LowerBound,
    ProjectableSet,
    projects_cheaply,
    set_fields,
)
from dcgs.validation import shown

Slices: TypeAlias = tuple[slice, ...]

# A dense atom of a part with at most this number of entries is stored as those entries.
_FEW = 8


def ProductSet(*parts: ConvexSet) -> Product:
    """Return {(x₁, …, xₚ) : xⱼ ∈ Xⱼ}, a set of vectors; parts that are matrices are flattened in C order.

    It has a projection if all parts have one. A coordinate that nothing bounds, such as an intercept, is an
    interval wide enough never to matter: ``Box([-B], [B])``.

    >>> from dcgs.sets import Box, L1Ball
    >>> X = ProductSet(L1Ball(3, radius=2.0), Box([-10.0], [10.0]))
    >>> X.lmo(np.array([1.0, -3.0, 0.0, 0.5])).dense(), round(X.diameter, 3)
    (array([  0.,   2.,   0., -10.]), 20.396)
    >>> X.project(np.array([3.0, 0.0, 0.0, 7.0]))
    array([2., 0., 0., 7.])
    """
    if not parts or not all(isinstance(part, ConvexSet) for part in parts):
        raise TypeError(f"the parts of a product must be sets such as dcgs.L1Ball(10); got {shown(parts)}.")
    if all(isinstance(part, DiagonallyProjectableSet) for part in parts):
        return DiagonallyProjectableProduct(parts)
    projectable = all(projects_cheaply(part) for part in parts)
    return ProjectableProduct(parts) if projectable else OracleProduct(parts)


@dataclass(frozen=True, init=False)
class Product(ConvexSet):
    """What all products share: the oracle, the diameter, the violation and the start, part by part."""

    parts: tuple[ConvexSet, ...]
    shape: tuple[int, ...]
    polytope: bool
    cheap_violation: bool

    def __init__(self, parts: Sequence[ConvexSet]) -> None:
        set_fields(self, parts=tuple(parts), polytope=all(part.polytope for part in parts))
        set_fields(self, cheap_violation=all(part.cheap_violation for part in parts))
        set_fields(self, shape=(sum(math.prod(part.shape) for part in parts),))

    @property
    def slices(self) -> Slices:
        """Which entries each part has."""
        ends = accumulate((math.prod(part.shape) for part in self.parts), initial=0)
        return tuple(slice(*pair) for pair in pairwise(ends))

    def split(self, x: Point) -> list[Point]:
        """Return the parts of a vector, each in the shape of its set."""
        return [x[entries].reshape(part.shape) for part, entries in zip(self.parts, self.slices, strict=True)]

    @property
    def diameter(self) -> float:
        return math.hypot(*(part.diameter for part in self.parts))

    def lmo(self, direction: Point, near: Atom | None = None) -> Atom:
        atoms = [part.lmo(piece) for part, piece in zip(self.parts, self.split(direction), strict=True)]
        entries = [_entries(atom) for atom in atoms]
        if any(entry is None for entry in entries):
            return Vertex(read_only(np.concatenate([atom.dense().reshape(-1) for atom in atoms])))
        kept = [entry for entry in entries if entry is not None]
        indices = [place.start + index for place, (index, _) in zip(self.slices, kept, strict=True)]
        values = np.concatenate([value for _, value in kept])
        return Sparse(read_only(np.concatenate(indices)), read_only(values), self.shape)

    def lower_bound(self, direction: Point, s: Atom, slack: float = 0.0) -> LowerBound:
        share = slack / len(self.parts)
        pieces = zip(self.parts, self.split(direction), self.split(s.dense()), strict=True)
        bounds = [part.lower_bound(piece, Vertex(read_only(x)), share) for part, piece, x in pieces]
        return LowerBound(sum(bound.value for bound in bounds), sum(bound.error for bound in bounds))

    def violation(self, x: Point) -> float:
        return max(part.violation(piece) for part, piece in zip(self.parts, self.split(x), strict=True))

    @property
    def magnitude(self) -> float:
        return max(part.magnitude for part in self.parts)

    def start(self) -> Point:
        return np.concatenate([part.start().reshape(-1) for part in self.parts])

    def holds(self, x: Point) -> bool:
        """Return True if every part holds its entries, each up to its own rounding error."""
        return all(part.holds(piece) for part, piece in zip(self.parts, self.split(x), strict=True))

    def nearby(self, x: Point) -> Point:
        pairs = zip(self.parts, self.split(x), strict=True)
        pieces = [piece if part.holds(piece) else part.nearby(piece) for part, piece in pairs]
        return np.concatenate([piece.reshape(-1) for piece in pieces])


@final
class OracleProduct(Product):
    """A product known through its oracle."""


@final
class ProjectableProduct(Product, ProjectableSet):
    """A product of sets with Euclidean projections."""

    def project(self, y: Point) -> Point:
        pieces = []
        for part, piece in zip(self.parts, self.split(y), strict=True):
            assert isinstance(part, ProjectableSet)
            pieces.append(part.project(piece).reshape(-1))
        return np.concatenate(pieces)


@final
class DiagonallyProjectableProduct(Product, DiagonallyProjectableSet):
    """A product of sets with projections in every diagonal metric."""

    def projected(self, y: Point, h: Point | None = None) -> ProjectedPoint:
        metrics = [None] * len(self.parts) if h is None else self.split(h)
        pieces = []
        for part, piece, metric in zip(self.parts, self.split(y), metrics, strict=True):
            assert isinstance(part, DiagonallyProjectableSet)
            pieces.append(part.projected(piece, metric))
        point = np.concatenate([projected.point.reshape(-1) for projected in pieces])
        return ProjectedPoint(point, lambda: self._joined([projected.derivative() for projected in pieces]))

    def _joined(self, derivatives: Sequence[Derivative]) -> Derivative:
        columns = []
        for entries, derivative in zip(self.slices, derivatives, strict=True):
            if derivative.q is not None:
                q = np.zeros((self.shape[0], derivative.columns.shape[1]))
                q[entries] = derivative.columns
                columns.append(q)
        k = np.concatenate([derivative.k for derivative in derivatives])
        if len(columns) == 1 and columns[0].shape[1] == 1:
            return Derivative(k, columns[0][:, 0])
        return Derivative(k, np.concatenate(columns, axis=1) if columns else None)


def _entries(atom: Atom) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the indices and values of the entries of an atom, or None if it has many."""
    match atom:
        case Spike():
            return np.array([atom.index], dtype=np.intp), np.array([atom.height])
        case Sparse():
            return atom.indices, atom.values
        case Vertex() if atom.array.size <= _FEW:
            return np.arange(atom.array.size), atom.array.reshape(-1)
    return None
