"""The programs of the agents hosted in this process: started, resumed together, closed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import final

from dcgs.counting import BudgetSpentError
from dcgs.points import Point
from dcgs.protocol import Inbox, Program
from dcgs.runtime.base import Job
from dcgs.runtime.messages import Reply


@final
class Programs:
    """Runs the programs of some agents step by step."""

    def __init__(self, job: Job, agents: Iterable[int]) -> None:
        self._job = job
        self._programs = {i: job.program(i) for i in agents}

    def advance(
        self, inboxes: Mapping[int, Inbox] | None = None, pool: Executor | None = None
    ) -> dict[int, Reply]:
        """Resume every program with its inbox, without inboxes start it; return what each then yields.

        With a pool the agents compute side by side. All of them finish their step before an exception of one
        is raised, so that no program is running then.
        """
        # Side by side, the seconds of an agent are those of its thread. The wall clock would add waiting.
        clock = time.perf_counter if pool is None else time.thread_time
        steps = [
            _Step(i, program, None if inboxes is None else inboxes[i], clock)
            for i, program in self._programs.items()
        ]
        outcomes = list(map(_run, steps) if pool is None else pool.map(_run, steps))
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        for error in errors:
            if not isinstance(error, BudgetSpentError):
                raise error
        self._job.traffic.count_step({outcome.agent: outcome.seconds for outcome in outcomes})
        spent = self._job.spent(bool(errors)) if self._job.spent is not None else bool(errors)
        if spent:
            raise errors[0] if errors else BudgetSpentError
        return {outcome.agent: outcome.reply for outcome in outcomes}

    def close(self) -> None:
        """Close all programs; one that is still running, after a second Ctrl-C, is left alone."""
        for program in self._programs.values():
            with suppress(ValueError):
                program.close()


@final
@dataclass(frozen=True, eq=False)
class _Step:
    agent: int
    program: Program[Point]
    inbox: Inbox | None
    clock: Callable[[], float]


@final
@dataclass(frozen=True, eq=False)
class _Outcome:
    agent: int
    reply: Reply
    seconds: float
    error: Exception | None = None


def _run(step: _Step) -> _Outcome:
    """Resume one program."""
    start = step.clock()
    reply: Reply = None
    failure: Exception | None = None
    try:
        reply = next(step.program) if step.inbox is None else step.program.send(step.inbox)
    except StopIteration:
        pass
    except Exception as error:
        error.add_note(f"raised in agent {step.agent}")
        failure = error
    return _Outcome(step.agent, reply, step.clock() - start, failure)
