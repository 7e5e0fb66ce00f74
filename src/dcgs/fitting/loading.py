"""From files to objectives: the data of the hosted agents, and the few numbers that all agents agree on.

A process reads the data of the agents it hosts, and no other. It sends other processes only what is computed
here: how many columns there are, a checksum of their names, the lowest and highest label, and the lowest and
highest row and column.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from scipy import sparse

from dcgs import registry
from dcgs.datasets import BrokenDataError
from dcgs.fitting.data import DataSource, Numbers, Samples, path_of_agent
from dcgs.fitting.problems import Problem
from dcgs.fitting.readers import SamplesLayout, read_samples
from dcgs.objectives import LeastSquares, Logistic, Objective, matrix_map
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

    def samples(self, layout: SamplesLayout) -> LoadedData:
        """Return objectives of samples."""

        def read(file: Path, agent: int) -> Samples:
            target = None if layout.target is None else path_of_agent(layout.target, agent)
            return read_samples(file, replace(layout, target=target))

        parts = self.source.parts(self.agents, self.hosted, read)
        targets = {i: part.b for i, part in parts.items() if part.b is not None}
        names = [_checksum(part.names) for part in parts.values()]
        width, high_name, low_name, high_label, low_label = self._largest(
            max(part.A.shape[1] for part in parts.values()),
            max(names),
            -min(names),
            max(float(b.max()) for b in targets.values()),
            -min(float(b.min()) for b in targets.values()),
        )
        if high_name != -low_name:
            raise BrokenDataError(
                "the columns of all agents' files must have the same names in the same order; they have not. "
                "Write the files with the same columns."
            )
        features = int(width) if layout.features is None else layout.features
        matrices = {i: self._widened(i, part, features) for i, part in parts.items()}
        part = next(iter(parts.values()))
        columns = None if part.names is None else list(part.names)
        reading: dict[str, Any] = {"names": columns, "target": part.target, "target_at": part.target_at}
        if self.problem.labels:
            reading["labels"] = [-low_label, high_label]
            signs = {i: self._signs(i, b, -low_label, high_label) for i, b in targets.items()}
            objectives = {i: Logistic(A, signs[i]) for i, A in matrices.items()}
        elif self.problem.loss == "own":
            kind: Any = registry.resolve("loss", self.problem.name)
            losses = {i: kind(b, **self.problem.options) for i, b in targets.items()}
            objectives = {i: Objective(losses[i], matrix_map(A)) for i, A in matrices.items()}
        else:
            objectives = {i: LeastSquares(A, targets[i]) for i, A in matrices.items()}
        return LoadedData(objectives, (features,), reading, {i: len(part) for i, part in parts.items()})

    def _largest(self, *numbers: float) -> list[float]:
        return list(self.group.allreduce_max(np.array(numbers, dtype=np.float64)).tolist())

    def _widened(self, agent: int, part: Samples, features: int) -> Any:
        """Return A with this number of columns; only LIBSVM text may have fewer."""
        A: Any = part.A
        if A.shape[1] == features:
            return A
        if part.open and A.shape[1] < features:
            return sparse.csr_array((A.data, A.indices, A.indptr), shape=(len(part), features))
        raise BrokenDataError(
            f"all agents must have the same features; {self.source.file(agent)} has {A.shape[1]}, and "
            f"{features} are asked for or another agent has them."
        )

    def _signs(self, agent: int, b: Numbers, low: float, high: float) -> Numbers:
        """Return −1 for the lower label and +1 for the higher."""
        if low == high:
            raise BrokenDataError(f"there must be two classes; all labels are {low:.12g}.")
        other = np.flatnonzero((b != low) & (b != high))
        if len(other):
            raise BrokenDataError(
                f"labels must be of two classes; there are {low:.12g} and {high:.12g}, and row "
                f"{other[0] + 1} of agent {agent}, in {self.source.file(agent)}, has {b[other[0]]:.12g}."
            )
        return np.where(b == high, 1.0, -1.0)


def _checksum(names: tuple[str, ...] | None) -> int:
    return 0 if names is None else zlib.crc32("\x1f".join(names).encode())
