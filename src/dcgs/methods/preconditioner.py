"""The diagonal preconditioner of FastDCGS: agents agree on it if the columns of the data differ much.

In text some columns have ten thousand times the curvature of others. One η for all coordinates is then too
small for some and too large for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import numpy as np

from dcgs.methods.messages import AttachedVector, Message
from dcgs.objectives.objective import Objective
from dcgs.points import Point

# Columns are uneven if the largest curvature is more than this multiple of the median positive one. For one
# sample of a million Gaussian features the ratio is about 50, and smaller for several samples.
_UNEVEN = 100.0
# The smallest entry of the preconditioner, as a share of the largest: no data may have that column.
_LEAST = 1e-12


@final
@dataclass(eq=False)
class CurvatureMaximum:
    """The largest curvature of each coordinate over the agents, computed by flooding.

    An agent sends its own curvatures if they are uneven, and forwards every maximum that is new. ``largest``
    is None until an agent has sent curvatures.
    """

    largest: Point | None = None
    is_new: bool = False

    @classmethod
    def of(cls, f: Objective) -> CurvatureMaximum:
        """Return the initial state of an agent with this objective."""
        own = f.loss.curvature[1] * f.map.column_squares
        positive = own[own > 0.0]
        uneven = positive.size > 0 and float(positive.max()) > _UNEVEN * float(np.median(positive))
        return cls(own, True) if uneven else cls()

    def attached(self) -> AttachedVector | None:
        """Return the maximum if it changed since it was last sent, to be attached to a message."""
        is_new, self.is_new = self.is_new, False
        return AttachedVector(self.largest) if is_new and self.largest is not None else None

    def receive(self, messages: Iterable[Message]) -> None:
        """Update the maximum by those of the neighbors."""
        for message in messages:
            if message.attached is None:
                continue
            theirs = message.attached.vector
            largest = theirs if self.largest is None else np.maximum(self.largest, theirs)
            if self.largest is None or (largest != self.largest).any():
                self.largest, self.is_new = largest, True

    def preconditioner(self) -> Point | None:
        """Return the diagonal, once all agents have the maximum; None if no agent's columns are uneven."""
        if self.largest is None:
            return None
        h = self.largest / self.largest.mean()
        return np.asarray(np.maximum(h, _LEAST * float(h.max())))
