"""Try matrix completion by variable projection: given the right factor V, agents solve their rows at home.

    python benchmarks/rows_at_home.py [100k] [1m] [--sums N] [--json F]

The radius ρ is met by a weight μ: f + μ ‖x‖_* is the least of f + μ/2 (‖U‖² + ‖V‖²) over x = U Vᵀ. Given V
and μ, each row of U is a ridge regression of one agent. One sum has the gradient for V, and products of the
gradient of f with a block of further vectors, of which those with singular values above μ become columns of
V. The root takes L-BFGS steps for V, preconditioned by the numbers of ratings of the columns, and Newton
steps for log μ. The model of a sum is x, scaled to the norm ρ, and its Wolfe gap is relative to its decrease.

All ratings are in one place, since only sums are counted; the gap is computed by ARPACK and costs no sum.
Beside it are the sums of FastDCGS, those of its certificate included. A fifth of MovieLens is held out, and
offsets are fitted first, as ``dcgs bench completion`` does. DCGS_DATA names the folder of the ratings.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv
from scipy.sparse.linalg import svds

import dcgs
from dcgs.datasets import movielens1m, movielens100k
from dcgs.learn.ratings.fit import place
from dcgs.learn.ratings.offsets import prepare
from dcgs.learn.sites import Sites
from dcgs_bench.study import environment

Matrix = NDArray[np.float64]

RADII, FIRST = {"100k": 500.0, "1m": 3000.0}, {"100k": 64, "1m": 160}
"""The radius; the vectors of the first block, about the rank of the optimum, which a user does not know."""
DATA = {"100k": movielens100k, "1m": movielens1m}
GAP, MEMORY = 1e-3, 20


class Problem:
    """The ratings without their offsets, row by row."""

    def __init__(self, name: str) -> None:
        train, _ = DATA[name]().split(0.2, 0)
        first = train.rows < np.median(train.rows)  # two agents, for which offsets are fitted
        halves = [(train.rows[some], train.cols[some], train.values[some]) for some in (first, ~first)]
        sites = Sites.of(halves, nx.path_graph(2))
        placed = place(sites, merges=False)
        prepared = prepare(placed.parts, placed.task(5.0), placed.facts, sites.network)
        self.objectives, self.shape = list(prepared.objectives.values()), placed.shape
        rows, cols = (np.concatenate([getattr(f.map, a) for f in self.objectives]) for a in ("rows", "cols"))
        values = np.concatenate([-0.5 * f.loss.grad(np.zeros(f.map.size)) for f in self.objectives])
        order = np.argsort(rows, kind="stable")
        self.cols, self.b = cols[order], values[order]
        self.ends = np.searchsorted(rows[order], np.arange(self.shape[0] + 1))
        self.of_rows, self.of_cols = np.diff(self.ends), np.bincount(cols, minlength=self.shape[1])
        self.density = float(self.of_rows @ self.of_rows) / float(self.of_rows.sum()) ** 2
        self.G = sp.csr_array(
            (self.b.copy(), self.cols.astype(np.int32), self.ends.astype(np.int32)), self.shape
        )

    def solved(self, V: Matrix, mu: float) -> tuple[Matrix, Matrix]:
        """Return the rows U, and the observed entries of U Vᵀ."""
        U, image = np.zeros((self.shape[0], V.shape[1])), np.zeros(len(self.b))
        for i in range(self.shape[0]):
            part = slice(self.ends[i], self.ends[i + 1])
            A, b = V[self.cols[part]], self.b[part]
            is_short = len(A) < V.shape[1]
            H = 2.0 * (A @ A.T if is_short else A.T @ A)
            H.flat[:: len(H) + 1] += mu
            right = b if is_short else A.T @ b
            u = dposv(H, 2.0 * right)[1] if len(A) else np.zeros(V.shape[1])
            U[i] = A.T @ u if is_short and len(A) else u
            image[part] = A @ U[i]
        return U, image

    def gradient(self, residual: Matrix) -> sp.csr_array:
        """Return the gradient of f as a sparse matrix, which the next call changes."""
        self.G.data[:] = 2.0 * residual
        return self.G

    def sizes(self, vectors: Matrix, sigma: Matrix, mu: float) -> Matrix:
        """Return about √σ of the optimum along each vector, from its singular value in the gradient."""
        curvature = 2.0 * self.density * (self.of_cols @ vectors**2)
        return np.asarray(np.sqrt(np.maximum(sigma - mu, 0.0) / curvature))


def trial(problem: Problem, radius: float, first: int, sums: int) -> Iterator[dict[str, Any]]:
    """Yield what is known after each sum."""
    rng, null = np.random.default_rng(0), float(problem.b @ problem.b)
    columns, memory, counted = problem.shape[1], list[tuple[Matrix, Matrix]](), 2
    G, E = problem.gradient(-problem.b), _basis(rng.standard_normal((columns, first)))
    E = _basis(G.T @ (G @ E))
    sigma, R = _ritz(E, G.T @ (G @ E))
    E = E @ R
    low, mu = 0.0, float(sigma[0])
    for _ in range(60):  # μ for which the model of the first block has the radius
        middle = 0.5 * (low + mu)
        is_large = float(np.sum(problem.sizes(E, sigma, middle) ** 2)) > radius
        low, mu = (middle, mu) if is_large else (low, middle)
    used = sigma > 0.9 * mu
    V = E[:, used] * problem.sizes(E, np.maximum(sigma, 1.05 * mu), mu)[used]
    E, last, sent = _beside(E[:, ~used], V, 6, rng), None, 2 * columns * first
    while counted < sums:
        counted, sent = counted + 1, sent + columns * (V.shape[1] + E.shape[1]) + V.shape[1] ** 2
        U, image = problem.solved(V, mu)
        fit, size = float(problem.b @ image), float(image @ image)
        f, weight = null - 2.0 * fit + size, 0.5 * float(np.sum(U**2) + np.sum(V**2))
        norm = float(np.linalg.svd(np.linalg.qr(U)[1] @ np.linalg.qr(V)[1].T, compute_uv=False).sum())
        scale = min(radius / norm, fit / size)
        value = null - 2.0 * scale * fit + scale**2 * size
        top = float(svds(problem.gradient(scale * image - problem.b), 1, return_singular_vectors=False)[0])
        gap = (2.0 * scale**2 * size - 2.0 * scale * fit + radius * top) / (null - value)
        yield {
            "sums": counted,
            "rank": V.shape[1],
            "f": value,
            "gap": gap,
            "null": null,
            "megabytes": 16e-6 * sent,
        }
        if gap <= GAP:
            return
        G = problem.gradient(image - problem.b)
        grad, products = G.T @ U + mu * V, np.asarray(G.T @ (G @ E))
        if last is not None:
            bound = last["value"] + (mu - last["mu"]) * last["weight"]
            if f + mu * weight > bound * (1.0 + 1e-9):  # half of the step
                last["step"], memory = 0.5 * last["step"], memory[-5:]
                V = last["V"] - last["step"]
                continue
            old = last["V"].any(axis=0)  # new columns have no gradient at the last point
            pair = (V - last["V"]) * old, (grad - last["grad"] - (mu - last["mu"]) * last["V"]) * old
            if np.sum(pair[0] * pair[1]) > 0.0:
                memory = [*memory, pair][1 - MEMORY :]
        sigma, R = _ritz(E, products)
        vectors = E @ R
        rank = np.count_nonzero(np.linalg.svd(U @ np.linalg.qr(V)[1].T, compute_uv=False) > 1e-6 * norm)
        squared = float(np.sum((U.T @ U) * (V.T @ V)))
        response = max(1.0, 0.75 * mu * rank * squared / (size * norm))  # −d log ‖x‖_* / d log μ
        new = mu * float(np.exp(np.clip(np.log(norm / radius) / response, -0.7, 0.7)))
        new = mu if abs(np.log(norm / radius)) < 0.3 * min(0.03, max(gap, 2e-4)) else new
        count = int(np.count_nonzero(sigma > new))
        added = vectors[:, :count] * problem.sizes(
            vectors[:, :count], np.maximum(sigma[:count], 1.02 * new), new
        )
        memory = memory if abs(np.log(new / mu)) < 0.1 else []
        step = _direction(grad + (new - mu) * V, memory, U, problem, new)
        zeros = np.zeros_like(added)
        last = {"V": np.hstack([V, zeros]), "grad": np.hstack([grad, zeros]), "value": f + mu * weight}
        last |= {"weight": weight, "mu": mu, "step": np.hstack([step, -added])}
        memory = [(np.hstack([s, zeros]), np.hstack([y, zeros])) for s, y in memory]
        V, mu = last["V"] - last["step"], new
        wanted = V.shape[1] if count >= 0.75 * E.shape[1] else max(6, V.shape[1] // 6)
        E = _beside((products @ R)[:, count:], V, wanted, rng)


def _basis(block: Matrix) -> Matrix:
    return np.asarray(np.linalg.qr(block)[0])


def _ritz(E: Matrix, products: Matrix) -> tuple[Matrix, Matrix]:
    """Return the singular values of the gradient in the span of E, and their vectors, largest first."""
    values, R = np.linalg.eigh(E.T @ products)
    return np.sqrt(np.maximum(values[::-1], 0.0)), R[:, ::-1]


def _beside(block: Matrix, V: Matrix, count: int, rng: np.random.Generator) -> Matrix:
    """Return this number of orthonormal vectors, orthogonal to V: those of the block, and random ones."""
    more = rng.standard_normal((len(V), max(0, count - block.shape[1])))
    block, Q = np.hstack([block / np.linalg.norm(block, axis=0), more / len(V) ** 0.5]), _basis(V)
    for _ in range(2):
        block = _basis(block - Q @ (Q.T @ block))
    return np.asarray(block[:, :count])


def _direction(
    grad: Matrix, memory: list[tuple[Matrix, Matrix]], U: Matrix, problem: Problem, mu: float
) -> Matrix:
    """Return the step of L-BFGS for V, to be subtracted."""
    values, R = np.linalg.eigh(problem.density * (U.T @ U))
    curvature = 2.0 * problem.of_cols[:, None] * np.maximum(values, 0.0) + mu
    q, weights = grad, []
    for s, y in reversed(memory):
        weights.append(float(np.sum(s * q) / np.sum(s * y)))
        q = q - weights[-1] * y
    scale = 1.0
    if memory:
        s, y = memory[-1]
        scale = float(np.sum(s * y) / np.sum((y @ R) ** 2 / curvature))
    q = scale * ((q @ R) / curvature) @ R.T
    for (s, y), weight in zip(memory, reversed(weights), strict=True):
        q = q + (weight - float(np.sum(y * q) / np.sum(s * y))) * s
    return q


def ours(problem: Problem, radius: float) -> dict[str, Any]:
    """Return the sums of FastDCGS until its agents stop. On two agents a sum takes two rounds."""
    X = dcgs.NuclearNormBall(problem.shape, radius)
    result = dcgs.minimize(problem.objectives, X, nx.path_graph(2), gap=GAP, every=1)
    row = {"sums": result.rounds / 2, "rank": result.x.rank, "f": float(result.history.mean_loss[-1])}
    row |= {"gap": GAP, "megabytes": result.bytes.sum() / 1e6, "steps": result.iterations}
    return row | {"values": result.history.mean_loss.tolist()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"some of {list(RADII)}; all by default")
    parser.add_argument("--sums", type=int, default=40, help="the most sums of the trial")
    parser.add_argument("--json", type=Path, help="write the numbers here, with versions and machine")
    args = parser.parse_args()
    about, found = environment(0) | {"command": " ".join(["python", *sys.argv])}, list[dict[str, Any]]()
    for name in args.names or RADII:
        problem, radius = Problem(name), RADII[name]
        for made in [trial(problem, radius, FIRST[name], args.sums), [ours(problem, radius)]]:
            for row in made:
                found.append({"data": name, "method": "trial" if "steps" not in row else "FastDCGS"} | row)
                print(
                    {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items() if k != "values"},
                    flush=True,
                )
                if args.json is not None:
                    args.json.write_text(json.dumps({"environment": about, "rows": found}, indent=2) + "\n")
