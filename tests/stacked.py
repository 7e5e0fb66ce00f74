"""The paper's algorithms, transcribed for all agents at once with the Laplacian as a matrix.

Independent of ``dcgs``: every agent has ‖Aᵢ x − bᵢ‖², points are rows of an array, vertices are tuples,
and nothing is carried along that could be computed again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Oracle: TypeAlias = Callable[[Array], Array]
Parameters: TypeAlias = tuple[float, float, float, float, float]
"""α, τ, η, θ, e at one k."""
Phi: TypeAlias = tuple[Array, Array, Array, float, Array]
"""A, b, w, η and center of φ(x) = ‖A x − b‖² + ⟨w, x⟩ + η/2 ‖x − center‖²."""
Procedure: TypeAlias = Callable[[int, Phi, float], tuple[Array, int]]
"""(agent, φ, e) ↦ its next point, and how often it asked the oracle."""


class TieError(Exception):
    """Two vertices are equally good up to rounding: which one is taken then is no matter of the algorithm."""


def best(values: Array) -> int:
    """Return the place of the largest value, which no other may come close to."""
    order = np.argsort(values)
    if len(values) > 1 and values[order[-1]] - values[order[-2]] < 1e-9 * np.abs(values).max():
        raise TieError(values)
    return int(order[-1])


def l1_oracle(radius: float) -> Oracle:
    def oracle(g: Array) -> Array:
        j = best(np.abs(g))
        s = np.zeros_like(g)
        s[j] = -radius * np.sign(g[j])
        return s

    return oracle


def simplex_oracle(radius: float) -> Oracle:
    return lambda g: radius * np.eye(g.size)[best(-g)]


def grad(phi: Phi, x: Array) -> Array:
    A, b, w, eta, center = phi
    return 2.0 * A.T @ (A @ x - b) + w + eta * (x - center)


def line_search(phi: Phi, x: Array, d: Array, limit: float) -> float:
    """Return the γ in [0, limit] that minimizes the parabola φ(x + γ d)."""
    A, _, _, eta, _ = phi
    gamma = -(grad(phi, x) @ d) / (2.0 * (A @ d) @ (A @ d) + eta * d @ d)
    return float(np.clip(gamma, 0.0, limit))


def cg(oracle: Oracle, searching: bool) -> Procedure:
    """Return the procedure CG of Algorithm 2, lines 12 to 21."""

    def procedure(agent: int, phi: Phi, e: float) -> tuple[Array, int]:
        x, t = phi[4], 0
        while True:
            g = grad(phi, x)
            s = oracle(g)
            if g @ (x - s) <= e:
                return x, t + 1
            gamma = line_search(phi, x, s - x, 1.0) if searching else 2.0 / (t + 2.0)
            x = (1.0 - gamma) * x + gamma * s
            t += 1

    return procedure


def pcg(oracle: Oracle, x0: Array, agents: int, max_steps: int) -> Procedure:
    """Return the procedure PCG of Algorithm 3, except that it searches along φ and keeps active sets.

    At most ``max_steps`` at a time: an exact line search from v to s leaves ⟨∇φ, s⟩ = ⟨∇φ, v⟩, so the
    next step may have to choose between two equals. In the next outer iteration φ is another.
    """
    active: list[dict[tuple[float, ...], float]] = [{tuple(x0): 1.0} for _ in range(agents)]

    def procedure(agent: int, phi: Phi, e: float) -> tuple[Array, int]:
        alpha = active[agent]
        for t in range(max_steps):
            x = np.array(list(alpha.values())) @ np.array(list(alpha))
            g = grad(phi, x)
            s = oracle(g)
            if g @ (x - s) <= e:
                return x, t + 1
            S = np.array(list(alpha))
            v = S[best(S @ g)]
            gamma = line_search(phi, x, s - v, alpha[tuple(v)])
            alpha[tuple(s)] = alpha.get(tuple(s), 0.0) + gamma
            alpha[tuple(v)] -= gamma
            if alpha[tuple(v)] <= 0.0:
                del alpha[tuple(v)]
        return np.array(list(alpha.values())) @ np.array(list(alpha)), max_steps

    return procedure


def exact_on_simplex(radius: float) -> Procedure:
    """Return what minimizes φ over the simplex: the best of what solves the KKT system of a face."""

    def procedure(agent: int, phi: Phi, e: float) -> tuple[Array, int]:
        A, b, w, eta, center = phi
        d = len(center)
        H, h = 2.0 * A.T @ A + eta * np.eye(d), 2.0 * A.T @ b - w + eta * center
        candidates = []
        for size in range(1, d + 1):
            for face in map(list, combinations(range(d), size)):
                ones = np.ones((size, 1))
                kkt = np.block([[H[np.ix_(face, face)], ones], [ones.T, np.zeros((1, 1))]])
                x = np.zeros(d)
                x[face] = np.linalg.solve(kkt, np.append(h[face], radius))[:size]
                if x.min() >= 0.0:
                    candidates.append((float(0.5 * x @ H @ x - h @ x), tuple(x)))
        return np.array(min(candidates)[1]), 0

    return procedure


def exact_on_ball(radius: float) -> Procedure:
    """Return what minimizes φ over ‖x‖ ≤ radius, by bisection on the multiplier of the constraint."""

    def procedure(agent: int, phi: Phi, e: float) -> tuple[Array, int]:
        A, b, w, eta, center = phi
        H, h = 2.0 * A.T @ A + eta * np.eye(len(center)), 2.0 * A.T @ b - w + eta * center

        def x(mu: float) -> Array:
            return np.asarray(np.linalg.solve(H + mu * np.eye(len(h)), h), dtype=np.float64)

        low, high = 0.0, float(np.linalg.norm(h)) / radius
        if np.linalg.norm(x(0.0)) <= radius:
            return x(0.0), 0
        for _ in range(200):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if np.linalg.norm(x(middle)) > radius else (low, middle)
        return x(high), 0

    return procedure


def theorem1(N: int, agents: int, norm_L: float, R: float) -> Callable[[int], Parameters]:
    """Return the parameters of Theorem 1 for y⁰ = 0; ‖𝐱⁰ − 𝐱*‖² of the stacked points is m R²."""
    return lambda k: (1.0, norm_L, 2.0 * norm_L, 1.0, norm_L * (agents * R**2) / (agents * N))


def theorem2(N: int, agents: int, norm_L: float, R: float, u: float) -> Callable[[int], Parameters]:
    """Return the parameters of Theorem 2 for y⁰ = 0; ‖𝐱⁰ − 𝐱*‖² of the stacked points is m R²."""
    return lambda k: (
        k / (k + 1),
        4.0 * norm_L**2 / ((k + 1) * u),
        k * u / 2.0,
        k + 1.0,
        u * (agents * R**2) / (agents * N * k),
    )


@dataclass(frozen=True, eq=False)
class Iterate:
    """All agents after one iteration: their points, the weighted averages of them, what it took so far."""

    x: Array
    x_bar: Array
    y: Array
    rounds: int
    lmo_calls: NDArray[np.int64]


def sliding(
    A: Array, b: Array, L: Array, x0: Array, parameters: Callable[[int], Parameters], procedure: Procedure
) -> Iterator[Iterate]:
    """Yield the iterates of Algorithm 2 (of Algorithm 1, where the procedure is exact)."""
    m, d = len(A), len(x0)
    bold_L = np.kron(L, np.eye(d))
    x_prev = x = np.tile(x0, m)
    y = np.zeros(m * d)
    weighted, total = np.zeros((m, d)), 0.0
    calls = np.zeros(m, dtype=np.int64)
    k = 0
    while True:
        k += 1
        alpha, tau, eta, theta, e = parameters(k)
        x_tilde = alpha * (x - x_prev) + x
        y = y + (bold_L @ x_tilde) / tau
        w, centers = (bold_L @ y).reshape(m, d), x.reshape(m, d)
        steps = [procedure(i, (A[i], b[i], w[i], eta, centers[i]), e) for i in range(m)]
        x_prev, x = x, np.concatenate([step[0] for step in steps])
        calls = calls + np.array([step[1] for step in steps])
        weighted, total = weighted + theta * x.reshape(m, d), total + theta
        yield Iterate(x.reshape(m, d), weighted / total, y.reshape(m, d), 2 * k, calls)


def metropolis(L: Array) -> Array:
    """Return the Metropolis weights of the graph with Laplacian L: symmetric, every row sums to 1."""
    m = len(L)
    W = np.zeros((m, m))
    for i in range(m):
        for j in range(m):
            W[i, j] = 1.0 / (1.0 + max(L[i, i], L[j, j])) if i != j and L[i, j] == -1.0 else 0.0
        W[i, i] = 1.0 - W[i].sum()
    return W


def gradients(A: Array, b: Array, x: Array) -> Array:
    """Return ∇fᵢ(xᵢ), one agent a row."""
    return np.stack([2.0 * A[i].T @ (A[i] @ x[i] - b[i]) for i in range(len(A))])


def dfw_tracking(A: Array, b: Array, L: Array, x0: Array, oracle: Oracle) -> Iterator[Iterate]:
    """Yield the iterates of DFW with a tracked gradient."""
    m, W = len(A), metropolis(L)
    x, g, before, t = np.tile(x0, (m, 1)), np.zeros((m, len(x0))), np.zeros((m, len(x0))), 0
    while True:
        t += 1
        x_bar = W @ x
        now = gradients(A, b, x_bar)
        g, before = W @ (g + now - before), now
        x = x_bar + 2.0 / (t + 1.0) * (np.stack([oracle(row) for row in g]) - x_bar)
        yield Iterate(x, x, 0.0 * x, 2 * t, np.full(m, t))


def dfw_averaging(A: Array, b: Array, L: Array, x0: Array, oracle: Oracle) -> Iterator[Iterate]:
    """Yield the iterates of DFW with ⌈log t + 1⌉ averagings of points and of gradients."""
    m, W = len(A), metropolis(L)
    x, t, rounds = np.tile(x0, (m, 1)), 0, 0
    while True:
        t += 1
        times = math.ceil(math.log(t) + 1.0)
        power = np.linalg.matrix_power(W, times)
        x_bar = power @ x
        g = power @ gradients(A, b, x_bar)
        x = x_bar + 2.0 / (t + 1.0) * (np.stack([oracle(row) for row in g]) - x_bar)
        rounds += 2 * times
        yield Iterate(x, x, 0.0 * x, rounds, np.full(m, t))


def local_etas(A: Array | list[Array], L: Array) -> Array:
    """Return every agent's 0.6 √(largest · mean eigenvalue of 2AᵀA) · c^(−1/4), c the connectivity."""
    spectrum = normalized_spectrum(L)
    connectivity = spectrum[1] / spectrum[-1] if len(L) > 1 else 1.0
    curvatures = [np.linalg.eigvalsh(2.0 * Ai.T @ Ai) for Ai in A]
    return np.array([0.6 * math.sqrt(each[-1] * each.mean()) / connectivity**0.25 for each in curvatures])


def degrees(L: Array) -> Array:
    """Return the sum of the weights of every agent's edges; 1 for an agent alone."""
    return np.asarray(np.diag(L) if len(L) > 1 else np.ones(1), dtype=np.float64)


def normalized_spectrum(L: Array) -> Array:
    """Return the eigenvalues of D^(−1/2) L D^(−1/2), increasing; 2 for an agent alone."""
    if len(L) == 1:
        return np.array([2.0])
    root = np.sqrt(np.diag(L))
    return np.asarray(np.linalg.eigvalsh(L / np.outer(root, root)), dtype=np.float64)


def resisting(L: Array) -> Array:
    """Return L with edges that weigh their effective resistance over the mean of all edges'."""
    inverse = np.linalg.pinv(L)
    diagonal = np.diag(inverse)
    R = (diagonal[:, None] + diagonal - 2.0 * inverse) * (L < 0.0)
    weights = R / R[L < 0.0].mean() if len(L) > 1 else R
    return np.asarray(np.diag(weights.sum(axis=1)) - weights, dtype=np.float64)


MARGIN = 1.01
"""The factor by which η exceeds half of the norm of the weighted Laplacian."""


def edge_weights(L: Array, scales: Array) -> Array:
    """Return ρ with ρᵢⱼ = rᵢⱼ √(sᵢ sⱼ) for the weights r of L; with one common scale, rᵢⱼ s."""
    return np.asarray(np.sqrt(np.outer(scales, scales)) * -np.minimum(L - np.diag(np.diag(L)), 0.0))


def depths(L: Array, data: Array | None = None) -> NDArray[np.int64]:
    """Return every agent's distance from the center: the first agent whose farthest other is nearest.

    On a complete graph, given the data of agents with equally many rows, it is the agent whose squared
    entries are nearest their mean, as a ratio.
    """
    m = len(L)
    step = (np.eye(m) - np.minimum(L, 0.0)) > 0.0
    distance, reach = np.zeros((m, m), dtype=np.int64), np.eye(m, dtype=bool)
    while not reach.all():
        distance[~reach] += 1
        reach = step @ reach
    if data is not None and distance.max() <= 1:
        squares = np.log((data**2).sum(axis=(1, 2)))
        return np.asarray(distance[int(np.abs(squares - np.log(np.exp(squares).mean())).argmin())])
    return np.asarray(distance[int(distance.max(axis=1).argmin())])


def balancing_factor(primal: float, dual: float, epoch: int) -> float:
    """Return the factor on the scale: it halves the logarithm by which primal/dual is outside [0.1, 5]."""
    ratio = math.log(primal / dual) if dual > 0.0 else math.inf
    outside = max(ratio - math.log(5.0), 0.0) + min(ratio - math.log(0.1), 0.0)
    limit = 3.0 / epoch**1.1
    return math.exp(-min(max(0.5 * outside, -limit), limit))


def preconditioner(squares: Array) -> Array:
    """Return h over its mean, h the largest curvature of each coordinate among agents with uneven columns.

    Where they have no data, h is the median of the rest.
    """
    uneven = squares.max(axis=1) > 100.0 * np.median(squares, axis=1)
    h = squares[uneven].max(axis=0)
    h = np.where(h > 0.0, h, np.median(h[h > 0.0]))
    return np.asarray(np.maximum(h, 1e-12 * h.max()) / h.mean(), dtype=np.float64)


Answer: TypeAlias = Callable[[int, Array, Array, Array], Array]
"""(agent, w, η, center) ↦ what minimizes φ; η is one number, or one for every coordinate."""


def fast(
    L: Array,
    x0: Array,
    etas: Array,
    relaxation: float,
    adapting: bool,
    answer: Answer,
    A: Array | None = None,
    data: Array | None = None,
) -> Iterator[Array]:
    """Yield all agents' points after each iteration of FastDCGS over edges with exact inner solves.

    Relaxed consensus ADMM: v = Lρ x with the Laplacian Lρ of the weights ρᵢⱼ, c ← c + ω (x − v/(2η) − c) and
    w ← w + ω/2 v, with relaxation ω. An epoch is a sum up the tree and an answer down: agents at depth t use
    it t rounds later. Scales and, given the data A, the preconditioner of the first epoch are used by all
    after the same round. ``data`` are those by which :func:`depths` finds the root.
    """
    m, degree, depth, size = len(L), degrees(L), depths(L, data), len(x0)
    height, share = int(depth.max()), 0.5 * MARGIN * normalized_spectrum(L)[-1]
    h = None if A is None else preconditioner(np.stack([2.0 * (Ai**2).sum(axis=0) for Ai in A]))
    D, local, scales, eta = np.ones(size), etas.copy(), etas / degree, etas.copy()
    updates, scale = 0, 0.0
    c, w = np.tile(x0, (m, 1)), np.zeros((m, size))
    x = np.stack([answer(i, w[i], eta[i] * D, c[i]) for i in range(m)])
    residuals, sent = np.zeros((m, 2)), np.zeros((m, 2))  # of this epoch, and what is summed in it
    told: list[tuple[int, float, float, float, bool]] = []  # (round, sums, whether h comes with it)
    k = began = 0
    while True:
        k += 1
        rho = edge_weights(L, scales)
        if not scale:
            eta = MARGIN * rho.sum(axis=1) if m > 1 else eta
        v = np.diag(rho.sum(axis=1)) @ x - rho @ x
        ahead = x - v / (2.0 * eta[:, None]) - c
        pairs = ((x[:, None] - x[None]) ** 2 * D).sum(axis=2)
        residuals += np.stack([eta * (D * ahead**2).sum(axis=1), 0.5 * (rho * pairs).sum(axis=1)], axis=1)
        c, w = c + relaxation * ahead, w + 0.5 * relaxation * D * v
        if k - began >= max(4, height if not told else 2 * height):
            began = k
            told.append((k, float(local.sum()), *sent.sum(axis=0).tolist(), h is not None and not told))
        for i in range(m):
            for at, _, _, _, brings_h in told:
                if k != at + depth[i]:
                    continue
                if brings_h:
                    assert A is not None
                    assert h is not None
                    local[i] = local_etas([Ai / np.sqrt(h) for Ai in A], L)[i]
                sent[i], residuals[i] = residuals[i], 0.0
        if told and k == told[-1][0] + height:
            _, total_eta, primal, dual, brings_h = told[-1]
            if brings_h:
                assert h is not None
                D, scales = h, local / degree
            else:
                if updates == 0:
                    scale = total_eta / (share * degree.sum())
                elif adapting:
                    scale *= balancing_factor(primal, dual, updates)
                updates += 1
                scales, eta = np.full(m, scale), share * degree * scale
        x = np.stack([answer(i, w[i], eta[i] * D, c[i]) for i in range(m)])
        yield x


def consensus_with_copies(rho: Array, x0: Array, relaxation: float, answer: Answer) -> Iterator[Array]:
    """Yield all agents' points of relaxed consensus ADMM with one vector zᵢⱼ for each end of an edge.

    xᵢ minimizes fᵢ(x) + Σⱼ (ρᵢⱼ/2 ‖x‖² − ⟨zᵢⱼ, x⟩), and zⱼᵢ ← (1 − α) zⱼᵢ + α (2ρᵢⱼ xᵢ − zᵢⱼ), α = ω/2.
    """
    m, alpha, zero = len(rho), 0.5 * relaxation, np.zeros(len(x0))
    edges = [(i, j) for i in range(m) for j in range(m) if rho[i, j] > 0.0]
    z = {(i, j): rho[i, j] * x0 for i, j in edges}
    eta = rho.sum(axis=1)
    while True:
        centers = [sum((z[e] for e in edges if e[0] == i), start=zero) / eta[i] for i in range(m)]
        x = np.stack([answer(i, zero, np.full(len(x0), eta[i]), centers[i]) for i in range(m)])
        yield x
        q = {(i, j): 2.0 * rho[i, j] * x[i] - z[i, j] for i, j in edges}
        z = {(i, j): z[i, j] + alpha * (q[j, i] - z[i, j]) for i, j in edges}


@dataclass(frozen=True, eq=False)
class RootStep:
    """The next point of the root's steps, and what was done with the one before."""

    x: Array
    event: str


def root_steps(A: Array, b: Array, root: int, radius: float, x0: Array) -> Iterator[RootStep]:
    """Yield the points of FastDCGS with the root's data as the model, over ‖x‖ ≤ radius, with exact solves.

    What happens is "first", "plain", "longer", "shorter", "counts" (a step that was too long, but f is low),
    "repeat" or "back"; "gradient" follows if the root's data are no model any more.
    """
    everything, targets, solve = np.vstack(list(A)), np.concatenate(list(b)), exact_on_ball(radius)
    own = 2.0 * A[root].T @ A[root]
    whole = 2.0 * everything.T @ everything
    c, Lambda = min(float(len(A)), np.trace(whole) / np.trace(own)), 1e-3 * np.trace(whole) / len(x0)

    def value(x: Array) -> float:
        return float(np.sum((everything @ x - targets) ** 2))

    def slope(x: Array) -> Array:
        return np.asarray(2.0 * everything.T @ (everything @ x - targets))

    x = y = best = x0
    z: Array | None = None
    t, unlike, falls, increases = 1.0, 0, 0, 0
    while True:
        event, last, z = "first" if z is None and best is x0 and x is x0 else "plain", z, y
        curvature = explained = 0.0
        if last is not None:
            d = x - last
            curvature = float(d @ whole @ d / (d @ d))
            explained = c * float(d @ own @ d / (d @ d))
            rest, was = curvature - explained, Lambda
            low = c > 0.0 and value(x) < value(best) - 0.3 * float(slope(last) @ (last - x))
            if rest > Lambda:
                grow, more = (2.0, 1.2) if c > 0.0 else (1.5, 1.0)
                Lambda, increases = max(grow * Lambda, more * rest), increases + 1
                event = "counts" if low else "repeat"
        if event == "repeat":
            z, t = last, 1.0
        elif value(x) > value(best):
            Lambda = was if event == "counts" else Lambda
            x = y = best
            z, t, event = None, 1.0, "back"
        else:
            best = x
            may = (c > 0.0 or (increases < 2 and rest > 0.0)) if last is not None else False
            if event == "plain" and may and rest < 0.5 * Lambda and falls < 20:
                Lambda, falls, event = (
                    max((0.5 if c > 0.0 else 0.7) * Lambda, 1.2 * rest),
                    falls + 1,
                    "shorter",
                )
        if last is not None and c > 0.0:
            unlike += curvature > 0.1 * Lambda and explained < 0.15 * curvature
            if unlike == 3:
                c, Lambda, event = 0.0, max(Lambda, curvature), event + ", gradient"
        if z is None:
            yield RootStep(x, event)
            continue
        data = (A[root], b[root]) if c > 0.0 else (np.zeros((1, len(x0))), np.zeros(1))
        w = slope(z) / c - 2.0 * A[root].T @ (A[root] @ z - b[root]) if c > 0.0 else slope(z)
        before, x = x, solve(root, (*data, w, Lambda / (c or 1.0), z), 0.0)[0]
        t_before = 1.0 if float((z - x) @ (x - before)) > 0.0 else t
        t = 0.5 + math.sqrt(0.25 + t_before**2)
        y = x + (t_before - 1.0) / t * (x - before)
        yield RootStep(x, event)
