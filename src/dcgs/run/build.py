"""Build a run: its agents, counters, observer and checkpoints; run it, save its state and set it again."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, final

import numpy as np

from dcgs.checkpoints.fingerprint import Fingerprint, fingerprint, library_versions
from dcgs.checkpoints.manager import CheckpointManager
from dcgs.checkpoints.run_state import AgentWork, CheckpointedRun, NoCheckpoints, RunState
from dcgs.counting import BudgetSpentError, CountedOracle, Tally
from dcgs.facts import Facts
from dcgs.methods import Agent
from dcgs.methods.certificate import GapTarget
from dcgs.methods.certifier import program_of
from dcgs.methods.reduction import with_keys
from dcgs.run.checks import MASKED, OPEN, RunProblem
from dcgs.run.distributed import facts_of
from dcgs.run.observer import Observer
from dcgs.run.result import as_rows, from_rows
from dcgs.run.stopping import Counters, Status, Stopwatch
from dcgs.runtime import AgentLinks, Job, PartitionedError, Traffic
from dcgs.secure.session import SecureSums
from dcgs.tree import TreeNode, star

# The journal of an agent's masked sums, in the folder of its checkpoints.
JOURNAL = "sums.journal"

Checkpoints: TypeAlias = CheckpointManager | NoCheckpoints


@final
@dataclass(frozen=True, eq=False)
class Run(CheckpointedRun):
    """A run that is ready to start: the agents of this process, and who counts, observes and saves.

    ``links`` is the state of links that are not reliable; it is empty if they are.
    """

    problem: RunProblem
    counters: Counters
    observer: Observer
    agents: Mapping[int, Agent]
    links: dict[int, AgentLinks]
    checkpoints: Checkpoints

    def run(self) -> None:
        """Run the agents until the observer ends the run, or an agent may not call its oracle again."""
        observer = self.observer
        with closing(self), self.checkpoints.listening(), self.problem.f.group.reporting_failures():
            observer.end_setup()
            if observer.status is None:
                self.counters.clock.start()
                try:
                    self.problem.settings.runtime.run(self._job())
                except BudgetSpentError:
                    observer.spend_budget()
                except PartitionedError as error:
                    observer.partition(error.parts)
            if not self.checkpoints.interrupted:
                observer.finish()

    def close(self) -> None:
        """Close the journals of masked sums."""
        for agent in self.agents.values():
            if agent.secure is not None:
                agent.secure.close()

    def _job(self) -> Job:
        """Return what the runtime runs."""
        problem, observer = self.problem, self.observer
        limits = problem.limits
        limited = limits.lmo_calls is not None or limits.seconds is not None
        synchronous = not problem.settings.runtime.asynchronous
        return Job(
            program=lambda i: with_keys(program_of(problem.method, self.agents[i]), self.agents[i]),
            neighbors=problem.network.neighbors,
            traffic=self.counters.traffic,
            after_round=lambda: self.checkpoints.after_round(observer.after_round()),
            prefers_blas_threads=all(f.map.prefers_blas_threads for f in problem.f.local.values()),
            spent=problem.f.group.any if limited and synchronous else None,
            is_out_of_time=lambda: synchronous and self.counters.is_out_of_time(limits.seconds),
            edges_up=problem.edges_up,
            links=self.links,
            repeats=not problem.reliable and not problem.method.tolerates_faults,
            slot=problem.method.slot,
            is_over=lambda: observer.status is not None,  # in an asynchronous run
            is_late=observer.is_late,
            allgather=problem.f.group.allgather,
            point_nbytes=0 if problem.form.is_common else problem.x0.nbytes,
        )

    @property
    def iterations(self) -> int:
        return self.observer.iterations

    @property
    def is_decided(self) -> bool:
        return self.observer.status in (Status.AGREED, Status.ROUNDING, Status.STALLED)

    def fingerprint(self, i: int) -> Fingerprint:
        problem = self.problem
        known = fingerprint(self.agents[i], problem.method, problem.network, problem.settings.seed)
        return known | problem.faults | {"sums": problem.settings.sums}

    def work(self, i: int) -> AgentWork:
        return AgentWork(
            lmo_calls=self.counters.oracles[i].calls,
            projections=self.counters.projections[i].count,
            outcomes=dict(self.agents[i].outcomes),
            rng=json.dumps(self.agents[i].rng.bit_generator.state),
            secure=None if (sums := self.agents[i].secure) is None else sums.state(),
        )

    def state(self, i: int, k: int, steps: int, work: AgentWork) -> RunState:
        observer, traffic = self.observer, self.counters.traffic
        is_first = i == min(observer.answers)
        return RunState(
            iteration=k,
            steps=steps,
            agreed=i in observer.agreed,
            answer=self.problem.form.to_arrays(observer.answers[i]),
            target=self.agents[i].target,
            rounds=traffic.rounds,
            peak_bytes=observer.peak_bytes,
            peaks=np.array(traffic.peaks, dtype=np.float64),
            computing=observer.computing,
            seconds=self.counters.clock.seconds,
            worked=traffic.worked[i],
            waited=traffic.waited[i],
            messages=traffic.messages[i],
            bytes=traffic.bytes[i],
            **work._asdict(),
            history=as_rows(observer.snapshots if i == 0 else observer.snapshots[-1:]),
            certificates=np.array(observer.certificates if is_first else [], dtype=np.float64).reshape(-1, 4),
            sent=dict(observer.sent) if is_first else {},
            versions=library_versions(),
        )

    def set_state(self, states: Mapping[int, RunState]) -> list[str]:
        observer, counters, traffic = self.observer, self.counters, self.counters.traffic
        first = states[min(states)]
        for name, done in (("iterations", first.iteration), ("rounds", first.rounds)):
            limit = getattr(observer.limits, name)
            if limit is not None and done > limit:
                raise ValueError(
                    f"{name} must be at least the {done} of the checkpoint to resume; got {limit}."
                )
        traffic.rounds, observer.computing = first.rounds, first.computing
        observer.peak_bytes = first.peak_bytes
        traffic.peaks = np.max([state.peaks for state in states.values()], axis=0).astype(int).tolist()
        counters.clock.set(first.seconds)
        for i, state in states.items():
            observer.certificates += [
                (int(rounds), gap, decrease, int(kind))
                for rounds, gap, decrease, kind in state.certificates.tolist()
            ]
            for round, sent in state.sent.items():
                observer.sent[round] = observer.sent.get(round, 0) + sent
            observer.answers[i] = self.problem.form.from_arrays(state.answer, self.problem.X.shape)
            observer.agreed |= {i} if state.agreed else set()
            traffic.worked[i], traffic.waited[i] = state.worked, state.waited
            traffic.messages[i], traffic.bytes[i] = state.messages, state.bytes
            counters.oracles[i].calls = state.lmo_calls
            counters.projections[i].count = state.projections
            self.agents[i].outcomes.update(state.outcomes)
            self.agents[i].rng.bit_generator.state = json.loads(state.rng)
            if (sums := self.agents[i].secure) is not None:
                sums.restore(state.secure)
        observer.iterations = first.iteration
        observer.snapshots = from_rows(first.history) or observer.snapshots
        return _notes(first, self.agents[min(states)].target)

    def resume(self) -> None:
        self.observer.restore()

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.counters.clock.pause()
        yield
        self.counters.clock.start()


def build(problem: RunProblem) -> Run:
    """Return the run of a problem; with a checkpoint to resume it starts from there."""
    f, method = problem.f, problem.method
    links = {} if problem.reliable else {i: AgentLinks() for i in f.local}
    checkpoints = _checkpoints(problem, links)
    counters = _counters(problem)
    counters.setup.pause()  # the observer measures the starting point
    observer = Observer(problem, counters)
    counters.setup.start()
    # With matrices in factors nothing depends on sizes, and those of all columns would be a dense matrix.
    uses_sizes = method.uses_sizes and not problem.form.is_common
    masks = _facts_masks(problem)
    with ExitStack() as stack:
        for sums in masks.values():
            stack.callback(sums.close)
        facts = facts_of(replace(f, masks=masks), problem.X, problem.network, method.projects, uses_sizes)
    facts = replace(
        facts,
        horizon=problem.settings.limits.horizon(method.rounds_per_iteration),
        accuracy=observer.accuracy,
    )
    tree = _tree(problem) if uses_sizes else problem.network.tree
    agents = {i: _agent(i, problem, facts, tree[i], observer, checkpoints) for i in f.local}
    run = Run(problem, counters, observer, agents, links, checkpoints)
    with ExitStack() as stack:
        stack.callback(run.close)
        checkpoints.begin(run)
        stack.pop_all()
    return run


def _checkpoints(problem: RunProblem, links: dict[int, AgentLinks]) -> Checkpoints:
    """Return who saves the run; what it resumes from has been found."""
    checkpoint, f = problem.settings.checkpoint, problem.f
    if checkpoint is None:
        return NoCheckpoints()
    manager = CheckpointManager(checkpoint, list(f.local), problem.limits.iterations, f.group, links)
    manager.find()
    return manager


def _tree(problem: RunProblem) -> tuple[TreeNode, ...]:
    """Return the spanning tree; where any agent may be its root, that whose data are most like all data.

    It has many rows, and the mean curvature of its rows is near that of all rows. Where sums are masked,
    nobody knows which agent that is.
    """
    network, tree = problem.network, problem.network.tree
    if not (network.is_complete and problem.reliable and problem.settings.sums == OPEN):
        return tree
    rows, curvature = problem.f.numbers(lambda _, f: [f.map.size, f.mean_curvature]).T
    share = curvature * rows.sum() / (rows * (curvature.sum() or 1.0))
    return star(tree, int(np.argmax(rows * np.minimum(share, 1.0 / np.maximum(share, 1.0)))))


def _agent(
    i: int, problem: RunProblem, facts: Facts, tree: TreeNode, observer: Observer, checkpoints: Checkpoints
) -> Agent:
    f, network, limits = problem.f.local[i], problem.network, problem.limits
    x0, low_rank_start = problem.form.agent_start(problem.x0, f, facts.separate_rows)
    return Agent(
        index=i,
        f=f,
        X=problem.X,
        lmo=observer.counters.oracles[i],
        x0=x0,
        low_rank_start=low_rank_start,
        degrees=network.degrees(i),
        resistances=network.resistances_of(i),
        tree=tree,
        reliable=problem.reliable,
        facts=facts,
        iterations=limits.iterations or sys.maxsize,
        rng=np.random.default_rng((problem.settings.seed, i)),
        observe=partial(observer.post, i),
        target=limits.target if problem.method.stops_itself else None,
        agree=partial(observer.agree, i),
        certify=observer.record_certificate if tree.parent is None else lambda certified: None,
        projections=observer.counters.projections[i],
        on_save=partial(checkpoints.save, i),
        resume=checkpoints.resume_point(i),
        secure=_secure(i, problem),
    )


def _secure(i: int, problem: RunProblem) -> SecureSums | None:
    """Return how agent i masks its sums; None if they are open."""
    settings, agents = problem.settings, len(problem.network)
    if settings.sums == OPEN:
        return None
    if i in settings.masks and settings.checkpoint is None:  # a run that is resumed finds its keys by itself
        return settings.masks[i]
    if settings.sums != MASKED:
        return SecureSums(i, agents, is_masked=False)
    if settings.checkpoint is not None:
        return SecureSums(i, agents, journal=settings.checkpoint.file(i, 0).parent / JOURNAL)
    return _masked(i, problem)


def _masked(i: int, problem: RunProblem) -> SecureSums:
    """Return masked sums with keys of their own, in the journal of the runtime if it has one."""
    journal, signatures = problem.settings.runtime.journal(), problem.settings.runtime.signatures()
    replays = journal is not None
    return SecureSums(i, len(problem.network), journal=journal, replays=replays, signatures=signatures)


def _facts_masks(problem: RunProblem) -> dict[int, SecureSums]:
    """Return how the agents of this process mask what all learn before the run; none if sums are open.

    In one process nothing is sent, and sums of the same integers have the same bits without masks.
    """
    settings, agents, f = problem.settings, len(problem.network), problem.f
    if settings.sums == OPEN:
        return {}
    if settings.sums != MASKED or f.group.size == 1:
        return {i: SecureSums(i, agents, is_masked=False) for i in f.local}
    if settings.masks:
        return {i: settings.masks[i].inside("facts") for i in f.local}
    return {i: _masked(i, problem) for i in f.local}


def _counters(problem: RunProblem) -> Counters:
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


def _notes(state: RunState, target: GapTarget | None) -> list[str]:
    """Return what is not as in the run that was saved, given the gap that is asked for now."""
    notes = []
    if target is not None and state.target is not None and state.target != target:
        notes.append(
            f"the run was started with {_described(state.target)} and resumed with "
            f"{_described(target)}: the certified gap is the one given last, but the run is not equal "
            "to one with a single gap."
        )
    changed = [
        f"{name} {was}, now {now}"
        for name, now in library_versions().items()
        if (was := state.versions[name]) != now
    ]
    if changed:
        notes.append(
            f"the checkpoint was made with {'; '.join(changed)}: the last bits of results may differ."
        )
    return notes


def _described(target: GapTarget) -> str:
    given = {"gap": target.relative, "gap_abs": target.absolute}
    return " and ".join(f"{name} {value!r}" for name, value in given.items() if value is not None)
