"""Corrective: pairwise steps that ask the oracle only when the active set has little more to give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.atoms import Atom, Vertex
from dcgs.inner.active_set import ActiveSet
from dcgs.inner.base import Inner, Outcome, Solver, Subproblem, Task
from dcgs.inner.line_search import Line
from dcgs.objectives.losses import Image
from dcgs.objectives.objective import Objective
from dcgs.points import Point, frozen, is_whole
from dcgs.sets.base import ConvexSet

Vector: TypeAlias = NDArray[np.float64]

# Between two oracle calls the gap over the hull of the active atoms falls to this share of the gap over X.
_SHARE = 0.5


@final
@dataclass(frozen=True)
class Corrective(Inner):
    """Pairwise steps as in PCG, nearly all of them between atoms that are active already.

    An oracle call finds one new atom. Before the next call, weight moves between active atoms until
    the gap over their hull is half of the gap over X. Such a step needs neither the oracle nor the
    data: the images of the active atoms are kept, and for a quadratic loss their inner products.
    Linearly convergent over polytopes, as PCG is (the corrective and blended pairwise methods of
    Lacoste-Julien and Jaggi 2015 and of Tsuji, Tanaka and Pokutta 2022). ``max_steps`` bounds the steps
    of one solve, those between active atoms included.
    """

    max_steps: int = 1_000_000

    def __post_init__(self) -> None:
        if not is_whole(self.max_steps, 1):
            raise ValueError(f"max_steps must be a whole number of at least 1; got {self.max_steps!r}.")

    def misfit(self, f: Objective, X: ConvexSet) -> str | None:
        if X.polytope:
            return None
        return (
            f"corrective needs a set with finitely many extreme points; {type(X).__name__} is not one. "
            "Use inner='cg'."
        )

    def start(self, task: Task) -> Solver:
        return _CorrectiveSolver(self, task)


@final
class _CorrectiveSolver(Solver):
    def __init__(self, spec: Corrective, task: Task) -> None:
        self.spec = spec
        self.task = task
        self.hull = _Hull(
            task.f, Vertex(task.x0)
        )  # x⁰ need not be a vertex, and is one until its weight is 0
        self.x = task.x0

    def __call__(self, phi: Subproblem, e: float) -> Point:
        hull, left = self.hull, self.spec.max_steps
        noise = phi.noise(self.x, hull.image, self.task.X.diameter)
        outcome = Outcome.STEPS
        while left > 0:
            g = phi.grad(self.x, hull.image)
            s = self.task.lmo(g, None)
            dots = hull.S.dots(g)
            gap = float(hull.S.weights @ (dots - s.dot(g)))
            if gap <= max(e, noise):
                outcome = Outcome.REACHED if gap <= e else Outcome.ROUNDING
                break
            if hull.add(s):
                dots = np.append(dots, s.dot(g))
            left -= hull.correct(phi, dots, max(_SHARE * gap, noise), left)
            self.x = hull.S.dense(self.task.X.shape)
        self.task.outcomes[outcome] += 1
        return frozen(self.x)


@final
class _Hull:
    """The hull of the active atoms: their images, the inner products of these and of the atoms themselves."""

    def __init__(self, f: Objective, atom: Atom) -> None:
        self.f = f
        self.S = ActiveSet(atom)
        image = f.map.image_of_atom(atom)
        self._images = image[np.newaxis, :].copy()
        self._between_images = np.array([[image @ image]])
        self._between_atoms = np.array([[atom.norm_squared()]])

    @property
    def image(self) -> Image:
        """The image of the point."""
        return self.S.weights @ self._images[: len(self.S)]

    def add(self, atom: Atom) -> bool:
        """Take in an atom, with no weight yet; return whether it is new."""
        if atom in self.S:
            return False
        products = self.S.crosses(atom)
        place = self.S.append(atom)
        if place == len(self._images):
            self._images = _doubled(self._images, 1)
            self._between_images = _doubled(self._between_images, 2)
            self._between_atoms = _doubled(self._between_atoms, 2)
        image = self._images[place] = self.f.map.image_of_atom(atom)
        self._between_atoms[place, :place] = self._between_atoms[:place, place] = products
        self._between_atoms[place, place] = atom.norm_squared()
        products = self._images[: place + 1] @ image
        self._between_images[place, : place + 1] = self._between_images[: place + 1, place] = products
        return True

    def correct(self, phi: Subproblem, dots: Vector, goal: float, limit: int) -> int:
        """Move weight between atoms until the gap over the hull is at most ``goal``; return the steps.

        ``dots`` are the inner products of ∇φ with the atoms. Atoms left without weight leave.
        """
        lower, upper = phi.f.loss.curvature
        moves = self._quadratic if lower == upper else self._general
        steps = moves(phi, dots, goal, limit)
        for place in reversed(np.flatnonzero(self.S.weights == 0.0).tolist()):
            self._drop(place)
        return steps

    def _quadratic(self, phi: Subproblem, dots: Vector, goal: float, limit: int) -> int:
        weights, count, curvature = self.S.weights, len(self.S), phi.f.loss.curvature[0]
        images, atoms = self._between_images[:count, :count], self._between_atoms[:count, :count]
        for step in range(limit):
            away, toward = _worst(dots, weights), int(dots.argmin())
            if float(weights @ (dots - dots[toward])) <= goal:
                return step
            turn = curvature * (images[toward] - images[away]) + phi.eta * (atoms[toward] - atoms[away])
            bend, most = float(turn[toward] - turn[away]), float(weights[away])
            gamma = min(float(dots[away] - dots[toward]) / bend, most) if bend > 0.0 else most
            weights[away] -= gamma  # to exactly 0 when all of it goes
            weights[toward] += gamma
            dots += gamma * turn
        return limit

    def _general(self, phi: Subproblem, dots: Vector, goal: float, limit: int) -> int:
        weights, count = self.S.weights, len(self.S)
        images, apart = self._images[:count], self._between_atoms[:count, :count]
        image, rest = weights @ images, self.S.dots(phi.linear) + phi.eta * (apart @ weights)
        for step in range(limit):
            away, toward = _worst(dots, weights), int(dots.argmin())
            if float(weights @ (dots - dots[toward])) <= goal:
                return step
            motion = images[toward] - images[away]
            bend = phi.eta * float(apart[away, away] - 2.0 * apart[away, toward] + apart[toward, toward])
            slope, most = float(dots[toward] - dots[away]), float(weights[away])
            gamma = Line(phi.f.loss, image, motion, slope, bend, most).minimizer()
            weights[away] -= gamma
            weights[toward] += gamma
            image = image + gamma * motion
            rest = rest + (gamma * phi.eta) * (apart[toward] - apart[away])
            dots = images @ phi.f.loss.grad(image) + rest
        return limit

    def _drop(self, place: int) -> None:
        """Remove the atom at place; the last one takes its place."""
        self.S.drop(place)
        last = len(self.S)
        self._images[place] = self._images[last]
        for square in (self._between_images, self._between_atoms):
            square[place, : last + 1] = square[last, : last + 1]
            square[: last + 1, place] = square[: last + 1, last]


def _worst(dots: Vector, weights: Vector) -> int:
    """Return the place of the atom with the largest dot among those with weight."""
    place = int(dots.argmax())
    return place if weights[place] > 0.0 else int(np.where(weights > 0.0, dots, -np.inf).argmax())


def _doubled(array: NDArray[np.float64], axes: int) -> NDArray[np.float64]:
    """Return the array with twice the room along its first axes."""
    return np.pad(array, [(0, size if axis < axes else 0) for axis, size in enumerate(array.shape)])
