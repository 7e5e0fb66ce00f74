"""The fit of samples: a problem in standardized units with a free intercept, its models and their scores."""

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
from dcgs.objectives import LogisticLoss, Objective, SquaredLoss
from dcgs.points import Point
from dcgs.preprocessing.design import Design, LinearModel, LossOf, design
from dcgs.preprocessing.design_path import design_path
from dcgs.preprocessing.folds import HoldOut
from dcgs.preprocessing.path_result import Path
from dcgs.preprocessing.reductions import Reductions, Sent
from dcgs.preprocessing.site_data import SiteData
from dcgs.runtime import ProcessGroup, Runtime
from dcgs.sets import ConvexSet

_SCALED = ("l1", "l2", "linf", "k-sparse", "group-l1")
"""Sets that bound the size of a model; the others bound coefficients in the user's units."""


@final
@dataclass(frozen=True)
class SampleOptions:
    """What the user said about samples; None stands for the default.

    An intercept is the default, except for a loss of another package, which may not be least at its target.
    Columns are standardized if the set bounds the size of the model.
    """

    preparation: Preparation = field(default_factory=Preparation)
    intercept: bool | None = None
    standardize: bool | None = None
    balanced: bool = False

    def resolved(self, problem: Problem, set_name: str) -> SampleOptions:
        """Return the options with the defaults of a problem and a set."""
        return replace(
            self,
            intercept=":" not in problem.name if self.intercept is None else self.intercept,
            standardize=set_name in _SCALED if self.standardize is None else self.standardize,
        )


@final
@dataclass(frozen=True, eq=False)
class SampleProblem:
    """The problem of a fit of samples, for the agents of this process.

    ``constant`` is the best constant prediction: the share of the higher label, or the mean of the targets.
    """

    prepared: PreparedSites
    sites: Mapping[int, SiteData]
    design: Design
    options: SampleOptions
    constant: float
    labels: bool
    agreement: Agreement = field(repr=False)

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

    def path(self, set_of: Callable[[float], ConvexSet], seed: int, runtime: Runtime) -> Path:
        """Return what radii are worth on rows that each site holds out of those of the fit.

        ``runtime`` is that of the path, which may report its progress.
        """
        network = self.agreement.network
        observed = Reductions(network.graph, runtime, network.sent)
        how = HoldOut(seed=seed, by_class=self.labels)
        return design_path(self.sites, observed, self.design, set_of, how)

    def scores(self, models: Mapping[int, LinearModel]) -> FitScores:
        """Return the scores of each agent's model on the rows it held out, and those of all agents."""
        network, held = self.agreement.network, self.prepared.held_out
        rows = {i: [float(len(site.targets))] for i, site in held.items()}
        is_held = bool(network.sum("rows held out", rows)[0])
        sites = held if is_held else self.prepared.fitted
        judged = {i: (site, models[i].image(site.A)) for i, site in sites.items()}
        each, everyone = fit_scores(judged, network, self.constant, self.labels)
        return FitScores(each, everyone, is_held)


@final
@dataclass(frozen=True, eq=False)
class SampleFit:
    """What a fit of samples has beside the result of its run: models in the user's units, scores, messages.

    ``sent`` lists what the agents agreed on before and after the run. ``path`` is that of the radii, if the
    radius was found.
    """

    problem: SampleProblem
    models: Mapping[int, LinearModel]
    scores: FitScores
    sent: tuple[Sent, ...]
    path: Path | None = None

    @property
    def notes(self) -> list[str]:
        """Sentences on the data."""
        return self.problem.agreement.notes

    def about(self) -> dict[str, Any]:
        """Return what a model says of its fit."""
        options = self.problem.options
        return {
            "intercept": bool(options.intercept),
            "standardized": bool(options.standardize),
            "balanced": options.balanced,
            "constant": self.problem.constant,
            "scores": {"held_out": self.scores.held_out, **self.scores.everyone.to_json()},
            "sent": [each.to_dict() for each in self.sent],
            **({} if self.path is None else {"path": self.path.to_dict()}),
        }

    def summary(self) -> dict[str, Any]:
        """Return what summary.json has of it."""
        about = self.about()
        return {
            "scores": self.scores.to_json(),
            "sent": about["sent"],
            "data_notes": self.notes,
            **{name: about[name] for name in ("intercept", "standardized", "balanced", "constant")},
            **({"path": about["path"]} if "path" in about else {}),
        }


def sample_problem(
    prepared: PreparedSites,
    problem: Problem,
    options: SampleOptions,
    agreement: Agreement,
    group: ProcessGroup,
) -> SampleProblem:
    """Return the problem of prepared rows; what it needs of all sites comes over the network."""
    with group.common_errors():
        constant, sites = _weighted(prepared.fitted, problem, options, agreement)
        made = design(
            sites, agreement.network, _loss(problem), bool(options.intercept), bool(options.standardize)
        )
        _note_constant_columns(prepared, made, agreement)
    return SampleProblem(prepared, sites, made, options, constant, problem.labels, agreement)


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


def _note_constant_columns(prepared: PreparedSites, made: Design, agreement: Agreement) -> None:
    """Note columns that are constant, at all sites or at one."""
    names = prepared.features
    if names is None:
        return
    everywhere = [names[at] for at in made.statistics.constant]
    if everywhere and made.centers:
        agreement.notes.append(
            f"{listed(everywhere)} {'has' if len(everywhere) == 1 else 'have'} the same value in all rows of "
            "all agents, and cannot help to predict."
        )
    numeric = [column["name"] for column in prepared.reading.get("columns", ()) if "levels" not in column]
    places = [names.index(name) for name in numeric if name not in everywhere]
    alone = {
        i: f"one value only in {listed(found)}"
        for i, site in prepared.fitted.items()
        if (found := [names[at] for at in places if len(site.A) and np.ptp(site.A[:, at]) == 0.0])
    }
    told = agreement.tell("sites with a constant column", alone)
    if told:
        agreement.notes.append(f"{told}.")
