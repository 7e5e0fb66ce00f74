"""The best lower bound of f* − f(x⁰) so far, with all rounding errors counted against it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dcgs import LeastSquares, Objective, matrix_map
from dcgs.methods.certificate import Bounds, CertifiedGap, GapKind, GapTarget, excess
from loss_cases import LogCosh


def test_a_bound_by_a_linear_approximation_counts_all_rounding_errors() -> None:
    """f(x⁰) − f(x) is 10 ± 0.5, so f(x) − f(x⁰) is at least −10.5. The gap is at most 3.2."""
    bounds = Bounds()
    bounds.add_wolfe(CertifiedGap(3.0, 9.5, 0.2), error=0.5)
    assert bounds.lower == pytest.approx(-13.7, rel=1e-15)
    assert bounds.kind is GapKind.WOLFE


def test_the_least_value_of_losses_is_a_bound_if_all_of_them_know_it() -> None:
    bounds = Bounds()
    known, own = LeastSquares(np.eye(2), [1.0, 2.0]), Objective(LogCosh(np.ones(2)), matrix_map(np.eye(2)))
    bounds.add_least(10.0, excess(known, 5.0) + excess(own, 1.0))
    assert bounds.lower == -math.inf
    bounds.add_least(10.0, excess(known, 5.0) + excess(known, 1.0))
    # Rounded down, by a few units in the last place.
    assert -16.0 - 1e-14 <= bounds.lower < -16.0
    assert bounds.kind is GapKind.LEAST


def test_only_a_better_bound_replaces_the_best() -> None:
    bounds = Bounds()
    for lower, kind in ((-5.0, GapKind.LEAST), (-4.0, GapKind.DUAL), (-4.5, GapKind.WOLFE)):
        bounds.add(lower, kind)
    assert (bounds.lower, bounds.kind) == (-4.0, GapKind.DUAL)
    assert bounds.gap(3.0) == CertifiedGap(1.0, 3.0, 0.0, kind=GapKind.DUAL)


@pytest.mark.parametrize(
    ("wolfe", "is_wolfe"),
    [
        (CertifiedGap(0.9, 3.0, 0.0), True),
        (CertifiedGap(0.9, 3.0, 0.2), False),
        (CertifiedGap(1.1, 3.0, 0.0), False),
        # A Wolfe gap that is rounding error ends the run, if the other one is no success.
        (CertifiedGap(0.9, 3.0, 4.0), True),
    ],
)
def test_the_best_gap_is_the_smaller_one_after_adding_rounding_errors(
    wolfe: CertifiedGap, is_wolfe: bool
) -> None:
    """The gap by the best bound is 1."""
    best = Bounds(-4.0, GapKind.DUAL).best(wolfe, GapTarget(0.1))
    assert best == (wolfe if is_wolfe else CertifiedGap(1.0, 3.0, 0.0, kind=GapKind.DUAL))
