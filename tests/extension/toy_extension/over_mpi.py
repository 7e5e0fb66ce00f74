"""Run every toy class over MPI and in one process; fail unless both results are equal to the bit."""

from __future__ import annotations

import sys

import networkx as nx
import numpy as np

import dcgs
from toy_extension.inner import OpenLoopCG
from toy_extension.losses import LogCosh
from toy_extension.methods import DiffusionFW
from toy_extension.sets import NonnegativeBox

METHODS: list[dcgs.Method] = [DiffusionFW(), dcgs.DCGS(inner=OpenLoopCG()), dcgs.FastDCGS(), dcgs.NIDS()]


def objectives() -> list[dcgs.Objective]:
    rng = np.random.default_rng(5)
    maps = [rng.standard_normal((6, 4)) for _ in range(3)]
    return [dcgs.Objective(LogCosh(A @ [0.5, 2.0, 0.0, -1.0]), dcgs.matrix_map(A)) for A in maps]


def solve(method: dcgs.Method, runtime: dcgs.Lockstep | dcgs.MPI) -> dcgs.Result:
    X = NonnegativeBox((4,), 1.0)
    return dcgs.minimize(objectives(), X, nx.path_graph(3), method, iterations=6, runtime=runtime)


if __name__ == "__main__":
    for method in METHODS:
        one, several = solve(method, dcgs.Lockstep()), solve(method, dcgs.MPI())
        if one.agents.tobytes() != several.agents.tobytes():
            sys.exit(f"{method!r} must give the same bits over MPI; it does not.")
