"""What a round over MPI costs beyond the bare exchange of the same bytes, and beyond the work of all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, final

import networkx as nx
import numpy as np

from dcgs.parallel import cores
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.runtime import MPI, Job, Traffic

SIZES = {"80 kB": 10_000, "1.2 MB": 150_360, "12.7 MB": 943 * 1682}
"""Numbers in a message: points of the paper's three problems."""
# Rounds that are timed at a time, by the bytes of a message, and the seconds of work in the uneven case.
_BYTES = 250_000_000
_MOST_ROUNDS = 100
_WARM = 3
_WORK = 0.005
_TIMES = 5


@final
@dataclass(frozen=True)
class Exchange:
    """Milliseconds of one round: of a bare exchange, of ours, and of ours if no memory is shared."""

    message: str
    ranks: int
    cores: int
    bare: float
    ours: float
    sent: float

    @property
    def ratio(self) -> float:
        """Ours over the bare exchange."""
        return self.ours / self.bare


@final
@dataclass(frozen=True)
class Uneven:
    """Milliseconds of one round in which one process has several times the work of the others."""

    times: int
    ranks: int
    cores: int
    ideal: float
    bare: float
    ours: float

    @property
    def ratio(self) -> float:
        """Ours over what the cores need for the work alone."""
        return self.ours / self.ideal


def measure(ranks: int, repeats: int) -> list[dict[str, Any]]:
    """Start so many processes on a cycle, and return what they measured."""
    command = [_mpiexec(), "-n", str(ranks), sys.executable, "-m", "dcgs.bench.exchange", str(repeats)]
    alone = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | alone)
    if done.returncode != 0:
        raise RuntimeError(f"the processes failed with status {done.returncode}: {done.stderr.strip()}")
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def _mpiexec() -> str:
    own = Path(sys.executable).with_name("mpiexec")
    return str(own) if own.exists() else "mpiexec"


def compare(repeats: int, runtime: MPI) -> list[dict[str, Any]]:
    """Measure all cases in the processes that were started; every one of them calls this."""
    rows: list[dict[str, Any]] = []
    for name, numbers in SIZES.items():
        exchange = _exchange(name, numbers, repeats, runtime)
        rows.append(asdict(exchange) | {"ratio": exchange.ratio})
    uneven = _uneven(repeats, runtime)
    rows.append(asdict(uneven) | {"ratio": uneven.ratio})
    return rows


def _exchange(name: str, numbers: int, repeats: int, runtime: MPI) -> Exchange:
    ranks = runtime.ranks
    rounds = max(5, min(_MOST_ROUNDS, _BYTES // (8 * numbers)))
    message = np.full(numbers, float(ranks.rank))
    bare = _Bare(runtime, message)
    ways = (
        lambda: bare.rounds(rounds),
        lambda: _ours(runtime, rounds, lambda: message),
        lambda: _ours(replace(runtime, shared=False), rounds, lambda: message),
    )
    plain, ours, sent = _medians(ways, repeats, rounds, runtime)
    return Exchange(name, ranks.size, cores(), plain, ours, sent)


def _uneven(repeats: int, runtime: MPI) -> Uneven:
    """Let the first process have more work than the others, all of which wait for it in the end."""
    ranks = runtime.ranks
    rounds = 10
    message = np.zeros(SIZES["80 kB"])
    share = _WORK * (_TIMES if ranks.rank == 0 else 1)

    def work() -> Point:
        end = time.thread_time() + share
        while time.thread_time() < end:
            pass
        return message

    bare = _Bare(runtime, message)
    ways = (
        lambda: bare.rounds(rounds, work),
        lambda: _ours(runtime, rounds, work),
    )
    plain, ours = _medians(ways, repeats, rounds, runtime)
    total = _WORK * (_TIMES + ranks.size - 1)
    ideal = 1e3 * max(_WORK * _TIMES, total / min(cores(), ranks.size))
    return Uneven(_TIMES, ranks.size, cores(), ideal, plain, ours)


def _medians(ways: Sequence[Callable[[], float]], repeats: int, rounds: int, runtime: MPI) -> list[float]:
    """Return the milliseconds of a round each way: the slowest process of each turn, the median of turns."""
    times: list[list[float]] = [[] for _ in ways]
    for turn in range(repeats + 1):
        for place, way in enumerate(ways):
            runtime.ranks.allreduce_max(np.zeros(1))
            slowest = runtime.ranks.allreduce_max(np.array([way()]))
            if turn:  # the first is for warming up
                times[place].append(1e3 * float(slowest[0]) / rounds)
    return [median(column) for column in times]


def _neighbors(size: int) -> list[tuple[int, ...]]:
    graph = nx.cycle_graph(size) if size > 2 else nx.path_graph(size)
    return [tuple(sorted(graph[i])) for i in range(size)]


def _ours(runtime: MPI, rounds: int, work: Callable[[], Point]) -> float:
    """Return the seconds of so many rounds of a run, after some in which it finds its buffers."""
    seconds = 0.0

    def program(i: int) -> Program[Point]:
        nonlocal seconds
        for _ in range(_WARM):
            yield work()
        start = time.perf_counter()
        for _ in range(rounds):
            yield work()
        seconds = time.perf_counter() - start
        return np.zeros(1)

    size = runtime.ranks.size
    runtime.run(Job(program, _neighbors(size), Traffic(size), lambda: True))
    return seconds


@final
class _Bare:
    """Isend and Irecv of the same bytes into buffers that stay, and nothing else."""

    def __init__(self, runtime: MPI, message: Point) -> None:
        self.ranks = runtime.ranks
        self.message = message
        near = _neighbors(self.ranks.size)[self.ranks.rank]
        self.places = {j: np.empty_like(message) for j in near}

    def rounds(self, rounds: int, work: Callable[[], object] = lambda: None) -> float:
        """Exchange so often, waiting as MPI does; return the seconds."""
        comm = self.ranks.comm
        start = time.perf_counter()
        for _ in range(rounds):
            work()
            requests = [comm.Irecv(place, j, 1) for j, place in self.places.items()]
            requests += [comm.Isend(self.message, j, 1) for j in self.places]
            if requests:
                type(requests[0]).Waitall(requests)
        return time.perf_counter() - start


if __name__ == "__main__":
    _runtime = MPI(timeout=60.0)
    _rows = compare(int(sys.argv[1]), _runtime)
    if _runtime.ranks.rank == 0:
        print(json.dumps(_rows))
