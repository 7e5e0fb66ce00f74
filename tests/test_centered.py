"""Centered sparse matrices: every operation equals that of the filled-in matrix."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp

import dcgs
from dcgs.atoms import Sparse, Spike
from dcgs.objectives.centered import CenteredMap, CenteredMatrix
from dcgs.objectives.maps import DenseMap

# Sums of some dozens of products of numbers of size 1.
ROUNDING = 1e-11


def pair(n: int, d: int) -> tuple[CenteredMap, DenseMap]:
    rng = np.random.default_rng(n)
    S = sp.csr_array(sp.random(n, d, density=0.2, rng=rng))
    u, v = rng.uniform(0.5, 1.5, n), rng.standard_normal(d)
    return CenteredMap(CenteredMatrix.of(S, u, v), (d,)), DenseMap(S.toarray() - np.outer(u, v), (d,))


def near(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, rtol=ROUNDING, atol=ROUNDING)


def test_a_centered_map_equals_that_of_the_dense_matrix() -> None:
    for n, d in ((30, 12), (12, 30)):
        centered, dense = pair(n, d)
        rng = np.random.default_rng(0)
        x, r, w = rng.standard_normal(d), rng.standard_normal(n), rng.uniform(0.5, 2.0, n)
        near(centered.image(x), dense.image(x))
        near(centered.adjoint(r), dense.adjoint(r))
        near(centered.gram(w), dense.gram(w))
        near(centered.column_squares, dense.column_squares)
        near(centered.norm_bound, dense.norm_bound)
        assert centered.entries == centered.A.S.nnz
        near(centered.largest_eigenvalue, dense.largest_eigenvalue)
        h = rng.uniform(0.5, 2.0, d)
        near(centered.largest_eigenvalue_by(h), dense.largest_eigenvalue_by(h))
        for atom in (Spike(3, -2.0, (d,)), Sparse(np.array([1, 4]), np.array([2.0, 1.0]), (d,))):
            near(centered.image_of_atom(atom), dense.image_of_atom(atom))


def test_a_run_on_centered_data_finds_the_model_of_the_dense_data() -> None:
    maps = [pair(n, 90) for n in (40, 41, 120)]
    targets = [np.random.default_rng(n).standard_normal(maps[n][0].size) for n in range(3)]
    answers = []
    for which in (0, 1):
        f = [dcgs.Objective(dcgs.SquaredLoss(b), both[which]) for b, both in zip(targets, maps, strict=True)]
        answers.append(dcgs.minimize(f, dcgs.L1Ball(90, 1.0), nx.path_graph(3), gap=1e-6))
    # Both runs take the same Newton steps, whose models are minimized up to a part of the gap.
    np.testing.assert_allclose(answers[0].x, answers[1].x, atol=1e-6)
    assert answers[0].rounds == answers[1].rounds
