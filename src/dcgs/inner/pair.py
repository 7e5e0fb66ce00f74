"""The pair (x, A x), kept together so that A x is hardly ever computed anew."""

from __future__ import annotations

from typing import final

import numpy as np

from dcgs.atoms import Atom
from dcgs.memory import Memory, Past, Remembers
from dcgs.objectives.losses import Image
from dcgs.objectives.maps import LinearMap
from dcgs.points import Point

# Each step adds a rounding error to the carried image; one product in so many steps removes it.
_REFRESH = 200


@final
class Pair(Remembers):
    """A point and its image under a map; both move by atoms, in place."""

    def __init__(self, map_: LinearMap, x: Point, past: Past | None = None) -> None:
        self._map = map_
        if past is None:
            self.reset(np.array(x, dtype=np.float64, order="C"))
        else:
            self._hold(past.point("x"), past.point("image"), past.whole("steps"))

    def memory(self) -> Memory:
        return {"x": self.x, "image": self.image, "steps": self._steps}

    def reset(self, x: Point) -> None:
        """Take over x as the point, and compute its image."""
        self._hold(x, self._map.image(x), 0)

    @property
    def stale(self) -> bool:
        """Whether the image was carried over so many steps that it is due to be computed anew."""
        return self._steps >= _REFRESH

    def toward(self, atom: Atom, motion: Image, gamma: float) -> None:
        """Move to x + γ (atom − x), given motion = A (atom − x)."""
        self.x *= 1.0 - gamma
        atom.add_to(self.x, gamma)
        self._carry(motion, gamma)

    def swap(self, away: Atom, toward: Atom, motion: Image, gamma: float) -> None:
        """Move to x + γ (toward − away), given motion = A (toward − away)."""
        toward.add_to(self.x, gamma)
        away.add_to(self.x, -gamma)
        self._carry(motion, gamma)

    def _hold(self, x: Point, image: Image, steps: int) -> None:
        self.x = x
        self.image = image
        self._steps = steps

    def _carry(self, motion: Image, gamma: float) -> None:
        self.image += gamma * motion
        self._steps += 1
