"""Corrective: pairwise steps that ask the oracle only when the active set has little more to give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.atoms import Atom, Vertex
from dcgs.inner.active_set import ActiveSet
from dcgs.inner.base import Inner, Outcome, Solver, Subproblem, Task, check_max_steps, polytope_misfit
from dcgs.inner.line_search import Line
from dcgs.objectives.losses import Image
from dcgs.objectives.objective import Objective
from dcgs.points import Point, frozen
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
    data: the images of the active atoms are kept.
    Linearly convergent over polytopes, as PCG is (the corrective and blended pairwise methods of
    Lacoste-Julien and Jaggi 2015 and of Tsuji, Tanaka and Pokutta 2022). ``max_steps`` bounds the steps
    of one solve, those between active atoms included.
    """

    max_steps: int = 1_000_000

    def __post_init__(self) -> None:
        check_max_steps(self.max_steps)

    def misfit(self, f: Objective, X: ConvexSet) -> str | None:
        return polytope_misfit("corrective", X)

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
    """The hull of the active atoms, and the images of these."""

    def __init__(self, f: Objective, atom: Atom) -> None:
        self.f = f
        self.S = ActiveSet(atom)
        self._images = f.map.image_of_atom(atom)[np.newaxis, :].copy()

    @property
    def image(self) -> Image:
        """The image of the point."""
        return self.S.weights @ self._images[: len(self.S)]

    def add(self, atom: Atom) -> bool:
        """Take in an atom, with no weight yet; return whether it is new."""
        if atom in self.S:
            return False
        place = self.S.append(atom)
        if place == len(self._images):
            self._images = np.concatenate([self._images, np.empty_like(self._images)])
        self._images[place] = self.f.map.image_of_atom(atom)
        return True

    def correct(self, phi: Subproblem, dots: Vector, goal: float, limit: int) -> int:
        """Move weight between atoms until the gap over the hull is at most ``goal``; return the steps.

        ``dots`` are the inner products of ∇φ with the atoms. Atoms left without weight leave.
        """
        S, images = self.S, self._images[: len(self.S)]
        weights, image = S.weights, self.image
        rest = dots - images @ phi.f.loss.grad(image)  # what of the dots is not the loss's
        step = 0
        while step < limit:
            away, toward = _worst(dots, weights), int(dots.argmin())
            if float(weights @ (dots - dots[toward])) <= goal:
                break
            motion = images[toward] - images[away]
            turn = phi.eta * (S.crosses(S.atoms[toward]) - S.crosses(S.atoms[away]))
            slope, bend = float(dots[toward] - dots[away]), float(turn[toward] - turn[away])
            gamma = Line(phi.f.loss, image, motion, slope, bend, float(weights[away])).minimizer()
            weights[away] -= gamma  # to exactly 0 when all of it goes
            weights[toward] += gamma
            image = image + gamma * motion
            rest += gamma * turn
            dots = images @ phi.f.loss.grad(image) + rest
            step += 1
        for place in reversed(np.flatnonzero(weights == 0.0).tolist()):
            S.drop(place)
            self._images[place] = self._images[len(S)]
        return step


def _worst(dots: Vector, weights: Vector) -> int:
    """Return the place of the atom with the largest dot among those with weight."""
    place = int(dots.argmax())
    return place if weights[place] > 0.0 else int(np.where(weights > 0.0, dots, -np.inf).argmax())
