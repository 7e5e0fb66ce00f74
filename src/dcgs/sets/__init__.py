"""Feasible sets: all behind :class:`~dcgs.sets.base.ConvexSet`."""

from dcgs.sets.base import ConvexSet, DiagonallyProjectableSet, LowerBound, Option, OptionKind, ProjectableSet
from dcgs.sets.birkhoff_polytope import BirkhoffPolytope
from dcgs.sets.box import Box
from dcgs.sets.convex_hull import ConvexHull
from dcgs.sets.norm_balls import GroupL1Ball, KSparseBall, L1Ball, L2Ball, LInfBall
from dcgs.sets.nuclear_norm_ball import NuclearNormBall
from dcgs.sets.polytope import Polytope
from dcgs.sets.product_set import ProductSet
from dcgs.sets.simplex import Simplex
from dcgs.sets.spectraplex import Spectraplex

__all__ = ["ConvexSet", "DiagonallyProjectableSet", "LowerBound", "Option", "OptionKind", "ProjectableSet"]
__all__ += ["GroupL1Ball", "KSparseBall", "L1Ball", "L2Ball", "LInfBall", "NuclearNormBall"]
__all__ += ["BirkhoffPolytope", "Box", "ConvexHull", "Polytope", "ProductSet", "Simplex", "Spectraplex"]
