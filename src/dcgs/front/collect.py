"""Collect the result of a run from all processes."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcgs.front.build import Run
from dcgs.front.history import as_history
from dcgs.front.observer import Observer
from dcgs.front.problem import Problem
from dcgs.front.result import CERTIFICATES, Result
from dcgs.front.stopping import LIMITS, Status
from dcgs.inner import Outcome
from dcgs.low_rank import LowRank
from dcgs.methods.certificate import GapKind
from dcgs.runtime import FaultSchedule

# A set-up that takes more than this share of the limit on seconds is worth a note.
_LONG_SETUP = 0.1
# With fewer certificates than this, a limit that is short of the gap needs no explanation.
_MANY = 5
_SLOW_ADVICE = (
    "More rounds help little: ask for a larger gap, choose a smaller set, or scale the columns of the data "
    "to one size."
)


def collect(run: Run) -> Result:
    """Return the result of a run that has ended."""
    f, observer, counters = run.problem.f, run.observer, run.counters
    assert observer.status is not None
    x_bar, models = observer.members.x_bar, observer.members.models
    counts = f.numbers(lambda i, _: _counts(run, i))
    counted = counts.astype(np.int64).T
    certificates = _certificates(run)
    return Result(
        x=x_bar,
        agents=tuple(models) if isinstance(x_bar, LowRank) else np.stack(models),
        hosted=np.array(list(observer.members.known), dtype=np.int64),
        status=observer.status,
        iterations=observer.iterations,
        rounds=counters.traffic.rounds,
        messages=counted[0],
        bytes=counted[1],
        lmo_calls=counted[2],
        projections=counted[3],
        computing=counts[:, 6],
        waiting=counts[:, 7],
        seconds=float(f.group.allreduce_max(np.array([counters.clock.seconds]))[0]),
        history=as_history(observer.snapshots),
        notes=(
            *run.checkpoints.notes,
            *_notes_on_the_end(observer),
            *_notes_on_the_gap(observer, certificates),
            *_silent_links(run),
            *_short_solves(counted[4].tolist(), int(counted[5].sum())),
        ),
        about=_about(run.problem) | run.checkpoints.about() | _certificate(observer),
        certificates=certificates,
    )


def _certificates(run: Run) -> NDArray[Any]:
    """Return all gaps that the root of the tree certified, with the bytes that were sent up to then."""
    observer, group = run.observer, run.problem.f.group
    rows = np.array(observer.certificates, dtype=np.float64).reshape(-1, 4)
    known = max(group.allgather([rows]), key=len)  # the process that has the root knows them
    rounds = np.array(list(observer.sent), dtype=np.float64)
    sent = np.array(list(observer.sent.values()), dtype=np.float64)
    before = np.searchsorted(rounds, known[:, 0], side="right") - 1
    own = np.where(before >= 0, np.append(sent, 0.0)[before], 0.0)
    total = np.sum(group.allgather([own]), axis=0)
    table = np.zeros(len(known), CERTIFICATES)
    table["rounds"], table["bytes"] = known[:, 0], total
    table["gap"], table["decrease"] = known[:, 1], known[:, 2]
    table["kind"] = [GapKind(int(kind)).name.lower() for kind in known[:, 3]]
    return table


def _counts(run: Run, i: int) -> list[float]:
    """Return what was counted of agent i: six whole numbers, then two numbers of seconds."""
    traffic, outcomes = run.counters.traffic, run.agents[i].outcomes
    return [
        traffic.messages[i],
        traffic.bytes[i],
        run.counters.oracles[i].calls,
        run.counters.projections[i].count,
        outcomes[Outcome.STEPS],
        sum(outcomes.values()),
        traffic.worked[i],
        traffic.waited[i],
    ]


def _short_solves(fell_short: Sequence[int], solves: int) -> Iterator[str]:
    """Yield a note if inner solves ended early, given how many of each agent did."""
    short = {i: count for i, count in enumerate(fell_short) if count}
    if short:
        yield (
            f"{sum(short.values())} of {solves} inner solves, of agents {list(short)}, ended at max_steps "
            "before their gap was reached; the theorems do not cover this run."
        )


def _certificate(observer: Observer) -> dict[str, Any]:
    """Return the certified gap with its kind and rounding error, and f(x⁰) − f(x), if the run ended by it."""
    at = observer.certified
    if at is None:
        return {}
    kind = at.kind.name.lower()
    return {"certified": {"gap": at.gap, "decrease": at.decrease, "noise": at.noise, "kind": kind}}


def _notes_on_the_end(observer: Observer) -> Iterator[str]:
    """Yield a note on each thing that ended the run early, or that makes its answer less than it seems."""
    at = observer.certified
    if observer.status is Status.ROUNDING and at is not None:
        share = f", {at.gap / at.decrease:.1e} of f(x0) − f(x)" if at.decrease > 0.0 and at.gap > 0.0 else ""
        yield (
            f"the gap that was reached is {max(at.gap, 0.0):.1e}{share}; rounding error alone makes a gap of "
            f"{at.noise:.1e}. Ask for a larger gap, or scale the data."
        )
    if observer.outside_by:
        yield (
            f"the answers must be in X; they violated it by {observer.outside_by:.2e}. Gaps before the last "
            "do not bound f(x) − f*; the last one is that of the points of X in this result."
        )
    limit = observer.limits.seconds
    if observer.status is Status.SECONDS and limit is not None:
        setup = float(observer.group.allreduce_max(np.array([observer.counters.setup.seconds]))[0])
        if setup > _LONG_SETUP * limit:
            yield f"the set-up took {setup:.1f} of the {limit:.1f} seconds."
    if observer.parts:
        yield f"no message crossed between the agents {observer.parts}; mend the links between them."


def _notes_on_the_gap(observer: Observer, certificates: NDArray[Any]) -> Iterator[str]:
    """Yield a note if many certificates were short of the gap asked for: how far, and what would help."""
    has_many = len(certificates) >= _MANY and observer.status in LIMITS and observer.problem.reliable
    if observer.target is None or not (has_many or observer.status is Status.STALLED):
        return
    rounds, gaps, decreases = (certificates[name] for name in ("rounds", "gap", "decrease"))
    best = int(np.argmin(gaps))
    halved = int(np.argmax(gaps <= 2.0 * gaps[best]))  # from then on the gap was not halved again
    asked = observer.target.threshold(max(float(decreases[best]), 0.0))
    slow = halved < len(gaps) // 2 or observer.status is Status.STALLED
    yield (
        f"the lowest gap that was certified is {max(float(gaps[best]), 0.0):.1e}; {asked:.1e} was asked for. "
        f"It was last halved by round {rounds[halved]:.0f} of {rounds[-1]:.0f}. "
        + (_SLOW_ADVICE if slow else "More rounds may reach it.")
    )


def _about(problem: Problem) -> dict[str, Any]:
    """Return what is needed to repeat the run."""
    return {
        "method": repr(problem.method),
        "runtime": repr(problem.settings.runtime),
        "set": type(problem.X).__name__,
        "shape": list(problem.X.shape),
        "agents": len(problem.network),
        "edges": problem.network.edges,
        "seed": int(problem.settings.seed),
        "versions": versions(),
    }


@cache
def versions() -> dict[str, str]:
    """Return the versions that results depend on."""
    packages = {name: version(name) for name in ("dcgs", "numpy", "scipy", "networkx")}
    return packages | {"python": platform.python_version()}


def _silent_links(run: Run) -> Iterator[str]:
    """Yield a note with the links that were silent for too long, if a limit ended a run with faults."""
    problem, rounds = run.problem, run.counters.traffic.rounds
    faulty = not (problem.reliable or problem.settings.runtime.asynchronous)
    schedule = problem.settings.runtime.faults
    patience = FaultSchedule.patience if schedule is None else schedule.patience
    if not faulty or run.observer.status not in LIMITS:
        return
    silent = [
        (i, j)
        for j, links in sorted(run.checkpoints.links.items())
        for i in problem.network.neighbors[j]
        if links.newest.get(i, 0) <= rounds - patience
    ]
    if silent:
        yield (
            f"no message arrived in the last {patience} rounds over the links {silent}, each from sender to "
            "receiver; mend them, or take these edges out of the graph."
        )
