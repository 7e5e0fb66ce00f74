"""One agent slower than the others, over MPI: the time to a certified gap with and without waiting."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import networkx as nx
import numpy as np

from dcgs.bench.instances import instance
from dcgs.environment import find_mpiexec
from dcgs.front import minimize
from dcgs.methods import Agent, FastDCGS, Method
from dcgs.objectives import LeastSquares, Objective
from dcgs.protocol import Program
from dcgs.runtime import MPI
from dcgs.sets import ConvexSet

_INSTANCE = "lasso-cycle-10"
# Seconds of a step of the fast agents, of which they sleep most, and how many times that of agent 0.
_STEP = 0.05
_SLOW = 5
_GAP = 1e-3
_LIMIT = 300.0


@final
@dataclass(frozen=True)
class Slowed(Method):
    """A method whose agents sleep in every step: agent 0 longer than the others."""

    method: Method
    seconds: float
    slow: float
    stops_itself = True
    bears_faults = True

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


def measure(ranks: int, seed: int) -> dict[str, Any]:
    """Start so many processes, one agent each on a cycle; return the seconds of both runs."""
    command = [find_mpiexec(), "-n", str(ranks), sys.executable, "-m", "dcgs.bench.slow_agent", str(seed)]
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | one_thread)
    if done.returncode != 0:
        raise RuntimeError(f"the processes failed with status {done.returncode}: {done.stderr.strip()}")
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def compare(seed: int) -> dict[str, Any]:
    """Run with and without waiting; every process calls this."""
    ranks = MPI().transport.size
    problem = instance(_INSTANCE).make(seed)
    objectives = _regrouped(problem.objectives, ranks)
    graph = nx.cycle_graph(ranks) if ranks > 2 else nx.path_graph(ranks)
    row: dict[str, Any] = {"ranks": ranks, "times": _SLOW, "gap": _GAP}
    for name, asynchronous in (("waiting", False), ("own pace", True)):
        result = minimize(
            objectives,
            problem.X,
            graph,
            Slowed(FastDCGS(form="edges"), _STEP, _SLOW),
            gap=_GAP,
            seconds=_LIMIT,
            every=0,
            runtime=MPI(timeout=60.0, asynchronous=asynchronous),
        )
        row[name] = {"seconds": result.seconds, "status": result.status.name, "steps": result.rounds}
    row["ratio"] = row["own pace"]["seconds"] / row["waiting"]["seconds"]
    return row


def sentence(row: Mapping[str, Any]) -> str:
    """Return the result in words."""
    waiting, own = row["waiting"], row["own pace"]
    return (
        f"{row['ranks']} processes, one {row['times']} times slower, to a certified gap of {row['gap']:g}: "
        f"{waiting['seconds']:.1f} s if all wait ({waiting['status']}, {waiting['steps']} rounds), "
        f"{own['seconds']:.1f} s at their own pace ({own['status']}, {own['steps']} steps of the fastest "
        f"agent): a ratio of {row['ratio']:.2f}."
    )


def _regrouped(objectives: Any, ranks: int) -> list[Objective]:
    """Return the rows of all agents, split evenly among so many."""
    A = np.concatenate([f.data()["A"] for f in objectives])
    b = np.concatenate([f.data()["b"] for f in objectives])
    return [LeastSquares(A[rows], b[rows]) for rows in np.array_split(np.arange(len(b)), ranks)]


if __name__ == "__main__":
    _row = compare(int(sys.argv[1]))
    if MPI().transport.rank == 0:
        print(json.dumps(_row))
