"""An instance of ``dcgs bench time`` in a folder, with the data of each agent in a file of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import networkx as nx
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import dcgs
from dcgs.low_rank import LowRank
from dcgs.objectives.losses import LogisticLoss, SquaredLoss
from dcgs.objectives.sampling import Sampling
from dcgs_bench.entries import Adapted, entry_named, observed_sparsely
from dcgs_bench.study import StudyProblem

METHODS: Mapping[str, str] = {
    "fast-dcgs": "FastDCGS",
    "projected-agd": "ProjectedAGD",
    "dfw": "DFW",
    "nids": "NIDS",
    "pg-extra": "PGExtra",
}
"""The methods by their keys, with their names in ``dcgs bench time``.

The steps of DCGS and PrimalDual depend on the limit on rounds, and neither reaches 1e-3 on these instances.
"""
DEFAULT_METHODS = ("fast-dcgs", "projected-agd")
_SETS: Mapping[str, Any] = {kind.__name__: kind for kind in (dcgs.L1Ball, dcgs.L2Ball, dcgs.NuclearNormBall)}


def method(key: str) -> dcgs.Method:
    """Return the method as ``dcgs bench time`` runs it: with default settings, ended by the observer."""
    return Adapted(entry_named(METHODS[key]).method, observed_sparsely)


def settings(key: str) -> str:
    """Return the settings of the method as text."""
    return repr(entry_named(METHODS[key]).method)


@final
@dataclass(frozen=True, eq=False)
class InstanceFolder:
    """A folder that all processes see: ``agent-i.npz`` has agent i's data, and only that agent reads it."""

    folder: Path

    @property
    def facts(self) -> dict[str, Any]:
        """What all agents know: the graph and the set."""
        known: dict[str, Any] = json.loads((self.folder / "facts.json").read_text())
        return known

    @property
    def graph(self) -> nx.Graph:
        """The graph of the agents."""
        made = nx.Graph()
        made.add_nodes_from(range(self.facts["agents"]))
        made.add_edges_from(self.facts["edges"])
        return made

    @property
    def ball(self) -> Any:
        """The feasible set."""
        facts = self.facts
        return _SETS[facts["set"]](tuple(facts["shape"]), facts["radius"])

    def objective(self, i: int) -> dcgs.Objective:
        """Return agent i's objective, read anew: nothing that an earlier run has computed is in it."""
        with np.load(self.folder / f"agent-{i}.npz") as file:
            data = dict(file)
        if "rows" in data:
            d1, d2 = self.facts["shape"]
            return dcgs.MatrixCompletion(data["rows"], data["cols"], data["values"], (d1, d2))
        A = data["A"] if "A" in data else sp.csr_array(_csr(data), shape=tuple(data["size"]))
        return dcgs.Logistic(A, data["labels"]) if "labels" in data else dcgs.LeastSquares(A, data["b"])

    def models(self, key: str, repeat: int) -> list[NDArray[np.float64] | LowRank]:
        """Return the models that all agents ended with."""
        found = []
        for i in range(self.facts["agents"]):
            with np.load(self.folder / f"model-{key}-{repeat}-{i}.npz") as file:
                found.append(_model(dict(file)))
        return found


def write_instance(folder: Path, problem: StudyProblem) -> None:
    """Write what all agents know, and every agent's data in a file of its own."""
    X: Any = problem.X
    kind = type(X).__name__
    if kind not in _SETS:
        raise ValueError(f"the set of an instance must be one of {', '.join(_SETS)}; it is a {kind}.")
    facts = {
        "agents": len(problem.graph),
        "edges": sorted(sorted(edge) for edge in problem.graph.edges),
        "set": kind,
        "shape": list(X.shape),
        "radius": X.radius,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "facts.json").write_text(json.dumps(facts))
    for i, f in enumerate(problem.objectives):
        np.savez(folder / f"agent-{i}.npz", **_arrays(f))


def save_model(path: Path, model: NDArray[np.float64] | LowRank) -> None:
    """Write a model to a file; a matrix in factors stays in factors."""
    if isinstance(model, LowRank):
        rows: dict[str, Any] = {} if model.rows is None else {"rows": model.rows}
        np.savez(path, U=model.U, V=model.V, shape=np.array(model.shape), **rows)
    else:
        np.savez(path, x=model)


def _model(data: Mapping[str, Any]) -> NDArray[np.float64] | LowRank:
    if "x" in data:
        return np.asarray(data["x"])
    d1, d2 = data["shape"].tolist()
    return LowRank(data["U"], data["V"], (d1, d2), data.get("rows"))


def _arrays(f: dcgs.Objective) -> dict[str, Any]:
    """Return the data of an objective."""
    loss, map_ = f.loss, f.map
    if not isinstance(loss, SquaredLoss | LogisticLoss):
        kind = type(loss).__name__
        raise ValueError(f"the loss of an instance must be squared or logistic; it is a {kind}.")
    if isinstance(map_, Sampling):
        return {"rows": map_.rows, "cols": map_.cols, "values": next(iter(loss.data().values()))}
    A = f.data()["A"]
    if not sp.issparse(A):
        matrix: dict[str, Any] = {"A": A}
    else:
        matrix = {name: getattr(A, name) for name in ("data", "indices", "indptr")}
        matrix["size"] = np.array(A.shape)
    return matrix | ({"labels": loss.labels} if isinstance(loss, LogisticLoss) else {"b": loss.target})


def _csr(data: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return data["data"], data["indices"], data["indptr"]
