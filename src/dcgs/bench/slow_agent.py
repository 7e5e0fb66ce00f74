"""One agent slower than the others, over MPI: the error after a time with and without waiting."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import networkx as nx
import numpy as np

from dcgs.bench.exchange import run_ranks
from dcgs.bench.instances import instance
from dcgs.bench.optimum import Optimum, solve
from dcgs.front import Snapshot, minimize
from dcgs.methods import Agent, FastDCGS, Method
from dcgs.objectives import LeastSquares, Objective
from dcgs.protocol import Program
from dcgs.runtime import MPI, Lockstep
from dcgs.sets import ConvexSet
from dcgs.study import Budget, Problem, execute

_INSTANCE = "lasso-cycle-10"
# Seconds of a step of the fast agents, of which they sleep most, and how many times that of agent 0.
_STEP = 0.05
_SLOW = 5
_LEVEL, _MOST_ROUNDS = 1e-3, 1000
# Shares of the time with waiting that agents get at their own pace.
_SHARES = (0.3, 0.4, 0.5)
_METHOD = FastDCGS(form="edges")


@final
@dataclass(frozen=True)
class Slowed(Method):
    """A method whose agents sleep in every step: agent 0 longer than the others."""

    method: Method
    seconds: float
    slow: float
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
    """Start so many processes, one agent each on a cycle; return seconds and errors of all runs.

    The rounds to the level are found before, in this process.
    """
    problem = _problem(ranks, seed)
    optimum = solve(problem)
    rounds = _rounds_to_level(problem, optimum)
    runs = run_ranks("dcgs.bench.slow_agent", ranks, seed, rounds)
    for run in runs:
        run["error"] = float(optimum.relative(run.pop("loss")))
    return {"ranks": ranks, "times": _SLOW, "waiting": runs[0], "own pace": runs[1:]}


def compare(seed: int, rounds: int) -> list[dict[str, Any]]:
    """Run so many rounds with waiting, then shares of that time without; every process calls this."""
    problem = _problem(MPI().transport.size, seed)

    def run(share: float, runtime: MPI, **limits: Any) -> dict[str, Any]:
        method = Slowed(_METHOD, _STEP, _SLOW)
        result = minimize(*problem.parts, method, **limits, every=0, runtime=runtime)
        loss = float(result.history.worst_loss[-1])
        return {"share": share, "seconds": result.seconds, "rounds": result.rounds, "loss": loss}

    runs = [run(1.0, MPI(timeout=60.0), rounds=rounds)]
    own_pace = MPI(timeout=60.0, asynchronous=True)
    return runs + [run(share, own_pace, seconds=share * runs[0]["seconds"]) for share in _SHARES]


def sentence(row: Mapping[str, Any]) -> str:
    """Return the result in words."""
    waiting = row["waiting"]
    tried = "; ".join(
        f"{run['error']:.1e} after {run['share']:g} of that time ({run['rounds']} steps of the fastest agent)"
        for run in row["own pace"]
    )
    return (
        f"{row['ranks']} processes, one {row['times']} times slower. If all wait, the worst agent's relative "
        f"error is {waiting['error']:.1e} after {waiting['rounds']} rounds, which took "
        f"{waiting['seconds']:.1f} s. At their own pace it is {tried}."
    )


def _problem(ranks: int, seed: int) -> Problem:
    """Return the instance with its rows split evenly among so many agents on a cycle."""
    given = instance(_INSTANCE).make(seed)
    A = np.concatenate([f.data()["A"] for f in given.objectives])
    b = np.concatenate([f.data()["b"] for f in given.objectives])
    parts = np.array_split(np.arange(len(b)), ranks)
    graph = nx.cycle_graph(ranks) if ranks > 2 else nx.path_graph(ranks)
    return Problem([LeastSquares(A[rows], b[rows]) for rows in parts], given.X, graph)


def _rounds_to_level(problem: Problem, optimum: Optimum) -> int:
    """Return the rounds until the worst agent's relative error is at most 1e-3."""

    def reached(snapshot: Snapshot) -> bool:
        return bool(optimum.relative(snapshot.worst_loss) <= _LEVEL)

    budget = Budget(rounds=_MOST_ROUNDS)
    return execute(problem, _METHOD, budget, 0, reached, Lockstep(threads=1)).rounds


if __name__ == "__main__":
    _runs = compare(int(sys.argv[1]), int(sys.argv[2]))
    if MPI().transport.rank == 0:
        print(json.dumps(_runs))
