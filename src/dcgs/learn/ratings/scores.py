"""How good a model of ratings is, on ratings that sites held out; and what the rows of new users need.

The errors stand beside those of the mean, of offsets alone, and of what a site finds from its own ratings
alone. The radius of a site alone is the radius times the root of its share of the rows, by which singular
values grow if sites are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from dcgs.floors import Floors
from dcgs.learn.floors import above_floors
from dcgs.learn.linear.scores import Comparison, FitScores, SiteScores
from dcgs.learn.ratings.ids import places_in
from dcgs.learn.ratings.model import RatingsModel
from dcgs.learn.ratings.offsets import Numbers, OffsetsTask, Part, RatingsFacts, prepare
from dcgs.learn.sums import Reductions, Request, Steps
from dcgs.low_rank import LowRank
from dcgs.run.minimize import minimize
from dcgs.sets import NuclearNormBall

OFFSETS, ALONE = "RMSE of offsets alone", "RMSE of the site alone"
_GAP = 1e-2
"""The gap of the model of a site alone, with which it is only compared."""


@final
@dataclass(frozen=True, eq=False)
class TestedRatings:
    """The ratings of agents that were fitted to, and those held out; and what all agents know.

    ``radius`` is that of the nuclear norm; None for another set, with which no site is fitted alone.
    """

    parts: Mapping[int, Part]
    held_out: Mapping[int, Part]
    facts: RatingsFacts
    task: OffsetsTask
    radius: float | None


def scores_steps(
    tested: TestedRatings, models: Mapping[int, RatingsModel], agents: int
) -> Steps[FitScores | None]:
    """Find the scores of each agent's model on the ratings that it held out, and those of all, by one sum.

    None if no agent held any out.
    """
    names = _names(tested, agents)
    tables = {}
    for i, row in _rows(tested, models, names).items():
        tables[i] = [np.zeros((agents, 3 + len(names)))]
        tables[i][0][i] = row
    (table,) = yield Request("errors on ratings held out", tables)
    if not table[:, 0].any():
        return None
    sites = tuple(_scores(row, names) for row in table)
    return FitScores(sites, _scores(table.sum(axis=0), names), True, "ratings")


def scores_above(
    tested: TestedRatings, models: Mapping[int, RatingsModel], agents: int, floors: Floors
) -> Steps[FitScores | None]:
    """Find what :func:`scores_steps` does; the scores of a site stay there.

    There are no scores of all sites if too few people have given the ratings held out.
    """
    names, sites = _names(tested, agents), [SiteScores(0, {})] * agents
    rows = _rows(tested, models, names)
    for i, row in rows.items():
        sites[i] = _scores(row, names)
    people = {i: [len(np.unique(left.rows))] for i, left in tested.held_out.items()}
    (enough,) = yield above_floors("people whose ratings are held out", people, floors)
    if not enough.all():
        return FitScores(tuple(sites), SiteScores(0, {}), True, "ratings")
    (total,) = yield Request("errors on ratings held out", {i: [row] for i, row in rows.items()})
    return FitScores(tuple(sites), _scores(total, names), True, "ratings")


def _rows(tested: TestedRatings, models: Mapping[int, RatingsModel], names: list[str]) -> dict[int, Numbers]:
    """Return the number of ratings that each agent held out, and sums of their errors."""
    rows = {}
    for i, left in tested.held_out.items():
        errors = _errors(tested, i, models[i], left, names)
        squares = [float(np.sum(error**2)) for error in errors.values()]
        absolute = [float(np.abs(errors[name]).sum()) for name in ("model", "mean")]
        rows[i] = np.array([float(len(left.values)), *squares, *absolute])
    return rows


def _names(tested: TestedRatings, agents: int) -> list[str]:
    """Return what is compared: the model and the mean first."""
    others = [OFFSETS] * (tested.task.ridge is not None)
    return ["model", "mean", *others, *([ALONE] if tested.radius is not None and agents > 1 else [])]


def _errors(
    tested: TestedRatings, i: int, model: RatingsModel, left: Part, names: list[str]
) -> dict[str, Numbers]:
    """Return the errors of everything that is compared, on the ratings that an agent held out."""
    offsets = model.offsets
    predictions: dict[str, Callable[[], Numbers]] = {
        "model": lambda: model.predict(left.rows, left.cols),
        "mean": lambda: np.full(len(left.values), tested.facts.mean),
        OFFSETS: lambda: np.clip(offsets.of(left.rows, left.cols), offsets.low, offsets.high),
        ALONE: lambda: _alone(tested, tested.parts[i], left),
    }
    return {name: predictions[name]() - left.values for name in names}


def _scores(sums: Numbers, names: list[str]) -> SiteScores:
    """Return the scores that belong to sums of squared and absolute errors."""
    rows = int(sums[0])
    if rows == 0:
        return SiteScores(0, {})
    roots = dict(zip(names, np.sqrt(sums[1 : 1 + len(names)] / rows).tolist(), strict=True))
    absolute = (sums[-2:] / rows).tolist()
    scores = {"RMSE": Comparison(roots["model"], roots["mean"]), "mean absolute error": Comparison(*absolute)}
    return SiteScores(rows, scores | {name: Comparison(roots[name], roots["mean"]) for name in names[2:]})


def _alone(tested: TestedRatings, part: Part, left: Part) -> Numbers:
    """Return the predictions of what a site finds from its own ratings, with nobody else."""
    assert tested.radius is not None
    (rows, row), (cols, col) = (np.unique(some, return_inverse=True) for some in (part.rows, part.cols))
    shape, values, graph = (len(rows), len(cols)), part.values, nx.empty_graph(1)
    facts = RatingsFacts(float(values.min()), float(values.max()), float(values.mean()), float(len(values)))
    task, network = OffsetsTask(shape, True, tested.task.ridge), Reductions(graph)
    prepared = prepare({0: Part(row, col, values)}, task, facts, network)
    X = NuclearNormBall(shape, tested.radius * float(np.sqrt(len(rows) / tested.task.shape[0])))
    solution = minimize(prepared.objectives, X, graph, gap=_GAP, every=None).agents[0]
    assert isinstance(solution, LowRank)
    known = np.arange(len(rows))
    model = RatingsModel(LowRank(solution.rows_of(known), solution.V, shape, known), prepared.offsets[0])
    return model.predict(places_in(rows, left.rows), places_in(cols, left.cols))


def penalty_steps(
    models: Mapping[int, RatingsModel], parts: Mapping[int, Part]
) -> Steps[NDArray[np.float64]]:
    """Find the penalty of a new row w of x = w Vᵀ that the bound of the nuclear norm amounts to, by one sum.

    Every row must be with one agent. At the optimum Σ (rating − x)² + 2 τ ‖x‖_* is least. Given V and the
    other rows, a row w is least with the penalty τ ⟨w, K w⟩, K = Rᵀ (R UᵀU Rᵀ)^(−1/2) R where V = Q R. From
    Σ (rating − x) x = τ ‖x‖_* follows τ. The answer is τ K.
    """
    values = {}
    for i, model in models.items():
        part, x = parts[i], model.x
        image = x.entries(part.rows, part.cols)
        left = part.values - model.offsets.of(part.rows, part.cols) - image
        values[i] = [[float(left @ image)], x.U.T @ x.U]
    total, gram = yield Request("products of residuals and factors", values)
    V = next(iter(models.values())).x.V
    if V.shape[1] == 0:
        return np.zeros((0, 0))
    R = np.linalg.qr(V)[1]
    squares, vectors = np.linalg.eigh(R @ gram @ R.T)
    sizes = np.sqrt(np.maximum(squares, 1e-12 * max(float(squares[-1]), 1e-300)))
    tau = max(float(total[0]), 0.0) / float(sizes.sum())
    turned: Any = vectors.T @ R
    return np.asarray(tau * turned.T @ (turned / sizes[:, None]))
