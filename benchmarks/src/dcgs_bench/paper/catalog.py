"""The four experiments of the paper's section 5, at full scale and at a small one.

10 agents on a cycle, data split evenly. A comment states each choice that the paper leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import networkx as nx
import numpy as np

from dcgs import datasets
from dcgs.datasets import Ratings, Regression, Source
from dcgs.methods import DCGS, DFW, FastDCGS, Method, PrimalDual
from dcgs.points import Point
from dcgs.schedules import Theorem1
from dcgs.sets import L1Ball, NuclearNormBall
from dcgs_bench.paper import results
from dcgs_bench.paper.results import MEASURES, Measure
from dcgs_bench.study import Budget, Metric, StudyProblem, execute

AGENTS = 10

_CLIPPED = "error on held-out ratings, clipped to 1…5, worst agent"
_TESTS = {
    "test_rmse": Measure("test_rmse", "error on held-out entries, worst agent", "RMSE"),
    "test_rmse_clipped": Measure("test_rmse_clipped", _CLIPPED, "RMSE, clipped"),
}


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

    def record(self, data: PreparedExperiment, seed: int) -> dict[str, Any]:
        """Do the run; return its record."""
        return vars(execute(data.problem, self.method(data.distance), self.budget, seed))


@final
@dataclass(frozen=True, eq=False)
class PreparedExperiment:
    """The problem of an experiment and the source of its data.

    ``distance`` is ‖x⁰ − x*‖ or an estimate of it. ``description`` is a sentence.
    """

    problem: StudyProblem
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
    prepare: Callable[[], PreparedExperiment]
    runs: Sequence[PlannedRun]
    missing: str = ""


@final
@dataclass(frozen=True)
class Options:
    """The scale, the seed, and how data that are not on this machine are replaced.

    ``progress`` is called with the bytes of a download, so far and in all.
    """

    quick: bool = False
    seed: int = 0
    download: bool = False
    lookalike: bool = False
    progress: Callable[[int, int | None], None] | None = None


def experiment(name: str, options: Options) -> Experiment:
    """Return the experiment of that name."""
    chosen = _EXPERIMENTS[name](options)
    return replace(chosen, title=f"{chosen.title}, small scale") if options.quick else chosen


@final
@dataclass(frozen=True)
class _Effort:
    """The budgets of the runs of an experiment: iterations, the most oracle ``calls``, and a precision."""

    theorem: int
    scalings: Sequence[float]
    scaled: int
    calls: int
    exact: int
    precision: float
    dfw: int = 400
    every: int = 4
    fast: int = 60


def _runs(effort: _Effort) -> list[PlannedRun]:
    # Enough calls to settle whether DCGS needs at most three times as many as DFW.
    theorem_calls = max(effort.calls, 3 * effort.dfw)
    return [
        PlannedRun(
            results.DFW,
            "DFW",
            "Decentralized Frank-Wolfe with gradient tracking, the paper's baseline: step 2/(t+1), "
            "Metropolis weights, two rounds and one oracle call an iteration.",
            lambda distance: DFW(),
            Budget(iterations=effort.dfw, every=effort.every),
        ),
        PlannedRun(
            results.THEOREM,
            "DCGS, Theorem 1",
            "The paper's method with its theorem's parameters; the answer is the average of all iterates, as "
            "printed.",
            lambda distance: DCGS(schedule=Theorem1(distance=distance)),
            Budget(iterations=effort.theorem, lmo_calls=theorem_calls),
        ),
        *(_scaled(c, effort) for c in effort.scalings),
        PlannedRun(
            "primal-dual",
            "Primal-dual (Algorithm 1)",
            "DCGS with every subproblem solved to one precision, a gap of "
            f"{effort.precision:g} of that at x⁰; Theorem 1's η and τ.",
            lambda distance: PrimalDual(schedule=Theorem1(), precision=effort.precision),
            Budget(iterations=effort.exact, lmo_calls=effort.calls),
        ),
        PlannedRun(
            "fast-dcgs",
            "FastDCGS",
            "Not in the paper: the method of dcgs, with default settings. One round an iteration; the agents "
            "find balance and precision.",
            lambda distance: FastDCGS(),
            Budget(iterations=effort.fast),
        ),
    ]


def _scaled(c: float, effort: _Effort) -> PlannedRun:
    return PlannedRun(
        f"dcgs-x{c:g}",
        f"DCGS, η × {c:g}, last iterate",
        f"The paper's method with η {c:g} times and τ {1 / c:g} times the theorem's, the same for all "
        "agents, which its proof allows; the answer is the last iterate.",
        lambda distance: DCGS(schedule=Theorem1(balance=c, distance=distance), answer="last"),
        Budget(iterations=effort.scaled, every=max(1, effort.scaled // 100), lmo_calls=effort.calls),
        c,
    )


def _lasso_synthetic(options: Options) -> Experiment:
    samples, features, nonzeros = (200, 1000, 10) if options.quick else (2000, 10_000, 100)
    # ρ = 1000 is 1.25 times ‖θ₀‖₁ at the paper's size; the small problem keeps that.
    radius = 1000.0 * (nonzeros / 100.0) ** 0.5

    def prepare() -> PreparedExperiment:
        data = datasets.lasso_synthetic(samples, features, nonzeros, seed=options.seed)
        return _lasso(data, radius, 100.0)  # ‖θ₀‖ = 100 by construction; x* is near θ₀

    effort = _Effort(5, (30.0, 100.0, 300.0, 1000.0), 60, 6000 if options.quick else 25_000, 3, 1e-3)
    return Experiment("lasso-synthetic", "Lasso, synthetic", prepare, _runs(effort))


def _lasso_e2006(options: Options) -> Experiment:
    samples, features = (300, 3000) if options.quick else (4000, 150_360)
    radius = 1000.0  # also a bound of ‖x⁰ − x*‖: nothing better is known of these data
    made = options.quick or options.lookalike

    def prepare() -> PreparedExperiment:
        if made:
            return _lasso(datasets.e2006_lookalike(samples, features, seed=options.seed), radius, radius)
        data = datasets.e2006(download=options.download, progress=options.progress)
        return _lasso(data.sample(samples, options.seed), radius, radius)

    effort = _Effort(30, (0.001, 0.01, 0.1), 20 if options.quick else 50, 1000, 3, 1e-5)
    if made:
        return Experiment("lasso-e2006-lookalike", "Lasso, look-alike of E2006-tfidf", prepare, _runs(effort))
    missing = "E2006-tfidf was not found; --look-alike runs on data made to resemble it, and says so."
    return Experiment("lasso-e2006", "Lasso, E2006-tfidf", prepare, _runs(effort), missing)


def _lasso(data: Regression, radius: float, distance: float) -> PreparedExperiment:
    samples, features = data.A.shape
    return PreparedExperiment(
        StudyProblem(data.objectives(AGENTS), L1Ball(features, radius), nx.cycle_graph(AGENTS)),
        data.source,
        distance,
        f"‖A x − b‖² with {samples:,} samples × {features:,} features over ‖x‖₁ ≤ {radius:.4g}; "
        f"{data.source.kind}, spread evenly over {AGENTS} agents on a cycle.",
    )


def _completion_synthetic(options: Options) -> Experiment:
    side, rank, entries = (60, 3, 900) if options.quick else (200, 5, 5000)
    # ρ = 10⁴ is ten times the nuclear norm of the truth at the paper's size; the small problem keeps that.
    radius = 10.0 * rank * side

    def prepare() -> PreparedExperiment:
        # The paper's entries are all for training; a quarter as many are drawn in addition and held out.
        data = datasets.completion_synthetic(side, rank, entries + entries // 4, seed=options.seed)
        known, held_out = data.take(np.arange(entries)), data.take(np.arange(entries, len(data)))
        return _completion(known, held_out, radius, {"test_rmse": _worst_rmse(held_out)})

    effort = _Effort(20, (0.03, 0.1, 0.3), 20, 1000 if options.quick else 2000, 5, 1e-2)
    return Experiment("completion-synthetic", "Matrix completion, synthetic", prepare, _runs(effort))


def _completion_movielens(options: Options) -> Experiment:
    radius = 1e3 if options.quick else 1e4

    def prepare() -> PreparedExperiment:
        data = datasets.movielens100k(download=options.download, progress=options.progress)
        if options.quick:  # the first users and items
            few = data.take(np.flatnonzero((data.rows < 150) & (data.cols < 300)))
            data = replace(few, shape=(150, 300))
        known, held_out = data.split(0.2, options.seed)
        clipped = _worst_rmse(held_out, (1.0, 5.0))
        metrics = {"test_rmse": _worst_rmse(held_out), "test_rmse_clipped": clipped}
        return _completion(known, held_out, radius, metrics)

    effort = _Effort(20, (0.1, 0.3, 1.0), 10, 200 if options.quick else 500, 5, 0.1, every=10, fast=30)
    title, missing = "Matrix completion, MovieLens 100K", "MovieLens 100K was not found."
    return Experiment("completion-movielens", title, prepare, _runs(effort), missing)


def _completion(
    known: Ratings, held_out: Ratings, radius: float, metrics: dict[str, Metric]
) -> PreparedExperiment:
    d1, d2 = known.shape
    # Of all matrices that fit the known entries, the one with zeros elsewhere is the nearest to x⁰ = 0.
    # The synthetic one is in the ball, so its norm is ‖x⁰ − x*‖. That of MovieLens is not (its nuclear norm
    # is about 2·10⁴); there the norm is an estimate.
    distance = float(np.linalg.norm(known.values))
    X = NuclearNormBall((d1, d2), radius)
    return PreparedExperiment(
        StudyProblem(known.objectives(AGENTS), X, nx.cycle_graph(AGENTS), metrics),
        known.source,
        distance,
        f"{len(known):,} known entries of a {d1} × {d2} matrix over nuclear norm ≤ {radius:,.0f}, "
        f"{len(held_out):,} more held out; {known.source.kind}, spread evenly over {AGENTS} agents on a "
        "cycle.",
        (*MEASURES, *(_TESTS[name] for name in metrics)),
    )


def _worst_rmse(held_out: Ratings, clip: tuple[float, float] = (-np.inf, np.inf)) -> Metric:
    """Return the worst agent's root mean squared error on the held-out entries."""

    def rmse(x: Point) -> float:
        error = np.clip(x[held_out.rows, held_out.cols], *clip) - held_out.values
        return float(np.sqrt(np.mean(error**2)))

    return lambda agents: max(map(rmse, agents))


_EXPERIMENTS: dict[str, Callable[[Options], Experiment]] = {
    "lasso-synthetic": _lasso_synthetic,
    "lasso-e2006": _lasso_e2006,
    "completion-synthetic": _completion_synthetic,
    "completion-movielens": _completion_movielens,
}
NAMES = tuple(_EXPERIMENTS)
