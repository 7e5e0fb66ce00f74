"""Random problems with random faults, judged as those of fuzz.py are.

Repeat one with ``python tests/fault_fuzz.py SEED``, the first N with ``python tests/fault_fuzz.py 0:N``; with
``--peers`` after that, for the methods other than FastDCGS.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np

import dcgs
from fuzz import Problem, judge, problem

COUNT = 60
# Rounds of a run; and of one by a method that does not tolerate faults, with the smallest gap asked for.
ROUNDS, ROUNDS_OF_PEERS, GAP_OF_PEERS = 80, 150, 0.1


def faulty(seed: int) -> Problem:
    """Return the problem of a seed, with a runtime that fails: a fifth of them on a simulated clock."""
    rng = np.random.default_rng((15, seed))
    given = problem(seed)
    methods: list[dcgs.Method] = [
        dcgs.FastDCGS(),
        dcgs.FastDCGS(form="edges"),
        dcgs.FastDCGS(stops_itself=False),
    ]
    method = methods[int(rng.choice(3, p=[0.5, 0.4, 0.1]))]
    agents = len(given.graph)
    if seed % 5 == 0:
        speeds = (10.0 ** rng.uniform(-1.0, 0.5, agents)).tolist()
        runtime = dcgs.Lockstep(
            speeds=speeds, latency=float(rng.choice([0.0, 0.3, 2.0])), staleness=int(rng.choice([1, 5, 50]))
        )
    else:
        allowed = rng.random() < 0.2 and not given.method.tolerates_faults
        method = _watched(given.method) if allowed else method
        runtime = dcgs.Lockstep(faults=_faults(rng, given.graph, method), allow_faults=allowed)
    about = f"{given.about}, run by {method!r} with {runtime!r}"
    return replace(given, method=method, runtime=runtime, rounds=ROUNDS, about=about)


def faulty_peer(seed: int) -> Problem:
    """Return the problem of a seed for a method that tolerates no faults: older messages replace others."""
    given = problem(seed, peers=True)
    faults = _faults(np.random.default_rng((16, seed)), given.graph, given.method)
    runtime = dcgs.Lockstep(faults=faults, allow_faults=True)
    about = f"{given.about}, with {runtime!r}"
    gap = max(given.gap, GAP_OF_PEERS)
    return replace(given, runtime=runtime, rounds=ROUNDS_OF_PEERS, gap=gap, about=about)


def _watched(method: dcgs.Method) -> dcgs.Method:
    """Return the method; if its agents need every message to certify, with the observer to end the run."""
    return replace(method, stops_itself=False) if isinstance(method, dcgs.FastDCGS) else method


def _faults(rng: np.random.Generator, graph: nx.Graph, method: dcgs.Method) -> dcgs.Faults:
    """Return random faults; some of single edges and agents, a few with a link that is never up."""
    agents = nx.convert_node_labels_to_integers(graph, ordering="sorted" if _sortable(graph) else "default")
    edges = [edge for i, j in agents.edges for edge in ((i, j), (j, i))]
    chosen: dict[str, Any] = {}
    if rng.random() < 0.6:
        chosen["loss"] = float(rng.uniform(0.0, 0.6))
        if rng.random() < 0.3:
            chosen["loss"] = {edge: float(rng.choice([0.0, 0.5, 0.9, 1.0])) for edge in edges}
    if rng.random() < 0.4:
        chosen["sleep"] = float(rng.uniform(0.0, 0.6))
        if rng.random() < 0.3:
            chosen["sleep"] = {i: float(rng.uniform(0.0, 0.9)) for i in agents}
    if rng.random() < 0.3:
        chosen["down"] = float(rng.uniform(0.0, 0.8))
    if rng.random() < 0.4:
        chosen["delay"] = int(rng.integers(1, 8))
    # The points of a method that does not tolerate noise may leave the set: it averages what it receives.
    if rng.random() < 0.3 and method.tolerates_faults and not method.stops_itself:
        chosen["noise"] = float(10.0 ** rng.uniform(-6.0, -1.0))
    return dcgs.Faults(**chosen, seed=int(rng.integers(1000)), patience=100)


def _sortable(graph: nx.Graph) -> bool:
    return all(isinstance(node, int) for node in graph)


def main(seeds: Iterable[int], peers: bool = False) -> None:
    """Judge the problems of these seeds; print what is bad, and how many of each verdict there are."""
    count: Counter[str] = Counter()
    for seed in seeds:
        judgment = judge(faulty_peer(seed) if peers else faulty(seed))
        count[f"{judgment.verdict.value} ({judgment.status})"] += 1
        if judgment.verdict.bad:
            print(judgment, flush=True)
    for name, times in count.most_common():
        print(times, name)


if __name__ == "__main__":
    first, _, last = sys.argv[1].partition(":")
    main(range(int(first), int(last or int(first) + 1)), "--peers" in sys.argv)
