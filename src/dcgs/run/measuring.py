"""Check and measure the models of all agents, on the data of all agents.

What is measured, certified and returned are points of X, up to rounding error. A point that many steps have
made leaves X by the sum of their rounding errors. It is moved back before it is measured, so that all that a
result says is about the points that it has.

The cost of a measurement grows with the data alone. With m agents, the losses of all models on all data are
m² products. They are avoided where that is exact: if all models are equal, one is measured; if all losses are
quadratic and points are small, every model is measured by the Hessian of f, from the loss and the gradient at
the average. Other models are measured together, in blocks of bounded size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.methods.certificate import CertifiedGap, gap_noise
from dcgs.objectives.maps import MatrixMap
from dcgs.objectives.objective import Baseline, Objective
from dcgs.points import Point, vdot
from dcgs.run.distributed import DistributedObjective, as_distributed
from dcgs.run.models import Model, form_of
from dcgs.runtime import ProcessGroup
from dcgs.runtime.encoding import Array
from dcgs.sets.base import ConvexSet

# The Hessian of f is used if points have at most this number of entries for each agent, and at most _MOST in
# all. It takes the time of about ten measurements of all models by their images.
_ENTRIES, _MOST = 10, 2000


class Member(NamedTuple):
    """A model after a check, by how much it violates X, and whether the check has moved it."""

    model: Model
    violation: float
    moved: bool = False


Check: TypeAlias = Callable[[Model, ConvexSet], Member]
Answers: TypeAlias = dict[int, Model]


class Members(NamedTuple):
    """The models of the agents of this process, those of all agents that are known, and their average.

    ``violation`` is that of the worst of them, 0 if X holds all; ``moved`` is True if one was moved into X.
    """

    answers: Answers
    known: Answers
    x_bar: Model
    violation: float
    moved: bool

    @property
    def models(self) -> list[Model]:
        """The models of all known agents, each with the rows of all agents."""
        return form_of(self.x_bar).whole(list(self.known.values()), self.x_bar)


@final
@dataclass(frozen=True, eq=False)
class Membership:
    """Moves models into X and averages them; all processes take part, if the models of all are known."""

    X: ConvexSet
    group: ProcessGroup
    knows_all: bool

    def __call__(self, answers: Answers, check: Check | None = None) -> Members:
        """Return the models after this check, by default the one for all measured models, and their average.

        A model that all agents have rows of is checked as a whole.
        """
        check = check or (restored if self.X.cheap_violation else unchecked)
        form = form_of(next(iter(answers.values())))
        checked: dict[int, Member] = {}
        last: tuple[Model, Member] | None = None
        for i, x in answers.items():
            if form.is_common:
                last = x, Member(x, 0.0)
            elif last is None or not np.array_equal(x, last[0]):  # agents often have equal models
                last = x, check(x, self.X)
            checked[i] = last[1]
        inside = {i: member.model for i, member in checked.items()}
        known = form.allgather(self.group, inside, self.X.shape) if self.knows_all else inside
        x_bar = check(form.average(list(known.values())), self.X)
        members = [x_bar, *checked.values()]
        violation, moved = (
            max(member.violation for member in members),
            any(member.moved for member in members),
        )
        return Members(inside, known, x_bar.model, violation, moved)


def unchecked(x: Model, X: ConvexSet) -> Member:
    """Return the model as it is: where a check is expensive, only the last models are checked."""
    return Member(x, 0.0)


def restored(x: Model, X: ConvexSet) -> Member:
    """Move a model into X if it is outside by rounding error."""
    violation = form_of(x).outside_by(x, X)
    accepted = 0.0 < violation < math.inf and form_of(x).is_accepted(x, X, violation)
    return moved_into(x, X) if accepted else Member(x, violation)


def moved_into(x: Model, X: ConvexSet) -> Member:
    """Move a model into X, however far outside it is."""
    form = form_of(x)
    violation = form.outside_by(x, X)
    if not 0.0 < violation < math.inf:
        return Member(x, violation)
    near = form.nearby(x, X, violation)
    return Member(near, form.outside_by(near, X), moved=True)


def certify(
    objectives: Sequence[Objective] | DistributedObjective, X: ConvexSet, x: Model
) -> tuple[float, float]:
    """Return f(x) and an upper bound of the Wolfe gap of f = Σ fᵢ at x, whatever the oracle finds."""
    evaluation = form_of(x).evaluate(as_distributed(objectives), X, x, slack=0.0)
    return evaluation.value, max(0.0, evaluation.gap) + evaluation.error


@final
@dataclass(frozen=True, eq=False)
class Measured:
    """The measurements of all agents' models, by the names of a history's columns, and their certificate.

    ``certified`` is None if the run needs none. It holds for every agent's model: f* is at least f(x̄) − gap,
    so the worst model is within the gap plus its excess over f(x̄) of f*.
    """

    columns: dict[str, Any]
    certified: CertifiedGap | None


@final
@dataclass(frozen=True, eq=False)
class Measurement:
    """Measures models: the losses, the disagreement and the Wolfe gap. All processes take part.

    ``starts`` are the starting points of the agents of this process; None if no certificate is needed.
    """

    f: DistributedObjective
    X: ConvexSet
    starts: Mapping[int, Model] | None

    def __call__(self, answers: Sequence[Model], x_bar: Model, at_start: bool = False) -> Measured:
        """Return the measurements of all agents' models and of their average.

        ``at_start`` is True if they are the starting point.
        """
        form = form_of(x_bar)
        disagreement = max(form.distance(x, x_bar) for x in answers)
        rise, longest = 0.0, x_bar
        if form.is_common or disagreement == 0.0:
            common = form.evaluate(self.f, self.X, x_bar, slack=None)
            local = mean = worst = common.value
            gap = max(0.0, common.gap)
        else:
            points = np.stack([np.asarray(x).reshape(-1) for x in answers])
            measure = self._by_curvature if self._uses_hessian else self._by_images
            local, mean, worst, gap, rise = measure(points, np.asarray(x_bar))
            longest = points[np.argmax(np.linalg.norm(points, axis=1))].reshape(x_bar.shape)
        losses = {"local_loss": local, "mean_loss": mean, "worst_loss": worst}
        columns = losses | {"disagreement": disagreement, "gap": gap}
        excess = None if disagreement == 0.0 else max(0.0, rise)
        return Measured(columns, self._certified(x_bar, longest, gap, excess, at_start))

    @cached_property
    def _baselines(self) -> dict[int, Baseline]:
        starts = self.starts or {}
        return {i: Baseline.at(f, starts[i]) for i, f in self.f.local.items()}

    def _certified(
        self, x_bar: Model, longest: Model, gap: float, excess: float | None, at_start: bool
    ) -> CertifiedGap | None:
        """Return the certificate of the worst model, which is by ``excess`` worse than x̄; None if all are x̄.

        Rounding errors are those at the longest of all models: they are near each other where they are good
        enough to end a run.
        """
        if self.starts is None:
            return None

        def numbers(i: int, f: Objective) -> tuple[float, ...]:
            image, base = f.map.image(x_bar), self._baselines[i]
            decrease, error = f.loss.decrease(base.image, image)
            error += base.error + f.value_error(longest, image)
            return decrease, error, f.grad_error(longest, image)

        decrease, error, noise = (sum(column.tolist()) for column in self.f.numbers(numbers).T)
        noise = gap_noise(noise, form_of(longest).norm(longest), self.X.diameter)
        if excess is None:
            return CertifiedGap(gap, decrease - error, noise, at_start)
        # The excess is a difference of two decreases, each with its rounding error.
        return CertifiedGap(gap + excess, decrease - excess - 3.0 * error, noise + 2.0 * error, at_start)

    @cached_property
    def _uses_hessian(self) -> bool:
        """Whether all losses are quadratic, and points so small that the Hessian of f is formed."""

        def is_quadratic(_: int, f: Objective) -> list[bool]:
            lower, upper = f.loss.curvature
            return [lower == upper and isinstance(f.map, MatrixMap)]

        quadratic = self.f.numbers(is_quadratic)
        is_small = math.prod(self.X.shape) <= min(_MOST, _ENTRIES * len(quadratic))
        return is_small and bool(quadratic.all())

    @cached_property
    def _hessian(self) -> NDArray[np.float64] | None:
        """The Hessian of f, at the root."""
        total: NDArray[np.float64] | None = None
        for (part,) in self.f.gather(lambda _, f: (f.map.gram(np.full(f.map.size, f.loss.curvature[1])),)):
            total = part.copy() if total is None else total + part
        return total

    def _by_curvature(self, points: Point, x_bar: Point) -> tuple[float, ...]:
        """Measure models by f(x̄ + d) = f(x̄) + ⟨∇f(x̄), d⟩ + ½ dᵀHd, which has no cancellation."""
        H = self._hessian

        def evaluate(i: int, f: Objective) -> tuple[Array, Array]:
            image = f.map.image(x_bar)
            losses = f.loss.value(image), f.value(points[i].reshape(f.shape))
            return np.array(losses), f.map.adjoint(f.loss.grad(image))

        def measures(sums: list[float], g: Point) -> tuple[float, ...]:
            mean, local = sums
            assert H is not None
            d = points - x_bar.reshape(-1)
            rises = d @ g.reshape(-1) + 0.5 * np.einsum("ij,ij->i", d @ H, d)
            worst = float(rises.max())
            return local, mean, mean + worst, self._gap(g, x_bar), worst

        return tuple(self.f.reduce_sums(evaluate, measures))

    def _by_images(self, points: Point, x_bar: Point) -> tuple[float, ...]:
        """Measure models by their images, on the data of one agent after another."""

        def evaluate(i: int, f: Objective) -> tuple[Array, Array]:
            image = f.map.image(x_bar)
            blocks = [
                np.stack([f.loss.totals(images), -f.loss.total_decreases(image, images)])
                for images in f.images(points)
            ]
            losses, rises = np.concatenate(blocks, axis=1)
            numbers = np.concatenate([[f.loss.value(image), losses[i]], losses, rises])
            return numbers, f.map.adjoint(f.loss.grad(image))

        def measures(sums: list[float], g: Point) -> tuple[float, ...]:
            mean, local, *of_models = sums
            losses, rises = of_models[: len(points)], of_models[len(points) :]
            return local, mean, max(losses), self._gap(g, x_bar), max(rises)

        return tuple(self.f.reduce_sums(evaluate, measures))

    def _gap(self, g: Point, x: Point) -> float:
        return max(0.0, vdot(g, x) - self.X.lmo(g).dot(g))
