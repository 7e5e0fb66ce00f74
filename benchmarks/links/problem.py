"""The problem, each agent's share of the data in a file of its own, and the methods that run on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import final

import networkx as nx
import numpy as np
from numpy.typing import NDArray

import dcgs
from dcgs.datasets import Ratings, completion_synthetic, movielens100k

RADIUS = 1e4
# As `dcgs reproduce` has them for these ratings.
_HORIZON, _PRECISION, _SCALE = 20, 0.1, 0.3
_HELD_OUT = 0.2
# These methods do not finish their first iteration in 90 seconds either.
_SHORT = 30.0


@final
@dataclass(frozen=True)
class Entry:
    """A method under a label, made from an estimate of ‖x⁰ − x*‖; ``seconds`` is how long it runs."""

    label: str
    make: Callable[[float], dcgs.Method]
    seconds: float = 90.0


def _dcgs(answer: str, balance: float = 1.0) -> Callable[[float], dcgs.Method]:
    def make(distance: float) -> dcgs.Method:
        schedule = dcgs.Theorem1(balance=balance, distance=distance, horizon=_HORIZON)
        return dcgs.DCGS(schedule=schedule, answer="last" if answer == "last" else "average")

    return make


def _primal_dual(distance: float) -> dcgs.Method:
    return dcgs.PrimalDual(schedule=dcgs.Theorem1(horizon=_HORIZON), precision=_PRECISION)


ENTRIES: Mapping[str, Entry] = {
    "dfw": Entry("DFW", lambda _: dcgs.DFW()),
    "dcgs-average": Entry("DCGS, Theorem 1, average", _dcgs("average"), _SHORT),
    "dcgs-last": Entry("DCGS, Theorem 1, last iterate", _dcgs("last"), _SHORT),
    "dcgs-scaled": Entry(f"DCGS, η × {_SCALE:g}, last iterate", _dcgs("last", _SCALE), _SHORT),
    "primal-dual": Entry("Primal-dual (Algorithm 1)", _primal_dual, _SHORT),
    "fast-dcgs": Entry("FastDCGS", lambda _: dcgs.FastDCGS()),
    "nids": Entry("NIDS", lambda _: dcgs.NIDS()),
    "pg-extra": Entry("PG-EXTRA", lambda _: dcgs.PGExtra()),
    "projected-agd": Entry("Projected AGD", lambda _: dcgs.ProjectedAGD()),
}


@final
@dataclass(frozen=True, eq=False)
class ProblemFolder:
    """A folder that all processes see: ``agent-i.npz`` has agent i's ratings, and only that agent reads it.

    ``places.npz`` has the rows and columns of all ratings, without their values. Recorders sample models
    there, so that losses can be computed afterwards without sending a model.
    """

    folder: Path

    @property
    def facts(self) -> dict[str, float]:
        """What all agents know: agents, rows, columns, radius, and an estimate of ‖x⁰ − x*‖."""
        known: dict[str, float] = json.loads((self.folder / "facts.json").read_text())
        return known

    @property
    def graph(self) -> nx.Graph:
        """The cycle of all agents, or the edge between two."""
        return cycle(int(self.facts["agents"]))

    @property
    def ball(self) -> dcgs.NuclearNormBall:
        """The feasible set."""
        return dcgs.NuclearNormBall(self.shape, self.facts["radius"])

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a model."""
        return int(self.facts["rows"]), int(self.facts["columns"])

    def objective(self, i: int) -> dcgs.Objective:
        """Return agent i's objective."""
        with np.load(self.folder / f"agent-{i}.npz") as data:
            return dcgs.MatrixCompletion(data["rows"], data["cols"], data["values"], self.shape)

    def places(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return rows and columns of all ratings: the agents' in turn, then those held out."""
        with np.load(self.folder / "places.npz") as data:
            return data["rows"], data["cols"]


def cycle(agents: int) -> nx.Graph:
    """Return the cycle of the agents; two have one edge.

    >>> [len(cycle(m).edges) for m in (1, 2, 3, 10)]
    [0, 1, 3, 10]
    """
    return nx.cycle_graph(agents) if agents > 2 else nx.path_graph(agents)


def ratings(quick: bool, path: Path | None) -> Ratings:
    """Return MovieLens 100K, or a small synthetic matrix for a trial; nothing is downloaded."""
    if quick:
        return completion_synthetic(side=60, rank=3, entries=1800, seed=0)
    return movielens100k(path, download=False)


def write_shares(folder: Path, data: Ratings, agents: int, radius: float) -> tuple[Ratings, Ratings]:
    """Write every agent's share into the folder; return the ratings for training and those held out."""
    known, held_out = data.split(_HELD_OUT, seed=0)
    folder.mkdir(parents=True, exist_ok=True)
    for i, (low, high) in enumerate(shares(len(known), agents)):
        share = known.take(np.arange(low, high))
        np.savez(folder / f"agent-{i}.npz", rows=share.rows, cols=share.cols, values=share.values)
    rows, cols = (
        np.concatenate(parts) for parts in ((known.rows, held_out.rows), (known.cols, held_out.cols))
    )
    np.savez(folder / "places.npz", rows=rows, cols=cols)
    facts = {
        "agents": agents,
        "rows": data.shape[0],
        "columns": data.shape[1],
        "radius": radius,
        "distance": float(np.linalg.norm(known.values)),
    }
    (folder / "facts.json").write_text(json.dumps(facts))
    return known, held_out


def shares(count: int, agents: int) -> list[tuple[int, int]]:
    """Return where each agent's ratings begin and end.

    >>> shares(7, 3)
    [(0, 2), (2, 4), (4, 7)]
    """
    edges = [count * i // agents for i in range(agents + 1)]
    return list(pairwise(edges))
