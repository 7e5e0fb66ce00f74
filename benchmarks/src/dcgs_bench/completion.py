"""``dcgs bench completion``: time, rounds, bytes, memory and held-out error of methods at real size.

Every case runs in a process of its own, so that its peak memory is known. A runner takes a case and a list
with the ratings to fit, from which it takes them, and returns a function ``predict`` and what was counted.
All but the mean and scikit-surprise fit the same offsets first.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias, final

import networkx as nx
import numpy as np

from dcgs.datasets import Ratings, Source, SourceKind, movielens1m, movielens100k
from dcgs.learn.files.layout import EntriesLayout
from dcgs.learn.files.ratings import read_rated
from dcgs.learn.ratings.fit import PlacedRatings, place
from dcgs.learn.ratings.ids import as_texts
from dcgs.learn.ratings.offsets import Numbers, Prepared, prepare
from dcgs.learn.sites import Sites
from dcgs.learn.sums import Sent
from dcgs.low_rank import Index, LowRank
from dcgs.methods import DFW, FastDCGS, Method, ProjectedAGD
from dcgs.run.minimize import minimize, versions
from dcgs.sets import NuclearNormBall
from dcgs_bench.completion_optimum import Observed, solve
from dcgs_bench.study import StudyTask, alone, peak_memory

GAP = 1e-3
OURS, OPTIMUM, SURPRISE = "FastDCGS", "centralized optimum", "scikit-surprise SVD"
READING = "reading a file of text"
"""The method of a case that only reads ratings."""
# Dense methods run if ten agents with six points each have at most this number of bytes.
_DENSE_BYTES = 4e9
# The centralized optimum is found where there are at most this number of ratings, to this share of the gap.
_MOST_CENTRAL, _EXACT = 2_000_000, 0.1
# The radius of synthetic data, as a share of the nuclear norm of the matrix that they were made from.
_SHARE = 0.2
# The default radius, the shape, and the number of ratings of each real data set.
_REAL = {"100k": (500.0, (943, 1682), 100_000), "1m": (3000.0, (6040, 3952), 1_000_000)}
_BLOCK = 1 << 20


@final
@dataclass(frozen=True)
class CompletionCase:
    """A data set, a method and limits.

    ``data`` is ``"100k"``, ``"1m"`` or ``"synthetic"``; the sizes are of the latter. ``iterations`` None
    means until the gap is certified. ``held_out`` is the share of MovieLens to judge by. ``grows`` names the
    size that grows from case to case, if one does.
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
    grows: str = ""

    @property
    def graph(self) -> nx.Graph:
        """The agents on a cycle."""
        return nx.cycle_graph(self.agents)


MethodRunner: TypeAlias = Callable[[CompletionCase, list[Ratings]], dict[str, Any]]


def synthetic_size(ratings: int, rows: int | None = None, cols: int | None = None) -> dict[str, Any]:
    """Return the sizes of synthetic data; by default as dense as 10⁷ ratings of a 70,000 × 10,000 matrix."""
    share = (ratings / 1e7) ** 0.5
    shape = rows or max(40, round(70_000 * share)), cols or max(30, round(10_000 * share))
    return {"ratings": ratings, "rows": shape[0], "cols": shape[1]}


def comparison(data: str, seconds: float, seed: int, size: dict[str, Any]) -> Iterator[CompletionCase]:
    """Yield the cases of one data set: baselines, our method, dense ones, and other libraries."""
    made = size if data == "synthetic" else {}
    known = _SHARE * (5.0 * size["rows"] * size["cols"]) ** 0.5, (size["rows"], size["cols"]), size["ratings"]
    radius, shape, ratings = _REAL.get(data, known)
    methods = ["mean", "offsets", OURS, *([OPTIMUM] if ratings <= _MOST_CENTRAL else [])]
    methods += DENSE if 8.0 * shape[0] * shape[1] * 60 <= _DENSE_BYTES else ()
    methods += [SURPRISE] if find_spec("surprise") is not None else []
    for method in methods:
        yield CompletionCase(data, method, radius, seconds, seed, **made)


def growth(quick: bool, seconds: float, seed: int) -> Iterator[CompletionCase]:
    """Yield cases that differ in one number: ratings, rows, columns, rank or agents; 8 iterations each."""
    scale = 40 if quick else 1
    start: dict[str, Any] = {"ratings": 1_000_000 // scale, "rows": 20_000 // scale, "cols": 4_000 // scale}
    start |= {"rank": 4, "agents": 10}
    steps = (1, 2) if quick else (1, 2, 4, 8)
    for name, value in start.items():
        for size in (
            [value * factor for factor in steps] if name != "agents" else (2, 5, 10, 20)[: len(steps)]
        ):
            sizes = start | {name: size}
            radius = _SHARE * (sizes["rank"] * sizes["rows"] * sizes["cols"]) ** 0.5
            sizes |= {"iterations": 8, "grows": name}
            yield CompletionCase("synthetic", OURS, radius, seconds, seed, **sizes)


def task(case: CompletionCase, here: bool = False) -> StudyTask:
    """Return the task of a case, in a process of its own or, for a first look, in this one."""
    key = asdict(case) | {"versions": versions()}
    digest = hashlib.sha256(repr(case).encode()).hexdigest()[:12]
    method = "".join(c if c.isalnum() else "-" for c in case.method).lower()
    work = partial(run, case) if here else partial(alone, run, case)
    return StudyTask(f"runs/{case.data}/{method}-{digest}", key, work, f"{case.data}: {case.method}")


def run(case: CompletionCase) -> dict[str, Any]:
    """Run one case; return its numbers. The memory is the peak of this process, with the data."""
    if case.method == READING:
        return _read(case)
    train, test = load(case)
    about, data = {"fitted": len(train), "shape": list(train.shape)}, [train]
    del train  # a runner that has made its own arrays of the ratings lets go of them
    begin, cpu = time.perf_counter(), time.process_time()
    result = RUNNERS[case.method](case, data)
    times = {"seconds": time.perf_counter() - begin, "cpu": time.process_time() - cpu}
    predict = result.pop("predict")
    predictions = predict(test.rows, test.cols) if len(test) else None
    times["memory"] = peak_memory()
    judged: dict[str, float | None] = {"rmse": None, "pairs": None}
    if predictions is not None:
        judged["rmse"] = float(np.sqrt(np.mean((predictions - test.values) ** 2)))
        judged["pairs"] = pairs_in_order(test.rows, predictions, test.values)
    counted = {"rounds": 0, "bytes": 0, "iterations": 0, "found_rank": 0, "status": ""} | result
    return asdict(case) | about | times | judged | counted


def pairs_in_order(users: Any, predictions: Numbers, values: Numbers) -> float | None:
    """Return the share of pairs of ratings of one user that are predicted in their order; a tie is half.

    None means that no user has two different ratings.
    """
    order = np.argsort(users, kind="stable")
    ends = np.flatnonzero(np.diff(users[order])) + 1
    right = total = 0.0
    for places in np.split(order, ends):
        more = values[places][:, None] > values[places]
        ahead = np.sign(predictions[places][:, None] - predictions[places])
        total += float(more.sum())
        right += float((0.5 + 0.5 * ahead)[more].sum())
    return right / total if total else None


def load(case: CompletionCase) -> tuple[Ratings, Ratings]:
    """Return the ratings to fit and those held out."""
    if case.data == "synthetic":
        return synthetic(case)
    whole = {"100k": movielens100k, "1m": movielens1m}[case.data]()
    if case.held_out == 0.0:
        return whole, whole.take(np.empty(0, dtype=np.intp))
    return whole.split(case.held_out, case.seed)


def synthetic(case: CompletionCase) -> tuple[Ratings, Ratings]:
    """Return ratings of a matrix of low rank with offsets and noise; few columns have most of the ratings."""
    rng = np.random.default_rng(case.seed)
    count = case.ratings + case.ratings // 20
    rows = rng.integers(0, case.rows, count)
    cols = (case.cols * rng.random(count) ** 2).astype(np.intp)
    U, V = rng.standard_normal((case.rows, case.rank)), rng.standard_normal((case.cols, case.rank))
    values = 3.5 + 0.4 * rng.standard_normal(case.rows)[rows] + 0.5 * rng.standard_normal(case.cols)[cols]
    for start in range(0, count, _BLOCK):
        part = slice(start, start + _BLOCK)
        values[part] += np.einsum("nk,nk->n", U[rows[part]], V[cols[part]]) / case.rank**0.5
    values += rng.standard_normal(count)
    source = Source("synthetic ratings", SourceKind.SYNTHETIC, seed=case.seed)
    whole, places = Ratings(rows, cols, values, (case.rows, case.cols), source), np.arange(count)
    return whole.take(places[: case.ratings]), whole.take(places[case.ratings :])


def _read(case: CompletionCase) -> dict[str, Any]:
    """Write synthetic ratings to a file of text in another process, and read it in this one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings.csv"
        alone(_write, case, path)
        begin, cpu = time.perf_counter(), time.process_time()
        rated = read_rated(path, EntriesLayout())
        times = {"seconds": time.perf_counter() - begin, "cpu": time.process_time() - cpu}
        file = path.stat().st_size
    shape = [len(rated.rows.ids), len(rated.cols.ids)]
    counted = {"rounds": 0, "bytes": 0, "rmse": None, "pairs": None, "file": file, "memory": peak_memory()}
    status = f"{len(rated):,} lines, {file:,} bytes"
    return asdict(case) | {"fitted": len(rated), "shape": shape, "status": status} | times | counted


def _write(case: CompletionCase, path: Path) -> None:
    """Write the ratings of a case as CSV, some at a time."""
    train, _ = synthetic(case)
    with path.open("w") as file:
        file.write("user,item,rating\n")
        for start in range(0, len(train), _BLOCK):
            part = slice(start, start + _BLOCK)
            columns = (column[part].tolist() for column in (train.rows, train.cols, train.values))
            file.writelines(f"u{row},i{col},{value:.3f}\n" for row, col, value in zip(*columns, strict=True))


@final
class _Fit:
    """The ratings at the agents, every row with one of them, and what the offsets leave; its cost so far."""

    def __init__(self, case: CompletionCase, data: list[Ratings]) -> None:
        train, agents = data.pop(), case.agents
        order = np.argsort(train.rows, kind="stable")
        rows = train.rows[order]
        ends = [int(np.searchsorted(rows, rows[len(rows) * k // agents])) for k in range(1, agents)]
        parts = enumerate(np.split(order, ends))
        ratings = {i: (train.rows[part], train.cols[part], train.values[part]) for i, part in parts}
        del train
        sites = Sites.of(ratings, case.graph)
        self.network = sites.network
        placed: PlacedRatings = place(sites, merges=False)
        self.placed = placed
        self.prepared: Prepared = prepare(placed.parts, placed.task(case.ridge), placed.facts, self.network)

    def counted(self, entries: Callable[[Any, Any], Numbers], **more: Any) -> dict[str, Any]:
        """Return what was counted, and the function that predicts; ``entries`` are those of the matrix."""
        sent = {"rounds": self.network.rounds, "bytes": int(self.network.agent_bytes.max())}
        return {"predict": partial(self._predict, entries)} | sent | more

    def _predict(self, entries: Callable[[Any, Any], Numbers], rows: Any, cols: Any) -> Numbers:
        users, cols_known = as_texts(rows), self.placed.naming[0].cols_of(cols)
        numbers = np.full(len(users), -1)
        first = self.prepared.offsets[0]
        predictions = first.of(numbers, cols_known)
        for i, naming in self.placed.naming.items():
            places = naming.rows_of(users)
            here = places >= 0
            numbers[here] = places[here]
            predictions[here] = self.prepared.offsets[i].of(numbers[here], cols_known[here])
        seen = (numbers >= 0) & (cols_known >= 0)
        predictions[seen] += entries(numbers[seen], cols_known[seen])
        return np.clip(predictions, first.low, first.high)

    def pooled(self) -> tuple[Index, Index, Numbers]:
        """Return rows, columns, and what the offsets leave of the ratings, of all agents."""
        parts, offsets = self.placed.parts, self.prepared.offsets
        left = [part.values - offsets[i].of(part.rows, part.cols) for i, part in parts.items()]
        rows, cols = (np.concatenate([getattr(p, name) for p in parts.values()]) for name in ("rows", "cols"))
        return rows, cols, np.concatenate(left)


def _mean(case: CompletionCase, data: list[Ratings]) -> dict[str, Any]:
    mean = float(data.pop().values.mean())
    return {"predict": lambda rows, cols: np.full(len(rows), mean)}


def _offsets(case: CompletionCase, data: list[Ratings]) -> dict[str, Any]:
    return _Fit(case, data).counted(lambda rows, cols: np.zeros(len(rows)))


def _decentralized(method: Method, every: int | None) -> MethodRunner:
    """Return a runner of a method on what the offsets leave; ``every`` is that of :func:`dcgs.minimize`."""

    def run_method(case: CompletionCase, data: list[Ratings]) -> dict[str, Any]:
        fit = _Fit(case, data)
        limits: dict[str, Any] = {"gap": case.gap, "seconds": case.seconds}
        if case.iterations is not None:
            limits = {"iterations": case.iterations}
        X = NuclearNormBall(fit.placed.shape, case.radius)
        result = minimize(fit.prepared.objectives, X, case.graph, method, every=every, **limits)
        fit.network.record(Sent("the run", "fit", 0, result.rounds, 0), result)
        x, history, status = result.x, result.history, str(result.status)
        if isinstance(x, LowRank):
            return fit.counted(x.entries, iterations=result.iterations, found_rank=x.rank, status=status)
        decrease = float(history.worst_loss[0] - history.worst_loss[-1])
        reached = f"gap {history.gap[-1] / decrease:.1e}" if decrease > 0.0 else "no decrease"
        status = f"{status} ({reached} after {result.iterations} iterations)"
        rank = int(np.linalg.matrix_rank(x))
        return fit.counted(lambda r, c: x[r, c], iterations=result.iterations, found_rank=rank, status=status)

    return run_method


def _optimum(case: CompletionCase, data: list[Ratings]) -> dict[str, Any]:
    """Solve the same problem in one place, to a smaller gap."""
    fit = _Fit(case, data)
    observed = Observed.of(*fit.pooled(), fit.placed.shape)
    solution = solve(observed, case.radius, _EXACT * case.gap, case.seconds)
    counted = {"iterations": solution.iterations, "found_rank": solution.x.rank, "loss": solution.value}
    status = f"all ratings in one place; gap {solution.share:.1e}"
    return fit.counted(solution.x.entries, **counted, status=status) | {"rounds": 0, "bytes": 0}


def _surprise(case: CompletionCase, data: list[Ratings]) -> dict[str, Any]:
    """Fit scikit-surprise's SVD with its default settings; one process, all ratings in one place."""
    import pandas as pd
    import surprise  # type: ignore[import-not-found,unused-ignore]

    train = data.pop()
    scale = surprise.Reader(rating_scale=(float(train.values.min()), float(train.values.max())))
    frame = pd.DataFrame({"user": train.rows, "item": train.cols, "rating": train.values})
    model = surprise.SVD(random_state=case.seed)
    model.fit(surprise.Dataset.load_from_df(frame, scale).build_full_trainset())

    def predict(rows: Any, cols: Any) -> Numbers:
        pairs = zip(rows.tolist(), cols.tolist(), strict=True)
        return np.array([model.predict(row, col).est for row, col in pairs])

    return {"predict": predict, "status": "its default number of epochs; all ratings in one place"}


# Of dense methods an observer measures the gap at the end, off the clock.
DENSE: Mapping[str, MethodRunner] = {
    "FastDCGS(form='edges')": _decentralized(FastDCGS(form="edges"), 0),
    "DFW": _decentralized(DFW(), 0),
    "ProjectedAGD": _decentralized(ProjectedAGD(), 0),
}
RUNNERS: Mapping[str, MethodRunner] = {
    "mean": _mean,
    "offsets": _offsets,
    OURS: _decentralized(FastDCGS(), None),
    OPTIMUM: _optimum,
    **DENSE,
    SURPRISE: _surprise,
}
