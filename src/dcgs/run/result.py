"""The result of a run, with its measurements, and the file it is saved in.

Measurements are no part of the run: no agent sees them, and no counter counts them.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.curves import draw
from dcgs.files import NpzReader, read_npz, write_npz
from dcgs.run.models import Model, form_of, pop_models
from dcgs.run.stopping import Status
from dcgs.validation import PATH

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_FORMAT = 7

CERTIFICATES = np.dtype(
    [("rounds", "i8"), ("bytes", "i8"), ("gap", "f8"), ("decrease", "f8"), ("kind", "U5")]
)
"""The columns of :attr:`Result.certificates`."""


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
OnModel: TypeAlias = Callable[[int, int, Any], object]
"""Called with the number of an agent, its iteration and its model."""
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
@dataclass(frozen=True, eq=False)
class Result:
    """The agents' models, why the run ended, what it cost, and its history.

    ``agents``, of shape (m, *X.shape), are the models of the agents ``hosted``, and ``x`` is their average.
    For matrix completion by FastDCGS, ``x`` is a :class:`LowRank` matrix, and ``agents`` a tuple of such.
    These are all agents, unless other processes ran some of them and nothing was measured. ``messages``,
    ``bytes`` (sent), ``lmo_calls``, ``projections`` and the seconds ``computing`` and ``waiting`` have one
    entry for each agent of the graph. ``notes`` are warnings about the numbers. ``about`` says how to repeat
    the run: method, seed, versions. ``certificates`` has a row for each gap that the agents certified on the
    way, also where nothing was measured: ``rounds`` and ``bytes`` of all agents up to then, the ``gap``,
    the ``decrease`` f(x⁰) − f(x), and the ``kind`` of lower bound: "wolfe", "dual" or "least". It is a NumPy
    array with these fields; pandas makes a table of it.

    >>> import dcgs, networkx as nx
    >>> from dcgs.datasets import lasso_synthetic
    >>> data = lasso_synthetic(samples=40, features=20, nonzeros=3)
    >>> X, graph = dcgs.L1Ball(20, radius=150.0), nx.cycle_graph(4)
    >>> result = dcgs.minimize(data.objectives(4), X, graph, dcgs.DFW(), iterations=10)
    >>> print(result.status)
    the limit on iterations was reached.
    >>> result.x.shape, result.agents.shape, result.rounds, result.lmo_calls
    ((20,), (4, 20), 20, array([10, 10, 10, 10]))
    """

    x: Any
    agents: Any
    hosted: NDArray[np.int64]
    status: Status
    iterations: int
    rounds: int
    messages: NDArray[np.int64]
    bytes: NDArray[np.int64]
    lmo_calls: NDArray[np.int64]
    projections: NDArray[np.int64]
    computing: NDArray[np.float64]
    waiting: NDArray[np.float64]
    seconds: float
    history: History
    notes: tuple[str, ...]
    about: dict[str, Any]
    certificates: NDArray[Any] = field(default_factory=lambda: np.zeros(0, CERTIFICATES))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the result to one file (NumPy's npz, no pickle), atomically, and return its path."""
        arrays: dict[str, Any] = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= form_of(self.x).to_file(self.x, self.agents)
        arrays |= {f"history.{name}": column for name, column in self.history.columns().items()}
        facts = {name: getattr(self, name) for name in _FACTS}
        meta = json.dumps({"format": _FORMAT, "status": self.status.name, **facts})
        return write_npz(PATH(path, "path"), {"meta": np.array(meta), **arrays})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Read a result written by :meth:`save`."""
        file = PATH(path, "path")
        loaded = read_npz(file, "a result written by Result.save", _read)
        if isinstance(loaded, Result):
            return loaded
        raise ValueError(
            f"a result must be of format {_FORMAT}; {str(file)!r} has {loaded!r}. "
            "Read it with the version of dcgs that wrote it."
        )


def _read(npz: NpzReader) -> Result | object:
    """Return the result in a file, or the number of its format if that is another one."""
    arrays: dict[str, Any] = {name: npz.array(name) for name in npz.names}
    meta: dict[str, Any] = json.loads(str(arrays.pop("meta")))
    version: object = meta.pop("format")
    if version != _FORMAT:
        return version
    history = History(**{column.name: arrays.pop(f"history.{column.name}") for column in fields(History)})
    status, notes = Status[meta.pop("status")], tuple(meta.pop("notes"))
    models = pop_models(arrays)
    return Result(status=status, history=history, notes=notes, **meta, **models, **arrays)


_FACTS = ("iterations", "rounds", "seconds", "notes", "about")
_OTHERS = ("x", "agents", "status", "history")
_ARRAYS = [column.name for column in fields(Result) if column.name not in (*_FACTS, *_OTHERS)]
