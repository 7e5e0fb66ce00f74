"""Private fits: what one row can change, what the model is worth, the budget, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcgs import Lockstep, recorded_messages
from dcgs.estimators import DecentralizedLasso, DecentralizedLogisticRegression
from dcgs.learn import Rows, Sites
from dcgs.learn.files.private import Given
from dcgs.learn.files.tables import Column, Table
from dcgs.learn.private import (
    _UNIT,
    Bounds,
    PrivacyBudget,
    PrivateSpec,
    _cut_gradient,
    _Scale,
    _scaled,
    _slope,
    fit_private,
)
from dcgs.learn.sums import Reductions, Request
from dcgs.runtime.ledger import KEYS
from dcgs.secure.noise import SIGMA
from fit_runs import alone

SITES = 4
WIDE = Bounds(np.full(3, -4.0), np.full(3, 4.0), (-10.0, 10.0))
LOGISTIC = PrivateSpec("logistic", 10.0, WIDE, epsilon=1.0)
SQUARED = replace(LOGISTIC, loss="squared")


def rows(n: int, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, 3))
    z = A @ [2.0, -1.0, 0.0] + 0.5
    return A, z + 0.3 * rng.standard_normal(n), np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-z)), 1.0, -1.0)


def sites(A: Any, b: Any, secure: bool = True) -> Sites[Rows]:
    network = Reductions(nx.complete_graph(SITES), secure=secure)
    parts = np.array_split(np.arange(len(A)), SITES)
    data = {i: Rows(A[part], b[part]) for i, part in enumerate(parts)}
    return Sites(network, data, {i: f"site {i}" for i in data})


def test_the_model_of_many_rows_explains_what_there_is_to_explain() -> None:
    A, y, labels = rows(20_000)
    fit = fit_private(sites(A, labels), LOGISTIC)
    loss = np.logaddexp(0.0, -labels * fit.model.image(A)).mean()
    best = np.logaddexp(0.0, -labels * (A @ [2.0, -1.0, 0.0] + 0.5)).mean()
    # Noise has no seed: 30 fits lost 0.2 to 1.9 % of what the best model explains.
    assert loss - best < 0.06 * (np.log(2.0) - best)
    assert fit.epsilon == pytest.approx(1.0)
    assert abs(fit.rows - 20_000) < 400.0
    squared = fit_private(sites(A, y), SQUARED)
    errors = y - squared.model.image(A)
    assert errors.var() < 0.1 * y.var()


def test_noisy_numbers_are_summed_exactly_and_their_magnitudes_are_not_asked_for() -> None:
    A, _, labels = rows(400)
    given = sites(A, labels)
    fit_private(given, replace(LOGISTIC, steps=2))
    sent = [(record.name, record.operation) for record in given.network.sent]
    assert sent == [("noisy number of rows", "integers"), *[("noisy sum of gradients", "integers")] * 2]
    large = {i: [np.array([2.0**40 + i, -3.0])] for i in range(SITES)}

    def program() -> Any:
        return (yield Request("numbers", large, "integers"))

    ((total,),) = given.network.run(program())
    assert total.tolist() == [SITES * 2.0**40 + 6.0, -3.0 * SITES]


finite = st.floats(-1e6, 1e6)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(finite, min_size=3, max_size=3),
    finite,
    st.sampled_from(["logistic", "squared"]),
    st.integers(0, 99),
)
def test_one_row_changes_the_integers_by_no_more_than_is_accounted(
    row: list[float], target: float, loss: Any, seed: int
) -> None:
    A, y, labels = rows(30, seed)
    spec, b = (LOGISTIC, labels) if loss == "logistic" else (SQUARED, y)
    last = np.sign(target) or 1.0 if loss == "logistic" else target
    x = np.random.default_rng(seed).uniform(-10.0, 10.0, 4)
    rho, most = 0.01, spec.limit(10.0 ** (seed % 6), honest=3)
    assert 0.0 < most <= spec.largest == sqrt(spec.norm**2 + 1.0)
    scale, sums = _Scale.of(most, 4, rho, honest=3), []
    for data in (Rows(A, b), Rows(np.vstack([A, row]), np.append(b, last))):
        Z, targets = _scaled(data, spec)
        sums.append(np.rint(scale.factor * _cut_gradient(loss, Z, targets, x, most)))
    change = float(np.linalg.norm(sums[1] - sums[0]))
    assert change**2 / (2.0 * 3 * SIGMA**2) <= rho * (1.0 + 1e-9)


def test_the_noise_of_sites_that_do_not_collude_is_what_is_accounted() -> None:
    assert LOGISTIC.limit(1e9, honest=3) == LOGISTIC.largest > LOGISTIC.limit(100.0, honest=3)
    scale = _Scale.of(2.0, 4, 0.01, honest=3)
    few = _Scale.of(2.0, 4, 0.01, honest=1)
    noise = scale.noisy({0: np.zeros(5000)})[0][0]
    assert noise.std() == pytest.approx(SIGMA, rel=0.05)
    # One honest site alone must hide a row behind its own noise: sums have fewer units.
    assert few.factor < 0.6 * scale.factor


def test_a_budget_is_spent_before_anything_leaves_and_refuses_more(tmp_path: Path) -> None:
    budget = PrivacyBudget(tmp_path / "budget.json", epsilon=2.0, delta=1e-6)
    assert budget.spend(LOGISTIC.rho, "first") == pytest.approx(1.0)
    assert 1.4 < budget.spend(LOGISTIC.rho, "second") < 1.5
    assert budget.spend(LOGISTIC.rho, "third") < 2.0
    before = budget.path.read_bytes()
    with pytest.raises(ValueError, match=r"ε is 2 \(δ = 1e-06\), 1\.806 of it is spent by 3 fits, .* 2\.112"):
        budget.spend(LOGISTIC.rho, "fourth")
    assert budget.path.read_bytes() == before
    assert [entry["fit"] for entry in json.loads(before)["spent"]] == ["first", "second", "third"]


def test_what_would_break_the_promise_is_refused() -> None:
    A, _, labels = rows(40)
    with pytest.raises(ValueError, match=r"^the sums of a private fit must be masked, .* Use secure=True"):
        fit_private(sites(A, labels, secure=False), LOGISTIC)
    with pytest.raises(
        ValueError, match=r"^there must be at least two sites that do not collude; got 4 sites and 3"
    ):
        fit_private(sites(A, labels), replace(LOGISTIC, colluders=3))
    weighted = {0: Rows(A, labels, np.ones(40))}
    with pytest.raises(ValueError, match=r"^rows of a private fit must count once each; got weights\."):
        fit_private(replace(sites(A, labels), data={**sites(A, labels).data, **weighted}), LOGISTIC)
    with pytest.raises(ValueError, match=r"^the target of a lasso must have bounds; got none\."):
        PrivateSpec("squared", 1.0, Bounds(np.zeros(1), np.ones(1)), epsilon=1.0)
    with pytest.raises(ValueError, match=r"^each column must have a lower bound below its upper one; got "):
        Bounds(np.array([0.0, 1.0]), np.ones(2))
    with pytest.raises(
        ValueError, match=r"^there must be bounds for each column; there are 3 for 2 columns\.$"
    ):
        fit_private(sites(A[:, :2], labels), LOGISTIC)


# The doors: the command and the estimators.


def write_tables(folder: Path, n: int = 3000) -> str:
    """Write three tables and bounds; return a command that fits them."""
    A, y, labels = rows(n, 5)
    for i in range(3):
        lines = [f"{a:.4f},{['x', 'y'][int(b > 0.3)]},{c:.4f},{['no', 'yes'][int(label > 0.0)]},{t:.3f}"
                 for (a, b, c), label, t in zip(A[i::3], labels[i::3], y[i::3], strict=True)]  # fmt: skip
        (folder / f"s-{i}.csv").write_text("\n".join(["a,kind,c,ill,cost", *lines]) + "\n")
    (folder / "bounds.csv").write_text(
        "column,low,high,levels\na,-4,4,\nkind,,,x|y\nc,-4,4,\nill,,,no|yes\ncost,-9,9,\n"
    )
    (folder / "cost.csv").write_text("column,low,high,levels\na,-4,4,\nkind,,,x|y\nc,-4,4,\ncost,-9,9,\n")
    (folder / "ill.csv").write_text("column,low,high,levels\na,-4,4,\nkind,,,x|y\nc,-4,4,\nill,,,no|yes\n")
    return f"--data {folder}/s-{{agent}}.csv --radius 8 --no-report --out {folder}/m"


@pytest.mark.parametrize(("problem", "target"), [("logistic", "ill"), ("lasso", "cost")])
def test_the_command_fits_and_its_budget_refuses_a_second_fit(
    problem: str, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_tables(tmp_path)
    command = f"fit {problem} {data} --target {target} --bounds {tmp_path}/{target}.csv --epsilon 2"
    assert alone(f"{command} --budget 2.5 --record-messages {tmp_path}/r.npz") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "rows in all are needed (a signal of 50)" in printed
    assert "ε = 2" in printed
    told = json.loads((tmp_path / "m" / "summary.json").read_text())
    assert told["privacy"]["epsilon"] == pytest.approx(2.0)
    assert told["certified"] is False
    sums = {entry["sum"] for entry in told["ledger"]}
    assert sums == {KEYS, "noisy number of rows", "noisy sum of gradients"}
    # All that leaves a site: public keys and their like, and masked words. No schema, no count, no checksum.
    sent = [message for message in recorded_messages(tmp_path / "r.npz") if message.sender == 2]
    shapes = {(array.dtype.name, array.shape) for message in sent for array in message.arrays}
    # They are flooded: a row begins with its agent.
    assert shapes == {("uint8", (1, 1 + 3 * 32)), ("uint64", (1, 1 + 1 + 7)), ("uint64", (1, 1 + 5 + 7))}
    assert alone(f"predict {tmp_path}/m --data {tmp_path}/s-0.csv --out {tmp_path}/p.csv") == 0
    assert alone(f"show {tmp_path}/m") == 0
    with pytest.raises(SystemExit):
        alone(f"{command} --force")
    assert "ε is 2.5 (δ = 1e-06), 2 of it is spent by 1 fits" in " ".join(capsys.readouterr().err.split())
    budgets = [json.loads((tmp_path / f"s-{i}.csv.budget.json").read_text()) for i in range(3)]
    assert [len(budget["spent"]) for budget in budgets] == [1, 1, 1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--radius auto", "must be given --radius as a number"),
        ("--held-out 0.2", "must do without 'held-out'"),
        ("--open", "must do without 'open'"),
        ("--min-count 20 --class-weight balanced", "must do without 'min-count', 'class-weight'"),
        ("--method dfw --rounds 3", "must do without"),
        ("--budget 0.1", "must not be exceeded: ε is 0.1"),
        ("--colluders 2", "at least two sites that do not collude"),
        ("--target kind", "must have a line for the target"),
    ],
)
def test_a_private_command_refuses_what_would_be_computed_from_rows(
    options: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_tables(tmp_path, 300)
    command = f"fit logistic {data} --target ill --bounds {tmp_path}/ill.csv --epsilon 1 {options}"
    if "kind" in options:
        (tmp_path / "ill.csv").write_text("column,low,high,levels\na,-4,4,\n")
    with pytest.raises(SystemExit):
        alone(command)
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.glob("*.budget.json"))


def test_each_row_is_prepared_by_itself(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("column,low,high,levels\na,0,4,\nkind,,,x|y\nill,,,no|yes\n")
    given = Given.read(tmp_path / "b.csv", "ill", of_classes=True)
    columns = tuple(map(Column.of_texts, (["1", "oops", "", "9"], ["x", "z", "y", "x"])))
    target = Column.of_texts(["yes", "no", "perhaps", "no"])
    table = Table(Path("t.csv"), columns, target, ("a", "kind"), "ill", 2, np.arange(4))
    local = given.rows(table)
    assert local.A.tolist() == [[1.0, 1.0, 0.0], [2.0, 0.5, 0.5], [9.0, 1.0, 0.0]]
    assert local.targets.tolist() == [1.0, -1.0, -1.0]


def test_no_row_changes_how_others_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A decimal mark that is found from a file would follow from all of its rows."""
    data = write_tables(tmp_path, 300)
    command = f"fit logistic {data} --target ill --bounds {tmp_path}/ill.csv --epsilon 1 --budget 9 --force"
    text = (tmp_path / "s-0.csv").read_text().replace(",", ";")
    (tmp_path / "s-0.csv").write_text(text + "1,5;x;0,1;yes;2,0\n")
    assert alone(command) == 0
    capsys.readouterr()
    (tmp_path / "s-0.csv").write_text("a;kind;c;ill;cost\n" + "0,1;x;0,2;yes;1,0\n" * 20)
    with pytest.raises(SystemExit):
        alone(command)
    error = " ".join(capsys.readouterr().err.split())
    assert "columns must have numbers, or levels that are given; 'a', 'c' of" in error
    assert "See --decimal" in error


def test_estimators_fit_with_a_promise_and_write_it_down(tmp_path: Path) -> None:
    A, y, labels = rows(6000)
    budget = PrivacyBudget(tmp_path / "b.json", 2.0, 1e-6)
    limits = np.full(3, 4.0)
    promised: dict[str, Any] = {"radius": 8.0, "epsilon": 2.0, "budget": budget}
    bounds = Bounds(-limits, limits, labels=(-1, 1))
    model = DecentralizedLogisticRegression(**promised, bounds=bounds).fit(A, labels.astype(int))
    assert model.private_.epsilon == pytest.approx(2.0)
    assert model.score(A, labels.astype(int)) > 0.7
    assert len(json.loads(budget.path.read_text())["spent"]) == 1
    lasso = DecentralizedLasso(**promised | {"budget": None}, bounds=Bounds(-limits, limits, (-10.0, 10.0)))
    assert lasso.fit(A, y).score(A, y) > 0.8
    with pytest.raises(ValueError, match=r"^the privacy budget of .* must not be exceeded"):
        model.fit(A, labels.astype(int))
    with pytest.raises(ValueError, match=r"^a private fit must be given its two classes"):
        DecentralizedLogisticRegression(**promised, bounds=Bounds(-limits, limits)).fit(A, labels)
    with pytest.raises(ValueError, match=r"^a private fit must have a radius that is a number"):
        DecentralizedLasso(epsilon=1.0, bounds=bounds).fit(A, y)
    with pytest.warns(UserWarning, match=r"^the signal is \d+, below 50"):
        DecentralizedLasso(radius=8.0, epsilon=0.5, bounds=lasso.bounds).fit(A[:900], y[:900])


# Vertices, with a root that is trusted.


def test_vertices_find_a_model_and_only_the_root_reads_totals() -> None:
    A, _, labels = rows(20_000)
    seen: list[Any] = []
    runtime = Lockstep(on_message=lambda k, i, j, arrays: seen.extend((i, array) for array in arrays))
    given = sites(A, labels)
    network = Reductions(nx.path_graph(SITES), runtime, secure=True)
    spec = replace(LOGISTIC, trusted="root", radius=12.0, epsilon=4.0)
    fit = fit_private(replace(given, network=network), spec)
    loss = np.logaddexp(0.0, -labels * fit.model.image(A)).mean()
    best = np.logaddexp(0.0, -labels * (A @ [2.0, -1.0, 0.0] + 0.5)).mean()
    # With three features its steps are coarse: 30 fits of 10,000 rows lost 52 to 72 %.
    assert loss - best < 0.9 * (np.log(2.0) - best)
    # What is not masked: keys, the noisy number of rows, and the numbers of vertices.
    told = {float(array.ravel()[0]) for i, array in seen if array.dtype == np.float64 and array.size == 1}
    assert len({value for value in told if value != round(value) or value >= 8.0}) <= 1
    assert {array.size for _, array in seen if array.dtype == np.float64} == {1}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(finite, min_size=3, max_size=3), st.integers(0, 99))
def test_one_row_changes_each_score_by_no_more_than_is_accounted(row: list[float], seed: int) -> None:
    A, _, labels = rows(30, seed)
    spec = replace(LOGISTIC, trusted="root")
    x, sums = np.random.default_rng(seed).uniform(-10.0, 10.0, 4), []
    for data in (Rows(A, labels), Rows(np.vstack([A, row]), np.append(labels, -1.0))):
        Z, targets = _scaled(data, spec, np.inf)
        sums.append(np.rint(_UNIT * (Z.T @ _slope("logistic", Z @ x, targets))))
    scale = np.ceil(2.0 * (_UNIT + 1.0) / spec.epsilon_of_vertex)
    change = float(np.abs(sums[1] - sums[0]).max())
    count_share = 0.01 * spec.rho
    assert count_share + spec.count * (2.0 * change / scale) ** 2 / 8.0 <= spec.rho * (1.0 + 1e-9)
