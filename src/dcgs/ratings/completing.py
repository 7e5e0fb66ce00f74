"""Fit ratings over the network: agree on the ids of items, fit offsets, then complete what they leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike

from dcgs.front import Result, agree_on_texts, allreduce, minimize, run_programs
from dcgs.low_rank import Index, LowRank
from dcgs.objectives import MatrixCompletion, Objective
from dcgs.ratings.ids import Ids, as_texts
from dcgs.ratings.model import RatingsModel
from dcgs.ratings.oddities import ids_notes, values_note, without_duplicates
from dcgs.ratings.offsets import Numbers, Offsets, OffsetsTask, Part, offsets_program
from dcgs.runtime import Lockstep, Runtime
from dcgs.sets import NuclearNormBall
from dcgs.validation import POSITIVE, finite, instance, vector


@final
@dataclass
class Cost:
    """The rounds of a fit, and the messages and bytes that each agent sent, before the run and in it."""

    rounds: int = 0
    messages: Any = 0
    bytes: Any = 0

    def add(self, counted: Any) -> None:
        """Add what one part of the fit cost."""
        self.rounds += counted.rounds
        self.messages = self.messages + counted.messages
        self.bytes = self.bytes + counted.bytes


@final
@dataclass(frozen=True, eq=False)
class Prepared:
    """Objectives of what the offsets leave of the ratings of each agent of this process."""

    objectives: Mapping[int, Objective]
    offsets: Mapping[int, Offsets]


def prepare(
    parts: Mapping[int, Part], task: OffsetsTask, graph: nx.Graph, runtime: Runtime, cost: Cost
) -> Prepared:
    """Fit the offsets over the network, and return objectives of what they leave."""
    offsets, traffic = run_programs(lambda i, tree: offsets_program(parts[i], tree, task), graph, runtime)
    cost.add(traffic)
    objectives = {
        i: MatrixCompletion(
            part.rows, part.cols, part.values - offsets[i].of(part.rows, part.cols), task.shape
        )
        for i, part in parts.items()
    }
    return Prepared(objectives, offsets)


def has_separate_rows(parts: Mapping[int, Part], graph: nx.Graph, runtime: Runtime, cost: Cost) -> bool:
    """Return whether agents have their ratings in separate intervals of rows; all of them learn it."""
    m = len(graph)
    ends = {}
    for i, part in parts.items():
        own = np.zeros((m, 2))
        own[i] = part.rows.min(), part.rows.max()
        ends[i] = (own,)
    counted = allreduce(ends, graph, runtime)
    cost.add(counted)
    first, last = counted.arrays[0].T
    order = np.argsort(first, kind="stable")
    return bool((first[order][1:] > last[order][:-1]).all())


def first_rows(counts: Mapping[int, int], graph: nx.Graph, runtime: Runtime, cost: Cost) -> tuple[Any, int]:
    """Return the number of the first row of each agent, and of all rows, given how many rows agents have."""
    m = len(graph)
    own = {i: (np.where(np.arange(m) == i, float(count), 0.0),) for i, count in counts.items()}
    counted = allreduce(own, graph, runtime)
    cost.add(counted)
    ends = np.cumsum(counted.arrays[0]).astype(np.intp)
    return np.concatenate([[0], ends[:-1]]), int(ends[-1])


@final
@dataclass(frozen=True, eq=False)
class AgentRatings:
    """The model of one agent: its users, all items, and how to predict for them."""

    users: Ids
    items: Ids
    model: RatingsModel
    first: int

    def predict(self, users: ArrayLike, items: ArrayLike) -> Numbers:
        """Return predictions for pairs of a user and an item; unseen ones get the offsets that are known."""
        places = self.users.places(users)
        rows = np.where(places < 0, -1, places + self.first)
        return self.model.predict(rows, self.items.places(items))

    def top(self, user: Any, count: int = 10, without: ArrayLike = ()) -> list[tuple[str, float]]:
        """Return the items with the highest predictions for a user, and the predictions."""
        (place,) = self.users.places([user])
        left_out = self.items.places(without) if np.size(without) else np.empty(0, dtype=np.intp)
        row = -1 if place < 0 else int(place) + self.first
        best, scores = self.model.top(row, count, left_out[left_out >= 0])
        return list(zip(self.items[best], scores.tolist(), strict=True))


@final
@dataclass(frozen=True, eq=False)
class FittedRatings:
    """The models of the agents of this process, the result of the run, and what all of it cost.

    ``notes`` are on what is odd in the ratings of this process.
    """

    agents: Mapping[int, AgentRatings]
    result: Result
    cost: Cost
    notes: tuple[str, ...] = ()

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
            known = agent.users.places(wanted) >= 0
            predictions[known] = agent.predict(wanted[known], cols[known])
        return predictions


@final
@dataclass(frozen=True)
class RatingsConfig:
    """How ratings are fitted: the radius of the nuclear norm, the ridge of the offsets, and the run.

    ``ridge`` None means no offsets. ``options`` are arguments of :func:`dcgs.minimize`.
    """

    radius: float
    ridge: float | None = 5.0
    runtime: Runtime = field(default_factory=Lockstep)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        POSITIVE.or_none(self.ridge, "ridge")
        instance(self.runtime, Runtime, "runtime", "be a runtime such as dcgs.Lockstep()")
        if not self.runtime.reliable:
            has = "agents at their own pace" if self.runtime.asynchronous else "faults"
            raise ValueError(
                "ratings are fitted in rounds in which every message arrives, since no agent holds the whole "
                f"matrix; got a runtime with {has}. Use dcgs.Lockstep() or dcgs.MPI()."
            )


Site = tuple[ArrayLike, ArrayLike, ArrayLike]
"""Users, items and ratings of one agent."""


def fit_ratings(
    sites: Sequence[Site] | Mapping[int, Site], graph: nx.Graph, config: RatingsConfig
) -> FittedRatings:
    """Fit a model to ratings: for each agent the ids of users and items, and the ratings.

    Users belong to their agent: their ids are not sent, and equal ids at two agents are two users. The ids of
    items are agreed on by the network. Several ratings of one user for one item count as their mean.

    >>> users, items = np.divmod(np.arange(24), 6)
    >>> stars = 3.0 + (users % 2) - (items % 2)
    >>> sites = [(users[:12], items[:12], stars[:12]), (users[12:], items[12:], stars[12:])]
    >>> fitted = fit_ratings(sites, nx.path_graph(2), RatingsConfig(radius=1.0, ridge=0.01))
    >>> fitted.predict([0, 1], [0, 0]).round(1)
    array([3., 4.])
    >>> fitted.agents[0].top(1, 2)[0][0]
    '0'
    """
    cost = Cost()
    given = dict(sites.items() if isinstance(sites, Mapping) else enumerate(sites))
    return fit_placed(place(given, graph, config.runtime, cost).inspected(), graph, config, cost)


@final
@dataclass(frozen=True, eq=False)
class PlacedRatings:
    """The ratings of the agents of this process with the numbers of rows and columns, and the ids of these.

    ``firsts`` are the numbers of the first row of each agent. ``notes`` are on what is odd in the ratings.
    """

    users: Mapping[int, Ids]
    items: Ids
    firsts: Index
    parts: Mapping[int, Part]
    shape: tuple[int, int]
    notes: tuple[str, ...] = ()

    def inspected(self) -> PlacedRatings:
        """Return the ratings without duplicates, and with notes on what is odd in them."""
        parts, notes = inspected(self.parts, self.shape[1])
        return replace(self, parts=parts, notes=(*notes, *ids_notes(self.items)))


def place(sites: Mapping[int, Site], graph: nx.Graph, runtime: Runtime, cost: Cost) -> PlacedRatings:
    """Agree on the ids of items and on how many users agents have; number rows and columns."""
    users = {i: Ids.of(site[0]) for i, site in sites.items()}
    agreed = agree_on_texts({i: Ids.of(site[1]).tolist() for i, site in sites.items()}, graph, runtime)
    cost.add(agreed)
    items = Ids.of(agreed.texts)
    firsts, count = first_rows({i: len(own) for i, own in users.items()}, graph, runtime, cost)
    parts = {
        i: Part(users[i].places(site[0]) + firsts[i], items.places(site[1]), _ratings(i, site))
        for i, site in sites.items()
    }
    return PlacedRatings(users, items, firsts, parts, (count, len(items)))


def inspected(parts: Mapping[int, Part], columns: int) -> tuple[dict[int, Part], list[str]]:
    """Return the ratings of agents without duplicates, and notes on what is odd in them."""
    kept, notes = {}, []
    for i, part in parts.items():
        kept[i], repeated = without_duplicates(part, columns)
        told = [note for note in (repeated, values_note(part.values)) if note is not None]
        notes += [f"agent {i}: {note}" for note in told]
    return kept, notes


def fit_placed(placed: PlacedRatings, graph: nx.Graph, config: RatingsConfig, cost: Cost) -> FittedRatings:
    """Fit a model to ratings whose rows and columns have numbers; ``cost`` is what these took."""
    runtime, parts = config.runtime, placed.parts
    task = OffsetsTask(placed.shape, True, config.ridge)
    prepared = prepare(parts, task, graph, runtime, cost)
    X = NuclearNormBall(placed.shape, config.radius)
    options = {"every": None} | dict(config.options)
    result = minimize(prepared.objectives, X, graph, runtime=runtime, **options)
    cost.add(result)
    models = dict(zip(result.hosted.tolist(), result.agents, strict=True))
    agents = {
        i: AgentRatings(
            placed.users[i],
            placed.items,
            own_model(models[i], prepared.offsets[i], np.unique(part.rows)),
            int(placed.firsts[i]),
        )
        for i, part in parts.items()
    }
    return FittedRatings(agents, result, cost, placed.notes)


def own_model(x: LowRank, offsets: Offsets, rows: Index) -> RatingsModel:
    """Return the model of one agent: with these rows only."""
    return RatingsModel(LowRank(x.rows_of(rows), x.V, x.shape, rows), offsets)


def _ratings(i: int, site: Site) -> Numbers:
    users, items, ratings = site
    values = np.asarray(finite(vector(ratings, "ratings"), "ratings"), dtype=np.float64)
    if not np.size(users) == np.size(items) == len(values) > 0:
        raise ValueError(
            "users, items and ratings of an agent must have one length, at least 1; agent "
            f"{i} has {np.size(users)}, {np.size(items)} and {len(values)}."
        )
    return values
