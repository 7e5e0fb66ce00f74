"""Over MPI: what a round costs beside a bare exchange, and what waiting for a slow agent costs.

The module is also the program of the processes that it starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, final

import networkx as nx
import numpy as np

from dcgs.methods import Agent, FastDCGS, Method
from dcgs.objectives import Objective
from dcgs.parallel import cores
from dcgs.points import Point
from dcgs.processes.environment import find_mpiexec
from dcgs.protocol import Program
from dcgs.run.minimize import minimize
from dcgs.runtime import MPI, Job, Lockstep, Traffic
from dcgs.sets import ConvexSet
from dcgs_bench.instances import fixed_graph, lasso
from dcgs_bench.optimum import solve
from dcgs_bench.rounds import EndRule
from dcgs_bench.study import Budget, StudyProblem, execute

SIZES = {"80 kB": 10_000, "1.2 MB": 150_360, "12.7 MB": 943 * 1682}
"""Numbers in a message: points of the paper's three problems."""
# Bytes that an agent sends to a neighbor in one measurement, the most rounds of it, and those before it.
_BYTES, _MAX_ROUNDS, _WARM_UP = 250_000_000, 100, 3
# One process with more work: seconds of work in a round, how many times that of the first process, rounds.
_WORK, _TIMES, _UNEVEN_ROUNDS = 0.005, 5, 10
# Seconds of a step of the fast agents, of which they sleep most, and how many times that of agent 0.
_STEP, _SLOW = 0.05, 5
# Shares of the time with waiting that agents get at their own pace.
_SHARES = (0.3, 0.4, 0.5)
_LEVEL, _METHOD = 1e-3, FastDCGS(form="edges")


def _run_ranks(ranks: int, *arguments: object) -> list[dict[str, Any]]:
    """Run this module in MPI processes with one thread each; return the rows that its root prints."""
    command = [find_mpiexec(), "-n", str(ranks), sys.executable, "-m", __name__, *map(str, arguments)]
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | one_thread)
    if done.returncode != 0:
        raise RuntimeError(f"the processes failed with status {done.returncode}: {done.stderr.strip()}")
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def exchange(ranks: int, repeats: int, seed: int = 0) -> list[dict[str, Any]]:
    """Start the processes, on a cycle, and return the rows that they measure, in milliseconds per round."""
    return _run_ranks(ranks, "exchange", repeats)


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


@final
@dataclass(frozen=True)
class Slowed(Method):
    """A method whose agents sleep in every step: agent 0 longer than the others."""

    method: Method
    seconds: float
    slow: float
    tolerates_faults = True

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return self.method.incompatibility(objectives, X)

    def program(self, agent: Agent) -> Program[Any]:
        program = self.method.program(agent)
        seconds = self.seconds * (self.slow if agent.index == 0 else 1.0)
        message = next(program)
        while True:
            inbox = yield message
            time.sleep(seconds)
            try:
                message = program.send(inbox)
            except StopIteration as end:
                return end.value


def slow_agent(ranks: int, seed: int) -> str:
    """Return in words the errors of so many processes, one agent each on a cycle, with and without waiting.

    The rounds to the level are found before, in this process.
    """
    problem = _problem(ranks, seed)
    optimum = solve(problem)
    end = EndRule(optimum, _LEVEL)
    rounds = execute(problem, _METHOD, Budget(rounds=1000), 0, end, Lockstep(threads=1)).rounds
    waiting, *others = _run_ranks(ranks, "slow", seed, rounds)
    errors = [float(optimum.relative(run["loss"])) for run in (waiting, *others)]
    tried = "; ".join(
        f"{error:.1e} after {run['share']:g} of that time ({run['rounds']} steps of the fastest agent)"
        for error, run in zip(errors[1:], others, strict=True)
    )
    return (
        f"{ranks} processes, one {_SLOW} times slower. If all wait, the worst agent's relative error is "
        f"{errors[0]:.1e} after {waiting['rounds']} rounds, which took {waiting['seconds']:.1f} s. At their "
        f"own pace it is {tried}."
    )


def _compare_paces(seed: int, rounds: int) -> list[dict[str, Any]]:
    """Run so many rounds with waiting, then shares of that time without; every process calls this."""
    problem, method = _problem(MPI().transport.size, seed), Slowed(_METHOD, _STEP, _SLOW)

    def run(share: float, runtime: MPI, **limits: Any) -> dict[str, Any]:
        result = minimize(*problem.parts, method, **limits, every=0, runtime=runtime)
        loss = float(result.history.worst_loss[-1])
        return {"share": share, "seconds": result.seconds, "rounds": result.rounds, "loss": loss}

    runs = [run(1.0, MPI(timeout=60.0), rounds=rounds)]
    own_pace = MPI(timeout=60.0, asynchronous=True)
    return runs + [run(share, own_pace, seconds=share * runs[0]["seconds"]) for share in _SHARES]


def _problem(ranks: int, seed: int) -> StudyProblem:
    """Return the instance lasso-cycle-10 with its rows split evenly among so many agents."""
    graph = fixed_graph("", nx.cycle_graph if ranks > 2 else nx.path_graph, ranks)
    return lasso(graph)[2](seed)


if __name__ == "__main__":
    _numbers = map(int, sys.argv[2:])
    if sys.argv[1] == "exchange":
        _repeats, _runtime = next(_numbers), MPI(timeout=60.0)
        _rows = [*(_even(name, _repeats, _runtime) for name in SIZES), _uneven(_repeats, _runtime)]
    else:
        _rows = _compare_paces(*_numbers)
    if MPI().transport.rank == 0:
        print(json.dumps(_rows))
