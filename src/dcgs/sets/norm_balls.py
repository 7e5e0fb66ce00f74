"""Balls of norms: ℓ₁, Euclidean, ℓ∞, group ℓ₁, and the hull of k-sparse vectors with bounded entries."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.atoms import Atom, Sparse, Spike, Vertex
from dcgs.points import Point, norm, read_only
from dcgs.projections import (
    ProjectedPoint,
    free_derivative,
    l2_derivative,
    mask_derivative,
    onto_capped_l1_ball,
    onto_l1_ball,
    onto_l2_ball,
    simplex_derivative,
)
from dcgs.sets.base import (
    RADIUS,
    Ball,
    DiagonallyProjectableSet,
    Option,
    OptionKind,
    largest_entry,
    listed,
    lowest,
    set_fields,
    shortened,
)
from dcgs.validation import POSITIVE, SHAPE, indices, shown, whole


@dataclass(frozen=True, init=False)
class NormBall(Ball, DiagonallyProjectableSet):
    """The ball of a norm with a projection in every diagonal metric."""

    options = (RADIUS,)
    shape: tuple[int, ...]
    radius: float
    cheap_violation = True

    def __init__(self, shape: int | tuple[int, ...], radius: float = 1.0) -> None:
        set_fields(self, shape=SHAPE(shape, "shape"), radius=POSITIVE(radius, "radius"))


@final
@dataclass(frozen=True, init=False)
class L1Ball(NormBall):
    """{x : Σ|xⱼ| ≤ radius}, which makes x sparse; its extreme points are ±radius times a unit vector.

    >>> L1Ball(3, radius=2.0).lmo(np.array([1.0, -3.0, 0.0]))
    Spike(index=1, height=2.0, shape=(3,))
    """

    name = "l1"
    polytope = True

    @property
    def diameter(self) -> float:
        return 2.0 * self.radius

    def lmo(self, direction: Point, near: Atom | None = None) -> Spike:
        # Two searches without a temporary are faster than one over np.abs(direction).
        low, high = int(direction.argmin()), int(direction.argmax())
        down, up = -float(direction.item(low)), float(direction.item(high))
        if down > up or (down == up and low < high):
            return Spike(low, self.radius, self.shape)
        return Spike(high, -self.radius, self.shape)

    def more(self, direction: Point, level: float, most: int) -> list[Spike]:
        flat = direction.reshape(-1)
        indices = lowest(-self.radius * np.abs(flat), level, most)
        return [Spike(j, -math.copysign(self.radius, flat.item(j)), self.shape) for j in indices]

    def violation(self, x: Point) -> float:
        return max(0.0, float(np.abs(x).sum()) - self.radius)

    def projected(self, y: Point, h: Point | None = None) -> ProjectedPoint:
        x = onto_l1_ball(y, self.radius, h)
        if x is y:
            return ProjectedPoint(x, lambda: mask_derivative(np.ones(y.shape), h))
        return ProjectedPoint(x, lambda: simplex_derivative(x, h))


@final
@dataclass(frozen=True, init=False)
class L2Ball(NormBall):
    """{x : ‖x‖ ≤ radius} (Frobenius for matrices); every point of its sphere is extreme.

    >>> L2Ball(2, radius=5.0).lmo(np.array([3.0, 4.0])).dense()
    array([-3., -4.])
    """

    name = "l2"

    @property
    def diameter(self) -> float:
        return 2.0 * self.radius

    def lmo(self, direction: Point, near: Atom | None = None) -> Vertex:
        size = largest_entry(direction)
        if size == 0.0:
            array = np.zeros(self.shape)
            array.flat[0] = -self.radius
        else:
            # Dividing by the largest entry first keeps the squares from under- and overflow.
            array = direction / size
            array *= -self.radius / norm(array)
            array += 0.0  # −0 becomes 0, since atoms compare by their bytes
        return Vertex(read_only(array))

    def violation(self, x: Point) -> float:
        return max(0.0, norm(x) - self.radius)

    def projected(self, y: Point, h: Point | None = None) -> ProjectedPoint:
        x, mu = onto_l2_ball(y, self.radius, h)
        if x is y:
            return ProjectedPoint(x, lambda: mask_derivative(np.ones(y.shape), h))
        return ProjectedPoint(x, lambda: l2_derivative(x, mu, h))


@final
@dataclass(frozen=True, init=False)
class LInfBall(NormBall):
    """{x : max|xⱼ| ≤ radius}; its extreme points have ±radius everywhere.

    Where the direction is zero the oracle takes −radius.

    >>> LInfBall(3, radius=2.0).lmo(np.array([1.0, -3.0, 0.0])).dense()
    array([-2.,  2., -2.])
    """

    name = "linf"
    polytope = True

    @property
    def diameter(self) -> float:
        return 2.0 * self.radius * math.sqrt(math.prod(self.shape))

    def lmo(self, direction: Point, near: Atom | None = None) -> Vertex:
        return Vertex(read_only(np.where(direction < 0.0, self.radius, -self.radius)))

    def violation(self, x: Point) -> float:
        return max(0.0, largest_entry(x) - self.radius)

    def projected(self, y: Point, h: Point | None = None) -> ProjectedPoint:
        inside = np.clip(y, -self.radius, self.radius)
        return ProjectedPoint(inside, lambda: mask_derivative(inside == y, h))


@final
@dataclass(frozen=True, init=False)
class KSparseBall(DiagonallyProjectableSet):
    """The convex hull of the vectors with at most k nonzero entries, each of size at most radius.

    That is {x : Σ|xⱼ| ≤ k·radius, max|xⱼ| ≤ radius}; its extreme points have k entries ±radius.
    If fewer than k entries of the direction are nonzero, the oracle takes −radius at zero entries.

    >>> KSparseBall(4, k=2).lmo(np.array([1.0, -3.0, 0.0, 2.0])).dense()
    array([ 0.,  1.,  0., -1.])
    """

    name = "k-sparse"
    options = (Option("k", OptionKind.COUNT, "how many entries of an extreme point are nonzero"), RADIUS)
    shape: tuple[int, ...]
    k: int
    radius: float
    polytope = True
    cheap_violation = True

    def __init__(self, shape: int | tuple[int, ...], k: int, radius: float = 1.0) -> None:
        dims = SHAPE(shape, "shape")
        size = whole(1, math.prod(dims), "the number of entries")(k, "k")
        set_fields(self, shape=dims, k=size, radius=POSITIVE(radius, "radius"))

    @property
    def diameter(self) -> float:
        return 2.0 * self.radius * math.sqrt(self.k)

    @property
    def magnitude(self) -> float:
        return self.k * self.radius

    def lmo(self, direction: Point, near: Atom | None = None) -> Sparse:
        flat = direction.reshape(-1)
        sizes = np.abs(flat)
        # argpartition breaks ties arbitrarily, so the k-th largest size is found first.
        threshold = np.partition(sizes, -self.k)[-self.k]
        above = np.flatnonzero(sizes > threshold)
        level = np.flatnonzero(sizes == threshold)[: self.k - above.size]
        indices = np.sort(np.concatenate([above, level]))
        values = np.where(flat[indices] < 0.0, self.radius, -self.radius)
        return Sparse(read_only(indices), read_only(values), self.shape)

    def violation(self, x: Point) -> float:
        sum_excess = float(np.abs(x).sum()) - self.k * self.radius
        return max(0.0, sum_excess, largest_entry(x) - self.radius)

    def start(self) -> Point:
        return np.zeros(self.shape)

    def nearby(self, x: Point) -> Point:
        inside = np.clip(x, -self.radius, self.radius)
        return shortened(inside, float(np.abs(inside).sum()), self.k * self.radius)

    def projected(self, y: Point, h: Point | None = None) -> ProjectedPoint:
        total = self.k * self.radius
        x = onto_capped_l1_ball(y, total, self.radius, h)
        if np.array_equal(x, np.clip(y, -self.radius, self.radius)):
            return ProjectedPoint(x, lambda: mask_derivative(x == y, h))
        return ProjectedPoint(x, lambda: free_derivative(x, self.radius, h))


Groups: TypeAlias = tuple[tuple[int, ...], ...]


@final
@dataclass(frozen=True, init=False)
class GroupL1Ball(Ball):
    """{x : Σ_g ‖x_g‖ ≤ radius}, summed over groups g of flat indices; each index is in one group.

    Its extreme points lie on the sphere of one group. If every group is a single index the set is the
    ℓ₁ ball, a polytope.

    >>> X = GroupL1Ball(3, groups=[[0, 2], [1]], radius=5.0)
    >>> X.lmo(np.array([3.0, 4.5, 4.0])).dense()
    array([-3.,  0., -4.])
    """

    name = "group-l1"
    options = (Option("groups", OptionKind.GROUPS), RADIUS)
    shape: tuple[int, ...]
    groups: Groups
    radius: float
    polytope: bool
    cheap_violation = True
    _order: NDArray[np.intp] = field(repr=False, compare=False)
    _starts: NDArray[np.intp] = field(repr=False, compare=False)

    def __init__(
        self, shape: int | tuple[int, ...], groups: Iterable[Sequence[int]], radius: float = 1.0
    ) -> None:
        dims = SHAPE(shape, "shape")
        partition = as_partition(groups, math.prod(dims))
        sizes = [len(group) for group in partition]
        set_fields(self, shape=dims, groups=partition, radius=POSITIVE(radius, "radius"))
        set_fields(self, polytope=max(sizes) == 1)
        # In direction[_order] the entries of a group are adjacent, so one reduceat sums all groups.
        set_fields(self, _order=np.concatenate([np.array(group, dtype=np.intp) for group in partition]))
        set_fields(self, _starts=np.cumsum([0, *sizes[:-1]], dtype=np.intp))

    @property
    def diameter(self) -> float:
        return 2.0 * self.radius

    def lmo(self, direction: Point, near: Atom | None = None) -> Sparse:
        # Dividing by the largest entry first keeps the squares from under- and overflow.
        scaled = direction / (largest_entry(direction) or 1.0)
        best = int(self._norms(scaled).argmax())
        indices = np.array(self.groups[best], dtype=np.intp)
        values = scaled.reshape(-1)[indices]
        size = norm(values)
        if size == 0.0:
            values[0] = size = 1.0
        values *= -self.radius / size
        values += 0.0  # −0 becomes 0, since atoms compare by their bytes
        return Sparse(read_only(indices), read_only(values), self.shape)

    def violation(self, x: Point) -> float:
        return max(0.0, float(self._norms(x).sum()) - self.radius)

    def project(self, y: Point) -> Point:
        """Return y with each group shortened: the norms of the groups are projected onto the ℓ₁ ball."""
        sizes = self._norms(y)
        left = onto_l1_ball(sizes, self.radius)
        if left is sizes:
            return y
        shares = left / np.where(sizes > 0.0, sizes, 1.0)
        return (shares[self._labels] * y.reshape(-1)).reshape(y.shape)

    def jacobian(self, y: Point) -> NDArray[np.float64]:
        """Return the derivative of the projection: each group turns with y, and all shrink by one amount."""
        flat, sizes = y.reshape(-1), self._norms(y)
        left = onto_l1_ball(sizes, self.radius)
        if left is sizes:  # y is inside
            return np.eye(len(flat))
        shares = left / np.where(sizes > 0.0, sizes, 1.0)
        u = np.where(left > 0.0, 1.0 / np.where(sizes > 0.0, sizes, 1.0), 0.0)[self._labels] * flat
        same = self._labels[:, None] == self._labels
        J = np.diag(shares[self._labels]) + np.where(same, (1.0 - shares[self._labels]) * np.outer(u, u), 0.0)
        return np.asarray(J - np.outer(u, u) / max(1, int(np.count_nonzero(left))))

    @cached_property
    def _labels(self) -> NDArray[np.intp]:
        """The number of the group of every flat index."""
        labels = np.empty(self._order.size, dtype=np.intp)
        for g, group in enumerate(self.groups):
            labels[list(group)] = g
        return labels

    def _norms(self, x: Point) -> NDArray[np.float64]:
        squares = np.square(x.reshape(-1)[self._order])
        return np.sqrt(np.add.reduceat(squares, self._starts))


def as_partition(groups: Iterable[Sequence[int]], entries: int) -> Groups:
    """Return sorted groups; raise unless every index from 0 to entries − 1 is in one, and none is empty."""
    try:
        # No group may be empty, so that there are no more groups than entries.
        read = list(islice(groups, entries + 1))
    except TypeError:
        raise ValueError(f"groups must be sequences of indices; got {shown(groups)}.") from None
    partition = tuple(tuple(sorted(indices(group, "groups").tolist())) for group in read)
    times = Counter(j for group in partition for j in group)
    inside = sum(0 <= j < entries for j in times)
    wrong = {
        # A generator, since there may be far more entries than memory has room for.
        "missing": (j for j in range(entries if inside < entries else 0) if j not in times),
        "repeated": sorted(j for j, count in times.items() if count > 1),
        "outside": sorted(j for j in times if not 0 <= j < entries),
        "empty groups": [g for g, group in enumerate(partition) if not group],
    }
    faults = [f"{name} {text}" for name, places in wrong.items() if (text := listed(places)) != "[]"]
    if faults:
        raise ValueError(
            f"groups must hold each flat index from 0 to {entries - 1} once; got {', '.join(faults)}."
        )
    return partition
