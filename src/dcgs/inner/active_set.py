"""The active set: a point as a convex combination of atoms, and weights that minimize a quadratic."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dcgs.atoms import Atom, Spike
from dcgs.points import Point

Vector: TypeAlias = NDArray[np.float64]
T = TypeVar("T", bound=np.generic)

# Atoms other than spikes are stacked into one matrix if it has at most this number of entries: 16 MB.
_MOST_STACKED = 2_000_000
# Added to the diagonal of the scaled Hessian, which may be singular.
_RIDGE = 1e-14
# A multiplier that is negative by less than this share of the largest entry of the gradient is zero.
_TOLERANCE = 1e-13


def grown(array: NDArray[T]) -> NDArray[T]:
    """Return the array with twice the capacity, and at least 16 more entries."""
    return np.concatenate([array, np.zeros(max(16, len(array)), array.dtype)])


@final
@dataclass(eq=False)
class ActiveSet:
    """Σ weights[p] · atoms[p] over distinct atoms, with weights ≥ 0 that sum to one.

    A drop step moves all of an atom's weight. The subtraction is then exactly zero, and the atom is removed:
    there is no threshold and no renormalization. An active set over an ℓ₁ ball has hundreds of spikes, so
    they are stored in the arrays ``index`` and ``height``. The ``others`` are stored by their place, in the
    order in which they are summed. The first ``count`` entries of the three arrays are in use.
    """

    shape: tuple[int, ...]
    count: int
    weight: Vector
    index: NDArray[np.intp]
    height: Vector
    others: dict[int, Atom]
    is_stacked: bool = False
    atoms: list[Atom] = field(init=False)
    _place: dict[Atom, int] = field(init=False, repr=False)
    _stacked: tuple[NDArray[np.intp], Vector] | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        spikes = zip(self.index[: self.count].tolist(), self.height[: self.count].tolist(), strict=True)
        self.atoms = [
            self.others[place] if place in self.others else Spike(*spike, self.shape)
            for place, spike in enumerate(spikes)
        ]
        self._place = {atom: place for place, atom in enumerate(self.atoms)}
        if self.is_stacked:
            self._stack()

    @classmethod
    def of(cls, atom: Atom, shape: tuple[int, ...]) -> ActiveSet:
        """Return the active set of one atom, with weight 1."""
        S = cls(shape, 0, np.zeros(16), np.zeros(16, dtype=np.intp), np.zeros(16), {})
        S.weight[S.append(atom)] = 1.0
        return S

    def __len__(self) -> int:
        return len(self.atoms)

    def __contains__(self, atom: Atom) -> bool:
        return atom in self._place

    @property
    def weights(self) -> Vector:
        """The weight of each atom, in the order of ``atoms``."""
        return self.weight[: self.count]

    def dots(self, direction: Point) -> Vector:
        """Return ⟨direction, atom⟩ for every atom."""
        count = self.count
        products = direction.reshape(-1)[self.index[:count]]
        products *= self.height[:count]
        if self._stacked is not None:
            places, rows = self._stacked
            products[places] = rows @ direction.reshape(-1)
            return products
        for place, atom in self.others.items():
            products[place] = atom.dot(direction)
        return products

    def squares(self, diagonal: Point | None) -> Vector:
        """Return Σⱼ diagonalⱼ aⱼ² for every atom a; without a diagonal, Σⱼ aⱼ²."""
        count = self.count
        totals = self.height[:count] ** 2
        flat = None if diagonal is None else diagonal.reshape(-1)
        if flat is not None:
            totals *= flat[self.index[:count]]
        if self._stacked is not None:
            places, rows = self._stacked
            totals[places] = np.einsum("pj,pj->p", rows, rows if flat is None else rows * flat)
            return totals
        for place, atom in self.others.items():
            dense = atom.dense().reshape(-1)
            totals[place] = dense @ (dense if flat is None else dense * flat)
        return totals

    def move(self, gamma: float, away: int, toward: Atom) -> bool:
        """Move weight gamma from the atom at place ``away`` to ``toward``, which is added if it is new.

        Return True if the atom at ``away`` lost all its weight and was removed.
        """
        if gamma == 0.0:
            return False
        place = self._place.get(toward)
        if place is None:
            place = self.append(toward)
        self.weight[place] += gamma
        self.weight[away] -= gamma
        dropped = bool(self.weight[away] == 0.0)
        if dropped:
            self.drop(away)
        return dropped

    def dense(self) -> Point:
        """Return the point, summed over all atoms."""
        return self.combined(self.weights)

    def combined(self, weights: Vector) -> Point:
        """Return Σ weights[p] · atoms[p] for other weights, of any sign."""
        heights = weights * self.height[: self.count]
        sums = np.bincount(self.index[: self.count], heights, minlength=math.prod(self.shape))
        x = np.asarray(sums, dtype=np.float64).reshape(self.shape)
        if self._stacked is not None:
            places, rows = self._stacked
            return x + (weights[places] @ rows).reshape(self.shape)
        for place, atom in self.others.items():
            atom.add_to(x, float(weights[place]))
        return x

    def trim(self) -> None:
        """Free unused capacity, so that a checkpoint does not contain it."""
        self.weight, self.index, self.height = (
            self.weight[: self.count].copy(),
            self.index[: self.count].copy(),
            self.height[: self.count].copy(),
        )

    def stack(self) -> None:
        """Stack the atoms other than spikes into one matrix, until an atom is added or removed."""
        if self.others and len(self.others) * math.prod(self.shape) <= _MOST_STACKED:
            self._stack()

    def append(self, atom: Atom) -> int:
        """Add a new atom with weight 0; return its place."""
        self._unstack()
        place = self.count
        if place == len(self.weight):
            self.weight, self.index, self.height = grown(self.weight), grown(self.index), grown(self.height)
        self.atoms.append(atom)
        self.count += 1
        self.weight[place] = 0.0
        self._put(place, atom)
        return place

    def drop(self, place: int) -> None:
        """Remove the atom at ``place``; the last atom moves there."""
        self._unstack()
        last = self.atoms.pop()
        self.count -= 1
        end = self.count
        self.others.pop(end, None)
        if place == end:
            del self._place[last]
            return
        del self._place[self.atoms[place]]
        self.atoms[place] = last
        self.weight[place] = self.weight[end]
        self._put(place, last)

    def _stack(self) -> None:
        rows = [atom.dense().reshape(-1) for atom in self.others.values()]
        self.is_stacked, self._stacked = True, (np.array(list(self.others), dtype=np.intp), np.stack(rows))

    def _unstack(self) -> None:
        self.is_stacked, self._stacked = False, None

    def _put(self, place: int, atom: Atom) -> None:
        self._place[atom] = place
        self.others.pop(place, None)
        match atom:
            case Spike():
                self.index[place], self.height[place] = atom.index, atom.height
            case _:
                self.index[place], self.height[place] = 0, 0.0
                self.others[place] = atom


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
