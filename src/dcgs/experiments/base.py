"""What an experiment is: a problem, and the runs that are compared on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

import networkx as nx

from dcgs.datasets import Source
from dcgs.experiments.study import Measure
from dcgs.methods import Method
from dcgs.objectives import Objective
from dcgs.points import Point
from dcgs.sets import ConvexSet

AGENTS = 10

# The runs that claims are judged by; of all scalings tried, SCALED is the best.
DFW, THEOREM, SCALED = "dfw", "dcgs-theorem", "dcgs-scaled"
FAST = "fast-dcgs"

Gauge: TypeAlias = Callable[[Sequence[Point]], float]
"""A measure of the agents' answers that the library itself does not take, such as a test error."""

MEASURES = (
    Measure("local_loss", "each agent on its own data", "Σᵢ fᵢ(xᵢ)"),
    Measure("worst_loss", "the worst agent on everyone's data", "maxᵢ f(xᵢ)"),
    Measure("mean_loss", "the average model on everyone's data", "f(x̄)"),
    Measure("disagreement", "disagreement between agents", "maxᵢ ‖xᵢ − x̄‖"),
    Measure("gap", "certified gap of the average model", "max ⟨∇f(x̄), x̄ − s⟩"),
)


@final
@dataclass(frozen=True)
class Run:
    """One method on one problem: how long it runs and how often it is measured.

    ``method`` is made from ‖x⁰ − x*‖, which the theorems' parameters contain.
    ``scaling`` is the factor by which η is scaled, where the run is one of those among which the best
    scaling is looked for; None elsewhere.
    """

    key: str
    label: str
    about: str
    method: Callable[[float], Method]
    iterations: int
    every: int = 1
    lmo_calls: int | None = None
    scaling: float | None = None


@final
@dataclass(frozen=True, eq=False)
class Problem:
    """What the agents minimize together, and where its data are from.

    ``distance`` is ‖x⁰ − x*‖, or what stands in for it; ``sentence`` says what the problem is.
    """

    objectives: Sequence[Objective]
    X: ConvexSet
    source: Source
    distance: float
    sentence: str
    gauges: Mapping[str, Gauge] = field(default_factory=dict)
    measures: Sequence[Measure] = MEASURES

    @property
    def graph(self) -> nx.Graph:
        """The paper's graph, a cycle."""
        return nx.cycle_graph(len(self.objectives))


@final
@dataclass(frozen=True, eq=False)
class Experiment:
    """An experiment of the paper: ``prepare()`` reads or makes its data, ``runs`` are compared.

    ``missing`` says what it means that the data are not there.
    """

    name: str
    title: str
    prepare: Callable[[], Problem]
    runs: Sequence[Run]
    missing: str = ""
