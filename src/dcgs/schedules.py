"""Schedules: the parameters of the k-th outer iteration, as the paper's theorems set them.

A schedule is a function of k. The theorems' choices need a few facts that all agents know before
they start (:class:`Facts`); a user's own schedule may be any function ``k -> Params``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final


@final
@dataclass(frozen=True)
class Params:
    """The letters of Algorithm 2 at one k; ``e`` is the Wolfe gap asked of the inner solver."""

    alpha: float
    tau: float
    eta: float
    theta: float
    e: float


Schedule: TypeAlias = Callable[[int], Params]


@final
@dataclass(frozen=True)
class Facts:
    """What every agent knows before the run; nothing in it is anybody's data.

    ``strong_convexity`` is the smallest of the agents', which is what makes the theorems hold for
    agents that differ; smoothness enters no schedule. ``horizon`` is the N of the theorems.
    """

    agents: int
    norm_L: float
    strong_convexity: float
    diameter: float
    horizon: int

    @property
    def coupling(self) -> float:
        """‖L‖; 1 for an agent alone, for which L = 0 and every positive value fulfils the theorems."""
        return self.norm_L if self.agents > 1 else 1.0


@final
@dataclass(frozen=True)
class Theorem1:
    """Theorem 1, for convex objectives: α = θ = 1, η = 2c‖L‖, τ = ‖L‖/c, e = c‖L‖ R²/N.

    ``balance`` is c: the proof binds only the product η τ, so η may go up as τ goes down (the
    paper has c = 1). The bound becomes F(x̄) − F* ≤ 2c‖L‖ m R²/N.

    ``distance`` is R, a bound of ‖x⁰ − x*‖ for one agent. The paper's e contains that unknown
    itself, summed over agents; here the diameter of X stands in for it unless a better bound is
    given. ``horizon`` is N; by default the iterations (or half the rounds) that the run is given.
    """

    balance: float = 1.0
    distance: float | None = None
    horizon: int | None = None

    def __post_init__(self) -> None:
        _check(self.balance, self.distance, self.horizon)

    def bind(self, facts: Facts) -> Schedule:
        """Return the function of k for a network with these facts."""
        N = self.horizon or facts.horizon
        R = facts.diameter if self.distance is None else self.distance
        eta = 2.0 * self.balance * facts.coupling
        tau = facts.coupling / self.balance
        e = self.balance * facts.coupling * R**2 / N
        constant = Params(alpha=1.0, tau=tau, eta=eta, theta=1.0, e=e)
        return lambda k: constant


@final
@dataclass(frozen=True)
class Theorem2:
    """Theorem 2, for u-strongly convex objectives.

    α = k/(k+1), θ = k+1, η = c k u/2, τ = 4‖L‖²/(c(k+1)u), e = u R²/(N k), the paper's maximum
    with y⁰ = 0. ``balance`` is c ≤ 1: the proof needs θₖ₊₁ηₖ₊₁ ≤ θₖ(ηₖ + u), which holds with
    equality at c = 1, so here η may only go down. ``distance`` and ``horizon`` as in
    :class:`Theorem1`; ``strong_convexity`` replaces the agents' own where more is known.
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
        if self.strong_convexity is not None and not self.strong_convexity > 0.0:
            raise ValueError(f"strong_convexity must be positive; got {self.strong_convexity!r}.")

    def bind(self, facts: Facts) -> Schedule:
        """Return the function of k for a network with these facts."""
        u = facts.strong_convexity if self.strong_convexity is None else self.strong_convexity
        N = self.horizon or facts.horizon
        R = facts.diameter if self.distance is None else self.distance

        def at(k: int) -> Params:
            return Params(
                alpha=k / (k + 1),
                tau=4.0 * facts.coupling**2 / (self.balance * (k + 1) * u),
                eta=self.balance * k * u / 2.0,
                theta=k + 1.0,
                e=u * R**2 / (N * k),
            )

        return at


def _check(balance: float, distance: float | None, horizon: int | None) -> None:
    if not 0.0 < balance < float("inf"):
        raise ValueError(f"balance must be a positive finite number; got {balance!r}.")
    if distance is not None and not 0.0 < distance < float("inf"):
        raise ValueError(f"distance must be a positive finite number; got {distance!r}.")
    if horizon is not None and horizon < 1:
        raise ValueError(f"horizon must be at least 1; got {horizon!r}.")
