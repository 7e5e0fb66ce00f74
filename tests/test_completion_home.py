"""Matrix completion that begins with rows solved at home: ridge regressions, gradients, the switch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import dcgs
from dcgs import Checkpoint, Lockstep, MatrixCompletion, NuclearNormBall, Objective, Status
from dcgs.link import Link
from dcgs.methods.certificate import Bounds, GapTarget
from dcgs.methods.fast import completion_gap, completion_home, completion_home_root
from dcgs.methods.fast.completion import LocalRatings
from dcgs.methods.fast.completion_gap import GapEstimate, GapSearch, ModelValue, block_type
from dcgs.methods.fast.completion_home import RowsAtHome, RowSolver
from dcgs.methods.fast.completion_home_root import HomeRoot
from dcgs.network import as_network
from problems import Array
from reference import optimum
from test_completion import COLUMNS, ROWS, _root_agent, agents, dense_pairs, wolfe_gap

SHAPE, AGENTS = (210, 140), 5


def ratings(seed: int = 0, noise: float = 0.3) -> list[Objective]:
    """Return five agents with rows of their own, of lengths 0 to 60, some entries of which occur twice."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((SHAPE[0], 3)) @ rng.standard_normal((3, SHAPE[1]))
    parts = []
    for own in np.split(np.arange(SHAPE[0]), AGENTS):
        rows = np.concatenate([np.full(rng.integers(0, 60), i) for i in own])
        cols = rng.integers(0, SHAPE[1], len(rows))
        values = truth[rows, cols] + noise * rng.standard_normal(len(rows))
        parts.append(MatrixCompletion(rows, cols, values, SHAPE))
    return parts


def recorded(monkeypatch: pytest.MonkeyPatch, objectives: list[Objective]) -> Callable[..., Any]:
    """Return a function that runs and returns the result, the iterations at home, and types of messages."""
    at_home: list[int] = []
    step = RowsAtHome.step

    def counted(self: RowsAtHome, answer: Any, is_back: bool) -> None:
        if self.steps is None and self.agent.index == 0:
            at_home.append(1)
        step(self, answer, is_back)

    monkeypatch.setattr(RowsAtHome, "step", counted)

    def run(radius: float, **rules: Any) -> tuple[dcgs.Result, int, set[str]]:
        at_home.clear()
        kinds: set[str] = set()
        runtime = Lockstep(on_message=lambda *m: kinds.update(array.dtype.name for array in m[3]))
        X = NuclearNormBall(SHAPE, radius)
        result = dcgs.minimize(objectives, X, nx.cycle_graph(AGENTS), runtime=runtime, **rules)
        return result, len(at_home), kinds

    return run


@pytest.mark.parametrize("radius", [60.0, 300.0, 3e4])
@pytest.mark.parametrize(("gap", "kind"), [(1e-3, "float32"), (1e-6, "float64")])
@pytest.mark.parametrize("whole", [False, True], ids=["blocks", "the whole Gram matrix"])
def test_the_certified_gap_is_above_the_error(
    radius: float, gap: float, kind: str, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion_gap.GapSearch, "_is_whole", lambda *_: whole)
    objectives = ratings()
    result, at_home, kinds = recorded(monkeypatch, objectives)(radius, gap=gap, iterations=800, every=0)
    assert result.status is Status.AGREED
    assert at_home >= 1  # the sum of the first block; with the largest radius no more
    assert ("float32" in kinds) == (kind == "float32")
    x, better = np.asarray(result.x), np.asarray(known_optimum(radius))
    first, last, least = (sum(f.value(point) for f in objectives) for point in (np.zeros(SHAPE), x, better))
    assert np.linalg.norm(x, "nuc") <= radius * (1.0 + 1e-9)
    # f* is between these two. Where losses are nearly zero, that alone is a bound.
    below = max(0.0, least - wolfe_gap(objectives, radius, better))
    assert last - below <= gap * (first - last) * (1.0 + 1e-9) + (least - below)
    assert last - least <= result.certificates["gap"][-1] * (1.0 + 1e-9) + 1e-9 * first
    assert least - below <= 1e-6 * first


@cache
def known_optimum(radius: float) -> dcgs.LowRank:
    """Return a model that is nearer to the optimum than all others here."""
    X, graph = NuclearNormBall(SHAPE, radius), nx.path_graph(AGENTS)
    x = dcgs.minimize(ratings(), X, graph, gap=1e-7, iterations=2000, every=0).x
    assert isinstance(x, dcgs.LowRank)
    return x


@pytest.mark.parametrize("radius", [2.0, 12.0, 1e3])
def test_small_matrices_have_the_optimum_of_a_dense_reference(
    radius: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion_home, "SMALLEST", 1)
    objectives, X = agents(True), NuclearNormBall((ROWS, COLUMNS), radius)
    result = dcgs.minimize(objectives, X, nx.path_graph(4), gap=1e-6, iterations=2000, every=0)
    assert result.status is Status.AGREED
    _, least = optimum(dense_pairs(objectives), X)
    value = sum(f.value(np.asarray(result.x)) for f in objectives)
    first = sum(f.value(np.zeros((ROWS, COLUMNS))) for f in objectives)
    # As in test_completion.py.
    assert -1e-7 * first <= value - least <= 1.1e-6 * first


def test_fewer_sums_are_needed_than_by_steps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the bytes are those of float64, which both have here."""
    objectives = ratings()
    run = recorded(monkeypatch, objectives)
    monkeypatch.setattr("dcgs.methods.fast.completion_gap._PRECISE", 1.0)
    with_rows, at_home, _ = run(60.0, gap=1e-3, every=0)
    monkeypatch.setattr(completion_home, "SMALLEST", 1000)
    steps, none, _ = run(60.0, gap=1e-3, every=0)
    assert (at_home > 3, none) == (True, 0)
    assert with_rows.rounds < steps.rounds


def test_no_message_has_a_dimension_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    sides: set[int] = set()
    runtime = Lockstep(on_message=lambda *m: sides.update(side for array in m[3] for side in array.shape))
    X = NuclearNormBall(SHAPE, 60.0)
    result = dcgs.minimize(ratings(), X, nx.path_graph(AGENTS), gap=1e-3, runtime=runtime, every=0)
    assert result.status is Status.AGREED
    assert SHAPE[1] in sides
    assert {SHAPE[0], SHAPE[0] // AGENTS}.isdisjoint(sides)


@pytest.mark.parametrize("done", [1, 4, 25])
def test_a_run_that_was_stopped_goes_on_to_the_bit(done: int, tmp_path: Path) -> None:
    objectives, X, graph = ratings(), NuclearNormBall(SHAPE, 60.0), nx.star_graph(AGENTS - 1)
    whole = dcgs.minimize(objectives, X, graph, gap=1e-5, iterations=40)
    dcgs.minimize(objectives, X, graph, gap=1e-5, iterations=done, checkpoint=Checkpoint(tmp_path, every=1))
    resumed = dcgs.minimize(
        objectives, X, graph, gap=1e-5, iterations=40, checkpoint=Checkpoint(tmp_path, resume=True)
    )
    assert np.asarray(resumed.x).tobytes() == np.asarray(whole.x).tobytes()
    assert (resumed.rounds, resumed.history.mean_loss.tolist()) == (
        whole.rounds,
        whole.history.mean_loss.tolist(),
    )


@pytest.mark.parametrize("radius", [60.0, 400.0])
def test_every_iterate_is_in_the_ball_and_all_agents_have_one_model(radius: float) -> None:
    for iterations in range(1, 12):
        X, graph = NuclearNormBall(SHAPE, radius), nx.path_graph(AGENTS)
        result = dcgs.minimize(ratings(), X, graph, gap=1e-3, iterations=iterations, every=0)
        assert result.status is not Status.OUTSIDE  # such a model is moved into the ball
        assert np.linalg.norm(np.asarray(result.x), "nuc") <= radius * (1.0 + 1e-9)
        for model in result.agents[1:]:
            np.testing.assert_array_equal(np.asarray(model), np.asarray(result.agents[0]))


# The pieces.


def local(f: Objective) -> tuple[RowSolver, LocalRatings]:
    agent: Any = type("Agent", (), {"f": f, "X": NuclearNormBall(SHAPE, 60.0)})()
    mine = LocalRatings(agent, all_rows=False)
    return RowSolver(agent, mine), mine


def objective(f: Objective, mine: LocalRatings, U: Array, V: Array, mu: float) -> float:
    return f.loss.value(mine.entries.image(U, V)) + 0.5 * mu * float(np.sum(U**2) + np.sum(V**2))


@pytest.mark.parametrize("rank", [4, 30, 90])
@pytest.mark.parametrize("weighted", [False, True], ids=["all weights 1", "weights"])
def test_no_change_of_a_row_lowers_the_objective(rank: int, weighted: bool) -> None:
    """With 4 columns rows are longer than that, with 90 shorter."""
    rng = np.random.default_rng(3)
    (f, *_), V, mu = ratings(), rng.standard_normal((SHAPE[1], rank)), 0.7
    if weighted:
        assert isinstance(f.loss, dcgs.SquaredLoss)
        f = Objective(dcgs.WeightedLoss(f.loss, rng.uniform(0.2, 3.0, f.map.size)), f.map)
    solver, mine = local(f)
    U, image = solver.solved(V, mu)
    np.testing.assert_allclose(image, mine.entries.image(U, V))
    least = objective(f, mine, U, V, mu)
    for _ in range(10):
        change = rng.standard_normal(U.shape)
        slope = objective(f, mine, U + 1e-5 * change, V, mu) - objective(f, mine, U - 1e-5 * change, V, mu)
        assert abs(slope / 2e-5) <= 1e-5 * least  # of a quadratic function: rounding alone


def test_the_gradient_for_v_is_that_of_the_least_objective_over_u() -> None:
    """Variable projection: the change of the best U does not count."""
    rng = np.random.default_rng(4)
    f, *_ = ratings()
    V, mu, h = rng.standard_normal((SHAPE[1], 5)), 2.0, 1e-5
    solver, mine = local(f)

    def least(V: Array) -> float:
        return objective(f, mine, solver.solved(V, mu)[0], V, mu)

    U, image = solver.solved(V, mu)
    G, _ = mine.gradient(image)
    grad, change = G.T @ U + mu * V, rng.standard_normal(V.shape)
    difference = (least(V + h * change) - least(V - h * change)) / (2.0 * h)
    np.testing.assert_allclose(np.sum(grad * change), difference, rtol=1e-6)
    np.testing.assert_allclose(G @ V, -mu * U, atol=1e-9)  # what the estimate of the gap uses


def test_the_preconditioner_is_the_second_derivative_where_all_entries_are_observed() -> None:
    """At an optimum, for steps that turn or lengthen columns of V, and for those toward other vectors."""
    rng, (rows, columns), rank = np.random.default_rng(5), (40, 25), 6
    left, m, right = np.linalg.svd(rng.standard_normal((rows, columns)), full_matrices=False)
    m = np.linspace(9.0, 1.0, columns)
    at, of = np.divmod(np.arange(rows * columns), columns)
    f = MatrixCompletion(at, of, ((left * m) @ right)[at, of], (rows, columns))
    mu = m[rank - 1] + m[rank]  # f has second derivatives of 2, and the singular values of x are m − μ/2
    sigma, V = m[:rank] - 0.5 * mu, right[:rank].T * np.sqrt(m[:rank] - 0.5 * mu)
    agent: Any = type("Agent", (), {"f": f, "X": NuclearNormBall((rows, columns), 1.0)})()
    mine = LocalRatings(agent, all_rows=False)
    solver = RowSolver(agent, mine)

    def grad(V: Array) -> Array:
        U, image = solver.solved(V, mu)
        return np.asarray(mine.gradient(image)[0].T @ U + mu * V)

    np.testing.assert_allclose(grad(V), 0.0, atol=1e-9)
    half, (_, _, squares, entries) = solver.of_columns, solver.numbers(np.zeros(f.map.size))
    state, beside = completion_home_root.HomeRoot(half, squares / entries**2), right[rank : rank + 4].T
    here: Any = type("Here", (), {})()
    here.svd, here.vectors, here.spread = np.linalg.svd(V, full_matrices=False), beside, 0.0
    here.sigma = 2.0 * m[rank : rank + 4]
    metric = completion_home_root._Metric.of(state, here, mu)
    steps = []
    for j in range(rank):
        for k in range(j + 1):
            step = np.zeros_like(V)
            step[:, k] += np.sqrt(sigma[k]) * right[j]
            step[:, j] += np.sqrt(sigma[j]) * right[k]
            steps.append(step)
        steps += [np.outer(w, np.eye(rank)[j]) for w in beside.T]
    for step in steps:
        change = (grad(V + 1e-5 * step) - grad(V - 1e-5 * step)) / 2e-5
        np.testing.assert_allclose(metric.solve(change), step, atol=1e-6)


@pytest.mark.parametrize(
    ("relative", "agents", "secure", "kind"),
    [
        (1e-3, 5, None, np.float32),
        (1e-3, 23, None, np.float32),
        (1e-3, 24, None, np.float64),
        (1e-5, 5, None, np.float64),
        (None, 5, None, np.float64),
        (1e-3, 5, object(), np.float64),
    ],
)
def test_blocks_are_short_where_rounding_is_a_small_part_of_the_gap(
    relative: float | None, agents: int, secure: Any, kind: type
) -> None:
    facts: Any = type("Facts", (), {"agents": agents})()
    agent: Any = type("Agent", (), {"facts": facts, "target": GapTarget(relative), "secure": secure})()
    assert block_type(agent) is kind


@pytest.mark.parametrize("rounding", [1.0, 1e4])
def test_the_certificate_counts_that_products_are_rounded(
    rounding: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounding is 10⁴ times larger once, so that no other error hides it."""
    monkeypatch.setattr("dcgs.methods.fast.completion_gap._ROUNDING", rounding * 2.0**-24)
    facts: Any = type("Facts", (), {"agents": 3})()
    rng = np.random.default_rng(0)
    for trial in range(20):
        parts = rng.standard_normal((3, 20, 3))
        search = GapSearch(replace(_root_agent([]), facts=facts), np.float32)
        at, bounds = ModelValue(-1e9, 0.0, 1e300, at_start=False), Bounds()
        first = search.begin(at, GapEstimate(1e-9, 0.0, 1.0), np.eye(3)[:, :1])
        assert first is not None
        B = first[1]
        products = sum((G.T @ (G @ B) for G in parts), start=np.zeros(B.shape))
        noise = rng.standard_normal(B.shape)
        top = float(np.linalg.norm(np.vstack(list(parts)), 2))
        error = 5.0 * rounding * 2.0**-24 * np.sqrt(3.0) * top**2 * noise / np.linalg.norm(noise)
        search.proceed((products + error, np.zeros(1)), bounds)
        assert search._search is not None
        found = search._search[2]
        assert top**2 <= found.bound + found.noise, trial


@pytest.mark.parametrize("rounding", [1.0, 1e4])
def test_so_does_that_of_the_whole_gram_matrix(rounding: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dcgs.methods.fast.completion_gap._ROUNDING", rounding * 2.0**-24)
    facts: Any = type("Facts", (), {"agents": 3})()
    rng = np.random.default_rng(1)
    for trial in range(20):
        search = GapSearch(replace(_root_agent([]), facts=facts), np.float32, with_one=True)
        at = ModelValue(-1e9, 0.0, 1e300, at_start=False)
        first = search.begin(at, GapEstimate(1e-9, 0.0, 1.0), np.eye(3)[:, :1])
        assert first is not None
        assert first[1].shape == (3, 0)
        assert search._search is not None
        G = rng.standard_normal((20, 3))
        A, upper = G.T @ G, np.triu_indices(3)
        noise = rng.standard_normal((3, 3))
        noise = (noise + noise.T) / np.linalg.norm(noise + noise.T)
        top = float(np.linalg.norm(G, 2)) ** 2
        error = 5.0 * rounding * 2.0**-24 * np.sqrt(top * np.trace(A)) * noise
        found = search._from_whole((A + error)[upper], search._search[2], 1e-9)
        assert top <= found.bound + found.noise, trial
        exact = completion_gap.packed_gram(sp.csr_array(G), np.float64)
        np.testing.assert_allclose(exact, A[upper])


@pytest.mark.parametrize(("with_one", "secure"), [(True, object()), (False, None)])
def test_nobody_sees_the_whole_gram_matrix_of_masked_sums_or_of_rows_that_are_shared(
    with_one: bool, secure: Any
) -> None:
    search = GapSearch(replace(_root_agent([]), secure=secure), with_one=with_one)
    at = ModelValue(-1e9, 0.0, 1e300, at_start=False)
    first = search.begin(at, GapEstimate(1e-9, 0.0, 1.0), np.eye(3)[:, :1])
    assert first is not None
    assert first[1].shape[1] > 0


@pytest.mark.parametrize(
    ("link", "columns", "is_whole"),
    [
        # By hand, H = 5 and float32: the triangle takes 5.46 MB. Blocks of 76 and 5 times 38 vectors take 3.5
        # MB up and down, and 50 rounds more: 0.28 + 1 s over 100 Mbit/s with 20 ms, the triangle 0.44 s.
        (None, 1652, True),
        # 28 + 10 ms over 1 Gbit/s with 0.2 ms, and 44 ms.
        ("1Gbit/s,0.2ms", 1652, False),
        # Of 10,000 columns the triangle takes 200 MB, 16 s.
        (None, 10_000, False),
    ],
)
def test_the_gram_matrix_is_sent_where_that_takes_less_time_and_as_soon_as_products(
    link: str | None, columns: int, is_whole: bool
) -> None:
    shape, tree = (20_000, columns), as_network(nx.cycle_graph(10)).tree
    agent = replace(
        _root_agent([]),
        X=NuclearNormBall(shape, 2.0),
        tree=next(node for node in tree if node.parent is None),
        facts=type("Facts", (), {"agents": 10})(),
        link=None if link is None else Link.parse(link),
    )
    near, at = np.eye(columns, 38), ModelValue(-1.0, 0.0, 1e300, at_start=False)

    def begun(share: float) -> Any:
        return GapSearch(agent, np.float32, with_one=True).begin(
            at, GapEstimate(share * 1e-3, 0.0, 1.0), near
        )

    assert begun(0.91) is None
    assert begun(0.89)[1].shape[1] == (0 if is_whole else 76)


def test_blocks_of_several_sums_find_top_singular_vectors_that_power_steps_do_not() -> None:
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((300, 300)))[0]
    V, squares = basis[:, :5], np.concatenate([np.full(5, 4.0), np.linspace(1.0, 0.1, 295)])
    gram = (basis * squares) @ basis.T

    def top(blocks: int) -> float:
        """Return the largest Ritz value beside V after eight products with a block of six vectors."""
        state, E = HomeRoot(np.ones(300), 1.0), np.linalg.qr(rng.standard_normal((300, 6)))[0]
        for _ in range(8):
            E = np.linalg.qr(E - V @ (V.T @ E))[0]
            state.vectors, state.images = [E, *state.vectors], [gram @ E, *state.images]
            del state.vectors[blocks:], state.images[blocks:]
            E = state.next_block(V, 6)
        E = np.linalg.qr(E)[0]
        return float(np.linalg.eigvalsh(E.T @ gram @ E)[-1])

    assert 1.0 - top(3) < 0.7 * (1.0 - top(1))


def test_masked_sums_have_the_bits_of_fixed_point() -> None:
    X, graph = NuclearNormBall(SHAPE, 60.0), nx.cycle_graph(AGENTS)
    models = []
    for secure in (True, "unmasked"):
        result = dcgs.minimize(ratings(), X, graph, gap=1e-3, every=None, secure=secure)
        assert result.status is Status.AGREED
        models.append(np.asarray(result.x).tobytes())
    assert models[0] == models[1]


def test_a_start_that_is_not_zero_is_improved() -> None:
    objectives = ratings()
    result = dcgs.minimize(
        objectives, NuclearNormBall(SHAPE, 60.0), nx.path_graph(AGENTS), iterations=3, gap=0.5
    )
    again = dcgs.minimize(
        objectives, NuclearNormBall(SHAPE, 60.0), nx.path_graph(AGENTS), iterations=3, gap=1e-9, x0=result.x
    )
    assert again.history.mean_loss[-1] <= result.history.mean_loss[-1]


def test_losses_that_are_not_quadratic_take_steps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    objectives = []
    for f in ratings():
        assert isinstance(f.loss, dcgs.SquaredLoss)
        objectives.append(Objective(dcgs.HuberLoss(f.loss.target, 0.5), f.map))
    result, at_home, _ = recorded(monkeypatch, objectives)(60.0, gap=1e-2, every=0)
    assert (result.status, at_home) == (Status.AGREED, 0)


def test_values_that_are_all_zero_are_certified_at_the_start() -> None:
    objectives = [
        MatrixCompletion(f.map.rows, f.map.cols, np.zeros(f.map.size), SHAPE)  # type: ignore[attr-defined]
        for f in ratings()
    ]
    result = dcgs.minimize(objectives, NuclearNormBall(SHAPE, 60.0), nx.path_graph(AGENTS), gap=1e-3)
    assert result.status is Status.AGREED
    assert result.x.rank == 0 or np.abs(np.asarray(result.x)).max() == 0.0


def test_ratings_that_are_fitted_before_the_radius_is_reached_are_left_to_the_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By steps, values of f near zero certify; at home μ would have to fall to zero, sum by sum."""
    monkeypatch.setattr(completion_home_root, "_MANY", 3)
    run = recorded(monkeypatch, ratings())
    result, at_home, _ = run(1200.0, gap=1e-3, iterations=200, every=0)
    assert result.status is Status.AGREED
    assert at_home == 3
    assert result.iterations > at_home


def test_an_estimate_of_the_gap_that_is_negative_by_rounding_leaves_mu_to_the_newton_step() -> None:
    agent = replace(_root_agent([]), facts=type("Facts", (), {"agents": 1})())
    root, rng = completion_home_root.Root(agent, None), np.random.default_rng(0)
    V = rng.standard_normal((3, 1))
    sums: Any = type("Sums", (), {"gram": np.eye(1), "size": 1.0})()
    for gap, moves in ((-1e-9, True), (1e-4, False)):
        here: Any = type(
            "Here", (), {"V": V, "mu": 0.5, "sums": sums, "norm": 2.0 * (1 + 1e-4), "gap": gap}
        )()
        assert (root._weight(here) != 0.5) is moves
