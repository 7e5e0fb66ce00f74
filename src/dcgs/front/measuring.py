"""Measure the models of all agents on the data of all agents, at a cost that grows with the data alone.

With m agents, the losses of all models on all data are m² products. They are avoided where that is exact: if
all models are equal, one is measured; if all losses are quadratic and points are small, every model is
measured by the Hessian of f, from the loss and the gradient at the average. Other models are measured
together, in blocks of bounded size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.front.agent_models import Model, distance
from dcgs.front.distributed import DistributedObjective
from dcgs.front.history import evaluate
from dcgs.low_rank import LowRank
from dcgs.methods.certificate import CertifiedGap, gap_noise
from dcgs.objectives.maps import MatrixMap
from dcgs.objectives.objective import Baseline, Objective
from dcgs.points import Point, norm, vdot
from dcgs.runtime.encoding import Array
from dcgs.sets.base import ConvexSet

# The Hessian of f is used if points have at most this number of entries for each agent, and at most _MOST in
# all. It takes the time of about ten measurements of all models by their images.
_ENTRIES, _MOST = 10, 2000


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
        disagreement = max(distance(x, x_bar) for x in answers)
        rise, longest = 0.0, x_bar
        if isinstance(x_bar, LowRank) or disagreement == 0.0:
            # Matrices in factors have one right factor, and each row is equal at all agents.
            found = evaluate(self.f, self.X, x_bar, slack=None)
            local = mean = worst = found.value
            gap = max(0.0, found.gap)
        else:
            points = np.stack([np.asarray(x).reshape(-1) for x in answers])
            measure = self._by_images if self._curvatures is None else self._by_curvature
            local, mean, worst, gap, rise = measure(points, x_bar)
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
        size = longest.norm() if isinstance(longest, LowRank) else norm(longest)
        noise = gap_noise(noise, size, self.X.diameter)
        if excess is None:
            return CertifiedGap(gap, decrease - error, noise, at_start)
        # The excess is a difference of two decreases, each with its rounding error.
        return CertifiedGap(gap + excess, decrease - excess - 3.0 * error, noise + 2.0 * error, at_start)

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
            worst = float(rises.max())
            return local, mean, mean + worst, self._gap(g, x_bar), worst

        return tuple(self.f.reduce(evaluate, total))

    def _by_images(self, points: Point, x_bar: Point) -> tuple[float, ...]:
        """Measure models by their images, on the data of one agent after another."""

        def evaluate(i: int, f: Objective) -> tuple[Array, Array]:
            image = f.map.image(x_bar)
            blocks = [
                np.stack([f.loss.totals(images), -f.loss.total_decreases(image, images)])
                for images in f.images(points)
            ]
            each, rises = np.concatenate(blocks, axis=1)
            numbers = np.concatenate([[f.loss.value(image), each[i]], each, rises])
            return numbers, f.map.adjoint(f.loss.grad(image))

        def total(terms: Iterator[tuple[Array, ...]]) -> tuple[float, ...]:
            (mean, local, *rest), g = self._sum(terms)
            each, rises = rest[: len(points)], rest[len(points) :]
            return local, mean, max(each), self._gap(g, x_bar), max(rises)

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
