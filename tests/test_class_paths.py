"""Paths of several classes share network sums; classes that can be separated get a moderate radius."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs.estimators import DecentralizedLasso, DecentralizedLogisticRegression
from dcgs.learn.linear.classes import against_rest
from dcgs.learn.linear.design import DesignSpec, designs
from dcgs.learn.linear.fit import rows_paths
from dcgs.learn.radius.folds import HoldOut
from dcgs.learn.radius.result import RadiusPath
from dcgs.learn.sites import Rows
from dcgs.learn.sums import Reductions, Request, Steps
from dcgs.runtime import Lockstep, Runtime
from thread_runtime import OverThreads
from thread_transport import Network

GRAPH = nx.path_graph(3)


def flowers(features: int) -> dict[int, Rows]:
    """Three classes at three sites; the first is easy to tell from the others, which overlap."""
    rng = np.random.default_rng(2)
    kinds = np.arange(180) % 3
    centers = np.zeros((3, features))
    centers[:, :3] = [[3.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    A = centers[kinds] + rng.standard_normal((180, features))
    return {i: Rows(A[i * 60 : i * 60 + 60], kinds[i * 60 : i * 60 + 60].astype(float)) for i in range(3)}


def paths_of(features: int, runtime: Runtime, folds: int = 2) -> tuple[list[RadiusPath], Reductions]:
    """Return the paths of the three classes, and the network."""
    network = Reductions(GRAPH, runtime)
    sites = {i: site for i, site in flowers(features).items() if i in network.hosts}
    rows = list(against_rest(sites, 3))
    made = designs(rows, network, DesignSpec(dcgs.LogisticLoss))
    how = HoldOut.in_folds(folds, 0, by_class=True)
    models = list(zip(rows, made, strict=True))
    return rows_paths(models, network, lambda r: dcgs.L1Ball(features, r), how), network


def rounds_of_paths(network: Reductions) -> int:
    """Return the rounds of all sums of paths, without those of columns."""
    return sum(one.rounds for one in network.sent if "loss" in one.name or "atom" in one.name)


def bits(paths: list[RadiusPath]) -> list[Any]:
    """Return all that the paths found, and the rounds of each."""
    return [
        (path.points, path.null, path.stopped, path.rounds, [x.tobytes() for one in path.models for x in one])
        for path in paths
    ]


def one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every program have sums of its own."""
    together = Reductions.run
    monkeypatch.setattr(Reductions, "run", lambda self, *all: [together(self, one)[0] for one in all])


@pytest.mark.parametrize("features", [5, 70])  # Newton steps; batches of radii
def test_shared_sums_give_the_bits_of_separate_paths_in_the_rounds_of_the_longest(
    features: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, network = paths_of(features, Lockstep())
    one_after_the_other(monkeypatch)
    alone, separate = paths_of(features, Lockstep())
    assert bits(shared) == bits(alone)
    rounds = [path.rounds for path in alone]
    assert len(set(rounds)) > 1
    assert rounds_of_paths(network) == max(rounds)
    assert rounds_of_paths(separate) == sum(rounds)
    assert network.rounds <= separate.rounds - sum(rounds) + max(rounds)


@pytest.mark.parametrize("features", [5, 70])
def test_processes_find_the_paths_of_one_process(features: int) -> None:
    alone, network = paths_of(features, Lockstep())
    parts = Network(2).run(lambda transport: paths_of(features, OverThreads(transport)))
    for found, own in parts:
        assert bits(found) == bits(alone)
        told = [(one.name, one.numbers, one.rounds) for one in own.sent]
        assert told == [(one.name, one.numbers, one.rounds) for one in network.sent]
    assert sum(own.bytes for _, own in parts) == network.bytes


def test_sums_that_reach_the_wrong_class_change_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    # The planted mistake: the first sums of two classes are swapped. The paths must not be the right ones.
    right, _ = paths_of(5, Lockstep())
    reduced, left = Reductions._all_reduced, iter([True])

    def swapped(self: Reductions, asked: Sequence[Request]) -> list[Any]:
        sums = reduced(self, asked)
        planted = len(asked) == 3 and "folds" in asked[0].name and next(left, False)
        return [sums[0], sums[2], sums[1]] if planted else sums

    monkeypatch.setattr(Reductions, "_all_reduced", swapped)
    wrong, _ = paths_of(5, Lockstep())
    assert [one == other for one, other in zip(bits(right), bits(wrong), strict=True)] == [True, False, False]


def test_programs_of_any_length_and_shape_get_their_own_sums_and_one_record_a_step() -> None:
    def program(steps: int, size: int) -> Steps[list[float]]:
        found = []
        for step in range(steps):
            own: dict[int, list[Any]] = {i: [np.full(size, 10.0**i * (step + 1)), size] for i in range(3)}
            vector, count = yield Request(f"sums of {size}", own)
            found += [*vector.tolist(), float(count)]
        return found

    network = Reductions(GRAPH)
    assert network.run(program(2, 1), program(0, 5), program(1, 2)) == [
        [111.0, 3.0, 222.0, 3.0],
        [],
        [111.0, 111.0, 6.0],
    ]
    assert [(one.name, one.numbers) for one in network.sent] == [
        ("sums of 1; sums of 2", 5),
        ("sums of 1", 2),
    ]
    assert network.run() == []


def test_an_error_of_one_program_ends_all() -> None:
    def fails() -> Iterator[Any]:
        yield Request("ones", {i: [1.0] for i in range(3)})
        raise ValueError("no second step.")

    with pytest.raises(ValueError, match="no second step"):
        Reductions(GRAPH).run(fails(), fails())  # type: ignore[arg-type]  # never returns an answer


# Classes that can be separated.


@pytest.mark.parametrize(
    ("error", "standard_error", "loss", "as_good"),
    [
        (0.006, 0.003, 0.003, True),  # above the least by 0.004, both standard errors together
        (0.0061, 0.003, 0.003, False),  # clearly worse
        (0.0039, 0.0, 0.003, True),  # clearly worse, but less than 1 % of 0.4 is left
        (0.006, 0.003, 0.004, False),  # 1 % of the loss on the rows trained on is left
    ],
)
def test_a_model_of_classes_that_explains_nearly_all_is_left_for_a_clearly_better_one_only(
    error: float, standard_error: float, loss: float, as_good: bool
) -> None:
    null, small, least = (
        dcgs.PathPoint(0.0, 0.4, 0.1, 0.4, 0.0),
        dcgs.PathPoint(9.0, error, standard_error, loss, 1.0),
        dcgs.PathPoint(90.0, 0.002, 0.001, 0.0001, 1.0),
    )
    classes = RadiusPath((small, least), null, 0, 0, 1, "", ((), ()), enough=0.01)
    assert small.is_as_good_as(least, null, 0.01) == as_good
    assert classes.best.radius == (9.0 if as_good else 90.0)
    assert replace(classes, enough=0.0).best.radius == 90.0  # a regression


@pytest.mark.parametrize("features", [5, 70])
def test_the_path_of_classes_that_can_be_separated_ends_at_a_moderate_radius(features: int) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    A = 0.3 * rng.standard_normal((120, features))
    A[np.arange(120), y] += 8.0
    model = DecentralizedLogisticRegression(graph=GRAPH, standardize=False, gap=1e-3)
    model.fit(A, y, sites=np.arange(120) // 40)
    for path in model.path_:
        assert path.best.error < 0.01 * path.null.error
    assert model.radius_.max() < 5.0  # the centers are 11 apart
    assert model.score(A, y) == 1.0


def test_the_path_of_a_regression_without_noise_goes_on_to_the_true_size() -> None:
    rng = np.random.default_rng(1)
    A = rng.standard_normal((120, 5))
    model = DecentralizedLasso(graph=GRAPH, standardize=False)
    model.fit(A, A @ [2.0, -1.0, 0.0, 0.0, 0.0], sites=np.arange(120) // 40)
    assert model.radius_ > 2.9  # the true one is 3
