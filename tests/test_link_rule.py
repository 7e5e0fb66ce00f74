"""FastDCGS told the link: the rule that chooses its form, worked out by hand, and the runs that follow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import dcgs
from dcgs.facts import SizeFacts
from dcgs.link import ASSUMED, LINKS, Link, sum_pieces
from dcgs.methods import reduction
from dcgs.methods.fast.fast_dcgs import prefers_sums
from dcgs.network import as_network
from dcgs.run.distributed import facts_of

EVEN = SizeFacts(most_neighbors=2, most_entries=80_000)


@pytest.mark.parametrize(
    ("link", "sum_rounds", "unknowns", "chosen"),
    [
        # 0.2 + 0.256 + 0.48 + 0.3 ms over edges, 2.0 + 0.256 + 0.16 + 0.1 by sums: 2.04 times as long.
        ("lan", 10, 2000, True),
        # 2.8 + 0.516 ms by sums: 2.68 times as long.
        ("lan", 14, 2000, False),
        # 1 + 3.2 + 0.78 ms over edges, 10 + 3.2 + 0.26 by sums: 2.70 times as long.
        ("paper", 10, 2000, False),
        # 1 + 8 + 0.78 and 10 + 8 + 0.26: the bytes of an iteration weigh more than its rounds, 1.87 times.
        ("paper", 10, 5000, True),
        # 20 + 2.56 + 0.78 and 200 + 2.56 + 0.26: 8.7 times as long.
        ("wan", 10, 2000, False),
        # 40 + 2.82 by sums: 1.84 times as long.
        ("wan", 2, 2000, True),
    ],
)
def test_sums_are_chosen_where_an_iteration_takes_less_than_two_and_a_half_times_as_long(
    link: str, sum_rounds: int, unknowns: int, chosen: bool
) -> None:
    assert prefers_sums(LINKS[link], EVEN, sum_rounds, unknowns) is chosen


def test_passes_over_the_data_count() -> None:
    slow = Link(1e9, latency=1e-3)
    assert not prefers_sums(slow, EVEN, sum_rounds=10, unknowns=100)
    # 6 passes over 16 MB take 12 ms, 2 passes 4 ms.
    large = SizeFacts(most_neighbors=2, most_entries=2_000_000)
    assert prefers_sums(slow, large, sum_rounds=10, unknowns=100)


@pytest.mark.parametrize(
    ("link", "height", "nbytes", "pieces"),
    [
        # 100 kB take 10 ms over 10 MB/s: five pieces take 18 rounds of 3 ms, six 20 of 2.67 ms, 1.2 % less;
        # four take 16 of 3.5 ms, 5.1 % more than the least over all real numbers.
        ("paper", 5, 100_000, 5),
        # 0.8 ms over 1 Gbit/s: 3 pieces take 14 rounds of 0.467 ms, 4 pieces 16 of 0.4: 2 % less.
        ("lan", 5, 100_000, 3),
        # 8 ms over 100 Mbit/s: one takes 10 of 28 ms, two 12 of 24 ms. Of 500 kB, 40 ms: two take 12 of
        # 40 ms, three 14 of 33.3 ms, which is 3 % less.
        ("wan", 5, 100_000, 1),
        ("wan", 5, 500_000, 2),
        # 49 levels below the first, and 10 ms: the least is at √(49 · 10 / 1) = 22.1, 142 rounds of 1.45 ms.
        # 14 take 126 of 1.71 ms, 4.6 % more, and 13 take 5.8 % more.
        ("paper", 50, 100_000, 14),
        # A piece of 2.6 kB has at least 1 kB; the least is at √(49 · 0.26 / 1) = 3.6.
        ("paper", 50, 2600, 2),
        ("paper", 50, 999, 1),
        # One level sends to the root at the same time, so pieces would only cost rounds.
        ("paper", 1, 100_000, 1),
        ("paper", 0, 100_000, 1),
    ],
)
def test_the_number_of_pieces_is_that_worked_out_by_hand(
    link: str, height: int, nbytes: int, pieces: int
) -> None:
    assert sum_pieces(LINKS[link], height, nbytes) == pieces


def test_without_a_latency_a_round_counts_as_a_tenth_of_a_millisecond() -> None:
    # The least is at √(4 · 10 / 0.1) = 20 and √(4 · 1000 / 0.1) = 200, and 5 % more at 12 and 46.
    assert [sum_pieces(Link(10e6), 5, size) for size in (100_000, 10_000_000)] == [12, 46]


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
@pytest.mark.parametrize("height", [2, 3, 5, 20])
def test_no_other_number_of_pieces_takes_much_less_time(link: Link, height: int) -> None:
    nbytes = 200_000
    counts = np.arange(1, 201)
    seconds = 2 * (height + counts - 1) * (link.latency + link.waiting(nbytes) / counts)
    pieces = sum_pieces(link, height, nbytes)
    assert seconds[pieces - 1] <= 1.05 * seconds.min()
    assert seconds[: pieces - 1].min(initial=1e9) > 1.04 * seconds.min()  # fewer take longer


def problem(scale: float = 1.0, unknowns: int = 80) -> tuple[list[dcgs.Objective], dcgs.L1Ball, nx.Graph]:
    """Return a Lasso on a path of 4 agents; one column may be larger."""
    rng = np.random.default_rng(0)
    x = np.concatenate([np.ones(4), np.zeros(unknowns - 4)])
    columns = np.concatenate([[scale], np.ones(unknowns - 1)])
    data = [columns * rng.standard_normal((12, unknowns)) for _ in range(4)]
    return [dcgs.LeastSquares(A, A @ x) for A in data], dcgs.L1Ball(unknowns, 3.0), nx.path_graph(4)


def test_sizes_are_the_largest_of_all_agents() -> None:
    objectives, X, _ = problem()
    objectives[1] = dcgs.LeastSquares(np.ones((20, 80)), np.ones(20))
    network = as_network(nx.star_graph(3))
    assert facts_of(objectives, X, network, smoothness=False).sizes == SizeFacts()
    sizes = facts_of(objectives, X, network, False, sizes=True).sizes
    assert sizes == replace(SizeFacts(3, 1600, fewest_rows=12), spread=sizes.spread)
    labels = dcgs.Logistic(np.ones((20, 80)), np.ones(20))
    mixed = facts_of([*objectives[:3], labels], X, network, False, sizes=True).sizes
    assert mixed == replace(SizeFacts(3, 1600, all_quadratic=False, fewest_rows=12), spread=mixed.spread)
    uneven = [*problem()[0][:3], problem(scale=1000.0)[0][3]]
    sizes = facts_of(uneven, X, network, False, sizes=True).sizes
    assert sizes == replace(SizeFacts(3, 960, True, fewest_rows=12), spread=sizes.spread, alike=False)


@pytest.mark.parametrize(
    ("unknowns", "link", "form"),
    [(501, "1Gbit/s,0.2ms", "sums"), (501, "10MB/s,20ms", "edges"), (80, "1Gbit/s,0.2ms", "newton")],
)
def test_a_run_that_is_told_the_link_is_that_of_the_form_which_the_rule_chooses(
    unknowns: int, link: str, form: Any
) -> None:
    objectives, X, graph = problem(unknowns=unknowns)
    told = dcgs.minimize(objectives, X, graph, dcgs.FastDCGS(link=link), rounds=24)
    chosen = dcgs.minimize(objectives, X, graph, dcgs.FastDCGS(form=form, link=link), rounds=24)
    np.testing.assert_array_equal(told.agents, chosen.agents)
    np.testing.assert_array_equal(told.bytes, chosen.bytes)


def test_a_form_that_is_asked_for_is_taken_over_every_link() -> None:
    objectives, X, graph = problem()
    told = dcgs.FastDCGS(form="edges", link="1Gbit/s,0.2ms")
    asked = dcgs.FastDCGS(form="edges")
    runs = [dcgs.minimize(objectives, X, graph, method, rounds=8) for method in (told, asked)]
    np.testing.assert_array_equal(runs[0].agents, runs[1].agents)


SLOW = "10kB/s,1ms"


def told_and_untold(
    objectives: list[dcgs.Objective], X: dcgs.sets.ConvexSet, **settings: Any
) -> tuple[dcgs.Result, dcgs.Result]:
    """Return a run on a path that is told of slow links, and one that is told nothing."""
    form = settings.pop("form", "auto")
    methods = (dcgs.FastDCGS(form=form, link=SLOW), dcgs.FastDCGS(form=form))
    graph = nx.path_graph(len(objectives))
    told, untold = (dcgs.minimize(objectives, X, graph, method, **settings) for method in methods)
    return told, untold


def entries(by_rows: bool) -> list[dcgs.Objective]:
    """Return entries of a matrix of rank 2 for 6 agents, each with its own rows or with some of all."""
    rng = np.random.default_rng(4)
    truth = rng.standard_normal((48, 2)) @ rng.standard_normal((2, 40))
    rows, cols = np.nonzero(rng.random(truth.shape) < 0.4)
    owner = rows // 8 if by_rows else rng.integers(0, 6, len(rows))
    parts = [owner == i for i in range(6)]
    return [dcgs.MatrixCompletion(rows[p], cols[p], truth[rows[p], cols[p]], truth.shape) for p in parts]


@pytest.mark.parametrize("by_rows", [True, False], ids=["separate rows", "shared rows"])
def test_completion_that_is_told_the_link_has_the_same_bits_in_more_rounds(
    by_rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Curvatures of all columns would be a dense matrix for each agent.
    fail = property(lambda f: pytest.fail("sizes were computed"))
    monkeypatch.setattr(dcgs.objectives.Objective, "uneven_curvatures", fail)
    told, untold = told_and_untold(entries(by_rows), dcgs.NuclearNormBall((48, 40), 60.0), gap=1e-2)
    assert told.status is untold.status is dcgs.Status.AGREED
    assert told.iterations == untold.iterations
    assert told.rounds > untold.rounds
    for one, other in zip(told.agents, untold.agents, strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    # Headers are all that is added.
    assert untold.bytes.max() < told.bytes.max() < 1.3 * untold.bytes.max()


@pytest.mark.parametrize("form", ["sums", "newton"])
@pytest.mark.parametrize("mixed", [False, True], ids=["squares", "squares and logistic losses"])
def test_other_sums_in_pieces_have_the_same_bits(form: str, mixed: bool) -> None:
    rng = np.random.default_rng(8)
    d = 400 if form == "sums" else 30
    objectives: list[dcgs.Objective] = [
        dcgs.LeastSquares(rng.standard_normal((20, d)), rng.standard_normal(20)) for _ in range(5)
    ]
    if mixed:
        signs = np.sign(rng.standard_normal(20))
        objectives[0] = dcgs.Logistic(rng.standard_normal((20, d)), signs)
        objectives[3] = dcgs.Logistic(rng.standard_normal((20, d)), -signs)
    told, untold = told_and_untold(objectives, dcgs.L1Ball(d, 1.0), form=form, iterations=4)
    assert told.rounds > untold.rounds == 4 * untold.iterations
    np.testing.assert_array_equal(told.agents, untold.agents)


def test_what_is_no_link_is_refused() -> None:
    with pytest.raises(ValueError, match=r"as in 10MB/s,20ms; got '20ms'"):
        dcgs.FastDCGS(link="20ms")
    number: Any = 10e6
    with pytest.raises(TypeError, match=r"link must be a text such as '10MB/s,20ms'; got 10000000\.0"):
        dcgs.FastDCGS(link=number)


def test_without_a_link_only_long_sums_are_cut() -> None:
    # By hand, H = 5, 12.5 MB/s and 20 ms. Of 9.4 ms two pieces take as long as one, and of 136 ms five take
    # 18 rounds of 47.2 ms, four 16 of 54 ms: 2 % more.
    assert [sum_pieces(ASSUMED, 5, nbytes) for nbytes in (118_000, 1_700_000)] == [1, 4]


@pytest.mark.parametrize(
    ("X", "rounds"),
    [
        (dcgs.L1Ball(1000, 2.0), [4, 4, 4]),
        (dcgs.L1Ball(100_000, 2.0), [5, 5, 5]),
        (dcgs.Box(np.ones(100_000), np.full(100_000, 2.0)), [6, 6, 6]),
    ],
    ids=["short", "long, points are sparse", "long, points are dense"],
)
def test_a_gradient_of_800_kb_is_sent_in_two_pieces_a_sparse_point_in_one(
    X: dcgs.ConvexSet, rounds: list[int]
) -> None:
    # By hand, H = 2, 64 ms and 20 ms: two pieces take 6 rounds of 52 ms, one 4 of 84 ms. A sum takes 2(H − 1)
    # rounds and one for each piece. The first has curvatures, 128 ms: three pieces would take 0.6 % less.
    unknowns = X.shape[0]
    objectives = [
        dcgs.LeastSquares(sp.eye_array(3, unknowns, k=i, format="csr"), np.ones(3)) for i in range(5)
    ]
    result = dcgs.minimize(objectives, X, nx.path_graph(5), dcgs.FastDCGS(form="sums"), iterations=3)
    assert result.rounds == sum(rounds)


def test_sums_are_not_cut_where_messages_may_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated piece would be taken for the next one."""
    asked: list[int] = []

    def one_piece(link: Link, height: int, nbytes: int) -> int:
        asked.append(nbytes)
        return 1

    monkeypatch.setattr(reduction, "sum_pieces", one_piece)
    objectives = [dcgs.LeastSquares(np.eye(3, 100, k=i), np.ones(3)) for i in range(5)]
    method = dcgs.FastDCGS(form="sums", link="10MB/s,1ms", stops_itself=False)
    for runtime in (dcgs.Lockstep(faults=dcgs.Faults(loss=0.01), allow_faults=True), dcgs.Lockstep()):
        assert asked == []
        dcgs.minimize(objectives, dcgs.L1Ball(100), nx.path_graph(5), method, rounds=8, runtime=runtime)
    assert asked
