"""A site as a process of its own, for the run of a case: ``site_process.py SITE CASE ROUNDS KILLED_AT``.

It kills itself when it has taken ``KILLED_AT`` messages; 0 means never.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import networkx as nx
import numpy as np

import dcgs
from dcgs.sites.events import EventLog
from dcgs.sites.mailbox import Mailbox
from dcgs.sites.node import Site
from dcgs.sites.runtime import SiteRuntime
from site_cases import site_case


def instance(sites: int) -> tuple[list[dcgs.Objective], dcgs.ConvexSet]:
    rng = np.random.default_rng(3)
    x = np.zeros(20)
    x[:3] = 1.0, -2.0, 0.5
    parts = [rng.standard_normal((12, 20)) for _ in range(sites)]
    return [dcgs.LeastSquares(A, A @ x + 0.1 * rng.standard_normal(12)) for A in parts], dcgs.L1Ball(20, 3.0)


def answer(runtime: SiteRuntime, graph: nx.Graph, method: dcgs.Method) -> dcgs.Result:
    objectives, X = instance(len(graph))
    return dcgs.minimize(objectives, X, graph, method, rounds=40, gap=1e-3, every=None, runtime=runtime)


def kill_at(count: int) -> None:
    """Kill this process when it has taken this number of messages."""
    take, taken = Mailbox.take, 0

    def counted(self: Mailbox, sender: int, tag: int, sequence: int) -> tuple[int, bytes] | None:
        nonlocal taken
        found = take(self, sender, tag, sequence)
        taken += found is not None
        if taken == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    Mailbox.take = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    file, case = Path(sys.argv[1]), site_case(int(sys.argv[2]), int(sys.argv[3]))
    killed_at = int(sys.argv[4])
    if killed_at:
        kill_at(killed_at)
    site = Site.load(file)
    with site.running(EventLog(file.with_suffix(".jsonl"))) as runtime:
        result = case.run(runtime)
    np.savez(file.with_suffix(".npz"), x=result.agents, rounds=result.rounds, bytes=result.bytes)
