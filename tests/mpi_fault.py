"""Runs over MPI in which agent 2 fails, for the tests to start under mpiexec.

``mpi_fault.py survived``: faults after which all processes go on, one after the other. Every process writes
lines ``fault | rank | error | scope | message``. ``mpi_fault.py FAULT``: one fault, as a command.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import networkx as nx
import numpy as np

import dcgs
from dcgs.methods import Agent
from dcgs.points import Point
from dcgs.processes.watchdog import claim_line
from dcgs.protocol import Program
from dcgs.runtime import run_as_rank, scope_of
from dcgs.runtime.encoding import Buffer
from dcgs.runtime.transport import Transfers, Transport
from dcgs.runtime.wire import BundleKind, Header
from dcgs.sets import ConvexSet

AGENTS = 3
TIMEOUT = 3.0
SURVIVED = (
    *("computes for long", "raises", "sends nan", "sends nan unchecked", "withholds messages"),
    *("sends a wrong length", "sends a wrong round"),  # the last one changes the class of headers
)


# Those of all runs; that of the present one is the last.
transports: list[Transport] = []


@final
@dataclass(frozen=True)
class Failing(dcgs.Method):
    """A method that only sends messages; agent 2 fails after ten rounds."""

    fault: str
    rounds_per_iteration = 1

    def incompatibility(self, objectives: Mapping[int, dcgs.Objective], X: ConvexSet) -> str | None:
        return None

    def program(self, agent: Agent) -> Program[Point]:
        x = agent.x0
        for k in range(1, agent.iterations + 1):
            inbox = yield x
            assert all(len(theirs) for theirs in inbox.values())
            if k == 10 and agent.index == 2:
                x = fail(self.fault, x)
            agent.observe(k, agent.x0)
        return agent.x0


def fail(fault: str, x: Point) -> Point:
    """Fail; or do what must not be taken for a failure."""
    if fault == "raises":
        raise ZeroDivisionError("something was divided by zero")
    if fault == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "is stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault == "computes for long":
        time.sleep(1.5 * TIMEOUT)
    if fault == "sends nan":
        return np.full_like(x, np.nan)
    if fault == "sends nan unchecked":
        change_transfers(lambda sends: changed(sends, slice(-8, None), np.full(1, np.nan).view(np.uint8)))
    if fault == "withholds messages":
        change_transfers(lambda sends: ())
    if fault == "sends a wrong length":
        change_transfers(lambda sends: changed(sends, slice(26, 27), np.ones(1, np.uint8)))
    if fault == "sends a wrong round":
        send_round_99()
    return x


def send_round_99() -> None:
    """Write another round into all headers from now on."""
    right = Header.write

    def wrong(header: Header, buffer: Buffer) -> None:
        right(header._replace(round=99) if header.kind is BundleKind.MESSAGE else header, buffer)

    type.__setattr__(Header, "write", wrong)


def change_transfers(change: Callable[[Transfers], Transfers]) -> None:
    """Change all that this process sends from now on, after all checks of the sender."""
    transport = transports[-1]
    right = transport.transfer

    def wrong(sends: Transfers, receives: Transfers, peers: Sequence[int] = ()) -> None:
        right(change(sends), receives, peers)

    vars(transport)["transfer"] = wrong


def changed(sends: Transfers, where: slice, value: Buffer) -> Transfers:
    """Return what is sent with some other bytes."""
    for each in sends:
        each.buffer[where] = value
    return sends


def run(fault: str, comm: Any = None) -> None:
    """Run until the fault, or to the end."""
    objectives = [dcgs.LeastSquares(np.eye(7), np.full(7, float(i))) for i in range(AGENTS)]
    runtime = dcgs.MPI(timeout=TIMEOUT, comm=comm)
    transports.append(runtime.transport)
    graph = nx.path_graph(AGENTS)
    dcgs.minimize(objectives, dcgs.L1Ball(7), graph, Failing(fault), iterations=30, every=0, runtime=runtime)


def survived() -> None:
    """Run the faults that leave all processes alive, each over a communicator of its own."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    assert dcgs.MPI().hosts(AGENTS)
    maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if "/mpich_shm_" in line]
    named = [line for line in maps if not line.endswith("(deleted)")]
    os.write(1, f"shared memory | {world.rank} | {len(maps)} mapped, {len(named)} named\n".encode())
    for fault in SURVIVED:
        line = ("done", "", "")
        try:
            run(fault, world.Dup())
        except Exception as error:
            line = (type(error).__name__, scope_of(error).name, str(error))
        os.write(1, (" | ".join((fault, str(world.rank), *line)) + "\n").encode())
        arrived = world.Ibarrier()  # nobody exits, and ends the others, before all have written
        while not arrived.Test():
            time.sleep(0.01)
    claim_line()  # all errors are written: no process waits for another one to print its own


def main() -> int:
    """Run one fault as a command does."""
    run(sys.argv[1])
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "survived":
        survived()
    else:
        run_as_rank(main)
