"""Invertible Bloom lookup tables (Goodrich, Mitzenmacher 2011) of keys with multiplicities, which add up.

A key goes to four cells, one in each quarter of the table. A cell adds up five integers of its keys: 1, a
count, both halves of the key, and a checksum of the key. The sum of several agents' tables is one table, in
which a key that s agents have is s times. A cell in which one key is left gives s times the key: it is
divided by s, and verified by its checksum and its place. Then the key is taken out of its other cells, and so
on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import final

import numpy as np
from numpy.typing import NDArray

from dcgs.secure.fixed_point import Integers

_QUARTERS = 4
_FIELDS = 5
_HALF_BYTES = 5
_PLACE_BYTES = 6
KEY_BYTES = 2 * _HALF_BYTES
"""Bytes of a key. Halves of keys and checksums have 40 bits."""
MOST_AGENTS = 2**23 - 1
"""The number of agents whose numbers of 40 bits add up to less than 2⁶³."""


@final
@dataclass(frozen=True)
class Entry:
    """What a table has of a key: how many agents have it, and their counts together."""

    agents: int
    count: int


def table_width(distinct: int) -> int:
    """Return the cells of a quarter of a table for so many distinct keys, or fewer.

    There are 1.6 cells for each key, and 128 more. Large tables can be read with 1.3 cells for each key.
    Small ones fail mostly if two keys share all their cells, which for n keys has a probability of at most
    n²/2 · width⁻⁴; that is below 2·10⁻⁴ for every n.

    >>> table_width(100), 100**2 / 2 * table_width(100) ** -4.0 < 2e-4
    (72, True)
    """
    return 32 + -(-2 * distinct // 5)


def table(counts: Mapping[bytes, int], width: int, attempt: int) -> Integers:
    """Return the table of one agent's keys, of shape (4 · width, 5). Every attempt has other places."""
    cells = np.zeros((_QUARTERS * width, _FIELDS), dtype=np.int64)
    places, fields = _described([*counts], width, attempt)
    numbers = np.array([[1, count] for count in counts.values()], dtype=np.int64).reshape(-1, 2)
    _add(cells, places, np.hstack([numbers, fields]))
    return cells


def read_table(total: Integers, attempt: int) -> dict[bytes, Entry] | None:
    """Return the entries of a sum of tables; None if some of them cannot be read.

    >>> counts = {b"ten bytes.": 4}
    >>> read_table(table(counts, 32, attempt=0) + table(counts, 32, attempt=0), attempt=0)
    {b'ten bytes.': Entry(agents=2, count=8)}
    """
    cells, entries = total.copy(), dict[bytes, Entry]()
    while cells.any():
        pure = _pure(cells, attempt)
        if not pure:
            return None
        for key, cell in pure.items():
            entries[key] = Entry(int(cells[cell, 0]), int(cells[cell, 1]))
        places, fields = _described([*pure], len(cells) // _QUARTERS, attempt)
        numbers = cells[[*pure.values()], :2]
        _add(cells, places, -np.hstack([numbers, numbers[:, :1] * fields]))
    return entries


def _pure(cells: Integers, attempt: int) -> dict[bytes, int]:
    """Return the keys that are alone in a cell, each with such a cell."""
    rows = np.flatnonzero(cells[:, 0] > 0)
    multiples, numbers = cells[rows, :1], cells[rows, 2:]
    divides = (numbers % multiples == 0).all(axis=1) & (numbers >= 0).all(axis=1)
    rows, quotients = rows[divides], (numbers // multiples)[divides]
    fits = (quotients < 1 << 8 * _HALF_BYTES).all(axis=1)
    rows, quotients = rows[fits], quotients[fits]
    halves = quotients[:, :2].astype("<i8").view(np.uint8).reshape(-1, 2, 8)[:, :, :_HALF_BYTES]
    keys = [half.tobytes() for half in halves]
    places, fields = _described(keys, len(cells) // _QUARTERS, attempt)
    verified = (fields == quotients).all(axis=1) & (places == rows[:, None]).any(axis=1)
    return {keys[k]: int(rows[k]) for k in np.flatnonzero(verified)}


def _described(keys: Sequence[bytes], width: int, attempt: int) -> tuple[NDArray[np.intp], Integers]:
    """Return the four cells of every key, and three fields of it: both halves and the checksum."""
    salt = attempt.to_bytes(8, "little")
    digests = np.frombuffer(b"".join(sha256(salt + key).digest() for key in keys), dtype=np.uint8)
    digests = digests.reshape(len(keys), 32)
    places = [
        _numbers(digests[:, _PLACE_BYTES * q : _PLACE_BYTES * (q + 1)]) % width + q * width
        for q in range(_QUARTERS)
    ]
    content = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), KEY_BYTES)
    parts = content[:, :_HALF_BYTES], content[:, _HALF_BYTES:], digests[:, -_HALF_BYTES:]
    return np.column_stack(places).astype(np.intp), np.column_stack([_numbers(part) for part in parts])


def _numbers(rows: NDArray[np.uint8]) -> Integers:
    """Return the number in each row of fewer than eight bytes, the lowest first."""
    padded = np.zeros((len(rows), 8), dtype=np.uint8)
    padded[:, : rows.shape[1]] = rows
    return padded.view("<i8").astype(np.int64, copy=False).reshape(-1)


def _add(cells: Integers, places: NDArray[np.intp], fields: Integers) -> None:
    """Add to the four cells of every key its fields, in place."""
    for quarter in places.T:
        np.add.at(cells, quarter, fields)
