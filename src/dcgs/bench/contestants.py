"""The methods that are compared, as they come, and with settings found by trying."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import final

from dcgs.methods import DCGS, DFW, NIDS, Agent, FastDCGS, Method, PGExtra, PrimalDual, ProjectedAGD
from dcgs.objectives import Objective
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.sets import ConvexSet


@final
@dataclass(frozen=True)
class Contestant:
    """A method by the name it has in tables; ``family`` is that of the method whose settings are tried.

    A contestant of its own, with no setting tried, has its own name as family. ``patience`` multiplies the
    seconds it is given: less for those that come to nothing in any time.
    """

    name: str
    method: Method
    family: str
    setting: str = ""
    patience: float = 1.0

    @property
    def file(self) -> str:
        """A name for a file, without odd characters."""
        return "".join(c if c.isalnum() or c in ".-" else "-" for c in self.name.replace("×", "x")).lower()


@final
@dataclass(frozen=True)
class Stepped(Method):
    """A method that projects, with ``times`` the step its theory gives.

    All of them take steps of a constant over the smoothness, so they are told a smaller one.
    """

    method: Method
    times: float
    projects = True

    @property
    def rounds_per_iteration(self) -> int:  # type: ignore[override]  # no variable here, but the method's
        return self.method.rounds_per_iteration

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return self.method.incompatibility(objectives, X)

    def program(self, agent: Agent) -> Program[Point]:
        facts = replace(
            agent.facts,
            smoothness=agent.facts.smoothness / self.times,
            mean_smoothness=agent.facts.mean_smoothness / self.times,
        )
        return self.method.program(replace(agent, facts=facts))


@final
@dataclass(frozen=True)
class Glimpsed(Method):
    """A method that is looked at in every early iteration, and later as often as to be exact to ``share``.

    Measuring needs everyone's data and often costs more than the iteration that is measured.
    """

    method: Method
    share: float = 0.01

    @property
    def rounds_per_iteration(self) -> int:  # type: ignore[override]
        return self.method.rounds_per_iteration

    @property
    def projects(self) -> bool:  # type: ignore[override]
        return self.method.projects

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return self.method.incompatibility(objectives, X)

    def program(self, agent: Agent) -> Program[Point]:
        return self.method.program(replace(agent, observe=glimpses(agent.observe, self.share)))


def glimpses(observe: Callable[[int, Point], None], share: float) -> Callable[[int, Point], None]:
    """Return an observer that passes on every iteration k but those before (1 + share) times the last.

    >>> seen = []
    >>> look = glimpses(lambda place, k: seen.append((place, k)), 0.5)
    >>> for k in range(1, 12): look(k, k)
    >>> seen
    [(1, 1), (2, 2), (3, 3), (4, 5), (5, 8)]
    """
    place, due = 0, 1

    def look(k: int, answer: Point) -> None:
        nonlocal place, due
        if k < due:
            return
        place, due = place + 1, max(k + 1, math.ceil((1.0 + share) * k))
        observe(place, answer)

    return look


def _one(name: str, method: Method, patience: float = 1.0) -> Contestant:
    return Contestant(name, method, name, patience=patience)


CONTESTANTS: tuple[Contestant, ...] = (
    _one("FastDCGS", FastDCGS()),
    _one("DFW", DFW()),
    _one("DCGS, last", DCGS(answer="last"), 0.25),
    _one("DCGS", DCGS(), 0.25),
    # With a precision of 1e-3 it got hardly farther in as many rounds, for up to six times the oracle calls.
    _one("PrimalDual", PrimalDual(precision=1e-2), 0.25),
    _one("PGExtra", PGExtra()),
    _one("NIDS", NIDS()),
    _one("ProjectedAGD", ProjectedAGD()),
)
"""Every method as it comes; nothing is set by hand."""

OURS, BASELINE = "FastDCGS", "DFW"

_TIMES = (0.25, 0.5, 2.0, 4.0, 8.0)  # and 1, the method as it comes
_GOSSIP_ROUNDS = (2, 3, 4, 6, 8)
_ETAS = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)


def _trial(family: str, setting: str, method: Method) -> Contestant:
    return Contestant(f"{family}, {setting}", method, family, setting, patience=0.5)


GRID: tuple[Contestant, ...] = (
    *(_trial("FastDCGS", f"η={eta:g}", FastDCGS(eta=eta)) for eta in _ETAS),
    *(
        _trial(peer.name, f"×{times:g}", Stepped(peer.method, times))
        for peer in CONTESTANTS
        if peer.method.projects
        for times in _TIMES
    ),
    *(
        _trial(
            "ProjectedAGD",
            f"K={rounds}" + (f" ×{times:g}" if times != 1.0 else ""),
            Stepped(ProjectedAGD(gossip_rounds=rounds), times),
        )
        for rounds in _GOSSIP_ROUNDS
        for times in (1.0, 2.0)
    ),
)
"""Settings to choose from with hindsight, which no user has; each family's own defaults belong to it.

×2 is twice the step of the method's theory, K=3 three rounds of gossip an iteration.
"""


def contestant(name: str) -> Contestant:
    """Return a contestant by its name."""
    return next(one for one in (*CONTESTANTS, *GRID) if one.name == name)
