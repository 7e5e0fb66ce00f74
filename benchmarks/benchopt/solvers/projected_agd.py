"""ProjectedAGD, with default settings."""

from benchmark_utils.method_solver import MethodSolver

import dcgs


class Solver(MethodSolver):
    """dcgs.ProjectedAGD."""

    name = "ProjectedAGD"

    def make(self) -> dcgs.Method:
        """Return the method."""
        return dcgs.ProjectedAGD()
