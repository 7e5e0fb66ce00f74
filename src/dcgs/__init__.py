"""Decentralized, projection-free optimization.

m agents on a graph, each with private data, minimize a sum of smooth convex losses over a set that
is known through a linear oracle, and talk to their neighbors only. Start at :func:`minimize`.
"""

from dcgs.front import History, Result, Snapshot, Status, minimize
from dcgs.inner import CG, PCG
from dcgs.methods import DCGS, DFW, Method, PrimalDual
from dcgs.objectives import (
    HuberLoss,
    LeastSquares,
    Logistic,
    LogisticLoss,
    Loss,
    MatrixCompletion,
    Objective,
    SquaredLoss,
    matrix_map,
)
from dcgs.runtime import Lockstep
from dcgs.schedules import Params, Theorem1, Theorem2
from dcgs.sets import ConvexSet, L1Ball

__version__ = "0.1.0"

