"""``dcgs bench completion``: every case has its numbers, and they are those of the data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dcgs.bench import completion
from dcgs.report.completion_figure import growth_figure

SMALL = {"ratings": 600, "rows": 40, "cols": 25, "agents": 3}


@pytest.mark.parametrize("method", ["mean", "offsets", "FastDCGS"])
def test_a_case_has_the_error_of_its_method_on_held_out_ratings(method: str) -> None:
    case = completion.Case("synthetic", method, 5.0, 60.0, **SMALL)
    row = completion.run(case)
    train, test = completion.load(case)
    assert (row["fitted"], row["shape"]) == (600, [40, 25])
    assert json.dumps(row)
    by_mean = np.sqrt(np.mean((test.values - train.values.mean()) ** 2))
    assert row["rmse"] == by_mean if method == "mean" else row["rmse"] < by_mean
    assert (row["bytes"] > 0) == (method != "mean")


def test_cases_that_grow_differ_in_one_number(tmp_path: Path) -> None:
    cases = list(completion.growth(True, 60.0, 0))
    names = [name for name, _ in cases]
    assert set(names) == {"ratings", "rows", "cols", "rank", "agents"}
    first = {name: [case for other, case in cases if other == name] for name in set(names)}
    for name, some in first.items():
        assert len({getattr(case, name) for case in some}) == len(some)
        others = {"ratings", "rows", "cols", "rank", "agents"} - {name}
        assert all(len({getattr(case, other) for case in some}) == 1 for other in others)
    rows = [
        {"grows": name, name: getattr(case, name), "cpu": 1, "bytes": 2, "memory": 3} for name, case in cases
    ]
    assert len(growth_figure(rows).axes) == 15


def test_dense_methods_run_only_where_their_points_fit() -> None:
    assert "DFW" in [case.method for case in completion.comparison("100k", 60.0, 0)]
    assert "DFW" not in [case.method for case in completion.comparison("1m", 60.0, 0)]
