"""Build a run: the agents, the counters, the observer and the checkpoints."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import numpy as np

from dcgs.counting import CountedOracle, Tally
from dcgs.facts import Facts
from dcgs.front.checkpoint_manager import CheckpointManager
from dcgs.front.facts import facts_of
from dcgs.front.fingerprint import fingerprint
from dcgs.front.observer import Observer
from dcgs.front.problem import Problem
from dcgs.front.stopping import Counters, Stopwatch
from dcgs.low_rank import LowRank
from dcgs.methods import Agent
from dcgs.methods.certifier import program_of
from dcgs.runtime import Job, Traffic


@final
@dataclass(frozen=True, eq=False)
class Run:
    """A run that is ready to start: the agents of this process, and who counts, observes and saves."""

    problem: Problem
    counters: Counters
    observer: Observer
    agents: Mapping[int, Agent]
    checkpoints: CheckpointManager

    def job(self) -> Job:
        """Return what the runtime runs."""
        problem, observer = self.problem, self.observer
        limits = problem.limits
        limited = limits.lmo_calls is not None or limits.seconds is not None
        synchronous = not problem.settings.runtime.asynchronous
        return Job(
            program=lambda i: program_of(problem.method, self.agents[i]),
            neighbors=problem.network.neighbors,
            traffic=self.counters.traffic,
            after_round=lambda: self.checkpoints.after_round(self.agents, observer, observer.after_round()),
            prefers_blas_threads=all(f.map.prefers_blas_threads for f in problem.f.local.values()),
            spent=problem.f.group.any if limited and synchronous else None,
            is_out_of_time=lambda: synchronous and self.counters.is_out_of_time(limits.seconds),
            edges_up=problem.edges_up,
            links=self.checkpoints.links,
            repeats=not problem.reliable and not problem.method.bears_faults,
            slots=problem.method.rounds_per_iteration,
            is_over=lambda: observer.status is not None,  # in an asynchronous run
            is_late=observer.is_late,
            allgather=problem.f.group.allgather,
            point_nbytes=0 if isinstance(problem.x0, LowRank) else problem.x0.nbytes,
        )


def build(problem: Problem) -> Run:
    """Return the run of a problem; with a checkpoint to resume it starts from there."""
    f, method = problem.f, problem.method
    checkpoints = CheckpointManager(
        problem.settings.checkpoint,
        list(f.local),
        problem.limits.iterations,
        f.group,
        by_rounds=not problem.reliable,
    )
    checkpoints.find()
    counters = _counters(problem)
    counters.setup.pause()  # the observer measures the starting point
    observer = Observer(problem, counters)
    counters.setup.start()
    # With matrices in factors nothing depends on sizes, and those of all columns would be a dense matrix.
    uses_sizes = method.uses_sizes and not isinstance(problem.x0, LowRank)
    facts = replace(
        facts_of(f, problem.X, problem.network, method.projects, uses_sizes),
        horizon=problem.settings.limits.horizon(method.rounds_per_iteration),
        accuracy=observer.accuracy,
    )
    agents = {i: _agent(i, problem, facts, observer, checkpoints) for i in f.local}
    checkpoints.begin(
        lambda agent: fingerprint(agent, method, problem.network, problem.settings.seed) | problem.faults,
        agents,
        observer,
    )
    return Run(problem, counters, observer, agents, checkpoints)


def _agent(
    i: int, problem: Problem, facts: Facts, observer: Observer, checkpoints: CheckpointManager
) -> Agent:
    network, limits, x0 = problem.network, problem.limits, problem.x0
    return Agent(
        index=i,
        f=problem.f.local[i],
        X=problem.X,
        lmo=observer.counters.oracles[i],
        x0=np.empty((0, 0)) if isinstance(x0, LowRank) else x0,
        low_rank_start=problem.low_rank_start(i, facts.separate_rows),
        degrees=network.degrees(i),
        resistances=network.resistances_of(i),
        tree=network.tree[i],
        reliable=problem.reliable,
        facts=facts,
        iterations=limits.iterations or sys.maxsize,
        rng=np.random.default_rng((problem.settings.seed, i)),
        observe=partial(observer.post, i),
        target=limits.target if problem.method.stops_itself else None,
        agree=partial(observer.agree, i),
        certify=observer.record_certificate if network.tree[i].parent is None else lambda certified: None,
        projections=observer.counters.projections[i],
        on_save=partial(checkpoints.save, i),
        resume=checkpoints.resume_point(i),
    )


def _counters(problem: Problem) -> Counters:
    limits, local = problem.limits, problem.f.local

    def may_call(calls: int) -> bool:
        in_calls = limits.lmo_calls is None or calls < limits.lmo_calls
        return in_calls and not counters.is_out_of_time(limits.seconds)

    counters = Counters(
        traffic=Traffic(len(problem.network)),
        oracles={i: CountedOracle(problem.X, may_call) for i in local},
        projections={i: Tally() for i in local},
        setup=problem.settings.setup,
        clock=Stopwatch(),
    )
    return counters
