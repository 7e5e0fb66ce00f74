"""A loss of the user's own, whose every answer is checked: what it returns must be what a loss promises."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.objectives.losses import Image, Loss, WeightedLoss
from dcgs.objectives.objective import Objective
from dcgs.validation import nonfinite, shown

# By how much second derivatives may leave their bounds, relative to the larger bound: a formula of the user's
# own rounds, and bounds are often written with a few digits.
_SLACK = 1e-6


@final
@dataclass(frozen=True, eq=False)
class CheckedLoss(Loss):
    """The loss of one agent; an answer that is not what a :class:`Loss` promises raises an error.

    >>> from dcgs.objectives.losses import SquaredLoss
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
        found = self.loss.value(z)
        try:
            value = float(found)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise self._error("value", "be a finite number", f"it is {shown(found)}", z)
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
        own = self.loss.loss if isinstance(self.loss, WeightedLoss) else self.loss
        return type(own).__name__

    def _entries(self, name: str, found: Any, z: Image) -> Image:
        """Return an array with a finite number for each entry of z."""
        array = np.asarray(found)
        if array.shape != z.shape or array.dtype.kind not in "fiub":
            raise self._error(name, f"be an array of {z.size} real numbers", f"it is {shown(found)}", z)
        entries = array.astype(np.float64, copy=False)
        fault = nonfinite(entries, name)
        if fault is not None:
            raise self._error(name, "be finite", fault, z)
        return entries

    def _error(self, name: str, must: str, found: str, z: Image) -> ValueError:
        largest = float(np.abs(z).max(initial=0.0))
        return ValueError(
            f"the {name} of a loss must {must}; of {self._name}, the loss of agent {self.agent}, "
            f"{found} where |z| is up to {largest:.2e}. Mend the loss, or choose a smaller set."
        )


def with_checked_loss(f: Objective, agent: int) -> Objective:
    """Return the objective; a loss that is not of this package is checked whenever it answers."""
    loss = f.loss.loss if isinstance(f.loss, WeightedLoss) else f.loss
    if type(loss).__module__.startswith("dcgs."):
        return f
    return Objective(CheckedLoss(f.loss, agent), f.map)
