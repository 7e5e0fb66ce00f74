"""The post: carries the messages of the agents of one process to their neighbors, here and elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

import numpy as np
from threadpoolctl import threadpool_limits

from dcgs.counting import BudgetSpentError
from dcgs.points import Point, frozen, vdot
from dcgs.protocol import Inbox, Program
from dcgs.runtime.base import Job, Reply, all_still_send, require_finite, typed
from dcgs.runtime.sheets import Writer
from dcgs.runtime.ways import NOTHING, Inlet, Outlet
from dcgs.runtime.wire import Kind, check

if TYPE_CHECKING:
    from dcgs.runtime.mpi import Ranks

# Agents whose messages a process may leave or read in memory: each takes up to four open files. Where one
# process would have more, nothing is shared on its machine.
_MOST_FOLIOS = 100
_NOTHING_YET = np.zeros(1)


def run_hosted(job: Job, ranks: Ranks, sharers: Mapping[int, int]) -> None:
    """Run the agents of this process until all programs have returned or the run is told to end.

    ``sharers`` are the processes that share memory with this one, by rank, with the system's numbers.
    """
    post = Post(job, ranks, sharers)
    ranks.allreduce_max(_NOTHING_YET)  # from here on all watch each other
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
                    ranks.allreduce_max(_NOTHING_YET)  # others may not yet have seen what lies here for them
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
        heard = Counter(home[j] for j in set().union(*others.values()))
        few = all(len(others[rank]) + heard[rank] <= _MOST_FOLIOS for rank in (ranks.rank, *sharers))
        near = sharers if few else {}
        self._outlets: list[Outlet] = []
        for i in self.hosted:
            to = {home[j] for j in job.neighbors[i]} - {ranks.rank}
            self._outlets += [
                Outlet(i, sorted(some), ranks, Writer(some) if shared else None)
                for some, shared in ((to & near.keys(), True), (to - near.keys(), False))
                if some
            ]
        self._here = [i for i in self.hosted if any(home[j] == ranks.rank for j in job.neighbors[i])]
        self._alone = [i for i in self.hosted if not job.neighbors[i]]
        self._inlets = [Inlet(j, home[j], ranks, near.get(home[j])) for j in sorted(others[ranks.rank])]
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
        for i in self._alone:
            require_finite(i, messages[i], vdot(messages[i], messages[i]))
        if len(self.hosted) == 1:  # all that came is for one
            return {self.hosted[0]: known}
        return {i: {j: known[j] for j in self._neighbors[i]} for i in self.hosted}

    def end(self) -> None:
        """Make sure that everyone's neighbors have returned as well."""
        self._round += 1
        self._swap(dict.fromkeys(self.hosted, NOTHING), Kind.END)

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

    def _look_closely(self, inlet: Inlet, kind: Kind, rests: list[Any]) -> None:
        """Read the header of a message that is not like the one before, and make room for its rest."""
        j = inlet.agent
        header = inlet.read()
        if {header.kind, kind} == {Kind.MESSAGE, Kind.END}:
            here = [i for i in self.hosted if j in self._neighbors[i]]
            done, sending = ([j], here) if header.kind is Kind.END else (here, [j])
            raise RuntimeError(f"agents {done} returned while agents {sending} still send.")
        check(header, kind, self._round, j, inlet.who)
        inlet.accept(header, rests)
