"""Fit ratings over the network: agree on the ids of items, fit offsets, then complete what they leave.

This is the only place where ``minimize`` is called for ratings. ``dcgs fit completion`` and the estimator end
here. Ids of users stay with their agent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dcgs.floors import Floors
from dcgs.learn.floors import SiteCells
from dcgs.learn.linear.scores import FitScores
from dcgs.learn.radius.folds import Fold
from dcgs.learn.radius.path import path_steps
from dcgs.learn.radius.result import RULE, RadiusPath
from dcgs.learn.ratings.floors import clipped, count_items, facts_above, no_items, without_rare_items
from dcgs.learn.ratings.ids import Ids, as_texts, ids_notes
from dcgs.learn.ratings.model import AgentRatings, FoldIn, Labels, Naming, RatingsModel
from dcgs.learn.ratings.offsets import (
    RIDGE,
    Numbers,
    Offsets,
    OffsetsTask,
    Part,
    RatingsFacts,
    best_ridge,
    facts_steps,
    prepare,
    prepare_with,
    values_note,
    without_duplicates,
)
from dcgs.learn.ratings.scores import TestedRatings, penalty_steps, scores_above, scores_steps
from dcgs.learn.schema import MergeRules, Note, Schema, SiteSchema, agree_steps
from dcgs.learn.sites import RUN, Remedy, RunSpec, Sites, SitesError
from dcgs.learn.sums import Reductions, Request, Sent, Steps
from dcgs.low_rank import LowRank
from dcgs.objectives.objective import MatrixCompletion
from dcgs.parallel import blas_threads
from dcgs.run.minimize import minimize
from dcgs.run.result import Result
from dcgs.runtime import Runtime
from dcgs.sets import ConvexSet, NuclearNormBall
from dcgs.validation import POSITIVE, finite, vector

GAP = 1e-3
"""The gap of a fit of ratings with a given radius: its loss exceeds the least one by at most this share of
what it explains. With a radius that is found, the gap is that at which held-out errors fall no more."""
AUTO = "auto"
# One rating of this number is held out.
_PARTS = 10
# Multipliers and shifts of a hash of 64 bits (SplitMix64, Steele, Lea and Flood 2014).
_GOLDEN, _MIX = 0x9E3779B97F4A7C15, ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))

Ratings: TypeAlias = tuple[Any, Any, Any]
"""Users, items and ratings of one agent."""


@final
@dataclass(frozen=True)
class RatingsSpec:
    """How ratings are fitted: the radius of the nuclear norm or ``"auto"``, the ridge of offsets, the run.

    ``ridge`` None means no offsets; ``"auto"`` finds it if the radius is to be found, and is 5 else. ``rule``
    says which radius of the path is taken. ``set`` is None for the nuclear norm, or a function of the shape
    and the radius. ``options`` are what the sites must have given alike, as texts. ``floors`` are those of
    this site; None for none.
    """

    radius: float | str = AUTO
    ridge: float | str | None = AUTO
    rule: str = "best"
    set: Callable[[tuple[int, int], float], ConvexSet] = NuclearNormBall
    run: RunSpec = field(default_factory=RunSpec)
    options: Mapping[str, str] = field(default_factory=dict)
    floors: Floors | None = None

    def __post_init__(self) -> None:
        if self.ridge != AUTO:
            POSITIVE.or_none(self.ridge, "ridge (or 'auto')")
        if self.radius != AUTO:
            POSITIVE(self.radius, "radius (or 'auto')")
        RULE(self.rule, "rule")


@final
@dataclass(frozen=True, eq=False)
class PlacedRatings:
    """The ratings of the agents of this process with the numbers of rows and columns, and the names of these.

    With ``separate_rows`` every row is with one agent. ``notes`` are on what is odd in the ratings.
    ``held_out`` has the ratings that are not fitted to, but scored on. ``floors`` are those of all sites;
    with them ``local_notes`` are on ratings of this process alone.
    """

    parts: Mapping[int, Part]
    naming: Mapping[int, Naming]
    shape: tuple[int, int]
    separate_rows: bool
    facts: RatingsFacts
    notes: tuple[str, ...] = ()
    held_out: Mapping[int, Part] = field(default_factory=dict)
    floors: Floors | None = None
    local_notes: tuple[str, ...] = ()

    def task(self, ridge: float | None) -> OffsetsTask:
        """Return what all agents know before offsets are fitted."""
        return OffsetsTask(self.shape, self.separate_rows, ridge)


@final
@dataclass(frozen=True, eq=False)
class RatingsFit:
    """A fit of ratings: the models of the agents of this process, the run, and how the radius was found.

    ``ridge`` is that of the offsets, None if there are none. ``explained`` is the decrease of the loss up to
    the start of the run, if that was a model of the path.
    """

    agents: Mapping[int, AgentRatings]
    placed: PlacedRatings
    radius: float
    ridge: float | None
    path: RadiusPath | None
    result: Result
    network: Reductions
    explained: float = 0.0
    scores: FitScores | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What is odd in the ratings."""
        return (*self.placed.notes, *self.placed.local_notes)

    def predict(self, users: ArrayLike, items: ArrayLike) -> Numbers:
        """Return predictions by the agent that has the user; if no agent of this process has, by the first.

        If several agents have a user of that id, the first of them predicts.
        """
        wanted, cols = as_texts(users), as_texts(items)
        if len(wanted) != len(cols):
            raise ValueError(f"there must be one item for each user; got {len(wanted)} and {len(cols)}.")
        models = list(self.agents.values())
        predictions = models[0].predict(wanted, cols)
        for agent in reversed(models):
            known = agent.rows_of(wanted) >= 0
            predictions[known] = agent.predict(wanted[known], cols[known])
        return predictions


def fit_ratings(sites: Sites[Ratings], spec: RatingsSpec) -> RatingsFit:
    """Fit a model to ratings: for each agent the ids of users and items, and the ratings.

    Users belong to their agent: their ids are not sent, and equal ids at two agents are two users. The ids of
    items are agreed on by the network. Several ratings of one user for one item count as their mean.

    >>> users, items = np.divmod(np.arange(24), 6)
    >>> stars = 3.0 + (users % 2) - (items % 2)
    >>> sites = Sites.of([(users[:12], items[:12], stars[:12]), (users[12:], items[12:], stars[12:])])
    >>> fit = fit_ratings(sites, RatingsSpec(radius=1.0, ridge=0.01))
    >>> fit.predict([0, 1], [0, 0]).round(1)
    array([3., 4.])
    >>> fit.agents[0].top(1, 2)[0][0]
    '0'
    """
    _check_runtime(sites.network.runtime)
    return fit_placed(place(sites, spec.options, floors=spec.floors), sites.network, spec)


def place(
    sites: Sites[Ratings],
    options: Mapping[str, str] | None = None,
    merges: bool = True,
    floors: Floors | None = None,
) -> PlacedRatings:
    """Agree on the ids of items and on how many users agents have; number rows and columns.

    If several ratings are of one user and item, their mean counts, unless ``merges`` is False.
    """
    given = {i: _checked(i, *mine) for i, mine in sites.data.items()}
    users = {i: Ids.of(mine[0]) for i, mine in given.items()}
    items = {i: Ids.of(mine[1]) for i, mine in given.items()}
    local = {
        i: Part(users[i].places(mine[0]), items[i].places(mine[1]), mine[2]) for i, mine in given.items()
    }
    return place_ids(sites, RatedIds(users, items, local, merges), options or {}, floors)


@final
@dataclass(frozen=True, eq=False)
class RatedIds:
    """Ratings with the places of users and items among the ids of their agent.

    With ``merges`` the mean counts, where there are several ratings of one user and item. A ``share`` of the
    ratings is held out, chosen by ``seed``.
    """

    users: Mapping[int, Ids]
    items: Mapping[int, Ids]
    parts: Mapping[int, Part]
    merges: bool = True
    share: float = 0.0
    seed: int = 0


def place_ids(
    sites: Sites[Any], rated: RatedIds, options: Mapping[str, str], floors: Floors | None = None
) -> PlacedRatings:
    """Return ratings with the numbers of rows and columns that all agents agree on, by one reduction."""
    network = sites.network
    columns = {i: len(items) for i, items in rated.items.items()}
    parts, schemas = _inspected(sites, rated.parts, columns, options, floors)
    parts = parts if rated.merges else dict(rated.parts)
    parts, tested = _split(parts, columns, rated.share, rated.seed)
    if floors is not None:
        return _place_ids_above(sites, replace(rated, parts=parts), tested, schemas)
    m, counts = len(network.graph), {i: len(users) for i, users in rated.users.items()}
    texts = {i: items.tolist() for i, items in rated.items.items()}
    rows = {i: [np.where(np.arange(m) == i, float(count), 0.0)] for i, count in counts.items()}
    programs: list[Steps[Any]] = [
        agree_steps(schemas, MergeRules()),
        facts_steps(parts),
        _reduced(Request("ids of columns", texts, "union")),
        _reduced(Request("how many rows agents have", rows)),
    ]
    schema, facts, agreed, (users,) = network.run(*programs)
    items = Ids.of(agreed)
    ends = np.cumsum(users).astype(np.intp)
    firsts, shape = np.concatenate([[0], ends[:-1]]), (int(ends[-1]), len(items))
    naming = {i: Labels(rated.users[i], firsts[i] + np.arange(counts[i]), items) for i in parts}
    placed, outside = (
        {
            i: Part(part.rows + firsts[i], items.places(rated.items[i].texts)[part.cols], part.values)
            for i, part in some.items()
        }
        for some in (parts, tested)
    )
    notes = (*schema.notes, *ids_notes(items))
    return PlacedRatings(placed, dict(naming), shape, True, facts, notes, outside)


def _place_ids_above(
    sites: Sites[Any], rated: RatedIds, tested: Mapping[int, Part], schemas: Mapping[int, SiteSchema]
) -> PlacedRatings:
    """Return what :func:`place_ids` does, with the items that enough people have rated."""
    network, parts = sites.network, rated.parts
    m, counts = len(network.graph), {i: len(users) for i, users in rated.users.items()}
    rows = {i: [np.where(np.arange(m) == i, float(count), 0.0)] for i, count in counts.items()}
    schema, (users,) = network.run(
        agree_steps(schemas, MergeRules(), _people(parts)),
        _reduced(Request("how many rows agents have", rows)),
    )
    names = {i: np.array(items.tolist(), dtype=object) for i, items in rated.items.items()}
    assert schema.floors is not None
    (told,) = network.run(count_items(parts, names, schema.floors))
    if not told.texts:
        raise no_items(schema.floors)
    items, ends = Ids.of(told.texts), np.cumsum(users).astype(np.intp)
    firsts = np.concatenate([[0], ends[:-1]])
    naming = {i: Labels(rated.users[i], firsts[i] + np.arange(counts[i]), items) for i in parts}

    def placed(i: int, part: Part) -> Part:
        cols = items.places(rated.items[i].texts)[part.cols]
        return Part(part.rows + firsts[i], cols, part.values).some(cols >= 0)

    kept, outside = ({i: placed(i, part) for i, part in some.items()} for some in (parts, tested))
    kept, outside, facts = _range(kept, outside, schema, network)
    shape, notes = (int(ends[-1]), len(items)), (*schema.notes, _rare_note(schema.floors))
    local = tuple(schema.local_notes(schemas))
    return PlacedRatings(kept, dict(naming), shape, True, facts, notes, outside, schema.floors, local)


def _people(parts: Mapping[int, Part]) -> dict[int, SiteCells]:
    return {i: SiteCells(len(part.values), subjects=part.rows) for i, part in parts.items()}


def _range(
    parts: Mapping[int, Part], tested: Mapping[int, Part], schema: Schema, network: Reductions
) -> tuple[dict[int, Part], dict[int, Part], RatingsFacts]:
    """Return ratings to fit to and held out, none outside the range of all sites, and the facts on them."""
    assert schema.floors is not None
    names = {i: site.name for i, site in schema.sites.items()}
    (facts,) = network.run(facts_above(parts, names, schema.floors))
    return clipped(parts, facts), clipped(tested, facts), facts


def _rare_note(floors: Floors) -> str:
    return (
        f"items with ratings of fewer than {floors.min_count} people, or at fewer than {floors.min_sites} "
        "sites, are left out of the fit: predictions of them are the mean plus the offset of the user."
    )


def place_numbers(
    sites: Sites[Any],
    numbered: Mapping[int, Part],
    naming: Mapping[int, Naming],
    shape: tuple[int, int],
    options: Mapping[str, str],
    share: float = 0.0,
    seed: int = 0,
    floors: Floors | None = None,
) -> PlacedRatings:
    """Return ratings whose rows and columns have numbers that are the same at all agents.

    A ``share`` of them is held out, chosen by ``seed``.
    """
    network, m = sites.network, len(sites.network.graph)
    columns = dict.fromkeys(numbered, shape[1])
    parts, schemas = _inspected(sites, numbered, columns, options, floors)
    parts, outside = _split(parts, columns, share, seed)
    ends = {i: np.zeros((m, 2)) for i in parts}
    for i, part in parts.items():
        ends[i][i] = part.rows.min(), part.rows.max()
    programs: list[Steps[Any]] = [
        agree_steps(schemas, MergeRules(), None if floors is None else _people(parts)),
        *([facts_steps(parts)] if floors is None else []),
        _reduced(Request("first and last rows of agents", {i: [mine] for i, mine in ends.items()})),
    ]
    schema, *known, (rows,) = network.run(*programs)
    first, last = rows.T
    order = np.argsort(first, kind="stable")
    separate = bool((first[order][1:] > last[order][:-1]).all())
    labels = next(iter(naming.values()))
    odd = ids_notes(labels.items) if isinstance(labels, Labels) else ()
    if schema.floors is None:
        notes = (*schema.notes, *odd)
        return PlacedRatings(parts, dict(naming), shape, separate, known[0], notes, outside)
    if not separate:
        raise SitesError(
            "with floors all ratings of a row must be with one agent, since sums of a row are about one "
            "person; some rows are with several.",
            Remedy.NO_FLOORS,
        )
    (allowed,) = network.run(without_rare_items(parts, parts, shape[1], schema.floors))
    parts, outside = (
        {i: part.some(allowed[part.cols]) for i, part in some.items()} for some in (parts, outside)
    )
    parts, outside, facts = _range(parts, outside, schema, network)
    notes = (*schema.notes, _rare_note(schema.floors))
    local = tuple(schema.local_notes(schemas))
    return PlacedRatings(parts, dict(naming), shape, separate, facts, notes, outside, schema.floors, local)


def _split(
    parts: Mapping[int, Part], columns: Mapping[int, int], share: float, seed: int
) -> tuple[dict[int, Part], dict[int, Part]]:
    """Return the ratings to fit to, and a share that is held out by a hash, without an agent's first."""
    if share == 0.0:
        return dict(parts), {}
    out = {i: _hashed(part, columns[i], seed + 1) < np.uint64(share * 2.0**64) for i, part in parts.items()}
    for mask in out.values():
        mask[0] = False
    kept = {i: part.some(~out[i]) for i, part in parts.items()}
    return kept, {i: part.some(out[i]) for i, part in parts.items()}


def _reduced(request: Request) -> Steps[Any]:
    return (yield request)


def _inspected(
    sites: Sites[Any],
    parts: Mapping[int, Part],
    columns: Mapping[int, int],
    options: Mapping[str, str],
    floors: Floors | None,
) -> tuple[dict[int, Part], dict[int, SiteSchema]]:
    """Return the ratings of agents without duplicates, and their schemas, with what is odd in them."""
    kept, schemas = {}, {}
    for i, part in parts.items():
        kept[i], repeated = without_duplicates(part, columns[i])
        odd = {Note.REPEATED.name: repeated, Note.OUTSIDE.name: values_note(part.values)}
        facts = {name: text for name, text in odd.items() if text is not None}
        name, count = sites.names[i], len(part.values)
        schemas[i] = SiteSchema(name, count, options=dict(options), facts=facts, floors=floors)
    return kept, schemas


@blas_threads(1)
def fit_placed(placed: PlacedRatings, network: Reductions, spec: RatingsSpec) -> RatingsFit:
    """Fit a model to ratings whose rows and columns have numbers."""
    task = placed.task(RIDGE if isinstance(spec.ridge, str) else spec.ridge)
    path, x0, explained, known, gap = None, None, 0.0, None, GAP
    if spec.radius == AUTO:
        if placed.floors is not None:
            placed = _with_enough_kept(placed, placed.floors, network, spec.run.seed)
        facts, finds_ridge = None if placed.floors is None else placed.facts, spec.ridge == AUTO
        task, path, known = _path_and_offsets(placed.parts, task, network, spec.run.seed, facts, finds_ridge)
        gap = path.gap
        point = path.chosen(spec.rule)
        radius, decrease = point.radius, (path.null.loss - point.loss) * placed.facts.count
        x0, explained = path.model(point), max(decrease, 0.0)
    else:
        radius = float(spec.radius)
    run = spec.run.with_default(gap)
    if known is None or placed.floors is None:
        prepared = prepare(placed.parts, task, placed.facts, network)
    else:  # the difference of two sums over an item would be about the few people held out
        prepared = prepare_with(placed.parts, task, known)
    X, arguments = spec.set(placed.shape, radius), run.arguments(explained)
    network.named(RUN, X.shape[-1])
    where: dict[str, Any] = {"runtime": network.runtime, "secure": network.secure_run()}
    result = minimize(prepared.objectives, X, network.graph, x0=x0, **where, **arguments)
    network.record(Sent(RUN, "fit", X.shape[-1], result.rounds, 0), result)
    answers = dict(zip(result.hosted.tolist(), result.agents, strict=True))
    agents = {}
    for i, part in placed.parts.items():
        rows = np.unique(part.rows) if placed.separate_rows else np.arange(placed.shape[0])
        x = answers[i] if isinstance(answers[i], LowRank) else _factors(answers[i])
        model = RatingsModel(LowRank(x.rows_of(rows), x.V, x.shape, rows), prepared.offsets[i])
        agents[i] = AgentRatings(model, placed.naming[i])
    scores, penalty = _judged(placed, {i: agent.model for i, agent in agents.items()}, network, task, X)
    if penalty is not None:
        agents = {i: agent.with_fold_in(FoldIn(penalty, task.ridge)) for i, agent in agents.items()}
    return RatingsFit(agents, placed, radius, task.ridge, path, result, network, explained, scores)


def _judged(
    placed: PlacedRatings,
    models: Mapping[int, RatingsModel],
    network: Reductions,
    task: OffsetsTask,
    X: ConvexSet,
) -> tuple[FitScores | None, NDArray[np.float64] | None]:
    """Return scores on the ratings held out, if there are some, and the penalty of new rows, by one sum."""
    radius = X.radius if isinstance(X, NuclearNormBall) else None
    programs: list[Steps[Any]] = []
    if placed.held_out:
        tested = TestedRatings(placed.parts, placed.held_out, placed.facts, task, radius)
        steps = scores_steps if placed.floors is None else partial(scores_above, floors=placed.floors)
        programs.append(steps(tested, models, len(network.graph)))
    if radius is not None and placed.separate_rows:
        programs.append(penalty_steps(models, placed.parts))
    answers = network.run(*programs)
    scores = answers[0] if placed.held_out else None
    return scores, answers[-1] if radius is not None and placed.separate_rows else None


def _check_runtime(runtime: Runtime) -> None:
    if not runtime.reliable:
        has = "agents at their own pace" if runtime.asynchronous else "faults"
        raise ValueError(
            "ratings are fitted in rounds in which every message arrives, since no agent holds the whole "
            f"matrix; got a runtime with {has}. Use dcgs.Lockstep() or dcgs.MPI()."
        )


def _checked(i: int, users: Any, items: Any, ratings: Any) -> tuple[Any, Any, Numbers]:
    """Return the ids and the ratings of an agent; raise unless there is one of each for each rating."""
    values = np.asarray(finite(vector(ratings, "ratings"), "ratings"), dtype=np.float64)
    if not np.size(users) == np.size(items) == len(values) > 0:
        raise ValueError(
            "users, items and ratings of an agent must have one length, at least 1; agent "
            f"{i} has {np.size(users)}, {np.size(items)} and {len(values)}."
        )
    return users, items, values


def _factors(x: NDArray[np.float64]) -> LowRank:
    """Return a dense matrix in factors."""
    u, sigma, vt = np.linalg.svd(np.asarray(x), full_matrices=False)
    rank = int(np.count_nonzero(sigma > 1e-14 * max(sigma.max(initial=0.0), 1e-300)))
    U, V = np.ascontiguousarray(u[:, :rank] * sigma[:rank]), np.ascontiguousarray(vt[:rank].T)
    return LowRank(U, V, (x.shape[0], x.shape[1]))


def ratings_path(
    parts: Mapping[int, Part],
    task: OffsetsTask,
    network: Reductions,
    seed: int = 0,
) -> RadiusPath:
    """Return the errors of radii of the nuclear norm; all agents hold out a tenth of their ratings.

    The offsets are fitted to the other ratings. ``seed`` decides which ratings are held out.
    """
    return _path_and_offsets(parts, task, network, seed)[1]


def _with_enough_kept(placed: PlacedRatings, floors: Floors, network: Reductions, seed: int) -> PlacedRatings:
    """Return the ratings of the items of which enough people are left when some ratings are held out."""
    parts, columns = placed.parts, placed.shape[1]
    kept = {i: part.some(~held_out(part, columns, seed)) for i, part in parts.items()}
    (allowed,) = network.run(without_rare_items(parts, kept, columns, floors))
    left, outside = (
        {i: part.some(allowed[part.cols]) for i, part in some.items()} for some in (parts, placed.held_out)
    )
    return replace(placed, parts=left, held_out=outside)


def _path_and_offsets(
    parts: Mapping[int, Part],
    task: OffsetsTask,
    network: Reductions,
    seed: int,
    facts: RatingsFacts | None = None,
    finds_ridge: bool = False,
) -> tuple[OffsetsTask, RadiusPath, Mapping[int, Offsets]]:
    """Return the task with its ridge, the path, and offsets that are fitted to the ratings not held out."""
    before = network.rounds, network.bytes
    out = {i: held_out(part, task.shape[1], seed) for i, part in parts.items()}
    kept = {i: part.some(~out[i]) for i, part in parts.items()}
    lefts = {i: part.some(out[i]) for i, part in parts.items()}
    if facts is None:
        (facts,) = network.run(facts_steps(kept))
    if finds_ridge:
        task = replace(task, ridge=best_ridge(kept, lefts, task, facts, network))
    prepared, tested = prepare(kept, task, facts, network, "offsets of the path"), {}
    for i, left in lefts.items():
        values = left.values - prepared.offsets[i].of(left.rows, left.cols)
        tested[i] = MatrixCompletion(left.rows, left.cols, values, task.shape)
    start: Any = LowRank.zeros(task.shape)
    fold = Fold(prepared.objectives, tested)
    steps = path_steps(network, [fold], lambda radius: NuclearNormBall(task.shape, radius), start=start)
    (path,) = network.run(steps)
    rounds, sent = network.rounds - before[0], network.bytes - before[1]
    return task, replace(path, rounds=rounds, bytes=sent), prepared.offsets


def held_out(part: Part, columns: int, seed: int) -> NDArray[np.bool_]:
    """Return which ratings are held out, by a hash of their row and column; the first one never is."""
    out: NDArray[np.bool_] = _hashed(part, columns, seed) % np.uint64(_PARTS) == 0
    out[0] = False
    return out


def _hashed(part: Part, columns: int, seed: int) -> NDArray[np.uint64]:
    """Return a number for each rating that follows from its row and column."""
    code = (part.rows * columns + part.cols).astype(np.uint64) + np.uint64((1 + seed) * _GOLDEN % 2**64)
    for shift, factor in _MIX:
        code = (code ^ (code >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(code ^ (code >> np.uint64(31)))
