"""All sets that the tests know, in one place: a new set gets its rows here and nowhere else in the tests.

``CASES`` are for the contract in test_sets.py. ``SETS`` are small sets for optima that an independent solver,
CVXPY, finds. ``CONSTRAINTS`` writes each set down for that solver, without code of the library.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp

from dcgs.points import Point, norm
from dcgs.sets import (
    BirkhoffPolytope,
    Box,
    ConvexHull,
    ConvexSet,
    GroupL1Ball,
    KSparseBall,
    L1Ball,
    L2Ball,
    LInfBall,
    NuclearNormBall,
    Polytope,
    ProductSet,
    Simplex,
    Spectraplex,
)
from dcgs.sets.product_set import DiagonallyProjectableProduct, OracleProduct, ProjectableProduct

# Imported this way, since CVXPY is only partly annotated, which strict mypy refuses.
cp: Any = import_module("cvxpy")

# Sums of some dozens of products of numbers of size 1: 1e-12 is a thousand times their rounding error.
ROUNDING = 1e-12
# HiGHS meets constraints and optimality to 1e-10; a few dozen of them add up.
HIGHS = 1e-8


@dataclass(frozen=True, eq=False)
class Case:
    """A set with what is known about it by other means than its code."""

    name: str
    X: ConvexSet
    best: Callable[[Point], float]
    """The least ⟨direction, x⟩ over the set: over its listed vertices, or −radius × the dual norm."""
    is_extreme: Callable[[Point], bool]
    far: Point
    """A direction whose two answers, for it and for its negative, are a diameter apart."""
    accuracy: float = ROUNDING
    tight: bool = True

    @cached_property
    def size(self) -> float:
        """How large the points of the set are, for relative tolerances."""
        return norm(self.X.start()) + self.X.diameter

    @cached_property
    def points(self) -> Point:
        """Some answers, the start, and random mixtures of them."""
        rng = np.random.default_rng(0)
        answers = [self.X.lmo(rng.standard_normal(self.X.shape)).dense() for _ in range(8)]
        corners = np.array([*answers, self.X.start()])
        return np.concatenate([corners, np.tensordot(rng.dirichlet(np.ones(9), size=20), corners, axes=1)])


def vertex_case(
    name: str, X: ConvexSet, vertices: Iterable[Any], far: Point | None = None, **more: Any
) -> Case:
    """Return the case of a polytope whose extreme points are listed."""
    listed = np.array(list(vertices), dtype=float)
    flat = listed.reshape(len(listed), -1)
    scale = np.abs(flat).max() or 1.0
    return Case(
        name,
        X,
        best=lambda direction: float((flat @ direction.reshape(-1)).min()),
        is_extreme=lambda x: bool((np.abs(flat - x.reshape(-1)).max(axis=1) <= 1e-9 * scale).any()),
        far=farthest(listed) if far is None else far,
        **more,
    )


def farthest(points: Point) -> Point:
    """Return p − q for the two points that are farthest apart: p and q are its extreme answers."""
    pairs = itertools.product(points, points)
    return np.asarray(max((p - q for p, q in pairs), key=norm))


def spikes(d: int, radius: float) -> Point:
    return np.concatenate([radius * np.eye(d), -radius * np.eye(d)])


def sparse_signs(d: int, k: int, radius: float) -> list[Point]:
    """List all vectors with k entries ±radius."""
    found = []
    for support in itertools.combinations(range(d), k):
        for signs in itertools.product([-radius, radius], repeat=k):
            x = np.zeros(d)
            x[list(support)] = signs
            found.append(x)
    return found


def corners(A: Point, b: Point, E: Point, e: Point) -> list[Point]:
    """List the vertices of {A x ≤ b, E x = e}: every choice of rows that determines x, if it is feasible."""
    found = []
    for rows in itertools.combinations(range(len(A)), A.shape[1] - len(E)):
        system = np.vstack([E, A[list(rows)]])
        if abs(np.linalg.det(system)) > 1e-9:
            x = np.linalg.solve(system, np.concatenate([e, b[list(rows)]]))
            found += [x] if (A @ x <= b + 1e-9).all() else []
    return found


def of_group_norm(groups: list[list[int]], radius: float) -> Callable[[Point], bool]:
    """Return a check that x lies on the sphere of one group."""

    def check(x: Point) -> bool:
        sizes = sorted(norm(x.reshape(-1)[group]) for group in groups)
        return math.isclose(sizes[-1], radius, rel_tol=1e-12) and sum(sizes[:-1]) == 0.0

    return check


def rank_one(size: float) -> Callable[[Point], bool]:
    """Return a check that x has one singular value that is not zero, and it is ``size``."""

    def check(x: Point) -> bool:
        singular = np.linalg.svd(x, compute_uv=False)
        return math.isclose(singular[0], size, rel_tol=1e-12) and float(singular[1:].sum()) <= 1e-12 * size

    return check


def nuclear_case(shape: tuple[int, int], radius: float) -> Case:
    return Case(
        f"nuclear {shape} {radius}",
        NuclearNormBall(shape, radius),
        best=lambda direction: -radius * float(np.linalg.norm(direction, 2)),
        is_extreme=rank_one(radius),
        far=np.ones(shape),
    )


def spectraplex_case(n: int, radius: float) -> Case:
    return Case(
        f"spectraplex {n} {radius}",
        Spectraplex(n, radius),
        best=lambda direction: radius * float(np.linalg.eigvalsh((direction + direction.T) / 2)[0]),
        is_extreme=lambda x: rank_one(radius)(x) and float(np.trace(x)) > 0.0,
        far=np.diag(np.arange(1.0, n + 1.0)),
    )


def group_case(shape: int | tuple[int, ...], groups: list[list[int]], radius: float) -> Case:
    return Case(
        f"group {groups} {radius}",
        GroupL1Ball(shape, groups, radius),
        best=lambda direction: -radius * max(norm(direction.reshape(-1)[g]) for g in groups),
        is_extreme=of_group_norm(groups, radius),
        far=np.ones(shape),
    )


def l2_case(shape: int | tuple[int, ...], radius: float) -> Case:
    return Case(
        f"l2 {shape} {radius}",
        L2Ball(shape, radius),
        best=lambda direction: -radius * norm(direction),
        is_extreme=lambda x: math.isclose(norm(x), radius, rel_tol=1e-12),
        far=np.ones(shape),
    )


def polytope_case(name: str, A: Any, b: Any, E: Any = None, e: Any = None, sparse: bool = False) -> Case:
    as_given = sp.csr_array if sparse else np.array
    A, b = np.array(A, dtype=float), np.array(b, dtype=float)
    pair = (None, None) if E is None else (as_given(E), e)
    equations = np.zeros((0, A.shape[1])) if E is None else np.array(E, dtype=float)
    vertices = corners(A, b, equations, np.zeros(0) if e is None else np.array(e, dtype=float))
    return vertex_case(name, Polytope(as_given(A), b, *pair), vertices, accuracy=HIGHS, tight=False)


def product_case(name: str, *factors: tuple[ConvexSet, Any]) -> Case:
    """Return the case of a product of polytopes, given with their vertices."""
    lists = [np.array(vertices, dtype=float).reshape(len(vertices), -1) for _, vertices in factors]
    joined = [np.concatenate(choice) for choice in itertools.product(*lists)]
    return vertex_case(name, ProductSet(*(X for X, _ in factors)), joined)


RNG = np.random.default_rng(7)
TURN = np.linalg.qr(RNG.standard_normal((3, 3)))[0]
CLOUD = RNG.standard_normal((12, 2, 2))
LOWER, UPPER = np.array([-1.0, 0.0, 2.0, -0.0]), np.array([1.0, 3.0, 2.0, 0.0])
CUBE = np.vstack([np.eye(3), -np.eye(3)])

CASES = [
    vertex_case("l1", L1Ball(4, 2.5), spikes(4, 2.5)),
    vertex_case("l1 of one entry", L1Ball(1, 1.0), spikes(1, 1.0)),
    vertex_case("l1, tiny", L1Ball((2, 2), 1e-6), spikes(4, 1e-6).reshape(-1, 2, 2)),
    vertex_case("simplex", Simplex(4, 2.0), 2.0 * np.eye(4)),
    vertex_case("simplex of one entry", Simplex(1, 3.0), [[3.0]]),
    vertex_case("simplex, large", Simplex((2, 3), 1e6), 1e6 * np.eye(6).reshape(6, 2, 3)),
    l2_case(5, 2.0),
    l2_case(1, 1.0),
    l2_case((2, 3), 1e6),
    vertex_case("linf", LInfBall(3, 0.5), itertools.product([-0.5, 0.5], repeat=3)),
    vertex_case("linf of one entry", LInfBall(1, 1e-6), [[1e-6], [-1e-6]]),
    vertex_case("box", Box(LOWER, UPPER), itertools.product(*zip(LOWER, UPPER, strict=True))),
    vertex_case("box of one point", Box([[1.0, 2.0]], [[1.0, 2.0]]), [[[1.0, 2.0]]]),
    vertex_case("k-sparse", KSparseBall(5, 2, 1.5), sparse_signs(5, 2, 1.5), far=np.arange(1.0, 6.0)),
    vertex_case("k-sparse, k = 1", KSparseBall(3, 1, 1e-6), sparse_signs(3, 1, 1e-6)),
    vertex_case("k-sparse, k = d", KSparseBall(3, 3, 1e6), sparse_signs(3, 3, 1e6)),
    group_case(5, [[3, 0], [1], [4, 2]], 2.0),
    group_case((2, 2), [[0, 1, 2, 3]], 1e-6),
    group_case(3, [[2], [0], [1]], 1e6),
    nuclear_case((3, 4), 2.0),
    nuclear_case((4, 2), 1e6),
    nuclear_case((1, 3), 1e-6),
    nuclear_case((3, 1), 1.0),
    nuclear_case((1, 1), 1.0),
    vertex_case("birkhoff", BirkhoffPolytope(3), [np.array(p) for p in itertools.permutations(np.eye(3))]),
    vertex_case("birkhoff of one entry", BirkhoffPolytope(1), [[[1.0]]]),
    spectraplex_case(3, 2.0),
    spectraplex_case(1, 1e6),
    vertex_case("hull", ConvexHull(CLOUD), CLOUD),
    vertex_case("hull of one point", ConvexHull([[1.0, 2.0]]), [[1.0, 2.0]]),
    polytope_case("polytope, a turned cube", CUBE @ TURN, np.ones(6)),
    polytope_case("polytope, cut cube", [*CUBE, [1, 1, 1]], [1, 1, 1, 0, 0, 0, 1.5], sparse=True),
    polytope_case("polytope, a slice", CUBE, [2, 2, 2, 0, 0, 0], [[1, 1, 1]], [3], sparse=True),
    polytope_case("polytope, one point", [[1.0]], [2.0], [[1.0]], [1.0]),
    product_case("ball × interval", (L1Ball(3, 2.0), spikes(3, 2.0)), (LInfBall(1), spikes(1, 1.0))),
    product_case("groups × ball", (GroupL1Ball(2, [[0], [1]]), spikes(2, 1.0)), (L1Ball(2), spikes(2, 1.0))),
    product_case("hull × simplex", (ConvexHull(CLOUD), CLOUD), (Simplex(2, 2.0), 2.0 * np.eye(2))),
]  # fmt: skip

SETS: list[ConvexSet] = [
    L1Ball(4, 0.7),
    L1Ball((2, 3), 50.0),
    Simplex(4, 2.0),
    Simplex(1, 2.0),
    L2Ball(4, 0.5),
    LInfBall((2, 2), 0.3),
    Box([-1.0, 0.0, 0.5], [0.2, 0.1, 0.5]),
    KSparseBall(5, 2, 0.4),
    GroupL1Ball(5, [[3, 0], [1], [4, 2]], 0.5),
    GroupL1Ball(4, [[2], [0], [3], [1]], 0.5),
    NuclearNormBall((3, 4), 0.8),
    NuclearNormBall((1, 3), 0.5),
    BirkhoffPolytope(3),
    Spectraplex(3, 2.0),
    ConvexHull(np.random.default_rng(0).standard_normal((6, 2, 2))),
    Polytope(CUBE, [0.3, 0.3, 0.3, 0.0, 0.0, 0.1]),
    Polytope(-np.eye(3), np.zeros(3), [[1.0, 2.0, 1.0]], [2.0]),
    ProductSet(L1Ball(3, 0.5), Box([-2.0], [2.0])),
    ProductSet(GroupL1Ball(2, [[0, 1]], 0.5), LInfBall(1, 0.1)),
    ProductSet(ConvexHull(np.eye(2)), L1Ball(2, 0.2)),
]


def hull(X: ConvexHull, x: Any, flat: Any) -> list[Any]:
    weights = cp.Variable(len(X.points), nonneg=True)
    return [flat == X.points.reshape(len(X.points), -1).T @ weights, cp.sum(weights) == 1]


def rows(X: Polytope, x: Any, flat: Any) -> list[Any]:
    inequalities = [X.A_ub @ x <= X.b_ub] if X.b_ub.size else []
    equations = [X.A_eq @ x == X.b_eq] if X.b_eq.size else []
    return inequalities + equations


def parts(X: Any, x: Any, flat: Any) -> list[Any]:
    """Return the constraints of a product of sets of vectors."""
    pairs = [(part, flat[own]) for part, own in zip(X.parts, X.slices, strict=True)]
    return [one for part, own in pairs for one in CONSTRAINTS[type(part)](part, own, own)]


CONSTRAINTS: dict[type[ConvexSet], Callable[[Any, Any, Any], list[Any]]] = {
    L1Ball: lambda X, x, flat: [cp.norm1(flat) <= X.radius],
    L2Ball: lambda X, x, flat: [cp.norm2(flat) <= X.radius],
    LInfBall: lambda X, x, flat: [cp.abs(flat) <= X.radius],
    KSparseBall: lambda X, x, flat: [cp.norm1(flat) <= X.k * X.radius, cp.abs(flat) <= X.radius],
    GroupL1Ball: lambda X, x, flat: [sum(cp.norm2(flat[list(group)]) for group in X.groups) <= X.radius],
    NuclearNormBall: lambda X, x, flat: [cp.normNuc(x) <= X.radius],
    Simplex: lambda X, x, flat: [flat >= 0, cp.sum(flat) == X.radius],
    Box: lambda X, x, flat: [x >= X.lower, x <= X.upper],
    BirkhoffPolytope: lambda X, x, flat: [x >= 0, cp.sum(x, axis=0) == 1, cp.sum(x, axis=1) == 1],
    Spectraplex: lambda X, x, flat: [x >> 0, x == x.T, cp.trace(x) == X.radius],
    ConvexHull: hull,
    Polytope: rows,
    OracleProduct: parts,
    ProjectableProduct: parts,
    DiagonallyProjectableProduct: parts,
}
"""What x ∈ X means to CVXPY, given x and x as a vector in C order."""
