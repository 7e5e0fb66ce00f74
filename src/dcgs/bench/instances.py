"""The instances of the comparison: problems with different graphs, data and splits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import networkx as nx

from dcgs import registry
from dcgs.bench.families import (
    CYCLE,
    MIDDLE,
    Family,
    MakeProblem,
    Size,
    by_chance,
    by_value,
    completion,
    euclidean,
    fixed_graph,
    lasso,
    logistic,
    movielens,
    noisy,
    random_graphs,
    reviews,
    silo,
    text,
)
from dcgs.study import Problem


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

_RATINGS = "MovieLens 100K, all ratings, nuclear norm at most 10⁴", CYCLE, movielens
_PAPER, _WIDE, _TALL = Size(2000, 10_000, 100), Size(800, 2000, 20), Size(2000, 100, 20)
_FEW = "50 agents with 16 samples each on a random graph of mean degree 6"

INSTANCES: tuple[Instance, ...] = (
    _row("lasso-paper", lasso(CYCLE, _PAPER), "the paper's, {}", rounds=4000, time_factor=12.0),
    _row("completion-paper", completion(CYCLE, 200, 5, 5000), time_factor=6.0),
    _row("movielens", _RATINGS, reference=400, time_factor=6.0),
    _row("lasso-cycle-10", lasso(CYCLE)),
    _row("lasso-path-10", lasso(_PATH)),
    _row("lasso-star-20", lasso(_STAR)),
    _row("lasso-grid-4x5", lasso(_GRID)),
    _row("lasso-random-50", lasso(random_graphs(50, 6.0), _WIDE), _FEW, time_factor=3.0),
    _row("lasso-barbell-20", lasso(_BARBELL)),
    _row("lasso-complete-20", lasso(_COMPLETE)),
    _row("lasso-uneven-10", lasso(CYCLE, split=by_chance), "{}, from 2 samples to many each"),
    _row("lasso-sorted-10", lasso(CYCLE, split=by_value), "{}, samples sorted by b"),
    _row("noisy-cycle-10", noisy(CYCLE, MIDDLE)),
    _row("noisy-grid-6x6", noisy(_LARGE_GRID, Size(1080, 1000, 20))),
    _row("noisy-random-30", noisy(random_graphs(30, 5.0), Size(900, 1000, 20))),
    _row("noisy-path-100", noisy(_LONG_PATH, Size(1000, 500, 20)), rounds=6000),
    _row("strong-random-20", noisy(random_graphs(20, 4.0), _TALL), "strongly convex, {}"),
    _row("strong-l2-10", euclidean(CYCLE, _TALL), "strongly convex, {}"),
    _row(
        "logistic-sorted-20",
        logistic(random_graphs(20, 4.0), Size(1000, 300, 15)),
        "{}, most of which see one class",
    ),
    # Of f(x⁰) − f*, the one heavy column leaves 2e-3: levels from 1e-3 on are about the other columns.
    _row("text-cycle-10", text(CYCLE, 1000, 5000, 1000.0)),
    _row(
        "completion-sorted-4x5",
        completion(_GRID, 100, 3, 3000, by_column=True),
        "{} who each see other columns",
        time_factor=3.0,
    ),
)
"""All instances of the table."""

_REVIEWS = "Lasso of star ratings on the words of 22,641 clothing reviews, 14,679 features", CYCLE, reviews

LARGE: tuple[Instance, ...] = (
    _row("silo-10", silo(CYCLE, 100_000, 300, 1e4), rounds=1000, reference=2000, time_factor=4.0),
    _row("reviews-10", _REVIEWS, rounds=1000, reference=5000, time_factor=4.0),
)
"""Instances with many rows, which only ``dcgs bench time`` has."""

_SIX = fixed_graph("6 agents on a cycle", nx.cycle_graph, 6)
_TWO_ROWS = fixed_graph("6 agents on a 2×3 grid", nx.grid_2d_graph, 2, 3)
_FOUR = fixed_graph("4 agents on a path", nx.path_graph, 4)

QUICK: tuple[Instance, ...] = (
    _row("quick-lasso", lasso(_SIX, Size(60, 200, 5)), rounds=400),
    _row("quick-noisy", noisy(_TWO_ROWS, Size(120, 60, 6)), rounds=400),
    _row("quick-completion", completion(_FOUR, 20, 2, 200), rounds=400),
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


@lru_cache(maxsize=2)
def problem_of(name: str, seed: int) -> Problem:
    """Return the problem of an instance; the last two are kept, for runs one after the other."""
    return instance(name).make(seed)
