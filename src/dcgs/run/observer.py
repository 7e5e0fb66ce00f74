"""The observer: it collects the agents' models, measures them off the clock, and ends the run."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple, final

import numpy as np

from dcgs.methods.certificate import CertifiedGap
from dcgs.run.checks import RunProblem
from dcgs.run.measuring import Check, Measured, Measurement, Membership, moved_into, restored
from dcgs.run.models import Model
from dcgs.run.result import Snapshot, as_rows, from_rows
from dcgs.run.stopping import Counters, Status, returned_early
from dcgs.runtime import Runtime


class _Posted(NamedTuple):
    """An agent's model after an iteration, and its oracle calls and projections up to then."""

    answer: Model
    calls: int
    projections: int


@final
class Observer:
    """Measures the models of all agents and ends the run; its work is in no counter and on no clock.

    Every process has an observer for its own agents. Decisions that depend on all agents are collective.
    Nothing is measured if ``limits.every`` is None.
    """

    def __init__(self, problem: RunProblem, counters: Counters) -> None:
        self.problem = problem
        self.limits = problem.limits
        self.group = problem.f.group
        self.counters = counters
        self.status: Status | None = None
        self.parts: list[list[int]] = []
        self.agreed: set[int] = set()
        self.iterations = 0
        self.answers: dict[int, Model] = {
            i: problem.form.start_of(problem.x0, f) for i, f in problem.f.local.items()
        }
        self._membership = Membership(problem.X, self.group, knows_all=self.limits.every is not None)
        self.members = self._membership(self.answers)
        self.outside_by = 0.0
        self.snapshots: list[Snapshot] = []
        self._posted: dict[int, dict[int, _Posted]] = {}
        self._budget_spent = False
        self.target = self.limits.target
        certifies = self.target is not None and not problem.method.stops_itself
        self._measure = Measurement(problem.f, problem.X, dict(self.answers) if certifies else None)
        self.computing = 0.0
        self.peak_bytes = 0
        self.certified: CertifiedGap | None = None
        self.certificates: list[tuple[int, float, float, int]] = []
        self.sent: dict[int, int] = {}
        if self.limits.every is not None:
            self._record(counters.work)

    @property
    def collective(self) -> bool:
        """Whether processes must communicate after every round to know if the run ends."""
        limits = self.limits
        limited = limits.lmo_calls is not None or limits.seconds is not None
        return self.group.size == 1 or bool(limits.every) or limited

    def post(self, i: int, k: int, answer: Model, dual: object = None) -> None:
        """Store agent i's model after its k-th iteration; called from the agent's thread.

        Its counters are stored as well: the agent works on up to its next ``yield``.
        """
        if self.problem.settings.on_model is not None:
            self.problem.settings.on_model(i, k, answer)
        work = self.counters.oracles[i].calls, self.counters.projections[i].count
        if self.problem.reliable:
            self._posted.setdefault(k, {})[i] = _Posted(answer, *work)
        else:
            self.answers[i] = answer

    def restore(self) -> None:
        """Continue an earlier run after its iterations and counters were set; the root has its history."""
        self._check()
        if self.snapshots:
            rows = self.group.broadcast(as_rows(self.snapshots) if self.group.is_root else None)
            self.snapshots = from_rows(rows)
            if self.snapshots[-1].iterations == self.iterations:
                self._certify(self._measured())
        calls, seconds = self._largest(float(self.counters.calls), self.counters.spent_seconds)
        self.status = self.status or self._limit_reached(int(calls), seconds)

    def end_setup(self) -> None:
        """Stop the clock of the set-up; end the run if the set-up took all the seconds that it has."""
        self.counters.setup.pause()
        if self.limits.seconds is not None:
            (seconds,) = self._largest(self.counters.spent_seconds)
            self.status = self.status or (Status.SECONDS if seconds >= self.limits.seconds else None)

    @property
    def accuracy(self) -> float | None:
        """The gap that is asked for, if f(x⁰) − f* is the gap at x⁰, which bounds it; None if not known."""
        if self.target is None or not self.snapshots:
            return None
        return self.target.threshold(self.snapshots[0].gap) or None

    def agree(self, i: int, certified: CertifiedGap) -> None:
        """Note that agent i stops with this gap; the run ends when all agents of this process do."""
        self.agreed.add(i)
        if len(self.agreed) == len(self.answers):
            self._end(certified, Status.AGREED)

    def record_certificate(self, certified: CertifiedGap) -> None:
        """Record a gap that the root of the spanning tree certified, and its round, decrease and kind."""
        rounds = self.counters.traffic.rounds
        self.certificates.append((rounds, certified.gap, certified.decrease, int(certified.kind)))

    def partition(self, parts: list[list[int]]) -> None:
        """Note that the network fell apart into these agents."""
        self.status, self.parts = Status.PARTITIONED, parts

    def is_late(self) -> bool:
        """Return whether a limit was reached in this process, in an asynchronous run."""
        self.iterations = self.counters.traffic.rounds
        return self._limit_reached(self.counters.calls, self.counters.spent_seconds) is not None

    def spend_budget(self) -> None:
        """Note that an oracle refused a call: the limit on calls or on seconds was reached."""
        self._budget_spent = True

    def after_round(self) -> bool:
        """Return whether the run goes on; called between rounds, while no agent computes."""
        self.sent[self.counters.traffic.rounds] = int(self.counters.traffic.bytes.sum())
        if not self.problem.reliable:
            return self._after_unreliable_round()
        if not self.collective:
            # Agents end by themselves after their last iteration; rounds are the same for all.
            self._collect(self.iterations + self._has_next())
            ended = self.limits.rounds is not None and self.counters.traffic.rounds >= self.limits.rounds
            return self.status is None and not ended
        # The clock runs on: the first process waits here for the others.
        waiting, calls, seconds = self._largest(
            -float(self._has_next()), float(self.counters.calls), self.counters.spent_seconds
        )
        self.counters.clock.pause()
        self._collect(self.iterations + int(waiting < 0.0))
        self.status = self.status or self._limit_reached(int(calls), seconds)
        self.counters.clock.start()
        return self.status is None

    def _after_unreliable_round(self) -> bool:
        """Count a round as an iteration, in which some agents may not have taken part."""
        self.counters.clock.pause()
        self.iterations = self.counters.traffic.rounds
        if self.limits.every and self.iterations % self.limits.every == 0:
            self._record(self.counters.work)
        self.status = self.status or self._limit_reached(self.counters.calls, self.counters.spent_seconds)
        self.counters.clock.start()
        return self.status is None

    def finish(self) -> None:
        """Measure the last iteration, unless it was recorded, and set the status.

        If an oracle refused a block of calls, the limit on calls need not be reached. The status is then this
        limit, or that on seconds if calls are not limited.
        """
        self.counters.clock.pause()
        runtime, traffic = self.problem.settings.runtime, self.counters.traffic
        if runtime.asynchronous:  # the rounds are the steps of the fastest agent of all processes
            rounds, missing, spent = self._largest(
                float(traffic.rounds), float(self.status is None), float(self._budget_spent)
            )
            self.iterations = traffic.rounds = int(rounds)
            self.status, self._budget_spent = None if missing else self.status, bool(spent)
        calls, seconds, most, least = self._largest(
            float(self.counters.calls),
            self.counters.spent_seconds,
            float(self.iterations),
            -float(self.iterations),
        )
        if most != -least:
            raise RuntimeError(
                "agents must end an iteration in the same round unless the run is measured; some had ended "
                f"{most:.0f} iterations when the run ended, others {-least:.0f}. Use every=1 "
                "(--measure)."
            )
        self.status = self.status or self._limit_reached(int(calls), seconds) or self._ended(runtime)
        if self.limits.every is not None and self.snapshots[-1].iterations != self.iterations:
            self._record(self.counters.work, restored)
        else:
            self._check_again(restored)
        self.outside_by = self._largest(self.members.violation)[0]
        if self.outside_by > 0.0:
            self.status = Status.OUTSIDE
            self._check_again(moved_into)

    def _check_again(self, check: Check) -> None:
        """Check models that were measured; if one is moved, measure them again, and check a gap once more."""
        self._check(check)
        if self.limits.every is None or not self.group.any(self.members.moved):
            return
        measured = self._measured()
        self.snapshots[-1] = replace(self.snapshots[-1], **measured.columns)
        if self.status is Status.GAP:
            self.status = None
            self._certify(measured)
            self.status = self.status or Status.ROUNDING

    def _ended(self, runtime: Runtime) -> Status:
        """Return the limit for which an oracle refused a call; raise if the agents just returned."""
        if runtime.replays:
            return Status.REPLAYED
        if runtime.asynchronous and self.limits.iterations is not None and not self._budget_spent:
            return Status.ITERATIONS  # the fastest agent has done so many
        if self._budget_spent:
            return Status.SECONDS if self.limits.lmo_calls is None else Status.LMO_CALLS
        with self.group.common_errors():
            raise returned_early(self.problem.method, self.iterations)

    def _check(self, check: Check | None = None) -> None:
        """Move models into X by this check, by default by the one for all measured models; average them."""
        self.members = self._membership(self.answers, check)
        self.answers = self.members.answers

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
        self.answers = {i: posted[i].answer for i in self.answers}
        self.iterations = iterations
        if self.limits.every and iterations % self.limits.every == 0:
            models = posted.values()
            self._record((max(model.calls for model in models), max(model.projections for model in models)))

    def _record(self, work: tuple[int, int], check: Check | None = None) -> None:
        """Check and measure the models; ``work`` is the oracle calls and projections that they took."""
        self._check(check)
        traffic = self.counters.traffic
        if traffic.steps:  # each is as long as that of the slowest agent of all processes
            self.computing += float(self.group.allreduce_max(np.array(traffic.steps)).sum())
        if traffic.peaks:
            self.peak_bytes += int(self.group.allreduce_max(np.array(traffic.peaks, dtype=float)).sum())
        traffic.steps.clear()
        traffic.peaks.clear()
        messages, known, sent, calls, projections, seconds = self._largest(
            float(traffic.messages.max()),
            -min((gap for _, gap, _, _ in self.certificates), default=math.inf),
            float(traffic.bytes.max()),
            *map(float, work),
            self.counters.clock.seconds,
        )
        measured = self._measured()
        snapshot = Snapshot(
            iterations=self.iterations,
            rounds=traffic.rounds,
            messages=int(messages),
            bytes=int(sent),
            peak_bytes=max(self.peak_bytes, int(sent)),
            lmo_calls=int(calls),
            projections=int(projections),
            seconds=seconds,
            computing=self.computing,
            certified_gap=-known if known > -math.inf else math.nan,
            agents=tuple(self.members.models),
            **measured.columns,
        )
        self.snapshots.append(replace(snapshot, agents=()))
        callback = self.problem.settings.callback
        stopped = self.group.any(callback is not None and self.group.is_root and bool(callback(snapshot)))
        self._certify(measured)
        if stopped:
            self.status = self.status or Status.CALLBACK

    def _measured(self) -> Measured:
        members = self.members
        return self._measure(list(members.known.values()), members.x_bar, at_start=self.iterations == 0)

    def _certify(self, measured: Measured) -> None:
        """End the run if the gap of every agent's model is small enough, unless the agents decide that.

        A gap that ends the run is proven first: the oracle that found it may be iterative.
        """
        target, certified = self.target, measured.certified
        if target is None or certified is None or not target.ends(certified):
            return
        slack = max(0.0, target.threshold(certified.decrease) - certified.gap - certified.noise)
        proven = self.problem.form.evaluate(self.problem.f, self.problem.X, self.members.x_bar, slack)
        excess = certified.gap - measured.columns["gap"]
        gap, noise = max(0.0, proven.gap) + excess, certified.noise + proven.error
        certified = replace(certified, gap=gap, noise=noise)
        if target.ends(certified):
            self._end(certified, Status.GAP)

    def _end(self, certified: CertifiedGap, success: Status) -> None:
        """Set the status: a success, whatever else ended the run, or that the gap cannot fall further."""
        assert self.target is not None
        self.certified = certified
        short = Status.ROUNDING if self.target.ends(certified) else Status.STALLED
        self.status = success if self.target.reached(certified) else short

    def _limit_reached(self, calls: int, seconds: float) -> Status | None:
        """Return the limit that is reached, if one is; calls and seconds are the largest of all processes.

        Agents that certify a gap may need no further call, because the answer is on its way. Their run ends
        by the first call that is refused.
        """
        counted = 0 if self.target is not None and self.problem.method.stops_itself else calls
        return self.limits.reached(self.iterations, self.counters.traffic.rounds, counted, seconds)
