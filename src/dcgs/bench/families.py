"""Families of problems for the comparison: data of any size, split among the agents of any graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, final

import networkx as nx
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs import datasets
from dcgs.datasets import Ratings, Regression
from dcgs.objectives import LeastSquares, Logistic
from dcgs.sets import ConvexSet, L1Ball, L2Ball, NuclearNormBall
from dcgs.study import Problem

Rows: TypeAlias = NDArray[np.intp]
Split: TypeAlias = Callable[[NDArray[np.float64], int, int], Sequence[Rows]]
"""(b, agents, seed) ↦ the rows of each agent."""
MakeProblem: TypeAlias = Callable[[int], Problem]
"""A function of a seed; it raises DataNotFoundError if real data are missing."""


def by_size(b: NDArray[np.float64], agents: int, seed: int) -> list[Rows]:
    """Return rows in their order, split evenly."""
    return np.array_split(np.arange(len(b)), agents)


def by_value(b: NDArray[np.float64], agents: int, seed: int) -> list[Rows]:
    """Return rows sorted by b, split evenly: every agent sees another part of the distribution."""
    return np.array_split(np.argsort(b, kind="stable"), agents)


def by_chance(b: NDArray[np.float64], agents: int, seed: int, least: int = 2) -> list[Rows]:
    """Return rows in their order, in parts of random sizes of at least ``least`` rows."""
    shares = np.random.default_rng((seed, agents)).dirichlet(np.ones(agents))
    spare = len(b) - least * agents
    ends = least * np.arange(1, agents) + np.floor(np.cumsum(shares)[:-1] * spare).astype(np.intp)
    return np.split(np.arange(len(b)), ends)


def random_graph(agents: int, degree: float, seed: int) -> nx.Graph:
    """Return a random graph of about that mean degree: the first connected one of 1000 draws."""
    draws = (
        nx.gnp_random_graph(agents, degree / (agents - 1), seed=1000 * seed + draw) for draw in range(1000)
    )
    found = next(filter(nx.is_connected, draws), None)
    if found is None:
        raise ValueError(
            f"a mean degree of {degree:g} must give {agents} agents a connected graph; "
            "1000 draws gave none. Ask for a higher one."
        )
    return found


@final
@dataclass(frozen=True)
class GraphFamily:
    """A graph by its description; ``make(seed)`` makes it."""

    about: str
    make: Callable[[int], nx.Graph]


def fixed_graph(about: str, make: Callable[..., nx.Graph], *sizes: int) -> GraphFamily:
    """Return a graph that does not depend on the seed, with sorted nodes."""
    return GraphFamily(
        about, lambda seed: nx.convert_node_labels_to_integers(make(*sizes), ordering="sorted")
    )


def random_graphs(agents: int, degree: float) -> GraphFamily:
    """Return random graphs of about that mean degree."""
    about = f"{agents} agents on a random graph of mean degree {degree:g}"
    return GraphFamily(about, lambda seed: random_graph(agents, degree, seed))


CYCLE = fixed_graph("10 agents on a cycle", nx.cycle_graph, 10)

Family: TypeAlias = tuple[str, GraphFamily, MakeProblem]
"""Problems on a graph: a description, the graph, and a function of the seed."""


@final
@dataclass(frozen=True)
class Size:
    """Samples and features of a problem, and the nonzero entries of its truth."""

    samples: int
    features: int
    nonzeros: int

    def __str__(self) -> str:
        return f"{self.samples}×{self.features}"

    def draw(self, noise: float) -> Callable[[int], Regression]:
        """Return a function of a seed that draws the data."""
        sizes = self.samples, self.features, self.nonzeros
        return lambda seed: datasets.lasso_synthetic(*sizes, noise=noise, seed=seed)


MIDDLE = Size(400, 2000, 20)
_NOISE = 20.0  # a fifth of ‖A θ‖, which is about 100 √samples, for ‖θ‖ = 100


def _least_squares(
    what: str,
    graph: GraphFamily,
    draw: Callable[[int], Regression],
    ball: Callable[[Regression], ConvexSet],
    split: Split = by_size,
) -> Family:
    def make(seed: int) -> Problem:
        data, edges = draw(seed), graph.make(seed)
        parts = split(data.b, len(edges), seed)
        return Problem([LeastSquares(data.A[rows], data.b[rows]) for rows in parts], ball(data), edges)

    return what, graph, make


def lasso(graph: GraphFamily, size: Size = MIDDLE, split: Split = by_size) -> Family:
    """Return the paper's Lasso at some size: hardly any noise, and a radius that does not bind."""
    # ρ = 1000 at the paper's size is 1.25 times the norm of the truth; other sizes keep that.
    X = L1Ball(size.features, 1000.0 * (size.nonzeros / 100.0) ** 0.5)
    return _least_squares(f"Lasso {size}", graph, size.draw(noise=1.0), lambda data: X, split)


def noisy(graph: GraphFamily, size: Size) -> Family:
    """Return a Lasso with noise over a ball of 0.6 ‖θ‖₁, which binds."""

    def ball(data: Regression) -> ConvexSet:
        return L1Ball(size.features, 0.6 * float(np.abs(data.truth).sum()))

    return _least_squares(f"noisy Lasso {size} over a ball that binds", graph, size.draw(_NOISE), ball)


def euclidean(graph: GraphFamily, size: Size) -> Family:
    """Return noisy least squares over ‖x‖ ≤ 0.6 ‖θ‖, which binds."""

    def ball(data: Regression) -> ConvexSet:
        return L2Ball(size.features, 0.6 * float(np.linalg.norm(data.truth)))

    what = f"noisy least squares {size} over an ℓ₂ ball that binds"
    return _least_squares(what, graph, size.draw(_NOISE), ball)


def text(graph: GraphFamily, samples: int, features: int, radius: float) -> Family:
    """Return a Lasso on the look-alike of E2006-tfidf: one column outweighs all others by far."""
    what = f"Lasso {samples}×{features} on a look-alike of E2006-tfidf (not the real data), radius {radius:g}"
    X = L1Ball(features, radius)
    return _least_squares(
        f"{what}: sparse and ill-conditioned",
        graph,
        lambda seed: datasets.e2006_lookalike(samples, features, seed=seed),
        lambda data: X,
    )


def _labelled(
    what: str,
    graph: GraphFamily,
    draw: Callable[[np.random.Generator], tuple[NDArray[np.float64], NDArray[np.float64]]],
    split: Split,
) -> Family:
    """Return logistic regression over a ball of half the norm of the truth, which binds."""

    def make(seed: int) -> Problem:
        rng = np.random.default_rng(seed)
        A, truth = draw(rng)
        labels = np.where(rng.random(len(A)) < 1.0 / (1.0 + np.exp(-A @ truth)), 1.0, -1.0)
        edges = graph.make(seed)
        X = L1Ball(len(truth), 0.5 * float(np.abs(truth).sum()))
        parts = split(labels, len(edges), seed)
        return Problem([Logistic(A[rows], labels[rows]) for rows in parts], X, edges)

    return f"{what} over a ball that binds", graph, make


def logistic(graph: GraphFamily, size: Size) -> Family:
    """Return logistic regression with a sparse truth; rows are sorted by their labels."""

    def draw(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        A = rng.standard_normal((size.samples, size.features))
        truth = np.zeros(size.features)
        truth[: size.nonzeros] = rng.standard_normal(size.nonzeros)
        return A, truth

    return _labelled(f"logistic regression {size}", graph, draw, by_value)


def silo(graph: GraphFamily, samples: int, features: int, condition: float) -> Family:
    """Return logistic regression on many rows a site with correlated features."""

    def draw(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        spectrum = np.geomspace(1.0, 1.0 / condition, features)  # of the covariance of the features
        turn = np.linalg.qr(rng.standard_normal((features, features)))[0]
        A = rng.standard_normal((samples, features)) @ (np.sqrt(spectrum)[:, None] * turn)
        return A, rng.standard_normal(features)

    what = f"logistic regression {samples}×{features}, features of condition number {condition:.0e},"
    return _labelled(what, graph, draw, by_size)


def completion(graph: GraphFamily, side: int, rank: int, entries: int, by_column: bool = False) -> Family:
    """Return completion of a matrix of low rank over the ball of its own nuclear norm."""

    def make(seed: int) -> Problem:
        data = datasets.completion_synthetic(side, rank, entries, seed=seed)
        radius = float(np.linalg.svd(data.truth, compute_uv=False).sum())
        held = data.take(np.argsort(data.cols, kind="stable")) if by_column else data
        return _ratings(held, radius, graph.make(seed))

    what = f"completion {side}×{side} of rank {rank}, {entries} entries, radius the true nuclear norm"
    return what, graph, make


def _ratings(data: Ratings, radius: float, graph: nx.Graph) -> Problem:
    return Problem(data.objectives(len(graph)), NuclearNormBall(data.shape, radius), graph)


def movielens(seed: int) -> Problem:
    """Return completion of the ratings of MovieLens 100K."""
    return _ratings(datasets.movielens100k(download=False), 1e4, CYCLE.make(seed))


def reviews(seed: int) -> Problem:
    """Return a Lasso of star ratings on the tf-idf of clothing reviews, a file in the folder DCGS_DATA."""
    folder = os.environ.get("DCGS_DATA", "")
    path = Path(folder) / "sparse-regression" / "womens-clothing.npz"
    if not (folder and path.is_file()):
        raise datasets.DataNotFoundError(
            "womens-clothing.npz must be in the folder sparse-regression of the folder that DCGS_DATA names; "
            f"DCGS_DATA is {folder!r}. It holds a CSR matrix as data, indices, indptr, shape, and y."
        )
    with np.load(path, allow_pickle=False) as file:
        A = sp.csr_array((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
        b = file["y"].astype(np.float64)
    A = sp.csr_array(A.astype(np.float64))
    b -= b.mean()
    edges = CYCLE.make(seed)
    order = np.random.default_rng(seed).permutation(len(b))
    parts = [order[rows] for rows in by_size(b, len(edges), seed)]
    return Problem([LeastSquares(A[rows], b[rows]) for rows in parts], L1Ball(A.shape[1], 100.0), edges)
