"""The figures: readable axes, curves where the data are, marked look-alikes, and a line for every method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.testing import assert_allclose

from dcgs.curves import COLORS
from dcgs.datasets import SourceKind
from dcgs.link import Link
from dcgs.report.figures import encoded
from dcgs_bench.figures import line
from dcgs_bench.paper.figures import all_data_figure, paper_figure, study_figures
from dcgs_bench.paper.results import Findings
from study_sample import sample, with_columns

LINK = Link(2e6)
STUDY = sample(link=LINK)
every_experiment = pytest.mark.parametrize("findings", STUDY.findings, ids=lambda findings: findings.name)


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    return study_figures(STUDY)


def y_labels(axes: Axes) -> list[str]:
    low, high = axes.get_ylim()
    ticks = zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
    return [label.get_text() for place, label in ticks if low <= place <= high and label.get_text()]


def narrowed(findings: Findings, span: float) -> Findings:
    """Return two measures of the findings, with all of worst_loss between 3 and span times that."""
    curves = []
    for curve in findings.curves:
        count = len(curve.columns["worst_loss"])
        values = [3.0 * span ** (place / max(count - 1, 1)) for place in range(count)]
        curves.append(with_columns(curve, {**curve.columns, "worst_loss": values}))
    return replace(findings, curves=curves, measures=findings.measures[:2])


def test_there_is_a_figure_of_the_losses_and_one_of_measures_on_all_data(
    figures: dict[str, Figure],
) -> None:
    panels = {name: len(figure.axes) for name, figure in figures.items()}
    wanted = {f"{findings.name}-paper": 4 for findings in STUDY.findings}
    wanted |= {f"{findings.name}-all-data": 4 * (len(findings.measures) - 1) for findings in STUDY.findings}
    assert panels == wanted


@every_experiment
def test_the_papers_loss_is_above_the_worst_agents_on_the_same_axis(
    findings: Findings, figures: dict[str, Figure]
) -> None:
    paper, _, all_data, _ = figures[f"{findings.name}-paper"].axes
    assert "the paper's loss" in paper.get_ylabel().replace("\n", " ")
    assert "everyone's" in all_data.get_ylabel()
    assert paper.get_ylim() == all_data.get_ylim()


@pytest.mark.parametrize("span", [1.5, 9.9, 11.0, 60.0, 1e9])
def test_every_axis_has_labels_to_read_values_off(span: float) -> None:
    labels = y_labels(all_data_figure(narrowed(STUDY.findings[0], span), LINK).axes[0])
    assert 2 <= len(labels) <= 12
    assert len(set(labels)) == len(labels)


@every_experiment
def test_curves_are_drawn_against_modeled_time(findings: Findings, figures: dict[str, Figure]) -> None:
    axes = figures[f"{findings.name}-all-data"].axes
    assert "2 MB/s" in axes[-1].get_xlabel()
    for drawn, curve in zip(axes[3].get_lines(), findings.curves, strict=True):
        assert_allclose(np.asarray(drawn.get_xdata(), dtype=float), findings.time(curve, LINK))


def test_a_method_without_oracle_calls_has_no_curve_against_them_but_is_in_the_legend(
    figures: dict[str, Figure],
) -> None:
    figure, curves = figures[f"{STUDY.findings[0].name}-paper"], STUDY.findings[0].curves
    every, calling = (
        [one.label for one in curves],
        [one.label for one in curves if any(one.columns["lmo_calls"])],
    )
    assert len(calling) == len(every) - 1
    assert [[line.get_label() for line in axes.get_lines()] for axes in figure.axes[:2]] == [calling, every]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == every


@every_experiment
def test_a_look_alike_is_marked_in_every_panel_and_nothing_else_is(
    findings: Findings, figures: dict[str, Figure]
) -> None:
    axes = figures[f"{findings.name}-paper"].axes
    lookalike = findings.source.kind is SourceKind.LOOKALIKE
    assert [[text.get_text() for text in panel.texts] for panel in axes] == [
        ["look-alike\nnot the real data"] * lookalike
    ] * 4


def test_the_same_figure_has_the_same_bytes(figures: dict[str, Figure]) -> None:
    first, again = figures["lasso-synthetic-paper"], paper_figure(STUDY.findings[0], LINK)
    for kind, start in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
        drawn = encoded(first, kind)
        assert drawn == encoded(again, kind)
        assert drawn.startswith(start)


@pytest.mark.parametrize("colors", [COLORS, (*COLORS, "0.55")], ids=["7 colors", "8 colors"])
def test_the_first_28_methods_have_lines_of_their_own(colors: tuple[str, ...]) -> None:
    assert len({tuple(line(place, colors).values()) for place in range(28)}) == 28
