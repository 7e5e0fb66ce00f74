"""Bounds of the extreme eigenvalues of AᵀA, for smoothness and strong convexity."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

from dcgs.points import EPS
from dcgs.seeding import content_rng

Matrix: TypeAlias = NDArray[np.float64] | sp.csr_array

DENSE_SIDE = 2000
"""Up to this side the spectrum of the Gram matrix is computed densely, in about a second."""
# The relative accuracy of the iterative solver; its answer is raised by as much.
_SLACK = 1e-6


def largest_eigenvalue(A: Matrix) -> float:
    """Return an upper bound of the largest eigenvalue of AᵀA.

    Exact to rounding if the smaller side of A is at most 2000, else to 1e-6.
    """
    if min(A.shape) <= DENSE_SIDE:
        return max(0.0, float(_gram_spectrum(A)[-1]))
    n, d = A.shape
    operator = LinearOperator(
        (min(n, d), min(n, d)),
        matvec=(lambda v: A @ (A.T @ v)) if n < d else (lambda v: A.T @ (A @ v)),
        dtype=np.float64,
    )
    return largest_by_lanczos(operator)


def largest_of_gram(gram: NDArray[np.float64]) -> float:
    """Return the largest eigenvalue of a Gram matrix."""
    return max(0.0, float(np.linalg.eigvalsh(gram)[-1]))


def largest_by_lanczos(operator: LinearOperator) -> float:
    """Return an upper bound of the largest eigenvalue of a positive semidefinite operator, tight to 1e-6.

    The start of the iteration is a Gaussian vector seeded with the image of a fixed one: nobody can choose an
    operator for which it is a bad start.
    """
    image = operator.matvec(np.random.default_rng(0).standard_normal(operator.shape[0]))
    start = content_rng(image).standard_normal(operator.shape[0])
    if not (image.any() or operator.matvec(start).any()):
        return 0.0
    (largest,) = eigsh(operator, k=1, tol=_SLACK, v0=start, return_eigenvectors=False)
    return float(largest) * (1.0 + _SLACK)


def smallest_eigenvalue(A: Matrix) -> float:
    """Return a lower bound of the smallest eigenvalue of AᵀA; 0 for more than 2000 columns."""
    n, d = A.shape
    if n < d or d > DENSE_SIDE:
        return 0.0
    spectrum = _gram_spectrum(A)
    # An eigenvalue below the rounding error of the Gram matrix is no evidence of convexity.
    rounding = n * EPS * float(spectrum[-1])
    return max(0.0, float(spectrum[0] - rounding))


def _gram_spectrum(A: Matrix) -> NDArray[np.float64]:
    n, d = A.shape
    gram: Any = A @ A.T if n < d else A.T @ A
    return np.asarray(np.linalg.eigvalsh(gram.toarray() if sp.issparse(gram) else gram))
