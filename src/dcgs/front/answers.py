"""The models that agents answer with: arrays, or matrices in factors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from dcgs.low_rank import LowRank, inner, stacked
from dcgs.points import Point, norm
from dcgs.runtime import ProcessGroup
from dcgs.runtime.encoding import Array

Model: TypeAlias = Point | LowRank


def average(answers: Sequence[Model]) -> Model:
    """Return the average of all agents' models.

    Models in factors have one right factor. If each agent has only its own rows, their average is the matrix
    with all rows.
    """
    first = answers[0]
    if isinstance(first, LowRank):
        return stacked([answer for answer in answers if isinstance(answer, LowRank)])
    if all(x is first or np.array_equal(x, first) for x in answers):
        return np.array(first)  # a sum would have rounding error
    x_bar: Point = 0.0 * first
    for x in answers:
        assert isinstance(x, np.ndarray)
        x_bar += x
    x_bar /= len(answers)
    return x_bar


def whole(answers: Sequence[Model]) -> list[Model]:
    """Return the models of all agents, each with the rows of all agents."""
    if isinstance(answers[0], LowRank):
        return [average(answers)] * len(answers)
    return list(answers)


def distance(x: Model, x_bar: Model) -> float:
    """Return the norm of the difference of an agent's model and the average."""
    if isinstance(x, LowRank) and isinstance(x_bar, LowRank):
        if x.V is x_bar.V or np.array_equal(x.V, x_bar.V):
            return 0.0
        if x.V.shape != x_bar.V.shape:
            return float("inf")
        a, b = LowRank(x_bar.U, x.V, x.shape), LowRank(x_bar.U, x_bar.V, x.shape)
        return float(np.sqrt(max(0.0, inner(a, a) - 2.0 * inner(a, b) + inner(b, b))))
    return norm(np.asarray(x) - np.asarray(x_bar))


def allgather_answers(group: ProcessGroup, answers: Mapping[int, Model]) -> dict[int, Model]:
    """Return the models of all agents, in all processes."""
    if group.size == 1:
        return dict(answers)
    arrays = group.allgather(_arrays(answers.values()))
    return dict(enumerate(_models(arrays, next(iter(answers.values())))))


def _arrays(answers: Iterable[Model]) -> Iterator[Array]:
    for answer in answers:
        if isinstance(answer, LowRank):
            rows = np.arange(len(answer.U)) if answer.rows is None else answer.rows
            yield from (answer.U, answer.V, rows.astype(np.int64), np.array([answer.rows is None], np.int64))
        else:
            yield answer


def _models(arrays: Sequence[Array], like: Model) -> Iterator[Model]:
    if not isinstance(like, LowRank):
        yield from arrays
        return
    for start in range(0, len(arrays), 4):
        U, V, rows, has_all = arrays[start : start + 4]
        yield LowRank(U, V, like.shape, None if has_all[0] else rows.astype(np.intp))
