"""The result of a run, and the file it is saved in."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.files import atomic_write
from dcgs.front.history import History
from dcgs.front.stopping import Status
from dcgs.low_rank import LowRank
from dcgs.npz import NpzReader
from dcgs.validation import PATH

_FORMAT = 7

CERTIFICATES = np.dtype(
    [("rounds", "i8"), ("bytes", "i8"), ("gap", "f8"), ("decrease", "f8"), ("kind", "U5")]
)
"""The columns of :attr:`Result.certificates`."""


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
        arrays |= _model_arrays(self.x, self.agents)
        arrays |= {f"history.{name}": column for name, column in self.history.columns().items()}
        facts = {name: getattr(self, name) for name in _FACTS}
        meta = np.array(json.dumps({"format": _FORMAT, "status": self.status.name, **facts}))
        return atomic_write(
            PATH(path, "path"), lambda stream: np.savez_compressed(stream, meta=meta, **arrays)
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Read a result written by :meth:`save`."""
        name = str(PATH(path, "path"))
        try:
            with open(name, "rb") as file:
                npz = NpzReader(file)
                arrays = {each: npz.array(each) for each in npz.names}
            meta: dict[str, Any] = json.loads(str(arrays.pop("meta")))
            version = meta.pop("format")
            loaded = _rebuilt(arrays, meta) if version == _FORMAT else None
        except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
            raise FileNotFoundError(f"path must be a file to read; {name!r}: {error.strerror}.") from error
        except Exception as error:  # a damaged file can fail anywhere: zip, arrays, JSON, names
            raise ValueError(
                f"{name!r} must be a result written by Result.save; it cannot be read as one."
            ) from error
        if loaded is None:
            raise ValueError(
                f"a result must be of format {_FORMAT}; {name!r} has {version!r}. "
                "Read it with the version of dcgs that wrote it."
            )
        return loaded


def _rebuilt(arrays: dict[str, Any], meta: dict[str, Any]) -> Result:
    history = History(**{each.name: arrays.pop(f"history.{each.name}") for each in fields(History)})
    status = Status[meta.pop("status")]
    notes = tuple(meta.pop("notes"))
    models = _models(arrays)
    return Result(status=status, history=history, notes=notes, **meta, **models, **arrays)


def _model_arrays(x: Any, agents: Any) -> dict[str, Any]:
    """Return the arrays of the models; all agents have the same matrix if it is in factors."""
    if not isinstance(x, LowRank):
        return {"x": x, "agents": agents}
    rows = {} if x.rows is None else {"x.rows": x.rows}
    return {"x.U": x.U, "x.V": x.V, "x.shape": np.array(x.shape), **rows}


def _models(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the models, and remove their arrays."""
    if "x.U" not in arrays:
        return {name: arrays.pop(name) for name in ("x", "agents")}
    rows, side = arrays.pop("x.rows", None), arrays.pop("x.shape").tolist()
    x = LowRank(arrays.pop("x.U"), arrays.pop("x.V"), (side[0], side[1]), rows)
    return {"x": x, "agents": (x,) * len(arrays["hosted"])}


_FACTS = ("iterations", "rounds", "seconds", "notes", "about")
_OTHERS = ("x", "agents", "status", "history")
_ARRAYS = [each.name for each in fields(Result) if each.name not in (*_FACTS, *_OTHERS)]
