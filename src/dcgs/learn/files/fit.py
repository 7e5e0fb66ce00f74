"""Fit files: from what the user asked for to models, scores and notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np

from dcgs import __version__, registry
from dcgs.floors import Floors
from dcgs.learn.encoding import scale_notes
from dcgs.learn.files.graphs import GraphSpec, LabeledGraph
from dcgs.learn.files.layout import EntriesLayout, SamplesLayout
from dcgs.learn.files.ratings import RatingsLoader
from dcgs.learn.files.rows import Preparation, PreparedRows, RowsLoader
from dcgs.learn.files.source import (
    DataSource,
    ProcessRecord,
    exchange_records,
    file_notes,
    has_own_files,
    option_text,
    site_names,
)
from dcgs.learn.files.specs import Problem, SetSpec
from dcgs.learn.linear.design import DesignSpec, LossOf
from dcgs.learn.linear.fit import RowsFit, RowsSpec, rows_problem, solve
from dcgs.learn.linear.scores import FitScores, fit_scores, fit_scores_above
from dcgs.learn.radius.result import RadiusPath
from dcgs.learn.ratings.fit import AUTO, RatingsFit, RatingsSpec, fit_placed
from dcgs.learn.schema import NOT_GIVEN
from dcgs.learn.sites import RUN, Rows, RunSpec, SitesError
from dcgs.learn.sums import Named, Reductions, Sent
from dcgs.methods import Method
from dcgs.objectives import LogisticLoss, SquaredLoss
from dcgs.run.checks import LEAST_AGENTS
from dcgs.run.result import Result
from dcgs.runtime import Runtime
from dcgs.runtime.ledger import Entry
from dcgs.sets import ConvexSet

if TYPE_CHECKING:  # of runs between organizations
    from dcgs.learn.files.handover import HandoverFiles

_SCALED = ("l1", "l2", "linf", "k-sparse", "group-l1")
"""Sets that bound the size of a model; the others bound coefficients in the user's units."""


_MASKED = (
    "sums over the sites are masked: neighbors see uniform words, the root totals of all sites; "
    "names of sites, files and columns, types of columns and options are open."
)
OPEN_SUMS = (
    "neighbors read the sums, gradients and Hessians of each site; where sums are flooded, all sites do. A "
    "sum about one person, such as that of a class of one, the row of a rare level in a Hessian, or that of "
    "two items with one customer in a product of ratings, shows this person."
)
"""What others see without masks."""


@final
@dataclass(frozen=True)
class RowsOptions:
    """What the user said about a fit of rows; None stands for the default.

    An intercept is the default, except for a loss of another package, which may not be least at its target.
    Columns are standardized if the set bounds the size of the model. ``folds`` are those of the path.
    """

    preparation: Preparation = field(default_factory=Preparation)
    intercept: bool | None = None
    standardize: bool | None = None
    folds: int | None = None

    def design(self, problem: Problem, set_name: str) -> DesignSpec:
        """Return loss, intercept and scales, with the defaults of a problem and a set."""
        intercept = ":" not in problem.name if self.intercept is None else self.intercept
        standardize = set_name in _SCALED if self.standardize is None else self.standardize
        return DesignSpec(_loss(problem), intercept, standardize)


@final
@dataclass(frozen=True)
class FitConfig:
    """What to fit, to which data, how, and when to stop.

    ``rule`` says which radius is taken with ``--radius auto``. ``shape`` is the shape of a matrix to
    complete; None: found from the data. ``ridge`` is that of the offsets of ratings; None: no
    offsets.
    ``rows`` is for all problems but completion. ``options`` are the user's options by flag, as texts; they
    must be the same at all sites. ``floors`` are those of this site, which may be stricter than others'; None
    for none. With ``secure`` all sums over the network are masked; None: if three sites or more have files of
    their own, and then with floors. ``handover`` is for sites that may leave a run to others.
    """

    problem: Problem
    source: DataSource
    layout: SamplesLayout | EntriesLayout
    graph: GraphSpec
    set: SetSpec
    run: RunSpec
    rule: str = "best"
    agents: int | None = None
    shape: tuple[int, int] | None = None
    rows: RowsOptions = field(default_factory=RowsOptions)
    ridge: float | str | None = AUTO
    options: Mapping[str, str] = field(default_factory=dict)
    secure: bool | None = None
    floors: Floors | None = None
    handover: HandoverFiles | None = None

    @property
    def method(self) -> Method:
        """The method of the run."""
        assert self.run.method is not None
        return self.run.method

    def check(self) -> None:
        """Raise if the options contradict each other; read no file."""
        self.set.check()
        if self.set.finds_radius and self.problem.entries and self.set.name != "nuclear":
            raise ValueError(
                f"--radius auto of {self.problem.name} is for --set nuclear; got {self.set.name}. "
                "Give a number, or leave --set out."
            )
        if self.run.every is not None or self.method.stops_itself:
            return
        name, rules = type(self.method).__name__, self.run.rules
        if any(rules.get(rule) is not None for rule in ("gap", "gap_abs")):
            raise ValueError(
                f"a gap ends a run of {name} only if it is measured during the run, which needs all agents' "
                "losses. Add --measure, or use --method fastdcgs, whose agents certify the gap themselves."
            )
        if all(rule is None for rule in rules.values()):
            limits = "--rounds, --iterations or --seconds"
            if not self.method.projects:
                limits = "--rounds, --iterations, --seconds or --lmo-calls"
            raise ValueError(
                f"a run of {name} that is not measured must have a limit; got none. "
                f"Give {limits}; or --measure."
            )

    def decided(self, agents: int) -> FitConfig:
        """Return the fit with ``secure`` and floors as they are; raise if sums cannot be masked."""
        secure = self.secure
        if secure is None:
            secure = self.source.is_per_agent and agents > 1
        if secure:
            self._check_secure(agents)
        floors = Floors() if secure and self.floors is None else self.floors
        if floors is None and isinstance(self.layout, SamplesLayout) and self.layout.subject is not None:
            raise ValueError(
                "--subject says how people are counted for floors; there are none. Add --min-count."
            )
        return replace(self, secure=secure, floors=floors)

    def _check_secure(self, agents: int) -> None:
        is_open = "or add --open: then " + OPEN_SUMS
        if agents < LEAST_AGENTS:
            raise SitesError(
                f"sums of {agents} sites cannot be masked: of a total over two, each subtracts its own part "
                f"and reads the other's. Fit with three sites or more, {is_open}"
            )
        if self.run.every is not None:
            raise ValueError(
                "--measure reads the models, losses and gradients of single sites, which masked sums hide. "
                f"Leave it out, {is_open}"
            )
        if not self.method.sums_only:
            raise ValueError(
                f"sums can be masked, and {type(self.method).__name__} with these options sends points or "
                "gradients of single sites to their neighbors. Use --method fastdcgs without --eta and "
                f"form=edges, {is_open}"
            )

    def count_agents(self, processes: int) -> int:
        """Return the number of agents: as given, or the number of nodes, of processes or of files."""
        return self.source.count_agents(self.agents, self.graph.node_count(), processes)


@final
@dataclass(frozen=True, eq=False)
class FileFit:
    """A fit of files: models, their scores on rows, and what was noted.

    ``sent`` is what all agents sent beside the run, ``ledger`` all that they sent. ``notes`` are sentences on
    files and data. ``checksums`` are the SHA-256 of the files of data that this process read, by name.
    ``read`` says how files of ratings were read.
    """

    config: FitConfig
    graph: LabeledGraph
    fit: RowsFit | RatingsFit
    notes: tuple[str, ...]
    sent: tuple[Sent, ...]
    checksums: Mapping[str, str] = field(default_factory=dict)
    prepared: PreparedRows | None = None
    scores: FitScores | None = None
    read: Mapping[str, Any] = field(default_factory=dict)
    ledger: tuple[Entry, ...] = ()

    @property
    def floors(self) -> Floors | None:
        """The floors of all sites."""
        if isinstance(self.fit, RatingsFit):
            return self.fit.placed.floors
        return None if self.prepared is None else self.prepared.schema.floors

    @property
    def runs(self) -> dict[str, Result]:
        """The run, whose name is empty, or with more than two classes one for each, named after its label."""
        if isinstance(self.fit, RowsFit):
            return {entry.label: entry.result for entry in self.fit.fitted}
        return {"": self.fit.result}

    @property
    def paths(self) -> dict[str, RadiusPath]:
        """The paths of the radii that were found, by the names of runs."""
        if isinstance(self.fit, RowsFit):
            paths = {entry.label: entry.path for entry in self.fit.fitted}
        else:
            paths = {"": self.fit.path}
        return {label: path for label, path in paths.items() if path is not None}


@final
@dataclass(frozen=True, eq=False)
class Watch:
    """How a fit is watched: ``note`` is called with each note on files and data, before the run.

    ``observed`` returns the runtime of the path and the run, which may report their progress. ``named`` is
    told what the next messages are for. ``note_here`` is called with notes on the data of this process that
    floors keep from the others.
    """

    note: Callable[[str], object] = lambda text: None
    observed: Callable[[Runtime], Runtime] = lambda runtime: runtime
    named: Named = lambda name, size=0: None
    note_here: Callable[[str], object] = lambda text: None

    def noted(self, notes: Sequence[str]) -> tuple[str, ...]:
        """Return the notes after the user has got them."""
        for text in notes:
            self.note(text)
        return tuple(notes)

    def noted_here(self, notes: Sequence[str]) -> tuple[str, ...]:
        """Return notes that only this process has, after its user has got them."""
        for text in notes:
            self.note_here(text)
        return tuple(notes)

    def of(self, network: Reductions) -> Reductions:
        """Return the network of the path and the run, with the same record."""
        return network.on(self.observed(network.runtime))


def fit_files(config: FitConfig, runtime: Runtime, watch: Watch | None = None) -> FileFit:
    """Read the data of the agents of this process, and fit a model to those of all."""
    watch = watch or Watch()
    config = replace(config, source=replace(config.source, own=runtime.separate_sites))
    config.check()
    group = runtime.group()
    agents = config.count_agents(group.size)
    hosts = runtime.hosts(agents)
    if config.source.is_per_agent:
        config.decided(agents)  # raises before a file is read
    records, checksums = _records(config, agents, hosts, runtime)
    with group.common_errors():
        has_own = config.source.own or has_own_files(records)
        source = replace(config.source, own=has_own, names=site_names(records))
        is_open, config = config.secure is False, replace(config, source=source).decided(agents)
    if config.secure or (is_open and agents > 1):
        watch.note(_MASKED if config.secure else f"sums are open: {OPEN_SUMS}")
    handed_over = () if config.handover is None else config.handover.notes
    notes = watch.noted([*handed_over, *file_notes(records)])
    graph = config.graph.build(agents)
    with group.common_errors():
        network = Reductions(graph.graph, runtime, named=watch.named, secure=bool(config.secure))
    with group.common_errors(), closing(network):
        if isinstance(config.layout, EntriesLayout):
            fitted = _fit_ratings(config, config.layout, graph, network, watch)
        else:
            fitted = _fit_rows(config, config.layout, graph, network, watch)
    return replace(fitted, notes=(*notes, *fitted.notes), checksums=checksums)


def _records(
    config: FitConfig, agents: int, hosts: Sequence[int], runtime: Runtime
) -> tuple[list[ProcessRecord], dict[str, str]]:
    """Return the records of all processes, and checksums; raise unless all take part in the same fit."""
    layout, source = config.layout, config.source
    targets = layout.target_file if isinstance(layout, SamplesLayout) else None
    if isinstance(layout, EntriesLayout):
        has_numbers = RatingsLoader(source, layout, config.shape, {}).has_numbers
        form = "a file of numbers" if has_numbers else "a table"
    else:
        is_table = RowsLoader(source, layout, Preparation(), False).is_table
        form = "a table" if is_table else "a file of arrays or LIBSVM text"
    options = {
        "PROBLEM": repr(config.problem.name),
        "--agents": str(agents),
        "--graph": option_text(config.graph.text, may_be_file=True),
        "--data": form,
        "--secure or --open": {None: NOT_GIVEN, True: "--secure", False: "--open"}[config.secure],
        "the version of dcgs": __version__,
    }
    return exchange_records(source, targets, hosts, options, runtime)


def _fit_ratings(
    config: FitConfig,
    layout: EntriesLayout,
    graph: LabeledGraph,
    network: Reductions,
    watch: Watch,
) -> FileFit:
    share = config.rows.preparation.held_out
    loader = RatingsLoader(config.source, layout, config.shape, config.options, share, config.floors)
    placed, read = loader.load(network)
    notes = (*watch.noted(placed.notes), *watch.noted_here(placed.local_notes))
    chosen = config.set
    radius = chosen.options.get("radius", 1.0)
    spec = RatingsSpec(radius, config.ridge, config.rule, partial(_set, chosen), config.run)
    fit = fit_placed(placed, watch.of(network), spec)
    fit = replace(fit, path=_with_all_bytes(fit.path, network))
    return FileFit(config, graph, fit, notes, _beside(network), scores=fit.scores, read=read)


def _fit_rows(
    config: FitConfig,
    layout: SamplesLayout,
    graph: LabeledGraph,
    network: Reductions,
    watch: Watch,
) -> FileFit:
    problem, options = config.problem, config.rows
    how, chosen = replace(options.preparation, floors=config.floors), config.set
    prepared = RowsLoader(config.source, layout, how, problem.labels, config.options).load(network)
    radius = chosen.options.get("radius", 1.0)
    spec = RowsSpec(
        options.design(problem, chosen.name),
        radius,
        lambda features, r: _set(chosen, (features,), r),
        options.folds,
        config.rule,
        prepared.class_weight,
        config.run,
        floors=prepared.schema.floors,
    )
    beside = []
    if prepared.encoded is not None and config.source.is_per_agent:
        beside = [scale_notes(prepared.encoded, prepared.schema)]
    classes = prepared.schema.labels or ()
    problems, answers = rows_problem(prepared.fitted, classes, network, spec, *beside)
    made, notes, local = problems.designs[0], [*prepared.notes, *problems.notes], [*prepared.local_notes]
    (local if spec.floors is not None else notes).extend(text for texts in answers for text in texts)
    constant = made.statistics.constant.tolist() if spec.design.intercept else []
    if spec.floors is not None:  # columns that are left out are 0
        parts = problems.parts[0].values()
        constant = [k for k in constant if any(abs(part.A[:, [k]]).sum() > 0.0 for part in parts)]
    notes = [*watch.noted([*notes, *prepared.constant_notes(constant)]), *watch.noted_here(local)]
    if config.handover is not None:
        named = prepared.encoded
        names = range(made.features) if named is None else named.encoding.features
        spec = replace(spec, handover=config.handover.of([str(name) for name in names]))
    fit = solve(problems, watch.of(network), spec)
    notes += watch.noted(fit.notes)
    paths = [_with_all_bytes(entry.path, network) for entry in fit.fitted]
    pairs = zip(fit.fitted, paths, strict=True)
    fit = replace(fit, fitted=tuple(replace(entry, path=path) for entry, path in pairs))
    scores, more = _scores(prepared, fit, network)
    notes += watch.noted(more)
    return FileFit(config, graph, fit, tuple(notes), _beside(network), prepared=prepared, scores=scores)


def _with_all_bytes(path: RadiusPath | None, network: Reductions) -> RadiusPath | None:
    """Return the path with the bytes that the agents of all processes sent for it."""
    if path is None:
        return None
    everyone = network.runtime.group().allgather([np.array([float(path.bytes)])])
    return replace(path, bytes=int(np.sum(everyone)))


def _beside(network: Reductions) -> tuple[Sent, ...]:
    """Return what all agents sent beside the run."""
    return tuple(entry for entry in network.sent_by_all() if entry.name != RUN)


def _set(chosen: SetSpec, shape: tuple[int, ...], radius: float) -> ConvexSet:
    """Return the set of models of this shape, with this radius if it has one."""
    return (chosen.with_radius(radius) if "radius" in chosen.options else chosen).make(shape)


def _loss(problem: Problem) -> LossOf:
    if problem.labels:
        return LogisticLoss
    if problem.loss == "own":
        kind: Any = registry.resolve("loss", problem.name)
        return partial(kind, **problem.options) if problem.options else kind
    return SquaredLoss


def _scores(prepared: PreparedRows, fit: RowsFit, network: Reductions) -> tuple[FitScores, Sequence[str]]:
    """Return the scores of each agent's model on the rows it held out, those of all agents, and notes."""
    is_held, models = prepared.schema.held_out > 0, fit.models
    parts = prepared.held_out if is_held else prepared.fitted
    if len(fit.classes) == 2:
        parts = {i: local.with_targets(2.0 * local.targets - 1.0) for i, local in parts.items()}
    scored: dict[int, tuple[Rows, Any]] = {i: (local, models[i].image(local.A)) for i, local in parts.items()}
    floors = prepared.schema.floors
    if floors is None:
        of_sites, of_all = fit_scores(scored, network, prepared.constant, bool(fit.classes))
        return FitScores(of_sites, of_all, is_held), ()
    classes = (-1.0, 1.0) if len(fit.classes) == 2 else tuple(map(float, range(len(fit.classes))))
    of_sites, of_all, note = fit_scores_above(scored, network, prepared.constant, classes, floors)
    return FitScores(of_sites, of_all, is_held), () if note is None else (note,)
