"""Nesterov's momentum, as FISTA uses it (Beck and Teboulle 2009)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final


@final
@dataclass
class Momentum:
    """The sequence t₁ = 1, tₖ₊₁ = ½ + √(¼ + tₖ²) behind the extrapolation y = x + weight · (x − x_prev).

    ``most`` bounds the weight: (1 − √q)/(1 + √q) for strong convexity over smoothness q, 1 for q = 0.

    >>> momentum = Momentum()
    >>> momentum.weight(), round(momentum.weight(), 3), momentum.weight(restart=True)
    (0.0, 0.282, 0.0)
    """

    t: float = 1.0
    most: float = 1.0

    def weight(self, restart: bool = False) -> float:
        """Advance the sequence and return the weight (tₖ − 1)/tₖ₊₁; ``restart`` begins at t = 1 again.

        Restart if the momentum is an ascent direction (O'Donoghue and Candès 2015).
        """
        t_prev = 1.0 if restart else self.t
        self.t = 0.5 + math.sqrt(0.25 + t_prev**2)
        return min((t_prev - 1.0) / self.t, self.most)
