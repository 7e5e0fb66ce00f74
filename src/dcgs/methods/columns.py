"""Weights of coordinates: agents whose columns differ much agree on what each coordinate weighs.

In text some columns have ten thousand times the curvature of others. One η for all is then too small for
some coordinates or too large for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

import numpy as np

from dcgs.memory import Memory, Past, Remembers
from dcgs.methods.letters import Letter, Parcel
from dcgs.objectives.objective import Objective
from dcgs.points import Point

# Columns are uneven if the largest curvature is so many times the median of those that are not zero. For
# one sample of a million Gaussian features that is about 50, and less for several samples.
_UNEVEN = 100.0
# The least that a coordinate weighs, as a share of the most: nobody's data may have the column.
_LEAST = 1e-12


@final
class Columns(Remembers):
    """One agent's part: it tells of its columns if they are uneven, and passes on what it hears.

    What is told is the largest curvature of each coordinate so far, so that all have the same once news
    had the time to reach everyone.
    """

    def __init__(self, most: Point | None, fresh: bool) -> None:
        self._most = most
        self._fresh = fresh

    @classmethod
    def of(cls, f: Objective, tells: bool) -> Columns:
        """Return what an agent with this objective knows at first; nothing if it is not to tell of it."""
        own = f.loss.curvature[1] * f.map.column_squares if tells else np.zeros(0)
        seen = own[own > 0.0]
        uneven = seen.size > 0 and float(seen.max()) > _UNEVEN * float(np.median(seen))
        return cls(own if uneven else None, uneven)

    @classmethod
    def again(cls, past: Past) -> Columns:
        """Return what a memory is of."""
        return cls(past.point("most") if "most" in past else None, bool(past.whole("fresh")))

    def memory(self) -> Memory:
        return {"most": self._most, "fresh": int(self._fresh)}

    def parcel(self) -> Parcel | None:
        """Return what the neighbors have not yet heard."""
        fresh, self._fresh = self._fresh, False
        return Parcel(self._most) if fresh and self._most is not None else None

    def receive(self, letters: Iterable[Letter]) -> None:
        """Take in what neighbors know."""
        for letter in letters:
            if letter.parcel is None:
                continue
            theirs = letter.parcel.point
            most = theirs if self._most is None else np.maximum(self._most, theirs)
            if self._most is None or (most != self._most).any():
                self._most, self._fresh = most, True

    def weights(self) -> Point | None:
        """Return what coordinates weigh, once all have heard; None where nobody's columns are uneven."""
        if self._most is None:
            return None
        weights = self._most / self._most.mean()
        return np.asarray(np.maximum(weights, _LEAST * float(weights.max())))
