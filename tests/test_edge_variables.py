"""Both forms of edge variables equal their transcription, and each other if nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import pytest

import stacked
from dcgs import LeastSquares
from dcgs.methods.fast.edge_variables import EdgeVariables, LossyEdgeVariables, ReliableEdgeVariables
from dcgs.methods.fast.step_size import StepSize
from problems import GRAPHS, Array, Fits, laplacian_matrix, random_fits

SIZE = 4


def weights_of(name: str) -> Array:
    """Return some weights ρᵢⱼ of the edges, equal at both ends."""
    L = laplacian_matrix(GRAPHS[name])
    return stacked.edge_weights(L, np.random.default_rng(5).uniform(0.5, 3.0, len(L)))


def steps_of(rho: Array, h: Array | None = None) -> list[StepSize]:
    """Return the step sizes of agents with these weights, which do not change; η is their sum."""

    def step(i: int) -> StepSize:
        weights = {j: float(rho[i, j]) for j in range(len(rho)) if rho[i, j] > 0.0}
        eta = float(rho[i].sum())
        return StepSize(eta, eta, 1.0, eta, weights, dict(weights), 1.0, True, 1.0, preconditioner=h)

    return [step(i) for i in range(len(rho))]


def minimizer(fits: Fits) -> stacked.Answer:
    """Return what minimizes φ without constraints."""

    def answer(i: int, w: Array, eta: Array, center: Array) -> Array:
        H = 2.0 * fits.A[i].T @ fits.A[i] + np.diag(eta)
        return np.asarray(np.linalg.solve(H, 2.0 * fits.A[i].T @ fits.b[i] - w + eta * center))

    return answer


def points(edges: list[EdgeVariables], steps: list[StepSize], fits: Fits, omega: float) -> Iterator[Array]:
    """Yield all agents' points, with exact inner solves and messages that all arrive."""
    answer, f = minimizer(fits), LeastSquares(np.eye(SIZE), np.zeros(SIZE))
    while True:
        phis = [own.subproblem(f, step) for own, step in zip(edges, steps, strict=True)]
        h = [np.ones(SIZE) if phi.preconditioner is None else phi.preconditioner for phi in phis]
        x = np.stack([answer(i, phi.w, phi.eta * h[i], phi.center) for i, phi in enumerate(phis)])
        yield x
        sent = [own.outgoing(x[i], steps[i]) for i, own in enumerate(edges)]
        for i, own in enumerate(edges):
            own.update(x[i], steps[i], {j: sent[j][i] for j in sorted(steps[i].weights)}, omega)


X0 = np.array([0.3, -0.1, 0.0, 0.2])
FORMS: dict[str, Callable[[StepSize], EdgeVariables]] = {
    "one center": lambda step: ReliableEdgeVariables(X0, np.zeros(SIZE)),
    "one vector for each neighbor": lambda step: LossyEdgeVariables.at(X0, step),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("relaxation", [1.0, 1.85])
@pytest.mark.parametrize("name", ["one edge", "path", "complete", "random of 7"])
def test_both_forms_equal_the_transcription_with_one_vector_for_each_neighbor(
    name: str, relaxation: float, form: str
) -> None:
    rho = weights_of(name)
    fits, steps = random_fits(len(rho), rows=3, columns=SIZE, seed=7), steps_of(rho)
    found = points([FORMS[form](step) for step in steps], steps, fits, relaxation)
    expected = stacked.consensus_with_copies(rho, X0, relaxation, minimizer(fits))
    # Systems of condition below 100 are solved forty times in another order.
    np.testing.assert_allclose(list(islice(found, 40)), list(islice(expected, 40)), rtol=0.0, atol=1e-11)


def test_both_forms_are_one_iteration_with_a_preconditioner_too() -> None:
    rho, h = weights_of("random of 7"), np.array([0.1, 0.5, 1.4, 2.0])
    fits, steps = random_fits(7, rows=3, columns=SIZE, seed=8), steps_of(rho, h)
    zeros = [
        LossyEdgeVariables(
            {j: w * h * X0 for j, w in step.weights.items()}, dict(step.weights), is_preconditioned=True
        )
        for step in steps
    ]
    copies = points(list(zeros), steps, fits, 1.85)
    centers = points([ReliableEdgeVariables(X0, np.zeros(SIZE)) for _ in steps], steps, fits, 1.85)
    np.testing.assert_allclose(list(islice(copies, 40)), list(islice(centers, 40)), rtol=0.0, atol=1e-11)


@pytest.mark.parametrize("loss", [0.3, 0.7])
def test_with_lost_messages_agents_reach_the_same_point(loss: float) -> None:
    """The minimizer of the sum of all losses, without constraints: a linear system."""
    rho, rng = weights_of("random of 7"), np.random.default_rng(9)
    fits, steps = random_fits(7, rows=6, columns=SIZE, seed=9), steps_of(rho)
    edges, answer = [LossyEdgeVariables.at(X0, step) for step in steps], minimizer(fits)
    f = LeastSquares(np.eye(SIZE), np.zeros(SIZE))
    for _ in range(2000):
        phis = [own.subproblem(f, step) for own, step in zip(edges, steps, strict=True)]
        x = np.stack([answer(i, phi.w, np.full(SIZE, phi.eta), phi.center) for i, phi in enumerate(phis)])
        sent = [own.outgoing(x[i], steps[i]) for i, own in enumerate(edges)]
        for i, own in enumerate(edges):
            arrived = {j: sent[j][i] for j in sorted(steps[i].weights) if rng.random() >= loss}
            own.update(x[i], steps[i], arrived, 1.85)
    A, b = np.vstack(list(fits.A)), np.concatenate(list(fits.b))
    np.testing.assert_allclose(x, np.tile(np.linalg.lstsq(A, b, rcond=None)[0], (7, 1)), rtol=0.0, atol=1e-8)


def test_a_change_of_weights_keeps_the_dual_variables() -> None:
    rho = weights_of("path")
    steps, rng = steps_of(rho), np.random.default_rng(10)
    edges, x = LossyEdgeVariables.at(X0, steps[1]), rng.standard_normal(SIZE)
    for j in edges.z:
        edges.z[j] = edges.z[j] + rng.standard_normal(SIZE)
    before = {j: edges.weights[j] * x - z for j, z in edges.z.items()}
    for j in steps[1].weights:
        steps[1].weights[j] *= 3.0
    edges.outgoing(x, steps[1])
    for j, z in edges.z.items():
        # A sum of three numbers of size 10.
        np.testing.assert_allclose(steps[1].weights[j] * x - z, before[j], rtol=0.0, atol=1e-14)


def test_the_halves_of_the_residual_are_what_their_formulas_say() -> None:
    rho = weights_of("one edge")
    (step, _), x, theirs = steps_of(rho), np.array([1.0, 2.0, 0.0, 0.0]), np.array([0.0, 2.0, 1.0, 0.0])
    edges = ReliableEdgeVariables(X0, np.zeros(SIZE))
    primal, dual = edges.update(x, step, {1: theirs}, 1.0)
    v = step.weights[1] * (x - theirs)
    ahead = x - v / (2.0 * step.eta) - X0
    assert dual == pytest.approx(0.5 * step.weights[1] * 2.0, rel=1e-14)
    assert primal == pytest.approx(step.eta * float(ahead @ ahead), rel=1e-14)
    np.testing.assert_allclose(edges.w, 0.5 * v, rtol=1e-15)
    np.testing.assert_allclose(edges.c, X0 + ahead, rtol=1e-15)
