"""The part of a checkpoint that belongs to the run: counters, clock, answer, random generator, history."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from dcgs.front.fingerprint import library_versions
from dcgs.front.history import as_rows, from_rows
from dcgs.front.observer import Observer
from dcgs.front.stopping import Counters
from dcgs.inner import Outcome
from dcgs.low_rank import LowRank
from dcgs.methods.base import Agent
from dcgs.methods.certificate import GapTarget
from dcgs.points import Point


@final
@dataclass(frozen=True, eq=False)
class RunState:
    """The state of the run for one agent after an iteration. ``rng`` is the random state, as JSON.

    ``steps`` are the iterations of this agent: fewer than those of the run if it slept. ``agreed`` is True if
    the agent knows that the gap is certified.
    ``peaks`` are the most bytes of an agent of the same process, in each round since the last snapshot.
    ``history`` has a row for each snapshot: agent 0 has all of them, the others the last one.
    ``certificates`` are those of the same process, and ``sent`` has the bytes that it had sent after each
    round; of all agents of the process the first one has them.
    """

    iteration: int
    steps: int
    agreed: bool
    answer: Point | None
    factors: LowRank | None
    target: GapTarget | None
    rounds: int
    peak_bytes: int
    peaks: Point
    computing: float
    seconds: float
    worked: float
    waited: float
    messages: int
    bytes: int
    lmo_calls: int
    projections: int
    outcomes: dict[Outcome, int]
    rng: str
    history: Point
    certificates: Point
    sent: dict[int, int]
    versions: dict[str, str]


class AgentWork(NamedTuple):
    """What one agent has counted and drawn up to an iteration. ``rng`` is the random state, as JSON."""

    lmo_calls: int
    projections: int
    outcomes: dict[Outcome, int]
    rng: str


def agent_work(agent: Agent, counters: Counters) -> AgentWork:
    """Return what an agent has counted and drawn so far; called while the agent itself waits."""
    return AgentWork(
        lmo_calls=counters.oracles[agent.index].calls,
        projections=counters.projections[agent.index].count,
        outcomes=dict(agent.outcomes),
        rng=json.dumps(agent.rng.bit_generator.state),
    )


def run_state(agent: Agent, k: int, steps: int, work: AgentWork, observer: Observer) -> RunState:
    """Return the state of the run for one agent after iteration k, given its own steps and work."""
    i, counters = agent.index, observer.counters
    answer, is_first = observer.answers[i], i == min(observer.answers)
    return RunState(
        iteration=k,
        steps=steps,
        agreed=i in observer.agreed,
        answer=None if isinstance(answer, LowRank) else answer,
        factors=answer if isinstance(answer, LowRank) else None,
        target=agent.target,
        rounds=counters.traffic.rounds,
        peak_bytes=observer.peak_bytes,
        peaks=np.array(counters.traffic.peaks, dtype=np.float64),
        computing=observer.computing,
        seconds=counters.clock.seconds,
        worked=counters.traffic.worked[i],
        waited=counters.traffic.waited[i],
        messages=counters.traffic.messages[i],
        bytes=counters.traffic.bytes[i],
        **work._asdict(),
        history=as_rows(observer.snapshots if i == 0 else observer.snapshots[-1:]),
        certificates=np.array(observer.certificates if is_first else [], dtype=np.float64).reshape(-1, 4),
        sent=dict(observer.sent) if is_first else {},
        versions=library_versions(),
    )


def resume_run(states: Mapping[int, RunState], agents: Mapping[int, Agent], observer: Observer) -> list[str]:
    """Set counters, clock and answers to those of the checkpoint; return notes for the user."""
    first = states[min(states)]
    for name, done in (("iterations", first.iteration), ("rounds", first.rounds)):
        limit = getattr(observer.limits, name)
        if limit is not None and done > limit:
            raise ValueError(f"{name} must be at least the {done} of the checkpoint to resume; got {limit}.")
    counters = observer.counters
    counters.traffic.rounds, observer.computing = first.rounds, first.computing
    observer.peak_bytes = first.peak_bytes
    counters.traffic.peaks = np.max([state.peaks for state in states.values()], axis=0).astype(int).tolist()
    counters.clock.set(first.seconds)
    for i, state in states.items():
        observer.certificates += [
            (int(n), gap, fall, int(kind)) for n, gap, fall, kind in state.certificates.tolist()
        ]
        for round, sent in state.sent.items():
            observer.sent[round] = observer.sent.get(round, 0) + sent
        answer = state.factors if state.answer is None else state.answer
        assert answer is not None
        observer.answers[i] = answer
        observer.agreed |= {i} if state.agreed else set()
        counters.traffic.worked[i], counters.traffic.waited[i] = state.worked, state.waited
        counters.traffic.messages[i], counters.traffic.bytes[i] = state.messages, state.bytes
        counters.oracles[i].calls = state.lmo_calls
        counters.projections[i].count = state.projections
        agents[i].outcomes.update(state.outcomes)
        agents[i].rng.bit_generator.state = json.loads(state.rng)
    observer.iterations = first.iteration
    observer.snapshots = from_rows(first.history) or observer.snapshots
    return _notes(first, agents[min(states)])


def _described(target: GapTarget) -> str:
    given = {"gap": target.relative, "gap_abs": target.absolute}
    return " and ".join(f"{name} {value!r}" for name, value in given.items() if value is not None)


def _notes(state: RunState, agent: Agent) -> list[str]:
    notes = []
    if agent.target is not None and state.target is not None and state.target != agent.target:
        notes.append(
            f"the run was started with {_described(state.target)} and resumed with "
            f"{_described(agent.target)}: the certified gap is the one given last, but the run is not equal "
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
