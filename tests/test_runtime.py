"""The runtime, with programs that optimize nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import active_count
from typing import Any

import networkx as nx
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import dcgs
from dcgs import DCGS, DFW, PCG, FastDCGS, Lockstep, PrimalDual, parallel
from dcgs.points import Point
from dcgs.protocol import Outbox, Program
from dcgs.runtime import Job, Traffic
from dcgs.sets import L1Ball, L2Ball
from problems import GRAPHS, Array, neighbors_of, random_fits

every_count = pytest.mark.parametrize("threads", [1, 2])


def run(
    graph: nx.Graph,
    program: Callable[[int], Program[Point]],
    threads: int = 1,
    after_round: Callable[[], bool] = lambda: True,
) -> Traffic:
    traffic = Traffic(len(graph))
    Lockstep(threads=threads).run(Job(program, neighbors_of(graph), traffic, after_round))
    return traffic


def silent(message: Point, rounds: int) -> Program[Point]:
    """Say the same for some rounds, and listen to nobody."""
    for _ in range(rounds):
        yield message
    return message


def failing(rounds: int) -> Program[Point]:
    """Talk for some rounds, then divide by zero."""
    yield from silent(np.zeros(1), rounds)
    return np.array([1 / 0])


def noting(i: int, program: Program[Point], closed: list[int]) -> Program[Point]:
    """Do what the program does, and note when it is over, in whatever way."""
    try:
        return (yield from program)
    finally:
        closed.append(i)


def nothing_left(threads_before: int, closed: Sequence[int], agents: int) -> bool:
    return active_count() == threads_before and sorted(closed) == list(range(agents))


@every_count
@pytest.mark.parametrize("name", GRAPHS)
def test_a_maximum_travels_one_edge_a_round(name: str, threads: int) -> None:
    """After r rounds an agent knows the largest value within distance r, and nothing beyond."""
    graph = GRAPHS[name]
    m = len(graph)
    values = np.random.default_rng(51).permutation(m).astype(float)
    distance = dict(nx.all_pairs_shortest_path_length(graph))
    known: dict[tuple[int, int], float] = {}

    def program(i: int) -> Program[Point]:
        largest = values[i : i + 1]
        known[i, 0] = float(largest[0])
        for r in range(1, m):
            inbox = yield largest
            largest = np.max([largest, *inbox.values()], axis=0)
            known[i, r] = float(largest[0])
        return largest

    run(graph, program, threads)
    within = {(i, r): [values[j] for j in range(m) if distance[i][j] <= r] for i, r in known}
    assert known == {place: max(reached) for place, reached in within.items()}
    rounds = min(r for r in range(m) if all(known[i, r] == m - 1 for i in range(m)))
    assert rounds == nx.eccentricity(graph, int(values.argmax()))


@every_count
def test_a_sent_message_cannot_be_changed_by_its_sender(threads: int) -> None:
    received: dict[int, float] = {}

    def program(i: int) -> Program[Point]:
        mine = np.array([float(i)])
        first = yield mine
        mine[0] = 99.0
        yield np.zeros(1)
        received[i] = float(first[1 - i][0])
        return mine

    run(nx.path_graph(2), program, threads)
    assert received == {0: 1.0, 1: 0.0}


@every_count
def test_a_receiver_cannot_write_to_a_message(threads: int) -> None:
    def program(i: int) -> Program[Point]:
        inbox = yield np.array([float(i)])
        inbox[1 - i][0] = 99.0
        return np.zeros(1)

    with pytest.raises(ValueError, match="read-only"):
        run(nx.path_graph(2), program, threads)


@every_count
def test_an_agent_that_stops_early_is_named(threads: int) -> None:
    with pytest.raises(RuntimeError, match=r"^agents \[0\] returned while agents \[1\] still send\.$"):
        run(nx.path_graph(2), lambda i: silent(np.zeros(1), rounds=2 + i), threads)


def test_all_agents_that_stop_early_are_named() -> None:
    with pytest.raises(RuntimeError, match=r"^agents \[0, 2\] returned while agents \[1, 3\] still send\.$"):
        run(nx.cycle_graph(4), lambda i: silent(np.zeros(1), rounds=i % 2))


@pytest.mark.parametrize(
    ("message", "error", "words"),
    [
        (np.array([0.0, np.nan]), FloatingPointError, r"finite; agent 1 sent nan at \(1,\)\."),
        (np.array([[0.0], [np.inf]]), FloatingPointError, r"finite; agent 1 sent inf at \(1, 0\)\."),
        (np.array([-np.inf, np.nan]), FloatingPointError, r"finite; agent 1 sent -inf at \(0,\)\."),
        # Their sum is not a number, and adding them up must not be what is complained of.
        (np.array([np.inf, -np.inf]), FloatingPointError, r"finite; agent 1 sent inf at \(0,\)\."),
        (
            np.zeros(2, dtype=np.float16),
            TypeError,
            r"array of float64, or a tuple of such arrays; agent 1 sent one of float16\.",
        ),
        (
            np.zeros(2, dtype=np.int64),
            TypeError,
            r"array of float64, or a tuple of such arrays; agent 1 sent one of int64\.",
        ),
        ([0.0, 1.0], TypeError, r"array of float64, or a tuple of such arrays; agent 1 sent a list\."),
        (1.0, TypeError, r"array of float64, or a tuple of such arrays; agent 1 sent a float\."),
    ],
)
@every_count
def test_a_message_that_is_no_finite_array_names_its_sender(
    message: Any, error: type[Exception], words: str, threads: int
) -> None:
    with pytest.raises(error, match=words):
        run(nx.path_graph(3), lambda i: silent((np.zeros(2), message, np.zeros(2))[i], 1), threads)


def test_finite_numbers_may_be_as_large_as_they_come() -> None:
    largest = np.full(3, np.finfo(np.float64).max)
    heard: list[Point] = []

    def program(i: int) -> Program[Point]:
        inbox = yield largest
        heard.extend(inbox.values())
        return largest

    run(nx.path_graph(2), program)
    np.testing.assert_array_equal(heard, [largest, largest])


@every_count
@pytest.mark.parametrize("rounds", [1, 3])
def test_an_exception_names_its_agent_and_leaves_nobody_running(rounds: int, threads: int) -> None:
    closed: list[int] = []
    before = active_count()
    programs = [silent(np.zeros(1), 10) for _ in range(4)]
    programs[1] = failing(rounds)
    with pytest.raises(ZeroDivisionError) as caught:
        run(nx.cycle_graph(4), lambda i: noting(i, programs[i], closed), threads)
    assert caught.value.__notes__ == ["raised in agent 1"]
    assert nothing_left(before, closed, agents=4)


def test_of_two_exceptions_in_one_round_the_first_agent_s_is_raised() -> None:
    for threads in (1, 2, 4):
        with pytest.raises(ZeroDivisionError) as caught:
            run(nx.cycle_graph(4), lambda i: failing(rounds=1), threads)
        assert caught.value.__notes__ == ["raised in agent 0"]


@every_count
def test_a_run_ends_when_it_is_told_to_and_closes_every_program(threads: int) -> None:
    closed: list[int] = []
    before = active_count()
    rounds: list[int] = []

    def program(i: int) -> Program[Point]:
        return noting(i, silent(np.zeros(1), 1000), closed)

    def after_round() -> bool:
        rounds.append(len(rounds) + 1)
        return len(rounds) < 3

    traffic = run(nx.star_graph(3), program, threads, after_round)
    assert traffic.rounds == 3
    assert rounds == [1, 2, 3]
    assert nothing_left(before, closed, agents=4)


def test_after_a_round_all_agents_stand_still_with_their_next_message_ready() -> None:
    resumed: list[int] = []
    seen: list[list[int]] = []

    def program(i: int) -> Program[Point]:
        for _ in range(3):
            yield np.zeros(1)
            resumed.append(i)
        return np.zeros(1)

    def after_round() -> bool:
        seen.append(sorted(resumed))
        resumed.clear()
        return True

    run(nx.path_graph(3), program, threads=2, after_round=after_round)
    assert seen == [[0, 1, 2]] * 3


@every_count
@pytest.mark.parametrize(
    ("graph", "degrees"),
    [(nx.star_graph(3), [3, 1, 1, 1]), (nx.cycle_graph(5), [2] * 5), (nx.empty_graph(1), [0])],
    ids=["star", "cycle", "one node"],
)
def test_rounds_messages_and_bytes_are_counted_exactly(
    graph: nx.Graph, degrees: list[int], threads: int
) -> None:
    traffic = run(graph, lambda i: silent(np.zeros((2, i + 1)), rounds=7), threads)
    assert traffic.rounds == 7
    np.testing.assert_array_equal(traffic.messages, [7 * degree for degree in degrees])
    # To each neighbor, in each round: a header, the header of a message, the description of an array with
    # two sides, and 2 × (i + 1) doubles of 8 bytes.
    np.testing.assert_array_equal(
        traffic.bytes,
        [7 * degree * (32 + 24 + 16 + 2 * 8 + 16 * (i + 1)) for i, degree in enumerate(degrees)],
    )


def test_an_agent_that_sends_to_some_neighbors_sends_a_header_to_all() -> None:
    """A neighbor must know that there is no message for it; an empty tuple is a message."""

    def program(i: int) -> Program[Point]:
        mine: dict[int, Outbox] = {0: {1: np.zeros(2)}, 1: {2: ()}, 2: {}}
        inbox = yield mine[i]
        assert list(inbox) == {0: [], 1: [0], 2: [1]}[i]
        return np.zeros(1)

    traffic = run(nx.path_graph(3), program)
    assert traffic.messages.tolist() == [1, 1, 0]
    assert traffic.bytes.tolist() == [32 + 24 + 16 + 8 + 16, 32 + 24 + 32, 32]
    assert traffic.peaks == [32 + 24 + 16 + 8 + 16]


def test_the_peak_of_a_round_is_that_of_its_busiest_agent() -> None:
    """Agents that send in turn take longer than the bytes of the busiest of them suggest."""

    def program(i: int) -> Program[Point]:
        for turn in range(3):
            yield {i + 1: np.ones(100)} if turn == i else {}
        return np.zeros(1)

    traffic = run(nx.path_graph(4), program)
    large = 32 + 24 + 16 + 8 + 800  # headers, and an array of 100 doubles
    assert traffic.peaks == [large, large + 32, large + 32]
    assert traffic.bytes.max() == large + 32 + 2 * 64


@every_count
def test_each_neighbor_gets_the_message_that_is_for_it(threads: int) -> None:
    received: dict[int, dict[int, float]] = {}

    def program(i: int) -> Program[Point]:
        mine = {j: (np.array([10.0 * i + j]), np.zeros(i)) for j in range(4) if j != i}
        inbox = yield mine
        for numbers, _ in mine.values():
            numbers[0] = -1.0
        received[i] = {j: float(numbers[0]) for j, (numbers, rest) in inbox.items() if len(rest) == j}
        return np.zeros(1)

    run(nx.complete_graph(4), program, threads)
    assert received == {i: {j: 10.0 * j + i for j in range(4) if j != i} for i in range(4)}


def test_programs_that_say_nothing_take_no_round() -> None:
    def after_round() -> bool:
        raise AssertionError("no round was there to ask after")

    traffic = run(nx.path_graph(3), lambda i: silent(np.zeros(1), 0), after_round=after_round)
    assert (traffic.rounds, int(traffic.messages.sum())) == (0, 0)


@every_count
def test_the_inbox_is_in_increasing_order_and_holds_the_neighbors_only(threads: int) -> None:
    graph = nx.Graph([(2, 4), (2, 0), (2, 3), (1, 4), (0, 4)])
    orders: dict[int, list[int]] = {}

    def listen(inbox: Mapping[int, Point], i: int) -> None:
        orders[i] = list(inbox)
        assert all(theirs[0] == j for j, theirs in inbox.items())

    def program(i: int) -> Program[Point]:
        inbox = yield np.array([float(i)])
        listen(inbox, i)
        return np.zeros(1)

    run(graph, program, threads)
    assert orders == {0: [2, 4], 1: [4], 2: [0, 3, 4], 3: [2], 4: [0, 1, 2]}


METHODS: dict[str, dcgs.Method] = {
    "DCGS with pcg": DCGS(inner="pcg"),
    "FastDCGS": FastDCGS(),
    "FastDCGS over edges": FastDCGS(form="edges"),
    "FastDCGS with sums": FastDCGS(form="sums"),
    "DCGS with cg": DCGS(inner="cg"),
    "DCGS with one step": DCGS(inner=PCG(max_steps=1)),
    "DFW": DFW(),
    "DFW, averaging": DFW(tracking=False),
    "PrimalDual": PrimalDual(),
}


@pytest.mark.parametrize("method", METHODS)
def test_the_number_of_threads_changes_no_bit(method: str) -> None:
    fits = random_fits(7, rows=8, columns=6, seed=52)

    def solve(threads: int) -> dcgs.Result:
        runtime = Lockstep(threads=threads)
        return dcgs.minimize(
            fits.objectives(),
            L1Ball(6, 2.0),
            GRAPHS["random of 7"],
            METHODS[method],
            iterations=6,
            runtime=runtime,
        )

    alone, *others = (solve(threads) for threads in (1, 2, 3))
    for other in others:
        assert other.agents.tobytes() == alone.agents.tobytes()
        assert other.lmo_calls.tolist() == alone.lmo_calls.tolist()
        assert other.bytes.tolist() == alone.bytes.tolist()
        assert other.history.worst_loss.tobytes() == alone.history.worst_loss.tobytes()


def test_the_number_of_threads_changes_no_bit_of_the_closed_form() -> None:
    fits = random_fits(7, rows=8, columns=6, seed=53)
    runs = [
        dcgs.minimize(
            fits.objectives(),
            L2Ball(6, 0.5),
            GRAPHS["random of 7"],
            PrimalDual(),
            iterations=6,
            runtime=Lockstep(threads=threads),
        )
        for threads in (1, 2, None)
    ]
    assert len({run.agents.tobytes() for run in runs}) == 1


def blas_threads() -> list[int]:
    """Return the threads of NumPy's and SciPy's libraries; a solver of another package may have its own."""
    used = {library.filepath for library in parallel._libraries}
    return [library["num_threads"] for library in threadpool_info() if library["filepath"] in used]


@pytest.fixture
def two_blas_threads() -> Iterator[None]:
    with threadpool_limits(2, user_api="blas"):
        yield


@pytest.mark.usefixtures("two_blas_threads")
@pytest.mark.parametrize(
    ("message", "outcome"), [(0.0, nullcontext()), (np.nan, pytest.raises(FloatingPointError))]
)
def test_linear_algebra_is_held_to_its_threads_during_the_run_only(
    message: float, outcome: AbstractContextManager[object]
) -> None:
    during: list[list[int]] = []

    def program(i: int) -> Program[Point]:
        during.append(blas_threads())
        yield np.array([message])
        return np.zeros(1)

    before = blas_threads()
    with outcome:
        Lockstep(threads=1, blas_threads=1).run(Job(program, [()], Traffic(1), lambda: True))
    assert set(during[0]) == {1}
    assert blas_threads() == before
    assert 2 in before  # a library built for one thread stays at one


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"threads": 0},
            r"threads must be a whole number of at least 1, or None; got 0\.",
        ),
        (
            {"threads": -2},
            r"threads must be a whole number of at least 1, or None; got -2\.",
        ),
        ({"blas_threads": 0}, r"blas_threads must be a whole number of at least 1; got 0\."),
    ],
)
def test_counts_of_threads_below_one_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Lockstep(**wrong)


def test_more_threads_than_agents_do_no_harm() -> None:
    received: Array = np.zeros(2)

    def program(i: int) -> Program[Point]:
        inbox = yield np.array([1.0 + i])
        received[i] = inbox[1 - i][0]
        return np.zeros(1)

    run(nx.path_graph(2), program, threads=16)
    np.testing.assert_array_equal(received, [2.0, 1.0])


@pytest.mark.parametrize(
    ("size", "threads", "several"),
    [(10, None, False), (1 << 17, None, True), (10, 2, True), (1 << 17, 1, False)],
)
def test_agents_run_side_by_side_where_it_pays_or_is_asked_for(
    size: int, threads: int | None, several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dcgs.runtime.lockstep.cores", lambda: 2)
    seen: set[str] = set()

    def program(i: int) -> Program[Point]:
        yield np.zeros(1)
        seen.add(threading.current_thread().name)
        return np.zeros(1)

    job = Job(program, [(1,), (0,)], Traffic(2), lambda: True, point_nbytes=8 * size)
    Lockstep(threads=threads).run(job)
    assert (seen != {threading.main_thread().name}) is several


def test_agents_with_wide_products_take_turns_and_share_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    @contextmanager
    def wide_products(threads: int) -> Iterator[None]:
        asked.append(threads)
        yield

    monkeypatch.setattr("dcgs.runtime.lockstep.wide_products", wide_products)
    seen: set[str] = set()

    def program(i: int) -> Program[Point]:
        yield np.zeros(1 << 17)
        seen.add(threading.current_thread().name)
        return np.zeros(1)

    Lockstep(threads=2).run(Job(program, [(1,), (0,)], Traffic(2), lambda: True, prefers_blas_threads=True))
    assert (asked, seen) == ([2], {threading.main_thread().name})


def test_computing_adds_up_the_slowest_agent_of_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def resting(seconds: list[float]) -> Program[Point]:
        nonlocal now
        for rest in seconds:
            now += rest
            yield np.zeros(1)
        return np.zeros(1)

    monkeypatch.setattr("dcgs.runtime.base.time.thread_time", lambda: now)
    rests = [[0.5, 0.125], [0.125, 0.25], [0.0, 0.0]]
    traffic = run(nx.path_graph(3), lambda i: resting(rests[i]))
    # Agents took turns, one second in all; each with its own machine would wait for the slowest.
    assert (now, sum(traffic.steps)) == (1.0, 0.75)


def test_computing_side_by_side_is_the_time_of_each_agents_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    own = threading.local()

    def resting(seconds: float) -> Program[Point]:
        own.now = getattr(own, "now", 0.0) + seconds
        yield np.zeros(1)
        return np.zeros(1)

    monkeypatch.setattr("dcgs.runtime.base.time.thread_time", lambda: getattr(own, "now", 0.0))
    traffic = run(nx.path_graph(4), lambda i: resting([0.25, 0.5, 0.125, 0.0][i]), threads=2)
    assert sum(traffic.steps) == 0.5
