"""Read LIBSVM text, ``label index:value index:value …``: indices from 1, increasing within a line."""

from __future__ import annotations

import re
import warnings
from collections import deque
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from typing import TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dcgs.datasets.errors import BrokenDataError
from dcgs.datasets.libsvm_faults import MOST_COLUMNS, first_fault
from dcgs.datasets.store import PathLike
from dcgs.datasets.streams import whole_lines

Numbers: TypeAlias = NDArray[np.float64]
Item = TypeVar("Item", bound=np.generic)

_CHUNK = 1 << 23  # bytes of text at a time: 8 MB
_DIGIT, _SIGN, _BLANK, _BREAK, _COLON, _FOREIGN = range(6)  # kinds of letters
_KINDS = bytearray([_FOREIGN]) * 256
for _kind, _letters in enumerate((b"0123456789", b"+-.eE", b" \t\r", b"\n", b":")):
    for _letter in _letters:
        _KINDS[_letter] = _kind
_TO_SPACE = bytes.maketrans(b":", b" ")
_COMMENT = re.compile(rb"#[^\n]*")


def read_libsvm(path: PathLike, features: int | None = None) -> tuple[sparse.csr_array, Numbers]:
    """Return the matrix of samples and their labels; ``features`` is its width, else the highest index.

    The file may be compressed (bz2, xz, gz: told by its first bytes). Comments (``# …``) and blank
    lines are skipped. Text is read in chunks; the peak of memory is below three times the result.
    """
    file = Path(path).expanduser()
    limit = MOST_COLUMNS if features is None else index(features)
    if not 1 <= limit <= MOST_COLUMNS:
        raise ValueError(f"features must be between 1 and {MOST_COLUMNS}; got {features!r}.")
    parts = _Parts()
    for first_line, text in whole_lines(file, _CHUNK):
        chunk = _parsed(text, limit)
        if chunk is None:
            raise BrokenDataError(first_fault(text, first_line, file.name, limit))
        parts.add(chunk)
    if not parts.rows:
        raise BrokenDataError(f"{file} must have at least one sample; it has none.")
    return parts.matrix(features)


@final
@dataclass(frozen=True)
class _Chunk:
    """Some lines as numbers: labels, how many entries each has, and the entries, columns from 0."""

    labels: Numbers
    counts: NDArray[np.intp]
    columns: NDArray[np.int32]
    values: Numbers


def _parsed(text: bytes, limit: int) -> _Chunk | None:
    """Return the lines as numbers, all at once; None if any of them is at fault."""
    if b"#" in text:
        text = _COMMENT.sub(b"", text)
    kinds = np.frombuffer(b"\n".join([b"", text, b""]).translate(_KINDS), dtype=np.uint8)
    if (kinds == _FOREIGN).any():
        return None
    inside = kinds <= _SIGN
    turns = np.flatnonzero(inside[1:] != inside[:-1]) + 1
    opens, closes = turns[::2], turns[1::2]  # of tokens: the first letter, one past the last
    label = np.zeros(len(opens) + 1, dtype=np.bool_)
    label[np.searchsorted(opens, np.flatnonzero(kinds == _BREAK))] = True
    label = label[:-1]
    value = kinds[opens - 1] == _COLON
    entry = ~(label | value)
    if not np.array_equal(np.append(value, False)[1:], entry):
        return None  # not every line is a label and then pairs
    if not _well_joined(kinds, opens[entry], closes[entry]):
        return None
    numbers = _numbers(text.translate(_TO_SPACE))
    # Should a version of NumPy take 1-2 for two numbers, the counts differ.
    if numbers is None or len(numbers) != len(opens) or not np.isfinite(numbers).all():
        return None
    indices = numbers[entry]
    if len(indices) and not (indices.min() >= 1 and indices.max() <= limit):
        return None
    at = np.flatnonzero(label)
    counts = np.diff(at, append=len(label)) // 2
    starts_row = label[np.flatnonzero(entry) - 1]
    if not (starts_row[1:] | (np.diff(indices) > 0)).all():
        return None
    return _Chunk(numbers[at], counts, (indices - 1).astype(np.int32), numbers[value])


def _well_joined(kinds: NDArray[np.uint8], opens: NDArray[np.intp], closes: NDArray[np.intp]) -> bool:
    """Return whether every index is of digits alone, with a colon right behind it, and no colon is left."""
    if not np.array_equal(closes, np.flatnonzero(kinds == _COLON)):
        return False
    # Counted modulo 256, which is quick; 256 signs in a row are no number anyway.
    signs = np.cumsum((kinds == _SIGN).view(np.uint8), dtype=np.uint8)
    return np.array_equal(signs[closes], signs[opens - 1])


def _numbers(text: bytes) -> Numbers | None:
    """Return the numbers between blanks; None if any of them is none."""
    if text.isspace():
        return np.empty(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # how older versions of NumPy say it
            return np.fromstring(text, sep=" ")
    except (ValueError, DeprecationWarning):
        return None


@final
@dataclass(frozen=True)
class _Parts:
    """The chunks so far, kept apart until all are known; each is let go once it is copied."""

    labels: deque[Numbers] = field(default_factory=deque)
    counts: deque[NDArray[np.intp]] = field(default_factory=deque)
    columns: deque[NDArray[np.int32]] = field(default_factory=deque)
    values: deque[Numbers] = field(default_factory=deque)

    @property
    def rows(self) -> int:
        return sum(map(len, self.labels))

    def add(self, chunk: _Chunk) -> None:
        self.labels.append(chunk.labels)
        self.counts.append(chunk.counts)
        self.columns.append(chunk.columns)
        self.values.append(chunk.values)

    def matrix(self, features: int | None) -> tuple[sparse.csr_array, Numbers]:
        labels = np.concatenate(self.labels)
        ends = np.cumsum(np.concatenate(self.counts))
        columns = _joined(self.columns)
        values = _joined(self.values)
        width = int(columns.max(initial=-1)) + 1 if features is None else features
        kind = np.int32 if len(values) <= MOST_COLUMNS else np.int64
        starts = np.concatenate([[0], ends]).astype(kind)
        entries = (values, columns.astype(kind, copy=False), starts)
        return sparse.csr_array(entries, shape=(len(labels), width)), labels


def _joined(parts: deque[NDArray[Item]]) -> NDArray[Item]:
    whole = np.empty(sum(map(len, parts)), parts[0].dtype)
    done = 0
    while parts:
        part = parts.popleft()
        whole[done : done + len(part)] = part
        done += len(part)
    return whole
