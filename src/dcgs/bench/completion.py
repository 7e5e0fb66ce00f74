"""Matrix completion at real size: time, rounds, bytes, memory and held-out error of several methods.

Every case runs in a process of its own, so that its peak memory is known.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any, Final, final

import networkx as nx
import numpy as np

from dcgs.datasets import Kind, Ratings, Source, movielens1m, movielens100k
from dcgs.front import minimize
from dcgs.methods import DFW, FastDCGS, Method, ProjectedAGD
from dcgs.objectives import MatrixCompletion
from dcgs.ratings import RatingsConfig, fit_ratings
from dcgs.ratings.offsets import Numbers
from dcgs.sets import NuclearNormBall

GAP = 1e-3
# Dense methods run if ten agents with six points each have at most this number of bytes.
_DENSE_BYTES = 4e9
_RIDGE = 5.0
# The radius of synthetic data, as a share of the nuclear norm of the matrix that they were made from.
_SHARE = 0.2


@final
@dataclass(frozen=True)
class Case:
    """A data set, a method and limits.

    ``data`` is ``"100k"``, ``"1m"`` or ``"synthetic"``; the sizes are of the latter. ``iterations`` None
    means until the gap is certified.
    """

    data: str
    method: str
    radius: float
    seconds: float
    seed: int = 0
    ratings: int = 0
    rows: int = 0
    cols: int = 0
    rank: int = 5
    agents: int = 10
    iterations: int | None = None
    ridge: float | None = _RIDGE


def comparison(data: str, seconds: float, seed: int, ratings: int = 10_000_000) -> Iterator[Case]:
    """Yield the cases of one data set: baselines, our method, dense ones, and other libraries."""
    size: dict[str, Any] = {}
    if data == "synthetic":
        share = (ratings / 1e7) ** 0.5
        rows, cols = max(40, round(70_000 * share)), max(30, round(10_000 * share))
        size = {"ratings": ratings, "rows": rows, "cols": cols}
        radius, shape = _SHARE * (5.0 * rows * cols) ** 0.5, (rows, cols)
    else:
        radius, shape = {"100k": (500.0, (943, 1682)), "1m": (3000.0, (6040, 3952))}[data]
    dense = 8.0 * shape[0] * shape[1] * 60 <= _DENSE_BYTES
    methods = ["mean", "offsets", "FastDCGS", *(_DENSE if dense else ()), *_installed()]
    for method in methods:
        yield Case(data, method, radius, seconds, seed, **size)


def growth(quick: bool, seconds: float, seed: int) -> Iterator[tuple[str, Case]]:
    """Yield cases that differ in one number: ratings, rows, columns, rank or agents; 8 iterations each."""
    scale = 40 if quick else 1
    base = {"ratings": 1_000_000 // scale, "rows": 20_000 // scale, "cols": 4_000 // scale, "rank": 5}
    steps = (1, 2) if quick else (1, 2, 4, 8)
    start = base | {"agents": 10}
    start["rank"] = 4
    for name, value in start.items():
        for factor in steps:
            sizes = start | {
                name: value * factor if name != "agents" else (2, 5, 10, 20)[steps.index(factor)]
            }
            radius = _SHARE * (sizes["rank"] * sizes["rows"] * sizes["cols"]) ** 0.5
            yield name, Case("synthetic", "FastDCGS", radius, seconds, seed, **sizes, iterations=8)


def run_alone(case: Case) -> dict[str, Any]:
    """Run one case in a new process; return its numbers."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(run, case).result()


def run(case: Case) -> dict[str, Any]:
    """Run one case; return its numbers. The memory is the peak of this process, with the data."""
    train, test = load(case)
    begin, cpu = time.perf_counter(), time.process_time()
    found = _RUNNERS[case.method](case, train)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    predict = found.pop("predict")
    error = float(np.sqrt(np.mean((predict(test.rows, test.cols) - test.values) ** 2)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    counted = {"rounds": 0, "bytes": 0, "iterations": 0, "found_rank": 0, "status": ""} | found
    times = {"seconds": seconds, "cpu": cpu, "memory": peak, "rmse": error}
    return asdict(case) | {"fitted": len(train), "shape": list(train.shape)} | times | counted


def load(case: Case) -> tuple[Ratings, Ratings]:
    """Return the ratings to fit and those held out."""
    if case.data == "synthetic":
        return synthetic(case)
    whole = {"100k": movielens100k, "1m": movielens1m}[case.data]()
    return whole.split(0.2, case.seed)


def synthetic(case: Case) -> tuple[Ratings, Ratings]:
    """Return ratings of a matrix of low rank with offsets and noise; few columns have most of the ratings."""
    rng = np.random.default_rng(case.seed)
    count = case.ratings + case.ratings // 20
    rows = rng.integers(0, case.rows, count)
    cols = (case.cols * rng.random(count) ** 2).astype(np.intp)
    U, V = rng.standard_normal((case.rows, case.rank)), rng.standard_normal((case.cols, case.rank))
    values = 3.5 + 0.4 * rng.standard_normal(case.rows)[rows] + 0.5 * rng.standard_normal(case.cols)[cols]
    for start in range(0, count, 1 << 20):
        part = slice(start, start + (1 << 20))
        values[part] += np.einsum("nk,nk->n", U[rows[part]], V[cols[part]]) / case.rank**0.5
    values += rng.standard_normal(count)
    source = Source("synthetic ratings", Kind.SYNTHETIC, seed=case.seed)
    whole = Ratings(rows, cols, values, (case.rows, case.cols), source)
    places = np.arange(count)
    return whole.take(places[: case.ratings]), whole.take(places[case.ratings :])


def _sites(train: Ratings, agents: int) -> list[tuple[Any, Any, Numbers]]:
    """Return the ratings of each agent; every row is with one."""
    order = np.argsort(train.rows, kind="stable")
    rows = train.rows[order]
    ends = [int(np.searchsorted(rows, rows[len(rows) * k // agents])) for k in range(1, agents)]
    return [(train.rows[part], train.cols[part], train.values[part]) for part in np.split(order, ends)]


def _mean(case: Case, train: Ratings) -> dict[str, Any]:
    mean = float(train.values.mean())
    return {"predict": lambda rows, cols: np.full(len(rows), mean)}


def _ours(case: Case, train: Ratings) -> dict[str, Any]:
    """Fit offsets and the matrix; with the method "offsets" a matrix that is nearly zero."""
    options: dict[str, Any] = {"gap": GAP, "seconds": case.seconds, "every": None}
    if case.iterations is not None:
        options = {"iterations": case.iterations, "every": None}
    radius = case.radius
    if case.method == "offsets":
        radius, options = 1e-9, {"iterations": 1, "every": None}
    config = RatingsConfig(radius, case.ridge, options=options)
    fitted = fit_ratings(_sites(train, case.agents), nx.cycle_graph(case.agents), config)
    result = fitted.result
    return {
        "predict": fitted.predict,
        "rounds": fitted.cost.rounds,
        "bytes": int(np.max(fitted.cost.bytes)),
        "iterations": result.iterations,
        "found_rank": result.x.rank,
        "status": str(result.status),
    }


def _dense(method: Method) -> Callable[[Case, Ratings], dict[str, Any]]:
    """Return a runner of a method with dense points, on what the offsets leave."""

    def run_dense(case: Case, train: Ratings) -> dict[str, Any]:
        sites, graph = _sites(train, case.agents), nx.cycle_graph(case.agents)
        before = fit_ratings(
            sites, graph, RatingsConfig(1e-9, _RIDGE, options={"iterations": 1, "every": None})
        )
        objectives = [
            MatrixCompletion(rows, cols, values - before.predict(rows, cols), train.shape)
            for rows, cols, values in sites
        ]
        X = NuclearNormBall(train.shape, case.radius)
        # The observer measures the gap, off the clock; a method without a certificate stops by it.
        result = minimize(
            objectives,
            X,
            graph,
            method,
            gap=GAP,
            seconds=case.seconds,
            every=1 if method.stops_itself else 10,
        )
        x = np.asarray(result.x)
        return {
            "predict": lambda rows, cols: before.predict(rows, cols) + x[rows, cols],
            "rounds": result.rounds,
            "bytes": int(result.bytes.max()),
            "iterations": result.iterations,
            "found_rank": int(np.linalg.matrix_rank(x)),
            "status": str(result.status),
        }

    return run_dense


def _surprise(case: Case, train: Ratings) -> dict[str, Any]:
    """Fit scikit-surprise's SVD with its default settings; one process, all ratings in one place."""
    import pandas as pd
    import surprise  # type: ignore[import-not-found,unused-ignore]

    scale = surprise.Reader(rating_scale=(float(train.values.min()), float(train.values.max())))
    frame = pd.DataFrame({"user": train.rows, "item": train.cols, "rating": train.values})
    model = surprise.SVD(random_state=case.seed)
    model.fit(surprise.Dataset.load_from_df(frame, scale).build_full_trainset())

    def predict(rows: Any, cols: Any) -> Numbers:
        pairs = zip(rows.tolist(), cols.tolist(), strict=True)
        return np.array([model.predict(row, col).est for row, col in pairs])

    return {"predict": predict, "status": "its default number of epochs"}


_DENSE: Final = ("FastDCGS(form='edges')", "DFW", "ProjectedAGD")
_RUNNERS: dict[str, Callable[[Case, Ratings], dict[str, Any]]] = {
    "mean": _mean,
    "offsets": _ours,
    "FastDCGS": _ours,
    "FastDCGS(form='edges')": _dense(FastDCGS(form="edges")),
    "DFW": _dense(DFW()),
    "ProjectedAGD": _dense(ProjectedAGD()),
    "scikit-surprise SVD": _surprise,
}


def _installed() -> list[str]:
    return ["scikit-surprise SVD"] if find_spec("surprise") is not None else []
