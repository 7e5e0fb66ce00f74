"""What ends a run: the limits, what is counted against them, and the status that says which was reached."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import final

from dcgs.counting import CountedOracle, Tally
from dcgs.methods.base import Method
from dcgs.methods.certificate import GapTarget
from dcgs.runtime import Traffic
from dcgs.validation import COUNT, POSITIVE, number, whole

# The defaults if the user gives no rule, or only a gap: every run ends.
_DEFAULT_GAP = 1e-3
_DEFAULT_ITERATIONS = 10_000


class Status(Enum):
    """Why a run ended; ``str(status)`` is a sentence.

    >>> import dcgs
    >>> print(dcgs.Status.ROUNDS)
    the limit on rounds was reached.
    """

    GAP = "the certified gap reached its target."
    AGREED = "the agents agreed that the gap they certified reached its target."
    PARTITIONED = "the network fell apart: no message crossed between parts of it for too long."
    ROUNDING = "the certified gap is rounding error, which is larger than the target."
    OUTSIDE = "the answers were not in the set; those of the result are points of the set near them."
    STALLED = "the certified gap stopped falling far above its target."
    CALLBACK = "the callback ended the run."
    ITERATIONS = "the limit on iterations was reached."
    ROUNDS = "the limit on rounds was reached."
    LMO_CALLS = "the limit on oracle calls was reached."
    SECONDS = "the limit on seconds was reached."
    REPLAYED = "the recorded run was replayed to its end."

    def __str__(self) -> str:
        return self.value

    @property
    def success(self) -> bool:
        """Whether the answer is certified to the gap asked for."""
        return self in (Status.GAP, Status.AGREED)


LIMITS = frozenset({Status.ITERATIONS, Status.ROUNDS, Status.LMO_CALLS, Status.SECONDS})
"""The statuses of runs that a limit ended."""


@final
@dataclass(frozen=True)
class Limits:
    """The stopping rules of a run; the first that is met ends it. None means no such rule."""

    iterations: int | None = None
    rounds: int | None = None
    seconds: float | None = None
    lmo_calls: int | None = None
    gap: float | None = None
    every: int | None = 1
    gap_abs: float | None = None

    @property
    def target(self) -> GapTarget | None:
        """The gap that ends the run; None without one."""
        return None if self.gap is None and self.gap_abs is None else GapTarget(self.gap, self.gap_abs)

    def check(self) -> None:
        """Raise unless each rule is a number in its range, or None."""
        for name in ("iterations", "rounds", "lmo_calls"):
            COUNT.or_none(getattr(self, name), name)
        for name in ("seconds", "gap_abs"):
            POSITIVE.or_none(getattr(self, name), name)
        fraction = number("be between 0 and 1, a fraction of f(x0) − f(x)", lambda x: 0.0 < x < 1.0)
        fraction.or_none(self.gap, "gap")
        whole(0).or_none(self.every, "every")

    def check_method(self, method: Method, callback: object) -> None:
        """Raise if a rule cannot end a run of this method, or if the callback would never be called."""
        if self.target is not None and not self.every and not method.stops_itself:
            raise ValueError(
                f"a gap can only end a run that is measured on the way; got gap with every={self.every}. "
                "Use every=1, or leave gap out and give another rule."
            )
        if callback is not None and self.every is None:
            raise ValueError(
                "a callback is called with measurements; got one with every=None. Use every=1, or 0."
            )
        if method.projects and self.lmo_calls is not None:
            raise ValueError(
                f"lmo_calls must be None for {type(method).__name__}, which projects and asks no oracle; "
                f"got {self.lmo_calls!r}. Limit its iterations, rounds or seconds."
            )

    def with_defaults(self, stops_itself: bool) -> Limits:
        """Return the limits, with defaults added if the user's would not end every run.

        The default gap is added if something checks it: the measurements, or the agents themselves. A limit
        on oracle calls alone does not end a run whose inner solver projects.
        """
        if any(rule is not None for rule in (self.iterations, self.rounds, self.seconds)):
            return self
        if self.lmo_calls is not None:
            return replace(self, iterations=max(_DEFAULT_ITERATIONS, self.lmo_calls))
        gap = _DEFAULT_GAP if self.target is None and (self.every or stops_itself) else self.gap
        return replace(self, iterations=_DEFAULT_ITERATIONS, gap=gap)

    def reached(self, iterations: int, rounds: int, calls: int, seconds: float) -> Status | None:
        """Return the limit that is reached by these numbers, if one is."""
        if self.iterations is not None and iterations >= self.iterations:
            return Status.ITERATIONS
        if self.rounds is not None and rounds >= self.rounds:
            return Status.ROUNDS
        if self.lmo_calls is not None and calls >= self.lmo_calls:
            return Status.LMO_CALLS
        if self.seconds is not None and seconds >= self.seconds:
            return Status.SECONDS
        return None

    def horizon(self, rounds_per_iteration: int) -> int | None:
        """Return the number of iterations that the user allows, None without such a limit."""
        by_rounds = None if self.rounds is None else max(1, self.rounds // rounds_per_iteration)
        return min((n for n in (self.iterations, by_rounds) if n is not None), default=None)


def returned_early(method: Method, iterations: int) -> RuntimeError:
    """Return the error of a method whose programs returned before a limit was reached."""
    name = type(method).__name__
    if iterations == 0:
        return RuntimeError(f"{name} must call agent.observe(k, x) after each iteration; it never did.")
    return RuntimeError(
        f"the program of {name} must go on until a limit of the run is reached; it returned after "
        f"{iterations} iterations. Iterate over agent.iterations_left."
    )


@final
class Stopwatch:
    """A clock that is paused while the run is being measured."""

    def __init__(self) -> None:
        self._before = 0.0
        self._since: float | None = None

    def start(self) -> None:
        """Start, or go on after a pause."""
        self._since = time.perf_counter()

    def pause(self) -> None:
        """Stop until the next start."""
        self.set(self.seconds)

    def set(self, seconds: float) -> None:
        """Set the time, and stop until the next start."""
        self._before, self._since = seconds, None

    @property
    def seconds(self) -> float:
        """The seconds so far, without pauses."""
        return self._before + (time.perf_counter() - self._since if self._since is not None else 0.0)


@final
@dataclass(frozen=True, eq=False)
class Counters:
    """The counters of a run, for the agents of this process; bytes are counted in ``traffic``.

    ``setup`` is the time before the first round: checks, eigenvalues, the agents. ``clock`` is the time from
    there on.
    """

    traffic: Traffic
    oracles: Mapping[int, CountedOracle]
    projections: Mapping[int, Tally]
    setup: Stopwatch
    clock: Stopwatch

    @property
    def spent_seconds(self) -> float:
        """The seconds that the limit on seconds is on: those of the set-up, and those since."""
        return self.setup.seconds + self.clock.seconds

    def is_out_of_time(self, seconds: float | None) -> bool:
        """Return whether so many seconds were spent in this process; None is no limit."""
        return seconds is not None and self.spent_seconds >= seconds

    @property
    def calls(self) -> int:
        """The largest number of oracle calls of an agent in this process."""
        return max(oracle.calls for oracle in self.oracles.values())

    @property
    def work(self) -> tuple[int, int]:
        """The largest numbers of oracle calls and of projections of an agent in this process."""
        return self.calls, max(tally.count for tally in self.projections.values())
