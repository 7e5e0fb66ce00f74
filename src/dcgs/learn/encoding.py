"""How tables become numbers: a column of numbers as it is, a category as one column for each level.

An encoding is a part of the model, and new data are encoded by it. ``fill`` are the means over all sites:
they take the place of a value that is missing. The mean of the column of a level is the share of the level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dcgs.learn.files.source import Indices, Numbers
from dcgs.learn.files.tables import Column, Table
from dcgs.learn.schema import Note, Schema
from dcgs.learn.sums import Request, Steps
from dcgs.validation import counted, listed

# The rows that a note on values needs; with fewer, much is chance.
_FEWEST_ROWS = 10


@final
@dataclass(frozen=True)
class EncodedColumn:
    """A column of a table: its name, the means of its features, and its levels if it is a category.

    With ``other`` a value that is not among the levels is the last of them, "other"; so is a missing one with
    ``missing_is_other``. A column that is left out of the model has no levels.
    """

    name: str
    fill: tuple[float, ...] = ()
    levels: tuple[str, ...] | None = None
    other: bool = False
    missing_is_other: bool = False

    @property
    def features(self) -> list[str]:
        """The names of its features."""
        return [self.name] if self.levels is None else [f"{self.name}={level}" for level in self.levels]

    def numbers(self, column: Column) -> Numbers:
        """Return a column for each feature; NaN where the value is missing or a level is not known."""
        if self.levels is None:
            return column.numbers[:, None]
        place = {level: number for number, level in enumerate(self.levels)}
        texts = column.texts
        rare = len(self.levels) - 1 if self.other else -1
        missing = rare if self.missing_is_other else -1
        codes = np.array([missing if text is None else place.get(text, rare) for text in texts], np.intp)
        one_hot = np.full((len(codes), len(self.levels)), np.nan)
        known = codes >= 0
        one_hot[known] = np.eye(len(self.levels))[codes[known]]
        return one_hot

    def unknown(self, column: Column) -> list[str]:
        """Return the levels of a column that the category does not have."""
        if self.other or not self.levels:
            return []
        return sorted(set(column.levels) - set(self.levels or ()))


@final
@dataclass(frozen=True)
class Encoding:
    """The columns of a table, in the order of the features of a model."""

    columns: tuple[EncodedColumn, ...]

    @classmethod
    def of(cls, schema: Schema) -> Encoding:
        """Return the encoding that sites have agreed on, without means."""
        return cls(
            tuple(
                EncodedColumn(name, (), () if k in schema.left_out else schema.levels.get(k))
                if k not in schema.others
                else EncodedColumn(name, (), schema.levels[k], True, schema.others[k])
                for k, name in enumerate(schema.names)
            )
        )

    @property
    def features(self) -> list[str]:
        """The names of all features."""
        return [name for column in self.columns for name in column.features]

    @property
    def starts(self) -> list[tuple[EncodedColumn, int]]:
        """Each column with the place of its first feature; without those that are left out."""
        places = np.cumsum([0, *(len(column.features) for column in self.columns)])[:-1]
        pairs = zip(self.columns, places.tolist(), strict=True)
        return [(column, place) for column, place in pairs if column.features]

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
        ends = np.cumsum([len(column.features) for column in self.columns]).tolist()
        pairs = zip(self.columns, ends, strict=True)
        fills = [
            (column, tuple(map(float, means[end - len(column.features) : end]))) for column, end in pairs
        ]
        return Encoding(tuple(replace(column, fill=fill) for column, fill in fills))


@final
@dataclass(frozen=True, eq=False)
class TableSums:
    """Sums over the values of each feature that are there, in the rows to fit to: of one agent, or of all.

    ``missing`` counts missing values in all rows.
    """

    total: Numbers
    there: Numbers
    squares: Numbers
    missing: Numbers

    @classmethod
    def of(cls, A: Any, held_out: Indices) -> TableSums:
        """Return the sums of an agent, given the rows that it holds out."""
        if sparse.issparse(A):  # of a file without holes
            rest = A[np.setdiff1d(np.arange(A.shape[0]), held_out)]
            sums = [np.asarray(some.sum(axis=0), dtype=float).reshape(-1) for some in (rest, rest.power(2))]
            return cls(sums[0], np.full(A.shape[1], float(rest.shape[0])), sums[1], np.zeros(A.shape[1]))
        rest = np.delete(A, held_out, axis=0)
        there = (~np.isnan(rest)).sum(axis=0).astype(float)
        missing = np.isnan(A).sum(axis=0).astype(float)
        return cls(np.nansum(rest, axis=0), there, np.nansum(np.square(rest), axis=0), missing)


@final
@dataclass(frozen=True, eq=False)
class EncodedTables:
    """The tables or arrays of the agents of this process as numbers with NaN, how they are filled, and notes.

    ``sums`` are those of each agent and, under −1, of all agents.
    """

    encoding: Encoding
    matrices: Mapping[int, Any]
    sums: Mapping[int, TableSums]
    notes: tuple[str, ...]

    def filled(self, i: int) -> Numbers:
        """Return the rows of an agent as numbers."""
        return self.encoding.filled(self.matrices[i])


def encode(
    tables: Mapping[int, Table], held_out: Mapping[int, Indices], schema: Schema
) -> Steps[EncodedTables]:
    """Encode tables as sites have agreed; the means of all sites and who has a level are found by one sum."""
    encoding, floors = Encoding.of(schema), schema.floors
    matrices = {i: encoding.matrix(table) for i, table in tables.items()}
    local = {i: TableSums.of(A, held_out[i]) for i, A in matrices.items()}
    values = {}
    for i, table in tables.items():
        values[i] = [local[i].total, local[i].there, local[i].missing, local[i].squares]
        if floors is None:
            has = _levels_there(encoding, table)
            values[i] += [has, i * has]
    name = "sums and squares of features, how many values are there"
    name += ", and how many sites have a level" if floors is None else ""
    total, there, missing, squares, *alone = yield Request(name, values)
    means = np.asarray(total / np.maximum(there, 1.0))
    notes = _level_notes(encoding, schema, *alone) if alone and len(schema.sites) > 1 else []
    for column, start in encoding.starts:
        if missing[start]:
            filled = f"the mean of all sites, {means[start]:.4g}"
            if column.levels is not None:
                filled = "the shares of its levels at all sites"
            holes = counted(int(missing[start]), "missing value")
            if floors is not None and missing[start] < floors.min_count:
                holes = f"fewer than {floors.min_count} missing values"
            notes.append(f"column {column.name!r} has {holes}, filled with {filled}.")
    everyone = TableSums(total, there, squares, missing)
    encoding = encoding.with_fill(means.tolist())
    return EncodedTables(encoding, matrices, {-1: everyone, **local}, tuple(notes))


def inspect(matrices: Mapping[int, Any], held_out: Mapping[int, Indices], width: int) -> Steps[EncodedTables]:
    """Return arrays as they are, with the sums of their columns over all sites, for notes on these."""
    local = {i: TableSums.of(A, held_out[i]) for i, A in matrices.items()}
    values = {i: [sums.total, sums.there, sums.squares] for i, sums in local.items()}
    total, there, squares = yield Request("sums and squares of features", values)
    encoding = Encoding(tuple(EncodedColumn(f"feature {k + 1}") for k in range(width)))
    everyone = TableSums(total, there, squares, np.zeros(width))
    return EncodedTables(encoding, matrices, {-1: everyone, **local}, ())


def _levels_there(encoding: Encoding, table: Table) -> Numbers:
    """Return for each level of each category whether a table has it."""
    flags: list[float] = []
    for column, local in zip(encoding.columns, table.columns, strict=True):
        if column.levels is not None:
            there = set(local.levels)
            flags += [float(level in there) for level in column.levels]
    return np.array(flags)


def _level_notes(encoding: Encoding, schema: Schema, count: Numbers, index: Numbers) -> list[str]:
    """Return notes on levels that one site has alone."""
    names = [name for column in encoding.columns if column.levels is not None for name in column.features]
    alone: dict[int, list[str]] = {}
    for name, sites, site in zip(names, count.tolist(), index.tolist(), strict=True):
        if sites == 1.0:
            alone.setdefault(int(site), []).append(name)
    return [
        f"{schema.sites[i].name} alone has {listed(levels)}; its coefficient comes from that site."
        for i, levels in sorted(alone.items())
    ]


def scale_notes(encoded: EncodedTables, schema: Schema) -> Steps[list[str]]:
    """Note sites whose mean of a column is so far from that of the others that units may differ."""
    numeric = [(column.name, start) for column, start in encoded.encoding.starts if column.levels is None]
    starts, flags = [start for _, start in numeric], {}
    for i, A in encoded.matrices.items():
        odd = have_other_scale(encoded.sums[i], encoded.sums[-1]) & ~_are_flags(A)
        table = np.zeros((len(schema.sites), len(numeric)))
        table[i] = odd[starts]
        flags[i] = [table]
    if schema.floors is None:
        (table,) = yield Request("sites with a mean far from that of the others", flags)
    else:  # of other sites nothing is told
        table = np.sum([table for (table,) in flags.values()], axis=0)
    facts = {
        i: f"a mean of {listed([numeric[k][0] for k in np.flatnonzero(row)])} far from that of the others"
        for i, row in enumerate(table)
        if row.any()
    }
    return schema.noted(facts, Note.SCALES)


def _are_flags(A: Any) -> NDArray[np.bool_]:
    """Return which columns are of 0 and 1; the mean of such a column is a share."""
    if not sparse.issparse(A):
        return np.asarray((np.isin(A, (0.0, 1.0)) | np.isnan(A)).all(axis=0))
    stored = A.tocoo()
    odd = stored.coords[1][~np.isin(stored.data, (0.0, 1.0))]
    return np.asarray(np.bincount(odd, minlength=A.shape[1]) == 0)


def have_other_scale(local: TableSums, everyone: TableSums) -> NDArray[np.bool_]:
    """Return where the mean of a site is so far from that of the other sites that units may differ.

    The means differ by over ten deviations of the others, or by over one deviation and a power of ten.
    """
    others = everyone.there - local.there
    mean = local.total / np.maximum(local.there, 1.0)
    mean_rest = (everyone.total - local.total) / np.maximum(others, 1.0)
    variance = (everyone.squares - local.squares) / np.maximum(others, 1.0) - mean_rest**2
    is_known = (np.minimum(local.there, others) >= _FEWEST_ROWS) & (variance > 1e-10 * mean_rest**2)
    deviation, difference = np.sqrt(np.maximum(variance, 0.0)), np.abs(mean - mean_rest)
    sizes = np.sort(np.abs([mean, mean_rest]), axis=0)
    is_far = (difference > 10.0 * deviation) | ((difference > deviation) & (sizes[1] > 10.0 * sizes[0]))
    return np.asarray(is_known & is_far)
