"""The bounds and rates of theorems, with the constants that their proofs really give.

First those of the paper, then those of FastDCGS over edges. Both proofs of the paper end in
F(x̄_N) − F(x*) ≤ (Σθₖ)⁻¹ (θ₁η₁/2 ‖𝐱⁰ − 𝐱*‖² + θ₁τ₁/2 ‖𝐲⁰‖² + ΣₖΣᵢ θₖ eᵢᵏ), with bold letters stacked over the
m agents. Here y⁰ = 0, and all agents start from one x⁰: ‖𝐱⁰ − 𝐱*‖² = m R².
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest

import dcgs
from dcgs import CG, DCGS, PCG, Theorem1, Theorem2
from dcgs.counting import CountedOracle
from dcgs.inner import Inner, Outcome, Subproblem, Task, gap_at_most
from dcgs.methods.fast.edge_variables import LossyEdgeVariables, ReliableEdgeVariables
from dcgs.methods.fast.step_size import StepSize
from dcgs.runtime.faults import AgentLinks, SentMessage
from dcgs.sets import ConvexSet, L1Ball, L2Ball, Simplex
from problems import GRAPHS, Array, Fits, agreeing_fits, laplacian_matrix, norm_of, random_fits
from reference import optimum

SOME_GRAPHS = ("one node", "one edge", "cycle", "star", "random of 7")
# F* comes from a solver that is accurate to 1e-9, relative or absolute; a factor of ten for safety.
SOLVER = 1e-8


def bound_of_theorem_1(graph: str, balance: float, R: float, N: int) -> float:
    """Return the bound for Theorem1(balance=c).

    θ = 1, η = 2c‖L‖ and eᵢᵏ = c‖L‖R²/N: (1/N) (c‖L‖ m R² + N m · c‖L‖R²/N). The paper prints half of it
    (and its own e, summed, comes to as much as the first term).
    """
    m, norm_L = len(GRAPHS[graph]), norm_of(laplacian_matrix(GRAPHS[graph]))
    return (balance * norm_L * m * R**2 + m * balance * norm_L * R**2) / N


def bound_of_theorem_2(graph: str, balance: float, u: float, R: float, N: int) -> float:
    """Return the bound for Theorem2(balance=c).

    θₖ = k + 1, so Σθₖ = N(N + 3)/2; η₁ = cu/2, so θ₁η₁/2 = cu/2; and eᵢᵏ = uR²/(Nk), so
    Σ θₖ eᵢᵏ = uR² Σ (1 + 1/k)/N = uR² (1 + H_N/N). At c = 1 that is up to 5 times what the paper prints.
    """
    m = len(GRAPHS[graph])
    harmonic = sum(1.0 / k for k in range(1, N + 1))
    return u * m * R**2 * (balance / 2.0 + 1.0 + harmonic / N) / (N * (N + 3.0) / 2.0)


def final_loss(fits: Fits, X: ConvexSet, graph: str, method: DCGS, N: int) -> float:
    """Return F(x̄_N) = Σ fᵢ(x̄ᵢ)."""
    result = dcgs.minimize(fits.objectives(), X, GRAPHS[graph], method, iterations=N, every=0)
    assert result.notes == ()
    return float(result.history.local_loss[-1])


def bowls(curvatures: Array, x_star: Array, seed: int) -> Fits:
    """Return fᵢ(x) = hᵢ/2 ‖x − x_star‖², each through a rotation of its own."""
    rng = np.random.default_rng(seed)
    d = len(x_star)
    rotations = [np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in curvatures]
    A = np.stack([np.sqrt(h / 2.0) * Q for h, Q in zip(curvatures, rotations, strict=True)])
    return agreeing_fits(A, x_star)


@cache
def disagreeing(graph: str, rows: int) -> tuple[Fits, Array, float]:
    """Return agents with data of their own, the point that is best for all of them, and F there."""
    fits = random_fits(len(GRAPHS[graph]), rows, columns=5, seed=31)
    x_star, least = optimum(list(zip(fits.A, fits.b, strict=True)), L1Ball(5, 2.0))
    return fits, x_star, least


@pytest.mark.parametrize("N", [1, 4, 16, 64])
@pytest.mark.parametrize("balance", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("graph", SOME_GRAPHS)
def test_theorem_1_holds_where_the_agents_agree_and_not_by_much(graph: str, balance: float, N: int) -> None:
    """F − F* = F ≥ 0 here, and a proximal step of weight η covers the share h/(h + η) of the way.

    So the average is close to x⁰ for h ≪ η/N, where F is small, and close to x* for h ≫ η/N: between the
    two, at h of about η/N, F comes close to its bound.
    """
    x_star = np.array([0.6, 0.0, -0.5, 0.2])
    R = float(np.linalg.norm(x_star))
    bound = bound_of_theorem_1(graph, balance, R, N)
    eta = 2.0 * balance * norm_of(laplacian_matrix(GRAPHS[graph]))
    spread = np.linspace(0.8, 1.2, len(GRAPHS[graph]))
    method = DCGS(inner="cg", schedule=Theorem1(balance=balance, distance=R))
    losses = [
        final_loss(bowls(share * eta / N * spread, x_star, seed=32), L2Ball(4, 1.0), graph, method, N)
        for share in (0.3, 1.3, 3.0, 6.0)
    ]
    assert min(losses) >= 0.0
    assert max(losses) <= bound
    # With exact steps and large N the worst h, 1.26 η/N, gives 0.204 η m R²/N, a fifth of the bound.
    assert max(losses) >= 0.1 * bound


@pytest.mark.parametrize("N", [1, 4, 16, 64])
@pytest.mark.parametrize("balance", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("graph", SOME_GRAPHS)
def test_theorem_1_holds_where_the_agents_disagree(graph: str, balance: float, N: int) -> None:
    fits, x_star, least = disagreeing(graph, rows=3)
    R = float(np.linalg.norm(x_star))
    method = DCGS(inner="pcg", schedule=Theorem1(balance=balance, distance=R))
    excess = final_loss(fits, L1Ball(5, 2.0), graph, method, N) - least
    assert excess <= bound_of_theorem_1(graph, balance, R, N) + SOLVER * max(1.0, least)


@pytest.mark.parametrize("N", [1, 4, 16, 64])
@pytest.mark.parametrize("balance", [0.2, 1.0])
@pytest.mark.parametrize("graph", SOME_GRAPHS)
def test_theorem_2_holds_where_the_agents_agree_but_differ_in_curvature(
    graph: str, balance: float, N: int
) -> None:
    x_star = np.array([0.6, 0.0, -0.5, 0.2])
    R = float(np.linalg.norm(x_star))
    curvatures = np.linspace(0.5, 4.0, len(GRAPHS[graph]))
    fits = bowls(curvatures, x_star, seed=33)
    method = DCGS(inner="cg", schedule=Theorem2(balance=balance, distance=R))
    loss = final_loss(fits, L2Ball(4, 1.0), graph, method, N)
    assert 0.0 <= loss <= bound_of_theorem_2(graph, balance, 0.5, R, N)


@pytest.mark.parametrize("N", [1, 4, 16, 64])
@pytest.mark.parametrize("balance", [0.2, 1.0])
@pytest.mark.parametrize("graph", SOME_GRAPHS)
def test_theorem_2_holds_where_the_agents_disagree(graph: str, balance: float, N: int) -> None:
    fits, x_star, least = disagreeing(graph, rows=9)
    R, u = float(np.linalg.norm(x_star)), fits.strong_convexity
    method = DCGS(inner="pcg", schedule=Theorem2(balance=balance, distance=R))
    excess = final_loss(fits, L1Ball(5, 2.0), graph, method, N) - least
    assert excess <= bound_of_theorem_2(graph, balance, u, R, N) + SOLVER * max(1.0, least)


def slope(N: Array, values: Array) -> float:
    """Return the exponent p of the power law values ≈ const · N^p."""
    return float(np.polyfit(np.log(N), np.log(values), 1)[0])


def staircase(low: float, high: float) -> Fits:
    """Return four agents that agree, with curvatures from low to high in twelve equal ratios.

    Along coordinate j the curvature is about hⱼ (each agent's a little different), x* = 0, and the run
    starts from 1. With weight η the average after N steps is about 1 for hⱼ ≪ η/N and η/(hⱼN) for
    hⱼ ≫ η/N, so that F = Σ hⱼ/2 · x̄ⱼ² is about η/N as long as η/N is on the staircase: F(x̄_N) − F* falls
    like 1/N and no faster, over all these N. It is never negative, as every agent's optimum is x*.
    """
    rng = np.random.default_rng(34)
    curvatures = np.geomspace(low, high, 12) * rng.uniform(0.5, 1.5, (4, 12))
    return agreeing_fits(np.stack([np.diag(np.sqrt(h / 2.0)) for h in curvatures]), np.zeros(12))


def losses_on_the_way(fits: Fits, method: DCGS, iterations: Array) -> Array:
    """Return F(x̄_N) for every N on a complete graph, from x⁰ = (1, …, 1)."""
    runs = [
        dcgs.minimize(
            fits.objectives(),
            L1Ball(12, 24.0),
            GRAPHS["complete"],
            method,
            iterations=int(N),
            every=0,
            x0=np.ones(12),
        )
        for N in iterations
    ]
    return np.array([run.history.local_loss[-1] for run in runs])


R_OF_STAIRCASE = float(np.sqrt(12.0))
MANY = np.array([8.0, 16.0, 32.0, 64.0, 128.0])


@pytest.mark.parametrize("inner", [CG(), PCG()])
def test_the_loss_falls_like_1_over_n_with_theorem_1(inner: Inner) -> None:
    method = DCGS(inner=inner, schedule=Theorem1(distance=R_OF_STAIRCASE))
    losses = losses_on_the_way(staircase(1e-3, 1e2), method, MANY)
    assert slope(MANY, losses) <= -0.9
    # No faster than the construction says; else the problem would not show the rate.
    assert slope(MANY, losses) >= -1.2


@pytest.mark.parametrize("inner", [CG(), PCG()])
def test_the_loss_falls_like_1_over_n_squared_or_faster_with_theorem_2(inner: Inner) -> None:
    """Theorem 1, which knows nothing of u, shows that it is not the problem that makes this easy."""
    fits = staircase(1e-1, 1e1)
    few = MANY / 2.0
    with_2 = losses_on_the_way(fits, DCGS(inner=inner, schedule=Theorem2(distance=R_OF_STAIRCASE)), few)
    with_1 = losses_on_the_way(fits, DCGS(inner=inner, schedule=Theorem1(distance=R_OF_STAIRCASE)), few)
    assert slope(few, with_2) <= -1.8
    assert slope(few, with_1) >= -1.4


def residuals(graph: str, schedule: Theorem1 | Theorem2, iterations: Array) -> Array:
    """Return ‖𝐋 x̄_N‖ for every N; agent i would have hᵢ/2 ‖x − cᵢ‖² least, with cᵢ all different."""
    L = laplacian_matrix(GRAPHS[graph])
    rng = np.random.default_rng(36)
    centers = rng.uniform(-0.5, 0.5, (len(L), 4))
    bowl = bowls(np.full(len(L), norm_of(L)), np.zeros(4), seed=37)
    fits = Fits(bowl.A, np.einsum("ijk,ik->ij", bowl.A, centers))
    method = DCGS(inner="pcg", schedule=schedule)
    runs = [
        dcgs.minimize(fits.objectives(), L1Ball(4, 2.0), GRAPHS[graph], method, iterations=int(N), every=0)
        for N in iterations
    ]
    return np.array([np.linalg.norm(L @ run.agents) for run in runs])


@pytest.mark.parametrize("graph", ["one edge", "complete", "cycle", "star"])
def test_the_agents_come_to_agree_as_n_grows(graph: str) -> None:
    assert (np.diff(residuals(graph, Theorem1(distance=1.0), MANY)) < 0.0).all()


@pytest.mark.parametrize("graph", ["one edge", "complete"])
def test_the_agents_come_to_agree_like_1_over_n_with_theorem_1(graph: str) -> None:
    """By the proof 𝐋 x̄_N = (θ_N 𝐋(x^N − x^{N−1}) + θ₁τ₁ y^N)/Σθₖ, and Σθₖ = N.

    y^N is bounded, but it is small at first and so is the sum: the rate shows once y has found its size,
    soonest where everyone is close to everyone.
    """
    assert slope(MANY, residuals(graph, Theorem1(distance=1.0), MANY)) <= -0.9


@pytest.mark.parametrize("graph", ["one edge", "cycle", "star"])
def test_the_agents_come_to_agree_like_1_over_n_squared_with_theorem_2(graph: str) -> None:
    """As with Theorem 1, over Σθₖ = N(N + 3)/2."""
    late = MANY[1:]
    assert slope(late, residuals(graph, Theorem2(distance=1.0), late)) <= -1.8


def calls_until(inner: Inner, gaps: Array) -> Array:
    """Return the oracle calls that one subproblem takes for each gap.

    The minimizer p lies inside of a face of the simplex, for there ∇φ(p) = w is least on the vertices
    of the face: plain steps zig-zag between them.
    """
    X = Simplex(10)
    p = np.array([0.3, 0.25, 0.2, 0.1, 0.1, 0.05, 0.0, 0.0, 0.0, 0.0])
    w = np.where(p > 0.0, 0.0, 1.0)
    A = np.random.default_rng(35).standard_normal((15, 10))
    f = dcgs.LeastSquares(A, A @ p)
    calls = []
    for e in gaps:
        oracle = CountedOracle(X)
        outcomes: Counter[Outcome] = Counter()
        solver = inner.start(Task(f, X, oracle, X.start(), outcomes))
        solver(Subproblem(f, w, 1.0, p), gap_at_most(float(e)))
        assert outcomes == {Outcome.REACHED: 1}
        calls.append(oracle.calls)
    return np.array(calls, dtype=np.float64)


def test_the_calls_of_cg_grow_like_1_over_e() -> None:
    gaps = np.geomspace(1.0, 3e-3, 7)
    # The exponent is 1; a fifth is for the first few steps, which are not yet typical.
    assert slope(1.0 / gaps, calls_until(CG(), gaps)) == pytest.approx(1.0, abs=0.2)


def test_the_calls_of_pcg_grow_like_log_1_over_e() -> None:
    gaps = np.geomspace(1e-2, 1e-13, 12)
    calls = calls_until(PCG(), gaps)
    added = np.diff(calls)
    # Every factor of ten adds about as many calls: steps that drop an atom make this uneven, yet bounded.
    assert added.max() <= 3.0 * added.mean()
    # Nor do they become more: the later half of the factors adds about what the earlier half does.
    assert calls[-1] - calls[6] <= 2.0 * (calls[6] - calls[0])
    # What pcg takes for 1e-13 takes cg not even to 1e-2.
    assert calls_until(CG(), gaps[:1])[0] > calls[-1]


# FastDCGS over edges: the inequalities of docs/methods.md and docs/faults.md, on fits without a set, whose
# subproblems are linear systems.

SIZE = 4


def edge_weights(graph: str) -> Array:
    """Return some weights ρᵢⱼ of the edges, equal at both ends."""
    L = laplacian_matrix(GRAPHS[graph])
    rho = np.random.default_rng(41).uniform(0.5, 3.0, L.shape)
    return np.where(L < 0.0, np.triu(rho, 1) + np.triu(rho, 1).T, 0.0)


def step_sizes(rho: Array, eta: Array) -> list[StepSize]:
    """Return step sizes with these weights and η, which do not change."""
    of = [{j: float(rho[i, j]) for j in np.flatnonzero(rho[i]).tolist()} for i in range(len(rho))]
    each = [float(e) for e in eta]
    return [StepSize(e, e, 1.0, e, w, dict(w), 1.0, True, 1.0) for e, w in zip(each, of, strict=True)]


def exact_solve(fits: Fits, i: int, phi: Subproblem) -> Array:
    """Return the minimizer of ‖Aᵢ x − bᵢ‖² + ⟨w, x⟩ + η/2 ‖x − center‖²."""
    H = 2.0 * fits.A[i].T @ fits.A[i] + phi.eta * np.eye(SIZE)
    return np.asarray(np.linalg.solve(H, 2.0 * fits.A[i].T @ fits.b[i] - phi.w + phi.eta * phi.center))


def solution(fits: Fits) -> tuple[Array, Array]:
    """Return the minimizer x* of the sum of all fits, and ∇fᵢ(x*) of each agent, which add up to zero."""
    A, b = np.vstack(list(fits.A)), np.concatenate(list(fits.b))
    x = np.linalg.lstsq(A, b, rcond=None)[0]
    residuals = np.einsum("ijk,k->ij", fits.A, x) - fits.b
    return x, 2.0 * np.einsum("ijk,ij->ik", fits.A, residuals)


@pytest.mark.parametrize("omega", [0.5, 1.9])
@pytest.mark.parametrize("error", [0.0, 1e-3, 0.3])
@pytest.mark.parametrize("graph", ["one edge", "cycle", "random of 7"])
def test_the_residual_over_edges_is_bounded_by_the_sum_of_all_errors_of_inner_solves(
    graph: str, error: float, omega: float
) -> None:
    """min ‖T z − z‖² ≤ (‖z⁰ − z*‖ + ω Σ ‖x − x̂‖)²/(ω (2 − ω) K), whatever the errors are: here, all alike.

    A step brings z closer to z* by its part of the sum, but for its own error. The norm of z = (c′, λ) is
    that of H − M for c′ = (H − M)⁻¹ H c, and that of M⁺ for w = Bᵀλ.
    """
    rho, rng = edge_weights(graph), np.random.default_rng(42)
    m = len(rho)
    M = 0.5 * (np.diag(rho.sum(axis=1)) - rho)
    # η/ρ as in a run: 1.01 times what makes H − M positive semidefinite.
    eta = 1.01 * rho.sum(axis=1)
    H, pseudo = np.diag(eta), np.linalg.pinv(M)
    fits, steps = random_fits(m, rows=6, columns=SIZE, seed=43), step_sizes(rho, eta)
    x_star, gradients = solution(fits)
    edges = [ReliableEdgeVariables(np.zeros(SIZE), np.zeros(SIZE)) for _ in steps]
    f = dcgs.LeastSquares(np.eye(SIZE), np.zeros(SIZE))

    def squared(c: Array, w: Array) -> float:
        return float(np.sum(c * ((H - M) @ c)) + np.sum(w * (pseudo @ w)))

    distances, errors, residuals = [], [], []
    for _ in range(200):
        phis = [own.subproblem(f, step) for own, step in zip(edges, steps, strict=True)]
        c = np.linalg.solve(H - M, H @ np.stack([phi.center for phi in phis]))
        w = np.stack([phi.w for phi in phis])
        # w* = −∇fᵢ(x*), as w + ∇fᵢ(x) = 0 at a solution without a set.
        distances.append(np.sqrt(squared(c - x_star, w + gradients)))
        exact = np.stack([exact_solve(fits, i, phi) for i, phi in enumerate(phis)])
        residuals.append(squared(exact - c, M @ exact))
        d = error * rng.standard_normal(exact.shape)
        errors.append(omega * np.sqrt(np.sum(d * (H @ d))))
        for i, own in enumerate(edges):
            own.update(exact[i] + d[i], steps[i], {j: exact[j] + d[j] for j in steps[i].weights}, omega)
    falls = omega * (2.0 - omega) * np.array(residuals)
    # Squares are right to 1e-15, so where they cancel the root is right to 1e-7.
    closer = np.sqrt(np.maximum(np.square(distances) - falls, 0.0)) + errors
    assert (np.array(distances[1:]) <= closer[:-1] + 1e-7 * distances[0]).all()
    assert (np.cumsum(falls) <= (distances[0] + np.cumsum(errors)) ** 2).all()


@pytest.mark.parametrize("alpha", [0.5, 0.93, 0.999])
@pytest.mark.parametrize("graph", ["one edge", "cycle", "random of 7"])
def test_the_potential_falls_in_every_round_however_late_the_messages_of_each_link_are(
    graph: str, alpha: float
) -> None:
    """Every link has a delay of its own, so that neighbors of an agent use different states of it.

    All agents are awake and nothing is lost: a = 1/α, and every message on its way counts 1.
    """
    rho, rng = edge_weights(graph), np.random.default_rng(44)
    fits, steps = random_fits(len(rho), rows=6, columns=SIZE, seed=45), step_sizes(rho, rho.sum(axis=1))
    x_star, gradients = solution(fits)
    edges = [LossyEdgeVariables.at(3.0 * rng.standard_normal(SIZE), step) for step in steps]
    links = [(i, j) for i, step in enumerate(steps) for j in sorted(step.weights)]
    late = {link: int(rng.integers(0, 9)) for link in links}
    f = dcgs.LeastSquares(np.eye(SIZE), np.zeros(SIZE))
    # A fixed point is ρ x* + y, with y of opposite signs at the two ends of an edge and the sum ∇fᵢ(x*).
    p = np.linalg.pinv(np.diag(rho.sum(axis=1)) - rho) @ gradients
    fixed = {(i, j): rho[i, j] * (x_star + p[i] - p[j]) for i, j in links}

    def distance(z: Array, i: int, j: int) -> float:
        return float(np.sum((z - fixed[i, j]) ** 2) / rho[i, j])

    sent: list[dict[tuple[int, int], Array]] = []
    potentials = []
    for k in range(120):
        phis = [own.subproblem(f, step) for own, step in zip(edges, steps, strict=True)]
        x = [exact_solve(fits, i, phi) for i, phi in enumerate(phis)]
        own_part = sum(distance(edges[j].z[i], j, i) for i, j in links) / alpha
        on_the_way = [(i, j, r) for i, j in links for r in range(max(0, k - late[i, j]), k)]
        potentials.append(own_part + sum(distance(sent[r][i, j], j, i) for i, j, r in on_the_way))
        sent.append({(i, j): edges[i].outgoing(x[i], steps[i])[j] for i, j in links})
        for j, own in enumerate(edges):
            arrived = {i: sent[k - late[i, j]][i, j] for i in steps[j].weights if late[i, j] <= k}
            own.update(x[j], steps[j], arrived, 2.0 * alpha)
    # In the first rounds links whose messages are late are not updated; then a is more than 1/α.
    full = np.array(potentials[max(late.values()) :])
    # A potential of about 100 is right to 1e-12 of it.
    assert (np.diff(full) <= 1e-11 * full[0]).all()
    assert full[-1] < 0.9 * full[0]


@pytest.mark.parametrize(("loss", "delay", "asleep"), [(0.3, 0, 0.0), (0.0, 3, 0.0), (0.3, 3, 0.4)])
def test_what_a_message_counts_does_not_depend_on_what_was_sent_before_it(
    loss: float, delay: int, asleep: float
) -> None:
    """It is one over the probability that its sender is awake, after a short wait and after a long one.

    A message that is used counts α times the weight of its receiver then. The weights are those of the
    theorem in docs/faults.md; the rule by which messages are used is that of the runtime.
    """
    rounds, alpha, rng = 60_000, 0.93, np.random.default_rng(46)
    sender_awake, awake = rng.random(rounds) >= asleep / 2.0, rng.random(rounds) >= asleep
    lost, late = rng.random(rounds) < loss, rng.integers(0, delay + 1, rounds)
    links, waited = AgentLinks(), np.zeros(rounds, dtype=np.int64)
    used = np.zeros(rounds, dtype=np.int64)  # the round of the message that is used in a round; 0: none
    for k in range(1, rounds):
        arrived = links.arrived(k - 1) if awake[k] else {}
        used[k] = sum(int(message[0]) for message in arrived.values())
        waited[k] = k - links.newest.get(0, 0)
        links.in_flight += [
            SentMessage.of(0, k, k + int(late[k]), 0, np.array([float(k)]))
            for _ in range(int(sender_awake[k] and not lost[k]))
        ]
    weight, counts = 0.0, np.zeros(rounds)
    for k in range(rounds - 1, 0, -1):
        weight += awake[k] / (1.0 - asleep)
        counts[used[k]] = alpha * weight
        weight *= 1.0 - alpha * (used[k] > 0)
    sent = sender_awake & (np.arange(rounds) > 0) & (np.arange(rounds) < rounds - 1000)
    middle = np.median(waited[sent])
    for which in (waited <= middle, waited > middle):
        found = counts[sent & which] * (1.0 - asleep / 2.0)
        # Five standard errors; those of neighboring messages differ little from independent ones.
        assert abs(found.mean() - 1.0) <= 5.0 * found.std() / np.sqrt(len(found))
