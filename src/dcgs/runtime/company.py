"""What the front door needs of all processes, over MPI; none of it is counted as traffic."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import NDArray

from dcgs.runtime.base import Array, ProcessGroup, RunAbortedError, is_in_all
from dcgs.runtime.wire import SIZE, Header, Kind, check, read, write

if TYPE_CHECKING:
    from dcgs.runtime.mpi import Ranks

# Tags of what does not belong to the agents' conversation, whose tags are even and odd numbers from 2 on.
_TAG = 0


@final
class Company(ProcessGroup):
    """All processes of a communicator; the first leads."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self.is_root = ranks.rank == 0
        self.size = ranks.size
        self._asked = 0
        assert ranks.heart is not None
        ranks.heart.begin()

    def gather(self, mine: Iterable[Array]) -> Iterator[Array]:
        self._asked += 1
        if not self.is_root:
            self._give(list(mine))
            return
        yield from mine
        for rank in range(1, self.size):
            yield from self._take(rank)

    def broadcast(self, values: Array | None) -> Array:
        self._asked += 1
        if self.size == 1:
            assert values is not None
            return values
        header = bytearray(SIZE)
        if values is not None:
            values = np.ascontiguousarray(values).reshape(values.shape)
            write(header, Kind.PART, values, self._asked, 0)
        self._ranks.broadcast(header)
        told = self._checked(header, 0)
        array: Array = np.empty(told.shape, told.dtype) if values is None else values
        if told.length:
            self._ranks.broadcast(array)
        return array

    def allreduce_max(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._ranks.allreduce_max(values)

    def sentence(self, error: BaseException) -> str:
        assert self._ranks.heart is not None
        return sentence_of(error, self._ranks.heart.name(self._ranks.rank))

    def fail(self, error: BaseException) -> bool:
        heart, ranks = self._ranks.heart, self._ranks
        assert heart is not None
        if error is ranks.failure or is_in_all(error):
            return True
        ranks.failure = error
        if isinstance(error, RunAbortedError) and error.told:
            ranks.abandon()
            return True
        heart.pulse()
        first = not heart.alarmed
        if first:
            heart.alarm(self.sentence(error))
            # Several may fail at a time, or find the same process silent; one of them shall say so.
            time.sleep(2.0 * heart.period)
            heart.pulse()
            first = heart.is_first()
        ranks.abandon()
        if isinstance(error, RunAbortedError):
            error.told = not first
            return True
        return first

    def _give(self, arrays: list[Array]) -> None:
        """Send arrays to the process that leads, with their number before."""
        for array in (np.array([len(arrays)]), *arrays):
            array = np.ascontiguousarray(array).reshape(array.shape)
            header = bytearray(SIZE)
            write(header, Kind.PART, array, self._asked, self._ranks.rank)
            self._ranks.wait([self._ranks.isend(header, 0, _TAG), self._ranks.isend(array, 0, _TAG)], [0])

    def _take(self, rank: int) -> Iterator[Array]:
        """Yield what another process sent."""
        (count,) = self._receive(rank).tolist()
        for _ in range(int(count)):
            yield self._receive(rank)

    def _receive(self, rank: int) -> Array:
        header = bytearray(SIZE)
        self._ranks.wait([self._ranks.irecv(header, rank, _TAG)], [rank])
        told = self._checked(header, rank)
        array: Array = np.empty(told.shape, told.dtype)
        self._ranks.wait([self._ranks.irecv(array, rank, _TAG)], [rank])
        return array

    def _checked(self, header: bytearray, rank: int) -> Header:
        told = read(header, f"process {rank}")
        check(told, Kind.PART, self._asked, rank, f"process {rank}")
        return told


def sentence_of(error: BaseException, who: str) -> str:
    """Return what is told of an error; a note names its agent where one raised it."""
    if is_in_all(error):
        return str(error)
    notes = [note for note in getattr(error, "__notes__", []) if note.startswith("raised in ")]
    if notes:
        who = notes[0].removeprefix("raised in ")
    if isinstance(error, RunAbortedError):
        return str(error)
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return f"{who} was interrupted."
    words = str(error) or type(error).__name__
    if re.search(r"\bagents? \[?\d", words):
        return words
    return f"{who} failed: {words if words.endswith('.') else words + '.'}"
