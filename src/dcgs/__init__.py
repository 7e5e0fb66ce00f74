"""Decentralized, projection-free optimization.

m agents on a graph, each with private data, minimize a sum of smooth convex losses over a set that
is known through a linear oracle, and talk to their neighbors only. Start at :func:`minimize`.
"""

from dcgs.front import Checkpoint, History, Result, Snapshot, Status, minimize
from dcgs.inner import CG, PCG, Block, Corrective
from dcgs.methods import DCGS, DFW, NIDS, FastDCGS, Method, PGExtra, PrimalDual, ProjectedAGD
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
from dcgs.runtime import MPI, Lockstep
from dcgs.schedules import Params, Theorem1, Theorem2
from dcgs.sets import (
    BirkhoffPolytope,
    Box,
    ConvexHull,
    ConvexSet,
    GroupL1Ball,
    KSparseBall,
    L1Ball,
    L2Ball,
    LInfBall,
    NuclearNormBall,
    Polytope,
    Simplex,
    Spectraplex,
)

__version__ = "0.3.0"

__all__ = [
    "CG",
    "DCGS",
    "DFW",
    "MPI",
    "NIDS",
    "PCG",
    "BirkhoffPolytope",
    "Block",
    "Box",
    "Checkpoint",
    "ConvexHull",
    "ConvexSet",
    "Corrective",
    "FastDCGS",
    "GroupL1Ball",
    "History",
    "HuberLoss",
    "KSparseBall",
    "L1Ball",
    "L2Ball",
    "LInfBall",
    "LeastSquares",
    "Lockstep",
    "Logistic",
    "LogisticLoss",
    "Loss",
    "MatrixCompletion",
    "Method",
    "NuclearNormBall",
    "Objective",
    "PGExtra",
    "Params",
    "Polytope",
    "PrimalDual",
    "ProjectedAGD",
    "Result",
    "Simplex",
    "Snapshot",
    "Spectraplex",
    "SquaredLoss",
    "Status",
    "Theorem1",
    "Theorem2",
    "matrix_map",
    "minimize",
]
