"""What a user would do if data could be pooled: send all of it to one site, and solve there.

The solver is FISTA on the pooled data, or scikit-learn's coordinate descent for a Lasso or a logistic
regression over an ℓ₁ ball that binds, if it is installed: whichever is faster. Coordinate descent gets the
multiplier of the ball for free.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
import scipy.sparse as sp

from dcgs.bench.optimum import Optimum, iterates
from dcgs.front.history import certify
from dcgs.objectives import HuberLoss, LogisticLoss, Objective, SquaredLoss, matrix_map
from dcgs.objectives.maps import MatrixMap
from dcgs.objectives.sampling import Sampling
from dcgs.points import Point, norm
from dcgs.sets import L1Ball
from dcgs.study import Problem

# The tolerances that coordinate descent is tried with, the loosest first.
_TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
# A ball binds if the multiplier is more than this share of the gradient at the start.
_BINDS = 1e-4


@final
@dataclass(frozen=True)
class Pooled:
    """The bytes of all data and of a model, and the seconds of the fastest solver to each level.

    ``seconds`` and ``solvers`` are by level, as text; None for a level that no solver reached in time.
    """

    data_bytes: int
    model_bytes: int
    seconds: dict[str, float | None]
    solvers: dict[str, str]

    @property
    def bytes(self) -> int:
        """The bytes that cross the link of the site: all data in, and a model out."""
        return self.data_bytes + self.model_bytes

    def to_json(self) -> dict[str, Any]:
        """Return it as a record has it."""
        return asdict(self)


def pool(problem: Problem, optimum: Optimum, levels: Sequence[float], limit: float) -> Pooled:
    """Solve the pooled problem with every solver; each gets ``limit`` seconds."""
    f = pooled_objective(problem.objectives)
    whole = Problem([f], problem.X, problem.graph)
    runs = {"FISTA": list(_by_fista(whole, optimum, min(levels), limit))}
    runs |= _by_scikit_learn(whole, optimum, limit)
    seconds: dict[str, float | None] = {}
    solvers = {}
    for level in levels:
        reached = [(at, name) for name, run in runs.items() for at, relative in run if relative <= level]
        best = min(reached, default=None)
        seconds[f"{level:.0e}"] = None if best is None else best[0]
        solvers[f"{level:.0e}"] = "" if best is None else best[1]
    sent = sum(_nbytes(part) for part in problem.objectives)
    return Pooled(sent, 8 * int(np.prod(problem.X.shape)), seconds, solvers)


def pooled_objective(parts: Sequence[Objective]) -> Objective:
    """Return the sum of objectives of one kind, as one objective of all data."""
    first = parts[0]
    targets = [np.concatenate(list(part.loss.data().values())) for part in parts]
    target = np.concatenate(targets)
    if isinstance(first.map, Sampling):
        maps = [part.map for part in parts if isinstance(part.map, Sampling)]
        rows, cols = (np.concatenate(each) for each in zip(*((m.rows, m.cols) for m in maps), strict=True))
        return Objective(SquaredLoss(target), Sampling(rows, cols, first.map.shape))
    matrices = [part.map.A for part in parts if isinstance(part.map, MatrixMap)]
    A = sp.vstack(matrices, format="csr") if sp.issparse(matrices[0]) else np.vstack(matrices)
    match first.loss:
        case LogisticLoss():
            return Objective(LogisticLoss(target), matrix_map(A, first.shape))
        case HuberLoss():
            return Objective(HuberLoss(target, first.loss.delta), matrix_map(A, first.shape))
        case _:
            return Objective(SquaredLoss(target), matrix_map(A, first.shape))


def _nbytes(f: Objective) -> int:
    """Return the bytes of an agent's data: nonzeros with 4-byte indices, if it is sparse."""
    targets = sum(array.nbytes for array in f.loss.data().values())
    if isinstance(f.map, Sampling):
        return targets + 8 * f.map.size
    assert isinstance(f.map, MatrixMap)
    A = f.map.A
    return targets + (12 * int(A.nnz) + 4 * A.shape[0] if sp.issparse(A) else int(A.nbytes))


def _by_fista(
    problem: Problem, optimum: Optimum, level: float, limit: float
) -> Iterator[tuple[float, float]]:
    """Yield the seconds so far and the relative error after each iteration; errors are not on the clock."""
    seconds, f = 0.0, problem.objectives[0]
    start = time.process_time()
    for x in iterates(problem):
        seconds += time.process_time() - start
        relative = float(optimum.relative(f.value(x)))
        yield seconds, relative
        if relative <= level or seconds > limit:
            return
        start = time.process_time()


def _by_scikit_learn(
    problem: Problem, optimum: Optimum, limit: float
) -> dict[str, list[tuple[float, float]]]:
    """Return the seconds and the relative errors of coordinate descent, where it can be used."""
    f, X = problem.objectives[0], problem.X
    if not (isinstance(X, L1Ball) and isinstance(f.map, MatrixMap)):
        return {}
    try:
        from sklearn.linear_model import Lasso, LogisticRegression
    except ImportError:
        return {}
    multiplier = _multiplier(problem, limit)
    if multiplier <= _BINDS * float(np.abs(f.grad(X.start())).max()):
        return {}
    A, y = _with_short_indices(f.map.A), next(iter(f.loss.data().values()))

    def lasso(tolerance: float) -> Point:
        alpha = multiplier / (2.0 * len(y))
        fitted = Lasso(alpha=alpha, fit_intercept=False, tol=tolerance, max_iter=10_000).fit(A, y)
        return np.asarray(fitted.coef_, dtype=np.float64)

    def logistic(tolerance: float) -> Point:
        model = LogisticRegression(
            C=1.0 / multiplier, l1_ratio=1.0, solver="liblinear", fit_intercept=False, tol=tolerance
        )
        return np.asarray(model.fit(A, y).coef_[0], dtype=np.float64)

    match f.loss:
        case SquaredLoss():
            return {"scikit-learn": _tried(lasso, f, X, optimum, limit)}
        case LogisticLoss():
            return {"scikit-learn": _tried(logistic, f, X, optimum, limit)}
    return {}


def _with_short_indices(A: Any) -> Any:
    """Return a sparse matrix with 32-bit indices, which scikit-learn needs; a dense one as it is."""
    if not sp.issparse(A):
        return A
    arrays = A.data, A.indices.astype(np.int32), A.indptr.astype(np.int32)
    return sp.csr_matrix(arrays, shape=A.shape)


def _tried(
    fit: Callable[[float], Point], f: Objective, X: L1Ball, optimum: Optimum, limit: float
) -> list[tuple[float, float]]:
    """Return the seconds and the relative error of a fit to each tolerance, until they take too long."""
    found = []
    for tolerance in _TOLERANCES:
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a tolerance was not reached
            x = fit(tolerance)
        seconds = time.process_time() - start
        size = float(np.abs(x).sum())
        inside = x.reshape(f.shape) * min(1.0, X.radius / size if size else 1.0)
        found.append((seconds, float(optimum.relative(f.value(inside)))))
        if seconds > 0.2 * limit:
            break
    return found


def _multiplier(problem: Problem, limit: float) -> float:
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
