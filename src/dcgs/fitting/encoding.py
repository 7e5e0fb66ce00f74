"""How a table becomes numbers: a column of numbers as it is, a category as one column for each level.

An encoding is a part of the model, and new data are encoded by it. ``fill`` are the means over all sites:
they take the place of a value that is missing. The mean of the column of a level is the share of the level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from dcgs.fitting.data import Numbers
from dcgs.fitting.tables import Column, Table


@final
@dataclass(frozen=True)
class EncodedColumn:
    """A column of a table: its name, its levels if it is a category, and the means of its features."""

    name: str
    levels: tuple[str, ...] | None = None
    fill: tuple[float, ...] = ()

    @property
    def features(self) -> list[str]:
        """The names of its features."""
        return [self.name] if self.levels is None else [f"{self.name}={level}" for level in self.levels]

    def numbers(self, column: Column) -> Numbers:
        """Return a column for each feature; NaN where the value is missing or a level is not known."""
        if self.levels is None:
            return column.numbers[:, None]
        place = {level: at for at, level in enumerate(self.levels)}
        codes = np.array(
            [-1 if text is None else place.get(text, -1) for text in column.texts], dtype=np.intp
        )
        one_hot = np.full((len(codes), len(self.levels)), np.nan)
        known = codes >= 0
        one_hot[known] = np.eye(len(self.levels))[codes[known]]
        return one_hot

    def unknown(self, column: Column) -> list[str]:
        """Return the levels of a column that the category does not have."""
        return sorted(set(column.levels) - set(self.levels or ()))

    def to_json(self) -> dict[str, Any]:
        """Return the column as the model file has it."""
        levels = {} if self.levels is None else {"levels": list(self.levels)}
        return {"name": self.name, **levels, "fill": list(self.fill)}


@final
@dataclass(frozen=True)
class Encoding:
    """The columns of a table, in the order of the features of a model."""

    columns: tuple[EncodedColumn, ...]

    @property
    def features(self) -> list[str]:
        """The names of all features."""
        return [name for column in self.columns for name in column.features]

    def matrix(self, table: Table) -> Numbers:
        """Return a row of numbers for each row of a table, with NaN where a value is missing."""
        pairs = zip(self.columns, table.columns, strict=True)
        return np.ascontiguousarray(np.hstack([encoded.numbers(column) for encoded, column in pairs]))

    def filled(self, A: Numbers) -> Numbers:
        """Return the matrix with means in place of NaN."""
        fill = np.array([mean for column in self.columns for mean in column.fill])
        return np.where(np.isnan(A), fill, A) if np.isnan(A).any() else A

    def with_fill(self, means: Sequence[float]) -> Encoding:
        """Return the encoding with these means, one for each feature."""
        columns, at = [], 0
        for column in self.columns:
            end = at + len(column.features)
            columns.append(replace(column, fill=tuple(map(float, means[at:end]))))
            at = end
        return Encoding(tuple(columns))

    def to_json(self) -> list[dict[str, Any]]:
        """Return the encoding as the model file has it."""
        return [column.to_json() for column in self.columns]

    @classmethod
    def from_json(cls, columns: Sequence[Mapping[str, Any]]) -> Encoding:
        """Return the encoding of a model file."""
        return cls(
            tuple(
                EncodedColumn(
                    str(column["name"]),
                    tuple(map(str, column["levels"])) if "levels" in column else None,
                    tuple(map(float, column["fill"])),
                )
                for column in columns
            )
        )
