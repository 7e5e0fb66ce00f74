"""Random runs with masked sums, for the tests, in one process or under mpiexec: prints their digests as JSON.

Over MPI sums are masked; in one process, with the argument ``unmasked``, the same integers are summed openly.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import networkx as nx
import numpy as np

import dcgs
from dcgs.run.result import Result
from mpi_cases import random_graph

CASES = 30
_KINDS = ("sums", "complete", "newton", "rows at one agent", "shared rows")


def kind_of(number: int) -> str:
    """Return the kind of a case."""
    return _KINDS[number % len(_KINDS)]


def case(number: int) -> tuple[list[dcgs.Objective], dcgs.ConvexSet, nx.Graph, dcgs.FastDCGS]:
    """Return the problem, the graph and the method of a case: a form after the other."""
    rng, kind = np.random.default_rng(number), kind_of(number)
    agents = int(rng.integers(3, 7))
    graph = nx.complete_graph(agents) if kind == "complete" else random_graph(rng, agents)
    if "row" in kind:
        rows, cols = np.nonzero(rng.random((4 * agents, 9)) < 0.7)
        own = rows // 4 if kind == "rows at one agent" else np.arange(len(rows)) % agents
        values = rng.standard_normal(len(rows))
        parts = [(rows[own == i], cols[own == i], values[own == i]) for i in range(agents)]
        shape = 4 * agents, 9
        ratings = [dcgs.MatrixCompletion(*part, shape=shape) for part in parts]
        return ratings, dcgs.NuclearNormBall(shape, 6.0), graph, dcgs.FastDCGS()
    scale = 10.0 ** rng.integers(-4, 5)
    A = [scale * rng.standard_normal((int(rng.integers(4, 12)), 7)) for _ in range(agents)]
    method = dcgs.FastDCGS(form="newton" if kind == "newton" else "sums")
    if number % 2:
        labels = [np.where(a[:, 0] + a[:, 1] > 0.0, 1.0, -1.0) for a in A]
        logistic = [dcgs.Logistic(a, b) for a, b in zip(A, labels, strict=True)]
        return logistic, dcgs.L2Ball(7, 2.0 / scale), graph, method
    squares = [dcgs.LeastSquares(a, 100.0 * rng.standard_normal(len(a))) for a in A]
    return squares, dcgs.L1Ball(7, 50.0 / scale), graph, method


def solved(number: int, secure: Any, runtime: dcgs.Lockstep | dcgs.MPI | None = None, **more: Any) -> Result:
    """Return the result of a case."""
    objectives, X, graph, method = case(number)
    rule = {"gap": 1e-3, "iterations": 40, "every": None} | more
    return dcgs.minimize(objectives, X, graph, method, runtime=runtime, secure=secure, **rule)


def digests(result: Result) -> dict[int, str]:
    """Return a digest of the model of every agent of this process, and of what all know."""
    common = [result.status.name, result.iterations, result.about.get("certified")]
    found = {}
    for i, x in zip(result.hosted.tolist(), result.agents, strict=True):
        # Of matrices in factors, a process may have some rows only.
        content = np.ascontiguousarray(x.V if isinstance(x, dcgs.LowRank) else x).tobytes()
        found[i] = sha256(content + json.dumps(common).encode()).hexdigest()
    return found


def main() -> None:
    """Run all cases over MPI."""
    runtime = dcgs.MPI()
    group = runtime.group()
    texts = [json.dumps(digests(solved(number, True, runtime))) for number in range(CASES)]
    everyone = group.allgather_texts(texts)
    if group.is_root:
        found: list[dict[str, str]] = [{} for _ in range(CASES)]
        for k, text in enumerate(everyone):
            found[k % CASES] |= json.loads(text)
        print(json.dumps(found))


if __name__ == "__main__":
    main()
