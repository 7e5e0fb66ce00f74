"""A loss with a weight for each entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dcgs.objectives.losses import Image, Loss
from dcgs.validation import instance, vector


@final
@dataclass(frozen=True, eq=False)
class WeightedLoss(Loss):
    """Σ weightᵢ ℓᵢ(zᵢ): an entry of weight 2 counts as two equal entries.

    >>> import numpy as np
    >>> from dcgs.objectives import SquaredLoss
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

    def value(self, z: Image) -> float:
        return float(self.weights @ self.loss.values(z))

    def values(self, z: Image) -> Image:
        return self.weights * self.loss.values(z)

    def grad(self, z: Image) -> Image:
        return self.weights * self.loss.grad(z)

    def hess(self, z: Image) -> Image:
        return self.weights * self.loss.hess(z)

    def data(self) -> dict[str, Image]:
        return self.loss.data() | {"weights": self.weights}
