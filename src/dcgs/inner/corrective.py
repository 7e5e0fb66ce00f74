"""Corrective: all weights of the active atoms move at once, and the oracle is asked for new atoms only."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import numpy as np

from dcgs.atoms import Atom, Spike, Vertex
from dcgs.inner.active_set import ActiveSet, Vector
from dcgs.inner.base import (
    Inner,
    Outcome,
    Solver,
    Subproblem,
    Task,
    check_max_steps,
    polytope_incompatibility,
)
from dcgs.inner.line_search import Line
from dcgs.memory import Memory, Past, Remembers
from dcgs.objectives.losses import Image
from dcgs.objectives.objective import Objective
from dcgs.points import Point, frozen, vdot
from dcgs.sets.base import ConvexSet

# Extreme points join that promise at least this share of what the best one does, where a set has many at
# the price of one; at most so many at a time, or so large a share of those that are there.
_WORTH = 0.5
_FEW, _PART = 16, 0.25
# Between two oracle calls the gap over the hull falls to this share of the gap over X, or of that asked for.
_SHARE, _END = 0.25, 0.4
# The gap has stopped falling if it did not get below _FALL of its least for so many steps over the hull, or
# for so many passes that found no new atom.
_FALL, _STEPS, _PASSES = 0.99, 300, 3
# The curvature along an atom is taken to be at least this share of the largest.
_LEAST = 1e-12
# An atom without weight stays for so many solves, since it is often wanted again.
_PATIENCE = 8


@final
@dataclass(frozen=True)
class Corrective(Inner):
    """Minimize over the hull of some extreme points, ask the oracle which ones are missing, and so on.

    Over the hull, weights take spectral projected gradient steps (Birgin, Martínez and Raydan 2000) with
    exact line search, each weight measured by the curvature along its atom: atoms may be of very different
    importance. Such a step needs neither the oracle nor the data, for images of atoms are kept.
    Where a set finds many good extreme points in one pass over the gradient, all that are worth it join, and
    each counts as a call. Atoms are kept for a while after they lost their weight. ``max_steps`` bounds the
    steps of one solve.
    """

    max_steps: int = 100_000
    weighs = True
    remembers = True

    def __post_init__(self) -> None:
        check_max_steps(self.max_steps)

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        return polytope_incompatibility("corrective", X)

    def start(self, task: Task) -> Solver:
        return _CorrectiveSolver(self, task)


@final
class _CorrectiveSolver(Solver):
    def __init__(self, spec: Corrective, task: Task) -> None:
        self.spec = spec
        self.task = task
        # x⁰ need not be an extreme point, and is taken for one.
        self.hull = _Hull(task.f, ActiveSet(Vertex(task.x0)))
        self.x = task.x0
        if task.past is not None:
            self.hull = _Hull.again(task.f, task.past.part("hull"))
            self.x = task.past.point("x")

    def memory(self) -> Memory:
        return {"hull": self.hull.memory(), "x": self.x}

    def __call__(self, phi: Subproblem, e: float) -> Point:
        hull, left = self.hull, self.spec.max_steps
        noise = phi.noise(self.x, hull.image, self.task.X.diameter)
        outcome = Outcome.STEPS
        lowest, in_vain = math.inf, 0
        while left > 0:
            g = phi.grad(self.x, hull.image)
            s = self.task.lmo(g, None)
            least = s.dot(g)
            gap = float(hull.S.weights @ (hull.S.dots(g) - least))
            if gap <= max(e, noise):
                outcome = Outcome.REACHED if gap <= e else Outcome.ROUNDING
                break
            most = max(_FEW, int(_PART * len(hull.S)))
            count = len(hull.S)
            hull.add([s, *self.task.lmo.more(g, least + (1.0 - _WORTH) * gap, most)])
            falls, lowest = gap < _FALL * lowest, min(gap, lowest)
            in_vain = 0 if falls or len(hull.S) > count else in_vain + 1
            steps = hull.correct(phi, max(_SHARE * gap, _END * e, noise), left)
            if in_vain == _PASSES or (steps == 0 and len(hull.S) == count):
                outcome = Outcome.ROUNDING  # all that is left to gain is lost to it
                break
            left -= max(1, steps)
            self.x = hull.S.dense(self.task.X.shape)
        hull.forget()
        self.task.outcomes[outcome] += 1
        return frozen(self.x)


@final
class _Hull(Remembers):
    """The hull of some atoms, with their images; ``stride`` is that of the next step.

    ``_bends`` has the curvature of f on the way from the first atom to each.
    """

    def __init__(self, f: Objective, S: ActiveSet) -> None:
        self.f = f
        self.S = S
        self.stride = 1.0
        self._images = np.stack([f.map.image_of_atom(atom) for atom in S.atoms])
        self._idle = np.zeros(len(S), dtype=np.intp)
        self._bends = np.array([self._bend(place) for place in range(len(S))])

    @classmethod
    def again(cls, f: Objective, past: Past) -> _Hull:
        """Return the hull of a memory."""
        hull = cls(f, ActiveSet.again(past.part("S"), f.shape))
        hull.stride = past.number("stride")
        hull._images[hull._costly()] = past.point("images")
        hull._idle = past.array("idle")
        hull._bends = np.array([hull._bend(place) for place in range(len(hull.S))])
        return hull

    def memory(self) -> Memory:
        return {
            "S": self.S.memory(),
            "stride": self.stride,
            "images": self._images[self._costly()],
            "idle": self._idle[: len(self.S)],
        }

    def _costly(self) -> list[int]:
        """Return the places whose images are kept in a memory: that of a spike is a column, made anew."""
        return [place for place, atom in enumerate(self.S.atoms) if not isinstance(atom, Spike)]

    def _bend(self, place: int) -> float:
        way = self._images[place] - self._images[0]
        return self.f.loss.curvature[1] * vdot(way, way)

    @property
    def image(self) -> Image:
        """The image of the point."""
        return self.S.weights @ self._images[: len(self.S)]

    def add(self, atoms: Iterable[Atom]) -> None:
        """Take in the atoms that are new, with no weight yet."""
        for atom in atoms:
            if atom in self.S:
                continue
            place = self.S.append(atom)
            if place == len(self._images):
                self._images = np.concatenate([self._images, np.empty_like(self._images)])
                self._idle = np.concatenate([self._idle, np.empty_like(self._idle)])
                self._bends = np.concatenate([self._bends, np.empty_like(self._bends)])
            self._images[place] = self.f.map.image_of_atom(atom)
            self._idle[place] = 0
            self._bends[place] = self._bend(place)

    def correct(self, phi: Subproblem, goal: float, limit: int) -> int:
        """Change weights until the gap over the hull is at most ``goal``; return the steps."""
        S, images = self.S, self._images[: len(self.S)]
        S.pack(phi.w.shape)
        weights, image = S.weights, self.image
        x = S.dense(phi.w.shape)
        dots = self._dots(phi, image, x)
        lowest, last = math.inf, 0
        ease = self._ease(phi)
        for step in range(limit):
            above = dots - dots.min()  # without what all have in common, so that little is lost to rounding
            aim = _aim(weights, self.stride * (dots - dots[0]), ease)
            move = aim - weights
            slope = float(move @ above)
            gap = float(weights @ above)
            if gap < _FALL * lowest:
                lowest, last = gap, step
            if gap <= goal or slope >= 0.0 or step - last > _STEPS:
                return step
            motion, turn = move @ images, S.combined(move, phi.w.shape)
            gamma = Line(phi.f.loss, image, motion, slope, phi.bend(turn), 1.0).minimizer()
            weights[:] = aim if gamma == 1.0 else (1.0 - gamma) * weights + gamma * aim
            image, x, before = image + gamma * motion, x + gamma * turn, dots
            dots = self._dots(phi, image, x)
            change = (dots - dots[0]) - (before - before[0])
            along, across = float(move @ change), float(change @ (ease * change))
            if along > 0.0 and across > 0.0:
                self.stride = gamma * along / across
        return limit

    def forget(self) -> None:
        """Drop atoms that had no weight for long, but for the first."""
        count = len(self.S)
        self._idle[:count] = np.where(self.S.weights > 0.0, 0, self._idle[:count] + 1)
        for place in reversed(np.flatnonzero(self._idle[1:count] > _PATIENCE).tolist()):
            self.S.drop(place + 1)
            self._images[place + 1] = self._images[len(self.S)]
            self._idle[place + 1] = self._idle[len(self.S)]
            self._bends[place + 1] = self._bends[len(self.S)]

    def _dots(self, phi: Subproblem, image: Image, x: Point) -> Vector:
        """Return the inner products of ∇φ with the atoms."""
        images = self._images[: len(self.S)]
        return images @ phi.f.loss.grad(image) + self.S.dots(phi.linear + phi.pull(x))

    def _ease(self, phi: Subproblem) -> Vector:
        """Return for each atom one over the curvature of φ on the way to it, about."""
        bends = self._bends[: len(self.S)] + phi.eta * self.S.squares(phi.weights)
        most = float(bends.max())
        return 1.0 / np.maximum(bends, _LEAST * most) if most > 0.0 else np.ones(len(bends))


def _aim(weights: Vector, step: Vector, ease: Vector) -> Vector:
    """Return the weights after a step that the first atom makes up for, nearest in all but that one.

    The step, and what is near, is by the curvature along each atom, one over ``ease``.
    """
    wished = weights - ease * step
    aim = np.maximum(wished, 0.0)
    aim[0] = 0.0
    total = float(aim.sum())
    if total > 1.0:
        aim[1:] = _onto_simplex(wished[1:], ease[1:])
    else:
        aim[0] = 1.0 - total
    return aim


def _onto_simplex(y: Vector, ease: Vector) -> Vector:
    """Return the point z ≥ 0 of sum 1 with the least Σ (z − y)²/ease: max(y − θ ease, 0) for one θ.

    θ is found by leaving out what is zero for the others' θ, until nothing is (Michelot 1986). The sum of
    positive entries of y is more than 1.
    """
    left = np.flatnonzero(y > 0.0)
    z = np.ones(1)  # all of it, where one is left
    while len(left) > 1:
        theta = (float(y[left].sum()) - 1.0) / float(ease[left].sum())
        z = y[left] - theta * ease[left]
        above = z > 0.0
        if above.all():
            break
        left = left[above] if above.any() else left[[int((y[left] / ease[left]).argmax())]]
        z = np.ones(1)
    nearest = np.zeros(len(y))
    nearest[left] = z / z.sum()
    return nearest
