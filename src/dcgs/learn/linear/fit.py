"""Fit linear models to the rows of several sites: what they agree on, designs, the radius, the run.

This is the only place where ``minimize`` is called for rows. ``dcgs fit`` and the estimators end here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import networkx as nx
import numpy as np

from dcgs.checkpoints.folder import Checkpoint
from dcgs.floors import Floors
from dcgs.learn.floors import SiteCells, without_rare
from dcgs.learn.linear.classes import (
    against_rest,
    balancing,
    class_numbers,
    class_weights,
    of_all_classes,
    stacked,
    weighted,
)
from dcgs.learn.linear.design import Design, DesignSpec, LinearModel, Statistics, design_steps
from dcgs.learn.linear.floors import FoldCells, held_out_above, without_dominated, without_hessians
from dcgs.learn.radius.folds import HoldOut, Split, fold_of
from dcgs.learn.radius.path import path_steps
from dcgs.learn.radius.result import RULE, RadiusPath
from dcgs.learn.schema import ColumnSchema, MergeRules, Schema, SiteSchema, agree
from dcgs.learn.sites import RUN, Rows, RunSpec, Sites
from dcgs.learn.sums import Reductions, Sent, Steps, side_by_side
from dcgs.objectives.losses import LogisticLoss
from dcgs.objectives.objective import Objective
from dcgs.parallel import blas_threads
from dcgs.points import Point
from dcgs.run.minimize import minimize
from dcgs.run.result import Result
from dcgs.runtime import MPI, Lockstep, Runtime
from dcgs.sets import Box, ConvexSet, L1Ball, ProductSet
from dcgs.validation import COUNT, FLAG, POSITIVE, Label, label_text, shown, takes

GAP = 1e-4
"""The gap of a fit of rows: its loss exceeds the least one by at most this share of what it explains."""
AUTO = "auto"
# With at most this number of unknowns, Hessians are sent.
_FEW = 64
# Five folds, whose rounds are shared; one with so many rows that it is enough, and so many features that the
# sums of five are long.
_FOLDS, _MANY_ROWS, _LONG = 5, 4000, 1000
# With at least this number of features, some may be in a few rows only.
_MANY = 64
# At most this number of paths share sums at a time: each has its own copy of the rows, for each fold.
_TOGETHER = 10


@final
@dataclass(frozen=True)
class Handover:
    """What passes from a run that was given up to the next one: models of this site, by the label of a class.

    ``seen`` is called with the model of each iteration. ``begins`` is True at all sites if the run begins at
    the mean of the models that sites have; ``start`` has that of this one, None if it has none.
    """

    seen: Callable[[str, LinearModel], object] = lambda label, model: None
    begins: bool = False
    start: Callable[[str], LinearModel | None] = lambda label: None


@final
@dataclass(frozen=True)
class RowsSpec:
    """Which model is fitted to rows, and how.

    ``radius`` is a number, or ``"auto"`` to find it. ``set`` is None for an ℓ₁ ball, a set, or a function of
    the number of coefficients and the radius. ``folds`` is None for five folds, or one of many rows and
    features. ``rule`` is ``"best"``, or ``"one_standard_error"`` for the smallest radius within one standard
    error of the best. ``class_weight`` is None, ``"balanced"``, or weights by class. ``options`` are what all
    sites must have given alike, as texts. ``floors`` are those of this site; None for none. ``handover`` is
    for runs that may be given up, and for those that follow them.
    """

    design: DesignSpec = field(default_factory=DesignSpec)
    radius: float | str = AUTO
    set: ConvexSet | Callable[[int, float], ConvexSet] | None = None
    folds: int | None = None
    rule: str = "best"
    class_weight: Any = None
    run: RunSpec = field(default_factory=RunSpec)
    options: Mapping[str, str] = field(default_factory=dict)
    floors: Floors | None = None
    handover: Handover | None = None

    @property
    def of_classes(self) -> bool:
        """Whether targets are classes."""
        return self.design.loss is LogisticLoss

    @property
    def finds_radius(self) -> bool:
        """Whether the radius is to be found."""
        return self.radius == AUTO and not isinstance(self.set, ConvexSet)

    def ball(self, features: int, radius: float) -> ConvexSet:
        """Return the set of the coefficients."""
        if isinstance(self.set, ConvexSet):
            return self.set
        X = L1Ball(features, radius) if self.set is None else self.set(features, radius)
        if not isinstance(X, ConvexSet) or X.shape != (features,):
            raise ValueError(
                f"set must give a set of vectors with {features} entries, one per feature; got {shown(X)}."
            )
        return X

    def check(self, features: int) -> None:
        """Raise unless the arguments go together."""
        if self.radius != AUTO:
            POSITIVE(self.radius, "radius (or 'auto')")
        for name in ("gap", "gap_abs"):
            POSITIVE.or_none(self.run.rules.get(name), name)
        COUNT.or_none(self.folds, "folds")
        RULE(self.rule, "rule")
        FLAG(self.design.intercept, "fit_intercept")
        FLAG(self.design.standardize, "standardize")
        if isinstance(self.set, ConvexSet) and self.set.shape != (features,):
            raise ValueError(
                f"set must be of vectors with {features} entries, one per feature; it has shape "
                f"{self.set.shape}."
            )
        if not (self.set is None or isinstance(self.set, ConvexSet) or takes(self.set, features, 1.0)):
            raise ValueError(
                "set must be a set of dcgs, or a function of the number of features and the radius, such as "
                f"dcgs.L2Ball; got {shown(self.set)}."
            )


@final
@dataclass(frozen=True, eq=False)
class FittedModel:
    """One model: that of all rows, or of one of several classes, whose ``label`` it has; and its run.

    ``models`` are those of the agents of this process, in the units of the columns. ``explained`` is the
    decrease of the loss up to the start of the run, if that was a model of the path.
    """

    label: str
    design: Design
    radius: float
    path: RadiusPath | None
    result: Result
    models: Mapping[int, LinearModel]
    explained: float = 0.0


@final
@dataclass(frozen=True, eq=False)
class RowsFit:
    """A fit of rows: a model, or one for each of several classes; ``classes`` are empty for numbers."""

    fitted: tuple[FittedModel, ...]
    classes: tuple[Label, ...]
    network: Reductions
    notes: tuple[str, ...] = ()

    @property
    def models(self) -> dict[int, LinearModel]:
        """The models of the agents of this process; of several classes with a row for each."""
        if len(self.fitted) == 1:
            return dict(self.fitted[0].models)
        return {i: stacked([entry.models[i] for entry in self.fitted]) for i in self.fitted[0].models}

    @property
    def model(self) -> LinearModel:
        """The model of the first agent of this process; if the run certified its gap, that of all agents."""
        return next(iter(self.models.values()))


def fit_rows(sites: Sites[Rows], spec: RowsSpec) -> RowsFit:
    """Fit a linear model to the rows of all sites; targets of classes are the labels of rows.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> A = rng.standard_normal((3, 40, 4))
    >>> sites = Sites.of([Rows(a, a @ [2.0, 0.0, 0.0, -1.0] + 5.0) for a in A])
    >>> fit = fit_rows(sites, RowsSpec(radius=4.0))
    >>> fit.model.coef.round(2) + 0.0, round(fit.model.intercept, 2), str(fit.fitted[0].result.status)
    (array([ 2.,  0.,  0., -1.]), 5.0, 'the agents agreed that the gap they certified reached its target.')
    >>> sites.network.sent[0].name
    'schemas: columns, types, levels, labels and options'
    """
    schema = agree_on_rows(sites, {i: local.targets.tolist() for i, local in sites.data.items()}, spec)
    rows = sites.data
    if schema.labels is not None:
        places = {i: class_numbers(local.targets.tolist(), schema.labels) for i, local in rows.items()}
        rows = {i: local.with_targets(places[i]) for i, local in rows.items()}
    return fit_models(rows, schema, sites.network, spec)


def agree_on_rows(sites: Sites[Rows], labels: Mapping[int, Sequence[Any]], spec: RowsSpec) -> Schema:
    """Return what sites of arrays agree on: columns, classes and options; ``labels`` are those of rows."""
    schemas, cells = {}, {}
    for i, local in sites.data.items():
        names = () if local.columns is None else local.columns
        texts = tuple(json.dumps(label) for label in _distinct(labels[i])) if spec.of_classes else None
        schemas[i] = SiteSchema(
            sites.names[i],
            rows=len(local),
            width=local.features,
            has_names=local.columns is not None,
            columns=tuple(ColumnSchema(name, number="numbers") for name in names),
            labels=texts,
            options=dict(spec.options),
            floors=spec.floors,
        )
        of_rows = [json.dumps(label) for label in labels[i]] if spec.of_classes else []
        cells[i] = SiteCells(len(local), labels=of_rows, subjects=local.subjects)
    return agree(sites.network, schemas, MergeRules(), None if spec.floors is None else cells)


@final
@dataclass(frozen=True, eq=False)
class RowsProblem:
    """The problem of each model: one, or with more than two classes one for each, whose label it has.

    ``cells`` are what people of folds are counted by, if that is known.
    """

    labels: tuple[str, ...]
    parts: tuple[Mapping[int, Rows], ...]
    designs: tuple[Design, ...]
    classes: tuple[Label, ...]
    notes: tuple[str, ...] = ()
    cells: FoldCells | None = None


def fit_models(rows: Mapping[int, Rows], schema: Schema, network: Reductions, spec: RowsSpec) -> RowsFit:
    """Fit models to rows on which sites have agreed; targets of classes are their places, from 0."""
    spec, notes = replace(spec, floors=schema.floors), list[str]()
    if spec.floors is not None:
        ((rows, notes),) = network.run(without_rare(rows, spec.floors))
    problem, _ = rows_problem(rows, schema.labels or (), network, spec)
    fit = solve(problem, network, spec)
    return replace(fit, notes=(*notes, *problem.notes, *fit.notes))


@blas_threads(1)
def rows_problem(
    rows: Mapping[int, Rows],
    classes: Sequence[Label],
    network: Reductions,
    spec: RowsSpec,
    *beside: Steps[Any],
) -> tuple[RowsProblem, list[Any]]:
    """Return the problem of each model, and the answers of programs that share its sums.

    With floors, columns are 0 that few people dominate.
    """
    known, notes, floors = None, list[str](), spec.floors
    if floors is not None:
        ((rows, found, notes),) = network.run(without_dominated(rows, floors))
        if not classes:
            known = found
        elif len(classes) == 2 and spec.class_weight is None:  # targets are 0 and 1 there, and −1 and 1 here
            known = replace(found, target_mean=2.0 * found.target_mean - 1.0)
    parts, labels = [dict(rows)], [""]
    if classes:
        parts = list(against_rest(_weighted(rows, classes, network, spec.class_weight), len(classes)))
        labels = [""] if len(parts) == 1 else [label_text(label) for label in classes]
    programs: list[Steps[Any]] = [design_steps(parts, spec.design, known), *beside]
    if floors is not None and known is not None and spec.finds_radius:
        programs.append(_fold_cells(parts, known, floors, bool(classes)))
    made, *answers = network.run(*programs)
    cells = answers.pop() if len(answers) > len(beside) else None
    spec.check(made[0].features)
    problem = RowsProblem(tuple(labels), tuple(parts), tuple(made), tuple(classes), tuple(notes), cells)
    return problem, answers


@blas_threads(1)
def solve(problem: RowsProblem, network: Reductions, spec: RowsSpec) -> RowsFit:
    """Find the radius, if that is asked for, and the model of each problem."""
    spec = replace(spec, run=spec.run.with_default(GAP))
    features, runs = problem.designs[0].features, len(problem.parts)
    _check_record(network.runtime, runs)
    pairs = list(zip(problem.parts, problem.designs, strict=True))
    paths: Sequence[RadiusPath | None] = [None] * runs
    notes: list[str] = []
    if spec.finds_radius:
        is_long = features >= _LONG and problem.designs[0].statistics.rows >= _MANY_ROWS
        folds = spec.folds or (1 if is_long else _FOLDS)
        how = HoldOut.in_folds(folds, spec.run.seed, by_class=spec.of_classes)
        if spec.floors is not None:
            ((how, notes),) = network.run(_folds_above(problem, how, spec.floors, spec.of_classes))
        paths = rows_paths(pairs, network, lambda radius: spec.ball(features, radius), how)
    fitted = []
    for k, ((rows, design), path) in enumerate(zip(pairs, paths, strict=True)):
        run = replace(spec.run, checkpoint=_checkpoint(spec.run.checkpoint, k, runs))
        fitted.append(_fit(rows, design, path, network, replace(spec, run=run), problem.labels[k]))
    return RowsFit(tuple(fitted), problem.classes, network, tuple(notes))


def _folds_above(
    problem: RowsProblem, how: HoldOut, floors: Floors, of_classes: bool
) -> Steps[tuple[HoldOut, list[str]]]:
    """Find which rows are held out with floors, the same ones for all classes."""
    cells = problem.cells
    if cells is None:
        statistics = problem.designs[0].statistics
        cells = yield from _fold_cells(problem.parts, statistics, floors, of_classes)
    return (yield from held_out_above(cells, how))


def _fold_cells(
    parts: Sequence[Mapping[int, Rows]], statistics: Statistics, floors: Floors, of_classes: bool
) -> Steps[FoldCells]:
    """Find what people of folds are counted by."""
    several = len(parts) > 1
    rows = of_all_classes(parts) if several else parts[0]
    labels = tuple(map(float, range(len(parts)))) if several else (-1.0, 1.0) if of_classes else ()
    return FoldCells.of(rows, statistics, labels, floors)


def _fit(
    rows: Mapping[int, Rows],
    design: Design,
    path: RadiusPath | None,
    network: Reductions,
    spec: RowsSpec,
    label: str,
) -> FittedModel:
    """Return the model of one design; ``path`` has its radius, if that was found."""
    radius, x0, explained = (1.0 if spec.radius == AUTO else float(spec.radius)), None, 0.0
    if path is not None:
        point = path.chosen(spec.rule)
        radius, decrease = point.radius, (path.null.loss - point.loss) * design.statistics.weight
        if _starts_warm(network.graph, design.features) and decrease > 0.0:
            x0, explained = path.model(point), decrease
    ball = spec.ball(design.features, radius)
    if path is not None and path.needs_no_model and not ball.start().any():
        zeros = np.zeros(design.features)
        radius, x0, explained, ball = 0.0, None, 0.0, Box(zeros, zeros)
    X = design.set_of(ball)
    start = design.start(ball) if x0 is None or not X.accepts(x0) else x0
    objectives, handover = design.objectives(rows), spec.handover or Handover()
    if handover.begins and path is None:
        start, explained = _handed_over(handover.start(label), design, X, start, objectives, network)
    arguments = spec.run.arguments(explained)
    if spec.floors is not None and design.statistics.rows < X.shape[0]:
        arguments["method"] = without_hessians(arguments.get("method"), X.shape[0])
    network.named(RUN, X.shape[0])
    where: dict[str, Any] = {"runtime": network.runtime, "secure": network.secure_run()}
    if spec.handover is not None:
        where["on_model"] = lambda i, k, x: handover.seen(label, design.model(x))
    result = minimize(objectives, X, network.graph, x0=start, **where, **arguments)
    network.record(Sent(RUN, "fit", X.shape[0], result.rounds, 0), result)
    models = zip(result.hosted.tolist(), result.agents, strict=True)
    local = {i: design.model(x) for i, x in models if i in rows}
    known = float(getattr(ball, "radius", np.nan)) if isinstance(spec.set, ConvexSet) else radius
    return FittedModel(label, design, known, path, result, local, explained)


def _handed_over(
    model: LinearModel | None,
    design: Design,
    X: ConvexSet,
    start: Point,
    objectives: Mapping[int, Objective],
    network: Reductions,
) -> tuple[Point, float]:
    """Return the mean of the models that sites have, or ``start``; and how much less its loss is."""
    counted = [0.0, *np.zeros(X.shape[0])] if model is None else [1.0, *design.point(model)]
    (total,) = network.sum("models of the run before", {i: [counted] for i in objectives})
    if total[0] < 1.0:
        return start, 0.0
    mean = total[1:] / total[0]
    points = (start + share * (mean - start) for share in (1.0, 0.99, 0.9, 0.7, 0.4))
    point = next((point for point in points if X.accepts(point)), start)
    values = {i: [[f.value(start), f.value(point)]] for i, f in objectives.items()}
    ((before, after),) = network.sum("losses of the start", values)
    return (point, float(before - after)) if after < before else (start, 0.0)


def _weighted(
    rows: Mapping[int, Rows], classes: Sequence[Label], network: Reductions, class_weight: Any
) -> dict[int, Rows]:
    """Return the rows with weights multiplied by those of their classes."""
    if class_weight is None:
        return dict(rows)
    if isinstance(class_weight, Mapping):
        return weighted(rows, [float(class_weight.get(label, 1.0)) for label in classes])
    counts = {i: [local] for i, local in class_weights(rows, len(classes)).items()}
    (sums,) = network.sum("weights of the classes", counts)
    return weighted(rows, balancing(sums.tolist()))


def _starts_warm(graph: nx.Graph, features: int) -> bool:
    """Return True if a run from the model of the path takes fewer rounds than one from no model.

    That is so for steps along sums. Over edges the dual variables start at zero in any case, and a
    start at the model of the path took more rounds than one at no model on women's-clothing over a cycle.
    """
    return features < _FEW or any(degree == len(graph) - 1 for _, degree in graph.degree())


def _check_record(runtime: Runtime, runs: int) -> None:
    """Raise if the steps of a run are recorded or replayed, and there are several runs."""
    if runs > 1 and isinstance(runtime, Lockstep | MPI) and (runtime.record or runtime.replays):
        raise ValueError(
            f"record and replay are for one run; a fit of several classes has {runs}. Leave them out."
        )


def _checkpoint(checkpoint: Checkpoint | None, run: int, runs: int) -> Checkpoint | None:
    """Return the checkpoint of a run: a folder of its own if there are several.

    A fit that was interrupted has checkpoints of the first runs only; the others start from the beginning.
    """
    if checkpoint is None or runs == 1:
        return checkpoint
    resume = "auto" if checkpoint.resume and run > 0 else checkpoint.resume
    return Checkpoint(checkpoint.path / f"class-{run:03d}", checkpoint.every, resume)


def _distinct(labels: Sequence[Any]) -> list[Any]:
    """Return the distinct labels; raise unless they are texts or numbers."""
    distinct = sorted(set(labels), key=repr)
    for label in distinct:
        if not isinstance(label, str | int | float | bool) or label != label:
            raise ValueError(f"labels must be texts or numbers, and none may be missing; got {shown(label)}.")
    return distinct


def rows_paths(
    models: Sequence[tuple[Mapping[int, Rows], Design]],
    network: Reductions,
    ball: Callable[[float], ConvexSet],
    how: HoldOut,
) -> list[RadiusPath]:
    """Return the path of each model, from the rows of all sites and their design.

    ``ball`` gives the set of the coefficients of a radius. The paths share network sums: together they take
    the rounds of the longest one.
    """
    paths: list[RadiusPath] = []
    for k in range(0, len(models), _TOGETHER):
        group = models[k : k + _TOGETHER]
        paths += network.run(*(_path(rows, network, made, ball, how) for rows, made in group))
    return paths


def _path(
    rows: Mapping[int, Rows],
    network: Reductions,
    made: Design,
    ball: Callable[[float], ConvexSet],
    how: HoldOut,
) -> Steps[RadiusPath]:
    """Return the path of one model.

    With many features the deviations of columns are those of the rows trained on. With the deviations of all
    rows, a word that is in one row trained on and in none that is held out would have a small deviation, so
    that a model may use it, and no row could show the error that it makes on new rows.
    """
    parts = how.split(rows)
    designs = [made] * len(parts)
    if made.features >= _MANY:
        designs = yield from side_by_side(*(_of_training(train, made) for train, _ in parts))
    folds = [fold_of(*part, local) for part, local in zip(parts, designs, strict=True)]
    start = designs[0].start(ball(1.0))
    steps = path_steps(network, folds, lambda radius: _set_of(designs, ball(radius)), start=start)
    return (yield from steps)


def _of_training(train: Split, made: Design) -> Steps[Design]:
    """Return the design of the rows trained on; that of all rows if all trained on are of one class."""
    try:
        (local,) = yield from design_steps([train], made.spec)
        return local
    except ValueError:
        return made


def _set_of(designs: Sequence[Design], X: ConvexSet) -> ConvexSet:
    """Return X, or X times an interval that has the free intercepts of all designs."""
    intervals = [made.bound.interval(X) for made in designs if made.bound is not None]
    if not intervals:
        return X
    low, high = zip(*intervals, strict=True)
    return ProductSet(X, Box([min(low)], [max(high)]))
