"""Read tables of text (CSV, TSV and their like), plain or compressed.

Fields are parted by tabs, ``::``, semicolons, commas or blanks, whichever the first line has, and may be in
double quotes; a field with a line break in it is not supported. Blank lines and lines that start with ``#``
are skipped.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, final

import numpy as np

from dcgs.datasets import BrokenDataError
from dcgs.datasets.streams import whole_lines
from dcgs.fitting.data import Numbers
from dcgs.fitting.readers.layout import Choose, Head

_CHUNK = 1 << 23  # bytes of text at a time: 8 MB
_PARTED_BY = ("\t", "::", ";", ",")
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_SHOWN = 40

Lines: TypeAlias = list[tuple[int, str]]
"""Lines of a file with their numbers, from 1."""


def read_text(file: Path, choose: Choose, header: bool | None) -> tuple[Head, Numbers]:
    """Return the columns of a table and, of those that are chosen, the numbers."""
    chunks = _chunks(file)
    first = next(chunks, None)
    if first is None:
        raise BrokenDataError(f"{file} must have at least one line; it has none.")
    reader, first = _opened(file, choose, header, first)
    parts = [reader.numbers(first)] if first else []
    parts += [reader.numbers(lines) for lines in chunks]
    if not parts:
        raise BrokenDataError(f"{file} must have a line below its names; it has none.")
    return reader.head, np.concatenate(parts)


def _chunks(file: Path) -> Iterator[Lines]:
    """Yield the lines that count."""
    for first_line, content in whole_lines(file, _CHUNK):
        text = content.decode("utf-8", errors="replace").removeprefix("\ufeff")
        numbered = enumerate(text.split("\n"), first_line)
        lines = [(number, line.rstrip("\r")) for number, line in numbered]
        lines = [(number, line) for number, line in lines if line.strip() and not line.startswith("#")]
        if lines:
            yield lines


def _opened(file: Path, choose: Choose, header: bool | None, lines: Lines) -> tuple[_Reader, Lines]:
    """Return what reads the lines, and those of the first chunk that hold numbers."""
    parted_by = next((mark for mark in _PARTED_BY if mark in lines[0][1]), " ")
    fields = _fields(lines[0][1], parted_by)
    bare = Head(file, len(fields), None)
    named = Head(file, len(fields), tuple(name.strip() for name in fields))
    has_names = _has_names(bare, fields, choose) if header is None else header
    head = named if has_names else bare
    return _Reader(head, parted_by, tuple(choose(head))), lines[1:] if has_names else lines


def _has_names(bare: Head, fields: Sequence[str], choose: Choose) -> bool:
    """Return whether a first line is of names: where a column that is wanted has no number in it."""
    try:
        wanted = choose(bare)
    except BrokenDataError:  # columns are wanted by names
        return True
    return not all(_NUMBER.fullmatch(fields[at]) for at in wanted)


@final
@dataclass(frozen=True)
class _Reader:
    head: Head
    parted_by: str
    places: tuple[int, ...]
    _mark: str | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # NumPy parts by single letters, and by any blanks where none is given.
        mark = {"::": "\t", " ": None}.get(self.parted_by, self.parted_by)
        object.__setattr__(self, "_mark", mark)

    def numbers(self, lines: Lines) -> Numbers:
        """Return the numbers of these lines; raise with the first line at fault."""
        texts = [line for _, line in lines]
        if not self._even(texts):
            raise BrokenDataError(self._first_fault(lines))
        if self.parted_by == "::":
            texts = [text.replace("::", "\t") for text in texts]
        try:
            found = np.loadtxt(
                texts, delimiter=self._mark, usecols=self.places, comments=None, quotechar='"', ndmin=2
            )
        except ValueError as error:
            raise BrokenDataError(self._first_fault(lines)) from error
        if len(found) != len(lines) or not np.isfinite(found).all():
            raise BrokenDataError(self._first_fault(lines))
        return np.asarray(found)

    def _even(self, texts: Sequence[str]) -> bool:
        """Return whether all lines have as many fields as the first."""
        width = self.head.width
        quoted = any('"' in text for text in texts)
        if quoted or self.parted_by == " ":
            return all(len(_fields(text, self.parted_by)) == width for text in texts)
        return all(text.count(self.parted_by) == width - 1 for text in texts)

    def _first_fault(self, lines: Lines) -> str:
        names = self.head.names
        for number, line in lines:
            fields = _fields(line, self.parted_by)
            where = f"line {number} of {self.head.file}"
            if len(fields) != self.head.width:
                columns = "1 column" if self.head.width == 1 else f"{self.head.width} columns"
                return f"{where} must have {columns}, as the first line; it has {len(fields)}. Mend the line."
            for at in self.places:
                what = f"column {at + 1}" if names is None else f"column {at + 1}, {names[at]!r}"
                if not fields[at].strip():
                    return f"{where} must have a number in {what}; it is empty. Fill it in, or drop the line."
                if not _NUMBER.fullmatch(fields[at]) or not np.isfinite(float(fields[at])):
                    return f"{where} must have a finite number in {what}; it has {_told(fields[at])}"
        return (
            f"{self.head.file} must be a table of numbers; line {lines[0][0]} or one after it cannot be read."
        )


def _fields(line: str, parted_by: str) -> list[str]:
    if parted_by == " ":
        return line.split()
    if parted_by == "::":
        return line.split("::")
    return next(csv.reader([line], delimiter=parted_by), [""])


def _told(text: str) -> str:
    """Return what a field has instead of a number, and what to do."""
    shown = repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
    comma = re.fullmatch(r"\s*[+-]?\d+,\d+\s*", text)
    advice = "Write a decimal point for the comma." if comma else "Mend the line, or leave the column out."
    return f"{shown}. {advice}"
