"""Schedules: the parameters of the k-th outer iteration, as the paper's theorems set them.

A schedule is a function of k. The theorems' schedules need a few facts that all agents know before the run
(``facts.py``). A user's own schedule may be any function ``k -> Params``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

from dcgs.facts import Facts
from dcgs.validation import COUNT, NOT_NEGATIVE, POSITIVE


@final
@dataclass(frozen=True)
class Params:
    """The parameters of Algorithm 2 at one k; ``e`` is the Wolfe gap of the inner solve.

    >>> import dcgs
    >>> def constant(k):
    ...     return dcgs.Params(alpha=1.0, tau=4.0, eta=8.0, theta=1.0, e=1e-3)
    >>> dcgs.DCGS(schedule=constant).rounds_per_iteration
    2
    """

    alpha: float
    tau: float
    eta: float
    theta: float
    e: float

    def __post_init__(self) -> None:
        NOT_NEGATIVE(self.alpha, "alpha")
        POSITIVE(self.tau, "tau")
        POSITIVE(self.eta, "eta")
        POSITIVE(self.theta, "theta")
        NOT_NEGATIVE(self.e, "e")


Schedule: TypeAlias = Callable[[int], Params]


@final
@dataclass(frozen=True)
class Theorem1:
    """Theorem 1, for convex objectives: α = θ = 1, η = 2c‖L‖, τ = ‖L‖/c, e = c‖L‖ R²/N.

    ``balance`` is c: the proof needs only the product η τ, so η may be larger if τ is smaller (the paper has
    c = 1). The bound becomes F(x̄) − F* ≤ 2c‖L‖ m R²/N.

    ``distance`` is R, a bound of ‖x⁰ − x*‖ for one agent. The paper's e contains ‖x⁰ − x*‖ itself, which is
    unknown; the default is the diameter of X. ``horizon`` is N: by default the iterations (or half the
    rounds) of the run, else the N for which the bound gives the required accuracy.

    >>> import dcgs
    >>> facts = dcgs.Facts(agents=10, norm_L=4.0, strong_convexity=0.0, set_diameter=2.0)
    >>> dcgs.Theorem1(horizon=8).bind(facts)(1)
    Params(alpha=1.0, tau=4.0, eta=8.0, theta=1.0, e=2.0)
    """

    balance: float = 1.0
    distance: float | None = None
    horizon: int | None = None

    def __post_init__(self) -> None:
        _check(self.balance, self.distance, self.horizon)

    def bind(self, facts: Facts) -> Schedule:
        """Return the function of k for a network with these facts."""
        R = facts.set_diameter if self.distance is None else self.distance
        scale = self.balance * facts.positive_norm * R**2
        N = self.horizon or facts.horizon or _needed(2.0 * facts.agents * scale, facts.accuracy)
        tau = facts.positive_norm / self.balance
        constant = Params(
            alpha=1.0, tau=tau, eta=2.0 * self.balance * facts.positive_norm, theta=1.0, e=scale / N
        )
        return lambda k: constant


@final
@dataclass(frozen=True)
class Theorem2:
    """Theorem 2, for u-strongly convex objectives.

    α = k/(k+1), θ = k+1, η = c k u/2, τ = 4‖L‖²/(c(k+1)u), e = u R²/(N k), the paper's maximum with y⁰ = 0.
    ``balance`` is c ≤ 1: the proof needs θₖ₊₁ηₖ₊₁ ≤ θₖ(ηₖ + u), which holds with equality at c = 1.
    ``distance`` and ``horizon`` are as in :class:`Theorem1`. ``strong_convexity`` replaces the agents' own.

    >>> import dcgs
    >>> facts = dcgs.Facts(agents=10, norm_L=4.0, strong_convexity=0.5, set_diameter=2.0)
    >>> dcgs.Theorem2(horizon=8).bind(facts)(1)
    Params(alpha=0.5, tau=64.0, eta=0.25, theta=2.0, e=0.25)
    """

    balance: float = 1.0
    distance: float | None = None
    horizon: int | None = None
    strong_convexity: float | None = None

    def __post_init__(self) -> None:
        _check(self.balance, self.distance, self.horizon)
        if self.balance > 1.0:
            raise ValueError(
                f"balance must be at most 1 in Theorem2, whose proof fails beyond; got {self.balance!r}."
            )
        POSITIVE.or_none(self.strong_convexity, "strong_convexity")

    def bind(self, facts: Facts) -> Schedule:
        """Return the function of k for a network with these facts."""
        u = facts.strong_convexity if self.strong_convexity is None else self.strong_convexity
        R = facts.set_diameter if self.distance is None else self.distance
        # The bound is u m R² (3 + 2 H_N/N)/(N (N + 3)), at most 5 u m R²/N².
        enough = 5.0 * u * facts.agents * R**2
        N = self.horizon or facts.horizon or math.isqrt(_needed(enough, facts.accuracy)) + 1

        def at(k: int) -> Params:
            return Params(
                alpha=k / (k + 1),
                tau=4.0 * facts.positive_norm**2 / (self.balance * (k + 1) * u),
                eta=self.balance * k * u / 2.0,
                theta=k + 1.0,
                e=u * R**2 / (N * k),
            )

        return at


def _needed(scale: float, accuracy: float | None) -> int:
    """Return the N with scale/N = accuracy; a default without an accuracy."""
    return _DEFAULT_HORIZON if accuracy is None else math.ceil(scale / accuracy)


# N if a run has neither iterations nor rounds nor an accuracy.
_DEFAULT_HORIZON = 100


def _check(balance: float, distance: float | None, horizon: int | None) -> None:
    POSITIVE(balance, "balance")
    POSITIVE.or_none(distance, "distance")
    COUNT.or_none(horizon, "horizon")
