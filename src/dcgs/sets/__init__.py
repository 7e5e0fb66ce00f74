"""Feasible sets: one module each, all behind :class:`~dcgs.sets.base.ConvexSet`."""

from dcgs.sets.base import ConvexSet
from dcgs.sets.l1_ball import L1Ball

__all__ = ["ConvexSet", "L1Ball"]
