"""The observer: it collects the agents' models, measures them off the clock, and ends the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from dcgs.counting import CountedOracle, Tally
from dcgs.front.checks import Problem
from dcgs.front.history import Snapshot, as_rows, from_rows, measure, rounding
from dcgs.front.stopping import Status, Stopwatch
from dcgs.points import Point
from dcgs.runtime import Traffic


@final
@dataclass(frozen=True, eq=False)
class Counters:
    """The counters of a run, for the agents of this process; bytes are counted in ``traffic``."""

    traffic: Traffic
    oracles: Mapping[int, CountedOracle]
    projections: Mapping[int, Tally]
    clock: Stopwatch

    @property
    def calls(self) -> int:
        """The largest number of oracle calls of an agent in this process."""
        return max(oracle.calls for oracle in self.oracles.values())


@final
class Observer:
    """Measures the models of all agents and ends the run; its work is in no counter and on no clock.

    Every process has an observer for its own agents. Decisions that depend on all agents are collective.
    Nothing is measured if ``limits.every`` is None.
    """

    def __init__(self, problem: Problem, counters: Counters) -> None:
        self.problem = problem
        self.limits = problem.limits
        self.group = problem.f.group
        self.counters = counters
        self.status: Status | None = None
        self.iterations = 0
        self.answers: dict[int, Point] = dict.fromkeys(problem.f.local, problem.x0)
        self.snapshots: list[Snapshot] = []
        self._posted: dict[int, dict[int, Point]] = {}
        self.computing = 0.0
        self.target: float | None = None
        if self.limits.every is None:
            return
        self._record()
        self.target = self._gap_target()
        if self._reached(self.snapshots[0]):
            self.status = Status.GAP

    @property
    def collective(self) -> bool:
        """Whether processes must communicate after every round to know if the run ends."""
        limits = self.limits
        limited = limits.lmo_calls is not None or limits.seconds is not None
        return self.group.size == 1 or bool(limits.every) or limited

    def post(self, i: int, k: int, answer: Point) -> None:
        """Store agent i's model after its k-th iteration; called from the agent's thread."""
        self._posted.setdefault(k, {})[i] = answer

    def restore(self) -> None:
        """Continue an earlier run after its iterations and counters were set; the root has its history."""
        if self.snapshots:
            rows = self.group.broadcast(as_rows(self.snapshots) if self.group.is_root else None)
            self.snapshots = from_rows(rows)
            last = self.snapshots[-1]
            if last.iterations == self.iterations and self._reached(last):
                self.status = Status.GAP
        calls, seconds = self._largest(float(self.counters.calls), self.counters.clock.seconds)
        self.status = self.status or self._limit_reached(int(calls), seconds)

    def agree(self) -> None:
        """Note that the agents have agreed to stop, which all of them do in the same round."""
        self.status = Status.AGREED

    def after_round(self) -> bool:
        """Return whether the run goes on; called between rounds, while no agent computes."""
        if not self.collective:
            # Agents end by themselves after their last iteration; rounds are the same for all.
            self._collect(self.iterations + self._has_next())
            ended = self.limits.rounds is not None and self.counters.traffic.rounds >= self.limits.rounds
            return self.status is None and not ended
        # The clock runs on: the first process waits here for the others.
        waiting, calls, seconds = self._largest(
            -float(self._has_next()), float(self.counters.calls), self.counters.clock.seconds
        )
        self.counters.clock.pause()
        self._collect(self.iterations + int(waiting < 0.0))
        self.status = self.status or self._limit_reached(int(calls), seconds)
        self.counters.clock.start()
        return self.status is None

    def finish(self) -> None:
        """Measure the last iteration, unless it was recorded, and set the status.

        If no limit was reached, an oracle refused a call, or a block of calls of which some were left. The
        limit is then that on calls, or on seconds if calls are not limited.
        """
        self.counters.clock.pause()
        refused = Status.SECONDS if self.limits.lmo_calls is None else Status.LMO_CALLS
        calls, seconds, most, least = self._largest(
            float(self.counters.calls),
            self.counters.clock.seconds,
            float(self.iterations),
            -float(self.iterations),
        )
        if most != -least:
            raise RuntimeError(
                "agents must end an iteration in the same round unless the run is measured; some had ended "
                f"{most:.0f} iterations when the run ended, others {-least:.0f}. Use every=1."
            )
        self.status = self.status or self._limit_reached(int(calls), seconds) or refused
        if self.limits.every is not None and self.snapshots[-1].iterations != self.iterations:
            self._record()

    def all_answers(self) -> dict[int, Point]:
        """Return the models of all agents, or of those of this process if nothing is measured."""
        if self.limits.every is None:
            return self.answers
        return dict(enumerate(self.group.allgather(self.answers.values())))

    def _largest(self, *numbers: float) -> list[float]:
        return list(self.group.allreduce_max(np.array(numbers)).tolist())

    def _has_next(self) -> bool:
        """Return whether all agents of this process have posted the model of the next iteration."""
        return len(self._posted.get(self.iterations + 1, ())) == len(self.answers)

    def _collect(self, iterations: int) -> None:
        """Take the models of the next iteration, if there is one, and measure them if it is time."""
        if iterations == self.iterations:
            return
        posted = self._posted.pop(iterations)
        self.answers = {i: posted[i] for i in self.answers}
        self.iterations = iterations
        if self.limits.every and iterations % self.limits.every == 0:
            self._record()

    def _record(self) -> None:
        answers = list(self.all_answers().values())
        traffic = self.counters.traffic
        if traffic.steps:  # each is as long as that of the slowest agent of all processes
            self.computing += float(self.group.allreduce_max(np.array(traffic.steps)).sum())
        traffic.steps.clear()
        messages, sent, calls, projections, seconds = self._largest(
            float(traffic.messages.max()),
            float(traffic.bytes.max()),
            float(self.counters.calls),
            float(max(tally.count for tally in self.counters.projections.values())),
            self.counters.clock.seconds,
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
            **measure(self.problem.f, self.problem.X, answers),
        )
        self.snapshots.append(replace(snapshot, agents=()))
        callback = self.problem.settings.callback
        stopped = self.group.any(callback is not None and self.group.is_root and bool(callback(snapshot)))
        if self._reached(snapshot):
            self.status = Status.GAP  # a success, whatever else ended the run
        elif stopped:
            self.status = self.status or Status.CALLBACK

    def _reached(self, snapshot: Snapshot) -> bool:
        """Return whether the target gap is reached, if the agents do not decide that themselves."""
        return (
            not self.problem.method.stops_itself and self.target is not None and snapshot.gap <= self.target
        )

    def _gap_target(self) -> float | None:
        """Return the gap that ends the run; raise if rounding error is larger."""
        if self.limits.gap is None:
            return None
        first = self.snapshots[0].gap
        noise = rounding(self.problem.f, self.problem.X, self.problem.x0)
        if first <= noise:
            return first
        if self.limits.gap * first < noise:
            raise ValueError(
                f"gap must be at least {noise / first:.1e} for these data, where rounding error alone makes "
                f"a gap of {noise:.1e} of the {first:.1e} at x0; got {self.limits.gap!r}."
            )
        return self.limits.gap * first

    def _limit_reached(self, calls: int, seconds: float) -> Status | None:
        """Return the limit that is reached, if one is; calls and seconds are the largest of all processes."""
        limits = self.limits
        if limits.iterations is not None and self.iterations >= limits.iterations:
            return Status.ITERATIONS
        if limits.rounds is not None and self.counters.traffic.rounds >= limits.rounds:
            return Status.ROUNDS
        if limits.lmo_calls is not None and calls >= limits.lmo_calls:
            return Status.LMO_CALLS
        if limits.seconds is not None and seconds >= limits.seconds:
            return Status.SECONDS
        return None
