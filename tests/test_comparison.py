"""Comparisons of runs: the tidy table, relative errors, figures and their files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs.datasets import lasso_synthetic


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    plt.switch_backend("agg")
    yield
    plt.close("all")


def run(method: dcgs.Method, rounds: int = 12, seed: int = 0) -> dcgs.Result:
    data = lasso_synthetic(samples=40, features=20, nonzeros=3, seed=seed)
    X, graph = dcgs.L1Ball(20, radius=150.0), nx.cycle_graph(4)
    return dcgs.minimize(data.objectives(4), X, graph, method, rounds=rounds)


@pytest.fixture(scope="module")
def results() -> dict[str, dcgs.Result]:
    return {"DFW": run(dcgs.DFW()), "NIDS": run(dcgs.NIDS(), rounds=30)}


def test_the_table_has_one_row_for_each_measurement_of_each_run(results: dict[str, dcgs.Result]) -> None:
    frame = dcgs.compare(results).frame
    assert frame.groupby("run", sort=False).size().to_dict() == {"DFW": 7, "NIDS": 31}
    of_dfw = frame[frame.run == "DFW"]
    for name, column in results["DFW"].history.columns().items():
        np.testing.assert_array_equal(of_dfw[name], column)


def test_relative_errors_refer_to_the_optimum_that_is_given(results: dict[str, dcgs.Result]) -> None:
    comparison = dcgs.compare(results, optimum=5.0)
    history = results["NIDS"].history
    expected = (history.worst_loss - 5.0) / (history.mean_loss[0] - 5.0)
    relative = comparison.frame.query("run == 'NIDS'").relative
    np.testing.assert_array_equal(relative, expected)
    assert relative.iloc[0] == 1.0


def test_without_an_optimum_they_refer_to_the_lowest_loss_that_any_run_has_seen(
    results: dict[str, dcgs.Result],
) -> None:
    comparison = dcgs.compare(results)
    lowest = min(
        min(each.history.mean_loss.min(), each.history.worst_loss.min()) for each in results.values()
    )
    assert comparison.optimum == lowest
    assert not comparison.is_optimum
    assert "lowest loss seen" in comparison.plot(y="relative").axes[0].get_title()
    assert "f*" in dcgs.compare(results, optimum=0.0).plot(y="relative").axes[0].get_title()


def test_the_cost_to_an_accuracy_is_that_of_the_first_measurement_below_it(
    results: dict[str, dcgs.Result],
) -> None:
    comparison = dcgs.compare(results, optimum=0.0)
    rounds = comparison.to_accuracy(0.5, "rounds")["NIDS"]
    relative = comparison.frame.query("run == 'NIDS'").set_index("rounds").relative
    assert rounds is not None
    assert relative[rounds] <= 0.5 < relative[rounds - 1]
    assert comparison.to_accuracy(1e-12) == {"DFW": None, "NIDS": None}


@pytest.mark.parametrize("x", ["rounds", "bytes", "lmo_calls", "seconds"])
def test_the_figure_shows_every_run_in_a_panel_for_each_measure(
    results: dict[str, dcgs.Result], x: str
) -> None:
    figure = dcgs.compare(results, optimum=0.0).plot(x)
    assert len(figure.axes) == 3
    for axes, measure in zip(figure.axes, ("relative", "gap", "disagreement"), strict=True):
        assert axes.get_yscale() == "log"
        for line, (name, result) in zip(axes.get_lines(), results.items(), strict=True):
            assert line.get_label() == name
            np.testing.assert_array_equal(line.get_xdata(), result.history.columns()[x])
            if measure != "relative":
                drawn = np.asarray(line.get_ydata(), dtype=float)
                column = result.history.columns()[measure]
                np.testing.assert_array_equal(drawn[column > 0.0], column[column > 0.0])


def test_a_history_draws_its_own_curves(results: dict[str, dcgs.Result]) -> None:
    figure = results["NIDS"].history.plot("bytes", y=("worst_loss", "local_loss"))
    assert [axes.get_title().splitlines()[-1] for axes in figure.axes] == ["maxᵢ f(xᵢ)", "Σᵢ fᵢ(xᵢ)"]
    assert figure.legends == []


@pytest.mark.parametrize(("ending", "head"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_a_figure_is_saved_as_png_pdf_or_svg_and_repeats_to_the_byte(
    results: dict[str, dcgs.Result], tmp_path: Path, ending: str, head: bytes
) -> None:
    comparison = dcgs.compare(results, optimum=0.0)
    first = comparison.save(tmp_path / "new" / f"runs.{ending}", x="bytes", y="gap").read_bytes()
    assert first.startswith(head)
    assert comparison.save(tmp_path / f"again.{ending}", x="bytes", y="gap").read_bytes() == first
    assert plt.get_fignums() == []


def test_the_papers_loss_is_never_drawn_alone(results: dict[str, dcgs.Result]) -> None:
    comparison = dcgs.compare(results)
    with pytest.raises(ValueError, match="local_loss must stand beside worst_loss or relative"):
        comparison.plot(y="local_loss")
    with pytest.raises(ValueError, match="local_loss must stand beside"):
        results["DFW"].history.plot(y=["local_loss", "disagreement"])
    assert len(comparison.plot(y=("local_loss", "worst_loss")).axes) == 2


def test_what_cannot_be_compared_is_refused_with_a_sentence(
    results: dict[str, dcgs.Result], tmp_path: Path
) -> None:
    other = run(dcgs.DFW(), rounds=2, seed=1)
    with pytest.raises(ValueError, match=r"one problem from one x0.*DFW: .*other: "):
        dcgs.compare({"DFW": results["DFW"], "other": other})
    with pytest.raises(ValueError, match="at least one run"):
        dcgs.compare({})
    with pytest.raises(TypeError, match=r"results\['DFW'\] must be a dcgs.Result or a dcgs.History; got 3"):
        dcgs.compare({"DFW": 3})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="optimum must be a finite number"):
        dcgs.compare(results, optimum=float("nan"))
    with pytest.raises(ValueError, match="x must be 'rounds', 'bytes', 'lmo_calls'"):
        dcgs.compare(results).plot("hours")
    with pytest.raises(ValueError, match=r"y must be .*'gap'.* got 'loss'"):
        dcgs.compare(results).plot(y="loss")
    with pytest.raises(ValueError, match="the ending of path must be 'pdf', 'png' or 'svg'; got 'jpg'"):
        dcgs.compare(results).save(tmp_path / "runs.jpg")


def test_without_matplotlib_a_figure_names_the_extra_to_install(
    results: dict[str, dcgs.Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'dcgs\[plot\]'"):
        dcgs.compare(results).plot()


def test_a_run_that_measured_nothing_is_refused_by_name() -> None:
    objectives = [dcgs.LeastSquares(np.eye(2), b) for b in ([1.0, 0.0], [0.0, 1.0])]
    run = dcgs.minimize(objectives, dcgs.L1Ball(2), nx.path_graph(2), rounds=3, every=None)
    with pytest.raises(ValueError, match=r"^results\['blind'\] must have measurements .*; it has none"):
        dcgs.compare({"blind": run})


def test_a_run_without_measurements_cannot_be_compared() -> None:
    data = lasso_synthetic(samples=20, features=10, nonzeros=2)
    run = dcgs.minimize(data.objectives(2), dcgs.L1Ball(10, radius=5.0), nx.path_graph(2), every=None)
    with pytest.raises(ValueError, match=r"results\['a'\] must have measurements to compare; it has none"):
        dcgs.compare({"a": run})
