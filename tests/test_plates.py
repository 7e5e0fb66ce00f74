"""The print-ready figures: axes that can be read, curves where the data are, look-alikes marked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from numpy.testing import assert_allclose

from dcgs.datasets import Kind
from dcgs.experiments.link import Link
from dcgs.experiments.study import Findings
from dcgs.report.plates import encoded, honest_plate, losses_plate, plates
from study_sample import sample

STUDY = sample()
every_experiment = pytest.mark.parametrize("findings", STUDY.findings, ids=lambda findings: findings.name)


def y_labels(axes: Axes) -> list[str]:
    low, high = axes.get_ylim()
    ticks = zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
    return [label.get_text() for place, label in ticks if low <= place <= high and label.get_text()]


def narrowed(findings: Findings, span: float) -> Findings:
    """Return the findings with all of worst_loss between 3 and span times that."""
    curves = []
    for curve in findings.curves:
        count = len(curve.columns["worst_loss"])
        values = [3.0 * span ** (place / max(count - 1, 1)) for place in range(count)]
        curves.append(replace(curve, columns={**curve.columns, "worst_loss": values}))
    return replace(findings, curves=curves)


def test_there_is_a_figure_of_the_losses_and_one_of_the_honest_measures() -> None:
    panels = {name: len(figure.axes) for name, figure in plates(STUDY).items()}
    wanted = {f"{findings.name}-paper": 4 for findings in STUDY.findings}
    wanted |= {f"{findings.name}-honest": 4 * (len(findings.measures) - 1) for findings in STUDY.findings}
    assert panels == wanted


@every_experiment
def test_the_papers_loss_stands_over_the_worst_agents_on_the_same_axis(findings: Findings) -> None:
    paper, _, honest, _ = losses_plate(findings, Link()).axes
    assert "the paper's loss" in paper.get_ylabel().replace("\n", " ")
    assert "everyone's" in honest.get_ylabel()
    assert paper.get_ylim() == honest.get_ylim()


@pytest.mark.parametrize("span", [1.5, 4.0, 9.9, 11.0, 60.0, 1e3, 1e9])
def test_every_axis_has_labels_to_read_values_off(span: float) -> None:
    figure = honest_plate(narrowed(STUDY.findings[0], span), Link())
    labels = y_labels(figure.axes[0])
    assert 2 <= len(labels) <= 12
    assert len(set(labels)) == len(labels)


@every_experiment
def test_curves_are_drawn_against_modeled_time(findings: Findings) -> None:
    figure = honest_plate(findings, Link(2e6))
    assert "2 MB/s" in figure.axes[-1].get_xlabel()
    axes = figure.axes[3]
    for line, curve in zip(axes.get_lines(), findings.curves, strict=True):
        assert_allclose(np.asarray(line.get_xdata(), dtype=float), findings.time(curve, Link(2e6)))


@every_experiment
def test_a_look_alike_is_marked_in_every_panel_and_nothing_else_is(findings: Findings) -> None:
    marks = [[text.get_text() for text in axes.texts] for axes in losses_plate(findings, Link()).axes]
    lookalike = findings.source.kind is Kind.LOOKALIKE
    assert marks == [["look-alike\nnot the real data"] * lookalike] * 4


@pytest.mark.parametrize(("kind", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_the_same_figure_has_the_same_bytes(kind: str, start: bytes) -> None:
    first, again = (encoded(losses_plate(STUDY.findings[0], Link()), kind) for _ in range(2))
    assert first == again
    assert first.startswith(start)
