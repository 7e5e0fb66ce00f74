"""Fits whose sums are masked: the models of open ones, and nothing for curious neighbors to find."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

import dcgs
import planted
from attackers import Sites, class_sums, level_rows, score_cells
from dcgs.estimators import DecentralizedCompletion, DecentralizedLasso, DecentralizedLogisticRegression
from dcgs.floors import Floors
from dcgs.learn.floors import above_floors
from dcgs.learn.sums import Request
from fit_runs import alone
from secure_runs import chi_square


@given(
    numbers=st.lists(st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=2), min_size=3, max_size=5),
    masked=st.sampled_from([True, "unmasked"]),
    make=st.sampled_from([nx.path_graph, nx.complete_graph]),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_extremes_flags_and_counts_are_those_of_open_reductions(
    numbers: list[list[float]], masked: Any, make: Any
) -> None:
    graph, values = make(len(numbers)), {i: [own] for i, own in enumerate(numbers)}
    flags = {i: [np.sign(np.abs(own))] for i, own in enumerate(numbers)}
    counts = {i: {"all": 4, f"only {i}": 1} for i in values}
    requests = [
        Request("least", values, "min"),
        Request("largest", values, "max"),
        Request("flags", flags, "any"),
        Request("texts", counts, "counts", Floors(5, 2)),
        Request("names", {i: [f"name {i % 2}"] for i in values}, "union"),
    ]

    def asked(secure: Any) -> Any:
        def program() -> Any:
            return (yield requests)

        (answer,) = dcgs.Reductions(graph, secure=secure).run(program())
        return answer

    for ours, theirs in zip(asked(masked), asked(False), strict=True):
        np.testing.assert_equal(ours, theirs)


@pytest.mark.parametrize(("numbers", "rounds"), [(3, 1), (30_000, 2)])
def test_on_a_complete_graph_short_masked_sums_take_one_round(numbers: int, rounds: int) -> None:
    """The totals are the same integers as along a tree; the words of long arrays would be many."""
    values = {i: [np.linspace(0.1, 7.0 + i, numbers)] for i in range(4)}
    complete = dcgs.Reductions(nx.complete_graph(4), secure=True)
    complete.sum("the magnitude", values)
    (total,) = complete.sum("the magnitude", values)
    assert complete.sent[-1].rounds == rounds
    path = dcgs.Reductions(nx.path_graph(4), secure=True)
    path.sum("the magnitude", values)
    (same,) = path.sum("the magnitude", values)
    assert total.tobytes() == same.tobytes()


@pytest.mark.parametrize("make", [nx.complete_graph, nx.path_graph])
def test_the_root_alone_reads_how_many_are_in_a_cell(make: Any) -> None:
    """Others get flags: with one round for all, each agent would read counts that may be about few people."""
    people = {0: [3, 9, 5], 1: [4, 0, 5], 2: [4, 1, 0]}
    seen: list[Any] = []
    watch = dcgs.Lockstep(on_message=lambda k, i, j, arrays: seen.extend((i, array) for array in arrays))
    network = dcgs.Reductions(make(3), watch, secure=True)
    (flags,) = network.reduced(above_floors("cells", people, Floors(10, 2)))
    assert flags.tolist() == [1.0, 1.0, 1.0]
    (flags,) = network.reduced(above_floors("cells", people, Floors(10, 3)))
    assert flags.tolist() == [1.0, 0.0, 0.0]
    plain = [(i, array) for i, array in seen if array.dtype == np.float64]
    assert {len(array) for _, array in plain} == {1, 3}  # how many arrays an answer has, and the flags
    assert {i for i, array in plain if len(array) == 3} == {network.root}
    assert all(set(array.tolist()) <= {0.0, 1.0} for _, array in plain if len(array) == 3)


@pytest.mark.parametrize("make", [nx.complete_graph, nx.path_graph])
def test_masked_sums_of_several_requests_are_one(make: Any) -> None:
    """Together they take the rounds of the longest; their results are as without the others."""
    numbers = {i: [[3.0 * i, -7.0]] for i in range(4)}
    counts = {i: {"all": 5, "a text of many words, longer than what is sent at first": 4} for i in range(4)}
    requests = [
        Request("sums", numbers),
        Request("flags", {i: [[float(i == 2), 0.0]] for i in range(4)}, "any"),
        Request("texts", counts, "counts", Floors(5, 2)),
        Request("bounds", numbers, "bound"),
        above_floors("cells", {i: [i] for i in range(4)}, Floors(5, 2)),
    ]

    def alone(request: Request) -> Any:
        return (yield request)

    def together() -> Any:
        return (yield requests)

    network = dcgs.Reductions(make(4), secure=True)
    network.sum("keys", {i: [1.0] for i in range(4)})
    single = [network.run(alone(request))[0] for request in requests]
    longest = max(record.rounds for record in network.sent[1:])
    network.sent.clear()
    (joint,) = network.run(together())
    np.testing.assert_equal(joint, single)
    assert network.rounds == longest


def test_a_bound_is_a_power_of_two_above_all_numbers() -> None:
    network = dcgs.Reductions(nx.path_graph(3), secure=True)

    def program() -> Any:
        return (yield Request("bound", {i: [[3.0 * i, -100.0]] for i in range(3)}, "bound"))

    (((bound,)),) = network.run(program())
    assert bound.tolist() == [2.0**8, 2.0**8]


def fitted(model: Any, X: Any, y: Any, sites: int = 4) -> Any:
    return model.fit(X, y, sites=np.arange(len(y)) % sites)


DATA: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "diabetes": (DecentralizedLasso, load_diabetes, {}),
    "breast cancer": (DecentralizedLogisticRegression, load_breast_cancer, {"radius": 8.0}),
    "digits": (DecentralizedLogisticRegression, load_digits, {"radius": 3.0, "gap": 1e-2}),
    "digits, small gap": (DecentralizedLogisticRegression, load_digits, {"radius": 3.0, "gap": 1e-8}),
}


@pytest.mark.parametrize("name", DATA)
def test_a_masked_fit_is_the_open_one(name: str) -> None:
    kind, load, options = DATA[name]
    X, y = load(return_X_y=True)
    rows = np.flatnonzero(np.isin(y, (0, 1, 2))) if "digits" in name else np.arange(len(y))
    plain, masked = (fitted(kind(**options, secure=secure), X[rows], y[rows]) for secure in (False, True))
    np.testing.assert_allclose(masked.radius_, plain.radius_, rtol=1e-12)  # of sums, which round
    scale = float(np.abs(plain.coef_).max())
    np.testing.assert_allclose(masked.coef_, plain.coef_, rtol=0.0, atol=1e-9 * scale)
    assert masked.score(X[rows], y[rows]) == pytest.approx(plain.score(X[rows], y[rows]), abs=1e-6)


@pytest.mark.parametrize("make", [nx.complete_graph, nx.cycle_graph])
@pytest.mark.parametrize("name", DATA)
def test_a_masked_fit_takes_two_rounds_more_than_the_open_one_at_most(name: str, make: Any) -> None:
    kind, load, options = DATA[name]
    X, y = load(return_X_y=True)
    graph = make(4)
    plain, masked = (fitted(kind(graph=graph, secure=secure, **options), X, y) for secure in (False, True))
    assert masked.rounds_ - plain.rounds_ <= 2


def test_the_largest_of_short_numbers_is_found_in_two_sums() -> None:
    network = dcgs.Reductions(nx.complete_graph(3), secure=True)
    network.sum("keys", {i: [1.0] for i in range(3)})
    for numbers, rounds in (([0.5, 4.5, 5.0], 2), ([-4.5, -2.0, -2.0], 2), ([0.1, 0.3, 0.2], 8)):
        network.sent.clear()
        assert network.max("ratings", {i: [[own]] for i, own in enumerate(numbers)})[0].tolist() == [
            max(numbers)
        ]
        assert network.rounds == rounds


def test_masked_ratings_are_the_open_ones() -> None:
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 24, 300), rng.integers(0, 12, 300)
    users, items = np.unique(np.stack([users, items]), axis=1)
    values = 3.0 + (users % 3) - (items % 2) + 0.3 * rng.standard_normal(len(users))
    plain, masked = (
        DecentralizedCompletion(secure=secure).fit(users, items, values, sites=users // 8)
        for secure in (False, True)
    )
    assert masked.radius_ == pytest.approx(plain.radius_, rel=1e-9)
    at = masked.predict(users, items), plain.predict(users, items)
    # The first radius is that of a norm of what offsets leave, by sums.
    np.testing.assert_allclose(*at, rtol=0.0, atol=1e-6)


def test_a_path_is_masked_too() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((3, 60, 8))
    b = A @ [3.0, -2.0, 0, 0, 0, 0, 0, 0] + rng.standard_normal((3, 60))
    cuts = slice(40), slice(40, 60)
    train, held_out = ({i: dcgs.LeastSquares(A[i, k], b[i, k]) for i in range(3)} for k in cuts)
    fold = dcgs.Fold(train, held_out)
    seen: list[np.ndarray] = []
    runtime = dcgs.Lockstep(on_message=lambda r, i, j, arrays: seen.extend(arrays if j == 1 else ()))

    def found(secure: bool, where: Any = None) -> dcgs.RadiusPath:
        return dcgs.path(fold, lambda r: dcgs.L1Ball(8, r), nx.path_graph(3), runtime=where, secure=secure)

    masked, plain = found(True, runtime), found(False)
    np.testing.assert_allclose([p.error for p in masked.points], [p.error for p in plain.points], rtol=1e-9)
    assert {array.dtype for array in seen} == {np.dtype(np.uint8), np.dtype(np.uint64)}


def test_two_sites_are_refused_with_the_reason() -> None:
    X, y = load_diabetes(return_X_y=True)
    with pytest.raises(ValueError, match=r"^masked sums need at least 3 agents; there are 2: with two"):
        fitted(DecentralizedLasso(secure=True), X, y, sites=2)


# Attackers.


def hospitals(folder: Path, seed: int) -> list[pd.DataFrame]:
    """Write four hospitals: the last has one ill patient, and one of a level of their own."""
    rng, tables = np.random.default_rng(seed), []
    for site, n in enumerate((200, 160, 120, 100)):
        table = pd.DataFrame(
            {
                "age": rng.normal(60, 12, n).round(),
                "creatinine": rng.gamma(8, 0.15, n).round(2),
                "hb": rng.normal(13, 1.5, n).round(1),
                "crp": rng.gamma(1, 20, n).round(1),
                "ward": rng.choice(["surgery", "medicine"], n),
                "ill": rng.choice(["no", "yes"], n, p=[0.8, 0.2]),
            }
        )
        if site == 3:
            table["ill"] = "no"
            table.loc[7, "ill"], table.loc[11, "ward"] = "yes", "isolation"
        table.to_csv(folder / f"h-{site}.csv", index=False)
        tables.append(table)
    return tables


def attacked(folder: Path, seed: int, options: str) -> tuple[list[int], list[int], int]:
    """Return whom attackers find who see what the last site sends: by class, by level, and by scores."""
    tables = hospitals(folder, seed)
    command = f"fit logistic --data {folder}/h-{{agent}}.csv --target ill --radius 3 --graph star"
    command += " --method-option form=newton"  # level rows are in Hessians
    record = folder / "messages.npz"
    assert alone(f"{command} --out {folder}/m --no-report --record-messages {record} {options}") == 0
    messages = list(dcgs.recorded_messages(record))
    meta = json.loads(str(np.load(folder / "m" / "agent-000.npz")["meta"]))
    features = [
        f"{column['name']}={level}" if column.get("levels") else column["name"]
        for column in meta["reading"]["columns"]
        for level in column.get("levels") or [""]
    ]
    sites = Sites.of(features, tables, "ill")
    patients = tables[3][list(sites.numeric)]
    rare = "ward=isolation"
    by_level = level_rows(messages, 3, patients, rare, sites) if rare in features else []
    # A histogram of scores has a cell for each step of 0.1 from −30 to 30, and two beyond.
    return class_sums(messages, 3, patients), by_level, score_cells(messages, 3, 602)


@pytest.mark.parametrize("seed", range(2))
def test_neighbors_find_patients_in_open_messages_and_none_in_masked_ones(seed: int, tmp_path: Path) -> None:
    by_class, by_level, _ = attacked(tmp_path, seed, "--held-out 0 --open")
    assert (by_class, by_level) == ([7], [11])
    assert attacked(tmp_path, seed, "--force --held-out 0") == ([], [], 0)
    assert json.loads((tmp_path / "m" / "summary.json").read_text())["sums"] == "masked"
    without = "--min-count 1 --min-sites 1"  # masks alone
    assert attacked(tmp_path, seed, f"--force --held-out 0 {without}") == ([], [], 0)
    messages = [m for m in dcgs.recorded_messages(tmp_path / "messages.npz") if m.sender == 3]
    arrays = [array for message in messages for array in message.arrays]
    # Texts of the schema and public keys are not masked; all else is.
    assert {array.dtype for array in arrays} == {np.dtype(np.uint8), np.dtype(np.uint64)}
    words = [array.tobytes() for array in arrays if array.dtype == np.uint64]
    # 255 degrees of freedom: 400 is exceeded with a probability of 2e-8.
    assert chi_square(b"".join(words)) < 400.0


def test_histograms_of_scores_show_single_rows_unless_they_are_masked(tmp_path: Path) -> None:
    *_, cells = attacked(tmp_path, 0, "--held-out 0.1 --open")
    assert cells > 0
    *_, cells = attacked(tmp_path, 0, "--held-out 0.1 --force")
    assert cells == 0


def test_a_measured_fit_cannot_be_masked(tmp_path: Path, capsys: Any) -> None:
    hospitals(tmp_path, 0)
    command = f"fit logistic --data {tmp_path}/h-{{agent}}.csv --target ill --radius 3 --out {tmp_path}/m"
    with pytest.raises(SystemExit):
        alone(f"{command} --measure")
    assert "--measure reads the models" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize("kind", planted.PATIENTS)
def test_planted_patients_are_found_in_the_open_and_not_by_default(kind: str, tmp_path: Path) -> None:
    """``python tests/planted.py 200`` has 200 of them, and ratings."""
    assert planted.patient(tmp_path, kind, 1, planted.OPEN)[:2] == (True, False)
    assert planted.patient(tmp_path, kind, 1, planted.DEFAULT)[:2] == (False, kind == "one row")


@pytest.mark.parametrize(("kind", "count"), [("a shop of 20", 20), ("items of one rater", 4)])
def test_planted_ratings_are_found_in_the_open_and_not_by_default(
    kind: str, count: int, tmp_path: Path
) -> None:
    assert planted.shop(tmp_path, kind, 1000, planted.OPEN) == (count, count)
    assert planted.shop(tmp_path, kind, 1000, planted.DEFAULT) == (0, count)
