"""From files of samples to numbers: the rows of the hosted agents, encoded as all sites agreed, and split.

A process reads the data of the agents it hosts, and no other. Everything else that it needs to know comes
over the network, and ``Agreement.network.sent`` lists it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import numpy as np
from scipy import sparse

from dcgs.datasets import BrokenDataError
from dcgs.fitting.agreement import Agreement
from dcgs.fitting.column_checks import copies_target, has_other_scale, is_flag, looks_like_id, odd_values
from dcgs.fitting.data import DataSource, Indices, Numbers, Samples, path_of_agent
from dcgs.fitting.encoding import Encoding
from dcgs.fitting.readers import SamplesLayout, kind_of, read_samples, read_words
from dcgs.fitting.readers.layout import listed
from dcgs.fitting.tables import Column, Table, label_texts, text_of
from dcgs.front import agreed
from dcgs.preprocessing import SiteData, class_numbers
from dcgs.runtime import ProcessGroup

Missing: TypeAlias = Literal["mean", "drop", "error"]
TABLES = ("text", "parquet")
"""The formats of files that may have words and holes."""
_LARGEST = 1e140  # squares of such numbers can still be added up


@final
@dataclass(frozen=True)
class Preparation:
    """What the user said about the rows: columns that are categories, missing values, rows to hold out."""

    categorical: tuple[str, ...] = ()
    missing: Missing = "mean"
    held_out: float = 0.0


@final
@dataclass(frozen=True, eq=False)
class PreparedSites:
    """The rows of the hosted agents as numbers: those to fit to, and those that are held out.

    ``reading`` says how new data are read. ``features`` are the names of the features, if there are any.
    ``empty`` names the columns that had no value in the rows to fit to of an agent.
    """

    fitted: Mapping[int, SiteData]
    held_out: Mapping[int, SiteData]
    width: int
    features: list[str] | None
    reading: dict[str, Any]
    empty: Mapping[int, frozenset[str]] = field(default_factory=dict)


@final
@dataclass(frozen=True, eq=False)
class SiteReader:
    """Reads and prepares the rows of the hosted agents; the other processes of ``group`` do the others."""

    source: DataSource
    agents: int
    agreement: Agreement
    group: ProcessGroup
    labels: bool

    def prepare(self, layout: SamplesLayout, how: Preparation) -> PreparedSites:
        """Return the rows as numbers; raise the same error in all processes if sites differ."""
        if kind_of(self.source.file(0)) in TABLES:
            tables = self._read(layout, read_words)
            complete = agreed(self.group, lambda: {i: self._complete(i, t, how) for i, t in tables.items()})
            with self.group.common_errors():
                return self._tables(complete, how, layout.drop)
        samples = self._read(layout, read_samples)
        with self.group.common_errors():
            return self._samples(samples, layout.features, how)

    def _read(self, layout: SamplesLayout, read: Callable[[Path, SamplesLayout], Any]) -> dict[int, Any]:
        def one(file: Path, agent: int) -> Any:
            target = None if layout.target is None else path_of_agent(layout.target, agent)
            return read(file, replace(layout, target=target))

        return self.source.parts(self.agents, self.agreement.network.hosts, one)

    def _complete(self, agent: int, table: Table, how: Preparation) -> Table:
        """Return the rows that have a target and, with ``drop``, no hole."""
        table.check_dates()
        _refuse_overflow(table)
        assert table.target is not None
        hole = table.target.missing
        if how.missing == "drop":
            hole = np.logical_or.reduce([hole, *(column.missing for column in table.columns)])
        if how.missing == "error":
            _refuse_holes(table)
        if hole.all():
            what = "a target" if how.missing == "mean" else "a value in every column"
            raise BrokenDataError(
                f"{self.agreement.who(agent)} must have rows with {what}; all of its {len(table)} rows lack "
                "it. Leave the site out, or its empty columns with --drop."
            )
        if not self.labels and table.target.has_words:
            at = table.target.first(words=True)
            raise BrokenDataError(
                f"the target must be of numbers; line {table.rows[at]} of {table.file} has "
                f"{(table.target.words or ())[at]!r}. For classes, fit logistic."
            )
        return table.take(np.flatnonzero(~hole)) if hole.any() else table

    def _tables(self, tables: Mapping[int, Table], how: Preparation, drop: Sequence[str]) -> PreparedSites:
        commas = {i: "decimal commas" for i, table in tables.items() if table.commas}
        self.agreement.note(commas, ", which were read as such")
        tables = self.agreement.columns(tables, drop)
        encoding = self.agreement.encoding(tables, how.categorical)
        targets = {i: table.target for i, table in tables.items() if table.target is not None}
        labels = self._labels(targets)
        held = {i: self._held_out(i, len(table), how) for i, table in tables.items()}
        self._note_columns(tables, encoding)
        matrices = {i: encoding.matrix(table) for i, table in tables.items()}
        encoding = encoding.with_fill(self._means(matrices, held, encoding).tolist())
        first = next(iter(tables.values()))
        reading: dict[str, Any] = {
            "names": None if first.names is None else list(first.names),
            "target": first.target_name,
            "target_at": first.target_at,
            "columns": encoding.to_json(),
        }
        reading |= {} if labels is None else {"labels": list(labels)}
        sites = {
            i: SiteData(encoding.filled(A), _numbers(targets[i], labels), name=self.agreement.who(i))
            for i, A in matrices.items()
        }
        empty = {}
        for i, A in matrices.items():
            missing = np.isnan(np.delete(A, held[i], axis=0)).all(axis=0)
            empty[i] = frozenset(encoding.features[at] for at in np.flatnonzero(missing))
        return replace(self._split(sites, held, encoding.features, reading), empty=empty)

    def _note_columns(self, tables: Mapping[int, Table], encoding: Encoding) -> None:
        """Note codes of missing values, ids and copies of the target; nothing is sent."""
        codes: dict[int, str] = {}
        ids: dict[int, str] = {}
        copies: dict[int, str] = {}
        for i, table in tables.items():
            named = [*zip(encoding.columns, table.columns, strict=True)]
            numeric = [(encoded.name, column) for encoded, column in named if encoded.levels is None]
            odd = [(name, *each) for name, column in numeric for each in odd_values(column).items()]
            if odd:
                codes[i] = ", ".join(f"{count} × {value:g} in {name!r}" for name, value, count in odd[:8])
            numbers = [name for name, column in numeric if looks_like_id(column)]
            same = [
                encoded.name
                for encoded, column in named
                if table.target is not None and copies_target(column, table.target, self.labels)
            ]
            if numbers:
                ids[i] = f"another whole number in each row of {listed(numbers)}"
            if same:
                copies[i] = f"a copy of the target in {listed(same)}"
        self.agreement.note(codes, "; if such a value stands for a missing one, write NA in its place")
        self.agreement.note(ids, "; if these are ids, leave them out with --drop")
        self.agreement.note(copies, "; leave it out with --drop if it is not known when you predict")

    def _labels(self, targets: Mapping[int, Column]) -> tuple[str | float, ...] | None:
        """Return the labels that all sites agree on; None if targets are numbers."""
        if not self.labels:
            return None
        agreed(self.group, lambda: self.agreement.check_class_counts(targets))
        return self.agreement.labels(targets, self.source.is_per_agent)

    def _means(
        self, matrices: Mapping[int, Numbers], held: Mapping[int, Indices], encoding: Encoding
    ) -> Numbers:
        """Return the means of all features over the rows to fit to of all sites, without those missing."""
        holes = {i: np.isnan(A).sum(axis=0).astype(float) for i, A in matrices.items()}
        own = {}
        for i, A in matrices.items():
            rest = np.delete(A, held[i], axis=0)
            squares = np.nansum(np.square(rest), axis=0)
            there = (~np.isnan(rest)).sum(axis=0).astype(float)
            own[i] = [np.nansum(rest, axis=0), there, holes[i], squares]
        total, count, missing, squares = self.agreement.network.sum(
            "sums and squares of features, and how many values are there", own
        )
        means = np.asarray(total / np.maximum(count, 1.0))
        places = np.cumsum([0, *(len(column.features) for column in encoding.columns)])[:-1]
        firsts = list(zip(encoding.columns, places, strict=True))
        for column, at in firsts:
            if missing[at]:
                filled = f"the mean of all agents, {means[at]:.4g}"
                if column.levels is not None:
                    filled = "the shares of its levels at all agents"
                self.agreement.notes.append(
                    f"column {column.name!r} has {int(missing[at])} missing values, filled with {filled}."
                )
        empty = {
            i: f"no value in {listed(names)}"
            for i, A in matrices.items()
            if (names := [column.name for column, at in firsts if holes[i][at] == len(A)])
        }
        more = "; the means of the other agents take its place"
        self.agreement.note(empty, more)
        scales: dict[int, str] = {}
        for i, (mine, there, _, squared) in own.items():
            others = np.stack([count - there, total - mine, squares - squared])
            odd = [
                column.name
                for column, at in firsts
                if column.levels is None
                and self.source.is_per_agent
                and not is_flag(matrices[i][:, at])
                and has_other_scale((there[at], mine[at]), others[:, at].tolist())
            ]
            if odd:
                scales[i] = f"a mean of {listed(odd)} far from that of the others"
        more = " (ten deviations, or a power of ten); see whether all sites use the same unit"
        self.agreement.note(scales, more)
        return means

    def _samples(self, parts: Mapping[int, Samples], features: int | None, how: Preparation) -> PreparedSites:
        width = self._width(parts, features)
        targets = {i: Column(part.b) for i, part in parts.items() if part.b is not None}
        labels = self._labels(targets)
        first = next(iter(parts.values()))
        reading: dict[str, Any] = {"names": None, "target": first.target, "target_at": first.target_at}
        reading |= {} if labels is None else {"labels": list(labels)}
        held = {i: self._held_out(i, len(part), how) for i, part in parts.items()}
        sites = {
            i: SiteData(_widened(part.A, width), _numbers(targets[i], labels), name=self.agreement.who(i))
            for i, part in parts.items()
        }
        return self._split(sites, held, None, reading)

    def _width(self, parts: Mapping[int, Samples], features: int | None) -> int:
        """Return the number of features; only LIBSVM text may have fewer columns."""
        width = features
        if width is None:
            own = {i: [float(part.A.shape[1])] for i, part in parts.items()}
            width = int(self.agreement.network.max("numbers of features", own)[0])
        wrong = {
            i: f"{part.A.shape[1]}"
            for i, part in parts.items()
            if part.A.shape[1] != width and not (part.open and part.A.shape[1] < width)
        }
        told = self.agreement.tell("sites with another number of features", wrong)
        if told:
            raise BrokenDataError(
                f"all agents must have the same features; {told}, and {width} are asked for or another agent "
                "has them."
            )
        return width

    def _held_out(self, agent: int, rows: int, how: Preparation) -> Indices:
        """Return the rows of an agent that are held out; they depend on the seed and the agent alone."""
        rng = np.random.default_rng((self.source.seed, agent, 1))
        return np.sort(rng.permutation(rows)[: int(how.held_out * rows)])

    def _split(
        self,
        sites: Mapping[int, SiteData],
        held: Mapping[int, Indices],
        features: list[str] | None,
        reading: dict[str, Any],
    ) -> PreparedSites:
        rest = {i: np.setdiff1d(np.arange(len(site.targets)), held[i]) for i, site in sites.items()}
        fitted = {i: site.some(rest[i]) if len(held[i]) else site for i, site in sites.items()}
        outside = {i: site.some(held[i]) for i, site in sites.items()}
        width = next(iter(sites.values())).features
        return PreparedSites(fitted, outside, width, features, reading)


def _refuse_overflow(table: Table) -> None:
    """Raise if the squares of numbers cannot be added up."""
    for at, column in enumerate(table.columns):
        large = np.flatnonzero(np.abs(np.nan_to_num(column.numbers)) > _LARGEST)
        if len(large):
            raise BrokenDataError(
                f"{table.name(at)} of {table.file} must be of numbers of at most {_LARGEST:g}; line "
                f"{table.rows[large[0]]} has {column.numbers[large[0]]:g}. Correct it, or write NA."
            )


def _refuse_holes(table: Table) -> None:
    for at, column in enumerate([*table.columns, *([table.target] if table.target is not None else [])]):
        if column.missing.any():
            line = int(table.rows[np.flatnonzero(column.missing)[0]])
            name = table.name(at) if at < len(table.columns) else "the target"
            raise BrokenDataError(
                f"with --missing error, {table.file} must have no empty cell; {name} is empty in line {line}."
                " Fill it in, or use --missing mean or --missing drop."
            )


def _numbers(target: Column, labels: Sequence[str | float] | None) -> Numbers:
    """Return targets as numbers; two labels as −1 and +1, more as their places from 0."""
    if labels is None:
        return np.ascontiguousarray(target.numbers)
    classes = label_texts(labels)
    if target.has_words:
        codes = class_numbers(target.texts, classes)
    else:
        values, place = np.unique(target.numbers, return_inverse=True)
        codes = class_numbers([text_of(value) for value in values.tolist()], classes)[place]
    return 2.0 * codes - 1.0 if len(classes) == 2 else codes


def _widened(A: Any, width: int) -> Any:
    if A.shape[1] == width:
        return A
    return sparse.csr_array((A.data, A.indices, A.indptr), shape=(A.shape[0], width))
