"""Read LIBSVM text, ``label index:value index:value …``: indices from 1, increasing within a line."""

from __future__ import annotations

import math
import re
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dcgs.datasets.base import BrokenDataError
from dcgs.datasets.store import PathLike, whole_lines
from dcgs.validation import PATH, whole

Numbers: TypeAlias = NDArray[np.float64]
Chunk: TypeAlias = tuple[Numbers, NDArray[np.intp], NDArray[np.int32], Numbers]
"""Some lines as numbers: labels, entries per line, columns of the entries (from 0), values of the entries."""

_CHUNK = 1 << 23  # bytes of text at a time: 8 MB
_MOST_COLUMNS = 2**31 - 1
# The highest index in a file of unknown width. A model of more features takes over 1 GiB, and an index
# that large is more often a mistake.
_HIGHEST_INDEX = 2**27
_QUOTED = 60

_BLANKS = re.compile(rb"[ \t\r]+")
_COMMENT = re.compile(rb"#[^\n]*")
# Possessive quantifiers (++) never backtrack, so that a line is checked in one pass.
_PLAIN = rb"[+-]?+(?:\d++\.?+\d*+|\.\d++)(?:[eE][+-]?+\d++)?+"
_NUMBER = re.compile(_PLAIN)
_LINE = re.compile(rb"[ \t\r]*+(?:%b(?:[ \t\r]++\d++:%b)*+[ \t\r]*+)?+" % (_PLAIN, _PLAIN))


def read_libsvm(path: PathLike, features: int | None = None) -> tuple[sparse.csr_array, Numbers]:
    """Return the matrix of samples and their labels; ``features`` is its width, else the highest index.

    An index above 2²⁷ must be allowed by ``features``.

    The file may be compressed (bz2, xz, gz: recognized by its first bytes). Comments (``# …``) and blank
    lines are skipped. Text is read in chunks; the peak of memory is below three times the result.
    """
    file = PATH(path, "path").expanduser()
    limit = whole(1, _MOST_COLUMNS).or_none(features, "features") or _HIGHEST_INDEX
    parts: tuple[list[Any], ...] = ([], [], [], [])
    for first_line, text in whole_lines(file, _CHUNK):
        chunk = _parsed(text, limit)
        if chunk is None:
            raise BrokenDataError(_first_fault(text, first_line, file.name, limit))
        for part, array in zip(parts, chunk, strict=True):
            part.append(array)
    if not sum(map(len, parts[0])):
        raise BrokenDataError(f"{file} must have at least one sample; it has none.")
    labels, counts, columns, values = map(_joined, parts)
    width = int(columns.max(initial=-1)) + 1 if features is None else features
    kind = np.int32 if len(values) <= _MOST_COLUMNS else np.int64
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(kind)
    entries = (values, columns.astype(kind, copy=False), starts)
    return sparse.csr_array(entries, shape=(len(labels), width)), labels


def _joined(parts: list[Any]) -> NDArray[Any]:
    whole = np.concatenate(parts)
    parts.clear()  # frees the parts before the next array is joined
    return whole


def _parsed(text: bytes, limit: int) -> Chunk | None:
    """Return the lines as numbers; None if any line is invalid."""
    if b"#" in text:
        text = _COMMENT.sub(b"", text)
    lines = text.split(b"\n")
    if not all(map(_LINE.fullmatch, lines)):
        return None
    counts = np.array([line.count(b":") for line in lines if not (line == b"" or line.isspace())], np.intp)
    if len(counts) == 0:
        return np.empty(0), counts, np.empty(0, np.int32), np.empty(0)
    numbers = np.fromstring(text.replace(b":", b" "), sep=" ")
    ends = np.cumsum(2 * counts + 1)
    starts = ends - 2 * counts - 1
    columns, values = np.delete(numbers, starts).reshape(-1, 2).T
    first = np.zeros(len(columns) + 1, dtype=np.bool_)
    first[np.cumsum(counts) - counts] = True  # a line without entries marks the first entry after it
    valid = (
        np.isfinite(numbers).all()
        and ((columns >= 1) & (columns <= limit)).all()
        and (first[1:-1] | (np.diff(columns) > 0)).all()
    )
    return (numbers[starts], counts, (columns - 1).astype(np.int32), values.copy()) if valid else None


def _first_fault(text: bytes, first_line: int, name: str, limit: int) -> str:
    """Return a sentence on the first invalid line; lines are counted from ``first_line``."""
    faults = ((n, line_fault(line, limit)) for n, line in enumerate(text.split(b"\n"), first_line))
    number, fault = next((n, fault) for n, fault in faults if fault is not None)
    return f"line {number} of {name} {fault} Correct the line, or get the file again."


def line_fault(line: bytes, limit: int) -> str | None:
    """Return what is wrong with a line, as the end of a sentence; None if the line is valid."""
    tokens = [token for token in _BLANKS.split(line.partition(b"#")[0]) if token]
    if not tokens:
        return None
    label, *pairs = tokens
    if b":" in label:
        return f"must start with a label; it starts with {quoted(label)}."
    if (fault := _number_fault(label, "a label")) is not None:
        return fault
    before = 0
    for pair in pairs:
        left, colon, right = pair.partition(b":")
        if not colon or not left or not right:
            return f"must have index:value pairs after its label; it has {quoted(pair)}."
        if not left.isdigit():
            return f"must have whole numbers from 1 as indices; it has {quoted(pair)}."
        if (fault := _number_fault(right, "a value")) is not None:
            return fault
        here = int(left.lstrip(b"0")[:20] or b"0")
        if not 1 <= here <= limit:
            return f"must have indices from 1 to {limit}, the columns; it has {quoted(pair)}."
        if here <= before:
            return f"must have increasing indices; it has {here} after {before}."
        before = here
    return None


def _number_fault(token: bytes, what: str) -> str | None:
    plain = _NUMBER.fullmatch(token)
    if plain and math.isfinite(float(token)):
        return None
    if plain or token.lstrip(b"+-").lower() in {b"nan", b"inf", b"infinity"}:
        return f"must have finite numbers; it has {quoted(token)} as {what}."
    return f"must have a number as {what}; it has {quoted(token)}."


def quoted(token: bytes) -> str:
    """Return a piece of a file in quotes, at most 60 characters of it."""
    text = token.decode("ascii", "backslashreplace")
    return repr(text if len(text) <= _QUOTED else text[:_QUOTED] + "…")
