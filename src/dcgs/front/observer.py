"""The observer: collects what agents would answer, measures it off the clock, ends the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.counting import CountedOracle, Tally
from dcgs.front.history import Snapshot, as_rows, from_rows, measure, rounding
from dcgs.front.parts import Parts
from dcgs.front.stopping import Limits, Status, Stopwatch
from dcgs.points import Point
from dcgs.runtime import Traffic
from dcgs.sets.base import ConvexSet

Callback: TypeAlias = Callable[[Snapshot], bool | None]
"""Called with each recorded measure; the run ends when it returns True."""


@final
@dataclass(frozen=True, eq=False)
class Meters:
    """Everything that counts during a run, for the agents of this process."""

    traffic: Traffic
    oracles: Mapping[int, CountedOracle]
    projections: Mapping[int, Tally]
    clock: Stopwatch

    @property
    def calls(self) -> int:
        """The oracle calls of the busiest agent here."""
        return max(oracle.calls for oracle in self.oracles.values())


@final
@dataclass(frozen=True)
class Watch:
    """Who may end a run from outside.

    A callback is called in the process that leads. ``stops`` says whether the agents shall decide on the
    gap themselves.
    """

    callback: Callback | None = None
    stops: bool = False


@final
class Observer:
    """Sees all agents' answers, which no agent does; its work is in no counter and on no clock.

    There is one in every process, for the agents run there; where a decision needs all of them they agree on
    it. Nothing is measured where ``limits.every`` is None.
    """

    def __init__(
        self, parts: Parts, X: ConvexSet, x0: Point, limits: Limits, meters: Meters, watch: Watch
    ) -> None:
        self.parts = parts
        self.group = parts.group
        self.X = X
        self.limits = limits
        self.meters = meters
        self.watch = watch
        self.status: Status | None = None
        self.iterations = 0
        self.answers: dict[int, Point] = dict.fromkeys(parts.held, x0)
        self.snapshots: list[Snapshot] = []
        self._posted: dict[int, dict[int, Point]] = {}
        self.computing = 0.0
        self.target: float | None = None
        if limits.every is None:
            return
        self._record()
        self.target = self._gap_target(x0)
        if self._reached(self.snapshots[0]):
            self.status = Status.GAP

    @property
    def agrees(self) -> bool:
        """Whether processes must talk after every round, since one of them may know what others do not."""
        limits = self.limits
        limited = limits.lmo_calls is not None or limits.seconds is not None
        return self.group.size == 1 or bool(limits.every) or limited

    def post(self, i: int, k: int, answer: Point) -> None:
        """Take agent i's answer after its k-th iteration; called from the agent's thread."""
        self._posted.setdefault(k, {})[i] = answer

    def go_on(self) -> None:
        """Go on from where an earlier run stood; its history is with the process that leads."""
        if self.snapshots:
            rows = self.group.broadcast(as_rows(self.snapshots) if self.group.is_root else None)
            self.snapshots = from_rows(rows)
            last = self.snapshots[-1]
            if last.iterations == self.iterations and self._reached(last):
                self.status = Status.GAP
        calls, seconds = self._largest(float(self.meters.calls), self.meters.clock.seconds)
        self.status = self.status or self._spent(int(calls), seconds)

    def agree(self) -> None:
        """Hear from an agent that all have agreed to stop, as all of them do in the same round."""
        self.status = Status.AGREED

    def after_round(self) -> bool:
        """Return whether the run goes on; called while all agents stand still."""
        if not self.agrees:
            # Agents end by themselves after their last iteration; rounds are the same for all.
            self._collect(self.iterations + self._has_next())
            ended = self.limits.rounds is not None and self.meters.traffic.rounds >= self.limits.rounds
            return self.status is None and not ended
        # On the clock, for who comes first waits here for the others.
        waiting, calls, seconds = self._largest(
            -float(self._has_next()), float(self.meters.calls), self.meters.clock.seconds
        )
        self.meters.clock.halt()
        self._collect(self.iterations + int(waiting < 0.0))
        self.status = self.status or self._spent(int(calls), seconds)
        self.meters.clock.go()
        return self.status is None

    def finish(self) -> Status:
        """Measure where the run ended, if that was not yet recorded; return why it ended.

        A run that no limit ended was ended by an oracle that refused a call, or a block of calls of which
        only some were left: by calls where they are limited, else by seconds.
        """
        self.meters.clock.halt()
        refused = Status.SECONDS if self.limits.lmo_calls is None else Status.LMO_CALLS
        calls, seconds, most, least = self._largest(
            float(self.meters.calls),
            self.meters.clock.seconds,
            float(self.iterations),
            -float(self.iterations),
        )
        if most != -least:
            raise RuntimeError(
                "agents must end an iteration in the same round unless the run is measured; some had ended "
                f"{most:.0f} iterations when the run ended, others {-least:.0f}. Use every=1."
            )
        self.status = self.status or self._spent(int(calls), seconds) or refused
        if self.limits.every is not None and self.snapshots[-1].iterations != self.iterations:
            self._record()
        return self.status

    def everyones(self) -> dict[int, Point]:
        """Return the answers of all agents, or of those run here where nothing is measured."""
        if self.limits.every is None:
            return self.answers
        return dict(enumerate(self.group.allgather(self.answers.values())))

    def _largest(self, *numbers: float) -> list[float]:
        return list(self.group.allreduce_max(np.array(numbers)).tolist())

    def _has_next(self) -> bool:
        """Return whether all agents here have posted their answer after one more iteration."""
        return len(self._posted.get(self.iterations + 1, ())) == len(self.parts.held)

    def _collect(self, iterations: int) -> None:
        """Take the answers of the next iteration, if that is there."""
        if iterations == self.iterations:
            return
        posted = self._posted.pop(iterations)
        self.answers = {i: posted[i] for i in self.parts.held}
        self.iterations = iterations
        if self.limits.every and iterations % self.limits.every == 0:
            self._record()

    def _record(self) -> None:
        answers = list(self.everyones().values())
        traffic, steps = self.meters.traffic, np.array(self.meters.traffic.steps)
        self.computing += float(self._slowest(steps).sum())
        traffic.steps.clear()
        messages, sent, calls, projections, seconds = self._largest(
            float(traffic.messages.max()),
            float(traffic.bytes.max()),
            float(self.meters.calls),
            float(max(tally.count for tally in self.meters.projections.values())),
            self.meters.clock.seconds,
        )
        snapshot = Snapshot(
            iterations=self.iterations,
            rounds=traffic.rounds,
            messages=int(messages),
            bytes=int(sent),
            lmo_calls=int(calls),
            projections=int(projections),
            seconds=seconds,
            computing=self.computing,
            agents=tuple(answers),
            **asdict(measure(self.parts, self.X, answers)),
        )
        self.snapshots.append(replace(snapshot, agents=()))
        stopped = self._callback_ends(snapshot)
        if self._reached(snapshot):
            self.status = Status.GAP  # a success, whatever else ended the run
        elif stopped:
            self.status = self.status or Status.CALLBACK

    def _slowest(self, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the seconds of the slowest agent anywhere of each step, of which all took as many."""
        return self.group.allreduce_max(steps) if steps.size else steps

    def _callback_ends(self, snapshot: Snapshot) -> bool:
        """Return what the callback of the process that leads says."""
        callback = self.watch.callback
        return self.group.any(callback is not None and self.group.is_root and bool(callback(snapshot)))

    def _reached(self, snapshot: Snapshot) -> bool:
        """Return whether the gap asked for is there, if that is the observer's to say."""
        return not self.watch.stops and self.target is not None and snapshot.gap <= self.target

    def _gap_target(self, x0: Point) -> float | None:
        """Return the gap that ends the run; it must be one that rounding error lets be seen."""
        if self.limits.gap is None:
            return None
        first = self.snapshots[0].gap
        noise = rounding(self.parts, self.X, x0)
        if first <= noise:
            return first
        if self.limits.gap * first < noise:
            raise ValueError(
                f"gap must be at least {noise / first:.1e} for these data, where rounding error alone makes "
                f"a gap of {noise:.1e} of the {first:.1e} at x0; got {self.limits.gap!r}."
            )
        return self.limits.gap * first

    def _spent(self, calls: int, seconds: float) -> Status | None:
        """Return which limit holds now, if one does; calls and seconds are everyone's."""
        limits = self.limits
        if limits.iterations is not None and self.iterations >= limits.iterations:
            return Status.ITERATIONS
        if limits.rounds is not None and self.meters.traffic.rounds >= limits.rounds:
            return Status.ROUNDS
        if limits.lmo_calls is not None and calls >= limits.lmo_calls:
            return Status.LMO_CALLS
        if limits.seconds is not None and seconds >= limits.seconds:
            return Status.SECONDS
        return None
