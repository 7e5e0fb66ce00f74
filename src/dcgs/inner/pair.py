"""The pair (x, A x). Steps update both, so that A x is rarely computed from x."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dcgs.atoms import Atom
from dcgs.objectives.losses import Image
from dcgs.objectives.maps import LinearMap
from dcgs.points import Point

# Every step adds a rounding error to the image. After this number of steps it is recomputed from x.
_REFRESH = 200


@final
@dataclass(eq=False)
class Pair:
    """A point and its image under a linear map; ``steps`` were taken since the image was computed from x."""

    x: Point
    image: Image
    steps: int = 0

    @classmethod
    def at(cls, x: Point, A: LinearMap) -> Pair:
        """Return the pair of a copy of x."""
        own = np.array(x, dtype=np.float64, order="C")
        return cls(own, A.image(own))

    def reset(self, x: Point, A: LinearMap) -> None:
        """Replace the point by x, and compute its image."""
        self.x, self.image, self.steps = x, A.image(x), 0

    @property
    def stale(self) -> bool:
        """True if the image must be recomputed from x."""
        return self.steps >= _REFRESH

    def toward(self, atom: Atom, motion: Image, gamma: float) -> None:
        """Move to x + γ (atom − x), given motion = A (atom − x)."""
        self.x *= 1.0 - gamma
        atom.add_to(self.x, gamma)
        self._update_image(motion, gamma)

    def swap(self, away: Atom, toward: Atom, motion: Image, gamma: float) -> None:
        """Move to x + γ (toward − away), given motion = A (toward − away)."""
        toward.add_to(self.x, gamma)
        away.add_to(self.x, -gamma)
        self._update_image(motion, gamma)

    def _update_image(self, motion: Image, gamma: float) -> None:
        self.image += gamma * motion
        self.steps += 1
