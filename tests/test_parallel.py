"""A product on several threads equals the product on one, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
from threadpoolctl import threadpool_info

import dcgs
from dcgs import parallel
from dcgs.datasets import lasso_synthetic

SHAPES = [(200, 10_000), (201, 10_007), (333, 7_777), (1024, 1024), (1000, 1300), (8, 100_000), (50, 50_001)]


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.parametrize("stored", [np.ascontiguousarray, np.asfortranarray], ids=["rows", "columns"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_number_of_threads_changes_no_bit_of_a_wide_product(
    shape: tuple[int, int], stored: Callable[[Any], Any]
) -> None:
    rng = np.random.default_rng(1)
    A = stored(rng.standard_normal(shape))
    r = rng.standard_normal(shape[0])
    assert parallel.is_wide(A)
    one = parallel.product(r, A)
    for threads in (2, 3, 4, 16, 40):
        with parallel.wide_products(threads):
            assert parallel.product(r, A).tobytes() == one.tobytes(), threads


@pytest.mark.parametrize("shape", [*SHAPES, (5000, 300), (3, 4), (20, 1024)], ids=str)
def test_the_product_equals_numpys(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(2)
    A, r = rng.standard_normal(shape), rng.standard_normal(shape[0])
    # Two orders of summation of n terms of size about 1.
    np.testing.assert_allclose(parallel.product(r, A), r @ A, rtol=0.0, atol=1e-13 * shape[0])


def test_narrow_and_small_matrices_use_one_thread() -> None:
    assert not parallel.is_wide(np.zeros((5000, 300)))
    assert not parallel.is_wide(np.zeros((10, 2000)))


def test_only_the_product_uses_several_threads() -> None:
    A, r = np.ones((200, 10_000)), np.ones(200)
    with parallel.wide_products(2):
        parallel.product(r, A)
        assert blas_threads() == {1}


@pytest.mark.parametrize("method", [dcgs.DCGS(inner="pcg"), dcgs.DCGS(inner="cg"), dcgs.DFW()], ids=repr)
def test_a_run_on_wide_data_is_the_same_to_the_bit_on_any_number_of_threads(method: dcgs.Method) -> None:
    data = lasso_synthetic(100, 30_001, nonzeros=5)
    objectives = data.objectives(4)
    assert all(f.map.prefers_blas_threads for f in objectives)
    X = dcgs.L1Ball(30_001, radius=300.0)
    runs = [
        dcgs.minimize(
            objectives, X, nx.cycle_graph(4), method, iterations=3, runtime=dcgs.Lockstep(threads=threads)
        )
        for threads in (1, 2, 3)
    ]
    assert len({run.agents.tobytes() for run in runs}) == 1
    assert len({run.lmo_calls.tobytes() for run in runs}) == 1
    assert len({run.history.worst_loss.tobytes() for run in runs}) == 1
