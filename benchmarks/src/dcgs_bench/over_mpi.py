"""What a round over MPI costs beside a bare exchange.

The module is also the program of the processes that it starts.
"""

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

from dcgs.parallel import cores
from dcgs.points import Point
from dcgs.processes.environment import find_mpiexec
from dcgs.protocol import Program
from dcgs.runtime import MPI, Job, Traffic

SIZES = {"80 kB": 10_000, "1.2 MB": 150_360, "12.7 MB": 943 * 1682}
"""Numbers in a message: points of the paper's three problems."""
# Bytes that an agent sends to a neighbor in one measurement, the most rounds of it, and those before it.
_BYTES, _MAX_ROUNDS, _WARM_UP = 250_000_000, 100, 3
# One process with more work: seconds of work in a round, how many times that of the first process, rounds.
_WORK, _TIMES, _UNEVEN_ROUNDS = 0.005, 5, 10


def exchange(ranks: int, repeats: int, seed: int = 0) -> list[dict[str, Any]]:
    """Start the processes, on a cycle, and return the rows that they measure, in milliseconds per round."""
    return run_ranks(ranks, "-m", __name__, repeats)


def run_ranks(ranks: int, *arguments: object) -> list[dict[str, Any]]:
    """Run Python with these arguments in MPI processes of one thread; return the rows of its root."""
    command = [find_mpiexec(), "-n", str(ranks), sys.executable, *map(str, arguments)]
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | one_thread)
    if done.returncode != 0:
        raise RuntimeError(f"the processes failed with status {done.returncode}: {done.stderr.strip()}")
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


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
    _repeats, _runtime = int(sys.argv[1]), MPI(timeout=60.0)
    _rows = [*(_even(name, _repeats, _runtime) for name in SIZES), _uneven(_repeats, _runtime)]
    if _runtime.transport.rank == 0:
        print(json.dumps(_rows))
