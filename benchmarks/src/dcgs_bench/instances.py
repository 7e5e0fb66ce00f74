"""The instances of the comparison: problems with different graphs, data and splits."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias, final

import networkx as nx
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs import datasets, registry
from dcgs.datasets import Ratings, Regression
from dcgs.objectives import HuberLoss, LeastSquares, Logistic, Objective, matrix_map
from dcgs.sets import ConvexSet, L1Ball, L2Ball, NuclearNormBall
from dcgs_bench.study import StudyProblem

Rows: TypeAlias = NDArray[np.intp]
Split: TypeAlias = Callable[[NDArray[np.float64], int, int], Sequence[Rows]]
"""(b, agents, seed) ↦ the rows of each agent."""
MakeProblem: TypeAlias = Callable[[int], StudyProblem]
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
    """Return a random graph of about that mean degree: the first connected one of the draws."""
    share = degree / (agents - 1)
    draws = (nx.gnp_random_graph(agents, share, seed=1000 * seed + draw) for draw in count())
    return next(filter(nx.is_connected, draws))


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
    def make(seed: int) -> StudyProblem:
        data, edges = draw(seed), graph.make(seed)
        parts = split(data.b, len(edges), seed)
        return StudyProblem([LeastSquares(data.A[rows], data.b[rows]) for rows in parts], ball(data), edges)

    return what, graph, make


def lasso(graph: GraphFamily, size: Size = MIDDLE, split: Split = by_size) -> Family:
    """Return the paper's Lasso at some size: hardly any noise, and a radius that does not bind."""
    # ρ = 1000 at the paper's size is 1.25 times the norm of the truth; other sizes keep that.
    X = L1Ball(size.features, 1000.0 * (size.nonzeros / 100.0) ** 0.5)
    return _least_squares(f"Lasso {size}", graph, size.draw(noise=1.0), lambda data: X, split)


def noisy(graph: GraphFamily, size: Size, order: int = 1) -> Family:
    """Return least squares with noise over an ℓ₁ or an ℓ₂ ball of 0.6 times the length of θ, which binds."""
    ball, draw = (L1Ball, L2Ball)[order - 1], size.draw(_NOISE)
    what = (f"Lasso {size} over a ball", f"least squares {size} over an ℓ₂ ball")[order - 1]
    make = partial(_least_squares, f"noisy {what} that binds", graph, draw)
    return make(lambda data: ball(data.A.shape[1], 0.6 * _length(data, order)))


def uneven(graph: GraphFamily, size: Size) -> Family:
    """Return a noisy Lasso whose columns differ by 10⁴, over a ball of ten times ‖θ‖₁."""

    def draw(seed: int) -> Regression:
        data = size.draw(noise=1.0)(seed)
        return replace(data, A=data.A * 10.0 ** np.random.default_rng(seed).uniform(-4.0, 0.0, size.features))

    what = f"Lasso {size} with columns that differ by 10⁴"
    return _least_squares(what, graph, draw, lambda data: L1Ball(data.A.shape[1], 10.0 * _length(data, 1)))


def huber(graph: GraphFamily, size: Size, scale: float) -> Family:
    """Return Huber losses with δ = 1 and targets of this scale, over a ball of 0.8 ‖θ‖₁, which binds."""

    def make(seed: int) -> StudyProblem:
        rng = np.random.default_rng(seed)
        A, truth = rng.standard_normal((size.samples, size.features)), np.zeros(size.features)
        truth[: size.nonzeros] = rng.standard_normal(size.nonzeros)
        truth *= scale / np.linalg.norm(truth)
        b = A @ truth + 0.1 * scale * rng.standard_normal(size.samples)
        edges = graph.make(seed)
        losses = [(HuberLoss(b[rows], 1.0), A[rows]) for rows in by_size(b, len(edges), seed)]
        X = L1Ball(size.features, 0.8 * float(np.abs(truth).sum()))
        return StudyProblem([Objective(loss, matrix_map(rows)) for loss, rows in losses], X, edges)

    return f"Huber losses {size} with targets of scale {scale:g} over a ball that binds", graph, make


def _length(data: Regression, order: int) -> float:
    return float(np.abs(data.truth).sum() if order == 1 else np.linalg.norm(data.truth))


def text(graph: GraphFamily, samples: int, features: int, radius: float) -> Family:
    """Return a Lasso on the look-alike of E2006-tfidf: one column outweighs all others by far."""
    what = f"Lasso {samples}×{features} on a look-alike of E2006-tfidf (not the real data), radius {radius:g}"
    X, draw = L1Ball(features, radius), partial(datasets.e2006_lookalike, samples, features)
    return _least_squares(
        f"{what}: sparse and ill-conditioned", graph, lambda seed: draw(seed=seed), lambda data: X
    )


def _labelled(
    what: str,
    graph: GraphFamily,
    draw: Callable[[np.random.Generator], tuple[NDArray[np.float64], NDArray[np.float64]]],
    split: Split,
    radius: float | None = None,
) -> Family:
    """Return logistic regression over a ball that binds, by default of half the norm of the truth."""

    def make(seed: int) -> StudyProblem:
        rng = np.random.default_rng(seed)
        A, truth = draw(rng)
        labels = np.where(rng.random(len(A)) < 1.0 / (1.0 + np.exp(-A @ truth)), 1.0, -1.0)
        edges = graph.make(seed)
        X = L1Ball(len(truth), radius or 0.5 * float(np.abs(truth).sum()))
        parts = split(labels, len(edges), seed)
        return StudyProblem([Logistic(A[rows], labels[rows]) for rows in parts], X, edges)

    ball = "a ball that binds" if radius is None else f"a ball of radius {radius:g}, which binds"
    return f"{what} over {ball}", graph, make


def logistic(graph: GraphFamily, size: Size) -> Family:
    """Return logistic regression with a sparse truth; rows are sorted by their labels."""

    def draw(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        A = rng.standard_normal((size.samples, size.features))
        truth = np.zeros(size.features)
        truth[: size.nonzeros] = rng.standard_normal(size.nonzeros)
        return A, truth

    return _labelled(f"logistic regression {size}", graph, draw, by_value)


def silo(
    graph: GraphFamily, samples: int, features: int, condition: float, radius: float | None = None
) -> Family:
    """Return logistic regression on many rows a site with correlated features."""

    def draw(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        spectrum = np.geomspace(1.0, 1.0 / condition, features)  # of the covariance of the features
        turn = np.linalg.qr(rng.standard_normal((features, features)))[0]
        A = rng.standard_normal((samples, features)) @ (np.sqrt(spectrum)[:, None] * turn)
        return A, rng.standard_normal(features)

    what = f"logistic regression {samples}×{features}, features of condition number {condition:.0e},"
    return _labelled(what, graph, draw, by_size, radius)


def completion(graph: GraphFamily, side: int, rank: int, entries: int, by_column: bool = False) -> Family:
    """Return completion of a matrix of low rank over the ball of its own nuclear norm."""

    def make(seed: int) -> StudyProblem:
        data = datasets.completion_synthetic(side, rank, entries, seed=seed)
        radius = float(np.linalg.svd(data.truth, compute_uv=False).sum())
        held = data.take(np.argsort(data.cols, kind="stable")) if by_column else data
        return _ratings(held, radius, graph.make(seed))

    what = f"completion {side}×{side} of rank {rank}, {entries} entries, radius the true nuclear norm"
    return what, graph, make


def _ratings(data: Ratings, radius: float, graph: nx.Graph) -> StudyProblem:
    return StudyProblem(data.objectives(len(graph)), NuclearNormBall(data.shape, radius), graph)


def movielens(seed: int) -> StudyProblem:
    """Return completion of the ratings of MovieLens 100K."""
    return _ratings(datasets.movielens100k(download=False), 1e4, CYCLE.make(seed))


def reviews(seed: int) -> StudyProblem:
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
    return StudyProblem([LeastSquares(A[rows], b[rows]) for rows in parts], L1Ball(A.shape[1], 100.0), edges)


@final
@dataclass(frozen=True, eq=False)
class Instance:
    """A problem by name; ``make(seed)`` makes it.

    ``rounds`` limits every run on it, ``reference`` the iterations of the solver that finds f*, and
    ``time_factor`` multiplies the time limit. ``without`` names the entries that are not run on it. ``spec``
    names an instance that is outside the package.
    """

    name: str
    about: str
    make: MakeProblem
    rounds: int = 3000
    reference: int = 20_000
    time_factor: float = 1.0
    without: Sequence[str] = ()
    spec: str = ""

    @property
    def file(self) -> str:
        """The name of its files."""
        return self.spec.replace(":", ".") or self.name


def _row(name: str, family: Family, about: str = "{}", **limits: Any) -> Instance:
    """Return an instance; ``about`` is formatted with the description of the graph."""
    what, graph, make = family
    return Instance(name, f"{what}, {about.format(graph.about)}.", make, **limits)


_PATH = fixed_graph("10 agents on a path", nx.path_graph, 10)
_LONG_PATH = fixed_graph("100 agents on a path", nx.path_graph, 100)
_STAR = fixed_graph("20 agents on a star", nx.star_graph, 19)
_GRID = fixed_graph("20 agents on a 4×5 grid", nx.grid_2d_graph, 4, 5)
_LARGE_GRID = fixed_graph("36 agents on a 6×6 grid", nx.grid_2d_graph, 6, 6)
_BARBELL = fixed_graph("20 agents, two cliques and one edge", nx.barbell_graph, 10, 0)
_COMPLETE = fixed_graph("20 agents, everyone with everyone", nx.complete_graph, 20)

_HUB = fixed_graph("10 agents on a star", nx.star_graph, 9)
_ALL_TEN = fixed_graph("10 agents, everyone with everyone", nx.complete_graph, 10)
_silo = partial(silo, samples=20_000, features=100, condition=1e4, radius=50.0)
_SILO: dict[str, Any] = {"rounds": 1000, "reference": 2000}
_LONG: dict[str, Any] = {"without": ("FastDCGS, newton",)}  # more than 500 unknowns: no Hessians

_RATINGS = "MovieLens 100K, all ratings, nuclear norm at most 10⁴", CYCLE, movielens
_PAPER, _WIDE, _TALL = Size(2000, 10_000, 100), Size(800, 2000, 20), Size(2000, 100, 20)
_FEW = "50 agents with 16 samples each on a random graph of mean degree 6"

INSTANCES: tuple[Instance, ...] = (
    _row("lasso-paper", lasso(CYCLE, _PAPER), "the paper's, {}", rounds=4000, time_factor=12.0, **_LONG),
    _row("completion-paper", completion(CYCLE, 200, 5, 5000), time_factor=6.0, **_LONG),
    _row("movielens", _RATINGS, reference=400, time_factor=6.0, **_LONG),
    _row("lasso-cycle-10", lasso(CYCLE), **_LONG),
    _row("lasso-path-10", lasso(_PATH), **_LONG),
    _row("lasso-star-20", lasso(_STAR), **_LONG),
    _row("lasso-grid-4x5", lasso(_GRID), **_LONG),
    _row("lasso-random-50", lasso(random_graphs(50, 6.0), _WIDE), _FEW, time_factor=3.0, **_LONG),
    _row("lasso-barbell-20", lasso(_BARBELL), **_LONG),
    _row("lasso-complete-20", lasso(_COMPLETE), **_LONG),
    _row("lasso-uneven-10", lasso(CYCLE, split=by_chance), "{}, from 2 samples to many each", **_LONG),
    _row("lasso-sorted-10", lasso(CYCLE, split=by_value), "{}, samples sorted by b", **_LONG),
    _row("noisy-cycle-10", noisy(CYCLE, MIDDLE), **_LONG),
    _row("noisy-grid-6x6", noisy(_LARGE_GRID, Size(1080, 1000, 20)), **_LONG),
    _row("noisy-random-30", noisy(random_graphs(30, 5.0), Size(900, 1000, 20)), **_LONG),
    _row("noisy-path-100", noisy(_LONG_PATH, Size(1000, 500, 20)), rounds=6000),
    _row("strong-random-20", noisy(random_graphs(20, 4.0), _TALL), "strongly convex, {}"),
    _row("strong-l2-10", noisy(CYCLE, _TALL, order=2), "strongly convex, {}"),
    _row(
        "logistic-sorted-20",
        logistic(random_graphs(20, 4.0), Size(1000, 300, 15)),
        "{}, most of which see one class",
    ),
    # Of f(x⁰) − f*, the one heavy column leaves 2e-3: levels from 1e-3 on are about the other columns.
    _row("text-cycle-10", text(CYCLE, 1000, 5000, 1000.0), **_LONG),
    _row(
        "completion-sorted-4x5",
        completion(_GRID, 100, 3, 3000, by_column=True),
        "{} who each see other columns",
        time_factor=3.0,
        **_LONG,
    ),
    _row("silo-star-10", _silo(_HUB), **_SILO),
    _row("uneven-star-10", uneven(_HUB, Size(4000, 300, 20)), rounds=1000),
    _row("huber-star-10", huber(_HUB, Size(4000, 300, 150), 100.0), rounds=1000),
    _row("text-star-10", text(_HUB, 1000, 5000, 1000.0), rounds=1000, **_LONG),
)
"""All instances of the table."""

_REVIEWS = "Lasso of star ratings on the words of 22,641 clothing reviews, 14,679 features", CYCLE, reviews

LARGE: tuple[Instance, ...] = (
    _row("silo-complete-10", _silo(_ALL_TEN), **_SILO),
    _row("silo-cycle-10", _silo(CYCLE), **_SILO),
    *(
        _row(f"huber-{scale}", huber(CYCLE, Size(4000, 20, 10), float(scale)), rounds=1000)
        for scale in (1, 10, 100, 1000)
    ),
    _row("silo-10", silo(CYCLE, 100_000, 300, 1e4), rounds=1000, reference=2000, time_factor=4.0),
    _row("reviews-10", _REVIEWS, rounds=1000, reference=5000, time_factor=4.0, **_LONG),
)
"""Instances with many rows, which only ``dcgs bench time`` and ``dcgs bench forms`` have."""

_SIX = fixed_graph("6 agents on a cycle", nx.cycle_graph, 6)
_TWO_ROWS = fixed_graph("6 agents on a 2×3 grid", nx.grid_2d_graph, 2, 3)
_FOUR = fixed_graph("4 agents on a path", nx.path_graph, 4)

QUICK: tuple[Instance, ...] = (
    _row("quick-lasso", lasso(_SIX, Size(60, 200, 5)), rounds=400),
    _row("quick-noisy", noisy(_TWO_ROWS, Size(120, 60, 6)), rounds=400),
    _row("quick-completion", completion(_FOUR, 20, 2, 200), rounds=400, **_LONG),
)
"""Small instances, for a quick trial."""


_DRAWN_GRAPHS: dict[str, nx.Graph] = {
    "a star of 10": nx.star_graph(9),
    "a cycle of 10": nx.cycle_graph(10),
    "a complete graph of 10": nx.complete_graph(10),
    "a 3×4 grid": nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4)),
    "a random graph of 20": nx.random_regular_graph(4, 20, seed=1),
    "a path of 6": nx.path_graph(6),
    "a wheel of 8": nx.wheel_graph(8),
}
_DRAWN = "random-"


def drawn(number: int) -> Instance:
    """Return a random problem for the comparison of forms: a loss, a graph, sizes, and a condition number."""
    rng = np.random.default_rng((77, number))
    loss = str(rng.choice(["squares", "logistic", "huber"], p=[0.25, 0.35, 0.4]))
    graph, d = str(rng.choice(list(_DRAWN_GRAPHS))), int(rng.choice([8, 20, 50, 110, 200]))
    rows_of, condition = float(rng.choice([0.6, 2.0, 5.0, 15.0])), float(rng.choice([1.0, 30.0, 1e3, 1e5]))
    is_sorted, scale = bool(rng.random() < 0.25), float(rng.choice([1.0, 10.0, 100.0, 1000.0]))
    bound = float(rng.choice([0.6, 1.5]))
    edges = _DRAWN_GRAPHS[graph]
    samples = len(edges) * max(4, round(rows_of * d))
    scale = scale if loss == "huber" else 1.0

    def make(seed: int) -> StudyProblem:
        rng = np.random.default_rng((78, number, seed) if seed else (78, number))
        spectrum, turn = np.geomspace(1.0, 1.0 / condition, d), np.linalg.qr(rng.standard_normal((d, d)))[0]
        A = rng.standard_normal((samples, d)) @ (np.sqrt(spectrum)[:, None] * turn)
        truth = rng.standard_normal(d) * (rng.random(d) < 0.5)
        truth[0] = 1.0
        z, truth = A @ truth / (A @ truth).std(), truth / (A @ truth).std()
        b = z + 0.3 * rng.standard_normal(samples)
        if loss == "logistic":
            truth, b = 2.0 * truth, np.where(rng.random(samples) < 1.0 / (1.0 + np.exp(-2.0 * z)), 1.0, -1.0)
        elif loss == "huber":
            truth, b = scale * truth, scale * (z + 0.1 * rng.standard_normal(samples))
        parts = (by_value if is_sorted else by_size)(b, len(edges), seed)
        make_one: dict[str, Callable[..., Objective]] = {
            "squares": LeastSquares,
            "logistic": Logistic,
            "huber": lambda A, b: Objective(HuberLoss(b, 1.0), matrix_map(A)),
        }
        objectives = [make_one[loss](A[rows], b[rows]) for rows in parts]
        return StudyProblem(objectives, L1Ball(d, bound * float(np.abs(truth).sum())), edges)

    what = f"{loss} of scale {scale:g}, {samples}×{d}, condition number {condition:g}, on {graph}"
    about = f"{what}{', rows sorted' * is_sorted}, radius {bound:g} times that of the truth."
    return Instance(f"{_DRAWN}{number}", about, make, rounds=400, reference=6000, time_factor=0.15)


def instance_named(name: str) -> Instance:
    """Return the instance of that name, or one outside the package.

    The latter is named ``package.module:name`` or ``path/to/file.py:name``, and is a function of a seed
    that returns objectives, set and graph.
    """
    if name.startswith(_DRAWN):
        return drawn(int(name.removeprefix(_DRAWN)))
    if ":" not in name:
        return next(known for known in (*INSTANCES, *LARGE, *QUICK) if known.name == name)
    make = registry.load("instance", name)
    if not callable(make):
        raise ValueError(f"{name} must be a function of a seed; it is a {type(make).__name__}.")

    def problem(seed: int) -> StudyProblem:
        made = make(seed)
        if not (isinstance(made, tuple) and len(made) == 3):
            kind = type(made).__name__
            raise ValueError(
                f"{name} must return a tuple of objectives, set and graph; it returned a {kind}."
            )
        return StudyProblem(*made)

    about = (make.__doc__ or name).strip().splitlines()[0]
    return Instance(name.rpartition(":")[2], about, problem, spec=name)


@lru_cache(maxsize=2)
def problem_of(name: str, seed: int) -> StudyProblem:
    """Return the problem of an instance; the last two are kept, for runs one after the other."""
    return instance_named(name).make(seed)
