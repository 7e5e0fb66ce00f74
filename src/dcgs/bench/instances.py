"""The instances of the comparison: problems with different graphs, data and splits."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

import networkx as nx
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs import registry
from dcgs.datasets import (
    DataNotFoundError,
    Ratings,
    Regression,
    completion_synthetic,
    e2006_lookalike,
    lasso_synthetic,
    movielens100k,
)
from dcgs.objectives import LeastSquares, Logistic
from dcgs.sets import ConvexSet, L1Ball, L2Ball, NuclearNormBall
from dcgs.study import Problem

Rows: TypeAlias = NDArray[np.intp]
Split: TypeAlias = Callable[[NDArray[np.float64], int, int], Sequence[Rows]]
"""(b, agents, seed) ↦ the rows of each agent."""
MakeProblem: TypeAlias = Callable[[int], Problem]
"""A function of a seed; it raises DataNotFoundError if real data are missing."""


@final
@dataclass(frozen=True, eq=False)
class Instance:
    """A problem by name; ``make(seed)`` makes it.

    ``rounds`` limits every run on it, ``reference`` the iterations of the solver that finds f*, and
    ``time_factor`` multiplies the time limit. ``spec`` names an instance that is outside the package.
    """

    name: str
    about: str
    make: MakeProblem
    rounds: int = 3000
    reference: int = 20_000
    time_factor: float = 1.0
    spec: str = ""

    @property
    def file(self) -> str:
        """The name of its files."""
        return self.spec.replace(":", ".") or self.name


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
class _Graph:
    about: str
    make: Callable[[int], nx.Graph]


def _fixed(about: str, make: Callable[..., nx.Graph], *sizes: int) -> _Graph:
    return _Graph(about, lambda seed: nx.convert_node_labels_to_integers(make(*sizes), ordering="sorted"))


def _random(agents: int, degree: float) -> _Graph:
    about = f"{agents} agents on a random graph of mean degree {degree:g}"
    return _Graph(about, lambda seed: random_graph(agents, degree, seed))


_CYCLE = _fixed("10 agents on a cycle", nx.cycle_graph, 10)
_PATH = _fixed("10 agents on a path", nx.path_graph, 10)
_LONG_PATH = _fixed("100 agents on a path", nx.path_graph, 100)
_STAR = _fixed("20 agents on a star", nx.star_graph, 19)
_GRID = _fixed("20 agents on a 4×5 grid", nx.grid_2d_graph, 4, 5)
_LARGE_GRID = _fixed("36 agents on a 6×6 grid", nx.grid_2d_graph, 6, 6)
_BARBELL = _fixed("20 agents, two cliques and one edge", nx.barbell_graph, 10, 0)
_COMPLETE = _fixed("20 agents, everyone with everyone", nx.complete_graph, 20)

# A family of problems on a graph: a description, the graph, and a function of the seed.
Family: TypeAlias = tuple[str, _Graph, MakeProblem]


@final
@dataclass(frozen=True)
class _Size:
    samples: int
    features: int
    nonzeros: int

    def __str__(self) -> str:
        return f"{self.samples}×{self.features}"

    def draw(self, noise: float) -> Callable[[int], Regression]:
        sizes = self.samples, self.features, self.nonzeros
        return lambda seed: lasso_synthetic(*sizes, noise=noise, seed=seed)


_MIDDLE = _Size(400, 2000, 20)
_NOISE = 20.0  # a fifth of ‖A θ‖, which is about 100 √samples, for ‖θ‖ = 100


def _least_squares(
    what: str,
    graph: _Graph,
    draw: Callable[[int], Regression],
    ball: Callable[[Regression], ConvexSet],
    split: Split = by_size,
) -> Family:
    def make(seed: int) -> Problem:
        data, edges = draw(seed), graph.make(seed)
        parts = split(data.b, len(edges), seed)
        return Problem([LeastSquares(data.A[rows], data.b[rows]) for rows in parts], ball(data), edges)

    return what, graph, make


def _lasso(graph: _Graph, size: _Size = _MIDDLE, split: Split = by_size) -> Family:
    """Return the paper's Lasso at some size: hardly any noise, and a radius that does not bind."""
    # ρ = 1000 at the paper's size is 1.25 times the norm of the truth; other sizes keep that.
    X = L1Ball(size.features, 1000.0 * (size.nonzeros / 100.0) ** 0.5)
    return _least_squares(f"Lasso {size}", graph, size.draw(noise=1.0), lambda data: X, split)


def _noisy(graph: _Graph, size: _Size) -> Family:
    """Return a Lasso with noise over a ball of 0.6 ‖θ‖₁, which binds."""

    def ball(data: Regression) -> ConvexSet:
        return L1Ball(size.features, 0.6 * float(np.abs(data.truth).sum()))

    return _least_squares(f"noisy Lasso {size} over a ball that binds", graph, size.draw(_NOISE), ball)


def _euclidean(graph: _Graph, size: _Size) -> Family:
    """Return noisy least squares over ‖x‖ ≤ 0.6 ‖θ‖, which binds."""

    def ball(data: Regression) -> ConvexSet:
        return L2Ball(size.features, 0.6 * float(np.linalg.norm(data.truth)))

    what = f"noisy least squares {size} over an ℓ₂ ball that binds"
    return _least_squares(what, graph, size.draw(_NOISE), ball)


def _text(graph: _Graph, samples: int, features: int, radius: float) -> Family:
    """Return a Lasso on the look-alike of E2006-tfidf: one column outweighs all others by far."""
    what = f"Lasso {samples}×{features} on a look-alike of E2006-tfidf (not the real data), radius {radius:g}"
    X = L1Ball(features, radius)
    return _least_squares(
        f"{what}: sparse and ill-conditioned",
        graph,
        lambda seed: e2006_lookalike(samples, features, seed=seed),
        lambda data: X,
    )


def _logistic(graph: _Graph, size: _Size) -> Family:
    """Return logistic regression over a ball of half the norm of the truth, which binds."""

    def make(seed: int) -> Problem:
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((size.samples, size.features))
        truth = np.zeros(size.features)
        truth[: size.nonzeros] = rng.standard_normal(size.nonzeros)
        labels = np.where(rng.random(size.samples) < 1.0 / (1.0 + np.exp(-A @ truth)), 1.0, -1.0)
        edges = graph.make(seed)
        parts = by_value(labels, len(edges), seed)
        X = L1Ball(size.features, 0.5 * float(np.abs(truth).sum()))
        return Problem([Logistic(A[rows], labels[rows]) for rows in parts], X, edges)

    return f"logistic regression {size} over a ball that binds", graph, make


def _completion(graph: _Graph, side: int, rank: int, entries: int, by_column: bool = False) -> Family:
    """Return completion of a matrix of low rank over the ball of its own nuclear norm."""

    def make(seed: int) -> Problem:
        data = completion_synthetic(side, rank, entries, seed=seed)
        radius = float(np.linalg.svd(data.truth, compute_uv=False).sum())
        held = data.take(np.argsort(data.cols, kind="stable")) if by_column else data
        return _ratings(held, radius, graph.make(seed))

    return (
        f"completion {side}×{side} of rank {rank}, {entries} entries, radius the true nuclear norm",
        graph,
        make,
    )


def _ratings(data: Ratings, radius: float, graph: nx.Graph) -> Problem:
    return Problem(data.objectives(len(graph)), NuclearNormBall(data.shape, radius), graph)


def _movielens(seed: int) -> Problem:
    return _ratings(movielens100k(download=False), 1e4, _CYCLE.make(seed))


def _row(name: str, family: Family, about: str = "{}", **limits: Any) -> Instance:
    """Return an instance; ``about`` is formatted with the description of the graph."""
    what, graph, make = family
    return Instance(name, f"{what}, {about.format(graph.about)}.", make, **limits)


_RATINGS = "MovieLens 100K, all ratings, nuclear norm at most 10⁴", _CYCLE, _movielens
_PAPER, _WIDE, _TALL = _Size(2000, 10_000, 100), _Size(800, 2000, 20), _Size(2000, 100, 20)
_FEW = "50 agents with 16 samples each on a random graph of mean degree 6"

INSTANCES: tuple[Instance, ...] = (
    _row("lasso-paper", _lasso(_CYCLE, _PAPER), "the paper's, {}", rounds=4000, time_factor=12.0),
    _row("completion-paper", _completion(_CYCLE, 200, 5, 5000), time_factor=6.0),
    _row("movielens", _RATINGS, reference=400, time_factor=6.0),
    _row("lasso-cycle-10", _lasso(_CYCLE)),
    _row("lasso-path-10", _lasso(_PATH)),
    _row("lasso-star-20", _lasso(_STAR)),
    _row("lasso-grid-4x5", _lasso(_GRID)),
    _row("lasso-random-50", _lasso(_random(50, 6.0), _WIDE), _FEW, time_factor=3.0),
    _row("lasso-barbell-20", _lasso(_BARBELL)),
    _row("lasso-complete-20", _lasso(_COMPLETE)),
    _row("lasso-uneven-10", _lasso(_CYCLE, split=by_chance), "{}, from 2 samples to many each"),
    _row("lasso-sorted-10", _lasso(_CYCLE, split=by_value), "{}, samples sorted by b"),
    _row("noisy-cycle-10", _noisy(_CYCLE, _MIDDLE)),
    _row("noisy-grid-6x6", _noisy(_LARGE_GRID, _Size(1080, 1000, 20))),
    _row("noisy-random-30", _noisy(_random(30, 5.0), _Size(900, 1000, 20))),
    _row("noisy-path-100", _noisy(_LONG_PATH, _Size(1000, 500, 20)), rounds=6000),
    _row("strong-random-20", _noisy(_random(20, 4.0), _TALL), "strongly convex, {}"),
    _row("strong-l2-10", _euclidean(_CYCLE, _TALL), "strongly convex, {}"),
    _row(
        "logistic-sorted-20",
        _logistic(_random(20, 4.0), _Size(1000, 300, 15)),
        "{}, most of which see one class",
    ),
    # Of f(x⁰) − f*, the one heavy column leaves 2e-3: levels from 1e-3 on are about the other columns.
    _row("text-cycle-10", _text(_CYCLE, 1000, 5000, 1000.0)),
    _row(
        "completion-sorted-4x5",
        _completion(_GRID, 100, 3, 3000, by_column=True),
        "{} who each see other columns",
        time_factor=3.0,
    ),
)
"""All instances of the table."""


def _silo(graph: _Graph, samples: int, features: int, condition: float) -> Family:
    """Return logistic regression on many rows a site with correlated features, over a ball that binds."""

    def make(seed: int) -> Problem:
        rng = np.random.default_rng(seed)
        spectrum = np.geomspace(1.0, 1.0 / condition, features)  # of the covariance of the features
        turn = np.linalg.qr(rng.standard_normal((features, features)))[0]
        A = rng.standard_normal((samples, features)) @ (np.sqrt(spectrum)[:, None] * turn)
        truth = rng.standard_normal(features)
        labels = np.where(rng.random(samples) < 1.0 / (1.0 + np.exp(-A @ truth)), 1.0, -1.0)
        edges = graph.make(seed)
        X = L1Ball(features, 0.5 * float(np.abs(truth).sum()))
        parts = by_size(labels, len(edges), seed)
        return Problem([Logistic(A[rows], labels[rows]) for rows in parts], X, edges)

    what = f"logistic regression {samples}×{features}, features of condition number {condition:.0e}"
    return f"{what}, over a ball that binds", graph, make


def _reviews(seed: int) -> Problem:
    """Return a Lasso of star ratings on the tf-idf of clothing reviews, a file in the folder DCGS_DATA."""
    folder = os.environ.get("DCGS_DATA", "")
    path = Path(folder) / "sparse-regression" / "womens-clothing.npz"
    if not (folder and path.is_file()):
        raise DataNotFoundError(
            "womens-clothing.npz must be in the folder sparse-regression of the folder that DCGS_DATA names; "
            f"DCGS_DATA is {folder!r}. It holds a CSR matrix as data, indices, indptr, shape, and y."
        )
    with np.load(path, allow_pickle=False) as file:
        A = sp.csr_array((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
        b = file["y"].astype(np.float64)
    A = sp.csr_array(A.astype(np.float64))
    b -= b.mean()
    edges = _CYCLE.make(seed)
    order = np.random.default_rng(seed).permutation(len(b))
    parts = [order[rows] for rows in by_size(b, len(edges), seed)]
    return Problem([LeastSquares(A[rows], b[rows]) for rows in parts], L1Ball(A.shape[1], 100.0), edges)


_REVIEWS = "Lasso of star ratings on the words of 22,641 clothing reviews, 14,679 features", _CYCLE, _reviews

LARGE: tuple[Instance, ...] = (
    _row("silo-10", _silo(_CYCLE, 100_000, 300, 1e4), rounds=1000, reference=2000, time_factor=4.0),
    _row("reviews-10", _REVIEWS, rounds=1000, reference=5000, time_factor=4.0),
)
"""Instances with many rows, which only ``dcgs bench time`` has."""

_SIX = _fixed("6 agents on a cycle", nx.cycle_graph, 6)
_TWO_ROWS = _fixed("6 agents on a 2×3 grid", nx.grid_2d_graph, 2, 3)
_FOUR = _fixed("4 agents on a path", nx.path_graph, 4)

QUICK: tuple[Instance, ...] = (
    _row("quick-lasso", _lasso(_SIX, _Size(60, 200, 5)), rounds=400),
    _row("quick-noisy", _noisy(_TWO_ROWS, _Size(120, 60, 6)), rounds=400),
    _row("quick-completion", _completion(_FOUR, 20, 2, 200), rounds=400),
)
"""Small instances, for a quick trial."""


def instance(name: str) -> Instance:
    """Return the instance of that name, or one outside the package.

    The latter is named ``package.module:name`` or ``path/to/file.py:name``, and is a function of a seed
    that returns objectives, set and graph.
    """
    if ":" not in name:
        return next(one for one in (*INSTANCES, *LARGE, *QUICK) if one.name == name)
    make = registry.load("instance", name)
    if not callable(make):
        raise ValueError(f"{name} must be a function of a seed; it is a {type(make).__name__}.")

    def problem(seed: int) -> Problem:
        made = make(seed)
        if not (isinstance(made, tuple) and len(made) == 3):
            kind = type(made).__name__
            raise ValueError(
                f"{name} must return a tuple of objectives, set and graph; it returned a {kind}."
            )
        return Problem(*made)

    about = (make.__doc__ or name).strip().splitlines()[0]
    return Instance(name.rpartition(":")[2], about, problem, spec=name)
