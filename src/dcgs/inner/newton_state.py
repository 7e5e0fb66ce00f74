"""The state of Newton solves, over all coordinates or over those that matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dcgs.objectives.losses import Image
from dcgs.points import Point


@final
@dataclass(eq=False)
class NewtonState:
    """The last answer, and the dual variable u of the last solve with Aᵀu.

    ``drift`` estimates the rounding error of Aᵀu, which grows as it is updated from step to step.
    """

    x: Point
    u: Image
    adjoint: Point
    drift: float

    def with_zeros(self, count: int) -> NewtonState:
        """Return the state with so many coordinates more, in which A has no entries and x is zero."""
        none = np.zeros(count)
        x, adjoint = np.concatenate([self.x, none]), np.concatenate([self.adjoint, none])
        return NewtonState(x, self.u, adjoint, self.drift)


@final
@dataclass(eq=False)
class CompressedState:
    """The coordinates over which a compressed solver works, and the state of its solves over them."""

    coordinates: NDArray[np.int64]
    newton: NewtonState
