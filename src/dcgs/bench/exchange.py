"""The cost of a round over MPI, compared with a bare exchange of the same bytes and with the work alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import networkx as nx
import numpy as np

from dcgs.environment import find_mpiexec
from dcgs.parallel import cores
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.runtime import MPI, Job, Traffic

SIZES = {"80 kB": 10_000, "1.2 MB": 150_360, "12.7 MB": 943 * 1682}
"""Numbers in a message: points of the paper's three problems."""
# Bytes that an agent sends to a neighbor in one measurement, and the most rounds of it.
_BYTES = 250_000_000
_MAX_ROUNDS = 100
_WARM_UP = 3
# The uneven case: seconds of work in a round, and how many times that of the first process.
_WORK = 0.005
_TIMES = 5
_UNEVEN_ROUNDS = 10


def measure(ranks: int, repeats: int) -> list[dict[str, Any]]:
    """Start the processes, on a cycle, and return the rows that they measure."""
    return run_ranks("dcgs.bench.exchange", ranks, repeats)


def run_ranks(module: str, ranks: int, *arguments: int) -> list[dict[str, Any]]:
    """Run a module in MPI processes with one thread each; return the rows that its root prints."""
    command = [find_mpiexec(), "-n", str(ranks), sys.executable, "-m", module, *map(str, arguments)]
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | one_thread)
    if done.returncode != 0:
        raise RuntimeError(f"the processes failed with status {done.returncode}: {done.stderr.strip()}")
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def compare(repeats: int, runtime: MPI) -> list[dict[str, Any]]:
    """Measure all cases, in milliseconds per round; every process calls this."""
    return [*(_even(name, repeats, runtime) for name in SIZES), _uneven(repeats, runtime)]


def _even(name: str, repeats: int, runtime: MPI) -> dict[str, Any]:
    numbers, transport = SIZES[name], runtime.transport
    rounds = max(5, min(_MAX_ROUNDS, _BYTES // (8 * numbers)))
    message = np.full(numbers, float(transport.rank))
    bare, ours = _medians(runtime, message, lambda: None, repeats, rounds)
    row = {"message": name, "ranks": transport.size, "cores": cores(), "bare": bare, "ours": ours}
    return row | {"ratio": ours / bare, "difference": ours - bare}


def _uneven(repeats: int, runtime: MPI) -> dict[str, Any]:
    """Give the first process several times the work of the others, all of which wait for it."""
    transport = runtime.transport
    share = _WORK * (_TIMES if transport.rank == 0 else 1)

    def work() -> None:
        end = time.thread_time() + share
        while time.thread_time() < end:
            pass

    bare, ours = _medians(runtime, np.zeros(SIZES["80 kB"]), work, repeats, _UNEVEN_ROUNDS)
    # What the cores need for the work alone: at least the longest share, at least the sum over the cores.
    total = _WORK * (_TIMES + transport.size - 1)
    ideal = 1e3 * max(_WORK * _TIMES, total / min(cores(), transport.size))
    row = {"times": _TIMES, "ranks": transport.size, "cores": cores(), "ideal": ideal}
    return row | {"bare": bare, "ours": ours, "ratio": ours / ideal}


def _medians(
    runtime: MPI, message: Point, work: Callable[[], None], repeats: int, rounds: int
) -> tuple[float, float]:
    """Return milliseconds per round of the bare exchange and of dcgs, measured alternately."""
    times: dict[Callable[..., float], list[float]] = {_bare_seconds: [], _seconds: []}
    for _ in range(repeats):
        for seconds, column in times.items():
            runtime.transport.allreduce_max(np.zeros(1))
            mine = np.array([seconds(runtime, message, work, rounds)])
            column.append(1e3 * float(runtime.transport.allreduce_max(mine)[0]) / rounds)
    return median(times[_bare_seconds]), median(times[_seconds])


def _neighbors(size: int) -> Sequence[tuple[int, ...]]:
    graph = nx.cycle_graph(size) if size > 2 else nx.path_graph(size)
    return [tuple(sorted(graph[i])) for i in range(size)]


def _seconds(runtime: MPI, message: Point, work: Callable[[], None], rounds: int) -> float:
    """Return the seconds of these rounds of a run, after some rounds to warm up."""
    seconds = 0.0

    def program(i: int) -> Program[Point]:
        nonlocal seconds
        start = 0.0
        for k in range(_WARM_UP + rounds):
            if k == _WARM_UP:
                start = time.perf_counter()
            work()
            yield message
        seconds = time.perf_counter() - start
        return message

    size = runtime.transport.size
    runtime.run(Job(program, _neighbors(size), Traffic(size), lambda: True))
    return seconds


def _bare_seconds(runtime: MPI, message: Point, work: Callable[[], None], rounds: int) -> float:
    """Return the seconds of these rounds of Isend, Irecv and Waitall, with reused buffers."""
    comm = runtime.transport.comm
    near = _neighbors(runtime.transport.size)[runtime.transport.rank]
    buffers = {j: np.empty_like(message) for j in near}
    start = 0.0
    for k in range(_WARM_UP + rounds):
        if k == _WARM_UP:
            start = time.perf_counter()
        work()
        requests = [comm.Irecv(buffer, j, 1) for j, buffer in buffers.items()]
        requests += [comm.Isend(message, j, 1) for j in near]
        if requests:
            type(requests[0]).Waitall(requests)
    return time.perf_counter() - start


if __name__ == "__main__":
    _runtime = MPI(timeout=60.0)
    _rows = compare(int(sys.argv[1]), _runtime)
    if _runtime.transport.rank == 0:
        print(json.dumps(_rows))
