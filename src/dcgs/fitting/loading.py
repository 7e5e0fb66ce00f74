"""From files to objectives: each agent's data, and the few numbers that all agents must agree on.

A process reads and keeps the data of the agents it hosts. What it tells others of them is here and nowhere
else: how many columns they have, a checksum of the columns' names, the smallest and the largest label, the
first and last row and column.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from scipy import sparse

from dcgs.datasets import BrokenDataError
from dcgs.fitting.data import Entries, Numbers, Samples
from dcgs.fitting.problems import Problem
from dcgs.fitting.readers import EntriesLayout, SamplesLayout, read_entries, read_samples
from dcgs.fitting.sites import Sites, at_agent
from dcgs.objectives import LeastSquares, Logistic, MatrixCompletion, Objective
from dcgs.runtime import ProcessGroup


@final
@dataclass(frozen=True, eq=False)
class Loaded:
    """The objectives of the agents hosted here, the shape of a model, and what predictions need to know.

    ``reading`` holds how new data are to be read: names and target of columns, the two labels, the number of
    the first row and column. ``rows`` says how many rows or entries each agent has.
    """

    objectives: Mapping[int, Objective]
    shape: tuple[int, ...]
    reading: Mapping[str, Any]
    rows: Mapping[int, int]


@final
@dataclass(frozen=True)
class Loader:
    """Loads the data of the agents hosted here; ``group`` are the processes that load the others'."""

    problem: Problem
    sites: Sites
    agents: int
    hosted: range
    group: ProcessGroup

    def samples(self, layout: SamplesLayout) -> Loaded:
        """Return objectives of samples: least squares, or logistic."""

        def read(file: Path, agent: int) -> Samples:
            target = None if layout.target is None else at_agent(layout.target, agent)
            return read_samples(file, replace(layout, target=target))

        parts = self.sites.parts(self.agents, self.hosted, read)
        targets = {i: part.b for i, part in parts.items() if part.b is not None}
        names = [_checksum(part.names) for part in parts.values()]
        labels = [float(b.min()) for b in targets.values()], [float(b.max()) for b in targets.values()]
        width, high_name, low_name, low_label, high_label = self._allreduce_max(
            [
                max(part.A.shape[1] for part in parts.values()),
                max(names),
                -min(names),
                -min(labels[0]),
                max(labels[1]),
            ]
        )
        if high_name != -low_name:
            raise BrokenDataError(
                "the columns of all agents' files must have the same names in the same order; they have not. "
                "Write the files with the same columns."
            )
        features = int(width) if layout.features is None else layout.features
        matrices = {i: self._widened(i, part, features) for i, part in parts.items()}
        reading: dict[str, Any] = _named(next(iter(parts.values())))
        if self.problem.labels:
            pair = (-low_label, high_label)
            reading["labels"] = list(pair)
            signs = {i: self._signs(i, b, pair) for i, b in targets.items()}
            objectives = {i: Logistic(A, signs[i]) for i, A in matrices.items()}
        else:
            objectives = {i: LeastSquares(A, targets[i]) for i, A in matrices.items()}
        return Loaded(objectives, (features,), reading, {i: len(part) for i, part in parts.items()})

    def entries(self, layout: EntriesLayout, shape: tuple[int, int] | None) -> Loaded:
        """Return objectives of observed entries of a matrix."""
        parts = self.sites.parts(self.agents, self.hosted, lambda file, _: read_entries(file, layout))
        base = self._base(parts.values())
        counted = {i: part.from_zero(base) for i, part in parts.items()}
        sides = [part.shape or (0, 0) for part in counted.values()]
        rows, cols = self._allreduce_max(
            [
                max(
                    max(int(part.rows.max()) + 1, side[0])
                    for part, side in zip(counted.values(), sides, strict=True)
                ),
                max(
                    max(int(part.cols.max()) + 1, side[1])
                    for part, side in zip(counted.values(), sides, strict=True)
                ),
            ]
        )
        whole = shape or (int(rows), int(cols))
        objectives = {i: self._completion(i, part, base, whole) for i, part in counted.items()}
        return Loaded(objectives, whole, {"base": base}, {i: len(part) for i, part in parts.items()})

    def _allreduce_max(self, numbers: Sequence[float]) -> list[float]:
        """Return the largest of each number over all processes."""
        return list(self.group.allreduce_max(np.array(numbers, dtype=np.float64)).tolist())

    def _base(self, parts: Collection[Entries]) -> int:
        """Return where those count from that do not say: 0 if a 0 is among them, else 1."""
        silent = [part for part in parts if part.base is None]
        lowest = min((float(min(part.rows.min(), part.cols.min())) for part in silent), default=math.inf)
        said = max((part.base for part in parts if part.base is not None), default=-1)
        below, loudest = self._allreduce_max([-lowest, said])
        return int(min(1.0, -below)) if below > -math.inf else int(loudest)

    def _widened(self, agent: int, part: Samples, features: int) -> Any:
        """Return A with so many columns; only a file that does not say how many it has may get more."""
        width = part.A.shape[1]
        if width == features:
            return part.A
        A: Any = part.A
        if part.open and width < features and sparse.issparse(A):
            entries = (A.data, A.indices, A.indptr)
            return sparse.csr_array(entries, shape=(len(part), features))
        raise BrokenDataError(
            f"all agents must have the same features; {self.sites.file(agent)} has {width}, and {features} "
            "are asked for or another agent has them."
        )

    def _signs(self, agent: int, b: Numbers, pair: tuple[float, float]) -> Numbers:
        """Return −1 for the lower label and +1 for the higher."""
        low, high = pair
        if low == high:
            raise BrokenDataError(f"there must be two classes; all labels are {low:.12g}.")
        odd = np.flatnonzero((b != low) & (b != high))
        if len(odd):
            raise BrokenDataError(
                f"labels must be of two classes; there are {low:.12g} and {high:.12g}, and row "
                f"{odd[0] + 1} of agent {agent}, in {self.sites.file(agent)}, has {b[odd[0]]:.12g}."
            )
        return np.where(b == high, 1.0, -1.0)

    def _completion(self, agent: int, part: Entries, base: int, shape: tuple[int, int]) -> Objective:
        for name, places, side in (("row", part.rows, shape[0]), ("column", part.cols, shape[1])):
            outside = np.flatnonzero((places < 0) | (places >= side))
            if len(outside):
                first = int(outside[0])
                raise BrokenDataError(
                    f"a {name} must be from {base} to {side - 1 + base}, for shape {shape[0]},{shape[1]} "
                    f"counted from {base}; entry {first + 1} of agent {agent}, in {self.sites.file(agent)}, "
                    f"has {places[first] + base}. Mend --shape, or say --zero-based or --one-based."
                )
        if part.values is None:
            raise BrokenDataError(f"{self.sites.file(agent)} must have a value for each entry; it has none.")
        return MatrixCompletion(part.rows, part.cols, part.values, shape)


def _checksum(names: tuple[str, ...] | None) -> int:
    return 0 if names is None else zlib.crc32("\x1f".join(names).encode())


def _named(part: Samples) -> dict[str, Any]:
    """Return how the columns of new data are to be found."""
    return {
        "names": None if part.names is None else list(part.names),
        "target": part.target,
        "target_at": part.target_at,
    }
