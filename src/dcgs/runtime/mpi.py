"""MPI: every process runs some agents; the one file that knows mpi4py."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.parallel import cores
from dcgs.runtime.base import IN_ALL, Job, ProcessGroup, RunAbortedError, Runtime
from dcgs.runtime.company import Company
from dcgs.runtime.guard import end_all, wear
from dcgs.runtime.heart import Heart
from dcgs.runtime.machine import sharers
from dcgs.runtime.post import run_hosted
from dcgs.runtime.pulse import MessagePulse

# Sleeps between looks: short ones first, so that a message that is on its way is not missed for long, longer
# ones for a neighbor that computes.
_SHORTEST, _LONGEST, _GROWTH = 20e-6, 1e-3, 1.3
# Seconds without a sleep, in which others get the core if they want it. Where processes outnumber cores, only
# if not so many waits before were all longer: then they wait for messages, and not for one that computes.
_PLAIN = 2e-3
_OFTEN = 3
_give_way = getattr(os, "sched_yield", partial(time.sleep, 0.0))
# Seconds for all to arrive: nobody knows how long some take to read their data.
_ARRIVAL = 3600.0
# Seconds between two looks at whether others are still there.
_LOOK = 0.05


@final
@dataclass(frozen=True)
class MPI(Runtime):
    """Run the agents in the processes that ``mpiexec`` or ``srun`` started, each some of them.

    Agents are dealt out in blocks, as even as possible: one agent to a process where there are as many of
    both. A process that gives no sign of life for ``timeout`` seconds ends the run in all processes; one that
    computes does give signs, by a thread of its own. ``comm`` is an mpi4py communicator, by default of
    all processes. If ``shared``, those of one machine leave large messages for each other in memory that they
    share, where the system lets them; else, and between machines, all are sent.
    """

    timeout: float = 10.0
    comm: Any = None
    shared: bool = True

    def __post_init__(self) -> None:
        number = isinstance(self.timeout, Real) and not isinstance(self.timeout, bool)
        if not (number and 0.0 < self.timeout < float("inf")):
            raise ValueError(f"timeout must be a positive number of seconds; got {self.timeout!r}.")

    def __repr__(self) -> str:
        return f"MPI(timeout={self.timeout!r}{'' if self.shared else ', shared=False'})"

    @property
    def ranks(self) -> Ranks:
        """The processes, met at the first call and kept."""
        return _met(self.comm, float(self.timeout))

    def run(self, job: Job) -> None:
        run_hosted(job, self.ranks, self.ranks.sharers if self.shared else {})

    def hosts(self, agents: int) -> range:
        ranks = self.ranks
        if ranks.size > agents:
            raise ValueError(
                f"there must be at least one agent for each process; got {agents} agents and "
                f"{ranks.size} processes. Start {agents}, or fewer."
            )
        ranks.call_by(agents)
        return ranks.hosts(agents)

    def group(self) -> ProcessGroup:
        return Company(self.ranks)


@final
class Ranks:
    """The processes of a communicator: what they can do, and how they wait."""

    def __init__(self, comm: Any, timeout: float) -> None:
        mpi = _mpi4py()
        self._mpi = mpi
        self.rank: int = comm.rank
        self.size: int = comm.size
        self.timeout = timeout
        self.heart: Heart | None = None
        self.comm = self._duplicate(comm)
        near = comm.Split_type(mpi.COMM_TYPE_SHARED)
        self._crowded = near.size > cores()
        self.sharers = sharers(near, self.rank)
        near.Free()
        quick = self._duplicate(comm)
        self.heart = Heart(MessagePulse(quick, mpi), timeout)
        self._byte = mpi.BYTE
        self._testall = mpi.Request.Testall
        self._pending: Sequence[Any] = ()
        self._failed = False
        self._long = 0
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if self.size > 1 and mpi.Query_thread() >= mpi.THREAD_MULTIPLE:
            self._thread = threading.Thread(target=self._beat, name="dcgs-heart", daemon=True)
            self._thread.start()
        atexit.register(self._leave)

    def hosts(self, agents: int, rank: int | None = None) -> range:
        """Return the agents that a process runs, by default this one."""
        r = self.rank if rank is None else rank
        return range(agents * r // self.size, agents * (r + 1) // self.size)

    def call_by(self, agents: int) -> None:
        """Call processes by the agents they run, in what is said of them."""
        assert self.heart is not None
        self.heart.name = lambda rank: _names(self.hosts(agents, rank), rank)
        wear(self.heart.name(self.rank))

    def letter(self, data: Any) -> Any:
        """Return a buffer as what ``Isend`` and ``Irecv`` take: its plain bytes."""
        return [data, self._byte]

    def isend(self, data: Any, rank: int, tag: int) -> Any:
        """Begin to send plain bytes."""
        return self.comm.Isend(self.letter(data), rank, tag)

    def irecv(self, data: Any, rank: int, tag: int) -> Any:
        """Begin to receive plain bytes, as many as there is room for at most."""
        return self.comm.Irecv(self.letter(data), rank, tag)

    def broadcast(self, data: Any) -> None:
        """Give the first process's bytes to all."""
        self.wait([self.comm.Ibcast(self.letter(data), 0)])

    def allreduce_max(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the largest of each number over all processes."""
        mine = np.ascontiguousarray(values, dtype=np.float64)
        out = np.empty_like(mine)
        self.wait([self.comm.Iallreduce(mine, out, self._mpi.MAX)])
        return out

    def wait(self, requests: Sequence[Any], peers: Sequence[int] = ()) -> None:
        """Wait until all are done, gently; raise if it turns out that they never will be.

        ``peers`` are the processes waited for, all that are watched if none are given.
        """
        done = self._testall
        if done(requests):
            self._long = 0
            return
        self._pending = requests
        now = start = time.monotonic()
        spin = start + (_PLAIN if self._long < _OFTEN or not self._crowded else 0.0)
        sleep, look = _SHORTEST, start + _LOOK
        while not done(requests):
            now = time.monotonic()
            if now < spin:
                _give_way()
            else:
                time.sleep(sleep)
                sleep = min(sleep * _GROWTH, _LONGEST)
                if now >= look:
                    look = now + _LOOK
                    self._look(peers)
        self._pending = ()
        self._long = 0 if now - start < _PLAIN else self._long + 1

    def _look(self, peers: Sequence[int]) -> None:
        """See whether who is waited for is still there."""
        assert self.heart is not None
        if self._thread is None:
            self.heart.pulse()
        self.heart.check(peers)

    def abandon(self) -> None:
        """Give up what is under way after a failure, as far as that can be done."""
        self._failed = True
        for request in self._pending:
            with suppress(Exception):
                request.Cancel()
        end = time.monotonic() + 0.5
        while self._pending and time.monotonic() < end:
            self._pending = [request for request in self._pending if not request.Test()]
            time.sleep(_LONGEST)

    def _duplicate(self, comm: Any) -> Any:
        copy, request = comm.Idup()
        end = time.monotonic() + _ARRIVAL
        while not request.Test():
            if time.monotonic() > end:
                raise RunAbortedError(
                    f"all {comm.size} processes must get to the run within {_ARRIVAL:.0f} s; some have not. "
                    "See what they do instead."
                )
            time.sleep(_LONGEST)
        return copy

    def _beat(self) -> None:
        assert self.heart is not None
        while not self._stop.wait(self.heart.period):
            self.heart.pulse()

    def _leave(self) -> None:
        """Say goodbye before MPI ends; after a failure it might never end, so end it by force."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._mpi.Is_finalized():
            return
        assert self.heart is not None
        self.heart.leave()
        if self._failed and self.size > 1:
            end_all()


def _met(comm: Any, timeout: float) -> Ranks:
    """Return the processes of a communicator, the same each time."""
    global _keyval
    mpi = _mpi4py()
    if comm is None:
        comm = mpi.COMM_WORLD
    if _keyval is None:
        _keyval = mpi.Comm.Create_keyval()
    ranks = comm.Get_attr(_keyval)
    if ranks is None:
        ranks = Ranks(comm, timeout)
        comm.Set_attr(_keyval, ranks)
    assert isinstance(ranks, Ranks)
    ranks.timeout = timeout
    assert ranks.heart is not None
    ranks.heart.timeout = timeout
    return ranks


_keyval: int | None = None


def _mpi4py() -> Any:
    """Return mpi4py's MPI, if it is there and was started by its own mpiexec."""
    try:
        with warnings.catch_warnings():
            # What is suspicious to mpi4py is refused below.
            warnings.filterwarnings("ignore", "suspicious MPI execution environment", RuntimeWarning)
            from mpi4py import MPI as mpi  # noqa: N811
    except ImportError as error:
        raise ImportError("MPI needs mpi4py; install it with: pip install 'dcgs[mpi]'.") from error
    _check_launcher(mpi.COMM_WORLD.size, mpi.Get_library_version())
    return mpi


_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "MV2_COMM_WORLD_SIZE")
"""Variables in which an mpiexec says how many processes it started."""


def _check_launcher(size: int, library: str) -> None:
    for name in _SIZES:
        told = os.environ.get(name, "")
        if told.isdigit() and int(told) != size:
            own = Path(sys.executable).with_name("mpiexec")
            error = RuntimeError(
                f"the mpiexec must be that of mpi4py's own MPI ({library.splitlines()[0].strip()}); this one "
                f"started {told} processes ({name}), and mpi4py sees {size}. "
                f"Use {own if own.exists() else 'the one it came with'}."
            )
            error.add_note(IN_ALL)
            raise error


def _names(agents: range, rank: int) -> str:
    if len(agents) == 1:
        return f"agent {agents[0]} (rank {rank})"
    return f"rank {rank} with agents {agents[0]} to {agents[-1]}"
