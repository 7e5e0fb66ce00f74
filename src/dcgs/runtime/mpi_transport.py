"""The transport over mpi4py, which only this file imports: rounds, asynchronous messages, heartbeats."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import time
import warnings
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

import dcgs.processes.watchdog as watchdog
from dcgs.parallel import cores
from dcgs.processes.environment import find_mpiexec, size, unlink_mapped, wrong_size
from dcgs.processes.supervisor import raise_on_signals, set_name
from dcgs.runtime.encoding import Buffer
from dcgs.runtime.errors import abort_all, mark_as_common
from dcgs.runtime.heartbeat import Heartbeat
from dcgs.runtime.transport import Transfers, Transport, hosted_by

# Seconds of the first and the longest sleep between two tests for completion, and the growth in between.
FIRST_SLEEP, LONGEST_SLEEP, GROWTH = 20e-6, 1e-3, 1.3
# Seconds in which a wait does not sleep, but yields its core to other processes between two tests.
_SPIN = 2e-3
# If processes outnumber cores, a wait sleeps at once after this number of consecutive waits longer than
# _SPIN. The process waited for is computing, and needs the core.
_LONG_WAITS = 3
_yield_core = getattr(os, "sched_yield", partial(time.sleep, 0.0))
# Seconds between two checks of the heartbeat during a wait.
CHECK = 0.05
# Seconds of a wait after which a process tells others that it waits for their messages.
_LONG = 1.0
# Seconds in which all processes must have started MPI, and how many more for each process.
_START, _START_EACH = 120.0, 2.0
# Bytes of freed memory that a process keeps, and the largest block that it keeps (the most glibc allows).
_KEPT, _LARGEST_KEPT = 1 << 28, 1 << 25


@final
class MPITransport(Transport):
    """The processes of a communicator."""

    def __init__(self, comm: Any, timeout: float) -> None:
        mpi = _mpi4py()
        self.rank = comm.rank
        self.size = comm.size
        self.mpi = mpi
        self.comm = _duplicate(comm)
        self.heartbeat = Heartbeat(_MPIHeartbeatTransport(_duplicate(comm), mpi), timeout)
        here = comm.Split_type(mpi.COMM_TYPE_SHARED)
        self._crowded = here.size > cores()
        here.Free()
        self.pending: Sequence[Any] = ()
        self._abandoned = False
        self._long_waits = 0
        if self.size > 1:
            _keep_freed_memory()
            if mpi.Query_thread() >= mpi.THREAD_MULTIPLE:
                self.heartbeat.start_thread()
        atexit.register(self._exit)
        raise_on_signals()  # until now a signal ended this process at once: others may have been missing

    def name_by_agents(self, agents: int) -> None:
        """Name processes in errors by the agents that they host."""
        self.heartbeat.name = lambda rank: _name(hosted_by(rank, self.size, agents), rank)
        set_name(self.heartbeat.name(self.rank))

    def transfer(self, sends: Transfers, receives: Transfers, peers: Sequence[int] = ()) -> None:
        comm, byte = self.comm, self.mpi.BYTE
        requests = [comm.Irecv([buffer, byte], rank, tag) for buffer, rank, tag in receives]
        requests += [comm.Isend([buffer, byte], rank, tag) for buffer, rank, tag in sends]
        self._wait(requests, peers, [transfer.rank for transfer in receives])

    def broadcast(self, buffer: Buffer) -> None:
        self._wait([self.comm.Ibcast([buffer, self.mpi.BYTE], 0)])

    def allreduce_max(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        mine = np.ascontiguousarray(values, dtype=np.float64)
        out = np.empty_like(mine)
        self._wait([self.comm.Iallreduce(mine, out, self.mpi.MAX)])
        return out

    def _wait(self, requests: Sequence[Any], peers: Sequence[int] = (), senders: Sequence[int] = ()) -> None:
        """Wait until all requests are complete; raise if the heartbeat reports a failure.

        The first requests are those to receive, from these ``senders``.
        """
        testall = self.mpi.Request.Testall
        if testall(requests):
            self._long_waits = 0
            return
        self.pending = requests
        now = start = time.monotonic()
        spin_end = start + (0.0 if self._crowded and self._long_waits >= _LONG_WAITS else _SPIN)
        sleep, next_check = FIRST_SLEEP, start + CHECK
        while not testall(requests):
            now = time.monotonic()
            if now < spin_end:
                _yield_core()
                continue
            time.sleep(sleep)
            sleep = min(sleep * GROWTH, LONGEST_SLEEP)
            if now >= next_check:
                next_check = now + CHECK
                if now - start > _LONG:
                    self.heartbeat.await_from(_awaited(requests, senders))
                self.heartbeat.check(peers)
        if now - start > _LONG:
            self.heartbeat.await_from(())
        self.pending = ()
        self._long_waits = 0 if now - start < _SPIN else self._long_waits + 1

    def abandon(self) -> None:
        self._abandoned = True
        for request in self.pending:
            with suppress(Exception):
                request.Cancel()
        end = time.monotonic() + 0.5
        while self.pending and time.monotonic() < end:
            self.pending = [request for request in self.pending if not request.Test()]
            time.sleep(LONGEST_SLEEP)

    def _exit(self) -> None:
        """Announce the exit before MPI finalizes. After a failure MPI might wait forever, so abort it."""
        watchdog.leaves()
        self.heartbeat.stop_thread()
        if self.mpi.Is_finalized():
            return
        self.heartbeat.announce_exit()
        if self._abandoned and self.size > 1:
            abort_all()


@final
class _MPIHeartbeatTransport:
    """The small messages of the heartbeat, over a communicator of their own."""

    def __init__(self, comm: Any, mpi: Any) -> None:
        self.rank: int = comm.rank
        self.size: int = comm.size
        self._comm = comm
        self._mpi = mpi
        self._sent: dict[tuple[int, int], Any] = {}

    def send(self, text: bytes, rank: int, tag: int) -> None:
        last = self._sent.get((rank, tag))
        if last is None or last[0].Test():
            data = bytearray(text)
            self._sent[rank, tag] = self._comm.Isend([data, self._mpi.BYTE], rank, tag), data

    def receive(self) -> tuple[bytes, int, int] | None:
        status = self._mpi.Status()
        any_message = self._mpi.ANY_SOURCE, self._mpi.ANY_TAG, status
        # The first probe may only let MPI make progress; the second then finds the message.
        if not (self._comm.Iprobe(*any_message) or self._comm.Iprobe(*any_message)):
            return None
        data = bytearray(status.Get_count(self._mpi.BYTE))
        self._comm.Recv([data, self._mpi.BYTE], status.source, status.tag)
        return bytes(data), status.source, status.tag

    def flush(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not all(request.Test() for request, _ in self._sent.values()):
            time.sleep(LONGEST_SLEEP)


_keyval: int | None = None


def transport_of(comm: Any, timeout: float, start_timeout: float | None = None) -> MPITransport:
    """Return the transport of a communicator, the same each time.

    The first call waits for all processes; ``start_timeout`` and the watchdog bound that wait.
    """
    world = sys.modules["mpi4py.MPI"].COMM_WORLD if _keyval is not None else None
    transport = None if world is None else (comm or world).Get_attr(_keyval)
    if transport is None:
        transport = _joined(comm, timeout, start_timeout)
    assert isinstance(transport, MPITransport)
    transport.heartbeat.timeout = timeout
    return transport


def _joined(comm: Any, timeout: float, start_timeout: float | None) -> MPITransport:
    """Start MPI, and return a new transport when all processes have met; the watchdog knows before."""
    global _keyval
    ranks: Sequence[int] = range(size() or 1)
    if comm is not None:
        world = sys.modules["mpi4py.MPI"].COMM_WORLD
        ranks = comm.group.Translate_ranks(None, world.group)
    limit = _START + _START_EACH * len(ranks) if start_timeout is None else start_timeout
    watchdog.start()
    watchdog.waits(ranks, timeout, limit)
    try:
        mpi = _mpi4py()
        unlink_mapped()
        comm = comm or mpi.COMM_WORLD
        transport = MPITransport(comm, timeout)
    except BaseException:
        watchdog.waits_no_more()
        raise
    watchdog.runs()
    if _keyval is None:
        _keyval = mpi.Comm.Create_keyval()
    comm.Set_attr(_keyval, transport)
    return transport


def _mpi4py() -> Any:
    """Return mpi4py's MPI; raise if it is not installed, or if the mpiexec of another MPI started us."""
    try:
        with warnings.catch_warnings():
            # check_launcher refuses the case that mpi4py warns about.
            warnings.filterwarnings("ignore", "suspicious MPI execution environment", RuntimeWarning)
            from mpi4py import MPI as mpi  # noqa: N811
    except ImportError as error:
        raise ImportError("MPI needs mpi4py; install it with: pip install 'dcgs[mpi]'.") from error
    check_launcher(mpi.COMM_WORLD.size, mpi.Get_library_version())
    return mpi


def check_launcher(size: int, library: str) -> None:
    """Raise if the mpiexec of another MPI started this process."""
    wrong = wrong_size(size)
    if wrong is not None:
        name, started = wrong
        error = RuntimeError(
            f"the mpiexec must be that of mpi4py's own MPI ({library.splitlines()[0].strip()}); this one "
            f"started {started} processes ({name}), and mpi4py sees {size}. Use {find_mpiexec()}."
        )
        mark_as_common(error)
        raise error


def _duplicate(comm: Any) -> Any:
    """Return a copy of a communicator. All its processes call this; it sleeps until the last of them does."""
    copy, request = comm.Idup()
    while not request.Test():
        time.sleep(LONGEST_SLEEP)
    return copy


def _awaited(requests: Sequence[Any], senders: Sequence[int]) -> list[int]:
    """Return from whom messages are awaited, if all of this process has been sent; else nobody."""
    if not all(request.Get_status() for request in requests[len(senders) :]):
        return []
    return [rank for request, rank in zip(requests, senders, strict=False) if not request.Get_status()]


def _name(agents: range, rank: int) -> str:
    if len(agents) == 1:
        return f"agent {agents[0]} (rank {rank})"
    return f"rank {rank} with agents {agents[0]} to {agents[-1]}"


def _keep_freed_memory() -> None:
    """Let glibc keep the memory of freed buffers.

    Every message is received into a new buffer. By default glibc returns a large buffer to the system when
    it is freed, and the next one costs a page fault for each page, more than the message itself.
    """
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-1, _KEPT)  # M_TRIM_THRESHOLD
        mallopt(-3, _LARGEST_KEPT)  # M_MMAP_THRESHOLD


# Tags 0 and 1 are those of collective operations and of rounds.
_TAG = 2


@final
class MPIMailTransport:
    """The messages of an asynchronous run: none of its methods waits for another process."""

    def __init__(self, transport: MPITransport) -> None:
        self.rank, self.size = transport.rank, transport.size
        self._transport = transport
        self._sends: list[tuple[Any, Buffer]] = []
        self._receives: list[tuple[Any, Buffer, int]] = []
        self._sleep, self._next_check = FIRST_SLEEP, 0.0

    def begin(self, peers: Sequence[int]) -> None:
        self._transport.heartbeat.watch(peers)
        self._transport.allreduce_max(np.zeros(1))  # from here on all processes watch their neighbors

    def send(self, buffer: Buffer, rank: int) -> None:
        request = self._transport.comm.Isend([buffer, self._transport.mpi.BYTE], rank, _TAG)
        self._sends.append((request, buffer))

    def receive(self) -> tuple[Buffer, int] | None:
        comm, mpi = self._transport.comm, self._transport.mpi
        status = mpi.Status()
        while (message := comm.Improbe(mpi.ANY_SOURCE, _TAG, status)) is not None:
            buffer: Buffer = np.empty(status.Get_count(mpi.BYTE), dtype=np.uint8)
            self._receives.append((message.Irecv([buffer, mpi.BYTE]), buffer, status.source))
        for place, (request, buffer, rank) in enumerate(self._receives):
            if request.Test():
                del self._receives[place]
                self._sleep = FIRST_SLEEP
                return buffer, rank
        return None

    def is_sent(self) -> bool:
        self._sends = [pending for pending in self._sends if not pending[0].Test()]
        return not self._sends

    def check(self, is_idle: bool, senders: Collection[int] = ()) -> None:
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + CHECK
            is_waiting = self.is_sent() and is_idle
            self._transport.pending = [request for request, _ in self._sends]
            self._transport.heartbeat.await_from(senders if is_waiting else ())
            self._transport.heartbeat.check(())
        if is_idle:
            time.sleep(self._sleep)
            self._sleep = min(self._sleep * GROWTH, LONGEST_SLEEP)
