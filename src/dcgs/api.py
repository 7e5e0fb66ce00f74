"""The public names of dcgs.

Sets, methods, inner solvers and losses come from the packages of that name, as those export them.
:mod:`dcgs.registry` has them by the names of the command line.
"""

from dcgs import inner, methods, objectives, sets
from dcgs.atoms import Atom, RankOne, Sparse, Spike, Vertex
from dcgs.checkpoints.folder import Checkpoint
from dcgs.comparison import Comparison, compare
from dcgs.facts import Facts
from dcgs.floors import Floors
from dcgs.inner import *
from dcgs.learn.radius.folds import Fold
from dcgs.learn.radius.path import path
from dcgs.learn.radius.result import PathPoint, RadiusPath
from dcgs.learn.sums import AgreedTexts, Reduced, Reductions, Sent, agree_on_texts, allreduce
from dcgs.low_rank import LowRank
from dcgs.methods import *
from dcgs.objectives import *
from dcgs.objectives.losses import WeightedLoss
from dcgs.points import Point, norm, vdot
from dcgs.projections import Derivative, ProjectedPoint, onto_l1_ball, onto_simplex
from dcgs.protocol import Inbox, Message, Outbox, Program
from dcgs.run.minimize import minimize
from dcgs.run.result import History, Result, Snapshot
from dcgs.run.stopping import Status
from dcgs.runtime import MPI, Faults, Lockstep, MessageRecorder, load_faults, recorded_messages
from dcgs.schedules import Params, Theorem1, Theorem2
from dcgs.sets import *

__all__ = ["Checkpoint", "Comparison", "History", "Result", "Snapshot", "Status", "compare", "minimize"]
__all__ += ["AgreedTexts", "Reduced", "agree_on_texts", "allreduce"]
__all__ += ["Fold", "PathPoint", "RadiusPath", "Reductions", "Sent", "WeightedLoss", "path"]
__all__ += ["MPI", "Faults", "Inbox", "Lockstep", "Message", "MessageRecorder", "Outbox", "Program"]
__all__ += ["load_faults", "recorded_messages"]
__all__ += ["Facts", "Floors", "Params", "Theorem1", "Theorem2"]
__all__ += ["Atom", "Point", "RankOne", "Sparse", "Spike", "Vertex"]
__all__ += ["Derivative", "LowRank", "ProjectedPoint", "norm", "onto_l1_ball", "onto_simplex", "vdot"]
__all__ += [*inner.__all__, *methods.__all__, *objectives.__all__, *sets.__all__]
