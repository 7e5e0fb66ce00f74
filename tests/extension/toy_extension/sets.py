"""A set: all entries between 0 and a bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

import dcgs


@final
@dataclass(frozen=True)
class NonnegativeBox(dcgs.ProjectableSet):
    """{x : 0 ≤ x ≤ height}.

    >>> NonnegativeBox((4,), 3.0).diameter
    6.0
    """

    shape: tuple[int, ...]
    height: float
    polytope = True

    @property
    def diameter(self) -> float:
        return self.height * float(np.sqrt(np.prod(self.shape)))

    def lmo(self, direction: dcgs.Point, near: dcgs.Atom | None = None) -> dcgs.Vertex:
        corner = np.where(direction < 0.0, self.height, 0.0)
        corner.flags.writeable = False
        return dcgs.Vertex(corner)

    def violation(self, x: dcgs.Point) -> float:
        return max(0.0, -float(x.min()), float(x.max()) - self.height)

    def start(self) -> dcgs.Point:
        return np.zeros(self.shape)

    def project(self, y: dcgs.Point) -> dcgs.Point:
        return np.clip(y, 0.0, self.height)
