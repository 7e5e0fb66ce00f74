"""What an experiment is: data, and the runs that are compared on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from dcgs.datasets import Source
from dcgs.experiments.results import Measure
from dcgs.methods import Method
from dcgs.study import Budget, Problem

AGENTS = 10

# The runs that claims are judged by; of all scalings tried, SCALED is the best.
DFW, THEOREM, SCALED = "dfw", "dcgs-theorem", "dcgs-scaled"
FAST = "fast-dcgs"

MEASURES = (
    Measure("local_loss", "each agent on its own data", "Σᵢ fᵢ(xᵢ)"),
    Measure("worst_loss", "the worst agent on everyone's data", "maxᵢ f(xᵢ)"),
    Measure("mean_loss", "the average model on everyone's data", "f(x̄)"),
    Measure("disagreement", "disagreement between agents", "maxᵢ ‖xᵢ − x̄‖"),
    Measure("gap", "certified gap of the average model", "max ⟨∇f(x̄), x̄ − s⟩"),
)


@final
@dataclass(frozen=True)
class PlannedRun:
    """One method of an experiment and its budget.

    ``method`` is made from ‖x⁰ − x*‖, which the theorems' parameters contain. ``scaling`` is the factor of η,
    where the run is one of those among which the best scaling is chosen; None elsewhere.
    """

    key: str
    label: str
    about: str
    method: Callable[[float], Method]
    budget: Budget
    scaling: float | None = None


@final
@dataclass(frozen=True, eq=False)
class Prepared:
    """The problem of an experiment and the source of its data.

    ``distance`` is ‖x⁰ − x*‖ or an estimate of it. ``description`` is a sentence.
    """

    problem: Problem
    source: Source
    distance: float
    description: str
    measures: Sequence[Measure] = MEASURES


@final
@dataclass(frozen=True, eq=False)
class Experiment:
    """An experiment of the paper: ``prepare()`` reads or makes its data, ``runs`` are compared.

    ``missing`` is the sentence for data that cannot be found.
    """

    name: str
    title: str
    prepare: Callable[[], Prepared]
    runs: Sequence[PlannedRun]
    missing: str = ""
