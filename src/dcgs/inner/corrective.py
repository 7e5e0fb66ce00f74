"""Corrective: all weights of the active atoms change in each step; the oracle only finds new atoms."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dcgs.atoms import Atom, Vertex
from dcgs.inner.active_set import ActiveSet, Vector, grown, minimizer_over_simplex
from dcgs.inner.base import Accuracy, Inner, Outcome, Solver, Subproblem, Task, line_minimizer, needs_polytope
from dcgs.objectives.losses import Image
from dcgs.objectives.objective import Objective
from dcgs.points import Point, frozen, vdot
from dcgs.sets.base import ConvexSet
from dcgs.sets.product_set import Product
from dcgs.validation import COUNT

# If a set returns many extreme points at the cost of one, those with at least this share of the best gap are
# added, at most _FEW at a time or the share _PART of the active set.
_ADDED_SHARE = 0.5
_FEW, _PART = 16, 0.25
# Between two oracle calls the gap over the hull falls to this share of the gap over X, or of the target.
_SHARE, _END = 0.25, 0.4
# A gap has stopped falling if for _STEPS steps over the hull, or _PASSES passes without a new atom, it did
# not get below _FALL times its lowest value.
_FALL, _STEPS, _PASSES = 0.99, 300, 3
# Steps over the hull are seldom more than a hundred. After _SLOW of them, or _AGAIN once that has happened,
# every second step is a Newton step, if its Hessian takes at most _MOST_PRODUCTS products. After _LONGEST
# steps the oracle is asked, so that a limit on its calls or on seconds can end the solve.
_SLOW, _AGAIN, _LONGEST = 150, 6, 2_000
_MOST_PRODUCTS = 10_000_000
# The curvature along an atom is taken to be at least this share of the largest.
_LEAST = 1e-12
# An atom without weight is removed after this number of solves. Many are used again before that.
_IDLE_SOLVES = 8


@final
@dataclass(eq=False)
class CorrectiveState:
    """The iterate and its active set, for each atom the solves without weight, and the next spectral step.

    ``was_slow`` is True once steps over the hull were too many without Newton's method.
    """

    x: Point
    S: ActiveSet
    idle: NDArray[np.intp]
    spectral_step: float = 1.0
    was_slow: bool = False


@final
@dataclass(frozen=True)
class Corrective(Inner):
    """Minimize over the hull of some extreme points, call the oracle for missing ones, and repeat.

    Over the hull, weights take spectral projected gradient steps (Birgin, Martínez and Raydan 2000) with
    exact line search, preconditioned by the curvature along each atom. If many steps are needed, every second
    one is a Newton step. Such steps need neither the oracle nor the data, because the images of atoms are
    stored. If a set finds many extreme points in one pass over the gradient, all that reduce the gap enough
    are added, and each counts as a call. Atoms without weight are removed only after some solves. It works
    over polytopes, and over products of any sets.
    ``max_steps`` bounds the steps of one solve.

    >>> import dcgs, networkx as nx, numpy as np
    >>> objectives = [dcgs.LeastSquares(np.eye(2), b) for b in ([3.0, 0.0], [1.0, 0.0])]
    >>> method = dcgs.DCGS(inner=dcgs.Corrective(), answer="last")
    >>> result = dcgs.minimize(objectives, dcgs.L1Ball(2), nx.path_graph(2), method, iterations=20)
    >>> result.x.round(3) + 0.0
    array([1., 0.])
    """

    max_steps: int = 100_000
    State = CorrectiveState

    def __post_init__(self) -> None:
        COUNT(self.max_steps, "max_steps")

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        # The extreme points of a product are added as they are found, also if a part has infinitely many.
        return None if isinstance(X, Product) else needs_polytope("corrective", X)

    def supports_preconditioner(self, f: Objective, X: ConvexSet) -> bool:
        return True

    def start(self, task: Task) -> Solver:
        return _CorrectiveSolver(self, task)


@final
class _CorrectiveSolver(Solver):
    state: CorrectiveState

    def __init__(self, spec: Corrective, task: Task) -> None:
        self.spec = spec
        self.task = task
        # x⁰ need not be an extreme point; it is treated as one.
        self.state = task.restore(CorrectiveState) or CorrectiveState(
            task.x0, ActiveSet.of(Vertex(task.x0), task.X.shape), np.zeros(1, dtype=np.intp)
        )
        self.hull = _Hull(task.f, self.state)

    def __call__(self, phi: Subproblem, accuracy: Accuracy) -> Point:
        state, S, hull = self.state, self.state.S, self.hull
        noise = phi.noise(state.x, hull.image, self.task.X.diameter)
        outcome = Outcome.STEPS
        steps_left, lowest, useless_passes = self.spec.max_steps, math.inf, 0
        while steps_left > 0:
            g = phi.grad(state.x, hull.image)
            s = self.task.lmo(g, None)
            least = s.dot(g)
            gap = float(S.weights @ (S.dots(g) - least))
            e = accuracy(state.x)
            if gap <= max(e, noise):
                outcome = Outcome.REACHED if gap <= e else Outcome.ROUNDING
                break
            most = max(_FEW, int(_PART * len(S)))
            count = len(S)
            hull.add([s, *self.task.lmo.more(g, least + (1.0 - _ADDED_SHARE) * gap, most)])
            is_new, falls = len(S) > count, gap < _FALL * lowest
            # Over a larger hull the gap over X may rise at first: it is compared with those of this hull.
            lowest = math.inf if is_new else min(gap, lowest)
            useless_passes = 0 if falls or is_new else useless_passes + 1
            steps = hull.correct(phi, max(_SHARE * gap, _END * e, noise), min(steps_left, _LONGEST))
            if useless_passes == _PASSES or (steps == 0 and not is_new):
                outcome = Outcome.ROUNDING  # no further progress is possible in floating point
                break
            steps_left -= max(1, steps)
            state.x = S.dense()
        hull.drop_idle()
        self.task.outcomes[outcome] += 1
        return frozen(state.x)


@final
class _Hull:
    """The hull of the active atoms, with their images A·atom.

    ``_curvature`` has the curvature of f from the first atom to each.
    """

    def __init__(self, f: Objective, state: CorrectiveState) -> None:
        self.f = f
        self.state = state
        self._images = np.stack([f.map.image_of_atom(atom) for atom in state.S.atoms])
        self._curvature = np.array([self._curvature_of(place) for place in range(len(state.S))])

    def _curvature_of(self, place: int) -> float:
        d = self._images[place] - self._images[0]
        return self.f.loss.curvature[1] * vdot(d, d)

    @property
    def image(self) -> Image:
        """The image of the point."""
        return self.state.S.weights @ self._images[: len(self.state.S)]

    def add(self, atoms: Iterable[Atom]) -> None:
        """Add the atoms that are new, with weight 0."""
        state = self.state
        for atom in atoms:
            if atom in state.S:
                continue
            place = state.S.append(atom)
            if place == len(self._images):
                self._images = np.concatenate([self._images, np.empty_like(self._images)])
                self._curvature = np.concatenate([self._curvature, np.empty_like(self._curvature)])
            if place == len(state.idle):
                state.idle = grown(state.idle)
            self._images[place] = self.f.map.image_of_atom(atom)
            state.idle[place] = 0
            self._curvature[place] = self._curvature_of(place)

    def correct(self, phi: Subproblem, goal: float, limit: int) -> int:
        """Change weights until the gap over the hull is at most ``goal``; return the number of steps."""
        S, images = self.state.S, self._images[: len(self.state.S)]
        S.stack()
        weights, image = S.weights, self.image
        # Without the term of a proximal point, weights and images are enough: no point is needed.
        x = S.dense() if phi.eta > 0.0 else np.zeros(1)
        constant = S.dots(phi.linear)
        dots = self._dots(phi, image, x, constant)
        lowest, last = math.inf, 0
        preconditioner = self._preconditioner(phi)
        slow = _AGAIN if self.state.was_slow else _SLOW
        newton_is_cheap = len(S) ** 2 * (self.f.map.size + math.prod(S.shape)) <= _MOST_PRODUCTS
        for step in range(limit):
            above = dots - dots.min()  # the common part is removed, to lose less to rounding
            if step >= slow and step % 2 == 0 and newton_is_cheap:
                self.state.was_slow = True
                target = minimizer_over_simplex(self._hessian(phi, image), above, weights)
            else:
                target = _step(weights, self.state.spectral_step * (dots - dots[0]), preconditioner)
            move = target - weights
            slope = float(move @ above)
            gap = float(weights @ above)
            if gap < _FALL * lowest:
                lowest, last = gap, step
            if gap <= goal or slope >= 0.0 or step - last > _STEPS:
                return step
            motion, d = move @ images, S.combined(move) if phi.eta > 0.0 else 0.0 * x
            gamma = line_minimizer(phi.f.loss, image, motion, slope, phi.prox_curvature(d), 1.0)
            weights[:] = target if gamma == 1.0 else (1.0 - gamma) * weights + gamma * target
            image, x, before = image + gamma * motion, x + gamma * d, dots
            dots = self._dots(phi, image, x, constant)
            change = (dots - dots[0]) - (before - before[0])
            along, across = float(move @ change), float(change @ (preconditioner * change))
            if along > 0.0 and across > 0.0:
                self.state.spectral_step = gamma * along / across
        return limit

    def _hessian(self, phi: Subproblem, image: Image) -> NDArray[np.float64]:
        """Return the Hessian of φ as a function of the weights."""
        atoms = np.stack([atom.dense() for atom in self.state.S.atoms])
        images = self._images[: len(atoms)]
        proximal = np.stack([phi.prox_grad(atom).reshape(-1) for atom in atoms])
        products = (images * phi.f.loss.hess(image)) @ images.T
        return np.asarray(products + atoms.reshape(len(atoms), -1) @ proximal.T)

    def drop_idle(self) -> None:
        """Remove atoms without weight for more than _IDLE_SOLVES solves, except the first atom."""
        S, idle = self.state.S, self.state.idle
        count = len(S)
        idle[:count] = np.where(S.weights > 0.0, 0, idle[:count] + 1)
        for place in reversed(np.flatnonzero(idle[1:count] > _IDLE_SOLVES).tolist()):
            S.drop(place + 1)
            for array in (self._images, idle, self._curvature):
                array[place + 1] = array[len(S)]
        S.trim()
        self.state.idle = idle[: len(S)].copy()

    def _dots(self, phi: Subproblem, image: Image, x: Point, constant: Vector) -> Vector:
        """Return the inner products of ∇φ with the atoms; ``constant`` are those of its linear term."""
        S = self.state.S
        other = constant if phi.eta == 0.0 else S.dots(phi.linear + phi.prox_grad(x))
        return self._images[: len(S)] @ phi.f.loss.grad(image) + other

    def _preconditioner(self, phi: Subproblem) -> Vector:
        """Return for each atom about one over the curvature of φ toward it."""
        S = self.state.S
        curvature = self._curvature[: len(S)] + phi.eta * S.squares(phi.preconditioner)
        most = float(curvature.max())
        return 1.0 / np.maximum(curvature, _LEAST * most) if most > 0.0 else np.ones(len(curvature))


def _step(weights: Vector, step: Vector, preconditioner: Vector) -> Vector:
    """Return the projection of weights − preconditioner × step onto the simplex.

    The first weight balances the sum of the others, and does not count for the distance. For the others the
    distance is Σ (change)²/preconditioner.
    """
    moved = weights - preconditioner * step
    target = np.maximum(moved, 0.0)
    target[0] = 0.0
    total = float(target.sum())
    if total > 1.0:
        target[1:] = _onto_simplex(moved[1:], preconditioner[1:])
    else:
        target[0] = 1.0 - total
    return target


def _onto_simplex(y: Vector, h: Vector) -> Vector:
    """Return the point z ≥ 0 of sum 1 with the least Σ (z − y)²/h: max(y − θ h, 0) for one θ.

    θ is found by removing entries that are zero for the current θ until there are none (Michelot 1986). The
    positive entries of y must sum to more than 1.
    """
    left = np.flatnonzero(y > 0.0)
    z = np.ones(1)  # if one entry is left
    while len(left) > 1:
        theta = (float(y[left].sum()) - 1.0) / float(h[left].sum())
        z = y[left] - theta * h[left]
        above = z > 0.0
        if above.all():
            break
        left = left[above] if above.any() else left[[int((y[left] / h[left]).argmax())]]
        z = np.ones(1)
    nearest = np.zeros(len(y))
    nearest[left] = z / z.sum()
    return nearest
