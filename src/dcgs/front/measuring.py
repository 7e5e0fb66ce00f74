"""Measure the models of all agents on the data of all agents, at a cost that grows with the data alone.

With m agents, the losses of all models on all data are m² products. They are avoided where that is exact: if
all models are equal, one is measured; if all losses are quadratic and points are small, every model is
measured by the Hessian of f, from the loss and the gradient at the average. Other models are measured
together, in blocks of bounded size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from dcgs.front.agent_models import Model, average, distance
from dcgs.front.distributed import DistributedObjective
from dcgs.front.history import evaluate
from dcgs.low_rank import LowRank
from dcgs.objectives.maps import MatrixMap
from dcgs.objectives.objective import Objective
from dcgs.points import Point, vdot
from dcgs.runtime.encoding import Array
from dcgs.sets.base import ConvexSet

# The Hessian of f is used if points have at most this number of entries for each agent, and at most _MOST in
# all. It takes the time of about ten measurements of all models by their images.
_ENTRIES, _MOST = 10, 2000


@final
@dataclass(frozen=True, eq=False)
class Measurement:
    """Measures models: the losses, the disagreement and the Wolfe gap. All processes take part."""

    f: DistributedObjective
    X: ConvexSet

    def __call__(self, answers: Sequence[Model]) -> dict[str, float]:
        """Return the measurements of all agents' models, by the names of a history's columns."""
        x_bar = average(answers)
        disagreement = max(distance(x, x_bar) for x in answers)
        if isinstance(x_bar, LowRank) or disagreement == 0.0:
            # Matrices in factors have one right factor, and each row is equal at all agents.
            found = evaluate(self.f, self.X, x_bar, slack=None)
            losses = dict.fromkeys(("local_loss", "mean_loss", "worst_loss"), found.value)
            return losses | {"disagreement": disagreement, "gap": max(0.0, found.gap)}
        points = np.stack([np.asarray(x).reshape(-1) for x in answers])
        measure = self._by_images if self._curvatures is None else self._by_curvature
        local, mean, worst, gap = measure(points, x_bar)
        losses = {"local_loss": local, "mean_loss": mean, "worst_loss": worst}
        return losses | {"disagreement": disagreement, "gap": gap}

    @cached_property
    def _curvatures(self) -> NDArray[np.float64] | None:
        """The curvature of each agent's loss, if the Hessian of f is to be used; else None."""

        def curvature(_: int, f: Objective) -> list[float]:
            lower, upper = f.loss.curvature
            return [upper if lower == upper and isinstance(f.map, MatrixMap) else math.nan]

        each = self.f.numbers(curvature)[:, 0]
        entries = math.prod(self.X.shape)
        is_small = entries <= min(_MOST, _ENTRIES * len(each))
        return each if is_small and not np.isnan(each).any() else None

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

        def total(terms: Iterator[tuple[Array, ...]]) -> tuple[float, ...]:
            (mean, local), g = self._sum(terms)
            assert H is not None
            d = points - x_bar.reshape(-1)
            rises = d @ g.reshape(-1) + 0.5 * np.einsum("ij,ij->i", d @ H, d)
            return local, mean, mean + float(rises.max()), self._gap(g, x_bar)

        return tuple(self.f.reduce(evaluate, total))

    def _by_images(self, points: Point, x_bar: Point) -> tuple[float, ...]:
        """Measure models by their images, on the data of one agent after another."""

        def evaluate(i: int, f: Objective) -> tuple[Array, Array]:
            image = f.map.image(x_bar)
            each = f.losses(points)
            losses = np.concatenate([[f.loss.value(image), each[i]], each])
            return losses, f.map.adjoint(f.loss.grad(image))

        def total(terms: Iterator[tuple[Array, ...]]) -> tuple[float, ...]:
            (mean, local, *each), g = self._sum(terms)
            return local, mean, max(each), self._gap(g, x_bar)

        return tuple(self.f.reduce(evaluate, total))

    def _sum(self, terms: Iterator[tuple[Array, ...]]) -> tuple[list[float], Point]:
        """Return the sums of numbers and of gradients over all agents, in their order."""
        numbers, g = np.zeros(1), np.zeros(self.X.shape)
        for numbers_i, g_i in terms:
            numbers = numbers + numbers_i
            g += g_i
        return list(numbers.tolist()), g

    def _gap(self, g: Point, x: Point) -> float:
        return max(0.0, vdot(g, x) - self.X.lmo(g).dot(g))
