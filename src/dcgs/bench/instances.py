"""The problems that methods are compared on: graphs, data and splits that differ in what makes them hard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from dcgs.datasets import (
    Ratings,
    Regression,
    completion_synthetic,
    e2006_lookalike,
    lasso_synthetic,
    movielens100k,
)
from dcgs.objectives import LeastSquares, Logistic, Objective
from dcgs.sets import ConvexSet, L1Ball, L2Ball, NuclearNormBall

Rows: TypeAlias = NDArray[np.intp]
Split: TypeAlias = Callable[[NDArray[np.float64], int, int], Sequence[Rows]]
"""(b, agents, seed) ↦ the rows of each agent."""
Wiring: TypeAlias = Callable[[int], nx.Graph]
"""seed ↦ the graph; only random graphs look at it."""


@final
@dataclass(frozen=True, eq=False)
class Problem:
    """What the agents minimize together, and who talks to whom."""

    objectives: Sequence[Objective]
    X: ConvexSet
    graph: nx.Graph


@final
@dataclass(frozen=True, eq=False)
class Instance:
    """A problem by name; ``make(seed)`` makes it, or raises DataNotFoundError where it needs real data.

    ``rounds`` is after how many a run on it ends at the latest, ``reference`` the same for the iterations
    of the solver that finds f*. Where rounds take long, ``patience`` multiplies the seconds given.
    """

    name: str
    about: str
    make: Callable[[int], Problem]
    rounds: int = 3000
    reference: int = 20_000
    patience: float = 1.0


def by_size(b: NDArray[np.float64], agents: int, seed: int) -> list[Rows]:
    """Return rows in their order, split evenly."""
    return np.array_split(np.arange(len(b)), agents)


def by_value(b: NDArray[np.float64], agents: int, seed: int) -> list[Rows]:
    """Return rows sorted by b, split evenly: every agent sees another part of the distribution."""
    return np.array_split(np.argsort(b, kind="stable"), agents)


def by_chance(b: NDArray[np.float64], agents: int, seed: int, least: int = 2) -> list[Rows]:
    """Return rows in their order, in parts of random sizes with at least ``least`` of them."""
    shares = np.random.default_rng((seed, agents)).dirichlet(np.ones(agents))
    spare = len(b) - least * agents
    ends = least * np.arange(1, agents) + np.floor(np.cumsum(shares)[:-1] * spare).astype(np.intp)
    return np.split(np.arange(len(b)), ends)


def random_graph(agents: int, degree: float, seed: int) -> nx.Graph:
    """Return a connected random graph of about that mean degree: the first one that is, of 1000 draws."""
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


def _fixed(make: Callable[..., nx.Graph], *sizes: int) -> Wiring:
    return lambda seed: nx.convert_node_labels_to_integers(make(*sizes), ordering="sorted")


def _random(agents: int, degree: float) -> Wiring:
    return lambda seed: random_graph(agents, degree, seed)


@final
@dataclass(frozen=True)
class _Size:
    samples: int
    features: int
    nonzeros: int


_MIDDLE = _Size(400, 2000, 20)


def _lasso(
    name: str, wiring: Wiring, about: str, size: _Size = _MIDDLE, split: Split = by_size, **caps: Any
) -> Instance:
    """Return the paper's Lasso at some size: hardly any noise, and a radius that does not bind."""

    def make(seed: int) -> Problem:
        data = lasso_synthetic(size.samples, size.features, size.nonzeros, seed=seed)
        # ρ = 1000 at the paper's size is 1.25 times the norm of the truth; other sizes keep that.
        radius = 1000.0 * (size.nonzeros / 100.0) ** 0.5
        return _regression(data, L1Ball(size.features, radius), wiring(seed), split, seed)

    return Instance(name, f"Lasso {size.samples}×{size.features}, {about}.", make, **caps)


def _noisy(name: str, wiring: Wiring, about: str, size: _Size, **caps: Any) -> Instance:
    """Return a Lasso with noise of a fifth of ‖A θ‖ over a ball of 0.6 ‖θ‖₁, which binds."""

    def make(seed: int) -> Problem:
        data = _with_noise(size, seed)
        X = L1Ball(size.features, 0.6 * float(np.abs(data.truth).sum()))
        return _regression(data, X, wiring(seed), by_size, seed)

    what = f"noisy Lasso {size.samples}×{size.features} over a ball that binds"
    return Instance(name, f"{what}, {about}.", make, **caps)


def _round_ball(name: str, wiring: Wiring, about: str, size: _Size) -> Instance:
    """Return noisy least squares over ‖x‖ ≤ 0.6 ‖θ‖, which binds."""

    def make(seed: int) -> Problem:
        data = _with_noise(size, seed)
        X = L2Ball(size.features, 0.6 * float(np.linalg.norm(data.truth)))
        return _regression(data, X, wiring(seed), by_size, seed)

    what = f"noisy least squares {size.samples}×{size.features} over an ℓ₂ ball that binds"
    return Instance(name, f"{what}, {about}.", make)


def _with_noise(size: _Size, seed: int) -> Regression:
    # ‖A θ‖ is about 100 √samples, for the truth has norm 100: noise of deviation 20 is a fifth of it.
    return lasso_synthetic(size.samples, size.features, size.nonzeros, noise=20.0, seed=seed)


def _regression(data: Regression, X: ConvexSet, graph: nx.Graph, split: Split, seed: int) -> Problem:
    parts = split(data.b, len(graph), seed)
    return Problem([LeastSquares(data.A[rows], data.b[rows]) for rows in parts], X, graph)


def _logistic(name: str, wiring: Wiring, about: str, size: _Size) -> Instance:
    """Return logistic regression over a ball of half the norm of the truth, which binds."""

    def make(seed: int) -> Problem:
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((size.samples, size.features))
        truth = np.zeros(size.features)
        truth[: size.nonzeros] = rng.standard_normal(size.nonzeros)
        labels = np.where(rng.random(size.samples) < 1.0 / (1.0 + np.exp(-A @ truth)), 1.0, -1.0)
        graph = wiring(seed)
        parts = by_value(labels, len(graph), seed)
        X = L1Ball(size.features, 0.5 * float(np.abs(truth).sum()))
        return Problem([Logistic(A[rows], labels[rows]) for rows in parts], X, graph)

    what = f"logistic regression {size.samples}×{size.features} over a ball that binds"
    return Instance(name, f"{what}, {about}.", make)


def _text(name: str, wiring: Wiring, samples: int, features: int, radius: float) -> Instance:
    """Return a Lasso on the look-alike of E2006-tfidf: one column outweighs all others by far."""

    def make(seed: int) -> Problem:
        data = e2006_lookalike(samples, features, seed=seed)
        return _regression(data, L1Ball(features, radius), wiring(seed), by_size, seed)

    about = (
        f"Lasso {samples}×{features} on a look-alike of E2006-tfidf (not the real data), radius {radius:g}: "
        "sparse and ill-conditioned, 10 agents on a cycle."
    )
    return Instance(name, about, make)


def _completion(
    name: str, wiring: Wiring, about: str, size: tuple[int, int, int], by_column: bool = False
) -> Instance:
    """Return completion of a matrix of low rank over the ball of its own nuclear norm."""
    side, rank, entries = size

    def make(seed: int) -> Problem:
        data = completion_synthetic(side, rank, entries, seed=seed)
        radius = float(np.linalg.svd(data.truth, compute_uv=False).sum())
        return _ratings(_by_column(data) if by_column else data, radius, wiring(seed))

    what = f"completion {side}×{side} of rank {rank}, {entries} entries, radius the true nuclear norm"
    return Instance(name, f"{what}, {about}.", make)


def _by_column(data: Ratings) -> Ratings:
    return data.take(np.argsort(data.cols, kind="stable"))


def _ratings(data: Ratings, radius: float, graph: nx.Graph) -> Problem:
    return Problem(data.objectives(len(graph)), NuclearNormBall(data.shape, radius), graph)


def _movielens(seed: int) -> Problem:
    return _ratings(movielens100k(download=False), 1e4, nx.cycle_graph(10))


_CYCLE = _fixed(nx.cycle_graph, 10)

INSTANCES: tuple[Instance, ...] = (
    replace(
        _lasso("lasso-paper", _CYCLE, "the paper's, 10 agents on a cycle", _Size(2000, 10_000, 100)),
        rounds=4000,
        patience=12.0,
    ),
    replace(_completion("completion-paper", _CYCLE, "10 agents on a cycle", (200, 5, 5000)), patience=6.0),
    Instance(
        "movielens",
        "MovieLens 100K, all ratings, nuclear norm at most 10⁴, 10 agents on a cycle.",
        _movielens,
        reference=400,
        patience=6.0,
    ),
    _lasso("lasso-cycle-10", _CYCLE, "10 agents on a cycle"),
    _lasso("lasso-path-10", _fixed(nx.path_graph, 10), "10 agents on a path"),
    _lasso("lasso-star-20", _fixed(nx.star_graph, 19), "20 agents on a star"),
    _lasso("lasso-grid-4x5", _fixed(nx.grid_2d_graph, 4, 5), "20 agents on a 4×5 grid"),
    replace(
        _lasso(
            "lasso-random-50",
            _random(50, 6.0),
            "50 agents with 16 samples each on a random graph of mean degree 6",
            _Size(800, 2000, 20),
        ),
        patience=3.0,
    ),
    _lasso("lasso-barbell-20", _fixed(nx.barbell_graph, 10, 0), "20 agents, two cliques and one edge"),
    _lasso("lasso-complete-20", _fixed(nx.complete_graph, 20), "20 agents, everyone with everyone"),
    _lasso("lasso-uneven-10", _CYCLE, "10 agents on a cycle, from 2 samples to many each", split=by_chance),
    _lasso("lasso-sorted-10", _CYCLE, "10 agents on a cycle, samples sorted by b", split=by_value),
    _noisy("noisy-cycle-10", _CYCLE, "10 agents on a cycle", _MIDDLE),
    _noisy(
        "noisy-grid-6x6", _fixed(nx.grid_2d_graph, 6, 6), "36 agents on a 6×6 grid", _Size(1080, 1000, 20)
    ),
    _noisy(
        "noisy-random-30",
        _random(30, 5.0),
        "30 agents on a random graph of mean degree 5",
        _Size(900, 1000, 20),
    ),
    _noisy(
        "noisy-path-100",
        _fixed(nx.path_graph, 100),
        "100 agents on a path",
        _Size(1000, 500, 20),
        rounds=6000,
    ),
    _noisy(
        "strong-random-20",
        _random(20, 4.0),
        "strongly convex, 20 agents on a random graph of mean degree 4",
        _Size(2000, 100, 20),
    ),
    _round_ball("strong-l2-10", _CYCLE, "strongly convex, 10 agents on a cycle", _Size(2000, 100, 20)),
    _logistic(
        "logistic-sorted-20",
        _random(20, 4.0),
        "20 agents on a random graph of mean degree 4, most of which see one class",
        _Size(1000, 300, 15),
    ),
    # Of f(x⁰) − f*, the one heavy column leaves 2e-3: levels from 1e-3 on are about the words.
    _text("text-cycle-10", _CYCLE, 1000, 5000, 1000.0),
    replace(
        _completion(
            "completion-sorted-4x5",
            _fixed(nx.grid_2d_graph, 4, 5),
            "20 agents on a 4×5 grid who each see other columns",
            (100, 3, 3000),
            by_column=True,
        ),
        patience=3.0,
    ),
)
"""The whole table."""

QUICK: tuple[Instance, ...] = (
    _lasso("quick-lasso", _fixed(nx.cycle_graph, 6), "6 agents on a cycle", _Size(60, 200, 5), rounds=400),
    _noisy(
        "quick-noisy", _fixed(nx.grid_2d_graph, 2, 3), "6 agents on a 2×3 grid", _Size(120, 60, 6), rounds=400
    ),
    _completion("quick-completion", _fixed(nx.path_graph, 4), "4 agents on a path", (20, 2, 200)),
)
"""Small ones, to see that everything works."""


def instance(name: str) -> Instance:
    """Return an instance by its name."""
    return next(one for one in (*INSTANCES, *QUICK) if one.name == name)
