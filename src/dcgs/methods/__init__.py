"""Methods: what ONE agent does. They know mathematics and no network."""

from dcgs.methods.base import Agent, Method
from dcgs.methods.dcgs import DCGS
from dcgs.methods.dfw import DFW
from dcgs.methods.primal_dual import PrimalDual

__all__ = ["DCGS", "DFW", "Agent", "Method", "PrimalDual"]
