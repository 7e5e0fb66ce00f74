"""FastDCGS: it equals the stacked reference, the steps of its proof hold, and it solves hard cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, TypeAlias, final

import networkx as nx
import numpy as np
import pytest

import dcgs
import stacked
from dcgs import CG, FastDCGS, LeastSquares, Logistic, Objective, Snapshot
from dcgs.inner import Accuracy, Corrective, Exact, Inner, Newton, Projected, Solver, Subproblem, Task
from dcgs.points import Point
from dcgs.run.measuring import certify
from dcgs.run.result import Result
from dcgs.run.stopping import Status
from dcgs.sets import ConvexSet, L2Ball, Simplex
from problems import GRAPHS, Array, Fits, laplacian_matrix, random_fits

RADIUS = 0.5
every_graph = pytest.mark.parametrize("name", GRAPHS)
both_relaxations = pytest.mark.parametrize("relaxation", [1.0, 1.85])


def epochs(graph: nx.Graph, count: int) -> int:
    """Return the rounds after which all agents have the answers of so many epochs."""
    height = int(nx.radius(graph))
    return max(4, height) + (count - 1) * max(4, 2 * height) + height


def weighted(graph: nx.Graph) -> Array:
    """Return the Laplacian that agents use."""
    return stacked.resisting(laplacian_matrix(graph))


def shown(fits: Fits, X: ConvexSet, graph: nx.Graph, method: FastDCGS, iterations: int) -> Array:
    """Return the agents' answers after each iteration."""
    answers: list[Array] = []

    def look(snapshot: Snapshot) -> None:
        answers.append(np.stack(snapshot.agents))

    dcgs.minimize(fits.objectives(), X, graph, method, iterations=iterations, callback=look)
    return np.stack(answers[1:])


def local_etas(fits: Fits, L: Array, eta: float | None) -> Array:
    """Return the agents' first η: it is given, or each agent finds it."""
    return stacked.local_etas(fits.A, L) if eta is None else np.full(len(fits), eta)


def on_ball(fits: Fits) -> stacked.Answer:
    """Return what minimizes φ over the ball, by bisection on the multiplier in the eigenvectors of AᵀA."""
    spectra = [np.linalg.eigh(2.0 * A.T @ A) for A in fits.A]

    def answer(i: int, w: Array, etas: Array, center: Array) -> Array:
        (values, vectors), eta = spectra[i], float(etas[0])
        h = vectors.T @ (2.0 * fits.A[i].T @ fits.b[i] - w + eta * center)
        low, high = 0.0, float(np.linalg.norm(h)) / RADIUS
        inside = float(np.linalg.norm(h / (values + eta))) <= RADIUS
        for _ in range(0 if inside else 100):
            middle = 0.5 * (low + high)
            beyond = float(np.linalg.norm(h / (values + eta + middle))) > RADIUS
            low, high = (middle, high) if beyond else (low, middle)
        return np.asarray(vectors @ (h / (values + eta + low)), dtype=np.float64)

    return answer


def exactly(fits: Fits, procedure: stacked.Procedure) -> stacked.Answer:
    return lambda i, w, eta, center: procedure(i, (fits.A[i], fits.b[i], w, float(eta[0]), center), 0.0)[0]


@both_relaxations
@pytest.mark.parametrize("eta", [None, 3.0])
@every_graph
def test_it_equals_the_stacked_reference_over_a_ball(name: str, eta: float | None, relaxation: float) -> None:
    graph = GRAPHS[name]
    fits, L, x0 = random_fits(len(graph), rows=3, columns=5, seed=31), weighted(graph), np.zeros(5)
    iterations = epochs(graph, 4) + 2
    etas, answer = local_etas(fits, L, eta), on_ball(fits)
    reference = stacked.fast(L, x0, etas, relaxation, eta is None, answer, data=fits.A)
    method = FastDCGS(eta=eta, relaxation=relaxation, form="edges")
    found = shown(fits, L2Ball(5, RADIUS), graph, method, iterations)
    # Both solve in closed form to rounding error, and over-relaxed steps do not enlarge errors; six digits
    # are left for small η, with which a dual variable is a sum of many terms.
    np.testing.assert_allclose(found, list(islice(reference, iterations)), rtol=1e-8, atol=1e-10 * RADIUS)


@both_relaxations
@pytest.mark.parametrize("name", ["one node", "one edge", "star", "grid"])
def test_it_equals_the_stacked_reference_over_a_simplex(name: str, relaxation: float) -> None:
    graph, X = GRAPHS[name], Simplex(4)
    fits, L = random_fits(len(graph), rows=3, columns=4, seed=32), weighted(graph)
    iterations = epochs(graph, 3) + 2
    answer = exactly(fits, stacked.exact_on_simplex(1.0))
    reference = stacked.fast(L, X.start(), np.full(len(graph), 2.0), relaxation, False, answer)
    method = FastDCGS(inner=Newton(), eta=2.0, relaxation=relaxation, precision=1e-9)
    found = shown(fits, X, graph, method, iterations)
    # Errors of 1e-9 times the length of a move, at most √2, which the dozen iterations after it carry on.
    np.testing.assert_allclose(found, list(islice(reference, iterations)), rtol=0.0, atol=1e-7)


# The steps of the proof, checked on the subproblems that the inner solvers get.


@final
@dataclass(frozen=True, eq=False)
class Recording(Inner):
    """An inner solver that records its subproblems, gaps and answers, by agent."""

    inner: Inner
    asked: list[list[Subproblem]] = field(default_factory=list)
    gaps: list[list[float]] = field(default_factory=list)
    answers: list[list[Point]] = field(default_factory=list)

    @property
    def stops_by_gap(self) -> bool:  # type: ignore[override]  # as the solver that is recorded
        return self.inner.stops_by_gap

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        return self.inner.incompatibility(f, X)

    def start(self, task: Task) -> Solver:
        for record in (self.asked, self.gaps, self.answers):
            record.append([])
        return _Recorder(self, self.inner.start(task), len(self.asked) - 1)

    @property
    def w(self) -> Array:
        """All agents' dual variables, an iteration a row."""
        return np.array([[phi.w for phi in agent] for agent in self.asked]).swapaxes(0, 1)

    @property
    def c(self) -> Array:
        """All agents' centers, an iteration a row."""
        return np.array([[phi.center for phi in agent] for agent in self.asked]).swapaxes(0, 1)

    @property
    def eta(self) -> Array:
        """All agents' η, an iteration a row."""
        return np.array([[phi.eta for phi in agent] for agent in self.asked]).swapaxes(0, 1)


@final
class _Recorder(Solver):
    def __init__(self, run: Recording, solver: Solver, agent: int) -> None:
        self.run = run
        self.solver = solver
        self.agent = agent

    def __call__(self, phi: Subproblem, accuracy: Accuracy) -> Point:
        x = self.solver(phi, accuracy)
        self.run.asked[self.agent].append(phi)
        self.run.gaps[self.agent].append(accuracy(x))
        self.run.answers[self.agent].append(x)
        return x


def solution(fits: Fits) -> tuple[Array, Array]:
    """Return x* over the ball and dual variables w* that sum to zero and make x* optimal for every agent."""
    d = fits.A.shape[2]
    A, b = np.vstack(list(fits.A)), np.concatenate(list(fits.b))
    x, _ = stacked.exact_on_ball(RADIUS)(0, (A, b, np.zeros(d), 0.0, np.zeros(d)), 0.0)
    g = stacked.gradients(fits.A, fits.b, np.tile(x, (len(fits), 1)))
    # Σ ∇fᵢ(x*) = −μ x*, of which every agent takes the same share.
    return x, g.mean(axis=0) - g


def distances(run: Recording, L_rho: Array, fits: Fits) -> Array:
    """Return the squared distance to the solution in the metric of the proof, an iteration an entry.

    The iteration is a relaxed proximal point step in the variables (p, y) with η c = (η − Lρ/2) p and Bᵀy =
    w + Lρ p/2, where BᵀB = Lρ. Its metric is η ‖p‖² − 2 ⟨p, Bᵀy⟩ + 2 ‖y‖², which is positive definite if
    η − Lρ/2 is.
    """
    x, dual = solution(fits)
    distances = []
    for c, w, eta in zip(run.c, run.w, run.eta, strict=True):
        p = np.linalg.solve(np.diag(eta) - 0.5 * L_rho, eta[:, None] * (c - x))
        u = w + 0.5 * L_rho @ p - dual
        quadratic = 2.0 * np.sum(u * (np.linalg.pinv(L_rho, rcond=1e-10) @ u))
        distances.append(float(eta @ (p**2).sum(axis=1)) - 2.0 * float(np.sum(p * u)) + quadratic)
    return np.array(distances)


@both_relaxations
@pytest.mark.parametrize("eta", [0.5, 20.0])
@every_graph
def test_no_iteration_increases_the_distance_to_the_solution(
    name: str, eta: float, relaxation: float
) -> None:
    graph = GRAPHS[name]
    L, period = weighted(graph), epochs(graph, 1) + 1
    fits, run = random_fits(len(graph), rows=9, columns=5, seed=33), Recording(Exact())
    method = FastDCGS(inner=run, eta=eta, relaxation=relaxation)
    dcgs.minimize(fits.objectives(), L2Ball(5, RADIUS), graph, method, iterations=period + 30, every=0)
    scale = run.eta[-1, 0] / (0.55 * stacked.normalized_spectrum(L)[-1] * stacked.degrees(L)[0])
    run = Recording(run.inner, [asked[period:] for asked in run.asked])
    found = distances(run, scale * L, fits)
    # Solves are exact to rounding, 1e-16 of terms that are no larger than the first distance times the
    # condition of the metric.
    assert np.diff(found).max() <= 1e-11 * found[0]
    # An agent alone is at the solution by then.
    assert found[-1] < found[0] or len(graph) == 1


@pytest.mark.parametrize("eta", [None, 3.0])
@every_graph
def test_the_dual_variables_of_all_agents_sum_to_zero(name: str, eta: float | None) -> None:
    graph = GRAPHS[name]
    fits, run = random_fits(len(graph), rows=9, columns=5, seed=34), Recording(Corrective())
    # Data of very different sizes: then so are the agents' edge steps.
    sizes = np.logspace(-2.0, 2.0, len(graph))
    objectives = [LeastSquares(r * A, r * b) for r, A, b in zip(sizes, fits.A, fits.b, strict=True)]
    method = FastDCGS(inner=run, eta=eta, form="edges")
    dcgs.minimize(objectives, dcgs.L1Ball(5, 1.0), graph, method, iterations=epochs(graph, 4), every=0)
    # What is added to one dual variable is taken from others, except for the rounding of sums of so many
    # terms.
    assert np.abs(run.w.sum(axis=1)).max() <= 1e-13 * np.abs(run.w).sum(axis=1).max()
    assert (np.abs(run.w[2]).max() > 0.0) == (len(graph) > 1)


@every_graph
def test_a_given_eta_is_the_mean_of_the_agents_etas_once_they_have_a_common_scale(name: str) -> None:
    graph = GRAPHS[name]
    fits, run = random_fits(len(graph), rows=9, columns=5, seed=35), Recording(Exact())
    method = FastDCGS(inner=run, eta=2.5)
    dcgs.minimize(fits.objectives(), L2Ball(5, RADIUS), graph, method, iterations=epochs(graph, 3), every=0)
    # A few products of numbers that are right to 1e-16.
    np.testing.assert_allclose(run.eta[0], 2.5, rtol=0.0)
    np.testing.assert_allclose(run.eta[epochs(graph, 1) + 1 :].mean(axis=1), 2.5, rtol=1e-13)


def test_every_inner_solve_is_as_accurate_as_the_rule_says() -> None:
    """The error is at most 0.07 times the distance from the center, and the first move over k^1.1."""
    X, graph = dcgs.L1Ball(5, 1.0), nx.path_graph(4)
    fits, run = random_fits(4, rows=9, columns=5, seed=40), Recording(Projected())
    dcgs.minimize(fits.objectives(), X, graph, FastDCGS(inner=run, form="edges"), iterations=60, every=0)
    for asked, gaps, answers in zip(run.asked, run.gaps, run.answers, strict=True):
        first = np.linalg.norm(answers[0] - asked[0].center)
        for n, (phi, gap, x) in enumerate(zip(asked, gaps, answers, strict=True), start=1):
            most = X.diameter if n == 1 else first * n**-1.1
            length = min(0.07 * float(np.linalg.norm(x - phi.center)), most)
            assert gap == pytest.approx(0.5 * phi.eta * length**2, rel=1e-12)


@pytest.mark.parametrize("content", [False, True])
def test_a_solver_that_stops_by_its_gap_is_asked_for_gaps_of_a_summable_schedule(content: bool) -> None:
    """Else conditional gradients would be asked for more and more without end."""
    X, graph, x0 = dcgs.L2Ball(5, 1.0), nx.path_graph(4), np.zeros(5)
    fits, run = random_fits(4, rows=9, columns=5, seed=40), Recording(CG())
    # If it is content, agent 1 is optimal at x⁰ = 0, and its loss gives no scale.
    objectives = Fits(
        fits.A, fits.b * np.array([[1.0], [0.0 if content else 1.0], [1.0], [1.0]])
    ).objectives()
    dcgs.minimize(objectives, X, graph, FastDCGS(inner=run, form="edges"), iterations=150, every=0)
    n = np.arange(1.0, 152.0)
    schedule = 1.0 / ((n + 1.0) ** 1.5 * np.maximum(n / 100.0, 1.0))
    for i, (f, answers) in enumerate(zip(objectives, run.answers, strict=True)):
        scale = f.value(x0) - f.value(answers[0])
        assert (scale > 0.0) == (i != 1 or not content)
        assert (np.array(run.gaps[i][1:]) >= scale * schedule[1:] * (1.0 - 1e-12)).all()
        assert max(run.gaps[i]) <= 10.0 * f.smoothness


def test_iterations_are_rounds_and_a_round_is_one_message_to_each_neighbor() -> None:
    graph = GRAPHS["grid"]
    fits = random_fits(len(graph), rows=9, columns=5, seed=36)
    method = FastDCGS(form="edges")
    result = dcgs.minimize(fits.objectives(), L2Ball(5, RADIUS), graph, method, iterations=17)
    assert (result.iterations, result.rounds, result.status) == (17, 17, Status.ITERATIONS)
    np.testing.assert_array_equal(result.messages, [17 * graph.degree[i] for i in range(len(graph))])


def test_it_is_the_default_method_of_minimize() -> None:
    graph = GRAPHS["cycle"]
    fits = random_fits(len(graph), rows=9, columns=5, seed=37)
    default = dcgs.minimize(fits.objectives(), dcgs.L1Ball(5), graph, iterations=9)
    named = dcgs.minimize(fits.objectives(), dcgs.L1Ball(5), graph, FastDCGS(), iterations=9)
    np.testing.assert_array_equal(default.agents, named.agents)
    assert default.about["method"] == repr(FastDCGS())


# Hard cases.

GAP = 1e-2
PATH = nx.path_graph(3)  # whose middle is a hub
Form: TypeAlias = Literal["edges", "sums", "newton"]
FORMS: tuple[Form, ...] = ("edges", "sums", "newton")


def assert_certified(result: Result, objectives: Sequence[Objective], X: ConvexSet) -> None:
    """Assert that every agent holds a point of X whose f, by everyone's data, is as near f* as asked for."""
    assert result.status is Status.AGREED
    for x in result.agents:
        np.testing.assert_array_equal(x, result.agents[0])
        # Rounding of a convex combination, relative to the size of the set.
        assert X.violation(x) <= 1e-12 * X.diameter
    method, graph = FastDCGS(form="newton", stops_itself=False), nx.complete_graph(len(objectives))
    reference = dcgs.minimize(objectives, X, graph, method, gap=1e-3 * GAP, iterations=100)
    least, gap = certify(objectives, X, reference.x)
    value = certify(objectives, X, result.agents[0])[0]
    first = float(result.history.mean_loss[0])
    # The losses are rounded: that matters where x⁰ is optimal up to rounding error.
    assert value - (least - gap) <= GAP * (first - value) + 1e-14 * abs(first)


def data(agents: int, rows: int = 8, d: int = 6, seed: int = 38) -> list[tuple[Array, Array]]:
    """Return noisy measurements of a sparse x."""
    rng = np.random.default_rng(seed)
    x = np.zeros(d)
    x[:3] = [1.5, -1.0, 0.5]
    return [(A, A @ x + 0.3 * rng.standard_normal(rows)) for A in rng.standard_normal((agents, rows, d))]


def fits_of(pairs: Sequence[tuple[Array, Array]], X: ConvexSet) -> list[Objective]:
    return [LeastSquares(A, b, shape=X.shape) for A, b in pairs]


BALL = dcgs.L1Ball(6, radius=2.0)
SOUND = data(3)
ZERO = (np.zeros((8, 6)), SOUND[0][1])
RNG = np.random.default_rng(39)
UNEQUAL_ROWS = [(A[:rows], b[:rows]) for rows, (A, b) in zip([1, 4, 400], data(3, rows=400), strict=True)]
HARD: dict[str, tuple[list[Objective], ConvexSet]] = {
    "one agent's data are a thousand times larger": (
        fits_of([(1e3 * SOUND[0][0], 1e3 * SOUND[0][1]), *SOUND[1:]], BALL),
        BALL,
    ),
    "one agent's matrix is a thousand times larger": (
        fits_of([(1e3 * SOUND[0][0], SOUND[0][1]), *SOUND[1:]], BALL),
        BALL,
    ),
    "all agents have the same data": (fits_of([SOUND[0]] * 3, BALL), BALL),
    "one agent's matrix is zero": (fits_of([ZERO, *SOUND[1:]], BALL), BALL),
    "one agent's matrix is zero, over an ℓ₂ ball": (
        fits_of([*SOUND[1:], ZERO], L2Ball(6)),
        L2Ball(6),
    ),
    "one agent's matrix is zero, over matrices": (
        fits_of([SOUND[0], ZERO, SOUND[2]], dcgs.NuclearNormBall((2, 3))),
        dcgs.NuclearNormBall((2, 3)),
    ),
    "one agent is content at the start, over groups": (
        fits_of([(SOUND[0][0], np.zeros(8)), *SOUND[1:]], dcgs.GroupL1Ball(6, [[3, 0], [1], [4, 2, 5]])),
        dcgs.GroupL1Ball(6, [[3, 0], [1], [4, 2, 5]]),
    ),
    "agents have 1, 4 and 400 rows": (fits_of(UNEQUAL_ROWS, BALL), BALL),
    "the set is tiny": (fits_of(SOUND, dcgs.L1Ball(6, 1e-6)), dcgs.L1Ball(6, 1e-6)),
    "the set is huge": (fits_of(SOUND, dcgs.L1Ball(6, 1e3)), dcgs.L1Ball(6, 1e3)),
    "every agent knows one class": (
        [Logistic(A, np.full(8, label)) for (A, _), label in zip(SOUND, [1.0, -1.0, 1.0], strict=True)],
        BALL,
    ),
    "a Huber loss is straight at the start": (
        [Objective(dcgs.HuberLoss(b, delta=1e-2), dcgs.matrix_map(A)) for A, b in SOUND],
        BALL,
    ),
    "ℓ₂ ball": (fits_of(SOUND, L2Ball(6)), L2Ball(6)),
    "ℓ₂ ball, by cg": (
        [Logistic(A, np.sign(b)) for A, b in SOUND],
        L2Ball(6),
    ),
    "box": (fits_of(SOUND, dcgs.Box(-np.ones(6), np.ones(6))), dcgs.Box(-np.ones(6), np.ones(6))),
    "permutations": (
        fits_of(data(3, d=9), dcgs.BirkhoffPolytope(3)),
        dcgs.BirkhoffPolytope(3),
    ),
    "nuclear-norm ball": (
        fits_of(SOUND, dcgs.NuclearNormBall((2, 3), 0.8)),
        dcgs.NuclearNormBall((2, 3), 0.8),
    ),
    "groups": (
        fits_of(SOUND, dcgs.GroupL1Ball(6, [[3, 0], [1], [4, 2, 5]])),
        dcgs.GroupL1Ball(6, [[3, 0], [1], [4, 2, 5]]),
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", HARD)
def test_a_hard_case_ends_with_a_model_that_is_certified(case: str, form: Form) -> None:
    objectives, X = HARD[case]
    method = FastDCGS(form=form)
    # Oracle calls are limited so that an inner solve that never ends is a status and no hang.
    result = dcgs.minimize(objectives, X, PATH, method, gap=GAP, iterations=3000, lmo_calls=30_000, every=0)
    assert_certified(result, objectives, X)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("corner", range(3))
def test_a_vertex_is_a_start_like_any_other(corner: int, form: Form) -> None:
    objectives, x0 = fits_of(SOUND, BALL), 2.0 * np.eye(6)[corner]
    method = FastDCGS(form=form)
    result = dcgs.minimize(objectives, BALL, PATH, method, gap=GAP, x0=x0, iterations=3000, every=0)
    assert_certified(result, objectives, BALL)
    # What was asked for is relative to where the run began.
    assert certify(objectives, BALL, result.x)[1] <= GAP * certify(objectives, BALL, x0)[1]


def test_a_long_path_of_agents_ends_with_a_model_that_is_certified() -> None:
    X = dcgs.L1Ball(20, radius=2.0)
    objectives = fits_of(data(30, rows=4, d=20), X)
    result = dcgs.minimize(objectives, X, nx.path_graph(30), gap=GAP, rounds=3000, every=0)
    assert_certified(result, objectives, X)


@pytest.mark.parametrize("scale", [1e-60, 1e-9, 1e9, 1e20])
def test_the_scale_of_the_data_does_not_matter(scale: float) -> None:
    rng = np.random.default_rng(0)
    data = [(rng.standard_normal((8, 6)), rng.standard_normal(8)) for _ in range(4)]
    objectives = [LeastSquares(scale * A, scale * b) for A, b in data]
    result = dcgs.minimize(objectives, dcgs.L1Ball(6), nx.path_graph(4), gap=1e-2, lmo_calls=2000, every=0)
    assert result.status is Status.AGREED
