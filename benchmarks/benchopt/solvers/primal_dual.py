"""PrimalDual; its subproblems are solved to 1e-2, as in dcgs bench rounds."""

from benchmark_utils.method_solver import MethodSolver

import dcgs


class Solver(MethodSolver):
    """dcgs.PrimalDual."""

    name = "PrimalDual"

    def make(self) -> dcgs.Method:
        """Return the method."""
        return dcgs.PrimalDual(precision=1e-2)
