"""A run that is resumed from a checkpoint equals the one that never stopped, to the bit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dcgs
from dcgs import Checkpoint, ConvexSet, Method, Objective, Result
from dcgs.inner import Exact
from problems import GRAPHS

Make = Callable[[np.random.Generator], Objective]
# Measured seconds differ from run to run; everything else of a history may not.
TIMES = {"seconds", "computing"}
D, SHAPE = 12, (6, 9)


def vectors(rng: np.random.Generator) -> Objective:
    return dcgs.LeastSquares(rng.standard_normal((5, D)), 3.0 * rng.standard_normal(5))


def full_rank(rng: np.random.Generator) -> Objective:
    return dcgs.LeastSquares(rng.standard_normal((D + 4, D)), 3.0 * rng.standard_normal(D + 4))


def sparse(rng: np.random.Generator) -> Objective:
    A = rng.standard_normal((7, D)) * (rng.random((7, D)) < 0.4)
    return dcgs.LeastSquares(sp.csr_array(A), 3.0 * rng.standard_normal(7))


def labels(rng: np.random.Generator) -> Objective:
    return dcgs.Logistic(rng.standard_normal((8, D)), rng.choice([-1.0, 1.0], size=8))


def by_columns(rng: np.random.Generator) -> Objective:
    return dcgs.LeastSquares(np.asfortranarray(rng.standard_normal((5, D))), rng.standard_normal(5))


def entries(rng: np.random.Generator) -> Objective:
    flat = rng.choice(SHAPE[0] * SHAPE[1], size=20, replace=False)
    return dcgs.MatrixCompletion(flat // SHAPE[1], flat % SHAPE[1], rng.standard_normal(20), SHAPE)


def squares(rng: np.random.Generator) -> Objective:
    return dcgs.LeastSquares(rng.standard_normal((5, 9)), rng.standard_normal(5), (3, 3))


L1, L2 = dcgs.L1Ball(D, 2.0), dcgs.L2Ball(D, 1.5)
NUCLEAR = dcgs.NuclearNormBall(SHAPE, 4.0)
BOX = dcgs.Box(-0.3 * np.ones(D), 0.5 * np.ones(D))
HULL = dcgs.ConvexHull(np.random.default_rng(7).standard_normal((15, D)))
T1 = dcgs.Theorem1(horizon=10)
T2 = dcgs.Theorem2(horizon=10)

CASES: list[tuple[Method, ConvexSet, Make]] = [
    (dcgs.DCGS(inner="cg", schedule=T1), L1, vectors),
    (dcgs.DCGS(inner="cg", schedule=T1, answer="last"), NUCLEAR, entries),
    (dcgs.DCGS(inner=dcgs.CG(step="agnostic"), schedule=T1), L2, labels),
    (dcgs.DCGS(inner="pcg", schedule=T1), L1, vectors),
    (dcgs.DCGS(inner="pcg", schedule=T2, answer="last"), BOX, full_rank),
    (dcgs.DCGS(inner="pcg", schedule=T1), dcgs.BirkhoffPolytope(3), squares),
    (dcgs.DCGS(schedule=T2), HULL, full_rank),
    (dcgs.PrimalDual(schedule=T1), L2, vectors),
    (dcgs.PrimalDual(schedule=T1, precision=1e-6), L1, sparse),
    (dcgs.PrimalDual(schedule=T2, inner="cg", precision=1e-3, answer="last"), L2, full_rank),
    (dcgs.DFW(), NUCLEAR, entries),
    (dcgs.DFW(), dcgs.Simplex(D, 2.0), sparse),
    (dcgs.DFW(tracking=False), dcgs.KSparseBall(D, 3, 1.0), vectors),
    (dcgs.DFW(tracking=False), dcgs.Spectraplex(3, 2.0), squares),
    (dcgs.FastDCGS(), L1, vectors),
    (dcgs.FastDCGS(), L1, labels),
    (dcgs.FastDCGS(), HULL, vectors),
    (dcgs.FastDCGS(), L2, vectors),
    (dcgs.FastDCGS(), NUCLEAR, entries),
    (dcgs.FastDCGS(), dcgs.GroupL1Ball(D, [range(4), range(4, D)], 2.0), sparse),
    (dcgs.FastDCGS(form="edges"), L1, by_columns),
    (dcgs.FastDCGS(form="edges"), NUCLEAR, entries),
    (dcgs.FastDCGS(form="edges"), L2, full_rank),
    (dcgs.FastDCGS(form="edges", inner=Exact()), L2, vectors),
    (dcgs.FastDCGS(form="edges", inner="corrective"), BOX, labels),
    (dcgs.FastDCGS(inner="corrective"), dcgs.BirkhoffPolytope(3), squares),
    (dcgs.FastDCGS(inner="pcg"), HULL, vectors),
    (dcgs.FastDCGS(form="edges", inner="pcg", eta=2.0), L1, sparse),
    (dcgs.FastDCGS(inner="cg", precision=0.5), L2, labels),
    (dcgs.FastDCGS(form="edges", inner="cg", stops_itself=False), NUCLEAR, entries),
    (dcgs.PGExtra(), L1, vectors),
    (dcgs.PGExtra(laziness=0.0, step=0.01), NUCLEAR, entries),
    (dcgs.NIDS(), BOX, sparse),
    (dcgs.NIDS(step=0.02), dcgs.Spectraplex(3, 2.0), squares),
    (dcgs.ProjectedAGD(), L1, vectors),
    (dcgs.ProjectedAGD(gossip="exact"), L2, labels),
    (dcgs.ProjectedAGD(gossip="chebyshev"), NUCLEAR, entries),
    (dcgs.ProjectedAGD(gossip="repeated", gossip_rounds=3), dcgs.Simplex(D, 2.0), full_rank),
]


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything that minimize is told, but for limits and checkpoints."""

    objectives: list[Objective]
    X: ConvexSet
    graph: nx.Graph
    method: Method

    def run(self, **rules: Any) -> Result:
        return dcgs.minimize(self.objectives, self.X, self.graph, self.method, **rules)


def problem(case: int, graph: nx.Graph, seed: int) -> Problem:
    method, X, make = CASES[case]
    rng = np.random.default_rng(seed)
    return Problem([make(rng) for _ in graph], X, graph, method)


def bits(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    a = np.asarray(array)
    return a.dtype.str, a.shape, a.tobytes()


def everything(result: Result) -> dict[str, Any]:
    """Return all of a result that does not depend on the clock, arrays as their bits."""
    names = ("x", "agents", "rounds", "messages", "bytes", "lmo_calls", "projections", "iterations")
    parts = {name: bits(getattr(result, name)) for name in names}
    columns = result.history.columns().items()
    history = {f"history.{name}": bits(column) for name, column in columns if name not in TIMES}
    return parts | history | {"status": result.status, "notes": result.notes}


def once(seed: int = 0) -> Problem:
    """Return a small problem that all agents work on for some hundred iterations."""
    return problem(14, nx.cycle_graph(4), seed)


@pytest.mark.parametrize(
    "case", range(len(CASES)), ids=lambda i: f"{CASES[i][0]} {type(CASES[i][1]).__name__}"
)
@given(
    name=st.sampled_from(sorted(GRAPHS)),
    stop=st.integers(1, 12),
    more=st.integers(0, 12),
    every=st.integers(1, 6),
    gap=st.sampled_from([None, 1e-2, 1e-6]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_a_resumed_run_equals_the_uninterrupted_one_to_the_bit(
    case: int, name: str, stop: int, more: int, every: int, gap: float | None, seed: int
) -> None:
    at = problem(case, GRAPHS[name], seed)
    whole = at.run(iterations=stop + more, gap=gap)
    with tempfile.TemporaryDirectory() as folder:
        at.run(iterations=stop, gap=gap, checkpoint=Checkpoint(folder, every))
        resumed = at.run(iterations=stop + more, gap=gap, checkpoint=Checkpoint(folder, every, resume=True))
    assert everything(resumed) == everything(whole)
