"""The group ℓ₁ ball."""

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

from dcgs.atoms import Atom, Sparse
from dcgs.points import Point, norm, read_only
from dcgs.projections import onto_l1_ball
from dcgs.sets.base import ProjectableSet, largest_entry, listed, set_fields, shortened
from dcgs.sets.options import RADIUS, Kind, Option
from dcgs.validation import POSITIVE, SHAPE, indices, shown

Groups: TypeAlias = tuple[tuple[int, ...], ...]


@final
@dataclass(frozen=True, init=False)
class GroupL1Ball(ProjectableSet):
    """{x : Σ_g ‖x_g‖ ≤ radius}, summed over groups g of flat indices; each index is in one group.

    Its extreme points lie on the sphere of one group. If every group is a single index the set is the
    ℓ₁ ball, a polytope.

    >>> X = GroupL1Ball(3, groups=[[0, 2], [1]], radius=5.0)
    >>> X.lmo(np.array([3.0, 4.5, 4.0])).dense()
    array([-3.,  0., -4.])
    """

    name = "group-l1"
    options = (Option("groups", Kind.GROUPS), RADIUS)
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

    @property
    def magnitude(self) -> float:
        return self.radius

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

    def start(self) -> Point:
        return np.zeros(self.shape)

    def nearby(self, x: Point) -> Point:
        return shortened(x, float(self._norms(x).sum()), self.radius)

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
    faults = [f"{name} {text}" for name, found in wrong.items() if (text := listed(found)) != "[]"]
    if faults:
        raise ValueError(
            f"groups must hold each flat index from 0 to {entries - 1} once; got {', '.join(faults)}."
        )
    return partition
