"""Objectives: a smooth loss of a linear image, f(x) = ℓ(A x)."""

from dcgs.objectives.losses import HuberLoss, LogisticLoss, Loss, SquaredLoss
from dcgs.objectives.maps import LinearMap
from dcgs.objectives.objective import LeastSquares, Logistic, MatrixCompletion, Objective, matrix_map

__all__ = [
    "HuberLoss",
    "LeastSquares",
    "LinearMap",
    "Logistic",
    "LogisticLoss",
    "Loss",
    "MatrixCompletion",
    "Objective",
    "SquaredLoss",
    "matrix_map",
]
