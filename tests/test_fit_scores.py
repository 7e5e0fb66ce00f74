"""Scores of fits: those of all sites, by network sums, are those of pooled rows."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from sklearn.metrics import log_loss, r2_score, roc_auc_score

from dcgs.learn.linear.scores import (
    Comparison,
    auc,
    calibration,
    class_scores,
    fit_scores,
    number_scores,
    probabilities,
    warning,
)
from dcgs.learn.sites import Rows
from dcgs.learn.sums import Reductions

RNG = np.random.default_rng(3)
SIZES = (40, 0, 25, 60)


def sites(labels: bool) -> dict[int, tuple[Rows, Any]]:
    made = {}
    for i, rows in enumerate(SIZES):
        scores = 2.0 * RNG.standard_normal(rows)
        noisy = scores + 2.0 * RNG.standard_normal(rows)
        targets = np.where(noisy > 0.5, 1.0, -1.0) if labels else noisy
        made[i] = Rows(np.zeros((rows, 1)), targets), scores
    return made


def pooled(made: dict[int, tuple[Rows, Any]]) -> tuple[Any, Any]:
    return (
        np.concatenate([scores for _, scores in made.values()]),
        np.concatenate([site.targets for site, _ in made.values()]),
    )


def test_scores_of_labels_are_those_of_pooled_rows() -> None:
    made = sites(labels=True)
    network = Reductions(nx.cycle_graph(4))
    each, everyone = fit_scores(made, network, 0.4, labels=True)
    scores, signs = pooled(made)
    assert everyone.rows == sum(SIZES)
    expected = class_scores(scores, signs, 0.4)
    for name in ("accuracy", "log loss"):
        assert everyone.scores[name].model == pytest.approx(expected[name].model, rel=1e-12)
        assert everyone.scores[name].constant == pytest.approx(expected[name].constant, rel=1e-12)
    # Scores of two rows in one bin, of width 0.05, count as a tie.
    bins = np.digitize(scores, np.arange(-15.0, 15.025, 0.05))
    assert everyone.scores["AUC"].model == pytest.approx(roc_auc_score(signs, bins), rel=1e-12)
    assert everyone.scores["AUC"].model == pytest.approx(roc_auc_score(signs, scores), abs=3e-3)
    assert expected["log loss"].model == pytest.approx(log_loss(signs, probabilities(scores)), rel=1e-12)
    assert each[2].scores["AUC"].model == pytest.approx(roc_auc_score(made[2][0].targets, made[2][1]))
    assert (each[1].rows, each[1].scores) == (0, {})


def test_scores_of_numbers_are_those_of_pooled_rows() -> None:
    made = sites(labels=False)
    _, everyone = fit_scores(made, Reductions(nx.path_graph(4)), 0.3, labels=False)
    scores, targets = pooled(made)
    expected = number_scores(scores, targets, 0.3)
    for name, each in expected.items():
        assert everyone.scores[name].model == pytest.approx(each.model, rel=1e-9)
        assert everyone.scores[name].constant == pytest.approx(each.constant, rel=1e-9)
    assert expected["R²"].model == pytest.approx(r2_score(targets, scores), rel=1e-12)


def test_ties_count_half_in_the_auc_and_one_class_has_none() -> None:
    assert auc(np.zeros(4), np.array([1.0, -1.0, 1.0, -1.0])) == 0.5
    assert np.isnan(auc(np.zeros(2), np.ones(2)))


def test_calibration_groups_have_all_rows_in_order() -> None:
    scores = RNG.standard_normal(57)
    groups = calibration(scores, np.where(scores > 0.0, 1.0, -1.0))
    assert sum(group.rows for group in groups) == 57
    assert [group.predicted for group in groups] == sorted(group.predicted for group in groups)
    assert (groups[0].observed, groups[-1].observed) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("name", "model", "constant", "weighted", "warns"),
    [
        ("log loss", 0.3, 0.4, False, False),
        ("log loss", 0.4, 0.4, False, True),
        ("log loss", 0.9, 0.4, True, False),  # the AUC decides where classes are weighted
        ("RMSE", 1.0, 2.0, False, False),
        ("RMSE", 2.0, 1.0, False, True),
        ("RMSE", 0.0, 0.0, False, False),  # all targets are the same
    ],
)
def test_a_model_no_better_than_a_constant_is_warned_of(
    name: str, model: float, constant: float, weighted: bool, warns: bool
) -> None:
    beside = {"log loss": {"AUC": Comparison(0.8, 0.5)}, "RMSE": {}}[name]
    found = {name: Comparison(model, constant), **beside}
    assert (warning(found, weighted) is not None) == warns
