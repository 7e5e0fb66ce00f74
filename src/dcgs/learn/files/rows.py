"""From files of samples to the rows of the agents of this process: read, described, encoded as sites agree.

A process reads the data of the agents it hosts, and no other. Everything else that it needs to know comes
over the network.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import numpy as np
from scipy import sparse

from dcgs.datasets import BrokenDataError
from dcgs.floors import Floors
from dcgs.learn.encoding import EncodedTables, encode, inspect
from dcgs.learn.files.layout import SamplesLayout
from dcgs.learn.files.model import Reading
from dcgs.learn.files.readers import kind_of, read_samples, read_words
from dcgs.learn.files.source import DataSource, Indices, Numbers, Samples, path_of_agent
from dcgs.learn.files.tables import Column, Table, odd_facts, suspects
from dcgs.learn.floors import SiteCells, left_out_note, rare_columns, without_rare
from dcgs.learn.linear.classes import balancing, class_numbers
from dcgs.learn.schema import MOST_LEVELS, ColumnSchema, MergeRules, Note, Schema, SiteSchema, agree
from dcgs.learn.sites import Remedy, Rows, SitesError
from dcgs.learn.sums import Reductions, Request, Steps
from dcgs.validation import Label, label_text, listed, shortened

Missing: TypeAlias = Literal["mean", "drop", "error"]
TABLES = ("text", "parquet")
"""The formats of files that may have words and holes."""
MOST_INSPECTED = 500
"""The most features of arrays whose means sites compare, and describe."""
_LARGEST = 1e140  # squares of such numbers can still be added up
# A class with fewer rows is noted: its label may be a misspelled one.
_RARE = 5
ERRORS = (ValueError, OSError, ImportError, ArithmeticError, MemoryError)
"""Errors of files, which a site tells the others."""


@final
@dataclass(frozen=True)
class Preparation:
    """What the user said about the rows: columns that are categories, missing values, rows to hold out.

    ``floors`` are those of this site; None for none.
    """

    categorical: tuple[str, ...] = ()
    missing: Missing = "mean"
    held_out: float = 0.0
    balanced: bool = False
    floors: Floors | None = None


@final
@dataclass(frozen=True, eq=False)
class PreparedRows:
    """The rows of the agents of this process as numbers: those to fit to, and those that are held out.

    Targets of classes are their places. ``constant`` is the best constant prediction: the share of the
    higher label, the shares of several classes, or the mean of the targets. ``class_weight`` has the weight
    of each class if they count the same. ``local_notes`` are on data of this process alone, with floors.
    """

    fitted: Mapping[int, Rows]
    held_out: Mapping[int, Rows]
    schema: Schema
    reading: Reading
    constant: float | tuple[float, ...]
    class_weight: Mapping[Any, float] | None
    notes: tuple[str, ...]
    encoded: EncodedTables | None = field(default=None, repr=False)
    local_notes: tuple[str, ...] = ()

    def constant_notes(self, constant: Sequence[int]) -> list[str]:
        """Return notes on columns with one value: at all sites, the features ``constant``, or at one site."""
        notes = list[str]()
        features = None if self.encoded is None else self.encoded.encoding.features
        everywhere = [f"feature {k + 1}" if features is None else features[k] for k in constant]
        if everywhere:
            notes.append(
                f"{listed(everywhere)} {'has' if len(everywhere) == 1 else 'have'} the same value in all "
                "rows of all sites, and cannot help to predict."
            )
        if self.encoded is None:
            return notes
        columns = self.encoded.encoding.columns
        numeric = {column.name for column in columns if column.levels is None} - set(everywhere)
        facts = {}
        for i, site in self.schema.sites.items():
            names = [column.name for column in site.columns if column.constant and column.name in numeric]
            if names:
                facts[i] = f"one value only in {listed(names)}"
        return notes + self.schema.noted(facts)


def told_here(error: Exception, site: str) -> BrokenDataError:
    """Print what is wrong with a file of a site of this process; return an error that does not say it."""
    return BrokenDataError(f"{site} failed: {_only_here(error)}")


def _only_here(error: Exception) -> str:
    print(f"dcgs: {error}", file=sys.stderr, flush=True)  # the sentence may quote a cell
    return "its file cannot be used; only its own output says why."


@final
@dataclass(frozen=True, eq=False)
class RowsLoader:
    """Reads, describes and prepares the rows of the agents of this process.

    ``options`` are the user's, which must be the same at all sites.
    """

    source: DataSource
    layout: SamplesLayout
    how: Preparation
    of_classes: bool
    options: Mapping[str, str] = field(default_factory=dict)

    def load(self, network: Reductions) -> PreparedRows:
        """Return the rows as numbers; raise the same error in all processes if sites differ."""
        if self.layout.subject is not None and not self.is_table:
            raise ValueError(
                "--subject is for tables, which have such a column; the data are none. Leave it out."
            )
        data: dict[int, Any] = {}
        schemas = {}
        try:
            data = self._read(len(network.graph), network.hosts)
            schemas = {i: self._described(i, local) for i, local in data.items()}
        except ERRORS as error:
            if network.runtime.group().size == 1:
                raise
            text = str(error) if self.how.floors is None else _only_here(error)
            schemas = {i: replace(self._blank(i), error=text) for i in network.hosts}
        is_own = self.source.is_per_agent
        rules = MergeRules(
            self.layout.drop, self.how.categorical, self.layout.features, ordered=True, own_labels=is_own
        )
        cells = None if self.how.floors is None else {i: self._cells(i, local) for i, local in data.items()}
        schema = agree(network, schemas, rules, cells)
        held = {i: self._held_out(i, len(local)) for i, local in data.items()}
        prepare: Any = self._tables if self.is_table else self._samples
        prepared: PreparedRows = prepare(data, held, schema, network)
        return replace(prepared, local_notes=tuple(schema.local_notes(schemas)))

    @property
    def is_table(self) -> bool:
        """Whether the files are tables, which may have words and holes."""
        return kind_of(self.source.file(0)) in TABLES

    def _read(self, agents: int, hosts: range) -> dict[int, Any]:
        parts = read_files(self.source, self.layout, agents, hosts)
        return {i: self._complete(i, local) if self.is_table else local for i, local in parts.items()}

    def _complete(self, agent: int, table: Table) -> Table:
        """Return the rows that have a target and, with ``drop``, no hole."""
        table.check_dates()
        _refuse_overflow(table)
        assert table.target is not None
        hole = table.target.missing
        if self.how.missing == "drop":
            hole = np.logical_or.reduce([hole, *(column.missing for column in table.columns)])
        if self.how.missing == "error":
            _refuse_holes(table)
        if hole.all():
            what = "a target" if self.how.missing == "mean" else "a value in every column"
            raise BrokenDataError(
                f"{self.source.describe(agent)} must have rows with {what}; all of its {len(table)} rows "
                "lack it. Leave the site out, or its empty columns with --drop."
            )
        if not self.of_classes and table.target.has_words:
            row = table.target.first(words=True)
            raise BrokenDataError(
                f"the target must be of numbers; line {table.rows[row]} of {table.file} has "
                f"{(table.target.words or ())[row]!r}. For classes, fit logistic."
            )
        return table.take(np.flatnonzero(~hole)) if hole.any() else table

    def _blank(self, agent: int) -> SiteSchema:
        return SiteSchema(self.source.describe(agent), options=dict(self.options), floors=self.how.floors)

    def _cells(self, agent: int, data: Any) -> SiteCells:
        """Return what people are counted by at a site with floors."""
        held, labels = self._held_out(agent, len(data)), list[str]()
        if self.of_classes:
            target = _target(data)
            texts = target.texts if target.has_words else map(float, target.numbers)
            labels = [json.dumps(label) for label in texts]
        out = set(held.tolist())
        rest = np.setdiff1d(np.arange(len(data)), held)
        return SiteCells(
            len(rest),
            lambda name: data.column(name).take(rest).texts,
            [label for row, label in enumerate(labels) if row not in out],
            [labels[row] for row in out] if labels else [],
            _subjects(data, rest),
        )

    def _described(self, agent: int, data: Any) -> SiteSchema:
        """Return the schema of an agent's data; raise if its labels are no classes."""
        held = len(self._held_out(agent, len(data)))
        schema = replace(self._blank(agent), rows=len(data), held_out=held, labels=self._labels(agent, data))
        if not isinstance(data, Table):
            facts = dict(odd_facts(suspects(data), _target(data), self.of_classes))
            return replace(schema, width=int(data.A.shape[1]), is_open=data.open, facts=facts)
        names = data.names or tuple(map(str, range(1, len(data.columns) + 1)))
        columns, levels = [], {}
        kept = np.delete(np.arange(len(data)), self._held_out(agent, len(data)))
        for number, (name, column) in enumerate(zip(names, data.columns, strict=True), 1):
            is_chosen = bool({name, str(number)} & set(self.how.categorical))
            columns.append(_column_schema(name, column, data, kept))
            if is_chosen or (
                column.has_words and not column.has_numbers and columns[-1].levels <= MOST_LEVELS
            ):
                levels[name] = tuple(column.levels)
        facts = {Note.COMMAS.name: "decimal commas"} if data.commas else {}
        named = zip(names, data.columns, strict=True)
        return replace(
            schema,
            width=len(columns),
            has_names=data.names is not None,
            columns=tuple(columns),
            lacking=data.lacking,
            facts=facts | dict(odd_facts(list(named), data.target, self.of_classes, levels)),
            levels=levels,
        )

    def _labels(self, agent: int, data: Any) -> tuple[str, ...] | None:
        """Return the labels of an agent as JSON: all texts, if one is a word; None if targets are numbers."""
        if not self.of_classes:
            return None
        target = _target(data)
        if len(target.levels) > MOST_LEVELS:
            raise BrokenDataError(
                f"labels must be of at most {MOST_LEVELS} classes at each site; "
                f"{self.source.describe(agent)} has {len(target.levels)} different ones. To predict a "
                "number, fit lasso or least-squares."
            )
        labels = target.levels if target.has_words else sorted(map(float, target.levels))
        return tuple(json.dumps(label) for label in labels)

    def _held_out(self, agent: int, rows: int) -> Indices:
        """Return the rows of an agent that are held out; they depend on the seed and the agent alone."""
        rng = np.random.default_rng((self.source.seed, agent, 1))
        return np.sort(rng.permutation(rows)[: int(self.how.held_out * rows)])

    def _tables(
        self, tables: Mapping[int, Table], held: Mapping[int, Indices], schema: Schema, network: Reductions
    ) -> PreparedRows:
        if schema.columns is not None:
            tables = {i: table.in_order(schema.columns) for i, table in tables.items()}
        schema = self._without_rare(tables, held, schema, network)
        targets = {i: _numbers(_target(table), schema.labels) for i, table in tables.items()}
        sums = _target_sums(targets, held, schema)
        programs: list[Steps[Any]] = [encode(tables, held, schema), sums]
        encoded, (totals,) = network.run(*programs)
        names = tuple(encoded.encoding.features)
        rows = {i: Rows(encoded.filled(i), targets[i], None, names, tables[i].people) for i in tables}
        first = next(iter(tables.values()))
        columns, labels = encoded.encoding.columns, schema.labels or ()
        reading = Reading(first.names, first.target_name, first.target_at, columns, labels)
        prepared = self._prepared(rows, held, schema, reading, totals)
        return replace(prepared, notes=(*schema.notes, *encoded.notes, *prepared.notes), encoded=encoded)

    def _without_rare(
        self, tables: Mapping[int, Table], held: Mapping[int, Indices], schema: Schema, network: Reductions
    ) -> Schema:
        """Return the schema without columns of numbers that are about too few people."""
        if schema.floors is None:
            return schema
        numeric = [k for k in range(schema.width) if k not in schema.levels]
        rest = {i: np.setdiff1d(np.arange(len(table)), held[i]) for i, table in tables.items()}
        matrices = {
            i: np.array([table.columns[k].numbers[rest[i]] for k in numeric]).reshape(len(numeric), -1).T
            for i, table in tables.items()
        }
        subjects = {i: _subjects(table, rest[i]) for i, table in tables.items()}
        (rare,) = network.run(rare_columns(matrices, subjects, schema.floors))
        left_out = [numeric[k] for k in np.flatnonzero(rare)]
        note = left_out_note([schema.names[k] for k in left_out], schema.floors)
        return replace(schema, left_out=frozenset(left_out), notes=(*schema.notes, *note))

    def _samples(
        self, parts: Mapping[int, Samples], held: Mapping[int, Indices], schema: Schema, network: Reductions
    ) -> PreparedRows:
        targets = {i: _numbers(_target(part), schema.labels) for i, part in parts.items()}
        rows = {i: Rows(_widened(part.A, schema.width), targets[i]) for i, part in parts.items()}
        if schema.floors is not None:
            ((rows, note),) = network.run(without_rare(rows, schema.floors, held))
            schema = replace(schema, notes=(*schema.notes, *note))
        programs: list[Steps[Any]] = [_target_sums(targets, held, schema)]
        if schema.width <= MOST_INSPECTED:
            programs.append(inspect({i: local.A for i, local in rows.items()}, held, schema.width))
        (totals,), *inspected = network.run(*programs)
        first = next(iter(parts.values()))
        reading = Reading(None, first.target, first.target_at, None, schema.labels or ())
        prepared = self._prepared(rows, held, schema, reading, totals)
        return replace(prepared, notes=(*schema.notes, *prepared.notes), encoded=next(iter(inspected), None))

    def _prepared(
        self,
        rows: Mapping[int, Rows],
        held: Mapping[int, Indices],
        schema: Schema,
        reading: Reading,
        totals: Numbers,
    ) -> PreparedRows:
        """Return rows split into those to fit to and those held out, and what sums of targets say."""
        rest = {i: np.setdiff1d(np.arange(len(local)), held[i]) for i, local in rows.items()}
        fitted = {i: local.some(rest[i]) if len(held[i]) else local for i, local in rows.items()}
        outside = {i: local.some(held[i]) for i, local in rows.items()}
        if schema.labels is None:
            constant: float | tuple[float, ...] = float(totals[1]) / float(totals[0])
            return PreparedRows(fitted, outside, schema, reading, constant, None, ())
        notes = _class_notes(totals, schema.labels)
        shares = (totals / totals.sum()).tolist()
        constant = shares[1] if len(shares) == 2 else tuple(shares)
        if not self.how.balanced:
            return PreparedRows(fitted, outside, schema, reading, constant, None, tuple(notes))
        weights = dict(zip(schema.labels, balancing(totals.tolist()), strict=True))
        notes.append(_balance_note(weights))
        return PreparedRows(fitted, outside, schema, reading, constant, weights, tuple(notes))


def read_files(
    source: DataSource, layout: SamplesLayout, agents: int, hosts: Sequence[int]
) -> dict[int, Any]:
    """Return the tables or samples of the agents of this process."""
    is_table = kind_of(source.file(0)) in TABLES
    read: Callable[[Path, SamplesLayout], Any] = read_words if is_table else read_samples

    def read_for(file: Path, agent: int) -> Any:
        target = None if layout.target is None else path_of_agent(layout.target, agent)
        return read(file, replace(layout, target=target))

    return source.parts(agents, hosts, read_for)


def _column_schema(name: str, column: Column, table: Table, kept: Indices) -> ColumnSchema:
    """Return what a site says of a column: where its first word and number are, and its number of levels."""
    word, number = None, None
    levels = len(column.levels) if column.has_words else 0
    if column.has_words:
        row = column.first(words=True)
        text = (column.words or ())[row] or ""
        # The words of a column of many may be names of persons, and are not sent.
        quoted = f"the word {shortened(text)!r}" if levels <= MOST_LEVELS or column.has_numbers else "a word"
        word = f"{quoted} in line {table.rows[row]}"
    if column.has_numbers:
        number = f"a number in line {table.rows[column.first(words=False)]}"
    rest = column.numbers[kept]
    is_constant = not column.has_words and len(rest) > 0 and bool(np.ptp(rest) == 0.0)
    return ColumnSchema(name, word, number, levels, is_constant)


def _target_sums(
    targets: Mapping[int, Numbers], held: Mapping[int, Indices], schema: Schema
) -> Steps[tuple[Numbers]]:
    """Sum up the rows of each class to fit to; without classes, count rows and sum up targets."""
    values: dict[int, list[Any]] = {}
    for i, local in targets.items():
        rest = np.delete(local, held[i])
        if schema.labels is None:
            values[i] = [[float(len(rest)), float(rest.sum())]]
        else:
            counts = np.bincount(rest.astype(np.intp), minlength=len(schema.labels))
            values[i] = [counts.astype(float)]
    name = "how many rows there are, and the sum of their targets"
    (totals,) = yield Request(
        name if schema.labels is None else "how many rows of each class there are", values
    )
    return (totals,)


def _class_notes(counts: Numbers, labels: Sequence[Label]) -> list[str]:
    """Return a note on rare classes; raise if there is one without rows to fit to."""
    texts = list(map(label_text, labels))
    without = [text for text, count in zip(texts, counts, strict=True) if not count]
    if without and len(texts) == 2:
        problem = "there must be rows of both classes to fit to; all rows that are not held out are of one."
        raise SitesError(problem, Remedy.FEWER_HELD_OUT)
    if without:
        raise SitesError(
            f"there must be rows of every class to fit to; all rows of {listed(without)} are held out. "
            "Correct the label if it is misspelled.",
            Remedy.FEWER_HELD_OUT,
        )
    rare = [text for text, count in zip(texts, counts, strict=True) if count < _RARE]
    if len(texts) == 2 or not rare:
        return []
    return [
        f"{listed(rare)} {'has' if len(rare) == 1 else 'have'} fewer than {_RARE} rows to fit to, of all "
        "sites: correct the label if it is misspelled."
    ]


def _balance_note(weights: Mapping[Label, float]) -> str:
    """Return a note on the weights of classes that count the same."""
    equal = "probabilities are those of classes of equal size."
    if len(weights) == 2:
        lower, higher = weights.values()
        return f"rows of the higher label count {higher:.4g} times and the others {lower:.4g} times; {equal}"
    entry = ", ".join(f"{label_text(label)} {weight:.4g}" for label, weight in weights.items())
    return f"rows count by their class: {entry} times; {equal}"


def _subjects(data: Any, rows: Indices) -> Indices | None:
    people = data.people if isinstance(data, Table) else None
    return None if people is None else people[rows]


def _target(data: Any) -> Column:
    target = data.target if isinstance(data, Table) else Column(data.b)
    assert target is not None
    return target


def _refuse_overflow(table: Table) -> None:
    """Raise if the squares of numbers cannot be added up."""
    for k, column in enumerate(table.columns):
        large = np.flatnonzero(np.abs(np.nan_to_num(column.numbers)) > _LARGEST)
        if len(large):
            raise BrokenDataError(
                f"{table.name(k)} of {table.file} must be of numbers of at most {_LARGEST:g}; line "
                f"{table.rows[large[0]]} has {column.numbers[large[0]]:g}. Correct it, or write NA."
            )


def _refuse_holes(table: Table) -> None:
    for k, column in enumerate([*table.columns, *([table.target] if table.target is not None else [])]):
        if column.missing.any():
            line = int(table.rows[np.flatnonzero(column.missing)[0]])
            name = table.name(k) if k < len(table.columns) else "the target"
            raise BrokenDataError(
                f"with --missing error, {table.file} must have no empty cell; {name} is empty in line {line}."
                " Fill it in, or use --missing mean or --missing drop."
            )


def _numbers(target: Column, labels: Sequence[Label] | None) -> Numbers:
    """Return targets as numbers; labels as their places from 0."""
    if labels is None:
        return np.ascontiguousarray(target.numbers)
    classes = list(map(label_text, labels))
    if target.has_words:
        return class_numbers(target.texts, classes)
    values, place = np.unique(target.numbers, return_inverse=True)
    return class_numbers([label_text(value) for value in values.tolist()], classes)[place]


def _widened(A: Any, width: int) -> Any:
    if A.shape[1] == width:
        return A
    return sparse.csr_array((A.data, A.indices, A.indptr), shape=(A.shape[0], width))
