"""The post: carries the messages of the agents of one process to their neighbors, here and elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

import numpy as np
from threadpoolctl import threadpool_limits

from dcgs.counting import BudgetSpentError
from dcgs.points import Point, frozen, vdot
from dcgs.protocol import Inbox, Program
from dcgs.runtime.base import Job, Reply, all_still_send, require_finite, typed
from dcgs.runtime.sheets import Reader, View, Writer
from dcgs.runtime.wire import SIZE, Header, Kind, MessageError, check, if_next, lasting, read, rewrite, write

if TYPE_CHECKING:
    from dcgs.runtime.mpi import Ranks

# The room for a payload that both ends agree on before the first one; later as much as the largest took.
_ROOM = 1 << 16
# Up to this room payloads travel in one message with their headers: to copy them costs less than a message.
_INLINE = 1 << 18
# The same where memory is shared; beyond it payloads stay where they are written.
_SHORT = 1 << 12
# Processes have that many folios of others open at most, else nothing is shared.
_MOST_FOLIOS = 200
# Where a payload begins beside its header, in numbers; a large one at the next page of memory, for copying
# is fastest between places that lie alike.
_START = SIZE // 8
_PAGE = 4096 // 8

_NOTHING = np.empty(0)
_NOTHING_YET = np.zeros(1)


def run_hosted(job: Job, ranks: Ranks, sharers: Mapping[int, int]) -> None:
    """Run the agents of this process until all programs have returned or the run is told to end.

    ``sharers`` are the processes that share memory with this one, by rank, with the system's numbers.
    """
    post = Post(job, ranks, sharers)
    ranks.largest(_NOTHING_YET)  # from here on all watch each other
    programs = {i: job.program(i) for i in post.hosted}
    traffic = job.traffic
    try:
        with threadpool_limits(1, user_api="blas"):
            replies = _advance(programs, None, job)
            while all_still_send(replies):
                sent = {i: typed(i, reply) for i, reply in replies.items()}
                start = time.perf_counter()
                inboxes = post.exchange(sent)
                traffic.wait(post.hosted, time.perf_counter() - start)
                traffic.rounds += 1
                for i, message in sent.items():
                    traffic.send(i, len(job.neighbors[i]), message.nbytes)
                del sent
                replies = _advance(programs, inboxes, job)
                del inboxes
                if not job.after_round():
                    ranks.largest(_NOTHING_YET)  # others may not yet have seen what lies here for them
                    return
            post.end()
    finally:
        for program in programs.values():
            with suppress(ValueError):
                program.close()


def _advance(
    programs: dict[int, Program[Point]], inboxes: dict[int, Inbox] | None, job: Job
) -> dict[int, Reply]:
    """Resume every program here with its inbox; return what each then yields."""
    replies: dict[int, Reply] = {}
    seconds: list[float] = []
    spent: BudgetSpentError | None = None
    for i, program in programs.items():
        start = time.perf_counter()
        try:
            replies[i] = next(program) if inboxes is None else program.send(inboxes[i])
        except StopIteration:
            replies[i] = None
        except BudgetSpentError as error:
            spent = error
        except BaseException as error:
            error.add_note(f"raised in agent {i}")
            raise
        seconds.append(time.perf_counter() - start)
    # A step that was cut short is work, too.
    job.traffic.step(list(programs), seconds)
    if job.spent is not None and job.spent(spent is not None):
        raise spent or BudgetSpentError
    return replies


@final
class Post:
    """The ways of messages between the agents here and their neighbors elsewhere.

    A message goes once to each process where its sender has neighbors. A large payload travels apart from its
    header, so that neither end copies it: the sender's agent rests until it has left. To processes that share
    memory with this one it does not travel at all: it is written there once, and all read it in place.
    """

    def __init__(self, job: Job, ranks: Ranks, sharers: Mapping[int, int]) -> None:
        agents = len(job.neighbors)
        self._ranks = ranks
        self._neighbors = job.neighbors
        self.hosted = list(ranks.hosts(agents))
        home = {i: rank for rank in range(ranks.size) for i in ranks.hosts(agents, rank)}
        others = {
            rank: {j for i in ranks.hosts(agents, rank) for j in job.neighbors[i] if home[j] != rank}
            for rank in range(ranks.size)
        }
        few = all(len(others[rank]) <= _MOST_FOLIOS for rank in (ranks.rank, *sharers))
        near = sharers if few else {}
        self._outlets: list[_Outlet] = []
        for i in self.hosted:
            to = {home[j] for j in job.neighbors[i]} - {ranks.rank}
            self._outlets += [
                _Outlet(i, sorted(some), ranks, Writer(some) if shared else None)
                for some, shared in ((to & near.keys(), True), (to - near.keys(), False))
                if some
            ]
        self._here = [i for i in self.hosted if any(home[j] == ranks.rank for j in job.neighbors[i])]
        self._inlets = [_Inlet(j, home[j], ranks, near.get(home[j])) for j in sorted(others[ranks.rank])]
        self._peers = sorted({home[j] for j in others[ranks.rank]})
        self._round = 0
        assert ranks.heart is not None
        ranks.heart.watch(self._peers)
        ranks.call_by(agents)

    def exchange(self, messages: dict[int, Point]) -> dict[int, Inbox]:
        """Send everyone's message; return everyone's inbox, neighbors in increasing order."""
        self._round += 1
        known = self._swap(messages, Kind.MESSAGE)
        for i in self._here:
            known[i] = frozen(messages[i])
            require_finite(i, known[i], vdot(known[i], known[i]))
        if len(self.hosted) == 1:  # all that came is for one
            return {self.hosted[0]: known}
        return {i: {j: known[j] for j in self._neighbors[i]} for i in self.hosted}

    def end(self) -> None:
        """Make sure that everyone's neighbors have returned as well."""
        self._round += 1
        self._swap(dict.fromkeys(self.hosted, _NOTHING), Kind.END)

    def _swap(self, messages: dict[int, Point], kind: Kind) -> dict[int, Point]:
        """Send these messages, and return those from elsewhere."""
        requests: list[Any] = []
        rests: list[Any] = []
        for inlet in self._inlets:
            inlet.begin(requests)
        for outlet in self._outlets:
            outlet.send(messages[outlet.agent], kind, self._round, requests, rests)
        self._ranks.wait(requests, self._peers)
        # What had no room is received only now, for its size was not known, by others as by us.
        for inlet in self._inlets:
            if not inlet.came_as_before(kind, self._round):
                self._look_closely(inlet, kind, rests)
        if rests:
            self._ranks.wait(rests, self._peers)
        return {inlet.agent: inlet.message for inlet in self._inlets}

    def _look_closely(self, inlet: _Inlet, kind: Kind, rests: list[Any]) -> None:
        """Read the header of a message that is not like the one before, and make room for its rest."""
        j = inlet.agent
        header = inlet.read()
        if {header.kind, kind} == {Kind.MESSAGE, Kind.END}:
            here = [i for i in self.hosted if j in self._neighbors[i]]
            done, sending = ([j], here) if header.kind is Kind.END else (here, [j])
            raise RuntimeError(f"agents {done} returned while agents {sending} still send.")
        check(header, kind, self._round, j, inlet.who)
        inlet.accept(header, rests)


@final
class _Outlet:
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
        flat = message.reshape(-1)
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
class _Inlet:
    """Where another agent's messages come in from another process, into places that are used again.

    If that process shares memory with this one, ``pid`` is the system's number of it.
    """

    def __init__(self, agent: int, rank: int, ranks: Ranks, pid: int | None) -> None:
        self.agent = agent
        self.who = f"agent {agent} (rank {rank})"
        self.message: Point = _NOTHING
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
        self.message = _NOTHING
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
