"""Measurements of a run. They are no part of the run: no agent sees them, and no counter counts them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.atoms import RankOne
from dcgs.front.agent_models import Model
from dcgs.front.curves import draw
from dcgs.front.distributed import DistributedObjective, as_distributed
from dcgs.low_rank import LowRank
from dcgs.objectives.objective import Objective
from dcgs.objectives.sampling import Sampling
from dcgs.points import vdot
from dcgs.runtime.encoding import Array
from dcgs.sets.base import ConvexSet, LowerBound

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@final
@dataclass(frozen=True)
class Snapshot:
    """All measurements after one iteration; see :class:`History` for their meaning.

    ``agents`` are the models that were measured, for a callback; a history does not store them.

    >>> import dcgs, networkx as nx
    >>> from dcgs.datasets import lasso_synthetic
    >>> data = lasso_synthetic(samples=40, features=20, nonzeros=3)
    >>> X, graph = dcgs.L1Ball(20, radius=150.0), nx.cycle_graph(4)
    >>> def halved(snapshot):
    ...     return snapshot.gap <= 0.5 * snapshot.worst_loss
    >>> result = dcgs.minimize(data.objectives(4), X, graph, dcgs.DFW(), iterations=500, callback=halved)
    >>> print(result.status)
    the callback ended the run.
    """

    iterations: int
    rounds: int
    messages: int
    bytes: int
    peak_bytes: int
    lmo_calls: int
    projections: int
    seconds: float
    computing: float
    local_loss: float
    mean_loss: float
    worst_loss: float
    disagreement: float
    gap: float
    certified_gap: float = math.nan
    agents: Sequence[Model] = field(default=(), repr=False, compare=False)


Callback: TypeAlias = Callable[[Snapshot], bool | None]
"""Called with each recorded measurement; the run ends when it returns True."""


@final
@dataclass(frozen=True, eq=False)
class History:
    """The measurements of a run, one entry per recorded iteration; the first is that of x⁰.

    ``local_loss`` is Σᵢ fᵢ(xᵢ), the paper's. ``mean_loss`` is f(x̄) at the network average x̄. ``worst_loss``
    is maxᵢ f(xᵢ), the worst agent's model on everyone's data. ``disagreement`` is maxᵢ ‖xᵢ − x̄‖. ``gap``
    is the Wolfe gap of f at x̄, so that f(x̄) − f* ≤ gap, up to the tolerance of the oracle of the set; the gap
    that ends a run is proven without the oracle. ``certified_gap`` is the smallest that the agents had
    certified by then, of a model that they all had; nan before the first. ``messages``, ``bytes``,
    ``lmo_calls`` and ``projections`` are the largest of any agent. ``peak_bytes`` sums over rounds the most
    bytes that an agent sent in that round: a round takes as long as its busiest agent sends. Runs without
    common rounds have ``bytes`` there. ``seconds`` is wall-clock time without measurements.
    ``computing`` sums the time of the slowest agent of each round, as if every agent had its own machine.

    >>> import dcgs, networkx as nx
    >>> from dcgs.datasets import lasso_synthetic
    >>> data = lasso_synthetic(samples=40, features=20, nonzeros=3)
    >>> X, graph = dcgs.L1Ball(20, radius=150.0), nx.cycle_graph(4)
    >>> history = dcgs.minimize(data.objectives(4), X, graph, dcgs.DFW(), iterations=10).history
    >>> len(history), int(history.rounds[-1]), bool(history.worst_loss[-1] < history.worst_loss[0])
    (11, 20, True)
    >>> history.to_frame()[["rounds", "lmo_calls"]].tail(2)
        rounds  lmo_calls
    9       18          9
    10      20         10
    """

    iterations: NDArray[np.int64]
    rounds: NDArray[np.int64]
    messages: NDArray[np.int64]
    bytes: NDArray[np.int64]
    peak_bytes: NDArray[np.int64]
    lmo_calls: NDArray[np.int64]
    projections: NDArray[np.int64]
    seconds: NDArray[np.float64]
    computing: NDArray[np.float64]
    local_loss: NDArray[np.float64]
    mean_loss: NDArray[np.float64]
    worst_loss: NDArray[np.float64]
    disagreement: NDArray[np.float64]
    gap: NDArray[np.float64]
    certified_gap: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.iterations)

    def columns(self) -> dict[str, NDArray[np.int64] | NDArray[np.float64]]:
        """Return every column by its name."""
        return {column.name: getattr(self, column.name) for column in fields(self)}

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with one column per measurement."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame needs pandas; install it with: pip install 'dcgs[frame]'.") from error
        return pd.DataFrame(self.columns())

    def plot(
        self, x: str = "rounds", y: str | Sequence[str] = ("worst_loss", "gap", "disagreement")
    ) -> Figure:
        """Draw measures against a cost, a panel each; save it with ``savefig("run.pdf")``, or png, or svg.

        ``x`` is rounds, bytes, lmo_calls, seconds, iterations, messages or computing. To draw several runs,
        see :func:`compare`.
        """
        return draw({"": self.columns()}, x, y)


_COLUMNS = {column.name: int if "int64" in str(column.type) else float for column in fields(History)}


def as_history(snapshots: Sequence[Snapshot]) -> History:
    """Return snapshots as a history."""
    return History(
        **{name: np.array([getattr(row, name) for row in snapshots], kind) for name, kind in _COLUMNS.items()}
    )


def as_rows(snapshots: Sequence[Snapshot]) -> NDArray[np.float64]:
    """Return snapshots as rows of numbers; counts are exact up to 2⁵³."""
    return np.array([[getattr(row, name) for name in _COLUMNS] for row in snapshots], dtype=np.float64)


def from_rows(rows: NDArray[np.float64]) -> list[Snapshot]:
    """Return the snapshots of rows of numbers."""
    kinds: list[Any] = list(_COLUMNS.values())  # in the order of the fields of a snapshot
    return [Snapshot(*(kind(x) for kind, x in zip(kinds, row, strict=True))) for row in rows.tolist()]


@final
@dataclass(frozen=True)
class Evaluation:
    """f(x), the Wolfe gap of f at x, and the rounding error of the bound that it was found with."""

    value: float
    gap: float
    error: float


def certify(
    objectives: Sequence[Objective] | DistributedObjective, X: ConvexSet, x: Model
) -> tuple[float, float]:
    """Return f(x) and an upper bound of the Wolfe gap of f = Σ fᵢ at x, whatever the oracle finds."""
    found = evaluate(as_distributed(objectives), X, x, slack=0.0)
    return found.value, max(0.0, found.gap) + found.error


def evaluate(f: DistributedObjective, X: ConvexSet, x: Model, slack: float | None) -> Evaluation:
    """Return f(x) and the Wolfe gap at x, by the oracle if ``slack`` is None.

    Else the gap is an upper bound, whatever the oracle finds; it may be too large by the slack.
    """
    if isinstance(x, LowRank):
        return _evaluate_in_factors(f, X, x, slack)

    def value_and_gradient(_: int, part: Objective) -> tuple[Array, Array]:
        image = part.map.image(x)
        return np.array(part.loss.value(image)), part.map.adjoint(part.loss.grad(image))

    def total(terms: Iterator[tuple[Array, ...]]) -> tuple[float, ...]:
        value, g = 0.0, np.zeros(X.shape)
        for value_i, g_i in terms:
            value += float(value_i)
            g += g_i
        s = X.lmo(g)
        bound = LowerBound(s.dot(g)) if slack is None else X.lower_bound(g, s, slack)
        return value, vdot(g, x) - bound.value, bound.error

    return Evaluation(*f.reduce(value_and_gradient, total))


def _evaluate_in_factors(
    f: DistributedObjective, X: ConvexSet, x: LowRank, slack: float | None
) -> Evaluation:
    """Return f(x) and the Wolfe gap at a matrix in factors, from the entries of the sparse gradient."""

    def value_and_entries(_: int, part: Objective) -> tuple[Array, ...]:
        assert isinstance(part.map, Sampling)
        image = part.map.image(x)
        r = part.loss.grad(image)
        numbers = np.array([part.loss.value(image), float(r @ image)])
        return numbers, r, part.map.rows.astype(np.int64), part.map.cols.astype(np.int64)

    def total(terms: Iterator[tuple[Array, ...]]) -> tuple[float, ...]:
        value, slope, entries, rows, cols = 0.0, 0.0, [], [], []
        for numbers, r, i, j in terms:
            value, slope = value + float(numbers[0]), slope + float(numbers[1])
            entries.append(r)
            rows.append(i)
            cols.append(j)
        where = np.concatenate(rows), np.concatenate(cols)
        G: Any = sp.csr_array((np.concatenate(entries), where), shape=X.shape)
        s = X.lmo(G)
        assert isinstance(s, RankOne)
        found = LowerBound(s.scale * float(s.u @ (G @ s.v)))
        bound = found if slack is None else X.lower_bound(G, s, slack)
        return value, slope - bound.value, bound.error

    return Evaluation(*f.reduce(value_and_entries, total))
