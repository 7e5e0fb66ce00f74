"""Random problems, and a judge of what a run says of them that shares no code with dcgs.

A problem is made from one seed: losses, linear maps, a set, a graph, a method and a gap, over wide ranges of
scales. The judge has the data as dense matrices, the losses as formulas, and every set as linear matrix
inequalities. It minimizes by Newton steps along the central path (Boyd and Vandenberghe, *Convex
Optimization*, chapter 11), which do not depend on how coordinates are scaled.

Repeat one problem with ``python tests/fuzz.py SEED``, all of them with ``python tests/fuzz.py``. With
``--peers`` before the seeds, problems are for the methods other than FastDCGS. ``A:B`` is a range of seeds.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeAlias, final

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space
from scipy.optimize import nnls

import dcgs
from dcgs.runtime import Runtime
from dcgs.sets.product_set import Product
from junk import EndlessError, bounds
from membership import MOST, roundings
from random_problems import LOOSENESS, LOSSES, DataGenerator, draw_spread, draw_way

Array: TypeAlias = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
COUNT = 300
# How far the judge's own numbers put a point of a set outside, relative to the set's size: it solves
# nonnegative least squares for the weights of corners.
FEASIBLE = 1e-8
# An evaluation of f adds fewer than 64 numbers in a row, each off by one rounding error.
ROUNDINGS = 64.0
# A reference is sharp enough if its certified error is this share of what the status promises.
SHARP = 0.1


@final
@dataclass(frozen=True, eq=False)
class Term:
    """One agent's loss of A x, flattened in C order, written out a second time."""

    kind: str
    A: Array
    b: Array
    delta: float = 1.0

    def value(self, x: Array) -> float:
        z = self.A @ x
        match self.kind:
            case "squares":
                return float(np.sum((z - self.b) ** 2))
            case "huber":
                r = np.abs(z - self.b)
                return float(np.sum(np.where(r <= self.delta, r**2, self.delta * (2.0 * r - self.delta))))
            case _:
                return float(np.sum(np.logaddexp(0.0, -self.b * z)))

    def slopes(self, x: Array) -> tuple[Array, Array]:
        """Return the first and second derivatives of the loss in each entry of A x."""
        z = self.A @ x
        match self.kind:
            case "squares":
                return 2.0 * (z - self.b), np.full(len(z), 2.0)
            case "huber":
                r = z - self.b
                return 2.0 * np.clip(r, -self.delta, self.delta), np.where(np.abs(r) <= self.delta, 2.0, 0.0)
            case _:
                p = 0.5 * (1.0 - np.tanh(0.5 * self.b * z))
                return -self.b * p, p * (1.0 - p)

    def rounding(self, x: Array) -> float:
        """Return a bound of the rounding error of a value at x: that of the largest terms it may have."""
        size = np.abs(self.A) @ np.abs(x) + np.abs(self.b)
        largest = {"squares": size**2, "huber": 2.0 * self.delta * size}.get(self.kind, size + 1.0)
        return ROUNDINGS * EPS * float(np.sum(largest))


@final
@dataclass(frozen=True, eq=False)
class Sum:
    """f = Σ fᵢ, of all agents."""

    terms: Sequence[Term]

    def value(self, x: Array) -> float:
        return sum(term.value(x) for term in self.terms)

    def grad(self, x: Array) -> Array:
        return np.asarray(np.sum([term.A.T @ term.slopes(x)[0] for term in self.terms], axis=0))

    def hess(self, x: Array) -> Array:
        parts = [term.A.T @ (term.slopes(x)[1][:, None] * term.A) for term in self.terms]
        return np.asarray(np.sum(parts, axis=0))

    def rounding(self, x: Array) -> float:
        return sum(term.rounding(x) for term in self.terms)


@final
@dataclass(frozen=True, eq=False)
class Region:
    """A set of dcgs, and the same set as {center + span y : G y ≤ h, every F₀ + Σ yₖFₖ ⪰ 0}.

    y = 0 is inside. ``least(g)`` is the minimum of ⟨g, x⟩ over the set, ``excess(x)`` how far x is outside,
    and ``size`` the scale for it.
    """

    made: dcgs.ConvexSet
    center: Array
    span: Array
    least: Callable[[Array], float]
    excess: Callable[[Array], float]
    size: float
    G: Array = field(default_factory=lambda: np.zeros((0, 0)))
    h: Array = field(default_factory=lambda: np.zeros(0))
    matrices: Sequence[tuple[Array, Array]] = ()


def hull(made: dcgs.ConvexSet, corners: Array) -> Region:
    """Return a polytope by its corners: weights that sum to 1, none below 0."""
    count = len(corners)
    N = null_space(np.ones((1, count)))
    center = corners.mean(axis=0)
    size = float(np.linalg.norm(corners - center, axis=1).max()) or 1.0

    def excess(x: Array) -> float:
        lifted = np.vstack([(corners - center).T / size, np.ones(count)])
        return size * float(nnls(lifted, np.append((x - center) / size, 1.0))[1])

    return Region(
        made,
        center,
        corners.T @ N,
        least=lambda g: float((corners @ g).min()),
        excess=excess,
        size=size,
        G=-N,
        h=np.full(count, 1.0 / count),
    )


def linear(build: Callable[[Array], Array], count: int) -> tuple[Array, Array]:
    """Return F₀ and F₁ … of a matrix that depends linearly on so many numbers."""
    first = build(np.zeros(count))
    return first, np.stack([build(unit) - first for unit in np.eye(count)])


def ball(made: dcgs.ConvexSet, d: int, radius: float) -> Region:
    """Return {‖x‖ ≤ radius} by the matrix [[radius, xᵀ], [x, radius I]]."""

    def arrow(x: Array) -> Array:
        M = radius * np.eye(d + 1)
        M[0, 1:] = M[1:, 0] = x
        return M

    return Region(
        made,
        np.zeros(d),
        np.eye(d),
        least=lambda g: -radius * float(np.linalg.norm(g)),
        excess=lambda x: float(np.linalg.norm(x)) - radius,
        size=radius,
        G=np.zeros((0, d)),
        matrices=[linear(arrow, d)],
    )


def groups(made: dcgs.ConvexSet, parts: Sequence[Sequence[int]], radius: float) -> Region:
    """Return {Σ ‖x_g‖ ≤ radius}: ‖x_g‖ ≤ s_g for each group, and Σ s_g ≤ radius."""
    d, m = sum(map(len, parts)), len(parts)
    share = 0.5 * radius / m

    def arrow(g: int) -> Callable[[Array], Array]:
        def build(y: Array) -> Array:
            M: Array = (share + y[d + g]) * np.eye(len(parts[g]) + 1)
            M[0, 1:] = M[1:, 0] = y[list(parts[g])]
            return M

        return build

    def norms(x: Array) -> list[float]:
        return [float(np.linalg.norm(x[list(part)])) for part in parts]

    return Region(
        made,
        np.zeros(d),
        np.eye(d, d + m),
        least=lambda g: -radius * max(norms(g)),
        excess=lambda x: sum(norms(x)) - radius,
        size=radius,
        G=np.concatenate([np.zeros(d), np.ones(m)])[None],
        h=np.array([0.5 * radius]),
        matrices=[linear(arrow(g), d + m) for g in range(m)],
    )


def nuclear(made: dcgs.ConvexSet, p: int, q: int, radius: float) -> Region:
    """Return the nuclear-norm ball: [[U, x], [xᵀ, V]] ⪰ 0 with tr U + tr V ≤ 2 radius."""
    d, n = p * q, p + q
    pairs = [(i, j) for i in range(n) for j in range(i, n) if not i < p <= j]
    share = radius / n

    def build(y: Array) -> Array:
        M = share * np.eye(n)
        M[:p, p:] = y[:d].reshape(p, q)
        M[p:, :p] = M[:p, p:].T
        for value, (i, j) in zip(y[d:], pairs, strict=True):
            M[i, j] += value
            M[j, i] += value if i != j else 0.0
        return M

    def singular(x: Array) -> Array:
        return np.asarray(np.linalg.svd(x.reshape(p, q), compute_uv=False))

    trace = np.concatenate([np.zeros(d), [float(i == j) for i, j in pairs]])
    return Region(
        made,
        np.zeros(d),
        np.eye(d, d + len(pairs)),
        least=lambda g: -radius * float(singular(g)[0]),
        excess=lambda x: float(singular(x).sum()) - radius,
        size=radius,
        G=trace[None],
        h=np.array([2.0 * radius - share * n]),
        matrices=[linear(build, d + len(pairs))],
    )


def spectraplex(made: dcgs.ConvexSet, n: int, radius: float) -> Region:
    """Return the positive semidefinite matrices of trace radius."""
    units = [(i, j) for i in range(n) for j in range(i, n)][:-1]

    def build(y: Array) -> Array:
        M = radius / n * np.eye(n)
        for value, (i, j) in zip(y, units, strict=True):
            M[i, j] += value
            M[j, i] += value if i != j else 0.0
            M[-1, -1] -= value if i == j else 0.0
        return M

    def excess(x: Array) -> float:
        M = x.reshape(n, n)
        lowest = float(np.linalg.eigvalsh(0.5 * (M + M.T))[0])
        return max(-lowest, abs(float(np.trace(M)) - radius), float(np.abs(M - M.T).max()))

    def least(g: Array) -> float:
        M = g.reshape(n, n)
        return radius * float(np.linalg.eigvalsh(0.5 * (M + M.T))[0])

    F0, F = linear(build, len(units))
    return Region(
        made,
        F0.reshape(-1),
        F.reshape(len(units), -1).T,
        least=least,
        excess=excess,
        size=radius,
        G=np.zeros((0, len(units))),
        matrices=[(F0, F)],
    )


def corners_of(G: Array, h: Array) -> Array:
    """Return the corners of a bounded {G y ≤ h} by trying all sets of constraints."""
    found = []
    for rows in map(list, itertools.combinations(range(len(G)), G.shape[1])):
        if np.linalg.cond(G[rows]) < 1e8:
            y = np.linalg.solve(G[rows], h[rows])
            if (G @ y <= h + 1e-9 * np.abs(h).max()).all():
                found.append(y)
    return np.array(found)


def signs(d: int) -> Array:
    """Return all vectors of ±1."""
    return np.array(list(itertools.product([-1.0, 1.0], repeat=d)))


def any_set(rng: np.random.Generator, name: str, shape: tuple[int, ...], radius: float) -> Region:
    """Return the set of that name, for points of that shape."""
    d = math.prod(shape)
    match name:
        case "Simplex":
            return hull(dcgs.Simplex(shape, radius), radius * np.eye(d))
        case "L1Ball":
            return hull(dcgs.L1Ball(shape, radius), radius * np.vstack([np.eye(d), -np.eye(d)]))
        case "LInfBall":
            return hull(dcgs.LInfBall(shape, radius), radius * signs(d))
        case "Box":
            low, width = radius * rng.standard_normal(d), radius * rng.uniform(0.1, 2.0, d)
            made = dcgs.Box(low.reshape(shape), (low + width).reshape(shape))
            return hull(made, low + width * (0.5 + 0.5 * signs(d)))
        case "KSparseBall":
            k = int(rng.integers(1, min(d, 3)))
            kept = np.array([np.isin(np.arange(d), rows) for rows in itertools.combinations(range(d), k)])
            corners = np.unique(np.vstack([signs(d) * rows for rows in kept]) + 0.0, axis=0)
            return hull(dcgs.KSparseBall(shape, k, radius), radius * corners)
        case "BirkhoffPolytope":
            n = shape[0]
            rows = [np.eye(n)[list(order)].reshape(-1) for order in itertools.permutations(range(n))]
            return hull(dcgs.BirkhoffPolytope(n), np.array(rows))
        case "ConvexHull":
            points = radius * rng.standard_normal((int(rng.integers(2, 9)), d))
            return hull(dcgs.ConvexHull(points.reshape(-1, *shape)), points)
        case "Polytope":
            G = np.vstack([np.eye(d), -np.eye(d), rng.standard_normal((3, d))])
            h = radius * np.concatenate([np.ones(2 * d), rng.uniform(0.2, 1.0, 3)])
            equal = d > 1 and rng.random() < 0.3
            N = null_space(np.ones((1, d))) if equal else np.eye(d)
            more: dict[str, Any] = {"A_eq": np.ones((1, d)), "b_eq": [0.0]} if equal else {}
            return hull(dcgs.Polytope(G, h, **more), corners_of(G @ N, h) @ N.T)
        case "L2Ball":
            return ball(dcgs.L2Ball(shape, radius), d, radius)
        case "GroupL1Ball":
            cut = int(rng.integers(1, d)) if d > 1 else 1
            order = rng.permutation(d).tolist()
            parts = [part for part in (order[:cut], order[cut:]) if part]
            return groups(dcgs.GroupL1Ball(shape, parts, radius), parts, radius)
        case "NuclearNormBall":
            p, q = shape
            return nuclear(dcgs.NuclearNormBall((p, q), radius), p, q, radius)
        case _:
            return spectraplex(dcgs.Spectraplex(shape[0], radius), shape[0], radius)


# Names of sets, and the shapes of points that the judge can list all corners of.
VECTORS: list[tuple[int, ...]] = [(1,), (2,), (3,), (4,), (2, 2)]
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "Simplex": [*VECTORS, (6,)],
    "L1Ball": [*VECTORS, (6,), (2, 3)],
    "L2Ball": [*VECTORS, (6,), (2, 3)],
    "LInfBall": VECTORS,
    "Box": VECTORS,
    "KSparseBall": [(2,), (3,), (4,), (2, 2)],
    "GroupL1Ball": [(2,), (4,), (5,), (2, 3)],
    "BirkhoffPolytope": [(2, 2), (3, 3)],
    "ConvexHull": VECTORS,
    "Polytope": [(1,), (2,), (3,)],
    "NuclearNormBall": [(2, 2), (3, 2), (1, 3)],
    "Spectraplex": [(2, 2), (3, 3)],
}

GRAPHS: dict[str, Callable[[np.random.Generator], nx.Graph]] = {
    "one": lambda rng: nx.empty_graph(1),
    "two": lambda rng: nx.path_graph(2),
    "path of 3": lambda rng: nx.path_graph(3),
    "triangle": lambda rng: nx.complete_graph(3),
    "star": lambda rng: nx.star_graph(int(rng.integers(3, 6))),
    "complete": lambda rng: nx.complete_graph(int(rng.integers(4, 6))),
    "path": lambda rng: nx.path_graph(int(rng.integers(4, 7))),
    "cycle": lambda rng: nx.cycle_graph(int(rng.integers(4, 8))),
    "tree": lambda rng: nx.from_prufer_sequence(rng.integers(0, 6, 4).tolist()),
    "wheel": lambda rng: nx.wheel_graph(5),
}

# Every method that a gap can end, as it is written; the default most often.
METHODS: dict[str, float] = {
    "dcgs.FastDCGS()": 10.0,
    "dcgs.FastDCGS(form='edges')": 4.0,
    "dcgs.FastDCGS(form='sums')": 3.0,
    "dcgs.FastDCGS(form='root')": 3.0,
    "dcgs.FastDCGS(inner='oracle')": 2.0,
    "dcgs.FastDCGS(inner='oracle', form='edges')": 2.0,
    "dcgs.FastDCGS(stops_itself=False)": 1.0,
    "dcgs.DFW()": 1.0,
    "dcgs.DCGS()": 1.0,
    "dcgs.DCGS(answer='last')": 0.5,
    "dcgs.PrimalDual(precision=1e-3)": 1.0,
    "dcgs.PGExtra()": 1.0,
    "dcgs.NIDS()": 1.0,
    "dcgs.ProjectedAGD()": 1.0,
}
# The methods other than FastDCGS, which are slower: for larger gaps, with more rounds and calls.
PEERS: dict[str, float] = {
    "dcgs.DCGS()": 1.0,
    "dcgs.DCGS(answer='last')": 1.0,
    "dcgs.PrimalDual(precision=1e-3)": 1.0,
    "dcgs.DFW()": 1.0,
    "dcgs.DFW(tracking=False)": 0.5,
    "dcgs.PGExtra()": 1.5,
    "dcgs.NIDS()": 1.5,
    "dcgs.ProjectedAGD()": 1.0,
    "dcgs.ProjectedAGD(gossip='chebyshev')": 0.5,
}
PROJECTING = ("PGExtra", "NIDS", "ProjectedAGD")
PROJECTABLE = ("L1Ball", "L2Ball", "LInfBall", "Box", "Simplex", "GroupL1Ball", "NuclearNormBall")
GAPS = [0.3, 0.1, 1e-2, 1e-3, 1e-3, 1e-4]
GAPS_OF_PEERS = [0.3, 0.1, 0.1, 1e-2]
# Limits beside the gap, in rounds and oracle calls; an oracle that solves a linear program is the slowest.
ROUNDS, ROUNDS_OF_PEERS = 150, 500
CALLS, CALLS_OF_PEERS, SLOWER = 600, 2400, 10
# Seconds of computing after which a run counts as one without end; at these limits they take one at most.
LONGEST = 10.0


@final
@dataclass(frozen=True, eq=False)
class Problem:
    """One random problem, all that is needed to run it and to judge it."""

    seed: int
    about: str
    f: Sum
    region: Region
    objectives: Sequence[dcgs.Objective]
    graph: nx.Graph
    method: dcgs.Method
    gap: float
    x0: Array | None
    runtime: Runtime | None = None
    rounds: int = ROUNDS
    calls: int = CALLS

    @property
    def start(self) -> Array:
        """The x⁰ of the run, flattened."""
        x0 = self.region.made.start() if self.x0 is None else self.x0
        return np.asarray(x0, dtype=np.float64).reshape(-1)

    def run(self) -> dcgs.Result:
        """Run dcgs on it, to the gap or to limits in rounds and oracle calls."""
        X = self.region.made
        parts = X.parts if isinstance(X, Product) else (X,)
        slower = any(isinstance(part, dcgs.Polytope) for part in parts)
        calls = self.calls // SLOWER if slower else self.calls
        limits: dict[str, Any] = {} if self.method.projects else {"lmo_calls": calls}
        every = 0 if self.method.stops_itself else 3
        return dcgs.minimize(
            self.objectives,
            self.region.made,
            self.graph,
            self.method,
            gap=self.gap,
            rounds=self.rounds,
            x0=self.x0,
            every=every,
            runtime=self.runtime,
            **limits,
        )


def draw_method(rng: np.random.Generator, weights: dict[str, float], set_name: str) -> str:
    """Return a method that can be used for this set; the first of the table where the one drawn cannot."""
    method = str(rng.choice(list(weights), p=np.array(list(weights.values())) / sum(weights.values())))
    projects = any(name in method for name in PROJECTING)
    return next(iter(weights)) if projects and set_name not in PROJECTABLE else method


def problem(seed: int, peers: bool = False) -> Problem:
    """Return the problem of a seed; with ``peers``, for one of the methods other than FastDCGS."""
    rng = np.random.default_rng((14, seed))
    names = list(SHAPES)
    name = names[seed % len(names)]
    method = draw_method(rng, PEERS if peers else METHODS, name)
    shape = SHAPES[name][rng.integers(len(SHAPES[name]))]
    graph_name = str(rng.choice(list(GRAPHS)))
    graph = GRAPHS[graph_name](rng)
    region = any_set(rng, name, shape, 10.0 ** rng.uniform(-2.0, 2.0))
    kind = str(rng.choice(LOSSES))
    way = draw_way(rng, shape, kind)
    spread, looseness = draw_spread(rng), float(rng.choice(LOOSENESS))
    made = DataGenerator(rng, region.center, region.size, shape, kind, way, spread, looseness)
    drawn = [made.agent() for _ in graph]
    terms = [Term(data.kind, data.A, data.b, data.delta) for data in drawn]
    objectives = [data.objective() for data in drawn]
    x0 = None if rng.random() < 0.7 else inside(rng, region).reshape(shape)
    gap = float(rng.choice(GAPS_OF_PEERS if peers else GAPS))
    about = f"{name}{shape}, {graph_name} of {len(graph)}, {way} {kind}, {method}, gap={gap:g}, {spread}"
    chosen: dcgs.Method = eval(method, {"dcgs": dcgs})
    drawn_problem = Problem(seed, about, Sum(terms), region, objectives, graph, chosen, gap, x0)
    return for_peers(drawn_problem) if peers else drawn_problem


def for_peers(given: Problem) -> Problem:
    """Return the problem with limits that let slower methods reach their gaps."""
    return replace(given, rounds=ROUNDS_OF_PEERS, calls=CALLS_OF_PEERS)


def inside(rng: np.random.Generator, region: Region) -> Array:
    """Return a point well inside a set: half the way from the center to a random point of it."""
    y = np.asarray(rng.standard_normal((region.span.shape[1],)))
    for _ in range(60):
        if barrier(region, y) < math.inf:
            break
        y = 0.5 * y
    return region.center + 0.5 * region.span @ y


# The independent solver.


def barrier(region: Region, y: Array) -> float:
    """Return −Σ log(h − G y) − Σ log det F(y); infinite outside."""
    slack = region.h - region.G @ y
    if slack.size and slack.min() <= 0.0:
        return math.inf
    total = -float(np.sum(np.log(slack)))
    for F0, F in region.matrices:
        try:
            root = np.linalg.cholesky(F0 + np.tensordot(y, F, 1))
        except np.linalg.LinAlgError:
            return math.inf
        total -= 2.0 * float(np.sum(np.log(np.diag(root))))
    return total


def _barrier_slopes(region: Region, y: Array) -> tuple[Array, Array]:
    """Return the gradient and the Hessian of the barrier."""
    scaled = region.G / (region.h - region.G @ y)[:, None]
    grad, hess = scaled.sum(axis=0), scaled.T @ scaled
    for F0, F in region.matrices:
        inverse = np.linalg.inv(F0 + np.tensordot(y, F, 1))
        turned = inverse @ F
        grad = grad - np.trace(turned, axis1=1, axis2=2)
        hess = hess + np.einsum("aij,bji->ab", turned, turned)
    return grad, hess


def _newton_step(hess: Array, grad: Array) -> Array:
    """Return −H⁻¹ g, computed with a diagonal of ones so that units of coordinates do not matter."""
    scale = 1.0 / np.sqrt(np.maximum(np.diag(hess), np.finfo(float).tiny))
    matrix = scale[:, None] * hess * scale + 1e-15 * np.eye(len(grad))
    try:
        return np.asarray(-scale * np.linalg.solve(matrix, scale * grad))
    except np.linalg.LinAlgError:
        return -(scale**2) * grad


def _centered(f: Sum, region: Region, y: Array, t: float) -> Array:
    """Return a minimizer of t·f + barrier, by damped Newton steps from y."""
    x = region.center + region.span @ y
    value = t * f.value(x) + barrier(region, y)
    for _ in range(60):
        b_grad, b_hess = _barrier_slopes(region, y)
        grad = t * region.span.T @ f.grad(x) + b_grad
        step = _newton_step(t * region.span.T @ f.hess(x) @ region.span + b_hess, grad)
        slope = float(grad @ step)
        if slope > -1e-4:
            return y
        size = 1.0
        while True:
            nearer = y + size * step
            x = region.center + region.span @ nearer
            b = barrier(region, nearer)
            new = t * f.value(x) + b if b < math.inf else math.inf
            if new <= value + 0.1 * size * slope:
                break
            size *= 0.5
            if size < 1e-12:
                return y
        y, value = nearer, new
    return y


@final
@dataclass(frozen=True)
class Reference:
    """A point of the set, the value of f there, and its Wolfe gap: f* is at most that much lower."""

    x: Array
    value: float
    error: float


def reference(problem: Problem) -> Reference:
    """Return the best point that the judge finds; ends when its error is small beside what is promised."""
    f, region = problem.f, problem.region
    start = f.value(problem.start)
    if region.span.shape[1] == 0:
        return Reference(region.center, f.value(region.center), 0.0)
    y = np.zeros(region.span.shape[1])
    degree = len(region.h) + sum(len(F0) for F0, _ in region.matrices)
    best = _certified(f, region, y)
    t = degree / (best.error or 1.0)
    for _ in range(25):
        y = _centered(f, region, y, t)
        found = _certified(f, region, y)
        best = min(best, found, key=lambda each: each.value)
        if best.error <= 0.01 * SHARP * problem.gap * (start - best.value):
            break
        t *= 10.0
    return best


def _certified(f: Sum, region: Region, y: Array) -> Reference:
    x = region.center + region.span @ y
    g = f.grad(x)
    return Reference(x, f.value(x), max(0.0, float(g @ x) - region.least(g)))


# The verdict.


class Verdict(Enum):
    """What the judge says of one run."""

    TRUE = "success, and true"
    SHORT = "no success claimed"
    REFUSED = "refused with a sentence of ours"
    LIE = "success, but an agent's answer is not within the gap"
    LIE_OF_AVERAGE = "success, but the network average is not within the gap"
    OUTSIDE = "an answer is outside of the set"
    APART = "AGREED, but the agents' answers differ"
    RAISED = "an exception other than a refusal"
    ENDLESS = "no end, in spite of limits on rounds and oracle calls"

    @property
    def bad(self) -> bool:
        """Whether dcgs is at fault."""
        return self not in (Verdict.TRUE, Verdict.SHORT, Verdict.REFUSED)


@final
@dataclass(frozen=True)
class Judgment:
    """The verdict on one problem, with its numbers; ``sharp`` says whether the reference was good enough.

    ``roundings`` is the largest violation of an answer, in units of ε times the magnitude of the set.
    """

    problem: Problem = field(repr=False)
    verdict: Verdict
    details: str
    sharp: bool = True
    status: str = ""
    roundings: float = 0.0

    def __str__(self) -> str:
        return f"seed {self.problem.seed}: {self.verdict.value}: {self.details} [{self.problem.about}]"


def judge(problem: Problem) -> Judgment:
    """Run dcgs on the problem and judge its result."""
    try:
        with bounds(LONGEST):
            result = problem.run()
    except EndlessError:
        return Judgment(problem, Verdict.ENDLESS, f"more than {LONGEST:g} s of computing")
    except (ValueError, TypeError) as error:
        refused = str(error).startswith("gap must be at least ")
        verdict = Verdict.REFUSED if refused else Verdict.RAISED
        return Judgment(problem, verdict, f"{type(error).__name__}: {error}")
    except Exception as error:
        return Judgment(problem, Verdict.RAISED, f"{type(error).__name__}: {error}")
    X = problem.region.made
    worst = max(roundings(X, np.asarray(x)) for x in (result.x, *result.agents))
    if not worst <= MOST or not all(X.accepts(np.asarray(x)) for x in (result.x, *result.agents)):
        details = f"outside by {worst:.3g} ε · magnitude"
        return Judgment(problem, Verdict.OUTSIDE, details, status=result.status.name, roundings=worst)
    return replace(_judged(problem, result), roundings=worst)


def _judged(problem: Problem, result: dcgs.Result) -> Judgment:
    region, status = problem.region, result.status.name
    # A model in factors becomes the matrix that it stands for.
    answers = [np.asarray(x).reshape(-1) for x in (result.x, *result.agents)]
    if not all(np.isfinite(x).all() for x in answers):
        return Judgment(problem, Verdict.OUTSIDE, "an answer is not finite", status=status)
    outside = max(map(region.excess, answers))
    scale = region.size + float(np.abs(region.center).max())
    if outside > FEASIBLE * scale:
        details = f"outside by {outside:.2e}, the set's size is {scale:.2e}"
        return Judgment(problem, Verdict.OUTSIDE, details, status=status)
    if not result.status.success:
        return Judgment(problem, Verdict.SHORT, status, status=status)
    if result.status is dcgs.Status.AGREED and not all((x == answers[1]).all() for x in answers[1:]):
        return Judgment(problem, Verdict.APART, "agents hold different points", status=status)
    best, f = reference(problem), problem.f
    first = f.value(problem.start)
    # f* is at most best.value: what exceeds this bound exceeds the promise whatever f* is.
    promise = best.value + problem.gap * max(0.0, first - best.value)
    rounding = f.rounding(problem.start) + f.rounding(best.x)
    over = [f.value(x) - promise - rounding - f.rounding(x) for x in answers]
    sharp = best.error <= SHARP * problem.gap * (first - best.value) + rounding
    ratio = (max(map(f.value, answers)) - best.value) / (problem.gap * (first - best.value) or 1.0)
    details = (
        f"{status} at f={max(map(f.value, answers)):.6g}, f* between {best.value - best.error:.6g} and "
        f"{best.value:.6g}, f(x0)={first:.6g}: {ratio:.3g} times the gap"
    )
    if over[0] > 0.0:
        return Judgment(problem, Verdict.LIE_OF_AVERAGE, details, sharp, status)
    if max(over) > 0.0:
        return Judgment(problem, Verdict.LIE, details, sharp, status)
    return Judgment(problem, Verdict.TRUE, details, sharp, status)


def seeds_of(words: Sequence[str], default: Sequence[int]) -> Sequence[int]:
    """Return the seeds of a command line: numbers, and ranges as first:last."""
    found = list[int]()
    for word in words:
        first, _, last = word.partition(":")
        found += range(int(first), int(last or int(first) + 1))
    return found or default


def main(seeds: Sequence[int], peers: bool = False) -> None:
    """Judge the problems of these seeds, and print what is bad and how many of each there are."""
    count: Counter[str] = Counter()
    for seed in seeds:
        judgment = judge(problem(seed, peers))
        sharp = "" if judgment.sharp else ", reference not sharp"
        count[f"{judgment.verdict.value} ({judgment.status}{sharp})"] += 1
        if judgment.verdict.bad or not judgment.sharp or len(seeds) == 1:
            print(judgment, flush=True)
    for name, times in count.most_common():
        print(times, name)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--peers"]
    main(seeds_of(words, range(COUNT)), "--peers" in sys.argv)
