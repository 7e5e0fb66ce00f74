"""Smooth convex losses ℓ of an image z ∈ ℝⁿ; each is a sum over the entries of z.

A loss of your own derives from :class:`Loss`. An :class:`~dcgs.objectives.objective.Objective` joins it with
a linear map.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dcgs.points import EPS
from dcgs.validation import POSITIVE, TEXT, instance, nonfinite, shown, vector

Image: TypeAlias = NDArray[np.float64]

# The rounding error of a sum, in units of EPS times the sum of sizes: each term is the result of a few
# operations, and NumPy adds pairwise.
_SUMMED = 4.0
# By how much second derivatives may leave their bounds, relative to the larger bound: a formula of the user's
# own rounds, and bounds are often written with a few digits.
_SLACK = 1e-6


class Loss(ABC):
    """ℓ(z) = Σᵢ ℓᵢ(zᵢ) with convex ℓᵢ, twice differentiable almost everywhere.

    >>> import dcgs, numpy as np
    >>> loss = dcgs.SquaredLoss([1.0, 2.0])
    >>> isinstance(loss, dcgs.Loss), loss.value(np.zeros(2)), loss.grad(np.zeros(2)), loss.curvature
    (True, 5.0, array([-2., -4.]), (2.0, 2.0))
    """

    @property
    @abstractmethod
    def curvature(self) -> tuple[float, float]:
        """Bounds (lower, upper) of ℓᵢ″ everywhere; equal bounds mean a quadratic."""

    @property
    def least(self) -> float:
        """A number that no ℓᵢ(zᵢ) is ever below; −∞ if none is known. It proves a gap where f* is near it."""
        return -math.inf

    @abstractmethod
    def value(self, z: Image) -> float:
        """Return ℓ(z)."""

    def values(self, z: Image) -> Image:
        """Return ℓᵢ(zᵢ) for every entry, for weights of entries and for standard errors."""
        raise NotImplementedError(
            f"weights and standard errors need the value of each entry; {type(self).__name__} has only their "
            "sum. Give it a method values(z)."
        )

    def totals(self, images: NDArray[np.float64]) -> Image:
        """Return ℓ(z) for each row z."""
        return np.array([self.value(z) for z in images])

    def decreases(self, before: Image, after: Image) -> tuple[Image, Image]:
        """Return ℓᵢ(beforeᵢ) − ℓᵢ(afterᵢ) for every entry, and the sizes of what was subtracted.

        The rounding error of an entry is at most EPS times its size. A loss whose values are far larger than
        its decreases gives a formula that does not subtract values.
        """
        first, last = self.values(before), self.values(after)
        return first - last, np.abs(first) + np.abs(last)

    def decrease(self, before: Image, after: Image) -> tuple[float, float]:
        """Return ℓ(before) − ℓ(after), and a bound of its rounding error.

        Without ``values`` it is the difference of two values, and their rounding error.
        """
        try:
            terms, sizes = self.decreases(before, after)
        except NotImplementedError:
            first, last = self.value(before), self.value(after)
            terms, sizes = np.array([first - last]), np.array([abs(first) + abs(last)])
        return float(terms.sum()), _SUMMED * EPS * float(sizes.sum())

    def total_decreases(self, before: Image, images: NDArray[np.float64]) -> Image:
        """Return ℓ(before) − ℓ(z) for each row z."""
        return np.array([self.decrease(before, z)[0] for z in images])

    @abstractmethod
    def grad(self, z: Image) -> Image:
        """Return ℓᵢ′(zᵢ) for every entry."""

    @abstractmethod
    def hess(self, z: Image) -> Image:
        """Return ℓᵢ″(zᵢ) for every entry."""

    @abstractmethod
    def data(self) -> dict[str, Image]:
        """Return the arrays of the loss, an entry for each of z, by the names that the user knows."""

    @property
    def size(self) -> int:
        """The n of z ∈ ℝⁿ."""
        return next(iter(self.data().values())).size


class RowwiseLoss(Loss):
    """A loss whose formulas take also rows of images, so that many images are evaluated at once."""

    def totals(self, images: NDArray[np.float64]) -> Image:
        return np.asarray(self.values(images).sum(axis=1))

    def total_decreases(self, before: Image, images: NDArray[np.float64]) -> Image:
        return np.asarray(self.decreases(before, images)[0].sum(axis=1))


@final
@dataclass(frozen=True, eq=False)
class SquaredLoss(RowwiseLoss):
    """Σ (zᵢ − bᵢ)², without a factor ½, as in the paper.

    >>> import dcgs, numpy as np
    >>> dcgs.SquaredLoss([3.0, 4.0]).value(np.zeros(2))
    25.0
    """

    target: Image
    name: str = "b"
    curvature = (2.0, 2.0)
    least = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", vector(self.target, TEXT(self.name, "name")))

    def value(self, z: Image) -> float:
        r = z - self.target
        return float(r @ r)

    def values(self, z: Image) -> Image:
        return np.square(z - self.target)

    def totals(self, images: NDArray[np.float64]) -> Image:
        r = images - self.target
        return np.asarray(np.einsum("ij,ij->i", r, r))

    def decreases(self, before: Image, after: Image) -> tuple[Image, Image]:
        # r² − s² = (r − s)(r + s), where r − s does not depend on the target
        r, s, step = before - self.target, after - self.target, before - after
        return step * (r + s), np.abs(step) * (np.abs(r) + np.abs(s))

    def grad(self, z: Image) -> Image:
        return 2.0 * (z - self.target)

    def hess(self, z: Image) -> Image:
        return np.full_like(z, 2.0)

    def data(self) -> dict[str, Image]:
        return {self.name: self.target}


@final
@dataclass(frozen=True, eq=False)
class LogisticLoss(RowwiseLoss):
    """Σ log(1 + exp(−labelᵢ zᵢ)) with labels ±1.

    >>> import dcgs, numpy as np
    >>> dcgs.LogisticLoss([1.0, -1.0]).grad(np.zeros(2))
    array([-0.5,  0.5])
    """

    labels: Image
    curvature = (0.0, 0.25)
    least = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", vector(self.labels, "labels"))
        odd = np.unique(self.labels[np.abs(self.labels) != 1.0])
        if odd.size:
            raise ValueError(
                f"labels must be −1 and +1, or 0 and 1 in dcgs.Logistic; got also {odd[:5].tolist()}. "
                "Encode the classes as −1 and +1."
            )

    def value(self, z: Image) -> float:
        return float(self.values(z).sum())

    def values(self, z: Image) -> Image:
        return np.logaddexp(0.0, -self.labels * z)

    def grad(self, z: Image) -> Image:
        return np.asarray(-self.labels * expit(-self.labels * z))

    def hess(self, z: Image) -> Image:
        p: Image = expit(z)
        return p * (1.0 - p)

    def data(self) -> dict[str, Image]:
        return {"labels": self.labels}


@final
@dataclass(frozen=True, eq=False)
class HuberLoss(RowwiseLoss):
    """Σ h(zᵢ − bᵢ), h(r) = r² up to |r| = delta and 2·delta·|r| − delta² beyond.

    >>> import dcgs, numpy as np
    >>> dcgs.HuberLoss([0.0, 0.0], delta=1.0).value(np.array([0.5, 3.0]))
    5.25
    """

    target: Image
    delta: float = 1.0
    curvature = (0.0, 2.0)
    least = 0.0

    def __post_init__(self) -> None:
        POSITIVE(self.delta, "delta")
        object.__setattr__(self, "target", vector(self.target, "target"))

    def value(self, z: Image) -> float:
        return float(self.values(z).sum())

    def values(self, z: Image) -> Image:
        r = np.abs(z - self.target)
        inside = np.minimum(r, self.delta)
        return inside * (2.0 * r - inside)

    def grad(self, z: Image) -> Image:
        return 2.0 * np.clip(z - self.target, -self.delta, self.delta)

    def hess(self, z: Image) -> Image:
        return np.where(np.abs(z - self.target) <= self.delta, 2.0, 0.0)

    def data(self) -> dict[str, Image]:
        return {"target": self.target}


@final
@dataclass(frozen=True, eq=False)
class WeightedLoss(Loss):
    """Σ weightᵢ ℓᵢ(zᵢ): an entry of weight 2 counts as two equal entries.

    >>> import numpy as np
    >>> loss = WeightedLoss(SquaredLoss([1.0, 2.0]), [2.0, 0.5])
    >>> loss.value(np.zeros(2)), loss.grad(np.zeros(2)), loss.curvature
    (4.0, array([-4., -2.]), (1.0, 4.0))
    """

    loss: Loss
    weights: Image

    def __post_init__(self) -> None:
        instance(self.loss, Loss, "loss", "be a loss such as dcgs.SquaredLoss(b)")
        weights = vector(self.weights, "weights")
        object.__setattr__(self, "weights", weights)
        if len(weights) != self.loss.size:
            raise ValueError(
                f"weights must have one entry per entry of the loss; got {len(weights)} and {self.loss.size}."
            )
        if weights.size and float(weights.min()) < 0.0:
            raise ValueError(f"weights must be at least 0; the smallest is {float(weights.min()):.2e}.")

    @property
    def curvature(self) -> tuple[float, float]:
        lower, upper = self.loss.curvature
        most = float(self.weights.max(initial=0.0))
        least = float(self.weights.min(initial=most))
        return (least if lower >= 0.0 else most) * lower, most * upper

    @property
    def least(self) -> float:
        least = self.loss.least
        return least * float(self.weights.min(initial=0.0) if least >= 0.0 else self.weights.max(initial=1.0))

    def value(self, z: Image) -> float:
        return float(self.weights @ self.loss.values(z))

    def values(self, z: Image) -> Image:
        return self.weights * self.loss.values(z)

    def decreases(self, before: Image, after: Image) -> tuple[Image, Image]:
        terms, sizes = self.loss.decreases(before, after)
        return self.weights * terms, self.weights * sizes

    def grad(self, z: Image) -> Image:
        return self.weights * self.loss.grad(z)

    def hess(self, z: Image) -> Image:
        return self.weights * self.loss.hess(z)

    def data(self) -> dict[str, Image]:
        return self.loss.data() | {"weights": self.weights}


@final
@dataclass(frozen=True, eq=False)
class CheckedLoss(Loss):
    """A loss of another package, of one agent: an answer that is not what a :class:`Loss` promises raises.

    >>> CheckedLoss(SquaredLoss([1.0, 2.0]), 3).value(np.zeros(2))
    5.0
    """

    loss: Loss
    agent: int

    @property
    def curvature(self) -> tuple[float, float]:
        return self.loss.curvature

    @property
    def size(self) -> int:
        return self.loss.size

    @property
    def least(self) -> float:
        return self.loss.least

    def value(self, z: Image) -> float:
        answer = self.loss.value(z)
        try:
            value = float(answer)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise self._error("value", "be a finite number", f"it is {shown(answer)}", z)
        return value

    def values(self, z: Image) -> Image:
        return self._entries("values", self.loss.values(z), z)

    def totals(self, images: NDArray[np.float64]) -> Image:
        return self._entries("totals", self.loss.totals(images), images[:, 0])

    def grad(self, z: Image) -> Image:
        return self._entries("grad", self.loss.grad(z), z)

    def hess(self, z: Image) -> Image:
        hess, (lower, upper) = self._entries("hess", self.loss.hess(z), z), self.curvature
        slack = _SLACK * max(abs(lower), abs(upper))
        outside = np.flatnonzero((hess < lower - slack) | (hess > upper + slack))
        if len(outside):
            raise self._error(
                "hess",
                f"be within the curvature of the loss, {lower!r} to {upper!r}",
                f"hess[{outside[0]}] is {float(hess[outside[0]]):.3e}",
                z,
            )
        return hess

    def data(self) -> dict[str, Image]:
        return self.loss.data()

    @property
    def _name(self) -> str:
        """The class of the user's loss."""
        loss = self.loss.loss if isinstance(self.loss, WeightedLoss) else self.loss
        return type(loss).__name__

    def _entries(self, name: str, answer: Any, z: Image) -> Image:
        """Return an array with a finite number for each entry of z."""
        array = np.asarray(answer)
        if array.shape != z.shape or array.dtype.kind not in "fiub":
            raise self._error(name, f"be an array of {z.size} real numbers", f"it is {shown(answer)}", z)
        entries = array.astype(np.float64, copy=False)
        fault = nonfinite(entries, name)
        if fault is not None:
            raise self._error(name, "be finite", fault, z)
        return entries

    def _error(self, name: str, must: str, fault: str, z: Image) -> ValueError:
        largest = float(np.abs(z).max(initial=0.0))
        return ValueError(
            f"the {name} of a loss must {must}; of {self._name}, the loss of agent {self.agent}, "
            f"{fault} where |z| is up to {largest:.2e}. Mend the loss, or choose a smaller set."
        )
