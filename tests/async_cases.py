"""Asynchronous runs under mpiexec, each replayed in one process from its record: ``async_cases.py CASES``.

The first process prints one line of JSON: the number of cases, and how many ended with an agreement.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from mpi4py import MPI as WORLD

import dcgs
from dcgs.run.result import Result
from mpi_cases import problem, random_graph

RULES: list[dict[str, Any]] = [
    {"gap": 1e-2},
    {"gap": 1e-3, "iterations": 2000},
    {"rounds": 25},
    {"iterations": 12},
    {"gap": 1e-9, "rounds": 40},
    {"gap": 1e-2, "lmo_calls": 40, "method": dcgs.FastDCGS(form="edges", inner="oracle")},
]


def bits(result: Result) -> tuple[Any, ...]:
    """Return all that must be equal."""
    counts = (getattr(result, name).tolist() for name in ("messages", "bytes"))
    return result.agents.tobytes(), result.x.tobytes(), result.rounds, *counts


def check(runtime: dcgs.MPI, seed: int) -> bool:
    """Run one random case and replay it; return whether the agents agreed."""
    rng = np.random.default_rng((16, seed))
    size = runtime.transport.size
    agents = size + int(rng.integers(4))
    objectives, X = problem(rng, agents, int(rng.integers(4)))
    rules = {"method": dcgs.FastDCGS(form="edges")} | RULES[seed % len(RULES)]
    graph = random_graph(rng, agents)
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.npz"
        pace = replace(runtime, asynchronous=True, staleness=int(rng.choice([1, 3, 50])), record=record)
        held = {i: objectives[i] for i in runtime.hosts(agents)}
        result = dcgs.minimize(held, X, graph, **rules, runtime=pace)
        statuses = runtime.group().allgather_texts([f"{result.status} {bits(result)}"])
        assert len(set(statuses)) == 1, "processes return different results"
        if runtime.transport.rank == 0:
            again = dcgs.minimize(objectives, X, graph, **rules, runtime=dcgs.Lockstep(replay=record))
            assert bits(again) == bits(result), f"case {seed}: the replay differs"
            replayed = again.status is dcgs.Status.REPLAYED  # after a limit on oracle calls
            assert replayed or again.status is result.status, f"case {seed}: {again.status}"
    return result.status is dcgs.Status.AGREED


def check_seconds(runtime: dcgs.MPI) -> None:
    """A limit on seconds ends all processes, also where one agent is a long way ahead."""
    objectives, X = problem(np.random.default_rng(1), 4, 2)
    pace = replace(runtime, asynchronous=True)
    result = dcgs.minimize(
        objectives, X, nx.cycle_graph(4), dcgs.FastDCGS(form="edges"), seconds=0.1, runtime=pace
    )
    assert result.status is dcgs.Status.SECONDS


def main(cases: int) -> None:
    """Run the cases on 1, 2 and 3 of the processes that were started, as many as there are."""
    world, agreed = WORLD.COMM_WORLD, 0
    sizes = [n for n in (1, 2, 3) if n <= world.size]
    comms = {n: world.Split(0 if world.rank < n else 1, world.rank) for n in sizes}
    for case in range(cases):
        size = sizes[-1 - (case + case // len(RULES)) % len(sizes)]
        if world.rank < size:
            agreed += check(dcgs.MPI(timeout=120.0, comm=comms[size]), case)
    if world.rank < sizes[-1]:
        check_seconds(dcgs.MPI(timeout=120.0, comm=comms[sizes[-1]]))
    all_done = world.Ibarrier()
    while not all_done.Test():
        time.sleep(0.01)
    if world.rank == 0:
        print(json.dumps({"cases": cases, "agreed": agreed}))


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        WORLD.COMM_WORLD.Abort(1)
