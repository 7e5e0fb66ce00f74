"""Decimal commas: found from the cells of a file, or given by the user."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from dcgs.datasets import BrokenDataError
from dcgs.fitting.readers.layout import shortened
from dcgs.fitting.tables import MISSING

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
    columns = [] if decimal == "." else [at for at, texts in enumerate(cells) if _is_of_commas(texts)]
    if not columns and decimal != ",":
        return cells, False
    points = _first(_POINT, cells)
    if decimal == ",":
        if points is not None:
            at, row = points
            raise BrokenDataError(
                f"with --decimal , line {lines[row]} of {file} must have a decimal comma in {names[at]}; it "
                f"has {shortened(cells[at][row])!r}. Correct it, or leave --decimal out."
            )
        return _replaced(cells), True
    if points is None and any(_is_decimal(text) for at in columns for text in cells[at]):
        return _replaced(cells), True
    at = columns[0]
    row = next(row for row, text in enumerate(cells[at]) if COMMA.fullmatch(text))
    raise BrokenDataError(
        f"{names[at]} of {file} must be of numbers or of words; line {lines[row]} has "
        f"{shortened(cells[at][row])!r}. Give --decimal , if the comma is a decimal mark, or --decimal . if "
        "it is not."
    )


def _first(pattern: re.Pattern[str], cells: Cells) -> tuple[int, int] | None:
    """Return the column and the row of the first cell of this form."""
    found = (
        (at, row)
        for at, texts in enumerate(cells)
        for row, text in enumerate(texts)
        if pattern.fullmatch(text)
    )
    return next(found, None)


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
