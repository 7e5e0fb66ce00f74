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

from dcgs.learn import Rows, Sites
from dcgs.learn.private import Bounds, PrivacyBudget, PrivateSpec, _Scale, _scaled, _slope, fit_private
from dcgs.learn.sums import Reductions, Request
from dcgs.secure.noise import SIGMA

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
    rho = 0.01
    scale, sums = _Scale.of(sqrt(spec.norm**2 + 1.0), 4, rho, honest=3), []
    for data in (Rows(A, b), Rows(np.vstack([A, row]), np.append(b, last))):
        Z, targets = _scaled(data, spec)
        sums.append(np.rint(scale.factor * (Z.T @ _slope(loss, Z @ x, targets))))
    change = float(np.linalg.norm(sums[1] - sums[0]))
    assert change**2 / (2.0 * 3 * SIGMA**2) <= rho * (1.0 + 1e-9)


def test_the_noise_of_sites_that_do_not_collude_is_what_is_accounted() -> None:
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
