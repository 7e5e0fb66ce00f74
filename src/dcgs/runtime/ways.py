"""Ways between agents of different processes: where messages leave, and where they come in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np

from dcgs.points import Point, vdot
from dcgs.runtime.base import require_finite
from dcgs.runtime.sheets import Reader, View, Writer
from dcgs.runtime.wire import SIZE, Header, Kind, MessageError, if_next, lasting, read, rewrite, write

if TYPE_CHECKING:
    from dcgs.runtime.mpi import Ranks

# The room for a payload that both ends agree on before the first one; later as much as the largest took.
_ROOM = 1 << 16
# Up to this room payloads travel in one message with their headers: to copy them costs less than a message.
_INLINE = 1 << 18
# The same where memory is shared; beyond it payloads stay where they are written.
_SHORT = 1 << 12
# Where a payload begins beside its header, in numbers; a large one at the next page of memory, for copying
# is fastest between places that lie alike.
_START = SIZE // 8
_PAGE = 4096 // 8

NOTHING = np.empty(0)
"""What is told by a message that says nothing."""


@final
class Outlet:
    """Where an agent's messages leave to other processes, either all of this machine or none."""

    def __init__(self, agent: int, to: list[int], ranks: Ranks, writer: Writer | None) -> None:
        self.agent = agent
        self._to = to
        self._ranks = ranks
        self._writer = writer
        self._room = _ROOM if writer is None else _SHORT
        self._envelope = np.empty(_START + (_INLINE if writer is None else _SHORT) // 8)
        self._header = self._envelope.data.cast("B")[:SIZE]
        self._letter, self._isend = ranks.letter(self._header), ranks.comm.Isend
        # What the header says of a message that is not sent along, where it need not be written anew.
        self._kind: Kind | None = None
        self._shape: tuple[int, ...] = ()

    def send(self, message: Point, kind: Kind, round: int, requests: list[Any], rests: list[Any]) -> None:
        """Begin to send a message: as much as there is room for, and the rest for later."""
        isend, tag = self._ranks.isend, 2 * self.agent + 2
        flat = np.asarray(message).reshape(-1)
        if self._writer is not None and message.nbytes > _SHORT:
            folio, sheet, squares = self._writer.write(flat, round)
            require_finite(self.agent, message, squares)
            if self._kind is kind and self._shape == message.shape:
                rewrite(self._header, round, folio, sheet)
            else:
                self._kind, self._shape = kind, message.shape
                write(self._header, kind, message, round, self.agent, folio, sheet)
            requests += [self._isend(self._letter, rank, tag) for rank in self._to]
            return
        require_finite(self.agent, message, vdot(message, message))
        self._kind = None
        write(self._header, kind, message, round, self.agent)
        fits = min(flat.size, self._room // 8)
        if self._room <= _INLINE:
            first = self._envelope[: _START + fits]
            first[_START:] = flat[:fits]
            requests += [isend(first, rank, tag) for rank in self._to]
        else:
            flat = np.ascontiguousarray(flat)
            first = flat[:fits]
            requests += [isend(self._header, rank, tag) for rank in self._to]
            requests += [isend(first, rank, tag + 1) for rank in self._to]
        if fits < flat.size:
            flat = np.ascontiguousarray(flat)
            self._room = flat.nbytes
            rests += [isend(flat[fits:], rank, tag + 1) for rank in self._to]


@final
class Inlet:
    """Where another agent's messages come in from another process, into places that are used again.

    If that process shares memory with this one, ``pid`` is the system's number of it.
    """

    def __init__(self, agent: int, rank: int, ranks: Ranks, pid: int | None) -> None:
        self.agent = agent
        self.who = f"agent {agent} (rank {rank})"
        self.message: Point = NOTHING
        self._rank = rank
        self._ranks = ranks
        self._irecv = ranks.comm.Irecv
        self._reader = None if pid is None else Reader(self.who, pid, ranks.rank)
        self._room = _ROOM if pid is None else _SHORT
        self._places: list[_Place] = [_Place(self._room, ranks)]
        self._place = self._places[0]
        self._header = Header(Kind.END, np.dtype(np.float64), (0,), 0, -1)
        self._like = b""

    def begin(self, requests: list[Any]) -> None:
        """Begin to receive the next message, as much of it as there is room for."""
        self.message = NOTHING
        if self._reader is not None:
            self._reader.strike()
        place = self._place
        if not place.view.is_free():
            place = self._place = self._other()
        tag = 2 * self.agent + 2
        requests.append(self._irecv(place.letter, self._rank, tag))
        if place.payload is not None:
            requests.append(self._ranks.irecv(place.payload, self._rank, tag + 1))

    def came_as_before(self, kind: Kind, round: int) -> bool:
        """Return whether the header that came is that of the message before, but for the round."""
        where = if_next(self._place.header, self._like, round)
        if where is None or self._header.kind is not kind:
            return False
        self._take(*where, round)
        return True

    def read(self) -> Header:
        """Return what the header says that came."""
        return read(self._place.header, self.who)

    def accept(self, header: Header, rests: list[Any]) -> None:
        """Take a message as it is announced; add a request for what of it had no room."""
        self._header, self._like = header, lasting(self._place.header)
        old, room = self._place, self._room // 8
        if header.sheet < 0 and header.length > self._room:
            self._room = header.length
            self._place = _Place(self._room, self._ranks)
            self._places = [self._place]
            self._place.view.body[:room] = old.view.body[:room]
            rest = self._place.view.body[room:]
            rests.append(self._ranks.irecv(rest, self._rank, 2 * self.agent + 3))
        self._take(header.folio, header.sheet, header.round)

    def _take(self, folio: int, sheet: int, round: int) -> None:
        """Take the message that came, from where it lies."""
        if sheet < 0:
            self.message = self._place.view.shaped(self._header)
        elif self._reader is not None:
            self.message = self._reader.read(folio, sheet, round, self._header)
        else:
            raise MessageError(f"{self.who} left a message in memory that this process does not share.")

    def _other(self) -> _Place:
        """Return a place that nobody looks at any more, or a new one."""
        for place in self._places:
            if place.view.is_free():
                return place
        self._places = [*self._places[-2:], _Place(self._room, self._ranks)]
        return self._places[-1]


@final
class _Place:
    """Room for a header and a payload."""

    def __init__(self, room: int, ranks: Ranks) -> None:
        start = _START if room <= _INLINE else _PAGE
        whole = np.empty(start + room // 8)
        self.view = View(whole, start)
        self.header = whole.data.cast("B")[:SIZE]
        # What is received first, and what apart from it.
        self.letter = ranks.letter(whole if room <= _INLINE else whole[:_START])
        self.payload = None if room <= _INLINE else self.view.body
        del whole
        self.view.settle()
