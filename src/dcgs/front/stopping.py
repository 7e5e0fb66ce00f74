"""When a run ends: limits, the clock they are measured by, and the status that says which held."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, fields
from enum import Enum
from numbers import Real
from typing import final

from dcgs.points import is_whole

# Taken when no rule at all is given, and when only a gap is: no run is without an end.
_DEFAULT_GAP = 1e-3
_DEFAULT_ITERATIONS = 10_000


class Status(Enum):
    """Why a run ended; ``str(status)`` is a sentence."""

    GAP = "the certified gap reached its target."
    AGREED = "the agents agreed that the gap they certified reached its target."
    CALLBACK = "the callback ended the run."
    ITERATIONS = "the limit on iterations was reached."
    ROUNDS = "the limit on rounds was reached."
    LMO_CALLS = "the limit on oracle calls was reached."
    SECONDS = "the limit on seconds was reached."

    def __str__(self) -> str:
        return self.value

    @property
    def success(self) -> bool:
        """Whether the answer is certified to the gap asked for."""
        return self in (Status.GAP, Status.AGREED)


@final
@dataclass(frozen=True)
class Limits:
    """The stopping rules of one run; whichever holds first ends it. None means no such rule."""

    iterations: int | None = None
    rounds: int | None = None
    seconds: float | None = None
    lmo_calls: int | None = None
    gap: float | None = None
    every: int | None = 1

    def __post_init__(self) -> None:
        for name in ("iterations", "rounds", "lmo_calls"):
            value = getattr(self, name)
            if value is not None and not is_whole(value, 1):
                raise ValueError(f"{name} must be a whole number of at least 1, or None; got {value!r}.")
        if self.seconds is not None and not (_is_number(self.seconds) and 0.0 < self.seconds < math.inf):
            raise ValueError(f"seconds must be positive and finite, or None; got {self.seconds!r}.")
        if self.gap is not None and not (_is_number(self.gap) and 0.0 < self.gap < 1.0):
            raise ValueError(
                f"gap must be between 0 and 1, a fraction of the gap at x0, or None; got {self.gap!r}."
            )
        if self.every is not None and not is_whole(self.every, 0):
            raise ValueError(f"every must be a whole number of at least 0, or None; got {self.every!r}.")

    def completed(self, stops_itself: bool) -> Limits:
        """Return the limits with the defaults where too little was asked to end every run.

        A gap ends a run that is measured on the way, or one whose agents stop by themselves.
        """
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        budget = (self.iterations, self.rounds, self.seconds, self.lmo_calls)
        if all(rule is None for rule in budget):
            given["iterations"] = _DEFAULT_ITERATIONS
            if self.gap is None and (self.every or stops_itself):
                given["gap"] = _DEFAULT_GAP
        return Limits(**given)

    def horizon(self, rounds_per_iteration: int) -> int | None:
        """Return how many iterations the user allows, if that was said."""
        by_rounds = None if self.rounds is None else max(1, self.rounds // rounds_per_iteration)
        return min((n for n in (self.iterations, by_rounds) if n is not None), default=None)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


@final
class Stopwatch:
    """A clock that stands still while the run is being measured."""

    def __init__(self) -> None:
        self._before = 0.0
        self._since: float | None = None

    def go(self) -> None:
        """Let it run on."""
        self._since = time.perf_counter()

    def halt(self) -> None:
        """Let it stand."""
        self._before = self.seconds
        self._since = None

    def set(self, seconds: float) -> None:
        """Let it stand at so many seconds."""
        self._before, self._since = seconds, None

    @property
    def seconds(self) -> float:
        """The seconds it has run so far."""
        return self._before + (time.perf_counter() - self._since if self._since is not None else 0.0)
