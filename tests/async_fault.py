"""An asynchronous run over MPI in which agent 2 fails after ten steps: ``async_fault.py FAULT``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import networkx as nx
import numpy as np

import dcgs
from dcgs.methods import Agent
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.runtime import run_as_rank

SIGNALS = {"is killed": signal.SIGKILL, "is stopped": signal.SIGSTOP, "is interrupted": signal.SIGINT}


@final
@dataclass(frozen=True)
class Failing(dcgs.Method):
    """A method that only sends messages; agent 2 fails after ten steps."""

    fault: str
    tolerates_faults = True

    def incompatibility(self, objectives: Mapping[int, dcgs.Objective], X: dcgs.ConvexSet) -> str | None:
        return None

    def program(self, agent: Agent) -> Program[Point]:
        for k in range(1, agent.iterations + 1):
            yield agent.x0
            if k == 10 and agent.index == 2:
                if self.fault == "raises":
                    raise ZeroDivisionError("something was divided by zero")
                os.kill(os.getpid(), SIGNALS[self.fault])
            agent.observe(k, agent.x0)
        return agent.x0


def main() -> int:
    """Run until the fault. Without it, the run would never end."""
    objectives = [dcgs.LeastSquares(np.eye(7), np.full(7, float(i))) for i in range(3)]
    runtime = dcgs.MPI(timeout=3.0, asynchronous=True)
    dcgs.minimize(
        objectives, dcgs.L1Ball(7), nx.path_graph(3), Failing(sys.argv[1]), seconds=1e6, runtime=runtime
    )
    return 0


if __name__ == "__main__":
    run_as_rank(main)
