"""Newton steps on a subproblem with few unknowns: each minimizes a quadratic model of φ over X."""

from __future__ import annotations

import math

import numpy as np

from dcgs.inner.base import Accuracy, Outcome, Subproblem, Task
from dcgs.inner.line_search import line_minimizer
from dcgs.inner.quadratic import Domain, Quadratic, Tolerance, minimize_quadratic
from dcgs.points import Point, vdot

FEW = 64
"""The largest number of unknowns for which these steps are used."""
# Most solves take fewer than twenty steps.
_MOST_STEPS = 100
# Rounding error is reached if this number of steps did not halve the gap.
_USELESS = 6
# The gap of a model at its approximate minimizer, relative to the gap that is asked for, and to that of φ.
_SHARE, _FALL = 0.3, 1e-3


def minimize_few(phi: Subproblem, task: Task, x: Point, accuracy: Accuracy) -> Point:
    """Return a point of X with a Wolfe gap of φ of at most accuracy(x), or as small as rounding allows.

    The model has the Hessian of φ at x; its step is as long as an exact line search on φ says. So φ decreases
    in every step, however the data are scaled.
    """
    f, domain = phi.f, Domain(task.X, task.lmo, task.projections)
    proximal = np.diag(phi.prox_grad(np.ones(x.shape)).reshape(-1))
    image, outcome, lowest, useless = f.map.image(x), Outcome.STEPS, math.inf, 0
    for _ in range(_MOST_STEPS):
        g = phi.grad(x, image)
        gap, e = vdot(g, x) - task.lmo(g, None).dot(g), accuracy(x)
        useless, lowest = (0, gap) if gap < 0.5 * lowest else (useless + 1, lowest)
        if gap <= max(e, phi.noise(x, image, task.X.diameter)) or useless == _USELESS:
            outcome = Outcome.REACHED if gap <= e else Outcome.ROUNDING
            break
        q = Quadratic(f.map.gram(f.loss.hess(image)) + proximal, g.reshape(-1), x.reshape(-1))
        d = minimize_quadratic(q, domain, x, _at_most(max(_SHARE * e, _FALL * gap))) - x
        slope = vdot(g, d)
        if slope >= 0.0:
            outcome = Outcome.ROUNDING
            break
        gamma = line_minimizer(f.loss, image, f.map.image(d), slope, phi.prox_curvature(d), 1.0)
        x = x + gamma * d
        image = f.map.image(x)
    task.outcomes[outcome] += 1
    return x


def _at_most(gap: float) -> Tolerance:
    return lambda decrease: gap
