"""Inner solvers: minimize one φ over one X to an accuracy, by its Wolfe gap or by another bound."""

from __future__ import annotations

from dcgs.inner.base import Accuracy, DistanceAccuracy, Inner, Outcome, Solver, Subproblem, Task, gap_at_most
from dcgs.inner.block import Block
from dcgs.inner.conditional_gradients import CG, PCG
from dcgs.inner.corrective import Corrective
from dcgs.inner.newton import Newton
from dcgs.inner.projected import Exact, Projected
from dcgs.objectives.objective import Objective
from dcgs.sets.base import ConvexSet, projects_cheaply
from dcgs.validation import one_of

_SOLVERS: tuple[Inner, ...] = (CG(), PCG(), Exact(), Block(), Corrective(), Projected(), Newton())
_BY_NAME = {type(solver).__name__.lower(): solver for solver in _SOLVERS}
# The fastest solver that fits is the first of these that does; the first three project.
_PROJECTING, _FASTEST = ("exact", "newton", "projected"), ("block", "corrective", "cg")


def check_inner(inner: str | Inner, *others: str) -> None:
    """Raise ValueError unless ``inner`` is an inner solver, the name of one, or one of the other names."""
    if not isinstance(inner, Inner):
        one_of("auto", *others, *_BY_NAME, also=("an inner solver such as CG()",))(inner, "inner")


def choose_inner(inner: str | Inner, X: ConvexSet) -> Inner:
    """Return the solver that ``inner`` names; ``"auto"`` is pcg over polytopes and cg elsewhere."""
    if isinstance(inner, Inner):
        return inner
    if inner == "auto":
        inner = "pcg" if X.polytope else "cg"
    return _BY_NAME[inner]


def best_inner(f: Objective, X: ConvexSet, may_project: bool) -> Inner:
    """Return the fastest solver for this objective over this set, by projections only if it may project."""
    projects = may_project and projects_cheaply(X)
    names = (*(_PROJECTING if projects else ()), *_FASTEST)
    return next(_BY_NAME[name] for name in names if _BY_NAME[name].incompatibility(f, X) is None)


__all__ = ["CG", "PCG", "Block", "Corrective", "Exact", "Newton", "Projected"]
__all__ += ["Accuracy", "DistanceAccuracy", "Inner", "Outcome", "Solver", "Subproblem", "Task", "gap_at_most"]
