"""Matrix products on several threads, equal to the bit to the same product on one thread.

Two agents that compute at the same time on two cores read two matrices through the shared cache. One agent
whose product uses two threads reads one matrix, which is faster for large dense products.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

# BLAS splits a product r A with more columns than rows between columns. Each entry of the result is summed as
# on one thread if every part is a whole number of vector registers. That holds for 1, 2, 4, 8 or 16 parts of
# a multiple of this number of columns. The remaining columns are a product of their own.
_COLUMNS = 1024
# For fewer entries (2 MB) BLAS threads cost more than they gain.
_LEAST = 1 << 18

_threads = 1
_libraries = ThreadpoolController().select(user_api="blas").lib_controllers


def is_wide(A: NDArray[np.float64]) -> bool:
    """Return whether products r A gain from threads."""
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
    """Let wide products use up to this number of threads; BLAS must be set to one thread before."""
    global _threads
    before, _threads = _threads, 1 << (min(threads, 16).bit_length() - 1)
    try:
        yield
    finally:
        _threads = before


@contextmanager
def blas_threads(threads: int) -> Iterator[None]:
    """Let BLAS use this number of threads; also as a decorator. One thread gives the same bits in every run.

    The context manager of threadpoolctl looks for the libraries each time. A small run takes less long.
    """
    before = [library.get_num_threads() for library in _libraries]
    _set_blas_threads(threads)
    try:
        yield
    finally:
        for library, count in zip(_libraries, before, strict=True):
            library.set_num_threads(count)


def wide_threads() -> int:
    """Return the number of threads that wide products may use."""
    return _threads


def _set_blas_threads(threads: int) -> None:
    for library in _libraries:
        library.set_num_threads(threads)


def cores() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
