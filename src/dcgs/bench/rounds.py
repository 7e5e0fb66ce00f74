"""Run every contestant on every instance, once, and keep what each run needed."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any, TypeAlias, TypeVar, final

from threadpoolctl import threadpool_limits

from dcgs.bench.contestants import Contestant, Glimpsed, contestant
from dcgs.bench.crossings import LEVELS, End, Trial, crossings
from dcgs.bench.instances import Instance, Problem, instance
from dcgs.bench.optimum import TARGET, Optimum, solve
from dcgs.bench.shelf import Shelf
from dcgs.datasets import DataNotFoundError
from dcgs.front import Result, Snapshot, minimize, versions
from dcgs.front.stopping import Status
from dcgs.runtime import Lockstep

Item = TypeVar("Item")
Told: TypeAlias = Callable[[str, str | None], None]
"""Told of every piece of work that is done: its name, and a sentence where it came to nothing."""

GOAL = 1e-3
"""The level that settings of a grid are tried for."""

_KEPT = ("rounds", "bytes", "lmo_calls", "projections", "worst_loss", "seconds")
_ENDS = {Status.CALLBACK: End.LEVEL, Status.ROUNDS: End.ROUNDS, Status.SECONDS: End.SECONDS}


@final
@dataclass(frozen=True)
class Plan:
    """Where results are kept, and what they depend on beside instance and method."""

    shelf: Shelf
    seed: int = 0
    seconds: float = 40.0
    jobs: int = 1

    def key(self, chosen: Instance, entrant: Contestant | None = None) -> dict[str, Any]:
        """Return all that a result depends on; without a contestant, all that f* does."""
        key = {"instance": chosen.about, "seed": self.seed, "versions": versions()}
        if entrant is None:
            return key | {"iterations": chosen.reference, "target": TARGET}
        limits: dict[str, float] = {
            "rounds": self.rounds(chosen, entrant),
            "seconds": self.patience(chosen, entrant),
        }
        if entrant.setting:
            limits["level"] = _last_level(entrant)
        return key | {"method": repr(entrant.method)} | limits

    def rounds(self, chosen: Instance, entrant: Contestant) -> int:
        """Return the rounds that a run is given: for a setting, those its method as it comes took to 1e-3."""
        default = self.trial(chosen, contestant(entrant.family)) if entrant.setting else None
        cost = None if default is None else default.costs[GOAL]
        return chosen.rounds if cost is None else max(1, cost.rounds)

    def patience(self, chosen: Instance, entrant: Contestant) -> float:
        """Return the seconds that a run is given."""
        return self.seconds * chosen.patience * entrant.patience

    def optimum(self, chosen: Instance) -> Optimum | None:
        """Return f* where it is on the shelf."""
        kept = self.shelf.get(_optimum_file(chosen), self.key(chosen))
        return None if kept is None else Optimum(**kept)

    def trial(self, chosen: Instance, entrant: Contestant) -> Trial | None:
        """Return what is on the shelf of a run, held against f*."""
        optimum = self.optimum(chosen)
        kept = self.shelf.get(_run_file(chosen, entrant), self.key(chosen, entrant))
        if kept is None or optimum is None:
            return None
        work, history = ("projections" if entrant.method.projects else "lmo_calls"), kept["history"]
        return Trial(
            chosen.name,
            entrant.name,
            "projections" if entrant.method.projects else "oracle calls",
            End[kept["end"]],
            int(kept["rounds"]),
            float(kept["seconds"]),
            float(optimum.relative(history["worst_loss"]).min()),
            crossings(history, optimum, work),
            kept["note"],
        )


def carry_out(
    plan: Plan, instances: Sequence[Instance], contestants: Sequence[Contestant], told: Told
) -> None:
    """Find f* of all instances and run all contestants on them, but for what is on the shelf already.

    Instances whose data are not at hand are left out, and ``told`` says so; so is a run that raised, which
    is tried again the next time.
    """
    missing = [chosen.name for chosen in instances if plan.optimum(chosen) is None]
    for name, sentence in _spread(plan.jobs, partial(find_optimum, plan), missing):
        told(f"f* of {name}", sentence)
    known = [chosen for chosen in instances if plan.optimum(chosen) is not None]
    for tries in (False, True):  # what a method as it comes needs is the limit of its settings
        runs = [
            (chosen.name, entrant.name)
            for chosen in known
            for entrant in contestants
            if bool(entrant.setting) == tries and plan.trial(chosen, entrant) is None
        ]
        for (name, method), sentence in _spread(plan.jobs, partial(find_trial, plan), runs):
            told(f"{method} on {name}", sentence)


def work_left(plan: Plan, instances: Sequence[Instance], contestants: Sequence[Contestant]) -> int:
    """Return how many optima and runs are not on the shelf."""
    optima = sum(plan.optimum(chosen) is None for chosen in instances)
    return optima + sum(plan.trial(chosen, one) is None for chosen in instances for one in contestants)


def take_off(plan: Plan, instances: Sequence[Instance], contestants: Sequence[Contestant]) -> None:
    """Take these runs off the shelf, so that they are made anew; what f* is stays."""
    for chosen in instances:
        for entrant in contestants:
            plan.shelf.drop(_run_file(chosen, entrant))


def find_optimum(plan: Plan, name: str) -> str | None:
    """Find f* and keep it; return a sentence where its data are not at hand."""
    chosen = instance(name)
    try:
        problem = _problem(name, plan.seed)
    except DataNotFoundError as error:
        return f"left out, for its data are not at hand: {error}"
    found = solve(problem, chosen.reference)
    plan.shelf.put(_optimum_file(chosen), plan.key(chosen), asdict(found))
    return None


def find_trial(plan: Plan, names: tuple[str, str]) -> str | None:
    """Run a contestant on an instance and keep what it needed; return a sentence where that is nothing."""
    chosen, entrant = instance(names[0]), contestant(names[1])
    optimum = plan.optimum(chosen)
    assert optimum is not None
    problem = _problem(chosen.name, plan.seed)
    snapshots: list[Snapshot] = []

    def last_level_reached(snapshot: Snapshot) -> bool:
        snapshots.append(snapshot)
        return bool(optimum.relative(snapshot.worst_loss) <= _last_level(entrant))

    try:
        result = _run(plan, chosen, entrant, problem, last_level_reached)
    except FloatingPointError as error:  # it diverged, and would do so again
        kept = _kept(End.FAILED, snapshots[-1].rounds, snapshots[-1].seconds, str(error))
    except Exception as error:
        return f"failed, and is not kept: {type(error).__name__}: {error}"
    else:
        kept = _kept(_ENDS[result.status], result.rounds, result.seconds, " ".join(result.notes))
    kept["history"] = {column: [getattr(snapshot, column) for snapshot in snapshots] for column in _KEPT}
    plan.shelf.put(_run_file(chosen, entrant), plan.key(chosen, entrant), kept)
    return None


def _last_level(entrant: Contestant) -> float:
    """Return the level at which a run has done all that is asked of it."""
    return GOAL if entrant.setting else LEVELS[-1]


def _kept(end: End, rounds: int, seconds: float, note: str) -> dict[str, Any]:
    return {"end": end.name, "rounds": rounds, "seconds": seconds, "note": note}


def _run(
    plan: Plan,
    chosen: Instance,
    entrant: Contestant,
    problem: Problem,
    stop: Callable[[Snapshot], bool],
) -> Result:
    return minimize(
        problem.objectives,
        problem.X,
        problem.graph,
        Glimpsed(entrant.method),
        rounds=plan.rounds(chosen, entrant),
        seconds=plan.patience(chosen, entrant),
        runtime=Lockstep(threads=1),
        seed=plan.seed,
        callback=stop,
    )


@lru_cache(maxsize=1)
def _problem(name: str, seed: int) -> Problem:
    return instance(name).make(seed)


def _spread(
    jobs: int, work: Callable[[Item], str | None], items: Sequence[Item]
) -> Iterator[tuple[Item, str | None]]:
    """Yield every item with what became of it, worked on in so many processes; in this one if in one."""
    if jobs == 1 or len(items) < 2:
        with threadpool_limits(1):
            for item in items:
                yield item, work(item)
        return
    pool = ProcessPoolExecutor(min(jobs, len(items)), multiprocessing.get_context("spawn"), _alone)
    try:
        futures = {pool.submit(work, item): item for item in items}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _alone() -> None:
    """Let a process compute on one thread, and end without a word at Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threadpool_limits(1)


def _optimum_file(chosen: Instance) -> str:
    return f"optima/{chosen.name}.json"


def _run_file(chosen: Instance, entrant: Contestant) -> str:
    return f"runs/{chosen.name}/{entrant.file}.json"
