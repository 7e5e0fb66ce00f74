"""How each method of ``dcgs bench completion`` is run.

A runner takes a case and a list with the ratings to fit, from which it takes them, and returns a function
``predict`` and what was counted. All but the mean and scikit-surprise fit the same offsets first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import scipy.sparse as sp

from dcgs.bench.completion_optimum import Observed, Solution, solve
from dcgs.datasets import Ratings
from dcgs.front import minimize
from dcgs.front.network import as_network
from dcgs.low_rank import Index
from dcgs.methods import DFW, FastDCGS, Method, ProjectedAGD
from dcgs.ratings import RatingsConfig
from dcgs.ratings.completing import Cost, PlacedRatings, Prepared, fit_placed, place, prepare
from dcgs.ratings.ids import as_texts
from dcgs.ratings.offsets import Numbers, OffsetsTask
from dcgs.runtime import Lockstep
from dcgs.sets import NuclearNormBall

if TYPE_CHECKING:
    from dcgs.bench.completion import Case

OPTIMUM = "centralized optimum"
DERIVED = "ProjectedAGD, derived"
SURPRISE = "scikit-surprise SVD"
IMPLICIT = "implicit ALS"
# The gap of the centralized optimum, as a share of that of the methods.
_EXACT = 0.1

Runner = Callable[["Case", list[Ratings]], dict[str, Any]]


def _placed(case: Case, data: list[Ratings], cost: Cost) -> PlacedRatings:
    """Return the ratings of the agents, whose number of ratings is about equal; every row is with one."""
    train = data.pop()
    order = np.argsort(train.rows, kind="stable")
    rows = train.rows[order]
    agents = case.agents
    ends = [int(np.searchsorted(rows, rows[len(rows) * k // agents])) for k in range(1, agents)]
    parts = np.split(order, ends)
    sites = {i: (train.rows[part], train.cols[part], train.values[part]) for i, part in enumerate(parts)}
    del train
    return place(sites, nx.cycle_graph(agents), Lockstep(), cost)


def _prepared(case: Case, data: list[Ratings]) -> tuple[PlacedRatings, Prepared, Cost]:
    """Return the ratings of the agents, and objectives of what the offsets leave of them."""
    cost = Cost()
    placed = _placed(case, data, cost)
    task = OffsetsTask(placed.shape, True, case.ridge)
    return placed, prepare(placed.parts, task, nx.cycle_graph(case.agents), Lockstep(), cost), cost


def _predictor(placed: PlacedRatings, prepared: Prepared, entries: Callable[[Any, Any], Numbers]) -> Any:
    """Return the function that predicts for pairs of ids; ``entries`` are those of the matrix."""

    def predict(rows: Any, cols: Any) -> Numbers:
        users, at = as_texts(rows), placed.items.places(cols)
        numbers = np.full(len(users), -1)
        first = prepared.offsets[0]
        predictions = first.of(numbers, at)
        for i, ids in placed.users.items():
            places = ids.places(users)
            own = places >= 0
            numbers[own] = places[own] + placed.firsts[i]
            predictions[own] = prepared.offsets[i].of(numbers[own], at[own])
        seen = (numbers >= 0) & (at >= 0)
        predictions[seen] += entries(numbers[seen], at[seen])
        return np.clip(predictions, first.low, first.high)

    return predict


def _mean(case: Case, data: list[Ratings]) -> dict[str, Any]:
    mean = float(data.pop().values.mean())
    return {"predict": lambda rows, cols: np.full(len(rows), mean)}


def _offsets(case: Case, data: list[Ratings]) -> dict[str, Any]:
    placed, prepared, cost = _prepared(case, data)
    predict = _predictor(placed, prepared, lambda rows, cols: np.zeros(len(rows)))
    return {"predict": predict} | _sent(cost)


def _ours(case: Case, data: list[Ratings]) -> dict[str, Any]:
    """Fit offsets and the matrix by FastDCGS."""
    options: dict[str, Any] = {"gap": case.gap, "seconds": case.seconds, "every": None}
    if case.iterations is not None:
        options = {"iterations": case.iterations, "every": None}
    cost = Cost()
    config = RatingsConfig(case.radius, case.ridge, options=options)
    fitted = fit_placed(_placed(case, data, cost), nx.cycle_graph(case.agents), config, cost)
    result = fitted.result
    counted = {"iterations": result.iterations, "found_rank": result.x.rank, "status": str(result.status)}
    return {"predict": fitted.predict} | _sent(cost) | counted


def _dense(method: Method) -> Runner:
    """Return a runner of a method with dense points, on what the offsets leave."""

    def run_dense(case: Case, data: list[Ratings]) -> dict[str, Any]:
        placed, prepared, cost = _prepared(case, data)
        # The observer measures the gap, off the clock; a method without a certificate stops by it.
        result = minimize(
            prepared.objectives,
            NuclearNormBall(placed.shape, case.radius),
            nx.cycle_graph(case.agents),
            method,
            gap=case.gap,
            seconds=case.seconds,
            every=1 if method.stops_itself or isinstance(method, ProjectedAGD) else 10,
        )
        cost.add(result)
        x, history = np.asarray(result.x), result.history
        decrease = float(history.worst_loss[0] - history.worst_loss[-1])
        reached = f"gap {history.gap[-1] / decrease:.1e}" if decrease > 0.0 else "no decrease"
        return {
            "predict": _predictor(placed, prepared, lambda rows, cols: x[rows, cols]),
            "iterations": result.iterations,
            "found_rank": int(np.linalg.matrix_rank(x)),
            "status": f"{result.status} ({reached} after {result.iterations} iterations)",
        } | _sent(cost)

    return run_dense


def _pooled(placed: PlacedRatings, prepared: Prepared) -> tuple[Index, Index, Numbers]:
    """Return rows, columns, and what the offsets leave of the ratings, of all agents."""
    left = [part.values - prepared.offsets[i].of(part.rows, part.cols) for i, part in placed.parts.items()]
    parts = placed.parts.values()
    rows, cols = (np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "cols"))
    return rows, cols, np.concatenate(left)


def _sent(cost: Cost) -> dict[str, int]:
    return {"rounds": cost.rounds, "bytes": int(np.max(cost.bytes))}


def _solved(
    case: Case, data: list[Ratings], target: float
) -> tuple[PlacedRatings, Prepared, Solution, dict[str, Any]]:
    """Return the ratings, and the solution of the pooled problem to a gap."""
    placed, prepared, _ = _prepared(case, data)
    found = solve(Observed.of(*_pooled(placed, prepared), placed.shape), case.radius, target, case.seconds)
    counted = {
        "predict": _predictor(placed, prepared, found.x.entries),
        "iterations": found.iterations,
        "found_rank": found.x.rank,
        "loss": found.value,
    }
    return placed, prepared, found, counted


def _optimum(case: Case, data: list[Ratings]) -> dict[str, Any]:
    """Solve the same problem in one place, to a smaller gap."""
    _, _, found, counted = _solved(case, data, _EXACT * case.gap)
    return counted | {"status": f"all ratings in one place; gap {found.share:.1e}"}


def _derived(case: Case, data: list[Ratings]) -> dict[str, Any]:
    """Derive what ProjectedAGD with dense messages would send, without dense matrices.

    Its average over the network is exact after one round for each eigenvalue of W but 1, so its iterates are
    those of the centralized method with the same step and momentum. In each of these rounds an agent sends
    a matrix of doubles to every neighbor. ``sparse_bytes`` is what it sends if zeros are left out: in round r
    it sends nonzeros of all agents at a distance below r.
    """
    graph = nx.cycle_graph(case.agents)
    placed, _, found, counted = _solved(case, data, case.gap)
    each = len(as_network(graph).mixing_eigenvalues())
    neighbors = max(degree for _, degree in graph.degree)
    rounds, message = each * found.iterations, 8 * placed.shape[0] * placed.shape[1]
    nonzeros = [_nonzeros(placed, graph, distance) for distance in range(each)]
    # Indices, or a bitmap, or all entries.
    sizes = [min(12 * count, 8 * count + message // 64, message) for count in nonzeros]
    sparse = found.iterations * neighbors * sum(sizes)
    status = (
        f"derived, not run: {found.iterations} iterations of the centralized method to gap "
        f"{found.share:.1e}, {each} rounds each, {neighbors} messages of {message:,} bytes a round; "
        f"with zeros left out {sparse:,} bytes in all"
    )
    sent = {"bytes": rounds * neighbors * message, "sparse_bytes": sparse}
    return counted | {"rounds": rounds, "status": status} | sent


def _nonzeros(placed: PlacedRatings, graph: nx.Graph, distance: int) -> int:
    """Return the most distinct entries that agents within some distance of an agent have."""
    own = {i: len(np.unique(part.rows * placed.shape[1] + part.cols)) for i, part in placed.parts.items()}
    near = dict(nx.all_pairs_shortest_path_length(graph, cutoff=distance))
    return max(sum(own[j] for j in reached) for reached in near.values())


def _surprise(case: Case, data: list[Ratings]) -> dict[str, Any]:
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


def _implicit(case: Case, data: list[Ratings]) -> dict[str, Any]:
    """Fit implicit's alternating least squares with its default settings; all ratings in one place.

    It is for likes, not for ratings. A rating above what the offsets predict is a like, one below is a
    dislike, and the distance is how sure that is. Its scores are mapped to ratings by the line that fits
    the ratings of the fit best.
    """
    from implicit.als import AlternatingLeastSquares  # type: ignore[import-not-found,unused-ignore]

    placed, prepared, _ = _prepared(case, data)
    rows, cols, left = _pooled(placed, prepared)
    likes = sp.csr_matrix((left.astype(np.float32), (rows, cols)), shape=placed.shape)
    model = AlternatingLeastSquares(random_state=case.seed, num_threads=1)
    model.fit(likes, show_progress=False)
    U, V = np.asarray(model.user_factors), np.asarray(model.item_factors)

    def scores(some_rows: Any, some_cols: Any) -> Numbers:
        return np.asarray(np.einsum("nk,nk->n", U[some_rows], V[some_cols]), dtype=np.float64)

    slope, level = np.polyfit(scores(rows, cols), left, 1).tolist()
    predict = _predictor(placed, prepared, lambda r, c: slope * scores(r, c) + level)
    status = "made for likes: scores of ratings minus offsets, mapped to ratings by a line"
    return {"predict": predict, "found_rank": U.shape[1], "status": status}


DENSE: Mapping[str, Runner] = {
    "FastDCGS(form='edges')": _dense(FastDCGS(form="edges")),
    "DFW": _dense(DFW()),
    "ProjectedAGD": _dense(ProjectedAGD()),
}
RUNNERS: Mapping[str, Runner] = {
    "mean": _mean,
    "offsets": _offsets,
    "FastDCGS": _ours,
    OPTIMUM: _optimum,
    DERIVED: _derived,
    **DENSE,
    SURPRISE: _surprise,
    IMPLICIT: _implicit,
}
