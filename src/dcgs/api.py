"""The public names of dcgs.

Sets, methods, inner solvers and losses come from the packages of that name, as those export them.
:mod:`dcgs.registry` has them by the names of the command line.
"""

from dcgs import inner, methods, objectives, sets
from dcgs.atoms import Atom, RankOne, Sparse, Spike, Vertex
from dcgs.front import Checkpoint, History, Result, Snapshot, Status, minimize
from dcgs.inner import *
from dcgs.methods import *
from dcgs.objectives import *
from dcgs.points import Point, norm, onto_l1_ball, onto_simplex, vdot
from dcgs.protocol import Inbox, Program
from dcgs.runtime import MPI, Lockstep
from dcgs.schedules import Facts, Params, Theorem1, Theorem2
from dcgs.sets import *

__all__ = ["Checkpoint", "History", "Result", "Snapshot", "Status", "minimize"]
__all__ += ["MPI", "Facts", "Inbox", "Lockstep", "Params", "Program", "Theorem1", "Theorem2"]
__all__ += ["Atom", "Point", "RankOne", "Sparse", "Spike", "Vertex"]
__all__ += ["norm", "onto_l1_ball", "onto_simplex", "vdot"]
__all__ += [*inner.__all__, *methods.__all__, *objectives.__all__, *sets.__all__]
