"""Matrix completion at real size: time, rounds, bytes, memory and held-out error of several methods.

Every case runs in a process of its own, so that its peak memory is known.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any, final

import numpy as np

from dcgs.bench import completion_runners as runners
from dcgs.bench.completion_runners import DERIVED, IMPLICIT, OPTIMUM, SURPRISE
from dcgs.bench.memory import peak_memory
from dcgs.datasets import Kind, Ratings, Source, movielens1m, movielens100k
from dcgs.ratings.offsets import Numbers

GAP = 1e-3
# Dense methods run if ten agents with six points each have at most this number of bytes.
_DENSE_BYTES = 4e9
# The centralized optimum is found where there are at most this number of ratings.
_MOST_CENTRAL = 2_000_000
# The radius of synthetic data, as a share of the nuclear norm of the matrix that they were made from.
_SHARE = 0.2


@final
@dataclass(frozen=True)
class Case:
    """A data set, a method and limits.

    ``data`` is ``"100k"``, ``"1m"`` or ``"synthetic"``; the sizes are of the latter. ``iterations`` None
    means until the gap is certified. ``held_out`` is the share of MovieLens to judge by.
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
    ridge: float | None = 5.0
    gap: float = GAP
    held_out: float = 0.2


def synthetic_size(ratings: int, rows: int | None = None, cols: int | None = None) -> dict[str, int]:
    """Return the sizes of synthetic data; by default as dense as 10⁷ ratings of a 70,000 × 10,000 matrix."""
    share = (ratings / 1e7) ** 0.5
    shape = rows or max(40, round(70_000 * share)), cols or max(30, round(10_000 * share))
    return {"ratings": ratings, "rows": shape[0], "cols": shape[1]}


def comparison(data: str, seconds: float, seed: int, size: dict[str, int] | None = None) -> Iterator[Case]:
    """Yield the cases of one data set: baselines, our method, dense ones, and other libraries."""
    size = (size or synthetic_size(10_000_000)) if data == "synthetic" else {}
    if data == "synthetic":
        shape, ratings = (size["rows"], size["cols"]), size["ratings"]
        radius = _SHARE * (5.0 * shape[0] * shape[1]) ** 0.5
    else:
        radius, shape, ratings = {
            "100k": (500.0, (943, 1682), 100_000),
            "1m": (3000.0, (6040, 3952), 1_000_000),
        }[data]
    dense = 8.0 * shape[0] * shape[1] * 60 <= _DENSE_BYTES
    central = (OPTIMUM, DERIVED) if ratings <= _MOST_CENTRAL else ()
    methods = ["mean", "offsets", "FastDCGS", *central, *(runners.DENSE if dense else ()), *_installed()]
    for method in methods:
        yield Case(data, method, radius, seconds, seed, **size)


def growth(quick: bool, seconds: float, seed: int) -> Iterator[tuple[str, Case]]:
    """Yield cases that differ in one number: ratings, rows, columns, rank or agents; 8 iterations each."""
    scale = 40 if quick else 1
    start = {"ratings": 1_000_000 // scale, "rows": 20_000 // scale, "cols": 4_000 // scale, "rank": 4}
    start["agents"] = 10
    steps = (1, 2) if quick else (1, 2, 4, 8)
    for name, value in start.items():
        grown = [value * factor for factor in steps] if name != "agents" else (2, 5, 10, 20)[: len(steps)]
        for size in grown:
            sizes = start | {name: size}
            radius = _SHARE * (sizes["rank"] * sizes["rows"] * sizes["cols"]) ** 0.5
            yield name, Case("synthetic", "FastDCGS", radius, seconds, seed, **sizes, iterations=8)


def run(case: Case) -> dict[str, Any]:
    """Run one case; return its numbers. The memory is the peak of this process, with the data."""
    train, test = load(case)
    fitted, shape, data = len(train), list(train.shape), [train]
    del train  # a runner that has made its own arrays of the ratings lets go of them
    begin, cpu = time.perf_counter(), time.process_time()
    found = runners.RUNNERS[case.method](case, data)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    predict = found.pop("predict")
    judged: dict[str, float | None] = {"rmse": None, "pairs": None}
    if len(test):
        predictions = predict(test.rows, test.cols)
        judged["rmse"] = float(np.sqrt(np.mean((predictions - test.values) ** 2)))
    peak = peak_memory()
    if len(test):
        judged["pairs"] = pairs_in_order(test.rows, predictions, test.values)
    counted = {"rounds": 0, "bytes": 0, "iterations": 0, "found_rank": 0, "status": ""} | found
    times = {"seconds": seconds, "cpu": cpu, "memory": peak}
    return asdict(case) | {"fitted": fitted, "shape": shape} | times | judged | counted


def pairs_in_order(users: Any, predictions: Numbers, values: Numbers) -> float | None:
    """Return the share of pairs of ratings of one user that are predicted in their order; a tie is half.

    None means that no user has two different ratings.
    """
    order = np.argsort(users, kind="stable")
    ends = np.flatnonzero(np.diff(users[order])) + 1
    right = total = 0.0
    for own in np.split(order, ends):
        more = values[own][:, None] > values[own]
        ahead = np.sign(predictions[own][:, None] - predictions[own])
        total += float(more.sum())
        right += float((0.5 + 0.5 * ahead)[more].sum())
    return right / total if total else None


def load(case: Case) -> tuple[Ratings, Ratings]:
    """Return the ratings to fit and those held out."""
    if case.data == "synthetic":
        return synthetic(case)
    whole = {"100k": movielens100k, "1m": movielens1m}[case.data]()
    if case.held_out == 0.0:
        return whole, whole.take(np.empty(0, dtype=np.intp))
    return whole.split(case.held_out, case.seed)


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


def _installed() -> list[str]:
    modules = {SURPRISE: "surprise", IMPLICIT: "implicit"}
    return [name for name, module in modules.items() if find_spec(module) is not None]
