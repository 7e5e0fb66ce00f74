"""A run over MPI in which something goes wrong in agent 2, for the tests to start under mpiexec."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import networkx as nx
import numpy as np

import dcgs
from dcgs.methods import Agent
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.runtime import RunAbortedError, run_as_rank, ways, wire
from dcgs.sets import ConvexSet

AGENTS = 4


@final
@dataclass(frozen=True)
class Failing(dcgs.Method):
    """A method that only talks, and whose agent 2 fails after ten rounds."""

    how: str
    rounds_per_iteration = 1

    def incompatibility(self, objectives: Mapping[int, dcgs.Objective], X: ConvexSet) -> str | None:
        return None

    def program(self, agent: Agent) -> Program[Point]:
        x = agent.x0
        for k in range(1, agent.iterations + 1):
            inbox = yield x
            assert all(len(theirs) for theirs in inbox.values())
            if k == 10 and agent.index == 2:
                x = fail(self.how, x)
            agent.observe(k, agent.x0)
        return agent.x0


def fail(how: str, x: Point) -> Point:
    """Fail; or do what must not be taken for a failure."""
    if how == "raises":
        raise ZeroDivisionError("something was divided by zero")
    if how == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "is stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "computes for long":
        time.sleep(4.5)
    if how == "sends what is no number":
        return np.full_like(x, np.nan)
    if how == "sends a wrong round":
        vars(ways)["write"] = _of_another_round
    return x


def _of_another_round(header: Any, kind: wire.Kind, array: Any, round: int, sender: int) -> None:
    wire.write(header, kind, array, 99, sender)


def main() -> int:
    """Run; say what every process saw unless the test wants the command's own words."""
    how, quiet = sys.argv[1], sys.argv[2] == "as-command"
    objectives = [dcgs.LeastSquares(np.eye(7), np.full(7, float(i))) for i in range(AGENTS)]
    runtime = dcgs.MPI(timeout=3.0)
    try:
        dcgs.minimize(
            objectives,
            dcgs.L1Ball(7),
            nx.path_graph(AGENTS),
            Failing(how),
            iterations=30,
            every=0,
            runtime=runtime,
        )
    except BaseException as error:
        if quiet:
            raise
        told = isinstance(error, RunAbortedError) and error.told
        words = f"{runtime.ranks.rank} {type(error).__name__} {'told' if told else 'saw'}: {error}\n"
        os.write(1, words.encode())
        return 3
    os.write(1, f"{runtime.ranks.rank} done\n".encode())
    return 0


if __name__ == "__main__":
    if sys.argv[2] == "as-command":
        run_as_rank(main)
    sys.exit(main())
