"""Random problems from one seed: losses, data of all scales, sets and graphs.

:class:`DataGenerator` draws the data of one agent after another; fuzz.py draws its problems with it, too,
and judges them by a solver of its own.

``python tests/random_problems.py 0:2000 --json FILE`` runs FastDCGS with default settings on the problems of
these seeds, to a gap of 1e-3, and prints which share is certified within 5 seconds of processor time.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, final

import networkx as nx
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import dcgs
from dcgs import sets
from dcgs.objectives import HuberLoss, LeastSquares, Logistic, MatrixCompletion, Objective, matrix_map
from dcgs.sets import ConvexSet
from dcgs_bench.study import as_json, environment

Array: TypeAlias = NDArray[np.float64]
Shape: TypeAlias = tuple[int, ...]

LOSSES = ("squares", "squares", "huber", "logistic")
"""The kinds of losses; squares are drawn twice as often."""
REACHES = {"scale": 6.0, "agents": 2.0, "columns": 2.0}
"""Powers of ten by which all data, the data of agents, and columns may differ, up and down."""
LOOSENESS = (1e-4, 1e-2, 0.3, 1.0, 10.0)
"""How far the unconstrained minimizer is from the center of the set, in sizes of the set."""


@final
@dataclass(frozen=True, eq=False)
class AgentData:
    """One agent's data: the matrix A, dense, the target or the labels b, and how A is stored."""

    kind: str
    way: str
    A: Array
    b: Array
    shape: Shape
    delta: float = 1.0

    def objective(self) -> Objective:
        """Return the agent's objective."""
        if self.way == "sampling":
            flat = np.argmax(self.A, axis=1)
            rows, cols = np.divmod(flat, self.shape[1])
            return MatrixCompletion(rows, cols, self.b, (self.shape[0], self.shape[1]))
        matrix = sp.csr_array(self.A) if self.way == "sparse" else self.A
        match self.kind:
            case "squares":
                return LeastSquares(matrix, self.b, self.shape)
            case "huber":
                return Objective(HuberLoss(self.b, self.delta), matrix_map(matrix, self.shape))
            case _:
                return Logistic(matrix, self.b, self.shape)


@final
@dataclass(frozen=True, eq=False)
class DataGenerator:
    """Draws one agent's data after another, of one kind, around a point at some distance from a center.

    ``size`` is that of the set. ``rows`` bounds the rows of an agent, the second number excluded.
    """

    rng: np.random.Generator
    center: Array
    size: float
    shape: Shape
    kind: str
    way: str
    spread: Mapping[str, float]
    looseness: float
    rows: tuple[int, int] = (1, 6)
    scale: float = field(init=False)
    columns: Array = field(init=False)
    truth: Array = field(init=False)

    def __post_init__(self) -> None:
        d, rng = math.prod(self.shape), self.rng
        object.__setattr__(self, "scale", 10.0 ** rng.uniform(-self.spread["scale"], self.spread["scale"]))
        reach = self.spread["columns"]
        object.__setattr__(self, "columns", 10.0 ** rng.uniform(-reach, reach, d))
        away = self.reach * rng.standard_normal(d) / math.sqrt(d)
        object.__setattr__(self, "truth", self.center + away)

    @property
    def reach(self) -> float:
        """How far the unconstrained minimizer is from the center of the set."""
        return self.looseness * self.size

    def agent(self) -> AgentData:
        """Return the data of one agent more."""
        rng, d = self.rng, math.prod(self.shape)
        count = int(rng.integers(*self.rows))
        own = self.scale * 10.0 ** rng.uniform(-self.spread["agents"], self.spread["agents"])
        if self.way == "sampling":
            A = np.eye(d)[rng.integers(0, d, count)]
            b = A @ self.truth + 0.1 * self.reach * rng.standard_normal(count)
            return AgentData("squares", self.way, A, b, self.shape)
        A = own * self.columns * rng.standard_normal((count, d))
        if self.way == "sparse":
            A *= rng.random(A.shape) < 0.6
        noise = float(np.abs(A).max()) * 0.1 * self.reach * rng.standard_normal(count)
        b = A @ self.truth + noise
        delta = 1.0
        if self.kind == "huber":
            delta = (float(np.abs(b).max()) or 1.0) * 10.0 ** rng.uniform(-3.0, 1.0)
        elif self.kind == "logistic":
            b = np.where(b >= 0.0, 1.0, -1.0)
        return AgentData(self.kind, self.way, A, b, self.shape, delta)


def draw_spread(rng: np.random.Generator) -> dict[str, float]:
    """Return by how many powers of ten data differ: each reach with probability one half, else 0."""
    return {key: reach if rng.random() < 0.5 else 0.0 for key, reach in REACHES.items()}


def draw_way(rng: np.random.Generator, shape: Shape, kind: str) -> str:
    """Return how the matrix is stored; only squares of matrices may be samplings of entries."""
    ways = ["dense", "sparse", "sampling"] if len(shape) == 2 and kind == "squares" else ["dense", "sparse"]
    return str(rng.choice(ways))


@final
@dataclass(frozen=True, eq=False)
class RandomProblem:
    """A random problem: the first three arguments of :func:`dcgs.minimize`, and the names of its parts."""

    set_name: str
    loss: str
    graph_name: str
    about: str
    objectives: Sequence[Objective]
    X: ConvexSet
    graph: nx.Graph


_GRAPHS: dict[str, Callable[[int], nx.Graph]] = {
    "path": nx.path_graph,
    "cycle": lambda m: nx.cycle_graph(m) if m > 2 else nx.path_graph(m),
    "star": lambda m: nx.star_graph(m - 1),
    "complete": nx.complete_graph,
    "grid": lambda m: nx.convert_node_labels_to_integers(nx.grid_2d_graph(2, m // 2), ordering="sorted"),
    "small world": (
        lambda m: nx.connected_watts_strogatz_graph(m, 4, 0.3, seed=0) if m > 4 else nx.complete_graph(m)
    ),
}


def random_problem(seed: int) -> RandomProblem:
    """Return the problem of a seed: 2 to 12 agents and at most tens of unknowns, data of all scales."""
    rng = np.random.default_rng((16, seed))
    name = list(_SETS)[seed % len(_SETS)]
    X = _SETS[name](rng, 10.0 ** rng.uniform(-2.0, 2.0))
    graph_name = str(rng.choice(list(_GRAPHS)))
    graph = _GRAPHS[graph_name](2 * int(rng.integers(1, 7)))
    kind = str(rng.choice(LOSSES))
    way = draw_way(rng, X.shape, kind)
    spread, looseness = draw_spread(rng), float(rng.choice(LOOSENESS))
    directions = rng.standard_normal((8, *X.shape))
    ends = [X.lmo(sign * g).dense() for g in directions for sign in (-1.0, 1.0)]
    center = np.mean(ends, axis=0).reshape(-1)
    rows = (1, 31)
    data = DataGenerator(rng, center, 0.5 * X.diameter, X.shape, kind, way, spread, looseness, rows)
    objectives = [data.agent().objective() for _ in graph]
    wide = ", ".join(f"{key} up to 10^±{reach:g}" for key, reach in spread.items() if reach) or "even data"
    about = f"{name}{X.shape}, {graph_name} of {len(graph)}, {way} {kind}, looseness {looseness:g}, {wide}"
    return RandomProblem(name, kind, graph_name, about, objectives, X, graph)


def _length(rng: np.random.Generator) -> int:
    return int(rng.integers(2, 41))


def _box(rng: np.random.Generator, radius: float) -> ConvexSet:
    d = _length(rng)
    low = radius * rng.standard_normal(d)
    return sets.Box(low, low + radius * rng.uniform(0.1, 2.0, d))


def _k_sparse(rng: np.random.Generator, radius: float) -> ConvexSet:
    d = _length(rng)
    return sets.KSparseBall(d, int(rng.integers(1, d)) if d > 1 else 1, radius)


def _groups(rng: np.random.Generator, radius: float) -> ConvexSet:
    d = _length(rng)
    parts = np.array_split(rng.permutation(d), int(rng.integers(1, d)))
    return sets.GroupL1Ball(d, [part.tolist() for part in parts], radius)


def _polytope(rng: np.random.Generator, radius: float) -> ConvexSet:
    d = int(rng.integers(2, 16))
    G = np.vstack([np.eye(d), -np.eye(d), rng.standard_normal((d, d))])
    return sets.Polytope(G, radius * np.concatenate([np.ones(2 * d), rng.uniform(0.2, 1.0, d)]))


_SETS: dict[str, Callable[[np.random.Generator, float], ConvexSet]] = {
    "Simplex": lambda rng, radius: sets.Simplex(_length(rng), radius),
    "L1Ball": lambda rng, radius: sets.L1Ball(_length(rng), radius),
    "L2Ball": lambda rng, radius: sets.L2Ball(_length(rng), radius),
    "LInfBall": lambda rng, radius: sets.LInfBall(_length(rng), radius),
    "Box": _box,
    "KSparseBall": _k_sparse,
    "GroupL1Ball": _groups,
    "BirkhoffPolytope": lambda rng, radius: sets.BirkhoffPolytope(int(rng.integers(2, 7))),
    "ConvexHull": lambda rng, radius: sets.ConvexHull(
        radius * rng.standard_normal((int(rng.integers(2, 30)), _length(rng)))
    ),
    "Polytope": _polytope,
    "NuclearNormBall": lambda rng, radius: sets.NuclearNormBall(
        (int(rng.integers(2, 9)), int(rng.integers(2, 9))), radius
    ),
    "Spectraplex": lambda rng, radius: sets.Spectraplex(int(rng.integers(2, 7)), radius),
}


GAP, SECONDS = 1e-3, 5.0
# A run ends after so many times the seconds by the clock, as other work may share the machine.
_SHARED = 4.0


def run_seed(seed: int) -> dict[str, Any]:
    """Run FastDCGS on the problem of a seed; ``seconds`` are those of the processor, on one core."""
    made, start = random_problem(seed), time.process_time()
    row = {
        "seed": seed,
        "set": made.set_name,
        "loss": made.loss,
        "graph": made.graph_name,
        "about": made.about,
    }
    limits: dict[str, Any] = {"gap": GAP, "seconds": _SHARED * SECONDS, "every": 0}
    try:
        result = dcgs.minimize(
            made.objectives, made.X, made.graph, **limits, runtime=dcgs.Lockstep(threads=1)
        )
        status = result.status
        row |= {"status": status.name, "certified": status.success, "rounds": result.rounds}
    except (ValueError, ArithmeticError, RuntimeError) as error:
        row |= {"status": f"{type(error).__name__}: {error}", "certified": False, "rounds": 0}
    return row | {"seconds": time.process_time() - start}


def is_good(row: Mapping[str, Any]) -> bool:
    """Return whether the gap was certified in time."""
    return bool(row["certified"]) and row["seconds"] <= SECONDS


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", help="the first and the end, as in 0:2000")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="also write a row for each problem")
    args = parser.parse_args()
    rows = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for row in pool.map(run_seed, range(*map(int, args.seeds.split(":")))):
            rows.append(row)
            if not is_good(row):
                print(row, flush=True)
    print(f"{sum(map(is_good, rows))} of {len(rows)} certified at {GAP:.0e} within {SECONDS:g} s")
    if args.json is not None:
        made = environment(0) | {"command": f"python tests/random_problems.py {args.seeds} --json FILE"}
        args.json.write_text(as_json({"environment": made, "rows": rows}))


if __name__ == "__main__":
    main()
