"""From files of ratings to objectives: ids, the offsets that the network fits, and the models of agents.

Ids of users stay with their agent, unless one file is split over the agents. The network agrees on the ids
of items, on how many users each agent has, and on the offsets of items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, final

import networkx as nx
import numpy as np

from dcgs.datasets import BrokenDataError
from dcgs.fitting.config import FitConfig
from dcgs.fitting.data import DataSource, Entries, Indices, LoadedData
from dcgs.fitting.ratings_model import Labels, Naming, Numbering, RatingsFile
from dcgs.fitting.readers import EntriesLayout, kind_of, read_entries
from dcgs.fitting.readers.ratings import Rated, coded_numbers, read_rated, read_rated_parquet
from dcgs.front import Result, agree_on_texts
from dcgs.low_rank import LowRank
from dcgs.objectives import Objective
from dcgs.preprocessing import Path as RadiusPath
from dcgs.preprocessing import Sent
from dcgs.ratings import Ids, Offsets, RatingsModel
from dcgs.ratings.completing import Cost, first_rows, has_separate_rows, inspected, own_model, prepare
from dcgs.ratings.oddities import ids_notes
from dcgs.ratings.offsets import OffsetsTask, Part
from dcgs.runtime import ProcessGroup, Runtime


@final
@dataclass(frozen=True, eq=False)
class Site:
    """The graph, the runtime and the group of processes of a fit."""

    graph: nx.Graph
    runtime: Runtime
    group: ProcessGroup

    @property
    def hosted(self) -> range:
        """The agents of this process."""
        return self.runtime.hosts(len(self.graph))


@final
@dataclass(frozen=True, eq=False)
class LoadedRatings:
    """The objectives of a fit of ratings, and what its models need."""

    data: LoadedData
    objectives: Mapping[int, Objective]
    parts: Mapping[int, Part]
    offsets: Mapping[int, Offsets]
    naming: Mapping[int, Naming]
    task: OffsetsTask
    cost: Cost
    notes: tuple[str, ...] = ()
    path: RadiusPath | None = None
    path_sent: tuple[Sent, ...] = ()

    @property
    def sent(self) -> tuple[Sent, ...]:
        """What all agents sent beside the run."""
        name = "ids of columns, how many rows agents have, range and offsets of ratings"
        before = Sent(name, "fit", self.data.shape[1], self.cost.rounds, int(self.cost.bytes.sum()))
        return (before, *self.path_sent)

    def about(self) -> dict[str, Any]:
        """Return what a model says of its fit."""
        about: dict[str, Any] = {"sent": [each.to_dict() for each in self.sent]}
        return about if self.path is None else about | {"path": self.path.to_dict()}

    def models(self, result: Result, about: Mapping[str, Any]) -> dict[int, RatingsFile]:
        """Return the models of the agents of this process."""
        answers = dict(zip(result.hosted.tolist(), result.agents, strict=True))
        return {
            i: RatingsFile(self._own(i, answers[i]), self.naming[i], {"agent": i, **about})
            for i in self.parts
        }

    def _own(self, i: int, x: Any) -> RatingsModel:
        """Return the model of agent i, with the rows that it has."""
        rows = np.unique(self.parts[i].rows) if self.task.separate_rows else np.arange(self.data.shape[0])
        return own_model(x if isinstance(x, LowRank) else _factors(x), self.offsets[i], rows)

    def summary(self) -> dict[str, Any]:
        """Return what summary.json says of the offsets, and of what was sent before the run."""
        offsets, ridge = next(iter(self.offsets.values())), self.task.ridge
        return {
            "offsets": None if ridge is None else {"mean": offsets.mean, "ridge": ridge},
            "range of ratings": [offsets.low, offsets.high],
            "before the run": {
                "rounds": self.cost.rounds,
                "messages": int(self.cost.messages.sum()),
                "bytes": int(self.cost.bytes.sum()),
            },
            **self.about(),
        }


def load_ratings(config: FitConfig, layout: EntriesLayout, site: Site) -> LoadedRatings:
    """Read the ratings of the agents of this process, and fit the offsets over the network."""
    source, cost = config.source, Cost()
    has_numbers = config.shape is not None or layout.base is not None
    if has_numbers or kind_of(source.file(0)) in ("npz", "npy"):
        parts, naming, shape, used = _numbered(source, layout, config.shape, site)
    else:
        parts, naming, shape, used = _labeled(source, layout, site, cost)
    parts, notes = inspected(parts, shape[1])
    notes, used = site.group.allgather_texts(notes), list(dict.fromkeys(site.group.allgather_texts(used)))
    task = OffsetsTask(shape, has_separate_rows(parts, site.graph, site.runtime, cost), config.ridge)
    prepared = prepare(parts, task, site.graph, site.runtime, cost)
    # Every process counts for its own agents, and has 0 for others.
    counts = site.group.allreduce_max(np.stack([cost.messages, cost.bytes]).astype(np.float64))
    cost.messages, cost.bytes = counts.astype(np.int64)
    one = next(iter(naming.values()))
    reading: dict[str, Any] = {"base": one.base} if isinstance(one, Numbering) else {"ids": True}
    if isinstance(one, Labels):
        notes += ids_notes(one.items)
    reading["used"] = used
    data = LoadedData(shape, reading, {i: len(part.values) for i, part in parts.items()})
    offsets = prepared.offsets
    return LoadedRatings(data, prepared.objectives, parts, offsets, naming, task, cost, tuple(notes))


Loaded = tuple[dict[int, Part], dict[int, Naming], tuple[int, int], list[str]]
"""Ratings and names of each agent of this process, the shape of the matrix, and which columns were used."""
Data = TypeVar("Data", Rated, Entries)


def _read(
    source: DataSource, site: Site, read: Callable[[Path], Data], rows_of: Callable[[Data], Indices]
) -> dict[int, Data]:
    """Return the data of the agents of this process; ``rows_of`` gives the rows by which a file is split."""
    if source.is_per_agent:
        found = {i: source.read(i, lambda file, _: read(file)) for i in site.hosted}
    else:
        whole = read(source.file(0))
        places = split_places(source, rows_of(whole), len(site.graph))
        found = {i: whole.take(places[i]) for i in site.hosted}
    site.group.barrier()  # a process that could not read ends the others here
    return found


def _labeled(source: DataSource, layout: EntriesLayout, site: Site, cost: Cost) -> Loaded:
    """Return the ratings of a table with ids."""
    graph, runtime = site.graph, site.runtime
    rated = _read(source, site, lambda file: read_rated_table(file, layout), lambda whole: whole.rows.codes)
    if source.is_per_agent:
        agreed = agree_on_texts({i: own.cols.ids.tolist() for i, own in rated.items()}, graph, runtime)
        cost.add(agreed)
        items = Ids.of(agreed.texts)
        firsts, count = first_rows({i: len(r.rows.ids) for i, r in rated.items()}, graph, runtime, cost)
    else:  # every part has the ids of the whole file
        one = next(iter(rated.values()))
        items, firsts, count = one.cols.ids, np.zeros(len(graph), dtype=np.intp), len(one.rows.ids)
    parts, naming = {}, {}
    for i, own in rated.items():
        values = own.values
        if values is None:
            raise BrokenDataError(f"{source.file(i)} must have a rating on each line; it has none.")
        rows = own.rows.codes + firsts[i]
        parts[i] = Part(rows, items.places(own.cols.ids.texts)[own.cols.codes], values)
        here = np.unique(rows)
        naming[i] = Labels(Ids(own.rows.ids.texts[here - firsts[i]]), here, items)
    return parts, dict(naming), (count, len(items)), [own.used for own in rated.values() if own.used]


def read_rated_table(file: Path, layout: EntriesLayout) -> Rated:
    """Return ratings with ids, from a table of text, Parquet, or any other file, where ids are numbers."""
    if kind_of(file) in ("text", "other"):
        return read_rated(file, layout)
    if kind_of(file) == "parquet":
        return read_rated_parquet(file, layout)
    entries = read_entries(file, layout)
    return Rated(coded_numbers(entries.rows), coded_numbers(entries.cols), entries.values)


def _numbered(source: DataSource, layout: EntriesLayout, given: tuple[int, int] | None, site: Site) -> Loaded:
    """Return the ratings of files whose rows and columns have numbers, the same for all agents."""
    read = _read(source, site, lambda file: read_entries(file, layout), lambda whole: whole.rows)
    base = _base(read.values(), site.group)
    entries = {i: part.from_zero(base) for i, part in read.items()}
    sides = [part.shape or (0, 0) for part in entries.values()]
    sides += [(int(part.rows.max()) + 1, int(part.cols.max()) + 1) for part in entries.values()]
    highest = site.group.allreduce_max(np.array([max(side) for side in zip(*sides, strict=True)], float))
    shape = given or (int(highest[0]), int(highest[1]))
    parts = {i: _checked(source, i, part, base, shape) for i, part in entries.items()}
    return parts, {i: Numbering(base, shape) for i in parts}, shape, []


def _base(parts: Collection[Entries], group: ProcessGroup) -> int:
    """Return the first index of files that do not say it: 0 if any of them has a 0, else 1."""
    unknown = [part for part in parts if part.base is None]
    lowest = min((float(min(part.rows.min(), part.cols.min())) for part in unknown), default=math.inf)
    known = max((part.base for part in parts if part.base is not None), default=-1)
    below, highest_known = group.allreduce_max(np.array([-lowest, float(known)])).tolist()
    return int(min(1.0, -below)) if below > -math.inf else int(highest_known)


def _checked(source: DataSource, agent: int, part: Entries, base: int, shape: tuple[int, int]) -> Part:
    file = source.file(agent)
    for name, indices, side in (("row", part.rows, shape[0]), ("column", part.cols, shape[1])):
        outside = np.flatnonzero((indices < 0) | (indices >= side))
        if len(outside):
            raise BrokenDataError(
                f"a {name} must be from {base} to {side - 1 + base}, for shape {shape[0]},{shape[1]} counted "
                f"from {base}; entry {outside[0] + 1} of agent {agent}, in {file}, has "
                f"{indices[outside[0]] + base}. Correct --shape, or give --zero-based or --one-based."
            )
    if part.values is None:
        raise BrokenDataError(f"{file} must have a value for each entry; it has none.")
    return Part(part.rows, part.cols, part.values)


def split_places(source: DataSource, rows: Indices, agents: int) -> list[Indices]:
    """Return which ratings of one file each agent gets; sorted by rows, every row is with one agent."""
    if source.split != "sorted":
        order = np.arange(len(rows))
        if source.split == "random":
            order = np.random.default_rng(source.seed).permutation(len(rows))
        return [np.asarray(part) for part in np.array_split(order, agents)]
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
    if len(starts) < agents:
        raise ValueError(
            f"every agent must have a row of its own; there are {len(starts)} rows and {agents} agents. "
            "Give fewer --agents, or --split even, which divides rows."
        )
    ends: list[int] = []
    for k in range(1, agents):
        wanted = int(np.searchsorted(starts, len(rows) * k // agents))
        ends.append(min(max(wanted, (ends[-1] if ends else 0) + 1), len(starts) - agents + k))
    return [np.asarray(part) for part in np.split(order, starts[ends])]


def _factors(x: Any) -> LowRank:
    """Return a dense matrix in factors."""
    u, sigma, vt = np.linalg.svd(np.asarray(x), full_matrices=False)
    rank = int(np.count_nonzero(sigma > 1e-14 * max(sigma.max(initial=0.0), 1e-300)))
    U, V = np.ascontiguousarray(u[:, :rank] * sigma[:rank]), np.ascontiguousarray(vt[:rank].T)
    return LowRank(U, V, (x.shape[0], x.shape[1]))
