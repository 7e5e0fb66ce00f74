"""What a promise of privacy costs: logistic models by noisy sums, beside the best one and one site alone.

``python benchmarks/estimators/private.py [--json F]`` finds the share of what the best model explains that a
private model of ten sites with ε = 1, one whose root is trusted, and a model of one site without noise, lose.
Data are normal, with bounds at four deviations; in every second row columns have a common factor. Noise has
no seed, so that the last digits differ from run to run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

import dcgs
from dcgs.learn import Rows, Sites
from dcgs.learn.private import Bounds, PrivateSpec, fit_private
from dcgs.learn.sums import Reductions
from dcgs_bench.study import environment

SITES, RADIUS, BOUND = 10, 24.0, 4.0
SIZES = [(100_000, 100), (20_000, 100), (20_000, 300), (20_000, 1000), (20_000, 2000), (2000, 100)]
Matrix = NDArray[np.float64]


def data(n: int, d: int, correlated: bool) -> tuple[Matrix, Matrix]:
    """Return rows, and labels −1 and 1."""
    rng = np.random.default_rng(n + d + correlated)
    A = rng.standard_normal((n, d))
    if correlated:
        A = 0.8 * A + 0.6 * rng.standard_normal((n, 1))
    x = np.zeros(d)
    x[rng.choice(d, 10, replace=False)] = rng.standard_normal(10)
    z = A @ x
    return A, np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * z / z.std())), 1.0, -1.0)


def best(A: Matrix, b: Matrix, radius: float) -> Matrix:
    """Return the model of these rows without noise, in the units of the bounds."""
    X, alone = dcgs.L1Ball(A.shape[1], radius=radius), nx.empty_graph(1)
    return np.asarray(dcgs.minimize([dcgs.Logistic(A / BOUND, b)], X, alone, gap=1e-3, every=None).x)


def record(rows: Sequence[Any], *libraries: str) -> None:
    """Write rows to the file that ``--json`` gives, with versions, those of libraries too, and machine."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, help="write the numbers here, with versions and machine")
    file = parser.parse_args().json
    if file is not None:
        about = environment(0) | {"command": " ".join(["python", *sys.argv])}
        about["versions"] |= {name: version(name) for name in libraries}
        file.write_text(json.dumps({"environment": about, "rows": rows}, indent=2) + "\n")


def lost(A: Matrix, b: Matrix, models: Sequence[Matrix]) -> list[float]:
    """Return the shares of what the best model explains that others lose, by what they give for the rows."""

    def loss(z: Matrix) -> float:
        return float(np.logaddexp(0.0, -b * z).mean())

    least = loss(A / BOUND @ best(A, b, RADIUS))
    return [(loss(z) - least) / (float(np.log(2.0)) - least) for z in models]


def main() -> None:
    """Print the table."""
    rows = []
    for n, d in SIZES:
        for correlated in (False, True):
            A, b = data(n, d, correlated)
            parts = np.array_split(np.arange(n), SITES)
            network = Reductions(nx.complete_graph(SITES), secure=True)
            sites = Sites(network, {i: Rows(A[p], b[p]) for i, p in enumerate(parts)}, {})
            limits = np.full(d, BOUND)
            spec = PrivateSpec("logistic", RADIUS, Bounds(-limits, limits), epsilon=1.0)
            fits = [fit_private(sites, kind) for kind in (spec, replace(spec, trusted="root"))]
            alone = [A / BOUND @ best(A[parts[0]], b[parts[0]], r) for r in (6.0, 12.0, 24.0)]
            shares = lost(A, b, [*(fit.model.image(A) for fit in fits), *alone])
            row = {"rows": n, "features": d, "correlated": correlated, "signal": fits[0].signal}
            rows.append(row | {"nobody": shares[0], "root": shares[1], "alone": min(shares[2:])})
            print(rows[-1], flush=True)
            record(rows)


if __name__ == "__main__":
    main()
