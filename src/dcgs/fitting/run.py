"""Fit: from a configuration, everything that the user asked for, to a model for each agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from dcgs.datasets.store import sha256_of
from dcgs.fitting.agreement import Agreement
from dcgs.fitting.data import DataSource
from dcgs.fitting.graphs import GraphSpec, LabeledGraph
from dcgs.fitting.loading import LoadedData
from dcgs.fitting.models import Model, ModelFile, model_name
from dcgs.fitting.problems import Problem
from dcgs.fitting.ratings import LoadedRatings, RatingsOptions, Site, load_ratings
from dcgs.fitting.readers import EntriesLayout, SamplesLayout
from dcgs.fitting.sample_fit import SampleFit, SampleOptions, sample_problem
from dcgs.fitting.samples import SiteReader
from dcgs.fitting.sets import SetSpec
from dcgs.front import Callback, Checkpoint, Result, minimize
from dcgs.methods import Method
from dcgs.objectives import Objective
from dcgs.points import Point
from dcgs.preprocessing.reductions import Reductions, Sent
from dcgs.runtime import ProcessGroup, Runtime
from dcgs.sets import ConvexSet

_MEASURES = ("local_loss", "mean_loss", "worst_loss", "disagreement", "gap")


@final
@dataclass(frozen=True)
class FitConfig:
    """What to fit, to which data, how, and when to stop.

    ``rules`` are the stopping rules of :func:`dcgs.minimize`. ``measure`` is the number of iterations between
    two measurements of all agents' losses; None: no measurements. ``shape`` is the shape of a matrix to
    complete; None: found from the data. ``ridge`` is that of the offsets of ratings; None: no offsets.
    ``samples`` is for all problems but completion.
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
    samples: SampleOptions = field(default_factory=SampleOptions)
    ridge: float | None = 5.0

    def check(self) -> None:
        """Raise if the options contradict each other; read no file."""
        self.set.check()
        if self.set.finds_radius and self.problem.entries:
            raise ValueError(f"--radius auto is not for {self.problem.name}; give a number.")
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
    samples: SampleFit | None = None
    ratings: LoadedRatings | None = None

    @property
    def agents(self) -> int:
        """The number of all agents."""
        return len(self.graph.graph)

    @property
    def models(self) -> Mapping[int, ModelFile]:
        """The models of the hosted agents."""
        return self.linear_models if self.ratings is None else self.ratings.models(self.result, self.about)

    @property
    def linear_models(self) -> dict[int, Model]:
        """The models of the hosted agents, for samples; empty for ratings."""
        problem, reading, about = self.config.problem, self.data.reading, self.about
        return {
            i: Model(model.coef, problem, reading, {"agent": i} | about, model.intercept)
            for i, model in ({} if self.samples is None else self.samples.models).items()
        }

    @property
    def about(self) -> dict[str, Any]:
        """What a model says of its fit."""
        result, gap = self.result, self.certified_gap
        about: dict[str, Any] = {
            "set": _set(self.config),
            "method": repr(self.config.method),
            "status": str(result.status),
            "certified": result.status.success,
            "gap": gap,
            "agents": self.agents,
            "rounds": result.rounds,
            "bytes": int(result.bytes.sum()),
            "seed": self.config.seed,
            "versions": result.about["versions"],
        }
        return about if self.samples is None else about | self.samples.about()

    @property
    def certified_gap(self) -> dict[str, float] | None:
        """The last gap that was certified, absolute and as a share of the decrease of the loss."""
        rows = self.result.certificates
        if len(rows) == 0:
            return None
        gap, decrease = float(rows[-1, 2]), float(rows[-1, 3])
        return {
            "gap": max(gap, 0.0),
            "decrease": decrease,
            **({"share": max(gap, 0.0) / decrease} if decrease > 0 else {}),
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
        summary["gap"] = self.certified_gap
        if self.samples is not None:
            summary |= self.samples.summary()
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
        data |= {name: value for name, value in self.data.reading.items() if name not in ("names", "columns")}
        return data if source.is_per_agent else data | {"split": source.split}


def fit(
    config: FitConfig,
    runtime: Runtime,
    group: ProcessGroup,
    callback: Callback | None = None,
    observed: Callable[[Runtime], Runtime] = lambda runtime: runtime,
) -> FitResult:
    """Read the data of the hosted agents, and minimize the sum of all agents' losses.

    ``observed`` returns the runtime of the run itself, which may report its progress.
    """
    config.check()
    agents = config.count_agents(group.size)
    graph = config.graph.build(agents)
    if isinstance(config.layout, EntriesLayout):
        options = RatingsOptions(config.shape, config.ridge)
        ratings = load_ratings(config.source, config.layout, options, Site(graph.graph, runtime, group))
        data = ratings.data
        X = config.set.make(data.shape)
        group.barrier()  # a process that could not load ends the others here
        result = _minimize(config, data.objectives, X, graph, observed(runtime), callback)
        return FitResult(config, data, graph, result, ratings=ratings)
    return _fit_samples(config, config.layout, graph, SampleRun(runtime, observed(runtime), group, callback))


@final
@dataclass(frozen=True, eq=False)
class SampleRun:
    """How a fit of samples is run: ``runtime`` before and after the run, ``observed`` during the run."""

    runtime: Runtime
    observed: Runtime
    group: ProcessGroup
    callback: Callback | None


def _fit_samples(config: FitConfig, layout: SamplesLayout, graph: LabeledGraph, how: SampleRun) -> FitResult:
    agents, group = len(graph.graph), how.group
    agreement = Agreement(Reductions(graph.graph, how.runtime), config.source.describe)
    reader = SiteReader(config.source, agents, agreement, group, config.problem.labels)
    options = config.samples.resolved(config.problem, config.set.name)
    prepared = reader.prepare(layout, options.preparation)
    problem = sample_problem(prepared, config.problem, options, agreement, group)
    shape, path = (prepared.width,), None
    if config.set.finds_radius:
        spec = config.set
        path = problem.path(lambda radius: spec.with_radius(radius).make(shape), config.seed, how.observed)
        sent_here = np.array([float(path.bytes)])
        path = replace(path, bytes=int(np.sum(group.allgather([sent_here]))))
        config = replace(config, set=config.set.with_radius(path.best.radius))
    X = config.set.make(shape)
    rows = {i: len(site.targets) for i, site in prepared.fitted.items()}
    objectives = problem.objectives
    group.barrier()  # a process that could not load ends the others here
    result = _minimize(
        config, objectives, problem.set_of(X), graph, how.observed, how.callback, problem.start(X)
    )
    models = {
        int(i): problem.model(x)
        for i, x in zip(result.hosted, result.agents, strict=True)
        if int(i) in prepared.fitted
    }
    scores = problem.scores(models)
    data = LoadedData(objectives, shape, prepared.reading, rows)
    sent = _sent_by_all(agreement.network, group)
    return FitResult(config, data, graph, result, SampleFit(problem, models, scores, sent, path))


def _minimize(
    config: FitConfig,
    objectives: Mapping[int, Objective],
    X: ConvexSet,
    graph: LabeledGraph,
    runtime: Runtime,
    callback: Callback | None,
    x0: Point | None = None,
) -> Result:
    return minimize(
        objectives,
        X,
        graph.graph,
        config.method,
        **config.rules,
        runtime=runtime,
        seed=config.seed,
        x0=x0,
        every=config.measure,
        callback=callback,
        checkpoint=config.checkpoint,
    )


def _sent_by_all(network: Reductions, group: ProcessGroup) -> tuple[Sent, ...]:
    """Return what was sent before and after the run, by all agents; what has one name is added up."""
    own = np.array([(each.bytes, each.numbers) for each in network.sent], dtype=np.float64)
    everyone = group.allgather([own])
    sent, numbers = np.sum(everyone, axis=0)[:, 0].tolist(), np.max(everyone, axis=0)[:, 1].tolist()
    merged: dict[tuple[str, str], Sent] = {}
    for each, more, most in zip(network.sent, sent, numbers, strict=True):
        before = merged.setdefault((each.name, each.operation), replace(each, rounds=0, bytes=0))
        merged[each.name, each.operation] = replace(
            before,
            numbers=max(before.numbers, int(most)),
            rounds=before.rounds + each.rounds,
            bytes=before.bytes + int(more),
        )
    return tuple(merged.values())


def _set(config: FitConfig) -> dict[str, Any]:
    """Return the set's name and the options that were given."""
    return {"name": config.set.name, **config.set.options}
