"""DCGS, with default settings."""

from benchmark_utils.method_solver import MethodSolver

import dcgs


class Solver(MethodSolver):
    """dcgs.DCGS."""

    name = "DCGS"

    def make(self) -> dcgs.Method:
        """Return the method."""
        return dcgs.DCGS()
