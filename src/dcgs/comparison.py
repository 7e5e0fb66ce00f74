"""Compare runs of one problem: a tidy table, and curves of several measures against what the runs cost."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.curves import COSTS, MEASURES, STYLE, draw, pyplot
from dcgs.run.result import History, Result
from dcgs.validation import PATH, instance, number, one_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# Runs of one problem from one x⁰ have the same f(x⁰), up to the rounding error of a sum over the data.
_SAME_START = 1e-6
_FINITE = number("be a finite number", lambda x: bool(np.isfinite(x)))
_FORMATS = ("pdf", "png", "svg")
_ABOVE_SEEN = "relative error of the worst agent\nabove the lowest loss seen"


@final
@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs of one problem by name, and the f* that relative errors refer to; see :func:`compare`.

    ``is_optimum`` is False if f* is the lowest loss that any run has seen, because none was given. Errors
    near it are then too small.

    >>> import dcgs, networkx as nx
    >>> from dcgs.datasets import lasso_synthetic
    >>> data, X = lasso_synthetic(samples=40, features=20, nonzeros=3), dcgs.L1Ball(20, radius=150.0)
    >>> run = dcgs.minimize(data.objectives(4), X, nx.cycle_graph(4), dcgs.DFW(), iterations=10)
    >>> comparison = dcgs.compare({"DFW": run}, optimum=0.0)
    >>> comparison.optimum, comparison.is_optimum
    (0.0, True)
    """

    histories: dict[str, History]
    optimum: float
    is_optimum: bool

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A pandas table in tidy form: one row for each measurement of each run.

        The columns are ``run``, all columns of the history, and ``relative``, the relative error of the worst
        agent's model, (worst_loss − f*) / (f(x⁰) − f*).
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("frame needs pandas; install it with: pip install 'dcgs[frame]'.") from error
        tables = [pd.DataFrame({"run": name, **columns}) for name, columns in self._columns.items()]
        return pd.concat(tables, ignore_index=True)

    def to_accuracy(self, relative: float = 1e-3, cost: str = "rounds") -> dict[str, float | None]:
        """Return what each run had spent when its relative error first was this low; None if it never was."""
        one_of(*COSTS)(cost, "cost")
        spent: dict[str, float | None] = {}
        for name, columns in self._columns.items():
            reached = np.flatnonzero(columns["relative"] <= relative)
            spent[name] = columns[cost][reached[0]].item() if reached.size else None
        return spent

    def plot(
        self, x: str = "rounds", y: str | Sequence[str] = ("relative", "gap", "disagreement"), title: str = ""
    ) -> Figure:
        """Return a figure with a panel for each measure of ``y``, each run a curve against the cost ``x``.

        ``x`` is rounds, bytes, lmo_calls, seconds, iterations, messages or computing. ``y`` has names of
        measures: relative, worst_loss, gap, disagreement, mean_loss, local_loss. The paper's ``local_loss``
        is drawn only beside ``worst_loss`` or ``relative``.
        """
        seen = {} if self.is_optimum else {"relative": _ABOVE_SEEN}
        return draw(self._columns, x, y, MEASURES | seen, title)

    def save(self, path: str | os.PathLike[str], **drawing: Any) -> Path:
        """Write the figure that :meth:`plot` draws with these arguments, and return the path.

        The ending of the path is pdf, png or svg. The folder is made if it does not exist.
        """
        file = PATH(path, "path")
        one_of(*_FORMATS)(file.suffix.removeprefix("."), "the ending of path")
        plt, figure = pyplot(), self.plot(**drawing)
        file.parent.mkdir(parents=True, exist_ok=True)
        dated: dict[str, Any] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
        with plt.rc_context(STYLE | {"svg.hashsalt": "dcgs"}):
            figure.savefig(file, dpi=300, metadata=dated.get(file.suffix[1:]))
        plt.close(figure)
        return file

    @cached_property
    def _columns(self) -> dict[str, dict[str, NDArray[Any]]]:
        tables = {}
        for name, history in self.histories.items():
            scale = float(history.mean_loss[0]) - self.optimum
            relative = (history.worst_loss - self.optimum) / (scale if scale > 0.0 else 1.0)
            tables[name] = {**history.columns(), "relative": relative}
        return tables


def compare(results: Mapping[str, Result | History], optimum: float | None = None) -> Comparison:
    """Compare runs of one problem, each with a name: a tidy table, and a figure to publish.

    ``optimum`` is f*, from a solver that you trust. Without it, relative errors refer to the lowest loss on
    all data that any of the runs has seen.

    >>> import dcgs, networkx as nx
    >>> from dcgs.datasets import lasso_synthetic
    >>> data, X = lasso_synthetic(samples=40, features=20, nonzeros=3), dcgs.L1Ball(20, radius=150.0)
    >>> methods = {"FastDCGS": dcgs.FastDCGS(), "DFW": dcgs.DFW()}
    >>> results = {
    ...     name: dcgs.minimize(data.objectives(4), X, nx.cycle_graph(4), method, rounds=40)
    ...     for name, method in methods.items()
    ... }
    >>> comparison = dcgs.compare(results)
    >>> last = comparison.frame.groupby("run").last()
    >>> bool(last.relative["FastDCGS"] < last.relative["DFW"])
    True
    >>> figure = comparison.plot(x="bytes")             # a matplotlib figure; comparison.save("runs.pdf")
    """
    instance(results, Mapping, "results", "be a mapping from names to results")
    histories = {str(name): _history(name, result) for name, result in results.items()}
    if not histories:
        raise ValueError("results must have at least one run; got none.")
    starts = {name: float(history.mean_loss[0]) for name, history in histories.items()}
    low, high = min(starts.values()), max(starts.values())
    if high - low > _SAME_START * max(abs(low), abs(high)):
        listed = ", ".join(f"{name}: {value:.6g}" for name, value in starts.items())
        raise ValueError(
            f"the runs must be of one problem from one x0, with one loss there; got {listed}. "
            "Compare runs of different problems separately."
        )
    seen = min(min(float(h.mean_loss.min()), float(h.worst_loss.min())) for h in histories.values())
    given = None if optimum is None else _FINITE(optimum, "optimum")
    return Comparison(histories, seen if given is None else float(given), given is not None)


def _history(name: str, result: Result | History) -> History:
    history = result
    if not isinstance(result, History):
        run: Result = instance(result, Result, f"results[{name!r}]", "be a dcgs.Result or a dcgs.History")
        history = run.history
    assert isinstance(history, History)
    if len(history) == 0:
        raise ValueError(
            f"results[{name!r}] must have measurements to compare; it has none, as of a run with every=None. "
            "Use every=1, or 0 for the start and the end."
        )
    return history
