"""Where a run stands beside its programs: counters, clock, answers, history; to memory and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dcgs.front.fingerprint import surroundings
from dcgs.front.history import History, Snapshot, as_history
from dcgs.front.observer import Observer
from dcgs.inner import Outcome
from dcgs.memory import Memory, Past
from dcgs.methods.base import Agent


def standing(agent: Agent, program: Memory, observer: Observer) -> dict[str, Memory]:
    """Return all that a checkpoint of one agent holds; ``program`` is what its program kept.

    The whole history is with agent 0, and with the others its last entry.
    """
    i, counters = agent.index, observer.counters
    recorded = observer.snapshots if i == 0 else observer.snapshots[-1:]
    return {
        "program": program,
        "answer": observer.answers[i],
        "gap": agent.gap,
        "rounds": counters.traffic.rounds,
        "computing": float(observer.computing),
        "seconds": float(counters.clock.seconds),
        "worked": float(counters.traffic.worked[i]),
        "waited": float(counters.traffic.waited[i]),
        "messages": int(counters.traffic.messages[i]),
        "bytes": int(counters.traffic.bytes[i]),
        "lmo_calls": counters.oracles[i].calls,
        "projections": counters.projections[i].count,
        "outcomes": {outcome.name: count for outcome, count in agent.outcomes.items()},
        "rng": _plain(agent.rng.bit_generator.state),
        "history": {**as_history(recorded).columns()},
    }


def resume(pasts: Mapping[int, Past], agents: Mapping[int, Agent], observer: Observer) -> list[str]:
    """Set counters, clock and answers to where the run stood; return what a user should know."""
    first = pasts[min(pasts)]
    k, rounds = first.whole("iteration"), first.whole("rounds")
    for name, done in (("iterations", k), ("rounds", rounds)):
        limit = getattr(observer.limits, name)
        if limit is not None and done > limit:
            raise ValueError(f"{name} must be at least the {done} of the checkpoint to resume; got {limit}.")
    counters = observer.counters
    counters.traffic.rounds, observer.computing = rounds, first.number("computing")
    counters.clock.set(first.number("seconds"))
    for i, past in pasts.items():
        observer.answers[i] = past.point("answer")
        counters.traffic.worked[i], counters.traffic.waited[i] = past.number("worked"), past.number("waited")
        counters.traffic.messages[i], counters.traffic.bytes[i] = past.whole("messages"), past.whole("bytes")
        counters.oracles[i].calls = past.whole("lmo_calls")
        counters.projections[i].count = past.whole("projections")
        counts = past.part("outcomes")
        agents[i].outcomes.update({Outcome[name]: counts.whole(name) for name in counts.values})
        agents[i].rng.bit_generator.state = past.part("rng").values
    observer.iterations = k
    observer.snapshots = _snapshots(first.part("history")) or observer.snapshots
    return _notes(first, agents[min(pasts)])


def _snapshots(history: Past) -> list[Snapshot]:
    names = [field.name for field in fields(History)]
    columns = [history.array(name).tolist() for name in names]
    return [Snapshot(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]


def _notes(past: Past, agent: Agent) -> list[str]:
    notes = []
    if agent.gap is not None and past.number("gap") != agent.gap:
        notes.append(
            f"the run was begun with gap {past.number('gap')!r} and resumed with {agent.gap!r}: what is "
            "certified is what was asked for, but the run is not equal to one with a single gap."
        )
    was = past.part("versions")
    other = [
        f"{name} {was.word(name)}, now {now}" for name, now in surroundings().items() if was.word(name) != now
    ]
    if other:
        notes.append(f"the checkpoint was made with {'; '.join(other)}: the last bits of results may differ.")
    return notes


def _plain(state: Any) -> Memory:
    """Return the state of a random generator, which is in dictionaries, numbers, words and arrays."""
    if isinstance(state, Mapping):
        return {str(name): _plain(value) for name, value in state.items()}
    plain: Memory = state
    return plain
