"""The post: carries the messages of the agents of one process to their neighbors, here and elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

import numpy as np
from threadpoolctl import threadpool_limits

from dcgs.counting import BudgetSpentError
from dcgs.points import Point, frozen
from dcgs.protocol import Inbox, Program
from dcgs.runtime.base import Job, Reply, all_still_send, checked
from dcgs.runtime.guard import wear
from dcgs.runtime.wire import SIZE, Header, Kind, check, is_next, read, without_round, write

if TYPE_CHECKING:
    from dcgs.runtime.mpi import Ranks

# The room for a payload that both ends agree on before the first one; later as much as the largest took.
_ROOM = 1 << 16
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
                traffic.waited[post.hosted] += time.perf_counter() - start
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

    A message goes once to each process where its sender has neighbors. Header and payload travel apart, so
    that neither end copies the payload: the sender's agent rests until it has left.
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
        self._headers = {i: bytearray(SIZE) for i in (*self.hosted, *away)}
        blank = Header(Kind.END, np.dtype(np.float64), (0,), 0, -1)
        self._known: dict[int, tuple[bytes, Header]] = dict.fromkeys(away, (b"", blank))
        self._shelf: dict[int, list[Point]] = {j: [] for j in away}
        self._round = 0
        assert ranks.heart is not None
        ranks.heart.watch(self._peers, lambda rank: _names(ranks.hosts(agents, rank), rank))
        wear(_names(ranks.hosts(agents), ranks.rank))

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
        isend, irecv = self._ranks.isend, self._ranks.irecv
        comes: list[Any] = []
        goes: list[Any] = []
        places: dict[int, Point] = {}
        for j, rank in self._from.items():
            places[j] = self._place(j)
            comes += (irecv(self._headers[j], rank, 2 * j + 2), irecv(places[j], rank, 2 * j + 3))
        for i, ranks in self._to.items():
            message = np.ascontiguousarray(messages[i])
            write(self._headers[i], kind, messages[i], self._round, i)
            data = message.reshape(-1).view(np.uint8)
            first, rest = data[: self._room[i]], data[self._room[i] :]
            for rank in ranks:
                goes += (isend(self._headers[i], rank, 2 * i + 2), isend(first, rank, 2 * i + 3))
                if rest.size:
                    goes.append(isend(rest, rank, 2 * i + 3))
            self._room[i] = max(self._room[i], data.size)
        # What is sent may have to wait until its receiver knows how much room it needs, and so may we.
        self._ranks.wait(comes, self._peers)
        arrays, rests = self._unpacked({j: self._checked(j, kind) for j in self._from}, places)
        self._ranks.wait(goes + rests, self._peers)
        return arrays

    def _unpacked(
        self, told: dict[int, Header], places: dict[int, Point]
    ) -> tuple[dict[int, Point], list[Any]]:
        """Return the messages, and requests for what of them had no room."""
        arrays: dict[int, Point] = {}
        rests: list[Any] = []
        for j, header in told.items():
            room, size, whole = self._room[j], header.length, places[j]
            if size > room:
                whole = np.empty(size // 8)
                data = whole.view(np.uint8)
                data[:room] = places[j].view(np.uint8)[:room]
                rests.append(self._ranks.irecv(data[room:], self._from[j], 2 * j + 3))
                self._room[j], self._shelf[j] = size, [whole]
            arrays[j] = whole[: size // 8].reshape(header.shape)
            arrays[j].flags.writeable = False
        return arrays, rests

    def _place(self, j: int) -> Point:
        """Return room for agent j's next payload: what nobody looks at any more, or new."""
        free = [k for k, count in enumerate(_references(self._shelf[j])) if count == _FREE]
        if free:
            return self._shelf[j][free[0]]
        place = np.empty(-(-self._room[j] // 8))
        self._shelf[j] = [*self._shelf[j][-2:], place]
        return place

    def _checked(self, j: int, kind: Kind) -> Header:
        if is_next(self._headers[j], self._known[j][0], self._round) and self._known[j][1].kind is kind:
            return self._known[j][1]
        who = f"agent {j} (rank {self._from[j]})"
        header = read(self._headers[j], who)
        if {header.kind, kind} == {Kind.MESSAGE, Kind.END}:
            here = [i for i in self.hosted if j in self._neighbors[i]]
            done, sending = ([j], here) if header.kind is Kind.END else (here, [j])
            raise RuntimeError(f"agents {done} returned while agents {sending} still send.")
        check(header, kind, self._round, j, who)
        self._known[j] = without_round(self._headers[j]), header
        return header


def _references(shelf: list[Point]) -> list[int]:
    return [sys.getrefcount(place) for place in shelf]


# What is counted for a place that is only on the shelf.
(_FREE,) = _references([np.empty(0)])


def _names(agents: range, rank: int) -> str:
    if len(agents) == 1:
        return f"agent {agents[0]} (rank {rank})"
    return f"rank {rank} with agents {agents[0]} to {agents[-1]}"
