"""Methods: the program of ONE agent. They import no network code."""

from dcgs.methods.base import Agent, Dual, Method, ProjectedMethod, projector
from dcgs.methods.dcgs import DCGS, PrimalDual
from dcgs.methods.dfw import DFW
from dcgs.methods.fast.fast_dcgs import FastDCGS
from dcgs.methods.mixing import average, laplacian
from dcgs.methods.projected_agd import ProjectedAGD
from dcgs.methods.projected_gradient import NIDS, PGExtra

__all__ = ["DCGS", "DFW", "NIDS", "FastDCGS", "PGExtra", "PrimalDual", "ProjectedAGD"]
__all__ += ["Agent", "Dual", "Method", "ProjectedMethod", "average", "laplacian", "projector"]
