"""Two losses: log cosh, and asymmetric squares, which take an option."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

import dcgs

Image = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class LogCosh(dcgs.Loss):
    """Σ log cosh(zᵢ − bᵢ)."""

    b: Image
    curvature = (0.0, 1.0)

    def value(self, z: Image) -> float:
        r = np.abs(z - self.b)
        return float((r + np.log1p(np.exp(-2.0 * r)) - np.log(2.0)).sum())

    def grad(self, z: Image) -> Image:
        return np.tanh(z - self.b)

    def hess(self, z: Image) -> Image:
        return np.asarray(1.0 - np.tanh(z - self.b) ** 2)

    def data(self) -> dict[str, Image]:
        return {"b": self.b}


@final
@dataclass(frozen=True, eq=False)
class Expectile(dcgs.Loss):
    """Asymmetric squares Σ w r², r = zᵢ − bᵢ, with w = tau for r < 0 and 1 − tau else."""

    b: Image
    tau: float
    curvature = (0.0, 2.0)

    def _weights(self, z: Image) -> Image:
        return np.where(z < self.b, self.tau, 1.0 - self.tau)

    def value(self, z: Image) -> float:
        return float((self._weights(z) * (z - self.b) ** 2).sum())

    def grad(self, z: Image) -> Image:
        return 2.0 * self._weights(z) * (z - self.b)

    def hess(self, z: Image) -> Image:
        return 2.0 * self._weights(z)

    def data(self) -> dict[str, Image]:
        return {"b": self.b}
