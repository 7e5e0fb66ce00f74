"""Forms in turn: a run that takes far more rounds than were expected of its form goes on with another one.

What a form takes is expected from a few facts of the data, and can be far off. Each stage of a run is one
form, for a number of iterations that all agents know before the run, so nothing is sent to change the form.
A stage begins at the point where the one before has ended, and takes at least as many rounds as all before
it: so a run takes at most a few times the rounds of the form that would have been best from there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, pairwise
from typing import final

from dcgs.methods.base import Agent
from dcgs.methods.certificate import CertifiedGap
from dcgs.methods.reduction import Value, network_answer
from dcgs.points import Point
from dcgs.protocol import Program

# A form gets so many times the rounds that it was expected to take, and at least those of the next one.
_PATIENCE = 3.0


@final
@dataclass(frozen=True, eq=False)
class Stage:
    """A form: the program of an agent in it, the rounds it is expected to take, and those of an iteration.

    With ``is_common`` all agents have the same point after each iteration.
    """

    program: Callable[[Agent], Program[Point]]
    expected: float
    rounds: int
    is_common: bool = True


def lengths(forms: Sequence[Stage]) -> Iterator[tuple[Stage, int]]:
    """Yield forms and their numbers of iterations: the first form, then those with common points in turn.

    Later stages can begin at any point; edges cannot.
    """
    first, *others = forms
    if not others:
        yield first, sys.maxsize
    order = chain((first,), cycle([form for form in (*others, first) if form.is_common]))
    spent = 0.0
    for form, following in pairwise(order):
        length = round(max(_PATIENCE * form.expected, following.expected, spent) / form.rounds)
        spent += max(1, length) * form.rounds
        yield form, max(1, length)


def in_turn(agent: Agent, forms: Sequence[Stage]) -> Program[Point]:
    """Run one agent in the first form, and in others, until the agents agree or all iterations are done."""
    start, done, ended = agent.x0, 0, list[CertifiedGap]()
    resumed = 0 if agent.resume is None else agent.resume.iteration
    for form, length in lengths(forms):
        if done + length >= resumed:
            x = yield from form.program(_stage(agent, start, done, length, ended))
            if ended or done + length >= agent.iterations:
                return x
            start = x if form.is_common else (yield from _mean(agent, x))
        done += length
    raise AssertionError("there is always another form")


def _stage(agent: Agent, start: Point, done: int, length: int, ended: list[CertifiedGap]) -> Agent:
    """Return the agent for the iterations after ``done``: they count from 1, and begin at ``start``."""

    def agree(certified: CertifiedGap) -> None:
        ended.append(certified)
        agent.agree(certified)

    resume = agent.resume if agent.resume is not None and agent.resume.iteration > done else None
    return replace(
        agent,
        x0=start,
        origin=agent.x0 if done else None,
        iterations=min(length, agent.iterations - done),
        observe=lambda k, x, dual=None: agent.observe(done + k, x, dual),
        on_save=lambda k, *states: agent.on_save(done + k, *states),
        agree=agree,
        resume=None if resume is None else replace(resume, iteration=resume.iteration - done),
    )


def _mean(agent: Agent, x: Point) -> Program[Point]:
    """Return the mean of all agents' points."""

    def answer(total: Value) -> Value:
        return (agent.X.restore(total[0] / agent.facts.agents),)

    (mean,) = yield from network_answer((x,), agent, answer)
    return mean
