"""What waiting for a slow agent costs over MPI: ``python benchmarks/slow_agent.py 10``.

So many processes, one agent each on a cycle, of which one takes five times as long for a step. They run as
many rounds as the error needs, all waiting for each other, and then at their own pace for shares of that
time.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import networkx as nx

from dcgs.methods import Agent, FastDCGS, Method
from dcgs.objectives import Objective
from dcgs.protocol import Program
from dcgs.run.minimize import minimize
from dcgs.runtime import MPI, Lockstep
from dcgs.sets import ConvexSet
from dcgs_bench.instances import fixed_graph, lasso
from dcgs_bench.optimum import solve
from dcgs_bench.over_mpi import run_ranks
from dcgs_bench.rounds import EndRule
from dcgs_bench.study import Budget, StudyProblem, execute

# Seconds of a step of the fast agents, of which they sleep most, and how many times that of agent 0.
_STEP, _SLOW = 0.05, 5
# Shares of the time with waiting that agents get at their own pace.
_SHARES = (0.3, 0.4, 0.5)
_LEVEL, _METHOD = 1e-3, FastDCGS(form="edges")


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


def slow_agent(ranks: int, seed: int = 0) -> str:
    """Return in words the errors of so many processes, one agent each on a cycle, with and without waiting.

    The rounds to the level are found before, in this process.
    """
    problem = _problem(ranks, seed)
    optimum = solve(problem)
    end = EndRule(optimum, _LEVEL)
    rounds = execute(problem, _METHOD, Budget(rounds=1000), 0, end, Lockstep(threads=1)).rounds
    waiting, *others = run_ranks(ranks, __file__, seed, rounds)
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
    numbers = [int(text) for text in sys.argv[1:]]
    if len(numbers) == 1:
        print(slow_agent(*numbers))
    else:  # one of the processes
        rows = _compare_paces(*numbers)
        if MPI().transport.rank == 0:
            print(json.dumps(rows))
