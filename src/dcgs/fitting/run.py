"""Fit: from a configuration to a model for each agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from dcgs.fitting.agreement import Agreement
from dcgs.fitting.class_runs import checkpoint_of
from dcgs.fitting.config import FitConfig
from dcgs.fitting.data import LoadedData
from dcgs.fitting.fit_result import FitResult, SampleFit
from dcgs.fitting.graphs import LabeledGraph
from dcgs.fitting.ratings import Site, load_ratings
from dcgs.fitting.readers import EntriesLayout, SamplesLayout
from dcgs.fitting.sample_problem import ModelProblem, SampleProblem, sample_problem
from dcgs.fitting.samples import SiteReader
from dcgs.fitting.site_records import check_options, exchange_records, file_notes, has_own_files
from dcgs.front import Callback, Result, minimize
from dcgs.objectives import Objective
from dcgs.points import Point
from dcgs.preprocessing import LinearModel, Path, Reductions, Sent, stacked
from dcgs.preprocessing.ratings_path import ratings_path
from dcgs.runtime import ProcessGroup, Runtime
from dcgs.sets import ConvexSet


def fit(
    config: FitConfig,
    runtime: Runtime,
    group: ProcessGroup,
    callback: Callback | None = None,
    observed: Callable[[Runtime], Runtime] = lambda runtime: runtime,
    note: Callable[[str], object] = lambda text: None,
) -> FitResult:
    """Read the data of the hosted agents, and minimize the sum of all agents' losses.

    ``observed`` returns the runtime of the run itself, which may report its progress. ``note`` is called with
    each note on files and data, before the run.
    """
    config.check()
    agents = config.count_agents(group.size)
    records = exchange_records(config, agents, runtime.hosts(agents), group)
    with group.common_errors():
        check_options(records)
        config = replace(config, source=replace(config.source, own=has_own_files(records)))
    graph = config.graph.build(agents)
    how = FitRun(runtime, observed(runtime), group, callback, note)
    notes = how.noted(file_notes(records))
    if isinstance(config.layout, EntriesLayout):
        fitted = _fit_ratings(config, config.layout, graph, how)
    else:
        fitted = _fit_samples(config, config.layout, graph, how)
    (own,) = (record for record in records if runtime.hosts(agents)[0] in record.agents)
    return replace(fitted, notes=notes, checksums={name: sums.split()[0] for name, sums in own.files})


@final
@dataclass(frozen=True, eq=False)
class FitRun:
    """How a fit is run: ``runtime`` before and after the run, ``observed`` during the run."""

    runtime: Runtime
    observed: Runtime
    group: ProcessGroup
    callback: Callback | None
    note: Callable[[str], object]

    def noted(self, notes: Sequence[str]) -> tuple[str, ...]:
        """Return the notes after the user has got them."""
        for text in notes:
            self.note(text)
        return tuple(notes)


def _fit_ratings(config: FitConfig, layout: EntriesLayout, graph: LabeledGraph, how: FitRun) -> FitResult:
    ratings = load_ratings(config, layout, Site(graph.graph, how.runtime, how.group))
    if config.set.finds_radius:
        network = Reductions(graph.graph, how.observed)
        path = _with_all_bytes(ratings_path(ratings.parts, ratings.task, network, config.seed), how.group)
        ratings = replace(ratings, path=path, path_sent=_sent_by_all(network, how.group))
        config = replace(config, set=config.set.with_radius(path.best.radius))
    X = config.set.make(ratings.data.shape)
    how.group.barrier()  # a process that could not load ends the others here
    result = _minimize(config, ratings.objectives, X, graph, how)
    return FitResult(config, ratings.data, graph, {"": result}, ratings=ratings)


def _with_all_bytes(path: Path, group: ProcessGroup) -> Path:
    """Return the path with the bytes that the agents of all processes sent for it."""
    return replace(path, bytes=int(np.sum(group.allgather([np.array([float(path.bytes)])]))))


def _fit_samples(config: FitConfig, layout: SamplesLayout, graph: LabeledGraph, how: FitRun) -> FitResult:
    agents, group = len(graph.graph), how.group
    agreement = Agreement(Reductions(graph.graph, how.runtime), config.source.describe)
    reader = SiteReader(config.source, agents, agreement, group, config.problem.labels)
    options = config.samples.resolved(config.problem, config.set.name)
    prepared = reader.prepare(layout, options.preparation)
    problem = sample_problem(prepared, config.problem, options, agreement, group)
    how.noted(agreement.notes)
    group.barrier()  # a process that could not load ends the others here
    paths = _paths(config, problem, how) if config.set.finds_radius else {}
    runs, models = {}, []
    for n, each in enumerate(problem.models):
        one = replace(config, checkpoint=checkpoint_of(config.checkpoint, n, len(problem.models)))
        if paths:
            one = replace(one, set=config.set.with_radius(paths[each.label].best.radius))
        X = one.set.make((prepared.width,))
        runs[each.label] = _minimize(one, each.objectives, each.set_of(X), graph, how, each.start(X))
        models.append(_models(each, runs[each.label]))
    config = one if len(problem.models) == 1 else config
    own = models[0] if len(models) == 1 else {i: stacked([each[i] for each in models]) for i in models[0]}
    scores = problem.scores(own)
    rows = {i: len(site.targets) for i, site in prepared.fitted.items()}
    data = LoadedData((prepared.width,), prepared.reading, rows)
    sent = _sent_by_all(agreement.network, group)
    return FitResult(config, data, graph, runs, SampleFit(problem, own, scores, sent, paths))


def _paths(config: FitConfig, problem: SampleProblem, how: FitRun) -> dict[str, Path]:
    """Return the path of radii of each model."""
    shape, spec = (problem.prepared.width,), config.set
    found = problem.paths(lambda radius: spec.with_radius(radius).make(shape), config.seed, how.observed)
    labels = [model.label for model in problem.models]
    return {label: _with_all_bytes(path, how.group) for label, path in zip(labels, found, strict=True)}


def _models(problem: ModelProblem, result: Result) -> dict[int, LinearModel]:
    """Return the models of the agents of this process."""
    hosted = zip(result.hosted.tolist(), result.agents, strict=True)
    return {i: problem.model(x) for i, x in hosted if i in problem.sites}


def _minimize(
    config: FitConfig,
    objectives: Mapping[int, Objective],
    X: ConvexSet,
    graph: LabeledGraph,
    how: FitRun,
    x0: Point | None = None,
) -> Result:
    return minimize(
        objectives,
        X,
        graph.graph,
        config.method,
        **config.rules,
        runtime=how.observed,
        seed=config.seed,
        x0=x0,
        every=config.measure,
        callback=how.callback,
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
