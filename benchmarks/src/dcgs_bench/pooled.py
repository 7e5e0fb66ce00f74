"""What a user would do if data could be pooled: send all of it to one site, and solve there.

The solver is FISTA on the pooled data, or scikit-learn's coordinate descent for a Lasso or a logistic
regression over an ℓ₁ ball that binds, if it is installed: whichever is faster. Coordinate descent gets the
multiplier of the ball for free.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from dcgs import __version__
from dcgs.objectives import HuberLoss, LogisticLoss, Objective, SquaredLoss, matrix_map
from dcgs.objectives.maps import MatrixMap
from dcgs.objectives.sampling import Sampling
from dcgs.points import Point, norm
from dcgs.run.measuring import certify
from dcgs.sets import L1Ball
from dcgs_bench.optimum import Optimum, iterates
from dcgs_bench.ranking import POOL, TIME_LEVELS, RunCost, Trial
from dcgs_bench.study import StudyProblem

# The tolerances that coordinate descent is tried with, the loosest first.
_TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
_ROUNDS = 2  # the data go in, a model comes back
# A ball binds if the multiplier is more than this share of the gradient at the start.
_BINDS = 1e-4

ErrorCurve: TypeAlias = Iterator[tuple[float, float]]
"""Seconds so far, or of a fit, and relative errors."""


def pool(problem: StudyProblem, optimum: Optimum, limit: float) -> Trial:
    """Solve the pooled problem with every solver; each gets ``limit`` seconds, and the fastest counts.

    All data cross the link of one site, which solves alone, and a model goes back.
    """
    whole = StudyProblem([pooled_objective(problem.objectives)], problem.X, problem.graph)
    runs = {"FISTA": list(_by_fista(whole, optimum, limit))}
    runs["scikit-learn"] = list(_by_scikit_learn(whole, optimum, limit))
    data, model = sum(_nbytes(part) for part in problem.objectives), 8 * int(np.prod(problem.X.shape))
    costs: dict[float, RunCost | None] = {}
    note = f"data of {data:,} bytes, a model of {model:,} bytes"
    for level in TIME_LEVELS:
        reached = [
            (spent, name) for name, run in runs.items() for spent, relative in run if relative <= level
        ]
        seconds, solver = min(reached, default=(None, ""))
        sent = data + model
        costs[level] = None if seconds is None else RunCost(_ROUNDS, sent, 0, sent, seconds)
        note += f"; {solver} to {level:.0e}" if solver else ""
    return Trial(POOL, costs=costs, note=note, version=__version__)


def pooled_objective(parts: Sequence[Objective]) -> Objective:
    """Return the sum of objectives of one kind, as one objective of all data."""
    first = parts[0]
    target = np.concatenate([array for part in parts for array in part.loss.data().values()])
    if isinstance(first.map, Sampling):
        maps = [part.map for part in parts if isinstance(part.map, Sampling)]
        rows, cols = (
            np.concatenate(arrays) for arrays in zip(*((m.rows, m.cols) for m in maps), strict=True)
        )
        return Objective(SquaredLoss(target), Sampling(rows, cols, first.map.shape))
    matrices = [part.map.A for part in parts if isinstance(part.map, MatrixMap)]
    A = sp.vstack(matrices, format="csr") if sp.issparse(matrices[0]) else np.vstack(matrices)
    match first.loss:
        case LogisticLoss():
            return Objective(LogisticLoss(target), matrix_map(A, first.shape))
        case HuberLoss():
            return Objective(HuberLoss(target, first.loss.delta), matrix_map(A, first.shape))
    return Objective(SquaredLoss(target), matrix_map(A, first.shape))


def _nbytes(f: Objective) -> int:
    """Return the bytes of an agent's data: nonzeros with 4-byte indices, if it is sparse."""
    targets = sum(array.nbytes for array in f.loss.data().values())
    if isinstance(f.map, Sampling):
        return targets + 8 * f.map.size
    assert isinstance(f.map, MatrixMap)
    A = f.map.A
    return targets + (12 * int(A.nnz) + 4 * A.shape[0] if sp.issparse(A) else int(A.nbytes))


def _by_fista(problem: StudyProblem, optimum: Optimum, limit: float) -> ErrorCurve:
    """Yield the seconds and the error after each iteration; what finds the errors is not on the clock."""
    seconds, f = 0.0, problem.objectives[0]
    start = time.process_time()
    for x in iterates(problem):
        seconds += time.process_time() - start
        relative = float(optimum.relative(f.value(x)))
        yield seconds, relative
        if relative <= min(TIME_LEVELS) or seconds > limit:
            return
        start = time.process_time()


def _by_scikit_learn(problem: StudyProblem, optimum: Optimum, limit: float) -> ErrorCurve:
    """Yield the seconds and the error of a fit to each tolerance, where coordinate descent can be used."""
    f, X = problem.objectives[0], problem.X
    if not (isinstance(X, L1Ball) and isinstance(f.map, MatrixMap)):
        return
    fit = _coordinate_descent(problem, f.map.A, limit)
    for tolerance in _TOLERANCES if fit is not None else ():
        assert fit is not None
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a tolerance was not reached
            x = np.asarray(fit(tolerance), dtype=np.float64).reshape(f.shape)
        seconds, size = time.process_time() - start, float(np.abs(x).sum())
        inside = x * min(1.0, X.radius / size if size else 1.0)
        yield seconds, float(optimum.relative(f.value(inside)))
        if seconds > 0.2 * limit:
            return


def _coordinate_descent(problem: StudyProblem, A: Any, limit: float) -> Callable[[float], Point] | None:
    """Return the fit to a tolerance, or None if scikit-learn is not there or the ball does not bind."""
    try:
        from sklearn.linear_model import Lasso, LogisticRegression
    except ImportError:
        return None
    f, multiplier = problem.objectives[0], _multiplier(problem, limit)
    if multiplier <= _BINDS * float(np.abs(f.grad(problem.X.start())).max()):
        return None
    y = next(iter(f.loss.data().values()))
    if sp.issparse(A):  # scikit-learn needs 32-bit indices
        arrays = A.data, A.indices.astype(np.int32), A.indptr.astype(np.int32)
        A = sp.csr_matrix(arrays, shape=A.shape)
    alpha, plain = multiplier / (2.0 * len(y)), {"fit_intercept": False}
    sparse = {"C": 1.0 / multiplier, "l1_ratio": 1.0, "solver": "liblinear"} | plain
    match f.loss:
        case SquaredLoss():
            return lambda tol: Lasso(alpha=alpha, tol=tol, max_iter=10_000, **plain).fit(A, y).coef_
        case LogisticLoss():
            return lambda tol: LogisticRegression(tol=tol, **sparse).fit(A, y).coef_[0]
    return None


def _multiplier(problem: StudyProblem, limit: float) -> float:
    """Return ‖∇f(x)‖∞ near the minimizer, the multiplier of the ℓ₁ ball; 0 if the ball does not bind."""
    f, X = problem.objectives[0], problem.X
    assert isinstance(X, L1Ball)
    start, x = time.process_time(), X.start()
    first, _ = certify([f], X, x)
    for k, x in enumerate(iterates(problem), 1):
        value, gap = certify([f], X, x) if k % 10 == 0 else (0.0, np.inf)
        if gap <= 1e-5 * (first - value) or time.process_time() - start > limit:
            break
    binds = float(np.abs(x).sum()) >= (1.0 - 1e-6) * X.radius and norm(x) > 0.0
    return float(np.abs(f.grad(x)).max()) if binds else 0.0
