"""Sheets: memory that processes of one machine share, on which an agent leaves its messages for them.

A folio of sheets belongs to one agent, whose process writes on them and marks each for every reader. A reader
strikes its mark out when nobody there looks at the sheet any more, and one without marks is written on again.
Which sheet to read is told by a header that travels as a message: nothing is read before it is there.
"""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from collections.abc import Collection
from typing import final

import numpy as np

from dcgs.points import Point
from dcgs.runtime.wire import Header, MessageError

# Sheets of one folio that a reader keeps at most; beyond that it copies. Programs tend to keep the messages
# of one round until they have those of the next.
_KEPT = 2
# Numbers that are copied at a time, so that they are still near when they are squared.
_CHUNK = 1 << 14
# A folio begins with the number of its sheets, the bytes of each and the columns of marks. For every sheet
# follow its round, and its marks.
_PLAN = 3
_PAGE = mmap.PAGESIZE


@final
class View:
    """A place in memory as the message that is there, and whether someone still looks at it."""

    def __init__(self, whole: Point, start: int = 0) -> None:
        self._whole = whole
        self.body = whole[start:]
        self._shaped = self.body[:0]
        self._told: Header | None = None
        self._idle = (0, 0)

    def settle(self) -> None:
        """Take whoever holds it now for those who always will; call this when all is made."""
        self._idle = self._holders()

    def shaped(self, header: Header) -> Point:
        """Return the message that is here, which nobody may change."""
        if header is not self._told:
            self._told = header
            self._shaped = self.body[: header.length // 8].reshape(header.shape)
            self._shaped.flags.writeable = False
        return self._shaped

    def is_free(self) -> bool:
        """Return whether nobody holds the message that was here, nor any part of it."""
        return self._holders() == self._idle

    def _holders(self) -> tuple[int, int]:
        return sys.getrefcount(self._whole), sys.getrefcount(self._shaped)


@final
class Writer:
    """Where an agent leaves its messages for the processes that read them."""

    def __init__(self, readers: Collection[int]) -> None:
        self._readers = sorted(readers)
        self._marks = bytes(rank in readers for rank in range(self._readers[-1] + 1))
        self._folio: _Folio | None = None
        # Readers open a folio in the round of its first message, which they may not have finished when the
        # next one begins.
        self._before: _Folio | None = None
        self._since = 0
        self._fd = -1

    def write(self, message: Point, round: int) -> tuple[int, int, float]:
        """Leave a flat message; return the folio, the sheet, and the sum of squares."""
        folio = self._folio
        if round > self._since:
            self._before = None
        if folio is None or folio.room < message.nbytes:
            folio, self._since = self._begin(message.nbytes), round
        sheet = folio.first_free()
        squares, place = 0.0, folio.views[sheet].body
        for start in range(0, message.size, _CHUNK):
            new = message[start : start + _CHUNK]
            chunk = place[start : start + new.size]
            chunk[:] = new
            squares += float(chunk.dot(chunk))
        folio.rounds[sheet] = round
        folio.mark(sheet, self._marks)
        return self._fd, sheet, squares

    def _begin(self, room: int) -> _Folio:
        """Make a folio of larger sheets.

        With so many one is always free: each reader keeps some, and may not have come to read the last.
        """
        sheets, columns = _KEPT * len(self._readers) + 2, len(self._marks)
        room = -(-max(room, 2 * self._folio.room if self._folio else 0) // _PAGE) * _PAGE
        # Its number differs from that of the one before, which is still open, so that readers see the change.
        fd = os.memfd_create("dcgs")
        os.ftruncate(fd, _head(sheets, columns) + sheets * room)
        with mmap.mmap(fd, _PAGE) as first:
            np.frombuffer(first, np.int64, _PLAN)[:] = sheets, room, columns
        self._before, self._folio, self._fd = self._folio, _Folio(fd), fd
        weakref.finalize(self._folio, os.close, fd)
        return self._folio


@final
class Reader:
    """The sheets of an agent of another process, as far as this one reads them."""

    def __init__(self, who: str, pid: int, rank: int) -> None:
        self._who = who
        self._pid = pid
        self._rank = rank
        self._fd = -1
        self._folio: _Folio | None = None
        self._kept: list[int] = []

    def strike(self) -> None:
        """Strike out the marks on sheets that nobody here looks at any more."""
        for sheet in self._kept[:]:
            assert self._folio is not None
            if self._folio.views[sheet].is_free():
                self._kept.remove(sheet)
                self._folio.strike(sheet, self._rank)

    def read(self, fd: int, sheet: int, round: int, header: Header) -> Point:
        """Return the message on a sheet, or a copy where too many are kept."""
        folio = self._folio
        if folio is None or fd != self._fd:
            folio = self._open(fd)
        if sheet >= folio.sheets or header.length > folio.room or folio.rounds[sheet] != round:
            raise MessageError(
                f"{self._who} must leave its message of round {round} on sheet {sheet}; it is not there."
            )
        message = folio.views[sheet].shaped(header)
        if len(self._kept) < _KEPT:
            self._kept.append(sheet)
            return message
        copy = message.copy()
        copy.flags.writeable = False
        folio.strike(sheet, self._rank)
        return copy

    def _open(self, fd: int) -> _Folio:
        try:
            file = os.open(f"/proc/{self._pid}/fd/{fd}", os.O_RDWR)
        except OSError as error:
            raise MessageError(
                f"the memory that {self._who} shares must be readable; {error.strerror}. Has it ended?"
            ) from error
        try:
            self._folio, self._fd, self._kept = _Folio(file), fd, []
        finally:
            os.close(file)
        return self._folio


@final
class _Folio:
    """A file in memory, with marks and sheets."""

    def __init__(self, fd: int) -> None:
        memory = mmap.mmap(fd, 0)
        self.sheets, self.room, self._columns = np.frombuffer(memory, np.int64, _PLAN).tolist()
        start, head = 8 * (_PLAN + self.sheets), _head(self.sheets, self._columns)
        everything = memoryview(memory)
        self.rounds = everything[8 * _PLAN : start].cast("q")
        self._marks = everything[start : start + self.sheets * self._columns]
        self._none = bytes(self._columns)
        numbers = self.room // 8
        self.views = [
            View(np.frombuffer(memory, np.float64, numbers, head + s * self.room)) for s in range(self.sheets)
        ]
        for view in self.views:
            view.settle()

    def first_free(self) -> int:
        """Return the first sheet without marks."""
        columns = self._columns
        for sheet in range(self.sheets):
            if self._marks[sheet * columns : (sheet + 1) * columns] == self._none:
                return sheet
        raise MessageError(f"a sheet of {self.sheets} must be free; readers keep them all.")

    def mark(self, sheet: int, marks: bytes) -> None:
        """Mark a sheet, which has none, for its readers."""
        self._marks[sheet * self._columns : (sheet + 1) * self._columns] = marks

    def strike(self, sheet: int, rank: int) -> None:
        """Strike a reader's mark out."""
        self._marks[sheet * self._columns + rank] = 0


def _head(sheets: int, columns: int) -> int:
    """Return the bytes before the first sheet, whole pages."""
    return -(-(8 * (_PLAN + sheets) + sheets * columns) // _PAGE) * _PAGE
