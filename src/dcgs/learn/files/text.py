"""Read tables of text (CSV, TSV and the like), plain or compressed.

Fields are separated by tabs, ``::``, semicolons, commas or blanks, whichever the first line has. They may
be in double quotes. A field with a line break in it is not supported. Lines end in LF, CR LF or CR. Blank
lines and lines that start with ``#`` are skipped, but for rows that begin with the missing value ``#N/A``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeAlias, final

import numpy as np

from dcgs.datasets import BrokenDataError
from dcgs.datasets.store import whole_lines
from dcgs.learn.files.layout import PLAIN_TEXT, Choose, TableHeader, TextFormat
from dcgs.learn.files.source import Numbers
from dcgs.learn.files.tables import MISSING
from dcgs.validation import shortened

COMMA = re.compile(r"\s*[+-]?(\d{1,3}(\.\d{3})+|\d*),\d+([eE][+-]?\d+)?\s*")
"""A number with a decimal comma; points may separate its thousands."""

_THOUSANDS = re.compile(r"\s*[+-]?\d{1,3}(,\d{3})+\s*")
_POINT = re.compile(r"\s*[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?\s*")
_NO_WORD = re.compile(r"\s*[+-]?\d+([eE][+-]?\d+)?\s*")

Cells: TypeAlias = list[list[str]]
"""The texts of each column."""


def with_points(
    file: Path, names: Sequence[str], cells: Cells, lines: Sequence[int], decimal: str | None
) -> tuple[Cells, bool]:
    """Return the cells with decimal points, and True if they had commas.

    Without a ``decimal`` mark commas are decimal ones if a column is of such numbers, no cell of the file has
    a decimal point, and not all commas may separate thousands. What may mean either is refused with its cell.
    """
    columns = [] if decimal == "." else [place for place, texts in enumerate(cells) if _is_of_commas(texts)]
    if not columns and decimal != ",":
        return cells, False
    points = _first(_POINT, cells)
    if decimal == ",":
        if points is not None:
            place, row = points
            raise BrokenDataError(
                f"with --decimal , line {lines[row]} of {file} must have a decimal comma in {names[place]}; "
                f"it has {shortened(cells[place][row])!r}. Correct it, or leave --decimal out."
            )
        return _replaced(cells), True
    if points is None and any(_is_decimal(text) for place in columns for text in cells[place]):
        return _replaced(cells), True
    place = columns[0]
    row = next(row for row, text in enumerate(cells[place]) if COMMA.fullmatch(text))
    raise BrokenDataError(
        f"{names[place]} of {file} must be of numbers or of words; line {lines[row]} has "
        f"{shortened(cells[place][row])!r}. Give --decimal , if the comma is a decimal mark, or --decimal . "
        "if it is not."
    )


def _first(pattern: re.Pattern[str], cells: Cells) -> tuple[int, int] | None:
    """Return the column and the row of the first cell of this form."""
    cells_of_form = (
        (place, row)
        for place, texts in enumerate(cells)
        for row, text in enumerate(texts)
        if pattern.fullmatch(text)
    )
    return next(cells_of_form, None)


def _is_of_commas(texts: Sequence[str]) -> bool:
    """Return True if most cells that are neither missing nor whole numbers are numbers with a comma."""
    if not any("," in text for text in texts):
        return False
    words = [text for text in texts if text.strip() not in MISSING and not _NO_WORD.fullmatch(text)]
    return 2 * sum(COMMA.fullmatch(text) is not None for text in words) > len(words)


def _is_decimal(text: str) -> bool:
    return COMMA.fullmatch(text) is not None and _THOUSANDS.fullmatch(text) is None


def _replaced(cells: Cells) -> Cells:
    return [
        [text.replace(".", "").replace(",", ".") if COMMA.fullmatch(text) else text for text in texts]
        for texts in cells
    ]


_CHUNK = 1 << 23  # bytes of text at a time: 8 MB
_SEPARATORS = ("\t", "::", ";", ",")
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_GIVE_ENCODING = "Give its encoding, such as --encoding latin-1 or --encoding cp1252, or save"
_NOT_AVAILABLE = re.compile(r"#N/A(\W|$)")

Lines: TypeAlias = list[tuple[int, str]]
"""Lines of a file with their numbers, from 1."""


def read_text(
    file: Path, choose: Choose, has_names: bool | None, form: TextFormat = PLAIN_TEXT
) -> tuple[TableHeader, Numbers]:
    """Return the header of a table and the numbers of the chosen columns.

    ``has_names`` says whether the first line has names; None: it has, if a chosen column has no number there.
    """
    reader, chunks = _begin(file, choose, has_names, form.encoding)
    parts = [reader.numbers(lines) for lines in chunks if lines]
    if not parts:
        raise BrokenDataError(f"{file} must have a line below its names; it has none.")
    return reader.header, np.concatenate(parts)


def read_cells(
    file: Path, choose: Choose, has_names: bool | None, form: TextFormat = PLAIN_TEXT
) -> tuple[TableHeader, list[list[str]], list[int]]:
    """Return the header of a table, the texts of each chosen column, and the number of each line."""
    reader, chunks = _begin(file, choose, has_names, form.encoding)
    cells: list[list[str]] = [[] for _ in reader.columns]
    numbers: list[int] = []
    for lines in chunks:
        for number, line in lines:
            row = _fields(line, reader.separator)
            if len(row) != reader.header.width:
                raise BrokenDataError(reader.width_fault(number, len(row)))
            for column, place in zip(cells, reader.columns, strict=True):
                column.append(row[place])
            numbers.append(number)
    return reader.header, cells, numbers


def read_header(
    file: Path, choose: Choose, has_names: bool | None, form: TextFormat = PLAIN_TEXT
) -> TableHeader:
    """Return the header of a table; no row is read."""
    return _begin(file, choose, has_names, form.encoding)[0].header


def is_comment(line: str) -> bool:
    """Return True for a line that starts with ``#``, unless its first cell is the missing value ``#N/A``.

    >>> is_comment("# by lab 3"), is_comment("#N/A,2,1")
    (True, False)
    """
    return line.startswith("#") and _NOT_AVAILABLE.match(line) is None


def decoded(file: Path, first_line: int, content: bytes, encoding: str | None = None) -> str:
    """Return lines of a file as text; raise with the line that is not of this encoding.

    A file without an option for its encoding is UTF-8.
    """
    try:
        return content.decode(encoding or "utf-8")
    except UnicodeDecodeError as error:
        start = content.rfind(b"\n", 0, error.start) + 1
        line = first_line + content.count(b"\n", 0, start)
        text = content[max(start, error.start - 20) :].partition(b"\n")[0].decode(errors="backslashreplace")
        raise BrokenDataError(
            f"line {line} of {file} must be text in {encoding or 'utf-8'}; it has "
            f"'{shortened(text.strip())}'. {'Save' if encoding is None else _GIVE_ENCODING} it as UTF-8."
        ) from error


def _begin(
    file: Path, choose: Choose, has_names: bool | None, encoding: str
) -> tuple[_Reader, Iterator[Lines]]:
    """Return the reader of a table, and its lines without that of the names."""
    chunks = _chunks(file, encoding)
    first = next(chunks, None)
    if first is None:
        raise BrokenDataError(f"{file} must have at least one line; it has none.")
    separator = next((mark for mark in _SEPARATORS if mark in first[0][1]), " ")
    fields = _fields(first[0][1], separator)
    unnamed = TableHeader(file, len(fields), None)
    if has_names is None:
        has_names = _are_names(unnamed, fields, choose)
    header = TableHeader(file, len(fields), tuple(name.strip() for name in fields)) if has_names else unnamed
    return _Reader(header, separator, tuple(choose(header))), chain(
        [first[1:] if has_names else first], chunks
    )


def _chunks(file: Path, encoding: str) -> Iterator[Lines]:
    for first_line, content in whole_lines(file, _CHUNK):
        text = decoded(file, first_line, content, encoding).removeprefix("\ufeff")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        numbered = enumerate(text.split("\n"), first_line)
        lines = [(number, line) for number, line in numbered if line.strip() and not is_comment(line)]
        if lines:
            yield lines


def _are_names(unnamed: TableHeader, fields: Sequence[str], choose: Choose) -> bool:
    """Return True if the first line has names: a chosen column has no number there."""
    try:
        return not all(
            _NUMBER.fullmatch(fields[place]) or COMMA.fullmatch(fields[place]) for place in choose(unnamed)
        )
    except BrokenDataError:  # columns are chosen by names
        return True


@final
@dataclass(frozen=True)
class _Reader:
    header: TableHeader
    separator: str
    columns: tuple[int, ...]

    def numbers(self, lines: Lines) -> Numbers:
        """Return the numbers of these lines; raise with the first invalid line."""
        texts = [line for _, line in lines]
        if not self._all_have_the_width(texts):
            raise BrokenDataError(self._first_fault(lines))
        # NumPy separates by single characters, and by any blanks where none is given.
        separator = {"::": "\t", " ": None}.get(self.separator, self.separator)
        if self.separator == "::":
            texts = [text.replace("::", "\t") for text in texts]
        try:
            numbers = np.loadtxt(
                texts, delimiter=separator, usecols=self.columns, comments=None, quotechar='"', ndmin=2
            )
        except ValueError as error:
            raise BrokenDataError(self._first_fault(lines)) from error
        if len(numbers) != len(lines) or not np.isfinite(numbers).all():
            raise BrokenDataError(self._first_fault(lines))
        return np.asarray(numbers)

    def _all_have_the_width(self, texts: Sequence[str]) -> bool:
        if self.separator == " " or any('"' in text for text in texts):
            return all(len(_fields(text, self.separator)) == self.header.width for text in texts)
        return all(text.count(self.separator) == self.header.width - 1 for text in texts)

    def width_fault(self, line: int, width: int) -> str:
        """Return the sentence on a line with another number of columns."""
        columns = "1 column" if self.header.width == 1 else f"{self.header.width} columns"
        return (
            f"line {line} of {self.header.file} must have {columns}, as the first line; it has {width}. "
            "Correct the line."
        )

    def _first_fault(self, lines: Lines) -> str:
        names, width, file = self.header.names, self.header.width, self.header.file
        for number, line in lines:
            fields = _fields(line, self.separator)
            if len(fields) != width:
                return self.width_fault(number, len(fields))
            for place in self.columns:
                fault = _number_fault(fields[place])
                if fault is not None:
                    name = "" if names is None else f", {names[place]!r}"
                    must = f"line {number} of {file} must have a finite number in column {place + 1}{name}"
                    return f"{must}; {fault}"
        return f"{file} must be a table of numbers; line {lines[0][0]} or one after it cannot be read."


def _fields(line: str, separator: str) -> list[str]:
    if separator in (" ", "::"):
        return line.split(None if separator == " " else separator)
    try:
        return next(csv.reader([line], delimiter=separator), [""])
    except csv.Error:  # a field of more than 131,072 characters, or a NUL
        return [line]


def _number_fault(text: str) -> str | None:
    """Return what a field has instead of a finite number, and what to do; None if it has one."""
    if not text.strip():
        return "it is empty. Fill it in, or leave the line out."
    if _NUMBER.fullmatch(text) and np.isfinite(float(text)):
        return None
    advice = (
        "Write a decimal point for the comma."
        if COMMA.fullmatch(text)
        else "Correct it, or leave the column out."
    )
    return f"it has {shortened(text)!r}. {advice}"
