"""Files of ratings: read, and placed where all agents agree on the numbers of rows and columns.

Users and items have ids, texts or numbers. Ids of users stay with their agent, unless one file is split over
the agents. Tables of text are read in chunks, which become arrays of fixed width whose distinct texts are
numbered: there is no Python object for each line. Chunks with quotes, blanks or comments are read line by
line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dcgs.datasets import BrokenDataError
from dcgs.datasets.store import whole_lines
from dcgs.floors import Floors
from dcgs.learn.files.layout import EntriesLayout, TableHeader, used_columns
from dcgs.learn.files.parquet import read_parquet_ids
from dcgs.learn.files.readers import kind_of, read_entries
from dcgs.learn.files.rows import ERRORS, told_here
from dcgs.learn.files.source import DataSource, Entries, Indices, Numbers
from dcgs.learn.files.text import decoded, is_comment
from dcgs.learn.ratings.fit import PlacedRatings, RatedIds, place_ids, place_numbers
from dcgs.learn.ratings.ids import Ids, Texts
from dcgs.learn.ratings.model import Labels, Naming, Numbering
from dcgs.learn.ratings.offsets import Part
from dcgs.learn.sites import Sites
from dcgs.learn.sums import Reductions

_CHUNK = 1 << 23  # bytes of text at a time
_SEPARATORS = (b"\t", b";", b",")
_LONGEST = 200  # bytes of an id; longer ones are no ids
_WHOLE = re.compile(rb"^(\d+)\.0+$")
_NUMBER = re.compile(rb"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")


@final
@dataclass(frozen=True, eq=False)
class Coded:
    """A column of ids: the place of each among the distinct ids."""

    codes: Indices
    ids: Ids

    def take(self, chosen: Indices | slice) -> Coded:
        """Return these entries, with all ids."""
        return replace(self, codes=self.codes[chosen])


@final
@dataclass(frozen=True, eq=False)
class Rated:
    """Ratings with the ids of users (rows) and items (columns); ``values`` is None if the file has none.

    ``used`` says which columns of the file these are.
    """

    rows: Coded
    cols: Coded
    values: Numbers | None
    used: str = ""

    def __len__(self) -> int:
        return len(self.rows.codes)

    def take(self, chosen: Indices | slice) -> Rated:
        """Return these ratings, in this order."""
        values = None if self.values is None else self.values[chosen]
        return Rated(self.rows.take(chosen), self.cols.take(chosen), values, self.used)


Fields: TypeAlias = list[Texts]
"""The chosen columns of a chunk."""


def read_rated(file: Path, layout: EntriesLayout) -> Rated:
    """Return the ratings in a table of text, plain or compressed."""
    reader: _Reader | None = None
    columns: list[list[tuple[Indices, Texts]]] = []
    for first_line, content in whole_lines(file, _CHUNK):
        readable = decoded(file, first_line, content, layout.text.encoding)
        text = content if layout.text.encoding == "utf-8" else readable.encode()
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"::", b"\t")
        if reader is None:
            text = text.removeprefix(b"\xef\xbb\xbf")
            reader, text, skipped = _begin(file, layout, text)
            if reader is None:
                continue
            first_line += skipped
            columns = [[] for _ in reader.columns]
        for column, texts in zip(columns, reader.fields(first_line, text), strict=True):
            column.append(_coded(texts))
    if reader is None or not any(len(codes) for codes, _ in columns[0]):
        raise BrokenDataError(f"{file} must have at least one rating; it has none.")
    merged = [_merged(column) for column in columns]
    values = _numbers(merged[2]) if len(merged) > 2 else None
    return Rated(merged[0], merged[1], values, used_columns(reader.header, reader.columns))


def read_rated_parquet(file: Path, layout: EntriesLayout) -> Rated:
    """Return the ratings in a Parquet file."""
    used: list[str] = []

    def choose(header: TableHeader) -> list[int]:
        chosen = layout.choose(header)
        used.append(used_columns(header, chosen))
        return chosen

    ids, values = read_parquet_ids(file, choose)
    if len(ids[0][0]) == 0:
        raise BrokenDataError(f"{file} must have at least one rating; it has none.")
    rows, cols = (_merged([column]) for column in ids)
    return Rated(rows, cols, values, used[0])


def _begin(file: Path, layout: EntriesLayout, text: bytes) -> tuple[_Reader | None, bytes, int]:
    """Return a reader for the columns of a file, the text below the names, and how many lines are above."""
    skipped = 0
    for line in text.split(b"\n"):
        if line.strip() and not is_comment(line.decode()):
            break
        skipped += 1
        text = text[len(line) + 1 :]
    else:
        return None, b"", skipped
    separator = next((mark for mark in _SEPARATORS if mark in line), b" ")
    fields = _split(line, separator)
    unnamed = TableHeader(file, len(fields), None)
    names = tuple(field.decode().strip() for field in fields)
    has_names = layout.header
    if has_names is None:
        known = layout.columns is None and layout.finds_names(names)
        has_names = known or _lacks_value(unnamed, fields, layout)
    header = TableHeader(file, len(fields), names) if has_names else unnamed
    reader = _Reader(header, separator, tuple(layout.choose(header)))
    return reader, text[len(line) + 1 :] if has_names else text, skipped + has_names


def _lacks_value(unnamed: TableHeader, fields: list[bytes], layout: EntriesLayout) -> bool:
    """Return True if the first line must have names, because the value there is no number."""
    try:
        chosen = layout.choose(unnamed)
    except BrokenDataError:  # columns are chosen by names
        return True
    return len(chosen) > 2 and _NUMBER.fullmatch(fields[chosen[2]]) is None


@final
@dataclass(frozen=True)
class _Reader:
    """Reads the chosen columns: rows, columns and, if there are three, values."""

    header: TableHeader
    separator: bytes
    columns: tuple[int, ...]

    def fields(self, first_line: int, text: bytes) -> Fields:
        """Return the chosen columns of these lines; raise with the first invalid line."""
        fields = None if b'"' in text or b" " in text or b"#" in text else self._quickly(text)
        if fields is None:
            fields, lines = self._line_by_line(first_line, text)
        else:
            lines = range(first_line, first_line + len(fields[0]))
        for index, texts in zip(self.columns, fields, strict=True):
            bad = np.flatnonzero(texts == b"")
            if len(bad):
                self._refuse(lines[bad[0]], index, "an id", "it is empty")
        if len(fields) > 2:
            distinct, where = np.unique(fields[2], return_inverse=True)
            wrong = [k for k, candidate in enumerate(distinct.tolist()) if not _is_finite(candidate)]
            if wrong:
                first = int(np.flatnonzero(np.isin(where, wrong))[0])
                quoted = fields[2][first].decode(errors="replace")
                self._refuse(lines[first], self.columns[2], "a finite number", f"it has {quoted!r}")
        return fields

    def _quickly(self, text: bytes) -> Fields | None:
        """Return the columns without a Python object for each line; None if the lines are not alike."""
        if not text.endswith(b"\n"):
            text += b"\n"
        width = self.header.width
        data = np.frombuffer(text + bytes(_LONGEST + 1), dtype=np.uint8)
        marks = np.flatnonzero((data == self.separator[0]) | (data == ord("\n")))
        if len(marks) % width:
            return None
        ends = marks.reshape(-1, width)
        if not (data[ends] == np.array([self.separator[0]] * (width - 1) + [ord("\n")])).all():
            return None
        starts = np.empty_like(ends)
        starts.reshape(-1)[0], starts.reshape(-1)[1:] = 0, ends.reshape(-1)[:-1] + 1
        lengths = ends - starts
        if lengths[:, self.columns].max(initial=1) > _LONGEST:
            return None
        return [_texts(data, starts[:, index], lengths[:, index]) for index in self.columns]

    def _line_by_line(self, first_line: int, text: bytes) -> tuple[Fields, Sequence[int]]:
        """Return the columns, and the number of the line of each of their texts."""
        rows, numbers = [], []
        for number, line in enumerate(text.split(b"\n"), first_line):
            if not line.strip() or is_comment(line.decode()):
                continue
            fields = _split(line, self.separator)
            if len(fields) != self.header.width:
                raise BrokenDataError(
                    f"line {number} of {self.header.file} must have {self.header.width} columns, as the "
                    f"first line; it has {len(fields)}. Correct the line."
                )
            rows.append([fields[index].strip() for index in self.columns])
            numbers.append(number)
        columns = [np.array([row[k] for row in rows], dtype=np.bytes_) for k in range(len(self.columns))]
        return columns, numbers

    def _refuse(self, line: int, index: int, wanted: str, given: str) -> None:
        name = "" if self.header.names is None else f", {self.header.names[index]!r}"
        raise BrokenDataError(
            f"line {line} of {self.header.file} must have {wanted} in column {index + 1}{name}; {given}. "
            "Fill it in, or leave the line out."
        )


def _split(line: bytes, separator: bytes) -> list[bytes]:
    if separator == b" ":
        return line.split()
    if b'"' not in line:
        return line.split(separator)
    fields = next(csv.reader([line.decode(errors="surrogateescape")], delimiter=separator.decode()), [""])
    return [field.encode(errors="surrogateescape") for field in fields]


def _texts(data: NDArray[np.uint8], starts: Indices, lengths: Indices) -> Texts:
    """Return fields as an array of texts of one width."""
    width = max(1, int(lengths.max(initial=1)))
    places = np.arange(width)
    cells = data[starts[:, None] + places]
    cells[places >= lengths[:, None]] = 0
    return np.ascontiguousarray(cells).view(f"S{width}").reshape(-1)


def _coded(texts: Texts) -> tuple[Indices, Texts]:
    """Return the place of each text among the distinct ones, and these in increasing order."""
    if texts.dtype.itemsize > 8:
        distinct, codes = np.unique(texts, return_inverse=True)
        return codes.astype(np.int32), distinct
    # Short texts are compared as whole numbers, which is faster; the first byte counts most.
    numbers, codes = np.unique(texts.astype("S8").view(">u8").astype(np.uint64), return_inverse=True)
    return codes.astype(np.int32), numbers.astype(">u8").view("S8")


def _merged(parts: list[tuple[Indices, Texts]]) -> Coded:
    """Return a column from its chunks."""
    plain = [_plain(texts) for _, texts in parts]
    ids = Ids(np.unique(np.concatenate(plain)))
    codes = [ids.places(texts)[local] for (local, _), texts in zip(parts, plain, strict=True)]
    return Coded(np.concatenate(codes), ids)


def _plain(texts: Texts) -> Texts:
    """Return ids without the ".0" of whole numbers that were written as floats."""
    if not np.char.endswith(texts, b".0").any():
        return texts
    return np.array([_WHOLE.sub(rb"\1", text) for text in texts.tolist()], dtype=np.bytes_)


def _is_finite(text: bytes) -> bool:
    return _NUMBER.fullmatch(text) is not None and bool(np.isfinite(float(text)))


def _numbers(column: Coded) -> Numbers:
    values = np.array([float(text) for text in column.ids.texts.tolist()])
    return values[column.codes]


def coded_numbers(numbers: Iterator[int] | Indices) -> Coded:
    """Return whole numbers as ids."""
    distinct, codes = np.unique(np.asarray(numbers), return_inverse=True)
    texts = distinct.astype("S20")
    order = np.argsort(texts, kind="stable")
    places = np.empty(len(order), dtype=np.intp)
    places[order] = np.arange(len(order))
    return Coded(places[codes], Ids(texts[order]))


Data = TypeVar("Data", Rated, Entries)
_NONE = 1e18  # larger than any index


@final
@dataclass(frozen=True)
class RatingsLoader:
    """Reads the ratings of the agents of this process.

    ``shape`` is that of the matrix, if rows and columns have numbers and it is given. ``options`` are the
    user's, which must be the same at all sites. A share of the ratings is ``held_out``.
    """

    source: DataSource
    layout: EntriesLayout
    shape: tuple[int, int] | None
    options: Mapping[str, str]
    held_out: float = 0.0
    floors: Floors | None = None

    @property
    def has_numbers(self) -> bool:
        """Whether rows and columns have numbers, the same for all agents, and no ids."""
        given = self.shape is not None or self.layout.base is not None
        return given or kind_of(self.source.file(0)) in ("npz", "npy")

    @property
    def _split(self) -> tuple[float, int]:
        return self.held_out, self.source.seed

    def load(self, network: Reductions) -> tuple[PlacedRatings, dict[str, Any]]:
        """Return the ratings, and how they were read."""
        sites: Sites[Any] = Sites(network, {}, {i: self.source.describe(i) for i in network.hosts})
        return self._numbered(sites) if self.has_numbers else self._labeled(sites)

    @contextmanager
    def _told_here(self, network: Reductions) -> Iterator[None]:
        """With floors tell what is wrong with a file to its own process only: it may quote a cell."""
        try:
            yield
        except ERRORS as error:
            if self.floors is None or network.runtime.group().size == 1:
                raise
            raise told_here(error, self.source.name(network.hosts[0])) from None

    def _read(
        self, network: Reductions, read: Callable[[Path], Data], rows_of: Callable[[Data], Indices]
    ) -> dict[int, Data]:
        """Return the data of the agents here; ``rows_of`` gives the rows by which a file is split."""
        with self._told_here(network):
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
            rows = RatedIds(users, items, parts, True, *self._split)
            placed = place_ids(sites, rows, self.options, self.floors)
        else:  # every part has the ids of the whole file
            first = next(iter(rated.values()))
            naming: dict[int, Naming] = {}
            for i, part in parts.items():
                here = np.unique(part.rows)
                naming[i] = Labels(Ids(rated[i].rows.ids.texts[here]), here, first.cols.ids)
            shape = len(first.rows.ids), len(first.cols.ids)
            placed = place_numbers(sites, parts, naming, shape, self.options, *self._split, self.floors)
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
        with self._told_here(network):
            parts = {i: self._checked(i, part, base, shape) for i, part in entries.items()}
        naming: dict[int, Naming] = {i: Numbering(base, shape) for i in parts}
        placed = place_numbers(sites, parts, naming, shape, self.options, *self._split, self.floors)
        return placed, {"base": base, "used": []}

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
