"""Read ratings whose users and items have ids, texts or numbers, from tables of text, in chunks.

A chunk of text becomes arrays of fixed width, whose distinct texts are numbered: there is no Python object
for each line. Chunks with quotes, blanks or comments are read line by line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.datasets import BrokenDataError
from dcgs.datasets.store import whole_lines
from dcgs.learn.files.layout import EntriesLayout, Header, used_columns
from dcgs.learn.files.parquet import read_parquet_ids
from dcgs.learn.files.source import Indices, Numbers
from dcgs.learn.files.text import decoded, is_comment
from dcgs.learn.ratings.ids import Ids, Texts

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

    def choose(header: Header) -> list[int]:
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
    unnamed = Header(file, len(fields), None)
    names = tuple(field.decode().strip() for field in fields)
    has_names = layout.header
    if has_names is None:
        known = layout.columns is None and layout.finds_names(names)
        has_names = known or _lacks_value(unnamed, fields, layout)
    header = Header(file, len(fields), names) if has_names else unnamed
    reader = _Reader(header, separator, tuple(layout.choose(header)))
    return reader, text[len(line) + 1 :] if has_names else text, skipped + has_names


def _lacks_value(unnamed: Header, fields: list[bytes], layout: EntriesLayout) -> bool:
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

    header: Header
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
