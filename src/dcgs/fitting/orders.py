"""Fit: from what the user asked for to every agent's model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from dcgs.datasets.store import sha256_of
from dcgs.fitting.graphs import GraphWish, Wiring
from dcgs.fitting.loading import Loaded, Loader
from dcgs.fitting.models import Model, model_name
from dcgs.fitting.problems import Problem
from dcgs.fitting.readers import EntriesLayout, SamplesLayout
from dcgs.fitting.sets import SetWish
from dcgs.fitting.sites import Sites
from dcgs.front import Callback, Checkpoint, Result, minimize
from dcgs.methods import Method
from dcgs.runtime import ProcessGroup, Runtime


@final
@dataclass(frozen=True)
class Order:
    """All that is asked for. ``rules`` are the stopping rules, as :func:`dcgs.minimize` has them.

    ``measure``: after how many iterations to measure what needs everybody's loss; None is never. ``shape`` is
    that of a matrix to complete, where it is said.
    """

    problem: Problem
    sites: Sites
    layout: SamplesLayout | EntriesLayout
    graph: GraphWish
    set: SetWish
    method: Method
    rules: Mapping[str, Any]
    agents: int | None = None
    shape: tuple[int, int] | None = None
    measure: int | None = None
    seed: int = 0
    checkpoint: Checkpoint | None = None

    def check(self) -> None:
        """Raise if what is asked for cannot be, before any file is read."""
        self.set.check()
        if self.measure is not None or self.method.stops_itself:
            return
        name = type(self.method).__name__
        if self.rules.get("gap") is not None:
            raise ValueError(
                f"a gap ends a run of {name} only where it is measured on the way, which needs everybody's "
                "loss. Add --measure, or use --method fastdcgs, whose agents certify the gap themselves."
            )
        if all(rule is None for rule in self.rules.values()):
            raise ValueError(
                f"a run of {name} that is not measured must have a limit; got none. "
                "Give --rounds, --iterations, --seconds or --lmo-calls; or --measure."
            )


@final
@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit came to: the run, and a model for each agent hosted here."""

    order: Order
    loaded: Loaded
    wiring: Wiring
    result: Result

    @property
    def models(self) -> dict[int, Model]:
        """The models of the agents hosted here."""
        about = {
            "set": _said(self.order.set),
            "method": repr(self.order.method),
            "status": str(self.result.status),
            "agents": len(self.wiring.graph),
            "rounds": self.result.rounds,
            "seed": self.order.seed,
            "versions": self.result.about["versions"],
        }
        return {
            int(i): Model(x, self.order.problem, self.loaded.reading, {"agent": int(i)} | about)
            for i, x in zip(self.result.hosted, self.result.agents, strict=True)
            if i in self.loaded.objectives
        }

    def summary(self, command: str) -> dict[str, Any]:
        """Return what summary.json holds."""
        order, result = self.order, self.result
        summary: dict[str, Any] = {
            "format": 1,
            "command": command,
            "problem": order.problem.name,
            "shape": list(self.loaded.shape),
            "status": str(result.status),
            "certified": result.status.success,
            "iterations": result.iterations,
            "rounds": result.rounds,
            "messages": int(result.messages.sum()),
            "bytes": int(result.bytes.sum()),
            "seconds": result.seconds,
            "agents": [self._agent(i) for i in range(len(self.wiring.graph))],
            "data": self._data(),
            "set": _said(order.set),
            "graph": {"name": order.graph.text, "edges": self.wiring.graph.number_of_edges()},
            "method": result.about["method"],
            "runtime": result.about["runtime"],
            "seed": order.seed,
            "versions": result.about["versions"],
            "notes": list(result.notes),
        }
        if "checkpoint" in result.about:
            summary["checkpoint"] = result.about["checkpoint"]
        if self.wiring.names is not None:
            summary["graph"]["agents are"] = list(self.wiring.names)
        if order.measure is not None:
            last = {name: column[-1].item() for name, column in result.history.columns().items()}
            measures = ("local_loss", "mean_loss", "worst_loss", "disagreement", "gap")
            summary["measures"] = {name: last[name] for name in measures}
        return summary

    def history(self) -> dict[str, list[float]] | None:
        """Return the columns of history.csv; None where nothing was measured."""
        if self.order.measure is None:
            return None
        return {name: column.tolist() for name, column in self.result.history.columns().items()}

    def _agent(self, i: int) -> dict[str, Any]:
        """Return what is known of an agent; how many rows it has only where it is hosted."""
        result = self.result
        told: dict[str, Any] = {
            "agent": i,
            "model": model_name(i),
            "messages": int(result.messages[i]),
            "bytes": int(result.bytes[i]),
            "lmo_calls": int(result.lmo_calls[i]),
            "projections": int(result.projections[i]),
            "computing": float(result.computing[i]),
            "waiting": float(result.waiting[i]),
        }
        return told | ({"rows": self.loaded.rows[i]} if i in self.loaded.rows else {})

    def _data(self) -> dict[str, Any]:
        """Return which data were read here, with their checksums."""
        sites = self.order.sites
        files = dict.fromkeys(sites.file(i) for i in self.loaded.objectives)
        told: dict[str, Any] = {"files": {str(file): sha256_of(file) for file in files}}
        told |= {name: value for name, value in self.loaded.reading.items() if name != "names"}
        return told if sites.apart else told | {"split": sites.split}


def agents_of(order: Order, processes: int) -> int:
    """Return how many agents there are: as asked for, or as many as there are files, nodes or processes."""
    if order.agents is not None:
        agents = order.agents
    elif processes > 1:
        agents = order.graph.own_size() or processes
    elif order.sites.apart:
        agents = order.sites.found()
    else:
        own = order.graph.own_size()
        if own is None:
            raise ValueError(
                "how many agents there are must be said, for one file of data; give --agents N, "
                "a graph that tells, or a file for each agent with {agent} in its name."
            )
        agents = own
    order.sites.check(agents)
    return agents


def fit(order: Order, runtime: Runtime, group: ProcessGroup, callback: Callback | None = None) -> Fitted:
    """Read the data of the agents hosted here, and minimize the sum of all agents' losses."""
    order.check()
    agents = agents_of(order, group.size)
    wiring = order.graph.wire(agents)
    loaded = _load(order, agents, runtime.hosts(agents), group)
    X = order.set.made(loaded.shape)
    group.barrier()  # so that all know if one could not load
    result = minimize(
        loaded.objectives,
        X,
        wiring.graph,
        order.method,
        **order.rules,
        runtime=runtime,
        seed=order.seed,
        every=order.measure,
        callback=callback,
        checkpoint=order.checkpoint,
    )
    return Fitted(order, loaded, wiring, result)


def _load(order: Order, agents: int, hosted: range, group: ProcessGroup) -> Loaded:
    loader = Loader(order.problem, order.sites, agents, hosted, group)
    if isinstance(order.layout, EntriesLayout):
        return loader.entries(order.layout, order.shape)
    return loader.samples(order.layout)


def _said(wish: SetWish) -> dict[str, Any]:
    """Return the set's name and the options that were given."""
    options = {name: value for name, value in vars(wish).items() if value is not None and name != "name"}
    return {"name": wish.name} | options
