"""Runs whose sums are masked: the bits of unmasked sums, what neighbors see, restarts, what is refused."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs import Checkpoint
from dcgs.network import as_network
from dcgs.run.build import JOURNAL
from dcgs.run.distributed import DistributedObjective, facts_of
from dcgs.runtime.group import TransportGroup
from dcgs.secure.masks import CounterReuseError
from dcgs.secure.session import SecureSums
from secure_cases import CASES, case, digests, kind_of, solved
from secure_runs import chi_square
from test_mpi import start
from thread_runtime import OverThreads
from thread_transport import Network

EVERY: dict[str, Any] = {"every": None}
FORMS: tuple[Literal["edges", "sums"], ...] = ("edges", "sums")


def fits(agents: int = 4, rows: int = 30) -> list[dcgs.Objective]:
    rng = np.random.default_rng(3)
    return [
        dcgs.LeastSquares(rng.standard_normal((rows, 8)), rng.standard_normal(rows)) for _ in range(agents)
    ]


def test_masked_runs_in_one_process_and_over_mpi_have_the_bits_of_unmasked_ones() -> None:
    unmasked = [digests(solved(number, "unmasked")) for number in range(CASES)]
    masked = [digests(solved(number, True)) for number in range(CASES)]
    assert masked == unmasked
    done = start(3, "secure_cases.py")
    assert done.returncode == 0, done.stderr
    over_mpi = [{int(i): text for i, text in found.items()} for found in json.loads(done.stdout)]
    assert over_mpi == unmasked


@pytest.mark.parametrize("number", range(10))
def test_a_masked_run_is_the_open_one_up_to_fixed_point(number: int) -> None:
    # Where the gap is large, blocks of open matrix completion are rounded to float32.
    gap = 1e-5 if "row" in kind_of(number) else 1e-3
    masked, plain = solved(number, True, gap=gap), solved(number, False, gap=gap)
    assert (masked.status, masked.iterations) == (plain.status, plain.iterations)
    x, y = np.asarray(masked.x), np.asarray(plain.x)
    # Fixed point has 40 bits at least beyond the first numbers, and steps depend on rounding continuously.
    np.testing.assert_allclose(x, y, rtol=0.0, atol=1e-9 * float(np.abs(y).max()))
    # One sum for the keys, and one for the magnitudes of sums and of certificates.
    _, _, graph, _ = case(number)
    height = max(1, max(nx.single_source_shortest_path_length(graph, nx.center(graph)[0]).values()))
    assert masked.about["secure"]["rounds"] == masked.rounds - plain.rounds <= 8 * height


def test_a_masked_run_sends_no_number_of_an_agent_but_uniform_words() -> None:
    words: list[np.ndarray] = []
    upward: list[Any] = []

    def seen(round: int, sender: int, receiver: int, arrays: tuple[np.ndarray, ...]) -> None:
        words.extend(array for array in arrays if array.dtype == np.uint64)
        upward.extend(array.dtype for array in arrays if (sender, receiver) != (0, sender) and sender != 0)

    runtime = dcgs.Lockstep(on_message=seen)
    X, method = dcgs.L1Ball(8), dcgs.FastDCGS(form="sums")
    dcgs.minimize(fits(), X, nx.star_graph(3), method, iterations=120, **EVERY, runtime=runtime, secure=True)
    assert set(upward) == {np.dtype(np.uint8), np.dtype(np.uint64)}  # public keys, then words
    content = b"".join(array.tobytes() for array in words)
    assert len(content) > 50_000
    # 255 degrees of freedom: 400 is exceeded with a probability of 2e-8.
    assert chi_square(content) < 400.0


def test_without_masks_the_words_show_the_numbers() -> None:
    words: list[np.ndarray] = []
    runtime = dcgs.Lockstep(
        on_message=lambda round, i, j, arrays: words.extend(a for a in arrays if a.dtype == np.uint64)
    )
    X, method = dcgs.L1Ball(8), dcgs.FastDCGS(form="sums")
    run: dict[str, Any] = {"iterations": 120, "runtime": runtime, "secure": "unmasked"} | EVERY
    dcgs.minimize(fits(), X, nx.star_graph(3), method, **run)
    assert chi_square(b"".join(array.tobytes() for array in words)) > 1000.0


def test_the_error_of_fixed_point_is_in_the_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few bits, what a masked run certifies is true, and without counting their error it is not."""
    b = [1e-3 * np.arange(8.0) + i for i in range(4)]
    exact, X = [dcgs.LeastSquares(np.eye(8), own) for own in b], dcgs.L1Ball(8, 1e3)
    least = sum(f.value(np.mean(b, axis=0)) for f in exact)

    def certified() -> tuple[float, float]:
        graph, method = nx.star_graph(3), dcgs.FastDCGS(form="sums")
        result = dcgs.minimize(exact, X, graph, method, gap=1e-9, iterations=60, every=None, secure=True)
        known = result.about["certified"]
        return sum(f.value(result.x) for f in exact) - least, known["gap"] + known["noise"]

    monkeypatch.setattr("dcgs.secure.session._MOST_WIDE", 0)
    monkeypatch.setattr("dcgs.secure.session._HEADROOM", 44)  # 10 bits are left
    above, claimed = certified()
    assert above <= claimed
    monkeypatch.setattr(dcgs.methods.Agent, "sum_error", lambda agent, part: 0.0)
    above, claimed = certified()
    assert above > claimed


def test_numbers_that_grow_beyond_their_exponents_are_summed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dcgs.secure.session._MOST_WIDE", 0)
    usual = solved(0, True)
    monkeypatch.setattr("dcgs.secure.session._HEADROOM", -20)
    repeated = solved(0, True)
    assert repeated.about["secure"]["sums"] > usual.about["secure"]["sums"]
    assert (
        repeated.rounds - repeated.about["secure"]["rounds"] == usual.rounds - usual.about["secure"]["rounds"]
    )
    np.testing.assert_allclose(repeated.x, usual.x, atol=1e-9 * float(np.abs(usual.x).max()))


# Restarts.


@pytest.mark.parametrize("number", range(5))
def test_a_masked_run_that_is_resumed_has_the_bits_of_one_without_a_break(
    number: int, tmp_path: Path
) -> None:
    whole = solved(number, True, gap=1e-9, iterations=9)
    solved(number, True, gap=1e-9, iterations=4, checkpoint=Checkpoint(tmp_path, every=2))
    resumed = solved(number, True, gap=1e-9, iterations=9, checkpoint=Checkpoint(tmp_path, 2, resume=True))
    assert digests(resumed) == digests(whole)
    assert (resumed.rounds, resumed.about["secure"]["sums"]) == (whole.rounds, whole.about["secure"]["sums"])


SERVER = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import dcgs.run.build
from dcgs import Checkpoint
from secure_cases import digests, solved

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        left, fsync = [int(line)], os.fsync
        def killing(handle):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        os.fsync = killing
        checkpoint = Checkpoint({folder!r}, every=2, resume="auto")
        print(digests(solved(0, True, gap=1e-12, iterations=14, checkpoint=checkpoint)), flush=True)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in (0, -signal.SIGKILL)
"""


def test_a_run_that_is_killed_between_two_sums_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    tests = str(Path(__file__).parent)
    code = SERVER.format(tests=tests, folder=str(tmp_path / "saved"))
    lines = "".join(f"{count}\n" for count in (3, 30, 55, 80, 41, 10**9))
    server = subprocess.run(
        [sys.executable, "-c", code], input=lines, capture_output=True, text=True, check=True
    )
    assert {*server.stdout.splitlines()} == {str(digests(solved(0, True, gap=1e-12, iterations=14)))}
    # No counter has masked two values: every journal has one digest for each.
    for journal in tmp_path.rglob(JOURNAL):
        counters = [tuple(line.split()[:2]) for line in journal.read_text().splitlines()[1:]]
        assert len(counters) == len(set(counters)) > 0


def test_other_data_under_a_used_counter_are_refused_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: dict[str, Any] = {"gap": 1e-12, "checkpoint": Checkpoint(tmp_path, every=4)}
    first = solved(0, True, rounds=30, **run)
    assert first.iterations % 4 > 0  # sums after the last checkpoint were sent
    monkeypatch.setattr("dcgs.methods.fast.sums.excess", lambda f, value: value + 1e-6)
    run["checkpoint"] = Checkpoint(tmp_path, every=4, resume=True)
    with pytest.raises(
        CounterReuseError, match=r"^a counter must mask one value only; .* Nothing was sent\."
    ):
        solved(0, True, **run)


def test_without_its_journal_an_agent_has_no_key_and_the_run_is_refused(tmp_path: Path) -> None:
    solved(0, True, gap=1e-12, iterations=4, checkpoint=Checkpoint(tmp_path, every=2))
    next(iter(sorted(tmp_path.rglob(JOURNAL)))).unlink()
    with pytest.raises(
        ValueError, match=r"^a run with masked sums is resumed with the journals of all agents"
    ):
        solved(0, True, gap=1e-12, iterations=9, checkpoint=Checkpoint(tmp_path, every=2, resume=True))


def test_a_checkpoint_of_open_sums_is_not_one_of_masked_sums(tmp_path: Path) -> None:
    solved(0, False, gap=1e-12, iterations=4, checkpoint=Checkpoint(tmp_path, every=2))
    with pytest.raises(ValueError, match=r"it was made with sums open, the run has masked\."):
        solved(0, True, gap=1e-12, iterations=9, checkpoint=Checkpoint(tmp_path, every=2, resume=True))


def test_the_private_key_is_in_the_journal_only(tmp_path: Path) -> None:
    solved(0, True, gap=1e-12, iterations=4, checkpoint=Checkpoint(tmp_path, every=2))
    journals = sorted(tmp_path.rglob(JOURNAL))
    private = [json.loads(path.read_text().splitlines()[0])["private"] for path in journals]
    assert len(set(private)) == len(journals) >= 3
    others = [path.read_bytes() for path in tmp_path.rglob("*.dcgs")]
    assert not any(
        key.encode() in content or bytes.fromhex(key) in content for key in private for content in others
    )
    assert all(path.stat().st_mode & 0o077 == 0 for path in journals)


# Before the run.


@pytest.mark.parametrize("kind", ["rows", "entries", "shared entries", "labels"])
def test_processes_learn_facts_and_no_numbers_of_single_agents(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, sent = np.random.default_rng(0), list[np.ndarray]()
    objectives: list[dcgs.Objective] = list(fits(5))
    if "entries" in kind:
        rows = [rng.permutation(np.arange(2 * i, 2 * i + 2 + (kind != "entries")) % 9) for i in range(4)]
        objectives = [
            dcgs.MatrixCompletion(own, own % 6, rng.standard_normal(len(own)), (9, 6)) for own in rows
        ]
    elif kind == "labels":
        objectives = [dcgs.Logistic(rng.standard_normal((7 + i, 8)), np.ones(7 + i)) for i in range(3)]
    X: dcgs.ConvexSet = dcgs.NuclearNormBall((9, 6), 2.0) if "entries" in kind else dcgs.L1Ball(8)
    agents = len(objectives)
    network, keys = as_network(nx.star_graph(agents - 1)), {i: SecureSums(i, agents) for i in range(agents)}
    gather = TransportGroup.gather

    def recorded(group: TransportGroup, arrays: Any) -> Any:
        kept = [*arrays]
        sent.extend(kept)
        return gather(group, iter(kept))

    def facts(transport: Any) -> Any:
        runtime = OverThreads(transport)
        local = {i: objectives[i] for i in runtime.hosts(agents)}
        f = DistributedObjective(local, runtime.group(), {i: keys[i] for i in local})
        return facts_of(f, X, network, smoothness=False, sizes=True)

    monkeypatch.setattr(TransportGroup, "gather", recorded)
    found, same = Network(2).run(facts)
    expected = facts_of(objectives, X, network, smoothness=False, sizes=True)
    assert found == same
    assert found.separate_rows is (kind == "entries")
    for name in ("spread", "curved"):
        assert getattr(found.sizes, name) == pytest.approx(getattr(expected.sizes, name), rel=1e-14)
    sizes = dataclasses.replace(found.sizes, spread=expected.sizes.spread, curved=expected.sizes.curved)
    assert dataclasses.replace(found, sizes=sizes) == expected
    tables = [array for array in sent if array.dtype == np.uint8]
    words = [array for array in sent if array.dtype == np.uint64]
    assert {array.shape for array in tables} == {(agents, 32)}  # public keys
    assert len(tables) + len(words) == len(sent)
    assert chi_square(b"".join(array.tobytes() for array in words)) < 400.0  # 255 degrees of freedom


# What is refused.


def run_with(**arguments: Any) -> Callable[[], Any]:
    given: dict[str, Any] = {"X": dcgs.L1Ball(8), "graph": nx.star_graph(3), "every": None, "rounds": 9}
    given |= {"objectives": fits(len(arguments.get("graph", range(4)))), "secure": True} | arguments
    return lambda: dcgs.minimize(**given)


LOSSES = [*fits(3), dcgs.Logistic(np.ones((3, 8)), np.ones(3))]
NO_SUMS = (
    r"agents may send sums over all agents only, which can be masked; {} with these settings sends points"
)


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (run_with(graph=nx.path_graph(2)), r"masked sums need at least 3 agents; there are 2: with two"),
        *(
            (run_with(method=method), NO_SUMS.format(type(method).__name__))
            for method in (
                dcgs.FastDCGS(form="edges"),
                dcgs.FastDCGS(eta=1.0),
                dcgs.FastDCGS(stops_itself=False),
                dcgs.DCGS(),
                dcgs.DFW(),
                dcgs.NIDS(),
                dcgs.PGExtra(),
                dcgs.PrimalDual(),
                dcgs.ProjectedAGD(),
            )
        ),
        (
            run_with(every=1),
            r"nothing may be measured: the observer of a run reads .* got every=1\. Give every=None",
        ),
        (run_with(every=0), r"got every=0\. Give every=None"),
        (
            run_with(runtime=dcgs.Lockstep(faults=dcgs.Faults(loss=0.1))),
            r"rounds in which every message arrives",
        ),
        (run_with(runtime=dcgs.Lockstep(speeds=1.0)), r"rounds in which every message arrives"),
        (
            run_with(graph=[nx.star_graph(3), nx.path_graph(4)], objectives=fits()),
            r"rounds in which every message arrives",
        ),
        (
            run_with(objectives=LOSSES),
            r"the losses of all agents or of none must be quadratic.* agents \[0, 1, 2\]",
        ),
        (run_with(secure="masked"), r"^secure must be True, False or 'unmasked'; got 'masked'\."),
        (run_with(secure=1), r"^secure must be True, False or 'unmasked'; got 1\."),
    ],
)
def test_what_cannot_be_secured_is_refused_with_the_reason(run: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        run()


def test_auto_takes_a_form_by_sums_where_it_would_take_edges() -> None:
    rng = np.random.default_rng(0)
    wide = [dcgs.LeastSquares(rng.standard_normal((60, 600)), rng.standard_normal(60)) for _ in range(5)]
    X, graph = dcgs.L1Ball(600), nx.cycle_graph(10)
    run: dict[str, Any] = {"iterations": 5, **EVERY}
    x, secure = (dcgs.minimize(2 * wide, X, graph, **run, secure=secure).x for secure in (False, True))
    edges, sums = (dcgs.minimize(2 * wide, X, graph, dcgs.FastDCGS(form=form), **run).x for form in FORMS)
    np.testing.assert_array_equal(x, edges)
    np.testing.assert_allclose(secure, sums, atol=1e-12)
