"""What is measured of a run, and how; none of it is part of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.front.parts import Parts, as_parts
from dcgs.objectives.objective import Objective
from dcgs.points import Point, norm, vdot
from dcgs.runtime.wire import Array
from dcgs.sets.base import ConvexSet

if TYPE_CHECKING:
    import pandas as pd


@final
@dataclass(frozen=True)
class Quality:
    """What the agents' answers are worth."""

    local_loss: float
    mean_loss: float
    worst_loss: float
    disagreement: float
    gap: float


@final
@dataclass(frozen=True)
class Snapshot:
    """All measures after one iteration; messages, bytes, lmo_calls and projections are the busiest agent's.

    ``agents`` are the answers that were measured, for a callback to look at; histories keep none.
    """

    iterations: int
    rounds: int
    messages: int
    bytes: int
    lmo_calls: int
    projections: int
    seconds: float
    computing: float
    local_loss: float
    mean_loss: float
    worst_loss: float
    disagreement: float
    gap: float
    agents: Sequence[Point] = field(default=(), repr=False, compare=False)


@final
@dataclass(frozen=True, eq=False)
class History:
    """The measures of a run, one entry per recorded iteration; the first is x⁰'s.

    ``local_loss`` is Σᵢ fᵢ(xᵢ), the paper's; ``mean_loss`` f(x̄); ``worst_loss`` maxᵢ f(xᵢ), the worst
    agent's model on everyone's data; ``disagreement`` maxᵢ ‖xᵢ − x̄‖; ``gap`` the Wolfe gap of f at x̄,
    so that f(x̄) − f* ≤ gap. ``messages``, ``bytes``, ``lmo_calls`` and ``projections`` are those of the
    busiest agent. ``seconds`` is the wall clock here; ``computing`` adds up the slowest agent of each
    round, as if every agent had a machine of its own.
    """

    iterations: NDArray[np.int64]
    rounds: NDArray[np.int64]
    messages: NDArray[np.int64]
    bytes: NDArray[np.int64]
    lmo_calls: NDArray[np.int64]
    projections: NDArray[np.int64]
    seconds: NDArray[np.float64]
    computing: NDArray[np.float64]
    local_loss: NDArray[np.float64]
    mean_loss: NDArray[np.float64]
    worst_loss: NDArray[np.float64]
    disagreement: NDArray[np.float64]
    gap: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.iterations)

    def columns(self) -> dict[str, NDArray[np.int64] | NDArray[np.float64]]:
        """Return every measure by its name."""
        return {column.name: getattr(self, column.name) for column in fields(self)}

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with one column per measure."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame needs pandas; install it with: pip install 'dcgs[frame]'.") from error
        return pd.DataFrame(self.columns())


def as_history(snapshots: Sequence[Snapshot]) -> History:
    """Return the history of snapshots taken in turn."""
    whole = {column.name for column in fields(Snapshot) if column.type == "int"}
    columns: dict[str, Any] = {
        column.name: np.array(
            [getattr(row, column.name) for row in snapshots],
            dtype=np.int64 if column.name in whole else np.float64,
        )
        for column in fields(History)
    }
    return History(**columns)


def as_rows(snapshots: Sequence[Snapshot]) -> NDArray[np.float64]:
    """Return snapshots as numbers, a row each; counts are exact up to 2⁵³."""
    names = [column.name for column in fields(History)]
    return np.array([[getattr(row, name) for name in names] for row in snapshots], dtype=np.float64)


def from_rows(rows: NDArray[np.float64]) -> list[Snapshot]:
    """Return the snapshots that the rows are of."""
    kinds = {column.name: int if "int64" in str(column.type) else float for column in fields(History)}
    named: list[dict[str, Any]] = [
        {name: kind(value) for (name, kind), value in zip(kinds.items(), row, strict=True)}
        for row in rows.tolist()
    ]
    return [Snapshot(**row) for row in named]


def measure(objectives: Sequence[Objective] | Parts, X: ConvexSet, answers: Sequence[Point]) -> Quality:
    """Return what the answers of all agents are worth; needs everyone's data."""
    parts = as_parts(objectives)
    x_bar = average(answers)
    mean_loss, gap = certify(parts, X, x_bar)

    def compare(rows: Iterator[tuple[Array, ...]]) -> tuple[float, float, float]:
        losses = np.array([row for (row,) in rows])  # losses[i, j] = fᵢ(xⱼ)
        disagreement = max(norm(x - x_bar) for x in answers)
        return float(np.trace(losses)), float(losses.sum(axis=0).max()), disagreement

    local_loss, worst_loss, disagreement = parts.settle(lambda _, f: (np.array(f.values(answers)),), compare)
    return Quality(local_loss, mean_loss, worst_loss, disagreement, gap)


def average(answers: Sequence[Point]) -> Point:
    """Return the network average of the answers."""
    x_bar: Point = 0.0 * answers[0]
    for x in answers:
        x_bar += x
    x_bar /= len(answers)
    return x_bar


def certify(objectives: Sequence[Objective] | Parts, X: ConvexSet, x: Point) -> tuple[float, float]:
    """Return f(x) and the Wolfe gap of f = Σ fᵢ at x."""

    def part(_: int, f: Objective) -> tuple[Array, Array]:
        image = f.map.image(x)
        return np.array(f.loss.value(image)), f.map.adjoint(f.loss.grad(image))

    def total(parts: Iterator[tuple[Array, ...]]) -> tuple[float, float]:
        value, g = 0.0, np.zeros(X.shape)
        for own_value, own_g in parts:
            value += float(own_value)
            g += own_g
        return value, max(0.0, vdot(g, x) - X.lmo(g).dot(g))

    value, gap = as_parts(objectives).settle(part, total)
    return value, gap


def rounding(objectives: Sequence[Objective] | Parts, X: ConvexSet, x: Point) -> float:
    """Return about the gap at x that rounding error alone can make."""
    noise = as_parts(objectives).numbers(lambda _, f: [f.grad_noise(f.map.image(x))])
    return float(sum(noise[:, 0].tolist()) * X.diameter)
