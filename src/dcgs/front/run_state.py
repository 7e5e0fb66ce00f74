"""The part of a checkpoint that belongs to the run: counters, clock, answer, random generator, history."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from dcgs.front.fingerprint import library_versions
from dcgs.front.history import as_rows, from_rows
from dcgs.front.observer import Observer
from dcgs.inner import Outcome
from dcgs.methods.base import Agent
from dcgs.points import Point


@final
@dataclass(frozen=True, eq=False)
class RunState:
    """The state of the run for one agent after an iteration. ``rng`` is the random state, as JSON.

    ``history`` has a row for each snapshot: agent 0 has all of them, the others the last one.
    """

    iteration: int
    answer: Point
    gap: float | None
    rounds: int
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
    versions: dict[str, str]


def run_state(agent: Agent, k: int, observer: Observer) -> RunState:
    """Return the state of the run for one agent after iteration k."""
    i, counters = agent.index, observer.counters
    return RunState(
        iteration=k,
        answer=observer.answers[i],
        gap=agent.gap,
        rounds=counters.traffic.rounds,
        computing=observer.computing,
        seconds=counters.clock.seconds,
        worked=counters.traffic.worked[i],
        waited=counters.traffic.waited[i],
        messages=counters.traffic.messages[i],
        bytes=counters.traffic.bytes[i],
        lmo_calls=counters.oracles[i].calls,
        projections=counters.projections[i].count,
        outcomes=dict(agent.outcomes),
        rng=json.dumps(agent.rng.bit_generator.state),
        history=as_rows(observer.snapshots if i == 0 else observer.snapshots[-1:]),
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
    counters.clock.set(first.seconds)
    for i, state in states.items():
        observer.answers[i] = state.answer
        counters.traffic.worked[i], counters.traffic.waited[i] = state.worked, state.waited
        counters.traffic.messages[i], counters.traffic.bytes[i] = state.messages, state.bytes
        counters.oracles[i].calls = state.lmo_calls
        counters.projections[i].count = state.projections
        agents[i].outcomes.update(state.outcomes)
        agents[i].rng.bit_generator.state = json.loads(state.rng)
    observer.iterations = first.iteration
    observer.snapshots = from_rows(first.history) or observer.snapshots
    return _notes(first, agents[min(states)])


def _notes(state: RunState, agent: Agent) -> list[str]:
    notes = []
    if agent.gap is not None and state.gap != agent.gap:
        notes.append(
            f"the run was started with gap {state.gap!r} and resumed with {agent.gap!r}: the certified gap "
            "is the one given last, but the run is not equal to one with a single gap."
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
