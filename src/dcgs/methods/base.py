"""The interface of a method: settings, and a program for one agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, final

import numpy as np

from dcgs.atoms import Atom
from dcgs.counting import Oracle, Tally
from dcgs.facts import Facts
from dcgs.inner.base import Inner, Outcome, Solver, Task
from dcgs.link import Link
from dcgs.low_rank import LowRank
from dcgs.methods.certificate import Bounds, CertifiedGap, GapTarget
from dcgs.objectives.objective import Baseline, Objective
from dcgs.points import Point, norm, vdot
from dcgs.protocol import Program
from dcgs.secure.session import SecureSums
from dcgs.sets.base import ConvexSet, ProjectableSet
from dcgs.state import ResumePoint
from dcgs.tree import TreeNode

T = TypeVar("T")

Projection: TypeAlias = Callable[[Point], Point]
"""y ↦ the point of a set that is nearest to y."""


@final
@dataclass(frozen=True, eq=False)
class Dual:
    """What an agent knows of the dual problem after an iteration, from which a lower bound of f* is made.

    ``w`` is its multiplier. Those of all agents after the same iteration must sum to zero up to rounding
    errors, of which ``drift`` bounds the part of this agent. Then f* is at least the sum of the agents'
    minima of fᵢ + ⟨wᵢ, ·⟩ over X. ``residual``, if known, is about what this agent contributes to
    f(x) − f* by its disagreement with neighbors: it tells when a certificate may succeed. The minima are
    found by proximal-point steps that start with the weight ``eta`` and the diagonal ``preconditioner``, by a
    solver beside ``solver``, where these are given.

    >>> import dcgs, networkx as nx, numpy as np
    >>> class Steps(dcgs.Method):  # gradient tracking: the g of all agents have the sum of their gradients
    ...     def incompatibility(self, objectives, X):
    ...         return None
    ...     def program(self, agent):
    ...         x, g, before, drift = agent.x0, 0.0 * agent.x0, 0.0 * agent.x0, 0.0
    ...         for k in agent.iterations_left:
    ...             grad = agent.f.grad(x)
    ...             x, g = yield from dcgs.average(np.stack([x, g + grad - before]), agent.metropolis)
    ...             drift += 1e-14 * (dcgs.norm(g) + dcgs.norm(grad) + dcgs.norm(before))
    ...             x, before = agent.X.project(x - g / 8.0), grad
    ...             agent.observe(k, x, dcgs.Dual(g - grad, drift))
    ...         return x
    >>> objectives = [dcgs.LeastSquares(np.eye(2), b) for b in ([1.0, 0.0], [0.0, 1.0])]
    >>> result = dcgs.minimize(objectives, dcgs.L1Ball(2), nx.path_graph(2), Steps(), gap=1e-2)
    >>> result.status.name, str(result.certificates["kind"][-1])
    ('AGREED', 'dual')
    """

    w: Point
    drift: float
    eta: float = 0.0
    residual: float | None = None
    preconditioner: Point | None = None
    solver: Solver | None = None


class Observe(Protocol):
    """Called by a method after each iteration."""

    def __call__(self, k: int, x: Point | LowRank, dual: Dual | None = None, /) -> None:
        """Report the model that the agent would return if the run ended after iteration k."""


class OnSave(Protocol):
    """Called with the state of a method after an iteration, its inner solver, and what certifies gaps."""

    def __call__(
        self, k: int, state: object, inner: Solver | None, certifier: object | None = None, /
    ) -> None:
        """Write the state if a checkpoint is due."""


@final
@dataclass(frozen=True, eq=False)
class Agent:
    """All that one agent knows: its own data, its neighbors, and the facts known before the run.

    * ``index`` is the agent's number and ``f`` its objective. All agents share the set ``X``, its oracle
      ``lmo(direction, near)`` and the starting point ``x0``.
    * ``degrees`` maps each neighbor to its number of neighbors, ``resistances`` to the effective resistance
      of the edge to it (used by FastDCGS; all 1 if empty). ``tree`` is the agent's place in a spanning tree
      of the graph. ``reliable`` is False if messages may be lost or late. ``low_rank_start`` is the starting
      point of a method whose models are matrices in factors; ``x0`` is then empty. ``link`` is the link for
      which sums are cut into pieces; None cuts none.
    * ``observe(k, x)`` reports the model that the agent would return if the run ended after iteration k.
      ``observe(k, x, dual)`` also says the agent's multiplier: agents then certify gaps with fewer bytes.
    * ``target`` is the gap that the agents must certify before they stop. It is None for the programs of most
      methods: the models that they observe are certified around them. Agents that stop because of it call
      ``agree`` with the certified gap first. The root of the spanning tree reports every gap that was
      certified on the way by ``certify``.
    * ``secure`` masks the sums of the network; None if they are open. :meth:`sum_error`
      bounds their errors.
    * ``save`` and ``restore`` are for checkpoints: see :attr:`Method.State`.
    * ``origin`` is the starting point x⁰ of the run, from which decreases are measured, if ``x0`` is another
      point: where the method has changed its form.

    >>> import dcgs, networkx as nx, numpy as np
    >>> class Gossip(dcgs.Method):
    ...     def incompatibility(self, objectives, X):
    ...         return None
    ...     def program(self, agent):
    ...         x = agent.lmo(agent.f.grad(agent.x0), None).dense()
    ...         for k in agent.iterations_left:
    ...             x = yield from dcgs.average(x, agent.metropolis)
    ...             agent.observe(k, x)
    ...         return x
    >>> objectives = [dcgs.LeastSquares(np.eye(2), b) for b in ([1.0, 0.0], [0.0, 1.0])]
    >>> dcgs.minimize(objectives, dcgs.L1Ball(2), nx.path_graph(2), Gossip(), iterations=5).agents
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """

    index: int
    f: Objective
    X: ConvexSet
    lmo: Oracle
    x0: Point
    degrees: Mapping[int, int]
    facts: Facts
    iterations: int
    rng: np.random.Generator
    observe: Observe
    target: GapTarget | None = None
    agree: Callable[[CertifiedGap], None] = lambda certified: None
    certify: Callable[[CertifiedGap], None] = lambda certified: None
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    projections: Tally = field(default_factory=Tally)
    resistances: Mapping[int, float] = field(default_factory=dict)
    tree: TreeNode = field(default_factory=TreeNode)
    low_rank_start: LowRank | None = None
    reliable: bool = True
    link: Link | None = None
    on_save: OnSave = lambda k, state, inner, certifier=None: None
    resume: ResumePoint | None = None
    secure: SecureSums | None = None
    origin: Point | None = None

    def sum_error(self, part: int) -> Any:
        """Return a bound of the error that fixed point adds to each number of an array of a total.

        It is called where the root reads the total, of which the array is the part of this number. The bound
        is an array if each number has an exponent of its own, else one number; 0 if sums are open.
        """
        return 0.0 if self.secure is None else self.secure.errors[part]

    def sum_noise(self, part: int, size: int) -> float:
        """Return a bound of the length of the errors that fixed point adds to such an array of this size."""
        return float(norm(np.broadcast_to(self.sum_error(part), size)))

    def restore(self, kind: type[T]) -> T | None:
        """Return the method's state from a checkpoint; None in a new run. Call it once."""
        return None if self.resume is None else self.resume.program.restore(kind)

    def save(self, k: int, state: object, inner: Solver | None = None) -> None:
        """Pass the state after iteration k to the checkpoint manager, which writes it if a checkpoint is due.

        ``state`` is an instance of the method's State, ``inner`` the inner solver, if there is one. Arrays of
        the state must not be changed in place between this call and the next ``yield``.
        """
        self.on_save(k, state, inner)

    def wolfe_gap(self, grad: Point, x: Point) -> float:
        """Return the maximum of ⟨grad, x − s⟩ over s in X, as the oracle finds it; 0 if it finds less.

        It is no certificate: an iterative oracle may be wrong. See :meth:`proven_gap`.
        """
        return max(0.0, vdot(grad, x) - self.lmo(grad, None).dot(grad))

    def proven_gap(
        self, grad: Point, x: Point, s: Atom | None = None, slack: float = 0.0
    ) -> tuple[float, float]:
        """Return the maximum of ⟨grad, x − s⟩ over X, whatever the oracle finds, and its rounding error.

        ``s`` is the answer of the oracle, if it is known. See :meth:`ConvexSet.lower_bound` for the slack.
        """
        bound = self.X.lower_bound(grad, self.lmo(grad, None) if s is None else s, slack)
        return vdot(grad, x) - bound.value, bound.error

    def gaps(
        self, grad: Point, y: Point, at: CertifiedGap, error: float, bounds: Bounds
    ) -> tuple[CertifiedGap, CertifiedGap]:
        """Return the gap by the linear approximation at y, and the best gap that is proven.

        The oracle is called once. The former gap is that of ``at`` plus the maximum of ⟨grad, y − s⟩ over s
        in X, and ``error`` is the rounding error of its decrease. If it is proven, it is added to ``bounds``:
        always if the oracle is exact, else only where the gap would end the run, because a proof takes as
        long as an oracle call.
        """
        target, s = self.target or GapTarget(), self.lmo(grad, None)
        wolfe = replace(at, gap=at.gap + (vdot(grad, y) - s.dot(grad)))
        is_exact = type(self.X).lower_bound is ConvexSet.lower_bound
        if not (is_exact or (self.target is not None and target.ends(wolfe))):
            return wolfe, bounds.gap(at.decrease, at.at_start)
        slack = max(0.0, target.threshold(at.decrease) - wolfe.gap - at.noise)
        gap, oracle_error = self.proven_gap(grad, y, s, slack)
        wolfe = replace(at, gap=at.gap + gap, noise=at.noise + oracle_error)
        bounds.add_wolfe(wolfe, error)
        return wolfe, bounds.best(wolfe, self.target)

    @cached_property
    def baseline(self) -> Baseline:
        """The agent's f at the starting point, from which decreases are measured."""
        start = self.x0 if self.origin is None else self.origin
        return Baseline.at(self.f, start if self.low_rank_start is None else self.low_rank_start)

    @property
    def iterations_left(self) -> range:
        """The numbers of the iterations to do: from 1, or from the one after the checkpoint."""
        done = 0 if self.resume is None else self.resume.iteration
        return range(done + 1, self.iterations + 1)

    @property
    def task(self) -> Task:
        """What the agent's inner solver works with, for :meth:`Inner.start`."""
        saved = None if self.resume is None else self.resume.inner
        return Task(self.f, self.X, self.lmo, self.x0, self.outcomes, self.projections, saved)

    @property
    def metropolis(self) -> dict[int, float]:
        """Metropolis weights: Wᵢⱼ = 1 / (1 + max(degreeᵢ, degreeⱼ)) for the neighbors j."""
        return {j: 1.0 / (1.0 + max(len(self.degrees), degree)) for j, degree in self.degrees.items()}


class Method(ABC):
    """A decentralized method. It holds settings only; all state is in the running programs.

    To be checkpointed, a method declares its ``State``, starts from ``agent.restore(State)`` if that is not
    None, counts with ``agent.iterations_left`` and calls ``agent.save(k, state)`` after each iteration. The
    page docs/checkpoints.md has an example.

    >>> import dcgs, numpy as np
    >>> f = dcgs.LeastSquares(np.eye(2), [1.0, 0.0])
    >>> isinstance(dcgs.DFW(), dcgs.Method), dcgs.DFW().rounds_per_iteration
    (True, 2)
    >>> print(dcgs.NIDS().incompatibility({0: f}, dcgs.ConvexHull(np.eye(2))))
    NIDS needs a set with a Euclidean projection; ConvexHull has none. Use a method that calls the linear
    oracle, such as dcgs.DCGS().
    """

    rounds_per_iteration: int = 1
    """The rounds of one iteration; the smallest number of rounds if it varies."""
    stops_itself: bool = True
    """True if the agents decide themselves when the gap is reached; else the observer of the run does."""
    certifies: bool = False
    """True if its programs certify gaps; else the agents do that with the models that programs observe."""
    tolerates_faults: bool = False
    """True if its programs work with missing, late and old messages."""
    projects: bool = False
    """True if it projects onto X and calls no oracle. Facts then include smoothness and eigenvalues of W."""
    sums_only: bool = False
    """True if all that its agents send are sums over the network, which can be masked, and their answers."""
    uses_sizes: bool = False
    """True if Facts are to include sizes of data and graph, by which the method chooses what to do."""
    State: ClassVar[Any] = None
    """The dataclass of its programs' state, or ``A | B`` if there are two forms; None: no checkpoints."""

    @abstractmethod
    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        """Return why the method cannot be used for these objectives over this set, or None if it can."""

    def uses_factors(self, f: Objective, X: ConvexSet) -> bool:
        """Return True if models are matrices in factors (LowRank) for an agent with this objective."""
        return False

    def slot(self, message: int) -> int:
        """Return the place in an iteration of an agent's message, the messages counted from 0.

        Where messages are lost and the method needs all, older ones of the same place replace them.
        """
        return message % self.rounds_per_iteration

    @abstractmethod
    def program(self, agent: Agent) -> Program[Any]:
        """Return what the agent does, up to ``agent.iterations`` iterations."""

    def inner_solver(self, f: Objective, X: ConvexSet) -> Inner | None:
        """Return the inner solver for an agent with this objective; None if the method uses none."""
        return None

    def schedule_fingerprint(self, facts: Facts) -> str:
        """Return a text that differs where other limits of a run give other steps.

        Runs with different texts cannot be resumed from each other. Most methods do not depend on limits.
        """
        return ""


class ProjectedMethod(Method):
    """A method that projects onto X and calls no oracle.

    >>> import dcgs
    >>> isinstance(dcgs.NIDS(), dcgs.ProjectedMethod), dcgs.NIDS().projects, dcgs.DFW().projects
    (True, True, False)
    """

    projects = True

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        if isinstance(X, ProjectableSet):
            return None
        return (
            f"{type(self).__name__} needs a set with a Euclidean projection; "
            f"{type(X).__name__} has none. Use a method that calls the linear oracle, such as dcgs.DCGS()."
        )


def projector(agent: Agent) -> Projection:
    """Return the projection onto the agent's set, every use of it counted.

    >>> import dcgs, networkx as nx, numpy as np
    >>> class Steps(dcgs.ProjectedMethod):
    ...     def program(self, agent):
    ...         x, project = agent.x0, dcgs.projector(agent)
    ...         for k in agent.iterations_left:
    ...             x = yield from dcgs.average(x, agent.metropolis)
    ...             x = project(x - agent.f.grad(x) / agent.facts.smoothness)
    ...             agent.observe(k, x)
    ...         return x
    >>> objectives = [dcgs.LeastSquares(np.eye(2), [1.0, 0.0])] * 2
    >>> result = dcgs.minimize(objectives, dcgs.L1Ball(2), nx.path_graph(2), Steps(), iterations=5)
    >>> result.x, result.projections
    (array([1., 0.]), array([5, 5]))
    """
    X = agent.X
    assert isinstance(X, ProjectableSet)

    def counted(y: Point) -> Point:
        agent.projections.count += 1
        return X.project(y)

    return counted
