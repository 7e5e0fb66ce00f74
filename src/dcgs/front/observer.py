"""The observer: collects what agents would answer, measures it off the clock, ends the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias, final

from dcgs.counting import CountedOracle, Tally
from dcgs.front.history import Snapshot, measure, rounding
from dcgs.front.stopping import Limits, Status, Stopwatch
from dcgs.objectives.objective import Objective
from dcgs.points import Point
from dcgs.runtime import Traffic
from dcgs.sets.base import ConvexSet

Callback: TypeAlias = Callable[[Snapshot], bool | None]
"""Called with each recorded measure; the run ends when it returns True."""


@final
@dataclass(frozen=True, eq=False)
class Meters:
    """Everything that counts during a run."""

    traffic: Traffic
    oracles: Sequence[CountedOracle]
    projections: Sequence[Tally]
    clock: Stopwatch


@final
class Observer:
    """Sees all agents' answers, which no agent does; its work is in no counter and on no clock."""

    def __init__(
        self,
        objectives: Sequence[Objective],
        X: ConvexSet,
        x0: Point,
        limits: Limits,
        meters: Meters,
        callback: Callback | None,
        decides: bool,
    ) -> None:
        self.objectives = objectives
        self.X = X
        self.limits = limits
        self.meters = meters
        self.callback = callback
        self.decides = decides
        self.status: Status | None = None
        self.iterations = 0
        self.answers: list[Point] = [x0 for _ in objectives]
        self.snapshots: list[Snapshot] = []
        self._posted: dict[int, list[Point | None]] = {}
        self.target: float | None = None
        self._record()
        self.target = self._gap_target(x0)
        if self._reached(self.snapshots[0]):
            self.status = Status.GAP

    def post(self, i: int, k: int, answer: Point) -> None:
        """Take agent i's answer after its k-th iteration; called from the agent's thread."""
        self._posted.setdefault(k, [None] * len(self.objectives))[i] = answer

    def resume(self, iterations: int, answers: list[Point], snapshots: list[Snapshot]) -> None:
        """Go on from where an earlier run stood."""
        self.iterations, self.answers, self.snapshots = iterations, answers, snapshots
        if snapshots[-1].iterations == iterations and self._reached(snapshots[-1]):
            self.status = Status.GAP
        self.status = self.status or self._spent()

    def agree(self) -> None:
        """Hear from an agent that all have agreed to stop, as all of them do in the same round."""
        self.status = Status.AGREED

    def after_round(self) -> bool:
        """Return whether the run goes on; called while all agents stand still."""
        self.meters.clock.halt()
        self._collect()
        self.status = self.status or self._spent()
        self.meters.clock.go()
        return self.status is None

    def finish(self) -> Status:
        """Measure where the run ended, if that was not yet recorded; return why it ended.

        A run that no limit ended was ended by an oracle that refused a call, or a block of calls of which
        only some were left: by calls where they are limited, else by seconds.
        """
        self.meters.clock.halt()
        refused = Status.SECONDS if self.limits.lmo_calls is None else Status.LMO_CALLS
        self.status = self.status or self._spent() or refused
        if self.snapshots[-1].iterations != self.iterations:
            self._record()
        return self.status

    def _collect(self) -> None:
        k = self.iterations + 1
        answers = self._posted.get(k)
        if answers is None or any(answer is None for answer in answers):
            return
        del self._posted[k]
        self.answers = [answer for answer in answers if answer is not None]
        self.iterations = k
        if self.limits.every and k % self.limits.every == 0:
            self._record()

    def _record(self) -> None:
        traffic, oracles = self.meters.traffic, self.meters.oracles
        snapshot = Snapshot(
            iterations=self.iterations,
            rounds=traffic.rounds,
            messages=int(traffic.messages.max()),
            bytes=int(traffic.bytes.max()),
            lmo_calls=max(oracle.calls for oracle in oracles),
            projections=max(tally.count for tally in self.meters.projections),
            seconds=self.meters.clock.seconds,
            computing=traffic.computing,
            agents=tuple(self.answers),
            **asdict(measure(self.objectives, self.X, self.answers)),
        )
        self.snapshots.append(replace(snapshot, agents=()))
        stopped = self.callback is not None and bool(self.callback(snapshot))
        if self._reached(snapshot):
            self.status = Status.GAP  # a success, whatever else ended the run
        elif stopped:
            self.status = self.status or Status.CALLBACK

    def _reached(self, snapshot: Snapshot) -> bool:
        """Return whether the gap asked for is there, if that is the observer's to say."""
        return self.decides and self.target is not None and snapshot.gap <= self.target

    def _gap_target(self, x0: Point) -> float | None:
        """Return the gap that ends the run; it must be one that rounding error lets be seen."""
        if self.limits.gap is None:
            return None
        first = self.snapshots[0].gap
        noise = rounding(self.objectives, self.X, x0)
        if first <= noise:
            return first
        if self.limits.gap * first < noise:
            raise ValueError(
                f"gap must be at least {noise / first:.1e} for these data, where rounding error alone makes "
                f"a gap of {noise:.1e} of the {first:.1e} at x0; got {self.limits.gap!r}."
            )
        return self.limits.gap * first

    def _spent(self) -> Status | None:
        """Return which limit holds now, if one does."""
        limits, clock = self.limits, self.meters.clock
        if limits.iterations is not None and self.iterations >= limits.iterations:
            return Status.ITERATIONS
        if limits.rounds is not None and self.meters.traffic.rounds >= limits.rounds:
            return Status.ROUNDS
        calls = max(oracle.calls for oracle in self.meters.oracles)
        if limits.lmo_calls is not None and calls >= limits.lmo_calls:
            return Status.LMO_CALLS
        if limits.seconds is not None and clock.seconds >= limits.seconds:
            return Status.SECONDS
        return None
