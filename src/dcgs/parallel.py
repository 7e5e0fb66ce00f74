"""A product on several threads, equal to the bit to the same product on one.

Two agents that compute at a time on two cores each stream a matrix of their own through the one
cache that the cores share. One agent whose product is cut in two streams one. So where the time goes
into large dense products, threads are better spent inside them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

# BLAS cuts a product r A with more columns than rows between columns, and each entry of the result is
# then summed as on one thread, provided that every part is a whole number of vector registers: so it
# is for 1, 2, 4, 8 or 16 parts of a multiple of this many columns. What is left over is done apart.
_COLUMNS = 1024
# Below so many entries (2 MB) BLAS spends more on its threads than it gains.
_LEAST = 1 << 18

_threads = 1
_libraries = ThreadpoolController().select(user_api="blas").lib_controllers


def is_wide(A: NDArray[np.float64]) -> bool:
    """Return whether products with A from the left gain from threads."""
    n, d = A.shape
    return bool(d >= max(n, _COLUMNS) and n * d >= _LEAST)


def product(r: NDArray[np.float64], A: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return r A, on the threads that :func:`wide_products` allows."""
    if not is_wide(A):
        return np.asarray(r @ A)
    g = np.empty(A.shape[1])
    cut = A.shape[1] // _COLUMNS * _COLUMNS
    if _threads > 1:
        _set_blas_threads(_threads)
    np.matmul(r, A[:, :cut], out=g[:cut])
    if _threads > 1:
        _set_blas_threads(1)
    np.matmul(r, A[:, cut:], out=g[cut:])
    return g


@contextmanager
def wide_products(threads: int) -> Iterator[None]:
    """Let wide products use up to so many threads; for one agent at a time, with BLAS at one thread."""
    global _threads
    before, _threads = _threads, 1 << (min(threads, 16).bit_length() - 1)
    try:
        yield
    finally:
        _threads = before


def _set_blas_threads(threads: int) -> None:
    # threadpoolctl's own context looks for the libraries each time, which takes longer than a product.
    for library in _libraries:
        library.set_num_threads(threads)


def cores() -> int:
    """Return the number of cores at hand."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system tells which cores a process may use
        return os.cpu_count() or 1
