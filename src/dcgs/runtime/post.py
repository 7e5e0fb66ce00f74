"""The post: carries the messages of the agents of one process to their neighbors, here and elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
from threadpoolctl import threadpool_limits

from dcgs.counting import BudgetSpentError
from dcgs.points import Point, frozen
from dcgs.protocol import Inbox, Program
from dcgs.runtime.base import Job, Reply, all_still_send, checked
from dcgs.runtime.wire import SIZE, Header, Kind, check, is_next, read, without_round, write

if TYPE_CHECKING:
    from dcgs.runtime.mpi import Ranks

# The room for a payload that both ends agree on before the first one; later as much as the largest took.
_ROOM = 1 << 16
# Up to this room payloads travel in one message with their headers: to copy them costs less than a message.
_INLINE = 1 << 18
# Where a payload begins beside its header, in numbers; a large one at the next page of memory, for copying
# is fastest between places that lie alike.
_START = SIZE // 8
_PAGE = 4096 // 8
_Pieces: TypeAlias = list[tuple[Point, int]]

_NOTHING = np.empty(0)
_NOTHING_YET = np.zeros(1)


def run_hosted(job: Job, ranks: Ranks) -> None:
    """Run the agents of this process until all programs have returned or the run is told to end."""
    post = Post(job, ranks)
    ranks.largest(_NOTHING_YET)  # from here on all watch each other
    programs = {i: job.program(i) for i in post.hosted}
    traffic = job.traffic
    try:
        with threadpool_limits(1, user_api="blas"):
            replies = _advance(programs, None, job)
            while all_still_send(replies):
                sent = {i: checked(i, reply, copy=False) for i, reply in replies.items()}
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
    if job.spent is not None and job.spent(spent is not None):
        raise spent or BudgetSpentError
    job.traffic.step(list(programs), seconds)
    return replies


@final
class Post:
    """The ways of messages between the agents here and their neighbors elsewhere.

    A message goes once to each process where its sender has neighbors. A large payload travels apart from its
    header, so that neither end copies it: the sender's agent rests until it has left.
    """

    def __init__(self, job: Job, ranks: Ranks) -> None:
        agents = len(job.neighbors)
        self._ranks = ranks
        self._neighbors = job.neighbors
        self.hosted = list(ranks.hosts(agents))
        home = {i: rank for rank in range(ranks.size) for i in ranks.hosts(agents, rank)}
        to = {i: sorted({home[j] for j in job.neighbors[i]} - {ranks.rank}) for i in self.hosted}
        self._to = {i: elsewhere for i, elsewhere in to.items() if elsewhere}
        self._here = {i for i in self.hosted if any(home[j] == ranks.rank for j in job.neighbors[i])}
        away = sorted({j for i in self.hosted for j in job.neighbors[i]} - set(self.hosted))
        self._from = {j: home[j] for j in away}
        self._peers = sorted({*self._from.values()})
        self._room = dict.fromkeys((*self.hosted, *away), _ROOM)
        self._envelopes = {i: np.empty(_START + _INLINE // 8) for i in self._to}
        blank = Header(Kind.END, np.dtype(np.float64), (0,), 0, -1)
        self._known: dict[int, tuple[bytes, Header]] = dict.fromkeys(away, (b"", blank))
        self._shelf: dict[int, list[Point]] = {j: [] for j in away}
        self._round = 0
        assert ranks.heart is not None
        ranks.heart.watch(self._peers)
        ranks.call_by(agents)

    def exchange(self, messages: dict[int, Point]) -> dict[int, Inbox]:
        """Send everyone's message; return everyone's inbox, neighbors in increasing order."""
        self._round += 1
        known = self._swap(messages, Kind.MESSAGE)
        known |= {i: frozen(messages[i]) for i in self._here}
        return {i: {j: known[j] for j in self._neighbors[i]} for i in self.hosted}

    def end(self) -> None:
        """Make sure that everyone's neighbors have returned as well."""
        self._round += 1
        self._swap(dict.fromkeys(self.hosted, _NOTHING), Kind.END)

    def _swap(self, messages: dict[int, Point], kind: Kind) -> dict[int, Point]:
        """Send these messages, and return those from elsewhere."""
        places = {j: self._place(j) for j in self._from}
        requests: list[Any] = []
        rests: list[Any] = []
        for j, rank in self._from.items():
            requests += self._receive(j, rank, places[j])
        for i, ranks in self._to.items():
            firsts, rest = self._parts(i, messages[i], kind)
            requests += [self._ranks.isend(part, rank, tag) for rank in ranks for part, tag in firsts]
            rests += [self._ranks.isend(part, rank, tag) for rank in ranks for part, tag in rest]
        self._ranks.wait(requests, self._peers)
        # What had no room is received only now, for its size was not known, by others as by us.
        arrays, more = self._unpacked({j: self._checked(j, places[j], kind) for j in self._from}, places)
        if rests or more:
            self._ranks.wait(rests + more, self._peers)
        return arrays

    def _parts(self, i: int, message: Point, kind: Kind) -> tuple[_Pieces, _Pieces]:
        """Return agent i's message in pieces with their tags: those there is room for, and the rest."""
        room = self._room[i]
        envelope = self._envelopes[i]
        flat = np.ascontiguousarray(message).reshape(-1)
        write(envelope.data.cast("B"), kind, message, self._round, i)
        fits = min(flat.size, room // 8)
        if room <= _INLINE:
            envelope[_START : _START + fits] = flat[:fits]
            firsts = [(envelope[: _START + fits], 2 * i + 2)]
        else:
            firsts = [(envelope[:_START], 2 * i + 2), (flat[:fits], 2 * i + 3)]
        if fits == flat.size:
            return firsts, []
        self._room[i] = flat.nbytes
        return firsts, [(flat[fits:], 2 * i + 3)]

    def _receive(self, j: int, rank: int, place: Point) -> list[Any]:
        """Begin to receive agent j's message, as much of it as there is room for."""
        if self._room[j] <= _INLINE:
            return [self._ranks.irecv(place, rank, 2 * j + 2)]
        header, payload = place[:_START], place[_PAGE:]
        return [self._ranks.irecv(header, rank, 2 * j + 2), self._ranks.irecv(payload, rank, 2 * j + 3)]

    def _unpacked(
        self, told: dict[int, Header], places: dict[int, Point]
    ) -> tuple[dict[int, Point], list[Any]]:
        """Return the messages, and requests for what of them had no room."""
        arrays: dict[int, Point] = {}
        rests: list[Any] = []
        for j, header in told.items():
            room, size, whole = self._room[j] // 8, header.length // 8, places[j]
            start = _start(self._room[j])
            if size > room:
                first = whole[start : start + room]
                self._room[j], start = header.length, _start(header.length)
                whole = np.empty(start + size)
                whole[start : start + room] = first
                rests.append(self._ranks.irecv(whole[start + room :], self._from[j], 2 * j + 3))
                self._shelf[j] = [whole]
            arrays[j] = whole[start : start + size].reshape(header.shape)
            arrays[j].flags.writeable = False
        return arrays, rests

    def _place(self, j: int) -> Point:
        """Return room for agent j's next header and payload: what nobody looks at any more, or new."""
        shelf = self._shelf[j]
        for place, count in enumerate(_references(shelf)):
            if count == _FREE:
                return shelf[place]
        self._shelf[j] = [*shelf[-2:], np.empty(_start(self._room[j]) + self._room[j] // 8)]
        return self._shelf[j][-1]

    def _checked(self, j: int, place: Point, kind: Kind) -> Header:
        came = place.data.cast("B")[:SIZE]
        before, known = self._known[j]
        if is_next(came, before, self._round) and known.kind is kind:
            return known
        who = f"agent {j} (rank {self._from[j]})"
        header = read(came, who)
        if {header.kind, kind} == {Kind.MESSAGE, Kind.END}:
            here = [i for i in self.hosted if j in self._neighbors[i]]
            done, sending = ([j], here) if header.kind is Kind.END else (here, [j])
            raise RuntimeError(f"agents {done} returned while agents {sending} still send.")
        check(header, kind, self._round, j, who)
        self._known[j] = without_round(came), header
        return header


def _start(room: int) -> int:
    return _START if room <= _INLINE else _PAGE


def _references(shelf: list[Point]) -> list[int]:
    return [sys.getrefcount(place) for place in shelf]


# What is counted for a place that is only on the shelf.
(_FREE,) = _references([np.empty(0)])
