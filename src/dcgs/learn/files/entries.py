"""From files of ratings to ratings whose rows and columns have numbers that all agents agree on.

Ids of users stay with their agent, unless one file is split over the agents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np

from dcgs.datasets import BrokenDataError
from dcgs.learn.files.layout import EntriesLayout
from dcgs.learn.files.ratings import Rated, coded_numbers, read_rated, read_rated_parquet
from dcgs.learn.files.readers import kind_of, read_entries
from dcgs.learn.files.source import DataSource, Entries, Indices
from dcgs.learn.ratings.fit import PlacedRatings, RatedIds, place_ids, place_numbers
from dcgs.learn.ratings.ids import Ids
from dcgs.learn.ratings.model import Labels, Naming, Numbering
from dcgs.learn.ratings.offsets import Part
from dcgs.learn.sites import Sites
from dcgs.learn.sums import Reductions

Data = TypeVar("Data", Rated, Entries)
_NONE = 1e18  # larger than any index


@final
@dataclass(frozen=True)
class RatingsLoader:
    """Reads the ratings of the agents of this process.

    ``shape`` is that of the matrix, if rows and columns have numbers and it is given. ``options`` are the
    user's, which must be the same at all sites.
    """

    source: DataSource
    layout: EntriesLayout
    shape: tuple[int, int] | None
    options: Mapping[str, str]

    @property
    def has_numbers(self) -> bool:
        """Whether rows and columns have numbers, the same for all agents, and no ids."""
        given = self.shape is not None or self.layout.base is not None
        return given or kind_of(self.source.file(0)) in ("npz", "npy")

    def load(self, network: Reductions) -> tuple[PlacedRatings, dict[str, Any]]:
        """Return the ratings, and how they were read."""
        sites: Sites[Any] = Sites(network, {}, {i: self.source.describe(i) for i in network.hosts})
        if self.has_numbers:
            return self._numbered(sites)
        return self._labeled(sites)

    def _read(
        self, network: Reductions, read: Callable[[Path], Data], rows_of: Callable[[Data], Indices]
    ) -> dict[int, Data]:
        """Return the data of the agents here; ``rows_of`` gives the rows by which a file is split."""
        if self.source.is_per_agent:
            data = {i: self.source.read(i, lambda file, _: read(file)) for i in network.hosts}
        else:
            whole = read(self.source.file(0))
            places = split_places(self.source, rows_of(whole), len(network.graph))
            data = {i: whole.take(places[i]) for i in network.hosts}
        network.runtime.group().barrier()  # a process that could not read ends the others here
        return data

    def _labeled(self, sites: Sites[Any]) -> tuple[PlacedRatings, dict[str, Any]]:
        """Return the ratings of a table with ids."""
        network, group = sites.network, sites.network.runtime.group()
        rated = self._read(
            network, lambda file: read_rated_table(file, self.layout), lambda whole: whole.rows.codes
        )
        for i, local in rated.items():
            if local.values is None:
                raise BrokenDataError(f"{self.source.file(i)} must have a rating on each line; it has none.")
        parts = {
            i: Part(local.rows.codes, local.cols.codes, np.asarray(local.values))
            for i, local in rated.items()
        }
        if self.source.is_per_agent:
            users = {i: local.rows.ids for i, local in rated.items()}
            items = {i: local.cols.ids for i, local in rated.items()}
            placed = place_ids(sites, RatedIds(users, items, parts), self.options)
        else:  # every part has the ids of the whole file
            first = next(iter(rated.values()))
            naming: dict[int, Naming] = {}
            for i, part in parts.items():
                here = np.unique(part.rows)
                naming[i] = Labels(Ids(rated[i].rows.ids.texts[here]), here, first.cols.ids)
            shape = len(first.rows.ids), len(first.cols.ids)
            placed = place_numbers(sites, parts, naming, shape, self.options)
        used = group.allgather_texts([local.used for local in rated.values() if local.used])
        return placed, {"ids": True, "used": list(dict.fromkeys(used))}

    def _numbered(self, sites: Sites[Any]) -> tuple[PlacedRatings, dict[str, Any]]:
        """Return the ratings of files whose rows and columns have numbers, the same for all agents."""
        network = sites.network
        read = self._read(network, lambda file: read_entries(file, self.layout), lambda whole: whole.rows)
        indices = {i: [_indices(part)] for i, part in read.items()}
        (highest,) = network.max("first index, and last rows and columns", indices)
        base, shape = _base_and_shape(*highest.tolist())
        shape = self.shape or shape
        entries = {i: part.from_zero(base) for i, part in read.items()}
        parts = {i: self._checked(i, part, base, shape) for i, part in entries.items()}
        naming: dict[int, Naming] = {i: Numbering(base, shape) for i in parts}
        return place_numbers(sites, parts, naming, shape, self.options), {"base": base, "used": []}

    def _checked(self, agent: int, part: Entries, base: int, shape: tuple[int, int]) -> Part:
        file = self.source.file(agent)
        for name, indices, side in (("row", part.rows, shape[0]), ("column", part.cols, shape[1])):
            outside = np.flatnonzero((indices < 0) | (indices >= side))
            if len(outside):
                raise BrokenDataError(
                    f"a {name} must be from {base} to {side - 1 + base}, for shape {shape[0]},{shape[1]} "
                    f"counted from {base}; entry {outside[0] + 1} of agent {agent}, in {file}, has "
                    f"{indices[outside[0]] + base}. Correct --shape, or give --zero-based or --one-based."
                )
        if part.values is None:
            raise BrokenDataError(f"{file} must have a value for each entry; it has none.")
        return Part(part.rows, part.cols, part.values)


def read_rated_table(file: Path, layout: EntriesLayout) -> Rated:
    """Return ratings with ids, from a table of text, Parquet, or any other file, where ids are numbers."""
    if kind_of(file) in ("text", "other"):
        return read_rated(file, layout)
    if kind_of(file) == "parquet":
        return read_rated_parquet(file, layout)
    entries = read_entries(file, layout)
    return Rated(coded_numbers(entries.rows), coded_numbers(entries.cols), entries.values)


def _indices(part: Entries) -> list[float]:
    """Return what an agent says of the numbers of its rows and columns, for a maximum over all agents.

    These are minus the lowest number and the highest row and column of a file that does not say its first
    index; the first index and the sides of one that does.
    """
    rows, cols = float(part.rows.max()), float(part.cols.max())
    if part.base is None:
        return [-float(min(part.rows.min(), part.cols.min())), rows, cols, -1.0, 0.0, 0.0]
    sides = part.shape or (0, 0)
    ends = max(rows + 1.0 - part.base, sides[0]), max(cols + 1.0 - part.base, sides[1])
    return [-_NONE, -1.0, -1.0, float(part.base), *ends]


def _base_and_shape(
    below: float, last_row: float, last_col: float, known: float, rows: float, cols: float
) -> tuple[int, tuple[int, int]]:
    """Return the first index of files that do not say it, 0 if any has a 0, else 1; and the shape."""
    base = int(known) if below == -_NONE else int(min(1.0, -below))
    return base, (int(max(last_row + 1.0 - base, rows)), int(max(last_col + 1.0 - base, cols)))


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
