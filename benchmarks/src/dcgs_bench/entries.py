"""The entries of the comparison: methods with default settings, and with settings found by search."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from dcgs import registry
from dcgs.facts import ProjectionFacts
from dcgs.methods import DCGS, DFW, NIDS, Agent, FastDCGS, Method, PGExtra, PrimalDual, ProjectedAGD
from dcgs.methods.base import Dual, Observe
from dcgs.objectives import Objective
from dcgs.protocol import Program
from dcgs.sets import ConvexSet

GOAL = 1e-3
"""The level that the settings of a grid are tried for, and the gap that agents of every method certify."""


@final
@dataclass(frozen=True)
class Entry:
    """A method under the name that tables show.

    ``setting`` is what differs from the default settings of the entry ``family``; empty for defaults.
    ``time_factor`` multiplies the time limit. ``spec`` is the import path of a method outside the package.
    ``gaps`` are those that its agents certify, each in a run of its own that ends when they stop.
    """

    name: str
    method: Method
    family: str
    setting: str = ""
    time_factor: float = 1.0
    spec: str = ""
    gaps: tuple[float, ...] = ()

    @property
    def file(self) -> str:
        """The name of its files."""
        name = (self.spec or self.name).replace("×", "x")
        return "".join(c if c.isalnum() or c in ".-" else "-" for c in name).lower()


@final
@dataclass(frozen=True)
class Adapted(Method):
    """A method whose agents are changed by ``adapt`` before they start."""

    method: Method
    adapt: Callable[[Agent], Agent]

    # Those of the wrapped method.
    rounds_per_iteration = property(lambda self: self.method.rounds_per_iteration)
    stops_itself = property(lambda self: self.method.stops_itself)
    certifies = property(lambda self: self.method.certifies)
    projects = property(lambda self: self.method.projects)
    uses_sizes = property(lambda self: self.method.uses_sizes)

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return self.method.incompatibility(objectives, X)

    def uses_factors(self, f: Objective, X: ConvexSet) -> bool:
        return self.method.uses_factors(f, X)

    def program(self, agent: Agent) -> Program[Any]:
        return self.method.program(self.adapt(agent))


@final
@dataclass(frozen=True)
class ScaledStep:
    """Multiply the steps of a method that takes a constant over the smoothness."""

    times: float

    def __call__(self, agent: Agent) -> Agent:
        """Return the agent with a smoothness that is ``times`` smaller."""
        facts = agent.facts
        smoothness = facts.smoothness / self.times, facts.mean_smoothness / self.times
        scaled = ProjectionFacts(facts.extreme_eigenvalues, facts.mixing_eigenvalues, *smoothness)
        return replace(agent, facts=replace(facts, projection=scaled))


def observed_sparsely(agent: Agent) -> Agent:
    """Return the agent, observed at every early iteration; later k grows by 1 % between observations.

    Measuring needs everyone's data and often costs more than the iteration that is measured.
    """
    return replace(agent, observe=sparsely(agent.observe, 0.01))


def sparsely(observe: Callable[[int, Any], None], share: float) -> Observe:
    """Return an observer that skips iterations before (1 + share) times the last one observed.

    >>> seen = []
    >>> observe = sparsely(lambda place, k: seen.append((place, k)), 0.5)
    >>> for k in range(1, 12): observe(k, k)
    >>> seen
    [(1, 1), (2, 2), (3, 3), (4, 5), (5, 8)]
    """
    place, due = 0, 1

    def observe_if_due(k: int, answer: Any, dual: Dual | None = None) -> None:
        nonlocal place, due
        if k >= due:
            place, due = place + 1, max(k + 1, math.ceil((1.0 + share) * k))
            observe(place, answer)

    return observe_if_due


# DCGS and PrimalDual hardly ever reach 1e-3, so they get a quarter of the time. A precision of 1e-3 took
# PrimalDual hardly farther in as many rounds, for up to six times the oracle calls.
_DEFAULTS: tuple[tuple[str, Method, float], ...] = (
    ("FastDCGS", FastDCGS(), 1.0),
    ("DFW", DFW(), 1.0),
    ("DCGS, last", DCGS(answer="last"), 0.25),
    ("DCGS", DCGS(), 0.25),
    ("PrimalDual", PrimalDual(precision=1e-2), 0.25),
    ("PGExtra", PGExtra(), 1.0),
    ("NIDS", NIDS(), 1.0),
    ("ProjectedAGD", ProjectedAGD(), 1.0),
)
OURS, BASELINE = "FastDCGS", "DFW"
_OUR_GAPS = (1e-2, GOAL, 1e-5)
ENTRIES = tuple(
    Entry(name, method, name, time_factor=time_factor, gaps=_OUR_GAPS if name == OURS else (GOAL,))
    for name, method, time_factor in _DEFAULTS
)
"""Every method with default settings; nothing is tuned."""

_ETAS = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
_TIMES = (0.25, 0.5, 2.0, 4.0, 8.0)  # 1 is the default
_GOSSIP = [(rounds, times) for rounds in (2, 3, 4, 6, 8) for times in (1.0, 2.0)]

_PROJECTED = [
    (one.name, f"×{times:g}", one.method, times) for one in ENTRIES if one.method.projects for times in _TIMES
]
_PROJECTED += [
    ("ProjectedAGD", f"K={k}" + f" ×{times:g}" * (times != 1.0), ProjectedAGD(gossip_rounds=k), times)
    for k, times in _GOSSIP
]
_SETTINGS: list[tuple[str, str, Method]] = [
    *((OURS, f"η={eta:g}", FastDCGS(eta=eta)) for eta in _ETAS),
    *((name, text, Adapted(method, ScaledStep(times))) for name, text, method, times in _PROJECTED),
]
GRID = tuple(Entry(f"{name}, {text}", method, name, text, 0.5) for name, text, method in _SETTINGS)
"""Settings of a grid search, from which the best is chosen with hindsight.

×2 is twice the step of the method's theory; K=3 is three rounds of gossip an iteration.
"""

FORMS = tuple(
    Entry(f"{OURS}, {form}", FastDCGS(form=form), OURS, form) for form in ("edges", "sums", "root", "newton")
)
"""The forms of FastDCGS, of which its default settings choose one."""


def entry_named(name: str) -> Entry:
    """Return the entry of that name, or of a method outside the package.

    Such a method is named ``package.module:name`` or ``path/to/file.py:name``, and is a method, or a class
    or function that makes one without arguments.
    """
    if ":" not in name:
        return next(entry for entry in (*ENTRIES, *GRID, *FORMS) if entry.name == name)
    loaded = registry.load("method", name)
    method = loaded if isinstance(loaded, Method) or not callable(loaded) else loaded()
    if not isinstance(method, Method):
        raise ValueError(
            f"{name} must be a dcgs.Method, or make one without arguments; it gives {type(method).__name__}."
        )
    short = name.rpartition(":")[2]
    return Entry(short, method, short, spec=name, gaps=(GOAL,) if method.stops_itself else ())
