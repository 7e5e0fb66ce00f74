"""The ledger of a process: what left its agents, one line of JSON for each message, chained by hashes.

A line says when, from whom and to whom a message was sent, what it was for, the kinds, shapes and bytes of
its arrays, whether they were masked, and the SHA-256 of their bytes. ``before`` is that of the line before,
also across fits: a line that is changed, removed or put in between breaks the chain. Who rewrites the whole
file is not noticed, unless the last hash is kept elsewhere.

It has what agents send each other. What processes agree on beside it, such as options, names of files and the
smoothness of losses, is not in it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from dcgs.runtime.base import ChangedRuntime, Runtime
from dcgs.state import from_plain

FILES = "ledger-*.jsonl"
_FORMAT = 1
_START = "0" * 64
TEXTS, MASKED, HESSIANS, VECTORS, NUMBERS, FLAGS, KEYS = (
    "texts",
    "masked words",
    "Hessians",
    "vectors of the size of the model",
    "numbers",
    "flags",
    "public keys of the masks",
)
TEXTS_AND_KEYS = f"{TEXTS}, and {KEYS}"
_KEY_BYTES = 32


@final
@dataclass(frozen=True)
class Line:
    """One line of a ledger: a message, to one or several agents; or the start of a fit, with ``agents``."""

    at: str
    before: str
    sum: str = ""
    form: str = ""
    masked: bool = False
    round: int = 0
    sender: int = -1
    to: tuple[int, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    bytes: int = 0
    sha256: str = ""
    agents: tuple[int, ...] = ()
    command: str = ""

    @property
    def numbers(self) -> int:
        """How many numbers the message has."""
        return sum(math.prod(shape) for shape in self.shapes)


@final
class Ledger:
    """Writes a ledger; a function for ``on_message`` of a runtime, and a context manager.

    ``named`` says what the next messages are for. If the fit fails and the process is ``alone`` with all
    agents, nothing has left it, and what was written is removed.

    >>> import dcgs, networkx as nx, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "ledger-000.jsonl"
    >>> with Ledger(path, range(2)) as ledger:
    ...     ledger.named("a sum")
    ...     total = dcgs.allreduce([[1.0], [2.0]], nx.path_graph(2), dcgs.Lockstep(on_message=ledger))
    >>> [(line.sum, line.sender, line.to, line.bytes) for line in read(path).lines[1:]]
    [('a sum', 0, (1,), 16), ('a sum', 1, (0,), 16)]
    """

    def __init__(self, path: Path, agents: Sequence[int], command: str = "", alone: bool = False) -> None:
        self.path, self.alone, self._sum, self._size = path, alone, "", 0
        self._pending: dict[str, Any] = {}
        self._sent = _Totals()
        self._arrays: tuple[NDArray[Any], ...] = ()
        old = path.read_bytes() if path.exists() else b""
        self._old = len(old)
        self._before = _hash(old.rstrip(b"\n").rpartition(b"\n")[2]) if old else _START
        self._file = path.open("ab")
        if old and not old.endswith(b"\n"):  # the process of an earlier fit was killed while it wrote
            self._file.write(b"\n")
        self._write({"ledger": _FORMAT, "agents": list(agents), "command": command})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # a disk that is full: the error that ended the fit says so
            self._flush()
        self._file.close()
        if not self._sent.entries or (error is not None and self.alone):
            os.truncate(self.path, self._old)
            if self._old == 0:
                self.path.unlink()

    @property
    def totals(self) -> tuple[Entry, ...]:
        """What left since this ledger was opened."""
        self._flush()
        return tuple(self._sent.entries.values())

    def named(self, name: str, size: int = 0) -> None:
        """Say what the next messages are for; ``size`` is the number of unknowns of a model."""
        self._flush()
        self._sum, self._size = name, size

    def __call__(self, round: int, sender: int, receiver: int, arrays: tuple[NDArray[Any], ...]) -> None:
        if arrays is self._arrays and self._pending.get("from") == sender:
            self._pending["to"].append(receiver)  # one message to several neighbors
            return
        self._flush()
        self._arrays = arrays
        digest = sha256()
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
        form = _form(arrays, self._size)
        self._pending = {
            "round": round,
            "from": sender,
            "to": [receiver],
            "sum": KEYS if form == KEYS else self._sum,
            "form": form,
            "masked": any(array.dtype == np.uint64 for array in arrays),
            "shapes": [list(array.shape) for array in arrays],
            "bytes": sum(array.nbytes for array in arrays),
            "sha256": digest.hexdigest(),
        }

    def _flush(self) -> None:
        if self._pending:
            self._write(self._pending)
            self._sent.add(_entry(from_plain(Line, {"at": "", "before": "", **self._pending}, lenient=True)))
        self._pending, self._arrays = {}, ()

    def _write(self, entry: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"at": now, **entry, "before": self._before}, ensure_ascii=False).encode()
        self._file.write(line + b"\n")
        self._file.flush()
        self._before = _hash(line)


def with_ledger(runtime: Runtime, ledger: Ledger) -> Runtime:
    """Return a runtime that writes all messages of the agents of this process to a ledger."""
    return ChangedRuntime(runtime, lambda job: job.seen_by(ledger), runtime.separate_sites)


@final
@dataclass(frozen=True)
class LedgerFile:
    """A ledger that was read: its lines, the hash of the last, and which lines break the chain, from 1."""

    path: Path
    lines: tuple[Line, ...]
    last: str
    broken: tuple[int, ...] = ()


@final
@dataclass(frozen=True)
class Entry:
    """What left for one purpose in one form: messages, one for each receiver, with numbers and bytes."""

    sum: str
    form: str
    masked: bool
    messages: int = 0
    numbers: int = 0
    bytes: int = 0


@final
@dataclass(eq=False)
class _Totals:
    entries: dict[tuple[str, str, bool], Entry] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        key = entry.sum, entry.form, entry.masked
        known = self.entries.get(key, Entry(*key))
        self.entries[key] = Entry(
            *key,
            known.messages + entry.messages,
            known.numbers + entry.numbers,
            known.bytes + entry.bytes,
        )


def read(path: Path) -> LedgerFile:
    """Return a ledger; lines that are not as they were written, or not in their place, are ``broken``."""
    lines: list[Line] = []
    broken, before = [], _START
    for number, content in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            plain = json.loads(content)
            line = from_plain(Line, plain | {"sender": plain.get("from", -1)}, lenient=True)
            lines.append(line)
            is_whole = line.before == before
        except (ValueError, TypeError, AttributeError):
            is_whole = False
        broken += [] if is_whole else [number]
        before = _hash(content)
    return LedgerFile(path, tuple(lines), before, tuple(broken))


def totals(lines: Sequence[Line]) -> tuple[Entry, ...]:
    """Return what left in all, by purpose and form, in the order in which it was sent first."""
    summed = _Totals()
    for line in lines:
        if line.to:
            summed.add(_entry(line))
    return tuple(summed.entries.values())


def _entry(line: Line) -> Entry:
    count = len(line.to)
    return Entry(line.sum, line.form, line.masked, count, count * line.numbers, count * line.bytes)


def added(parts: Sequence[Sequence[Entry]]) -> tuple[Entry, ...]:
    """Return the totals of several processes together."""
    summed = _Totals()
    for entry in (entry for part in parts for entry in part):
        summed.add(entry)
    return tuple(summed.entries.values())


def last_fit(lines: Sequence[Line]) -> Sequence[Line]:
    """Return the lines since the last start of a fit."""
    starts = [number for number, line in enumerate(lines) if line.agents]
    return lines[starts[-1] :] if starts else lines


def in_folder(folder: Path) -> Iterator[LedgerFile]:
    """Yield the ledgers in a folder."""
    for path in sorted(folder.glob(FILES)):
        yield read(path)


def _form(arrays: Sequence[NDArray[Any]], size: int) -> str:
    """Return what a message has, of its kinds the largest; Hessians of ``size`` unknowns by their length."""
    kinds = {array.dtype.type for array in arrays}
    if np.uint64 in kinds:
        return MASKED
    if kinds == {np.uint8}:
        if arrays[0].ndim == 2 and arrays[0].shape[1] >= _KEY_BYTES:
            return KEYS if len(arrays) == 1 else TEXTS_AND_KEYS
        return FLAGS if all(array.max(initial=0) <= 1 for array in arrays) else TEXTS
    if any(array.dtype == np.uint8 and array.ndim == 2 and array.size for array in arrays):
        return TEXTS  # and how many people have them
    # Values of several agents that are flooded have a row each; factors have a row for each column.
    lengths = {array.shape[-1] for array in arrays if array.ndim and array.size > 1}
    is_square = any(array.shape == (size, size) for array in arrays)
    if size > 1 and (is_square or any(_is_hessian(length, size) for length in lengths)):
        return HESSIANS
    return VECTORS if size and any(array.size >= size for array in arrays) else NUMBERS


def _is_hessian(length: int, size: int) -> bool:
    """Return True if a Hessian, or a triangle of it, or one of several equal pieces has so many entries."""
    wholes = (size * size, size * (size + 1) // 2)
    pieces = [whole / max(1, round(whole / length)) for whole in wholes if length > size]
    return length in wholes or any(length in (math.floor(piece), math.ceil(piece)) for piece in pieces)


def _hash(line: bytes) -> str:
    return sha256(line).hexdigest()
