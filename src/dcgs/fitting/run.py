"""Fit: from a configuration, everything that the user asked for, to a model for each agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from dcgs.datasets.store import sha256_of
from dcgs.fitting.data import DataSource
from dcgs.fitting.graphs import GraphSpec, LabeledGraph
from dcgs.fitting.loading import LoadedData, Loader
from dcgs.fitting.models import Model, ModelFile, model_name
from dcgs.fitting.problems import Problem
from dcgs.fitting.ratings import LoadedRatings, RatingsOptions, Site, load_ratings
from dcgs.fitting.readers import EntriesLayout, SamplesLayout
from dcgs.fitting.sets import SetSpec
from dcgs.front import Callback, Checkpoint, Result, minimize
from dcgs.methods import Method
from dcgs.runtime import ProcessGroup, Runtime

_MEASURES = ("local_loss", "mean_loss", "worst_loss", "disagreement", "gap")


@final
@dataclass(frozen=True)
class FitConfig:
    """What to fit, to which data, how, and when to stop.

    ``rules`` are the stopping rules of :func:`dcgs.minimize`. ``measure`` is the number of iterations between
    two measurements of all agents' losses; None: no measurements. ``shape`` is the shape of a matrix to
    complete; None: found from the data. ``ridge`` is that of the offsets of ratings; None: no offsets.
    """

    problem: Problem
    source: DataSource
    layout: SamplesLayout | EntriesLayout
    graph: GraphSpec
    set: SetSpec
    method: Method
    rules: Mapping[str, Any]
    agents: int | None = None
    shape: tuple[int, int] | None = None
    measure: int | None = None
    seed: int = 0
    checkpoint: Checkpoint | None = None
    ridge: float | None = 5.0

    def check(self) -> None:
        """Raise if the options contradict each other; read no file."""
        self.set.check()
        if self.measure is not None or self.method.stops_itself:
            return
        name = type(self.method).__name__
        if any(self.rules.get(rule) is not None for rule in ("gap", "gap_abs")):
            raise ValueError(
                f"a gap ends a run of {name} only if it is measured during the run, which needs all agents' "
                "losses. Add --measure, or use --method fastdcgs, whose agents certify the gap themselves."
            )
        if all(rule is None for rule in self.rules.values()):
            limits = "--rounds, --iterations or --seconds"
            if not self.method.projects:
                limits = "--rounds, --iterations, --seconds or --lmo-calls"
            raise ValueError(
                f"a run of {name} that is not measured must have a limit; got none. "
                f"Give {limits}; or --measure."
            )

    def count_agents(self, processes: int) -> int:
        """Return the number of agents: as given, or the number of nodes, of processes or of files."""
        if self.agents is not None:
            agents = self.agents
        elif processes == 1 and self.source.is_per_agent:
            agents = self.source.count_files()
        else:
            agents = self.graph.node_count() or (processes if processes > 1 else 0)
        if agents == 0:
            raise ValueError(
                "the number of agents must be given for one file of data; give --agents N, "
                "a graph that has a number of nodes, or a file for each agent with {agent} in its name."
            )
        self.source.check(agents)
        return agents


@final
@dataclass(frozen=True, eq=False)
class FitResult:
    """The result of a fit: that of the run, and a model for each hosted agent."""

    config: FitConfig
    data: LoadedData
    graph: LabeledGraph
    result: Result
    ratings: LoadedRatings | None = None

    @property
    def agents(self) -> int:
        """The number of all agents."""
        return len(self.graph.graph)

    @property
    def models(self) -> Mapping[int, ModelFile]:
        """The models of the hosted agents."""
        about = {
            "set": _set(self.config),
            "method": repr(self.config.method),
            "status": str(self.result.status),
            "agents": self.agents,
            "rounds": self.result.rounds,
            "seed": self.config.seed,
            "versions": self.result.about["versions"],
        }
        if self.ratings is not None:
            return self.ratings.models(self.result, about)
        return {
            int(i): Model(x, self.config.problem, self.data.reading, {"agent": int(i)} | about)
            for i, x in zip(self.result.hosted, self.result.agents, strict=True)
            if i in self.data.objectives
        }

    def summary(self, command: str) -> dict[str, Any]:
        """Return the content of summary.json."""
        config, result = self.config, self.result
        summary: dict[str, Any] = {
            "format": 1,
            "command": command,
            "problem": config.problem.name,
            "shape": list(self.data.shape),
            "status": str(result.status),
            "certified": result.status.success,
            "iterations": result.iterations,
            "rounds": result.rounds,
            "messages": int(result.messages.sum()),
            "bytes": int(result.bytes.sum()),
            "seconds": result.seconds,
            "agents": [self._agent(i) for i in range(self.agents)],
            "data": self._data(),
            "set": _set(config),
            "graph": {"name": config.graph.text, "edges": self.graph.graph.number_of_edges()},
            "method": result.about["method"],
            "runtime": result.about["runtime"],
            "seed": config.seed,
            "versions": result.about["versions"],
            "notes": list(result.notes),
        }
        if self.ratings is not None:
            summary |= self.ratings.summary()
        if "checkpoint" in result.about:
            summary["checkpoint"] = result.about["checkpoint"]
        if self.graph.labels is not None:
            summary["graph"]["agents are"] = list(self.graph.labels)
        history = self.history()
        if history is not None:
            summary["measures"] = {name: history[name][-1] for name in _MEASURES}
        return summary

    def history(self) -> dict[str, list[float]] | None:
        """Return the columns of history.csv; None if nothing was measured."""
        if self.config.measure is None:
            return None
        return {name: column.tolist() for name, column in self.result.history.columns().items()}

    def _agent(self, i: int) -> dict[str, Any]:
        """Return the counters of an agent; its number of rows only if it is hosted."""
        counters = ("messages", "bytes", "lmo_calls", "projections", "computing", "waiting")
        agent: dict[str, Any] = {"agent": i, "model": model_name(i)}
        agent |= {name: getattr(self.result, name)[i].item() for name in counters}
        return agent | ({"rows": self.data.rows[i]} if i in self.data.rows else {})

    def _data(self) -> dict[str, Any]:
        """Return which files this process read, with their checksums, and how."""
        source = self.config.source
        files = dict.fromkeys(source.file(i) for i in self.data.objectives)
        data: dict[str, Any] = {"files": {str(file): sha256_of(file) for file in files}}
        data |= {name: value for name, value in self.data.reading.items() if name != "names"}
        return data if source.is_per_agent else data | {"split": source.split}


def fit(
    config: FitConfig, runtime: Runtime, group: ProcessGroup, callback: Callback | None = None
) -> FitResult:
    """Read the data of the hosted agents, and minimize the sum of all agents' losses."""
    config.check()
    agents = config.count_agents(group.size)
    graph = config.graph.build(agents)
    ratings = None
    if isinstance(config.layout, EntriesLayout):
        options = RatingsOptions(config.shape, config.ridge)
        ratings = load_ratings(config.source, config.layout, options, Site(graph.graph, runtime, group))
        data = ratings.data
    else:
        loader = Loader(config.problem, config.source, agents, runtime.hosts(agents), group)
        data = loader.samples(config.layout)
    X = config.set.make(data.shape)
    group.barrier()  # a process that could not load ends the others here
    result = minimize(
        data.objectives,
        X,
        graph.graph,
        config.method,
        **config.rules,
        runtime=runtime,
        seed=config.seed,
        every=config.measure,
        callback=callback,
        checkpoint=config.checkpoint,
    )
    return FitResult(config, data, graph, result, ratings)


def _set(config: FitConfig) -> dict[str, Any]:
    """Return the set's name and the options that were given."""
    return {"name": config.set.name, **config.set.options}
