"""Objectives: a smooth loss of a linear image, f(x) = ℓ(A x)."""

from dcgs.objectives.losses import HuberLoss, LogisticLoss, Loss, SquaredLoss
from dcgs.objectives.maps import LinearMap
from dcgs.objectives.objective import LeastSquares, Logistic, MatrixCompletion, Objective, matrix_map

__all__ = ["LeastSquares", "Logistic", "MatrixCompletion", "Objective"]
__all__ += ["HuberLoss", "LinearMap", "LogisticLoss", "Loss", "SquaredLoss", "matrix_map"]
