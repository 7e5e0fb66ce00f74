"""The root's data as the model of all data: the steps are those of the transcription, and bounds are true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any, cast

import networkx as nx
import numpy as np
import pytest

import dcgs
import stacked
from dcgs import FastDCGS, L1Ball, L2Ball, LeastSquares, Logistic, Objective
from dcgs.counting import CountedOracle
from dcgs.datasets import lasso_synthetic
from dcgs.facts import SizeFacts
from dcgs.link import LINKS, Link
from dcgs.methods.fast import sums_root
from dcgs.methods.fast.fast_dcgs import Form, expected_rounds, forms_by_rounds
from dcgs.network import as_network
from dcgs.run.distributed import facts_of
from problems import Array, Fits

RADIUS = 0.5
ROOT = FastDCGS(form="root", inner="projected")


def fits_of(seed: int, rows: int, scale: float) -> Fits:
    """Return four agents with so many rows of six columns; the data of the root are this much larger."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((4, rows, 6)) * np.array([3.0, 1.0, 1.0, 1.0, 0.3, 0.1])
    A[0] *= scale
    return Fits(A, np.stack([Ai @ np.full(6, 0.3) + rng.standard_normal(rows) for Ai in A]))


def points_of(fits: Fits, X: dcgs.ConvexSet, graph: nx.Graph, iterations: int) -> list[Array]:
    found: list[Array] = []

    def look(snapshot: dcgs.Snapshot) -> None:
        found.append(np.array(snapshot.agents[-1]))

    objectives = [LeastSquares(Ai, bi) for Ai, bi in zip(fits.A, fits.b, strict=True)]
    dcgs.minimize(objectives, X, graph, ROOT, iterations=iterations, callback=look)
    return found[1:]


# (seed, rows, scale of the root's data, iterations), and what happens. In the last one a step that is undone
# shows that the root's data explain little.
CASES: list[tuple[int, int, float, int, set[str]]] = [
    (0, 8, 1.0, 7, {"first", "shorter", "counts", "repeat", "plain"}),
    (0, 2, 0.1, 7, {"first", "repeat", "plain", "plain, gradient", "shorter"}),
    (3, 8, 1.0, 7, {"first", "counts", "shorter", "back", "plain"}),
    (1, 1, 0.02, 7, {"first", "counts", "shorter", "shorter, gradient", "repeat", "plain"}),
    (5, 2, 3.0, 7, {"first", "counts", "shorter", "back", "plain"}),
    (61, 6, 0.3, 11, {"first", "counts", "plain", "back", "shorter"}),
]


@pytest.mark.parametrize(("seed", "rows", "scale", "iterations", "events"), CASES)
def test_the_steps_are_those_of_the_transcription(
    seed: int, rows: int, scale: float, iterations: int, events: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums_root, "_PRECISION", 1e-9)
    fits = fits_of(seed, rows, scale)
    reference = list(islice(stacked.root_steps(fits.A, fits.b, 0, RADIUS, np.zeros(6)), iterations))
    assert {step.event for step in reference} == events
    found = points_of(fits, L2Ball(6, RADIUS), nx.star_graph(3), iterations)
    # Solves are right to 1e-9 of a step, of which there are few.
    np.testing.assert_allclose(found, [step.x for step in reference], rtol=0.0, atol=1e-7 * RADIUS)


def sums_to(form: Any, objectives: list[Objective], X: dcgs.ConvexSet) -> int:
    """Return the sums until the agents have certified a gap of 1e-3 on a star, two rounds each."""
    method = FastDCGS(form=form)
    result = dcgs.minimize(objectives, X, nx.star_graph(len(objectives) - 1), method, gap=1e-3, every=None)
    assert result.status is dcgs.Status.AGREED
    return result.rounds // 2


def ill_conditioned(agents: int = 5, rows: int = 300, d: int = 40) -> list[Objective]:
    rng = np.random.default_rng(11)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    A = rng.standard_normal((agents, rows, d)) * np.logspace(0, -2, d) @ turn.T
    z = A @ rng.standard_normal(d)
    labels = np.where(z / z.std() + 0.5 * rng.standard_normal(z.shape) > 0.0, 1.0, -1.0)
    return [Logistic(Ai, bi) for Ai, bi in zip(A, labels, strict=True)]


def test_on_ill_conditioned_data_it_needs_a_fifth_of_the_sums_of_gradients() -> None:
    objectives, X = ill_conditioned(), L1Ball(40, 30.0)
    assert 5 * sums_to("root", objectives, X) <= sums_to("sums", objectives, X)


def test_where_the_root_has_no_data_to_go_by_it_needs_no_more_sums_than_gradients_by_a_fourth() -> None:
    data = lasso_synthetic(100, 500, 5, noise=1.0, seed=0)
    objectives = [LeastSquares(data.A[rows], data.b[rows]) for rows in np.array_split(np.arange(100), 10)]
    X = L1Ball(500, 1.25 * float(np.abs(data.truth).sum()))
    assert sums_to("root", objectives, X) <= 1.25 * sums_to("sums", objectives, X)


@pytest.mark.parametrize("inner", ["auto", "oracle"])
def test_a_root_without_any_curvature_takes_the_steps_of_gradients(inner: Any) -> None:
    """Its rows are zero."""
    fits = fits_of(0, 3, 0.0)
    objectives, X = [LeastSquares(Ai, bi) for Ai, bi in zip(fits.A, fits.b, strict=True)], L1Ball(6, 0.5)
    answers = [
        dcgs.minimize(objectives, X, nx.star_graph(3), FastDCGS(form=form, inner=inner), iterations=6).x
        for form in ("root", "sums")
    ]
    np.testing.assert_array_equal(*answers)


@pytest.mark.parametrize("secure", [False, "unmasked"])
def test_the_root_of_a_complete_graph_is_the_agent_whose_data_are_most_like_all_data(secure: Any) -> None:
    """One agent has few rows, one other data; where sums are masked nobody knows, and the root is agent 0."""
    A = np.random.default_rng(4).standard_normal((5, 60, 20)) * np.geomspace(1.0, 0.05, 20)
    parts = [A[0, :4], 0.1 * A[1], A[2], A[3, :40], A[4, :30]]
    objectives = [Logistic(part, np.where(part @ np.ones(20) > 0.1, 1.0, -1.0)) for part in parts]
    root = 2 if secure is False else 0
    star = nx.Graph([(root, i) for i in range(5) if i != root])
    star.add_nodes_from(range(5))
    complete, other = (
        dcgs.minimize(objectives, L1Ball(20, 3.0), graph, ROOT, rounds=20, every=None, secure=secure)
        for graph in (nx.complete_graph(5), star)
    )
    np.testing.assert_array_equal(complete.x, other.x)


def uneven() -> list[Objective]:
    rng = np.random.default_rng(3)
    A = rng.standard_normal((5, 60, 40)) * 10.0 ** rng.uniform(-4.0, 0.0, 40)
    return [LeastSquares(Ai, Ai @ np.full(40, 3.0) + rng.standard_normal(60)) for Ai in A]


@pytest.mark.parametrize("form", ["root", "sums"])
def test_columns_that_differ_by_ten_thousand_need_few_sums(form: Any) -> None:
    assert sums_to(form, uneven(), L1Ball(40, 100.0)) <= 12


# The table of forms.


def agent_of(graph: nx.Graph, unknowns: int, sizes: SizeFacts, **facts: Any) -> Any:
    """Return what the choice reads of an agent."""
    network, X = as_network(graph), L1Ball(unknowns)
    known = facts_of([LeastSquares(np.eye(1, unknowns), [1.0])] * len(graph), X, network, smoothness=False)
    return dcgs.methods.Agent(
        index=0,
        f=LeastSquares(np.eye(1, unknowns), [1.0]),
        X=X,
        lmo=CountedOracle(X),
        x0=X.start(),
        degrees={},
        facts=replace(known, sizes=sizes, **facts),
        iterations=1,
        rng=np.random.default_rng(0),
        observe=lambda *args: None,
        tree=network.tree[0],
    )


ROWS = 100
SQUARES, CURVED = SizeFacts(fewest_rows=ROWS), SizeFacts(fewest_rows=ROWS, all_quadratic=False)
FLAT, STEEP = replace(CURVED, curved=0.005), replace(CURVED, spread=6.0)
STAR, COMPLETE, CYCLE, PATH = nx.star_graph(4), nx.complete_graph(5), nx.cycle_graph(10), nx.path_graph(40)
# Short of rows: the root's data say little.
SCARCE = replace(SQUARES, fewest_rows=4)
TABLE: list[tuple[nx.Graph, int, SizeFacts, str]] = [
    (STAR, 20, SQUARES, "newton"),  # two sums are enough
    (STAR, 300, SCARCE, "newton"),
    (STAR, 501, replace(STEEP, fewest_rows=5000), "root"),
    (STAR, 20, STEEP, "newton"),
    (STAR, 20, FLAT, "root"),
    (STAR, 20, replace(FLAT, alike=False), "newton"),
    (COMPLETE, 100, STEEP, "newton"),
    (COMPLETE, 2000, SCARCE, "sums"),
    (CYCLE, 20, CURVED, "edges"),
    (CYCLE, 20, replace(FLAT, curved=0.08), "edges"),
    (CYCLE, 20, replace(FLAT, curved=0.0005), "root"),
    (CYCLE, 100, STEEP, "newton"),
    (CYCLE, 400, replace(STEEP, fewest_rows=5000), "root"),
    (CYCLE, 64, SCARCE, "newton"),
    (CYCLE, 2000, SCARCE, "edges"),
    (PATH, 20, CURVED, "edges"),
    (PATH, 2000, SCARCE, "edges"),
    (nx.empty_graph(1), 1000, CURVED, "root"),
]


def chosen_form(agent: dcgs.methods.Agent, link: Link | None = None) -> Form:
    return next(iter(forms_by_rounds(agent, link, may_send_hessians=True)))


@pytest.mark.parametrize(("graph", "unknowns", "sizes", "form"), TABLE)
def test_the_form_is_that_of_the_table(graph: nx.Graph, unknowns: int, sizes: SizeFacts, form: str) -> None:
    assert chosen_form(agent_of(graph, unknowns, sizes)) == form


def test_an_inner_solver_of_one_s_own_sends_no_hessians() -> None:
    assert "newton" in expected_rounds(agent_of(STAR, 20, SQUARES), may_send_hessians=True)
    assert "newton" not in expected_rounds(agent_of(STAR, 20, SQUARES), may_send_hessians=False)


def test_masked_sums_are_never_left_for_edges() -> None:
    agent = replace(agent_of(PATH, 2000, SCARCE), secure=cast(Any, object()))
    assert chosen_form(agent) in ("sums", "root")


def test_long_hessians_count_as_the_rounds_that_the_link_needs_for_them() -> None:
    agent = agent_of(CYCLE, 300, replace(SCARCE, most_neighbors=2))
    rounds = [expected_rounds(replace(agent, link=link), True)["newton"] for link in (None, LINKS["lan"])]
    # 364 kB take 29 ms at 100 Mbit/s, where a round takes 20; 2.9 ms over the LAN, where one takes 0.2.
    waiting = 364e3 / 12.5e6 / 0.02, 364e3 / 125e6 / 0.0002
    np.testing.assert_allclose(rounds, [20 + 5 * each for each in waiting], rtol=0.01)


def test_sparse_columns_and_a_fast_link_take_sums_along_a_low_tree() -> None:
    for graph, form in ((CYCLE, "sums"), (PATH, "edges")):
        assert chosen_form(agent_of(graph, 100_000, SQUARES, sparse_columns=True)) == form
    sizes = replace(SCARCE, most_neighbors=2, most_entries=80_000)
    assert chosen_form(agent_of(CYCLE, 2000, sizes), LINKS["lan"]) == "sums"
    assert chosen_form(agent_of(CYCLE, 2000, sizes), Link(10e6, 20e-3)) == "edges"


def sizes_of(objectives: list[Objective], X: dcgs.ConvexSet) -> SizeFacts:
    return facts_of(objectives, X, as_network(nx.star_graph(len(objectives) - 1)), False, sizes=True).sizes


def test_sizes_say_what_data_are_like() -> None:
    rng = np.random.default_rng(0)
    make: Callable[..., Array] = lambda *shape: rng.standard_normal(shape)  # noqa: E731
    X = L1Ball(10)
    even = sizes_of([LeastSquares(make(40, 10), make(40)) for _ in range(3)], X)
    assert (even.alike, even.fewest_rows) == (True, 40)
    assert 0.5 < even.spread < 1.5  # 1 for random numbers, in the mean of many
    assert even.curved == 1.0
    assert sizes_of([LeastSquares(make(n, 10), make(n)) for n in (50, 39)], X).fewest_rows == 39
    assert not sizes_of([LeastSquares(s * make(40, 10), make(40)) for s in (1.0, 4.0)], X).alike
    assert sizes_of([LeastSquares(make(n, 10), make(n)) for n in (4, 400)], X).alike
    assert sizes_of(ill_conditioned(), L1Ball(40)).spread > 3.0
    huber = [Objective(dcgs.HuberLoss(100.0 * make(40), 1.0), dcgs.matrix_map(make(40, 10)))]
    assert sizes_of([*huber, *huber], X).curved < 0.03
