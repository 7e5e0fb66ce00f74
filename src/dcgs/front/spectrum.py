"""Eigenvalues and resistances of a graph: dense for up to 1,000 agents, sparse for more.

Time and memory of the sparse ones grow about linearly with the edges: 10,000 agents take a second or two.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh, splu

Neighbors: TypeAlias = tuple[tuple[int, ...], ...]
Weights: TypeAlias = tuple[tuple[float, ...], ...]
"""For each agent a number for each of its neighbors."""

# Up to this number of agents the spectra of the graph are computed densely.
_DENSE_AGENTS = 1000
# Eigenvalues of a matrix of norm 1 that differ by less count as equal; rounding error is far smaller.
_SAME = 1e-10
# The relative accuracy of a norm that is found iteratively, and by how much it is raised: the first, or the
# second if the largest eigenvalues differ by so little, as on long cycles, that the first would take long.
_SLACK, _LOOSE_SLACK = 1e-6, 1e-3
# Restarts of the Lanczos method before another way is taken: half a second for 10,000 agents.
_RESTARTS = 100


def laplacian_norm(neighbors: Neighbors) -> float:
    """Return ‖L‖; for more than 1,000 agents an upper bound, tight to 1e-3."""
    if len(neighbors) == 1:
        return 0.0
    L = _laplacian(neighbors, _ones(neighbors))
    if len(neighbors) <= _DENSE_AGENTS:
        return float(np.linalg.eigvalsh(L.toarray())[-1])
    return _largest(L)


def resistances(neighbors: Neighbors) -> Weights:
    """Return the effective resistance of every edge over the mean of all; 1 for more than 1,000 agents.

    Every edge is a unit resistor. A bridge has resistance 1. Other paths between its ends lower it.
    """
    m = len(neighbors)
    if not 1 < m <= _DENSE_AGENTS:
        return _ones(neighbors)
    L = _laplacian(neighbors, _ones(neighbors)).toarray()
    inverse = np.linalg.inv(L + 1.0 / m)
    inverse = 0.5 * (inverse + inverse.T)  # symmetric to the last bit
    mean = 2.0 * (m - 1) / sum(map(len, neighbors))  # Foster's theorem
    return tuple(
        tuple(float((inverse[i, i] + inverse[j, j] - 2.0 * inverse[i, j]) / mean) for j in near)
        for i, near in enumerate(neighbors)
    )


def normalized_spectrum(neighbors: Neighbors, weights: Weights) -> tuple[float, float]:
    """Return the largest eigenvalue of D^(−1/2) L D^(−1/2) and the smallest positive one over it.

    For more than 1,000 agents the first is an upper bound, tight to 1e-3.
    """
    m = len(neighbors)
    if m == 1:
        return 2.0, 1.0
    L = _laplacian(neighbors, weights)
    roots = np.sqrt(L.diagonal())
    scaling = sp.diags_array(1.0 / roots)
    N = sp.csr_array(scaling @ L @ scaling)
    if m <= _DENSE_AGENTS:
        spectrum = np.linalg.eigvalsh(N.toarray())
        return float(spectrum[-1]), float(spectrum[1] / spectrum[-1])
    high = min(2.0, _largest(N))
    return high, _smallest_positive(N, roots, high) / high


def mixing_eigenvalues(neighbors: Neighbors) -> tuple[float, ...]:
    """Return the distinct eigenvalues of the Metropolis matrix except the largest, in increasing order.

    A single agent has the eigenvalue 0. For more than 1,000 agents the result is empty.
    """
    if len(neighbors) == 1:
        return (0.0,)
    if len(neighbors) > _DENSE_AGENTS:
        return ()
    spectrum = np.linalg.eigvalsh(_metropolis(neighbors).toarray())[:-1]
    distinct = np.diff(spectrum, prepend=-2.0) > _SAME
    return tuple(float(value) for value in spectrum[distinct])


def extreme_eigenvalues(neighbors: Neighbors) -> tuple[float, float]:
    """Return the smallest and the second largest eigenvalue of the Metropolis matrix W.

    The first is a lower bound. Its distance from 1 is tight to 1e-3, that of the second to 1e-6.
    """
    m = len(neighbors)
    M = sp.csr_array(sp.eye_array(m) - _metropolis(neighbors))
    high = min(2.0, _largest(M))
    return 1.0 - high, 1.0 - _smallest_positive(M, np.ones(m), high)


def _smallest_positive(M: sp.csr_array, null: NDArray[np.float64], high: float) -> float:
    """Return the second smallest eigenvalue of M, whose eigenvalues are from 0, of the vector null, to high.

    The Lanczos method finds it quickly if it is apart from the next ones. If not, as on cycles, grids and
    trees, the graph falls apart where few agents are removed, so that M has sparse triangular factors.
    """
    z = null / np.linalg.norm(null)

    def shifted(v: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(high * v - M @ v - (high * (z @ v)) * z)

    reversed_order = LinearOperator(M.shape, matvec=shifted, dtype=np.float64)
    try:
        return high - _lanczos(reversed_order, 1e-9, _RESTARTS)
    except ArpackNoConvergence:
        return 1.0 / _lanczos(_pseudoinverse(M, z), _SLACK)


def _largest(M: sp.csr_array) -> float:
    """Return an upper bound of the largest eigenvalue of M, tight to 1e-6, or to 1e-3 if that takes long."""
    try:
        return _lanczos(M, _SLACK, _RESTARTS) * (1.0 + _SLACK)
    except ArpackNoConvergence:
        return _lanczos(M, _LOOSE_SLACK) * (1.0 + _LOOSE_SLACK)


def _lanczos(M: sp.csr_array | LinearOperator, accuracy: float, restarts: int | None = None) -> float:
    """Return the largest eigenvalue of a symmetric matrix, from below."""
    start = np.random.default_rng(0).standard_normal(M.shape[0])
    options = {"tol": accuracy, "maxiter": restarts, "v0": start, "return_eigenvectors": False}
    return float(eigsh(M, k=1, which="LA", **options)[0])


def _pseudoinverse(M: sp.csr_array, z: NDArray[np.float64]) -> LinearOperator:
    """Return M⁺ for a positive semidefinite M with the null vector z, by factors of M without agent 0."""
    factors = splu(sp.csc_array(M[1:, 1:]), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0)

    def solve(b: NDArray[np.float64]) -> NDArray[np.float64]:
        x = np.append(0.0, factors.solve((b - (z @ b) * z)[1:]))
        return np.asarray(x - (z @ x) * z)

    return LinearOperator(M.shape, matvec=lambda b: solve(np.ravel(b)), dtype=np.float64)


def _ones(neighbors: Neighbors) -> Weights:
    return tuple((1.0,) * len(near) for near in neighbors)


def _laplacian(neighbors: Neighbors, weights: Weights) -> sp.csr_array:
    """Return the Laplacian of the graph with these weights on edges."""
    off = _off_diagonal(neighbors, np.concatenate(weights))
    return sp.csr_array(sp.diags_array(off.sum(axis=1)) - off)


def _metropolis(neighbors: Neighbors) -> sp.csr_array:
    """Return W with Wᵢⱼ = 1 / (1 + max(degreeᵢ, degreeⱼ)) for neighbors, and rows that sum to 1."""
    degree = np.array([len(near) for near in neighbors])
    i, j = np.repeat(np.arange(len(neighbors)), degree), np.concatenate(neighbors).astype(np.intp)
    off = _off_diagonal(neighbors, 1.0 / (1.0 + np.maximum(degree[i], degree[j])))
    return sp.csr_array(off + sp.diags_array(1.0 - off.sum(axis=1)))


def _off_diagonal(neighbors: Neighbors, values: NDArray[np.float64]) -> sp.csr_array:
    """Return the matrix with these values at the edges, neighbor by neighbor."""
    m = len(neighbors)
    i = np.repeat(np.arange(m), [len(near) for near in neighbors])
    return sp.csr_array((values, (i, np.concatenate(neighbors).astype(np.intp))), shape=(m, m))
