"""Runs that change their form: bits after a resume and under masks, true certificates, and when they do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs.methods.fast import fast_dcgs
from dcgs.methods.fast.fast_dcgs import Stage, lengths
from reference import optimum

GRAPHS = {"cycle": nx.cycle_graph(5), "star": nx.star_graph(3), "complete": nx.complete_graph(4)}


def form_of(stage: Stage) -> str:
    return str(stage.program.keywords["form"])  # type: ignore[attr-defined]


def newton_last(forms: Sequence[Stage]) -> list[Stage]:
    return sorted(forms, key=lambda stage: form_of(stage) == "newton")


def every_three(forms: Sequence[Stage]) -> Iterator[tuple[Stage, int]]:
    """Yield a form that is not newton, and then those with common points in turn: one iteration, or three."""
    ordered = newton_last(forms)
    for form in chain(ordered[:1], cycle([form for form in ordered if form.is_common])):
        yield form, 1 if form_of(form) == "newton" else 3


@pytest.fixture
def changing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_dcgs, "lengths", every_three)


def problem(seed: int, agents: int, logistic: bool = False) -> tuple[list[dcgs.Objective], list[Any]]:
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((agents, 12, 9)) * np.logspace(0, -2, 9)
    b = rng.standard_normal((agents, 12))
    if logistic:
        return [dcgs.Logistic(Ai, np.sign(bi)) for Ai, bi in zip(A, b, strict=True)], []
    return [dcgs.LeastSquares(Ai, bi) for Ai, bi in zip(A, b, strict=True)], list(zip(A, b, strict=True))


def solve(objectives: list[dcgs.Objective], graph: nx.Graph, **more: Any) -> dcgs.Result:
    settings: dict[str, Any] = {"gap": 1e-6, "iterations": 4000, "every": None} | more
    return dcgs.minimize(objectives, dcgs.L1Ball(9, 8.0), graph, **settings)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("seed", range(6))
def test_what_is_certified_after_changes_is_true(changing: None, name: str, seed: int) -> None:
    graph = GRAPHS[name]
    objectives, data = problem(seed, len(graph))
    result = solve(objectives, graph)
    assert result.status is dcgs.Status.AGREED
    value = [sum(f.value(x) for f in objectives) for x in (np.zeros(9), *result.agents)]
    _, least = optimum(data, dcgs.L1Ball(9, 8.0))
    # The reference is right to 1e-9.
    assert max(value[1:]) - least <= 1e-6 * (value[0] - max(value[1:])) + 1e-9 * value[0]


@pytest.mark.parametrize("name", ["cycle", "star"])
@pytest.mark.parametrize("logistic", [False, True])
def test_a_run_that_is_resumed_in_any_stage_has_the_same_bits(
    changing: None, name: str, logistic: bool, tmp_path: Path
) -> None:
    graph = GRAPHS[name]
    objectives, _ = problem(7, len(graph), logistic)
    rule: dict[str, Any] = {"gap": 1e-14, "every": 0}
    whole = solve(objectives, graph, iterations=10, **rule)
    for done in (3, 4, 7):
        checkpoint = dcgs.Checkpoint(tmp_path / str(done), every=1)
        solve(objectives, graph, iterations=done, checkpoint=checkpoint, **rule)
        resumed = solve(
            objectives,
            graph,
            iterations=10,
            checkpoint=dcgs.Checkpoint(tmp_path / str(done), resume=True),
            **rule,
        )
        np.testing.assert_array_equal(resumed.agents, whole.agents)
        assert (resumed.rounds, resumed.bytes.tolist()) == (whole.rounds, whole.bytes.tolist())


@pytest.mark.parametrize("name", GRAPHS)
def test_masked_runs_that_change_have_the_bits_of_unmasked_ones(changing: None, name: str) -> None:
    objectives, _ = problem(3, len(GRAPHS[name]))
    masked, plain = (solve(objectives, GRAPHS[name], secure=secure) for secure in (True, "unmasked"))
    assert masked.status is dcgs.Status.AGREED
    np.testing.assert_array_equal(masked.agents, plain.agents)


def test_a_stage_takes_three_times_what_was_expected_and_as_much_as_all_before() -> None:
    edges, sums, newton = (
        Stage(lambda agent: iter(()), expected, rounds, rounds > 1)  # type: ignore[arg-type, return-value]
        for expected, rounds in ((20.0, 1), (100.0, 4), (30.0, 2))
    )
    found = list(islice(lengths([edges, newton, sums]), 4))
    assert [form for form, _ in found] == [edges, newton, sums, newton]
    # In rounds: max(60, 30), max(90, 100, 60), max(300, 30, 160), max(90, 100, 460).
    assert [length * form.rounds for form, length in found] == [60, 100, 300, 460]
    assert [length for _, length in islice(lengths([edges]), 1)] == [2**63 - 1]


def test_a_run_whose_form_takes_far_too_long_ends_in_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One column of 10⁻³ and one of 10³ in a huge ball: gradient steps have no end there."""
    rng = np.random.default_rng(1)
    A = rng.standard_normal((3, 6, 2)) * [1e-3, 1e3]
    b = np.sign(rng.standard_normal((3, 6)))
    objectives = [dcgs.Logistic(Ai, bi) for Ai, bi in zip(A, b, strict=True)]
    run: dict[str, Any] = {"gap": 1e-4, "rounds": 2000, "every": None}
    X, graph = dcgs.L1Ball(2, 1e4), nx.star_graph(2)
    stuck = dcgs.minimize(objectives, X, graph, dcgs.FastDCGS(form="sums"), **run)
    assert stuck.status is dcgs.Status.ROUNDS
    first = fast_dcgs.lengths

    monkeypatch.setattr(fast_dcgs, "lengths", lambda forms: first(newton_last(forms)))
    changed = dcgs.minimize(objectives, X, graph, **run)
    assert changed.status is dcgs.Status.AGREED
    assert changed.rounds < 1000
