"""The active set: a point as a convex combination of atoms."""

from __future__ import annotations

import math
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.atoms import Atom, Spike, atom_again
from dcgs.memory import Memory, Past, Remembers
from dcgs.points import Point

Vector: TypeAlias = NDArray[np.float64]

# Atoms that are no spikes are put into one matrix if it has no more entries than this: 16 MB.
_MOST_PACKED = 2_000_000


@final
class ActiveSet(Remembers):
    """Σ weights[p] · atoms[p] over distinct atoms, with weights ≥ 0 that sum to one.

    A drop step moves the whole weight, so the subtraction is exactly zero and the atom leaves: no
    purge threshold, no renormalization. Spikes are kept in arrays beside the list of atoms, for an
    active set of an ℓ₁ ball has hundreds, and one gather replaces as many calls.
    """

    def __init__(self, atom: Atom) -> None:
        self.atoms: list[Atom] = []
        self._place: dict[Atom, int] = {}
        self._weights = np.zeros(16)
        self._index = np.zeros(16, dtype=np.intp)
        self._height = np.zeros(16)
        self._others: dict[int, Atom] = {}
        self._packed: tuple[NDArray[np.intp], Vector] | None = None
        self._weights[self.append(atom)] = 1.0

    @classmethod
    def again(cls, past: Past, shape: tuple[int, ...]) -> ActiveSet:
        """Return the active set of a memory, of points of this shape."""
        spikes = zip(past.array("index").tolist(), past.array("height").tolist(), strict=True)
        atoms: list[Atom] = [Spike(index, height, shape) for index, height in spikes]
        others = dict(zip(past.array("places").tolist(), past.parts("others"), strict=True))
        for place, part in others.items():
            atoms[place] = atom_again(part, shape)
        S = cls(atoms[0])
        for atom in atoms[1:]:
            S.append(atom)
        S.weights[:] = past.point("weights")
        S._others = {place: atoms[place] for place in others}
        if past.whole("packed"):
            S._pack()
        return S

    def memory(self) -> Memory:
        count = len(self.atoms)
        return {
            "weights": self.weights,
            "index": self._index[:count],
            "height": self._height[:count],
            # Those that are no spikes, in the order in which they are summed.
            "places": np.array(list(self._others), dtype=np.intp),
            "others": [atom.memory() for atom in self._others.values()],
            "packed": self._packed is not None,
        }

    def __len__(self) -> int:
        return len(self.atoms)

    def __contains__(self, atom: Atom) -> bool:
        return atom in self._place

    @property
    def weights(self) -> Vector:
        """The weight of each atom, in the order of ``atoms``."""
        return self._weights[: len(self.atoms)]

    def dots(self, direction: Point) -> Vector:
        """Return ⟨direction, atom⟩ for every atom."""
        count = len(self.atoms)
        products = direction.reshape(-1)[self._index[:count]]
        products *= self._height[:count]
        if self._packed is not None:
            places, rows = self._packed
            products[places] = rows @ direction.reshape(-1)
            return products
        for place, atom in self._others.items():
            products[place] = atom.dot(direction)
        return products

    def squares(self, weights: Point | None) -> Vector:
        """Return Σⱼ weightsⱼ aⱼ² for every atom a; all weights are 1 if there are none."""
        count = len(self.atoms)
        totals = self._height[:count] ** 2
        flat = None if weights is None else weights.reshape(-1)
        if flat is not None:
            totals *= flat[self._index[:count]]
        if self._packed is not None:
            places, rows = self._packed
            totals[places] = np.einsum("pj,pj->p", rows, rows if flat is None else rows * flat)
            return totals
        for place, atom in self._others.items():
            dense = atom.dense().reshape(-1)
            totals[place] = dense @ (dense if flat is None else dense * flat)
        return totals

    def move(self, gamma: float, away: int, toward: Atom) -> bool:
        """Move weight gamma from the atom at place ``away`` to the atom ``toward``, in or not.

        Return whether the one moved away from has left.
        """
        if gamma == 0.0:
            return False
        place = self._place.get(toward)
        if place is None:
            place = self.append(toward)
        self._weights[place] += gamma
        self._weights[away] -= gamma
        dropped = bool(self._weights[away] == 0.0)
        if dropped:
            self.drop(away)
        return dropped

    def dense(self, shape: tuple[int, ...]) -> Point:
        """Return the point itself, summed afresh."""
        return self.combined(self.weights, shape)

    def combined(self, weights: Vector, shape: tuple[int, ...]) -> Point:
        """Return Σ weights[p] · atoms[p] for other weights, of any sign."""
        count = len(self.atoms)
        heights = weights * self._height[:count]
        sums = np.bincount(self._index[:count], heights, minlength=math.prod(shape))
        x = np.asarray(sums, dtype=np.float64).reshape(shape)
        if self._packed is not None:
            places, rows = self._packed
            return x + (weights[places] @ rows).reshape(shape)
        for place, atom in self._others.items():
            atom.add_to(x, float(weights[place]))
        return x

    def pack(self, shape: tuple[int, ...]) -> None:
        """Put atoms that are no spikes into one matrix, for as long as no atom comes or goes."""
        if self._others and len(self._others) * math.prod(shape) <= _MOST_PACKED:
            self._pack()

    def append(self, atom: Atom) -> int:
        """Take in a new atom, with no weight yet; return its place."""
        self._packed = None
        place = len(self.atoms)
        if place == len(self._weights):
            self._weights, self._index, self._height = (
                np.concatenate([array, np.zeros_like(array)])
                for array in (self._weights, self._index, self._height)
            )
        self.atoms.append(atom)
        self._weights[place] = 0.0
        self._put(place, atom)
        return place

    def drop(self, place: int) -> None:
        """Remove the atom at place; the last one takes its place."""
        self._packed = None
        last = self.atoms.pop()
        end = len(self.atoms)
        self._others.pop(end, None)
        if place == end:
            del self._place[last]
            return
        del self._place[self.atoms[place]]
        self.atoms[place] = last
        self._weights[place] = self._weights[end]
        self._put(place, last)

    def _pack(self) -> None:
        rows = [atom.dense().reshape(-1) for atom in self._others.values()]
        self._packed = np.array(list(self._others), dtype=np.intp), np.stack(rows)

    def _put(self, place: int, atom: Atom) -> None:
        self._place[atom] = place
        self._others.pop(place, None)
        match atom:
            case Spike():
                self._index[place], self._height[place] = atom.index, atom.height
            case _:
                self._index[place], self._height[place] = 0, 0.0
                self._others[place] = atom
