"""The start of MPI: who is at fault if a process waits for others that do not come. No I/O."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import NamedTuple, final

from dcgs.marks import EXITED, KILLED, RAISED, RUNS, WAITS


@final
class Wait(NamedTuple):
    """What a process waits for: other ranks, to start or to leave MPI, with its limits in seconds.

    A rank that is stopped may be so for ``timeout``. All must have met after ``start_timeout``.
    """

    stage: str
    ranks: frozenset[int]
    timeout: float
    start_timeout: float = 0.0


@final
class Seen(NamedTuple):
    """What a waiting process sees of another: its stage, how it ended, and how long it has been stopped."""

    stage: str
    name: str
    text: str = ""
    stopped: float = 0.0


def fault(wait: Wait, seen: Mapping[int, Seen], waited: float) -> str | None:
    """Return a sentence that names who is at fault if the wait cannot end, or lasts too long; else None."""
    bad = (EXITED, RAISED, KILLED) if wait.stage == WAITS else (KILLED,)
    for one in [seen[other] for other in sorted(wait.ranks) if other in seen]:
        if one.stage in bad:
            return f"{one.name} {one.text}"
        if one.stopped > wait.timeout:
            return stopped(one.name, one.stopped)
    if wait.stage != WAITS or waited <= wait.start_timeout:
        return None
    late = [other for other in sorted(wait.ranks) if other in seen and seen[other].stage not in (WAITS, RUNS)]
    missing = sorted(wait.ranks - set(seen))
    who = [f"{_ranks(late)} not done so"] if late else []
    who += [f"{_ranks(missing)} left no sign on this machine"] if missing else []
    return (
        f"all ranks must have started MPI after {wait.start_timeout:.0f} s; "
        f"{' and '.join(who) or 'all of this machine wait in it'}. See what happens there and start again, "
        "or allow more by MPI(start_timeout=...), in the command --start-timeout."
    )


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {ranks} have"


def stopped(name: str, seconds: float) -> str:
    """Return the sentence on a process that was stopped."""
    return (
        f"{name} has been stopped for {seconds:.0f} s while others wait for it; see what stopped it and "
        "start again, or allow more by MPI(timeout=...), in the command --timeout."
    )


def killed_by(number: int, hint: str) -> str:
    """Return what happened to a process that a signal has ended, and what to do."""
    if number not in set(signal.Signals) or number == signal.SIGKILL:
        hint = f"see whether its machine ran out of memory, and {hint}"
    by = f" by {signal.Signals(number).name}" if number in set(signal.Signals) else ""
    return f"was killed{by}; {hint}."
