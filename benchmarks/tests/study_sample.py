"""A study with made-up, smooth curves: all that a report can meet, and no run behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dcgs.datasets import Source, SourceKind
from dcgs.link import Link
from dcgs_bench.paper.results import Claim, Curve, Findings, Measure, OracleCost, PaperStudy, Verdict
from dcgs_bench.study import RunRecord

LOSSES = (
    Measure("local_loss", "each agent's model on its own data", "Σᵢ fᵢ(xᵢ)"),
    Measure("worst_loss", "the worst agent's model on everyone's data", "maxᵢ f(xᵢ)"),
    Measure("mean_loss", "the average model on everyone's data", "f(x̄)"),
    Measure("disagreement", "how far agents are from their average", "maxᵢ ‖xᵢ − x̄‖"),
    Measure("gap", "Wolfe gap at the average: bounds how far f(x̄) is from the best", "max ⟨∇f(x̄), x̄ − s⟩"),
)
ERRORS = (
    Measure("test_rmse", "error on held-out ratings", "RMSE"),
    Measure("test_rmse_clipped", "the same with ratings clipped to 1–5", "RMSE, clipped"),
)


@dataclass(frozen=True)
class Shape:
    """How a made-up run behaves: falling rates per round, and what a round costs."""

    key: str
    label: str
    about: str
    local: float
    worst: float
    points: int
    every: int = 1
    calls: float = 1.0
    seconds: float = 0.02
    status: str = "the budget of rounds is used up."
    notes: tuple[str, ...] = ()


SHAPES = (
    Shape(
        "dcgs-cg",
        "DCGS, CG inside",
        "The paper's Algorithm 2 with conditional gradient as inner procedure.",
        0.9,
        0.08,
        120,
        2,
        40.0,
        0.4,
    ),
    Shape(
        "dcgs-pcg",
        "DCGS, PCG inside",
        "The paper's Algorithm 3: pairwise conditional gradient inside.",
        2.2,
        0.05,
        25,
        2,
        90.0,
        0.9,
        notes=("The inner gap was met in 24 of 25 iterations; the last one hit its limit of 2,000 steps.",),
    ),
    Shape(
        "dfw",
        "DFW",
        "Decentralized Frank-Wolfe, the paper's baseline: one oracle call a round.",
        0.62,
        0.6,
        380,
    ),
    Shape(
        "fast-dcgs",
        "FastDCGS",
        "Our method: one round an iteration, weight and relaxation set from the graph.",
        0.85,
        0.95,
        200,
        1,
        12.0,
        0.11,
        "the certified gap reached the one asked for.",
    ),
    Shape(
        "pg-extra",
        "PG-EXTRA",
        "A projection-based peer; it calls no linear oracle.",
        0.7,
        0.66,
        300,
        1,
        0.0,
        0.25,
    ),
)


def columns(shape: Shape, start: float, message: float, errors: bool) -> Mapping[str, list[float]]:
    """Return smooth columns that fall from ``start`` as the shape says."""
    k = np.arange(shape.points, dtype=float)
    rounds = k * shape.every
    local = start / (1 + rounds) ** (2 * shape.local)
    worst = start * (1 + 3 * np.tanh(rounds / 9) * (shape.worst < 0.1)) / (1 + rounds) ** (2 * shape.worst)
    made = {
        "iterations": k,
        "rounds": rounds,
        "messages": 2 * rounds,
        "bytes": 2 * rounds * message,
        "peak_bytes": 3 * rounds * message,
        "lmo_calls": np.round(shape.calls * k * (1 + k / 200)),
        "computing": shape.seconds * k**1.02,
        "local_loss": local,
        "worst_loss": np.maximum(worst, local),
        "mean_loss": np.maximum(0.8 * worst, local),
        "disagreement": 30 * np.where(k == 0, 0.0, 1 / (1 + rounds) ** shape.worst),
        "gap": 2.0 * worst,
    }
    rmse = 0.93 + 2.6 / (1 + rounds) ** (1.2 * shape.worst)
    extra = {"test_rmse": rmse, "test_rmse_clipped": 0.92 + 0.9 * (rmse - 0.93)}
    return {name: column.tolist() for name, column in {**made, **(extra if errors else {})}.items()}


def curves(start: float, message: float, errors: bool = False) -> list[Curve]:
    """Return one curve per shape."""
    return [
        Curve(
            shape.key,
            shape.label,
            shape.about,
            RunRecord(
                "ROUNDS",
                shape.status,
                shape.label,
                shape.points - 1,
                1,
                notes=shape.notes,
                columns=columns(shape, start, message, errors),
            ),
        )
        for shape in SHAPES
    ]


def with_columns(curve: Curve, columns: Mapping[str, Sequence[float]]) -> Curve:
    """Return a curve with other columns."""
    return replace(curve, run=replace(curve.run, columns=columns))


def lasso() -> Findings:
    """Return the synthetic Lasso; all verdicts occur."""
    return Findings(
        name="lasso-synthetic",
        title="Lasso on synthetic data",
        problem="Minimize Σᵢ ‖Aᵢ x − bᵢ‖² over ‖x‖₁ ≤ 1,000; 2,000 samples, 10,000 unknowns, "
        "10 agents on a cycle.",
        source=Source("lasso_synthetic", SourceKind.SYNTHETIC, seed=7),
        degree=2,
        measures=LOSSES,
        curves=curves(2.1e7, 80_000.0),
        claims=(
            Claim(
                "DCGS needs far fewer rounds than DFW.",
                "To Σᵢ fᵢ(xᵢ) ≤ 10³ DCGS takes 6 rounds and DFW 2,400. On everyone's data DCGS is at "
                "1.7·10⁷ where DFW is at 2.7·10⁵.",
                Verdict.PAPER_ONLY,
            ),
            Claim("DFW calls the oracle once a round.", "Counted: 380 calls in 380 rounds.", Verdict.HOLDS),
            Claim(
                "All agents end with nearly the same model.",
                "maxᵢ ‖xᵢ − x̄‖ is 21 at the end, against 30 at the start.",
                Verdict.FAILS,
            ),
            Claim("The bound of Theorem 1 holds for every N.", "Not part of this experiment.", Verdict.OPEN),
        ),
        summary="With the theorem's parameters the agents fit their own data at once and hardly use "
        "each other's. On everyone's data the order of the methods is another one.",
    )


def lookalike() -> Findings:
    """Return an experiment on data that only look like the real ones."""
    return Findings(
        name="lasso-e2006",
        title="Lasso on E2006-tfidf",
        problem="Minimize Σᵢ ‖Aᵢ x − bᵢ‖² over ‖x‖₁ ≤ 100; sparse data, 10 agents on a cycle.",
        source=Source("E2006-tfidf", SourceKind.LOOKALIKE, seed=11),
        degree=2,
        measures=LOSSES,
        curves=curves(4.4e4, 1_202_888.0),
        claims=(
            Claim(
                "On E2006-tfidf DCGS beats DFW in rounds.",
                "On the look-alike: yes for the paper's loss, no on everyone's data.",
                Verdict.PAPER_ONLY,
            ),
        ),
        summary="The real data were not to be had here, so rows with the same sparsity were drawn.",
    )


def completion() -> Findings:
    """Return a completion with real data and errors on held-out ratings."""
    return Findings(
        name="completion-movielens100k",
        title="Matrix completion on MovieLens 100k",
        problem="Minimize Σᵢ Σ (X_uv − r_uv)² over the nuclear-norm ball of radius 3,000; 943 × 1,682, "
        "6 agents on a cycle.",
        source=Source(
            "MovieLens 100k", SourceKind.REAL, files={"u.data": "06416e597f82b7342361e41163890c81" * 2}
        ),
        degree=2,
        measures=(*LOSSES, *ERRORS),
        curves=curves(1.3e6, 12_689_008.0, errors=True),
        claims=(
            Claim(
                "DCGS with CG converges faster than DFW in oracle calls.",
                "For Σᵢ fᵢ(xᵢ): 310 calls against 900. For the worst agent: not within the budget.",
                Verdict.PAPER_ONLY,
            ),
        ),
        summary="The errors on held-out ratings follow the measures on all data, not the paper's loss.",
    )


def cost() -> OracleCost:
    """Return a measured cost claim."""
    return OracleCost(
        side=10_000,
        rows=[
            {
                "case": case,
                "seconds": seconds,
                "round_seconds": 80.0,
                "waiting_share": 80.0 / (80.0 + seconds),
                "waiting_share_dfw": 160.0 / (160.0 + seconds),
            }
            for case, seconds in (
                ("dense", 5.4),
                ("dense, loose", 1.4),
                ("sparse", 0.21),
            )
        ],
        claim=Claim(
            "A round costs 80 s and an oracle call far less.",
            "0.21 s where zeros are left out, 5.4 s on a dense matrix.",
            Verdict.HOLDS,
        ),
    )


def manifest(quick: bool = True) -> dict[str, object]:
    """Return how a study was made."""
    return {
        "command": "dcgs reproduce --quick --seed 7 --link 10MB/s",
        "seed": 7,
        "quick": quick,
        "started": "2026-01-02T03:04:05+00:00",
        "seconds": 97.4,
        "versions": {"dcgs": "0.1.0", "python": "3.11.7", "numpy": "2.4.6", "scipy": "1.17.1"},
        "machine": {"system": "Linux", "processor": "x86_64", "cores": 2},
        "experiments": {
            "completion-movielens1m": {
                "title": "Matrix completion on MovieLens 1M",
                "skipped": {
                    "why": "the file ratings.dat is not in the data folder.",
                    "how": "get ml-1m.zip from GroupLens, unpack it into the data folder, and run again.",
                },
            }
        },
    }


def sample(findings: Sequence[Findings] | None = None, link: Link | None = None) -> PaperStudy:
    """Return a study of three experiments, one that was skipped, and the cost claim."""
    return PaperStudy(
        findings=(lasso(), lookalike(), completion()) if findings is None else findings,
        cost=cost(),
        link=link or Link(),
        manifest=manifest(),
    )
