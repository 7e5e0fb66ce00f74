"""The four experiments of the paper's section 5, at full scale and at a small one.

10 agents on a cycle, data spread evenly. What the paper leaves open is said where it is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from dcgs.datasets import (
    Ratings,
    Regression,
    completion_synthetic,
    e2006,
    e2006_lookalike,
    lasso_synthetic,
    movielens100k,
)
from dcgs.experiments import base
from dcgs.experiments.base import AGENTS, MEASURES, Experiment, Gauge, Problem, Run
from dcgs.experiments.study import Measure
from dcgs.methods import DCGS, DFW, FastDCGS, PrimalDual
from dcgs.points import Point
from dcgs.schedules import Theorem1
from dcgs.sets import L1Ball, NuclearNormBall

NAMES = ("lasso-synthetic", "lasso-e2006", "completion-synthetic", "completion-movielens")

_TESTS = {
    "test_rmse": Measure("test_rmse", "error on held-out entries, worst agent", "RMSE"),
    "test_rmse_clipped": Measure(
        "test_rmse_clipped", "error on held-out ratings, clipped to 1…5, worst agent", "RMSE, clipped"
    ),
}


@final
@dataclass(frozen=True)
class Options:
    """What is asked for: small scale or full, the seed, and what may be done for data not at hand.

    ``progress`` is told of a download's bytes, so far and in all.
    """

    quick: bool = False
    seed: int = 0
    download: bool = False
    lookalike: bool = False
    progress: Callable[[int, int | None], None] | None = None


def experiment(name: str, options: Options) -> Experiment:
    """Return an experiment by its name."""
    made = {
        "lasso-synthetic": _lasso_synthetic,
        "lasso-e2006": _lasso_e2006,
        "completion-synthetic": _completion_synthetic,
        "completion-movielens": _completion_movielens,
    }
    chosen = made[name](options)
    return replace(chosen, title=f"{chosen.title}, small scale") if options.quick else chosen


@final
@dataclass(frozen=True)
class _Effort:
    """How much work the runs of an experiment are given."""

    theorem: int
    scalings: Sequence[float]
    scaled: int
    calls: int
    exact: int
    precision: float
    dfw: int = 400
    every: int = 4
    fast: int = 60


def _runs(effort: _Effort) -> list[Run]:
    return [
        Run(
            base.DFW,
            "DFW",
            "Decentralized Frank-Wolfe with gradient tracking, the paper's baseline: step 2/(t+1), "
            "Metropolis weights, two rounds and one oracle call an iteration.",
            lambda distance: DFW(),
            effort.dfw,
            effort.every,
        ),
        Run(
            base.THEOREM,
            "DCGS, Theorem 1",
            "The paper's method with its theorem's parameters; the answer is the average of all iterates, as "
            "printed.",
            lambda distance: DCGS(schedule=Theorem1(distance=distance)),
            effort.theorem,
            # Enough to settle whether its calls are comparable to DFW's: at most three times as many.
            lmo_calls=max(effort.calls, 3 * effort.dfw),
        ),
        *(_scaled(c, effort) for c in effort.scalings),
        Run(
            "primal-dual",
            "Primal-dual (Algorithm 1)",
            "DCGS with every subproblem solved to one precision, a gap of "
            f"{effort.precision:g} of that at x⁰; Theorem 1's η and τ.",
            lambda distance: PrimalDual(schedule=Theorem1(), precision=effort.precision),
            effort.exact,
            lmo_calls=effort.calls,
        ),
        Run(
            base.FAST,
            "FastDCGS",
            "Not in the paper: the method of dcgs, as it comes. One round an iteration; the agents find "
            "balance and precision.",
            lambda distance: FastDCGS(),
            effort.fast,
        ),
    ]


def _scaled(c: float, effort: _Effort) -> Run:
    return Run(
        f"dcgs-x{c:g}",
        f"DCGS, η × {c:g}, last iterate",
        f"The paper's method with η {c:g} times and τ {1 / c:g} times the theorem's, the same for all "
        "agents, which its proof allows; the answer is the last iterate.",
        lambda distance: DCGS(schedule=Theorem1(balance=c, distance=distance), answer="last"),
        effort.scaled,
        max(1, effort.scaled // 100),
        effort.calls,
        c,
    )


def _lasso_synthetic(options: Options) -> Experiment:
    samples, features, nonzeros = (200, 1000, 10) if options.quick else (2000, 10_000, 100)
    # ρ = 1000 is 1.25 times ‖θ₀‖₁ at the paper's size; the small problem keeps that.
    radius = 1000.0 * (nonzeros / 100.0) ** 0.5

    def prepare() -> Problem:
        data = lasso_synthetic(samples, features, nonzeros, seed=options.seed)
        # ‖θ₀‖ = 100 by construction; x* is near θ₀.
        return _lasso(data, radius, 100.0)

    full = _Effort(
        theorem=5, scalings=(30.0, 100.0, 300.0, 1000.0), scaled=60, calls=25_000, exact=3, precision=1e-3
    )
    quick = replace(full, calls=6000)
    return Experiment("lasso-synthetic", "Lasso, synthetic", prepare, _runs(quick if options.quick else full))


def _lasso_e2006(options: Options) -> Experiment:
    samples, features = (300, 3000) if options.quick else (4000, 150_360)
    radius = 1000.0  # and a bound of ‖x⁰ − x*‖: nothing better is known of these data
    full = _Effort(theorem=30, scalings=(0.001, 0.01, 0.1), scaled=50, calls=1000, exact=3, precision=1e-5)
    quick = replace(full, scaled=20)
    runs = _runs(quick if options.quick else full)
    if options.quick or options.lookalike:

        def make() -> Problem:
            return _lasso(e2006_lookalike(samples, features, seed=options.seed), radius, radius)

        return Experiment("lasso-e2006-lookalike", "Lasso, look-alike of E2006-tfidf", make, runs)

    def prepare() -> Problem:
        data = e2006(download=options.download, progress=options.progress).sample(samples, options.seed)
        return _lasso(data, radius, radius)

    return Experiment(
        "lasso-e2006",
        "Lasso, E2006-tfidf",
        prepare,
        runs,
        "E2006-tfidf is not at hand; --look-alike runs on data made to resemble it, and says so.",
    )


def _lasso(data: Regression, radius: float, distance: float) -> Problem:
    samples, features = data.A.shape
    return Problem(
        data.objectives(AGENTS),
        L1Ball(features, radius),
        data.source,
        distance,
        f"‖A x − b‖² with {samples:,} samples × {features:,} features over ‖x‖₁ ≤ {radius:.4g}; "
        f"{data.source.kind}, spread evenly over {AGENTS} agents on a cycle.",
    )


def _completion_synthetic(options: Options) -> Experiment:
    side, rank, entries = (60, 3, 900) if options.quick else (200, 5, 5000)
    # ρ = 10⁴ is ten times the nuclear norm of the truth at the paper's size; the small problem keeps that.
    radius = 10.0 * rank * side

    def prepare() -> Problem:
        # The paper's entries are all learnt from; a quarter as many are drawn in addition and held out.
        data = completion_synthetic(side, rank, entries + entries // 4, seed=options.seed)
        known, held_out = data.take(np.arange(entries)), data.take(np.arange(entries, len(data)))
        gauges = {"test_rmse": _worst_rmse(held_out)}
        return _completion(known, held_out, radius, gauges)

    full = _Effort(theorem=20, scalings=(0.03, 0.1, 0.3), scaled=20, calls=2000, exact=5, precision=1e-2)
    quick = replace(full, calls=1000)
    runs = _runs(quick if options.quick else full)
    return Experiment("completion-synthetic", "Matrix completion, synthetic", prepare, runs)


def _completion_movielens(options: Options) -> Experiment:
    radius = 1e3 if options.quick else 1e4

    def prepare() -> Problem:
        data = movielens100k(download=options.download, progress=options.progress)
        chosen = _busiest(data, 100, 160) if options.quick else data
        known, held_out = chosen.split(0.2, options.seed)
        gauges = {
            "test_rmse": _worst_rmse(held_out),
            "test_rmse_clipped": _worst_rmse(held_out, (1.0, 5.0)),
        }
        return _completion(known, held_out, radius, gauges)

    full = _Effort(
        theorem=20, scalings=(0.1, 0.3, 1.0), scaled=10, calls=500, exact=5, precision=0.1, every=10, fast=30
    )
    quick = replace(full, calls=200)
    return Experiment(
        "completion-movielens",
        "Matrix completion, MovieLens 100K",
        prepare,
        _runs(quick if options.quick else full),
        "MovieLens 100K is not at hand.",
    )


def _completion(known: Ratings, held_out: Ratings, radius: float, gauges: dict[str, Gauge]) -> Problem:
    d1, d2 = known.shape
    # The matrix of the known entries with zeros elsewhere is, of all that fit them, the nearest to x⁰ = 0.
    # The synthetic one is in the ball, so that this is ‖x⁰ − x*‖ itself. That of MovieLens is not (its
    # nuclear norm is about 2·10⁴): there it is an estimate.
    distance = float(np.linalg.norm(known.values))
    return Problem(
        known.objectives(AGENTS),
        NuclearNormBall((d1, d2), radius),
        known.source,
        distance,
        f"{len(known):,} known entries of a {d1} × {d2} matrix over nuclear norm ≤ {radius:,.0f}, "
        f"{len(held_out):,} more held out; {known.source.kind}, spread evenly over {AGENTS} agents on a "
        "cycle.",
        gauges,
        (*MEASURES, *(_TESTS[name] for name in gauges)),
    )


def _worst_rmse(held_out: Ratings, clip: tuple[float, float] = (-np.inf, np.inf)) -> Gauge:
    """Return the root mean squared error on entries nobody learnt from, of the worst agent."""

    def rmse(x: Point) -> float:
        error = np.clip(x[held_out.rows, held_out.cols], *clip) - held_out.values
        return float(np.sqrt(np.mean(error**2)))

    return lambda agents: max(map(rmse, agents))


def _busiest(data: Ratings, users: int, items: int) -> Ratings:
    """Return the ratings by the users with most of them of the items with most of them, numbered anew."""
    rows, cols = data.rows, data.cols
    top_rows = np.sort(np.argsort(-np.bincount(rows, minlength=data.shape[0]), kind="stable")[:users])
    top_cols = np.sort(np.argsort(-np.bincount(cols, minlength=data.shape[1]), kind="stable")[:items])
    chosen = np.flatnonzero(np.isin(rows, top_rows) & np.isin(cols, top_cols))
    return Ratings(
        np.searchsorted(top_rows, rows[chosen]),
        np.searchsorted(top_cols, cols[chosen]),
        data.values[chosen],
        (users, items),
        data.source,
    )
