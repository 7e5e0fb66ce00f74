"""From files of entries to objectives: the data of the hosted agents, and what all agents agree on.

A process reads the data of the agents it hosts, and no other. It sends other processes only what is computed
here: the lowest and highest row and column. For samples see ``samples.py``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dcgs.datasets import BrokenDataError
from dcgs.fitting.data import DataSource, Entries
from dcgs.fitting.problems import Problem
from dcgs.fitting.readers import EntriesLayout, read_entries
from dcgs.objectives import MatrixCompletion, Objective
from dcgs.runtime import ProcessGroup


@final
@dataclass(frozen=True, eq=False)
class LoadedData:
    """The objectives and the number of rows of each hosted agent, and the shape of a model.

    ``reading`` says how new data are read: names and target of the columns, the two labels, the first index.
    """

    objectives: Mapping[int, Objective]
    shape: tuple[int, ...]
    reading: Mapping[str, Any]
    rows: Mapping[int, int]


@final
@dataclass(frozen=True)
class Loader:
    """Loads the data of the hosted agents; the other processes of ``group`` load the others."""

    problem: Problem
    source: DataSource
    agents: int
    hosted: Sequence[int]
    group: ProcessGroup

    def entries(self, layout: EntriesLayout, shape: tuple[int, int] | None) -> LoadedData:
        """Return objectives of observed entries of a matrix."""
        parts = self.source.parts(self.agents, self.hosted, lambda file, _: read_entries(file, layout))
        base = self._base(parts.values())
        parts = {i: part.from_zero(base) for i, part in parts.items()}
        sides = [part.shape or (0, 0) for part in parts.values()]
        sides += [(int(part.rows.max()) + 1, int(part.cols.max()) + 1) for part in parts.values()]
        rows, cols = self._largest(*map(max, zip(*sides, strict=True)))
        whole = shape or (int(rows), int(cols))
        objectives = {i: self._completion(i, part, base, whole) for i, part in parts.items()}
        return LoadedData(objectives, whole, {"base": base}, {i: len(part) for i, part in parts.items()})

    def _largest(self, *numbers: float) -> list[float]:
        return list(self.group.allreduce_max(np.array(numbers, dtype=np.float64)).tolist())

    def _base(self, parts: Collection[Entries]) -> int:
        """Return the first index of files that do not say it: 0 if any of them has a 0, else 1."""
        unknown = [part for part in parts if part.base is None]
        lowest = min((float(min(part.rows.min(), part.cols.min())) for part in unknown), default=math.inf)
        known = max((part.base for part in parts if part.base is not None), default=-1)
        below, highest_known = self._largest(-lowest, known)
        return int(min(1.0, -below)) if below > -math.inf else int(highest_known)

    def _completion(self, agent: int, part: Entries, base: int, shape: tuple[int, int]) -> Objective:
        file = self.source.file(agent)
        outside = part.first_outside(shape)
        if outside is not None:
            name, entry, found, side = outside
            raise BrokenDataError(
                f"a {name} must be from {base} to {side - 1 + base}, for shape {shape[0]},{shape[1]} counted "
                f"from {base}; entry {entry + 1} of agent {agent}, in {file}, has {found + base}. "
                "Correct --shape, or give --zero-based or --one-based."
            )
        if part.values is None:
            raise BrokenDataError(f"{file} must have a value for each entry; it has none.")
        return MatrixCompletion(part.rows, part.cols, part.values, shape)
