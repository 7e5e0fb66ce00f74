"""The problem of a fit of samples: one model, or one per class, in standardized units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, final

import numpy as np

from dcgs import registry
from dcgs.datasets import BrokenDataError
from dcgs.fitting.agreement import Agreement
from dcgs.fitting.held_out import FitScores, fit_scores
from dcgs.fitting.problems import Problem
from dcgs.fitting.readers.layout import listed
from dcgs.fitting.samples import Preparation, PreparedSites
from dcgs.fitting.tables import label_texts
from dcgs.objectives import LogisticLoss, Objective, SquaredLoss
from dcgs.points import Point
from dcgs.preprocessing.classes import balancing
from dcgs.preprocessing.design import Design, LinearModel, LossOf, designs
from dcgs.preprocessing.design_path import design_paths
from dcgs.preprocessing.folds import HoldOut
from dcgs.preprocessing.one_vs_rest import against_rest
from dcgs.preprocessing.path_result import Path
from dcgs.preprocessing.reductions import Reductions
from dcgs.preprocessing.site_data import SiteData
from dcgs.runtime import ProcessGroup, Runtime
from dcgs.sets import ConvexSet

# A class with fewer rows is noted: its label may be a misspelled one.
_RARE = 5
_SCALED = ("l1", "l2", "linf", "k-sparse", "group-l1")
"""Sets that bound the size of a model; the others bound coefficients in the user's units."""


@final
@dataclass(frozen=True)
class SampleOptions:
    """What the user said about samples; None stands for the default.

    An intercept is the default, except for a loss of another package, which may not be least at its target.
    Columns are standardized if the set bounds the size of the model. ``folds`` are those of the path.
    """

    preparation: Preparation = field(default_factory=Preparation)
    intercept: bool | None = None
    standardize: bool | None = None
    balanced: bool = False
    folds: int = 1

    def resolved(self, problem: Problem, set_name: str) -> SampleOptions:
        """Return the options with the defaults of a problem and a set."""
        return replace(
            self,
            intercept=":" not in problem.name if self.intercept is None else self.intercept,
            standardize=set_name in _SCALED if self.standardize is None else self.standardize,
        )


@final
@dataclass(frozen=True, eq=False)
class ModelProblem:
    """The problem of one model, for the agents of this process: its rows, and how they become an objective.

    ``label`` is the class that the model tells from all others; it is empty if there is one model only.
    """

    label: str
    sites: Mapping[int, SiteData]
    design: Design

    @property
    def objectives(self) -> dict[int, Objective]:
        """The objectives of the agents of this process."""
        return self.design.objectives(self.sites)

    def set_of(self, X: ConvexSet) -> ConvexSet:
        """Return the set of points: X, or X and an interval of intercepts."""
        return self.design.set_of(X)

    def start(self, X: ConvexSet) -> Point | None:
        """Return the point to start from; None for that of the set."""
        return None if self.design.bound is None else self.design.start(X)

    def model(self, x: Point) -> LinearModel:
        """Return the model of a point, in the units of the user's columns."""
        return self.design.model(x)


@final
@dataclass(frozen=True, eq=False)
class SampleProblem:
    """The problems of all models of a fit of samples: one, or with more than two classes one per class.

    ``constant`` is the best constant prediction: the share of the higher label, the shares of several
    classes, or the mean of the targets.
    """

    prepared: PreparedSites
    models: tuple[ModelProblem, ...]
    options: SampleOptions
    constant: float | tuple[float, ...]
    labels: bool
    agreement: Agreement = field(repr=False)

    def paths(self, set_of: Callable[[float], ConvexSet], seed: int, runtime: Runtime) -> list[Path]:
        """Return what radii are worth for each model, on rows that each site holds out of those of the fit.

        ``runtime`` may report the progress.
        """
        network = self.agreement.network
        observed = Reductions(network.graph, runtime, network.sent)
        how = HoldOut.in_folds(self.options.folds, seed, by_class=self.labels)
        return design_paths([(model.sites, model.design) for model in self.models], observed, set_of, how)

    def scores(self, models: Mapping[int, LinearModel]) -> FitScores:
        """Return the scores of each agent's model on the rows it held out, and those of all agents."""
        network, held = self.agreement.network, self.prepared.held_out
        rows = {i: [float(len(site.targets))] for i, site in held.items()}
        is_held = bool(network.sum("rows held out", rows)[0])
        sites = held if is_held else self.prepared.fitted
        judged = {i: (site, models[i].image(site.A)) for i, site in sites.items()}
        each, everyone = fit_scores(judged, network, self.constant, self.labels)
        return FitScores(each, everyone, is_held)


def sample_problem(
    prepared: PreparedSites,
    problem: Problem,
    options: SampleOptions,
    agreement: Agreement,
    group: ProcessGroup,
) -> SampleProblem:
    """Return the problem of prepared rows; what it needs of all sites comes over the network."""
    labels = label_texts(prepared.reading["labels"]) if problem.labels else []
    constant: float | tuple[float, ...]
    with group.common_errors():
        if len(labels) > 2:
            constant, sites = _weighted_classes(prepared.fitted, labels, options, agreement)
            rows = list(against_rest(sites, len(labels)))
        else:
            constant, sites = _weighted(prepared.fitted, problem, options, agreement)
            rows, labels = [sites], [""]
        settings = bool(options.intercept), bool(options.standardize)
        made = designs(rows, agreement.network, _loss(problem), *settings)
        models = tuple(map(ModelProblem, labels, rows, made))
        _note_constant_columns(prepared, models[0].design, agreement)
        agreement.collect_notes()
    return SampleProblem(prepared, models, options, constant, problem.labels, agreement)


def _loss(problem: Problem) -> LossOf:
    if problem.labels:
        return LogisticLoss
    if problem.loss == "own":
        kind: Any = registry.resolve("loss", problem.name)
        return partial(kind, **problem.options) if problem.options else kind
    return SquaredLoss


def _weighted(
    sites: Mapping[int, SiteData], problem: Problem, options: SampleOptions, agreement: Agreement
) -> tuple[float, dict[int, SiteData]]:
    """Return the best constant prediction, and the rows with the weights of their classes."""
    targets = {i: (site.targets > 0.0) * 1.0 if problem.labels else site.targets for i, site in sites.items()}
    own = {i: [[float(len(each)), float(each.sum())]] for i, each in targets.items()}
    (sums,) = agreement.network.sum("how many rows there are, and the sum of their targets", own)
    rows, total = sums.tolist()
    if problem.labels and total in (0.0, rows):
        raise BrokenDataError(
            "there must be rows of both classes to fit to; all rows that are not held out are of one. "
            "Hold out fewer rows with --held-out."
        )
    if not options.balanced:
        return total / rows, dict(sites)
    weights = {1.0: rows / (2.0 * total), -1.0: rows / (2.0 * (rows - total))}
    balanced = {
        i: site.weighted_by(np.where(site.targets > 0.0, weights[1.0], weights[-1.0]))
        for i, site in sites.items()
    }
    agreement.notes.append(
        f"rows of the higher label count {weights[1.0]:.4g} times and the others {weights[-1.0]:.4g} times; "
        "probabilities are those of classes of equal size."
    )
    return total / rows, balanced


def _weighted_classes(
    sites: Mapping[int, SiteData], labels: list[str], options: SampleOptions, agreement: Agreement
) -> tuple[tuple[float, ...], dict[int, SiteData]]:
    """Return the shares of several classes, and the rows with the weights of their classes."""
    own = {
        i: [np.bincount(site.targets.astype(np.intp), minlength=len(labels)).astype(float)]
        for i, site in sites.items()
    }
    (counts,) = agreement.network.sum("how many rows of each class there are", own)
    without = [label for label, count in zip(labels, counts, strict=True) if not count]
    if without:
        raise BrokenDataError(
            f"there must be rows of every class to fit to; all rows of {listed(without)} are held out. Hold "
            "out fewer rows with --held-out, or correct the label if it is misspelled."
        )
    rare = [label for label, count in zip(labels, counts, strict=True) if count < _RARE]
    if rare:
        agreement.notes.append(
            f"{listed(rare)} {'has' if len(rare) == 1 else 'have'} fewer than {_RARE} rows to fit to, of all "
            "agents: correct the label if it is misspelled."
        )
    shares = tuple((counts / counts.sum()).tolist())
    if not options.balanced:
        return shares, dict(sites)
    weights = np.array(balancing(counts.tolist()))
    told = ", ".join(f"{label} {weight:.4g}" for label, weight in zip(labels, weights, strict=True))
    agreement.notes.append(
        f"rows count by their class: {told} times; probabilities are those of classes of equal size."
    )
    return shares, {i: site.weighted_by(weights[site.targets.astype(np.intp)]) for i, site in sites.items()}


def _note_constant_columns(prepared: PreparedSites, made: Design, agreement: Agreement) -> None:
    """Note columns that are constant, at all sites or at one."""
    names = prepared.features
    if names is None:
        return
    everywhere = [names[at] for at in made.statistics.constant]
    if everywhere and made.intercept:
        agreement.notes.append(
            f"{listed(everywhere)} {'has' if len(everywhere) == 1 else 'have'} the same value in all rows of "
            "all agents, and cannot help to predict."
        )
    numeric = [column["name"] for column in prepared.reading.get("columns", ()) if "levels" not in column]
    places = [names.index(name) for name in numeric if name not in everywhere]
    alone = {
        i: f"one value only in {listed(found)}"
        for i, site in prepared.fitted.items()
        if (
            found := [
                names[at]
                for at in places
                if len(site.A) and np.ptp(site.A[:, at]) == 0.0 and names[at] not in prepared.empty[i]
            ]
        )
    }
    agreement.note(alone)
