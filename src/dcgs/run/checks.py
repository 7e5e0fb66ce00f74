"""The arguments of ``minimize``, checked before any work is done, and the problem that they describe."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from dcgs.checkpoints.fingerprint import described, settings_of
from dcgs.checkpoints.folder import Checkpoint
from dcgs.inner import Inner
from dcgs.low_rank import LowRank
from dcgs.methods.base import Method
from dcgs.network import EdgesUp, GraphArgument, Network, as_network, edges_up, union_of
from dcgs.objectives.objective import Objective, with_checked_loss
from dcgs.run.distributed import DistributedObjective
from dcgs.run.models import ARRAYS, FACTORS, Model, ModelForm
from dcgs.run.result import Callback, OnModel
from dcgs.run.stopping import Limits, Stopwatch
from dcgs.runtime import Runtime, agreed, check_same
from dcgs.secure.session import SecureSums
from dcgs.sets.base import ConvexSet
from dcgs.state import unsupported
from dcgs.validation import SEED, function_or_none, instance, nonfinite, shown

# Of two agents, each knows the other's value from the total and its own.
LEAST_AGENTS = 3
# Products of four numbers of at most this size, or of at least its reciprocal, do not overflow or underflow.
_LARGEST = 1e70


OPEN, MASKED, UNMASKED = "open", "masked", "unmasked"


def sums_of(secure: object) -> str:
    """Return what ``secure`` of :func:`dcgs.minimize` says of sums; it may be the masked sums of agents."""
    if isinstance(secure, Mapping) and all(isinstance(sums, SecureSums) for sums in secure.values()):
        return MASKED if all(sums.is_masked for sums in secure.values()) else UNMASKED
    if isinstance(secure, bool):
        return MASKED if secure else OPEN
    if not isinstance(secure, str) or secure != UNMASKED:
        raise ValueError(f"secure must be True, False or {UNMASKED!r}; got {shown(secure)}.")
    return UNMASKED


@final
@dataclass(frozen=True, eq=False)
class Settings:
    """How a run is made; ``limits`` are as the user gave them, without defaults.

    ``sums`` is "open", "masked", or "unmasked" for sums of the same integers without masks. ``masks`` are the
    masked sums of agents whose keys are known, as in a fit. ``setup`` counts the time until the run is built.
    """

    method: Method
    limits: Limits
    runtime: Runtime
    seed: int
    callback: Callback | None
    checkpoint: Checkpoint | None
    sums: str = OPEN
    on_model: OnModel | None = None
    masks: Mapping[int, SecureSums] = field(default_factory=dict)
    setup: Stopwatch = field(default_factory=Stopwatch)


@final
@dataclass(frozen=True, eq=False)
class RunProblem:
    """Minimize f over X on a network of agents that start at x0; all models have the form of x0."""

    f: DistributedObjective
    X: ConvexSet
    network: Network
    settings: Settings
    edges_up: EdgesUp | None = None
    form: ModelForm[Any] = ARRAYS
    x0: Model = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def reliable(self) -> bool:
        """Whether every message arrives in the round in which it is sent."""
        return self.settings.runtime.reliable and self.edges_up is None

    @property
    def faults(self) -> dict[str, str]:
        """What a checkpoint must have been made with: the faults, and the edges of a graph that changes."""
        if self.reliable:
            return {}
        varying = "a graph that changes, " if self.edges_up is not None else ""
        return {"faults": varying + settings_of((self.settings.runtime.faults, self.edges_up))}

    @property
    def method(self) -> Method:
        """The method that all agents run."""
        return self.settings.method

    @property
    def limits(self) -> Limits:
        """The limits, with defaults."""
        return self.settings.limits.with_defaults(self.method.stops_itself)


def check(
    objectives: Sequence[Objective] | Mapping[int, Objective],
    X: ConvexSet,
    graph: GraphArgument,
    x0: ArrayLike | LowRank | None,
    settings: Settings,
) -> RunProblem:
    """Return the problem that the arguments describe; raise, in all processes, if one of them is wrong."""
    method, limits, runtime = settings.method, settings.limits, settings.runtime
    instance(runtime, Runtime, "runtime", "be a runtime such as dcgs.Lockstep()")
    SEED(settings.seed, "seed")
    function_or_none(settings.callback, "callback", "a Snapshot")
    function_or_none(settings.on_model, "on_model", "an agent, an iteration and a model")
    group = runtime.group()

    def check_locally() -> RunProblem:
        limits.check()
        network = as_network(union_of(graph))
        local = check_objectives(objectives, runtime.hosts(len(network)), network)
        instance(X, ConvexSet, "X", "be a set such as dcgs.L1Ball(10)")
        instance(method, Method, "method", "be a method such as dcgs.DCGS()")
        limits.check_method(method, settings.callback)
        if settings.checkpoint is not None:
            check_checkpoint(settings.checkpoint, local, X, method)
        f = DistributedObjective(local, group)
        problem = RunProblem(f, X, network, settings, edges_up(graph, network.nodes))
        check_reliability(problem)
        check_secure(problem)
        return problem

    problem = agreed(group, check_locally)
    with group.common_errors():
        check_compatible(problem.f, X, method)
        uses_factors = problem.f.numbers(lambda _, part: [float(method.uses_factors(part, X))])
        form: ModelForm[Any] = FACTORS if problem.reliable and bool(uses_factors.all()) else ARRAYS
        start = agreed(group, lambda: form.start(x0, X, is_alone=group.size == 1))
        problem = replace(problem, form=form, x0=start)
        if group.size > 1:
            check_same(group, _identity(problem))
            problem = replace(problem, x0=form.checked_start(start, X, group))
        check_certifiable(problem)
        check_alike(problem)
    return problem


def _identity(problem: RunProblem) -> dict[str, str]:
    """Return a text for each argument that must be the same in all processes."""
    checkpoint = problem.settings.checkpoint
    edges = _digest(repr(problem.network.neighbors).encode())
    return {
        "graph": f"{len(problem.network)} agents with edges {edges}",
        "method": _settings(problem.method),
        "set": _settings(problem.X),
        "limits": repr(problem.limits),
        "seed": repr(int(problem.settings.seed)),
        "x0": f"a point {_digest(problem.form.common_bytes(problem.x0))}",
        "secure": problem.settings.sums,
        "checkpoint": "none" if checkpoint is None else f"every={checkpoint.every}, {checkpoint.resume!r}",
    }


def _settings(thing: object) -> str:
    """Return a text with all settings; without those that cannot be compared, such as a lock."""
    try:
        return settings_of(thing)
    except TypeError:
        return described(thing)


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:8]


def check_objectives(
    objectives: Sequence[Objective] | Mapping[int, Objective], hosts: range, network: Network
) -> dict[int, Objective]:
    """Return the objectives of the agents of this process."""
    if not isinstance(objectives, Sequence | Mapping):
        raise TypeError(f"objectives must be a sequence, one per agent; got {shown(objectives)}.")
    if isinstance(objectives, Sequence) and len(objectives) != len(network):
        raise ValueError(
            "there must be one objective for each node of the graph; "
            f"got {len(objectives)} objectives and {len(network)} nodes."
        )
    given = range(len(objectives)) if isinstance(objectives, Sequence) else objectives
    missing = [i for i in hosts if i not in given]
    if missing:
        raise ValueError(
            f"objectives must hold those of all agents that this process runs, {list(hosts)}; "
            f"agents {missing} have none."
        )
    local = {i: objectives[i] for i in hosts}
    for i, f in local.items():
        if not isinstance(f, Objective):
            raise TypeError(f"objectives must be dcgs objectives; agent {i} has a {type(f).__name__}.")
    return {i: with_checked_loss(f, i) for i, f in local.items()}


def check_checkpoint(
    checkpoint: Checkpoint, objectives: Mapping[int, Objective], X: ConvexSet, method: Method
) -> None:
    """Raise unless it is a Checkpoint, which can save the state of the method."""
    instance(checkpoint, Checkpoint, "checkpoint", "be a dcgs.Checkpoint(folder), or None")
    solvers = (method.inner_solver(f, X) for f in objectives.values())
    parts: list[Method | Inner] = [method, *(solver for solver in solvers if solver is not None)]
    for part in parts:
        name = type(part).__name__
        reason = f"{name} declares no State" if part.State is None else unsupported(part.State)
        if reason is not None:
            raise ValueError(
                f"a run of {type(method).__name__} cannot be checkpointed: {reason}. Declare the state of "
                f"{name} as a dataclass, as docs/checkpoints.md shows, or leave out the checkpoint."
            )


def check_compatible(f: DistributedObjective, X: ConvexSet, method: Method) -> None:
    """Raise unless all objectives have finite data, and go with the set and the method."""
    reports = [json.loads(text) for text in f.texts(lambda _, part: json.dumps(_report(part, X)))]
    odd = {i: tuple(report["shape"]) for i, report in enumerate(reports) if report["shape"] != list(X.shape)}
    if odd:
        listed = ", ".join(f"agent {i} takes {shape}" for i, shape in odd.items())
        raise ValueError(f"all objectives must take points of shape {X.shape}, as X; {listed}.")
    empty = [i for i, report in enumerate(reports) if report["empty"]]
    if empty:
        raise ValueError(
            f"every agent must have data; agents {empty} have none. "
            "Give them some, or leave them out of the graph."
        )
    bad = [f"agent {i}: {words}" for i, report in enumerate(reports) for words in report["bad"]]
    if bad:
        raise ValueError(f"data must be finite; {'; '.join(bad)}.")
    sizes = [f"agent {i}: {words}" for i, report in enumerate(reports) for words in report["sizes"]]
    if sizes:
        raise ValueError(
            f"the largest number of each array, and that of A times the diameter of X, must be 0 or between "
            f"{1.0 / _LARGEST:.0e} and {_LARGEST:.0e}, so that losses do not overflow; {'; '.join(sizes)}. "
            "Measure the data or X in other units."
        )

    def check_method() -> None:
        reason = method.incompatibility(f.local, X)
        if reason is not None:
            raise ValueError(reason)

    agreed(f.group, check_method)


def check_certifiable(problem: RunProblem) -> None:
    """Raise if a gap is to be certified of losses that are not convex: a Wolfe gap says nothing of them."""
    lowest = problem.f.numbers(lambda _, part: [part.loss.curvature[0]])[:, 0].tolist()
    concave = [i for i, curvature in enumerate(lowest) if curvature < 0.0]
    if concave and problem.limits.target is not None:
        raise ValueError(
            f"a gap can be certified only of convex losses; those of agents {concave} have a negative "
            "curvature. Give iterations, rounds, seconds or lmo_calls, and no gap."
        )


def check_reliability(problem: RunProblem) -> None:
    """Raise if messages may be missing and the method needs all of them, or if a rule cannot be kept."""
    runtime, method, limits = problem.settings.runtime, problem.method, problem.limits
    if problem.reliable:
        return
    if runtime.faults is not None:
        runtime.faults.check(problem.network.neighbors)
    name = type(method).__name__
    if not method.tolerates_faults and (runtime.asynchronous or not runtime.allow_faults):
        advice = "" if runtime.asynchronous else ", or allow_faults=True to see what becomes of it"
        raise ValueError(
            "a method must tolerate missing messages where links are not reliable; "
            f"{name} with these settings needs all of them. Use dcgs.FastDCGS(){advice}."
        )
    if problem.edges_up is not None and (runtime.asynchronous or problem.f.group.size > 1):
        raise ValueError("a graph that changes needs rounds in one process; use dcgs.Lockstep().")
    # Programs that certify gaps themselves need every message, unless they tolerate faults.
    fallible = "noisy" if runtime.has_noise else "replaced by older ones"
    needs_all = runtime.has_noise or (method.certifies and not method.tolerates_faults)
    if needs_all and method.stops_itself and limits.target is not None:
        raise ValueError(
            f"agents cannot certify a gap if messages are {fallible}. Use FastDCGS(stops_itself=False), "
            "whose gap the observer computes, or give iterations, rounds or seconds and no gap."
        )
    if problem.settings.checkpoint is None:
        return
    if runtime.asynchronous:
        raise ValueError("a checkpoint is of a round, and asynchronous runs have none; leave checkpoint out.")
    if not method.tolerates_faults:
        raise ValueError(
            f"a run with faults can be checkpointed only if its method tolerates them; {name} does not. "
            "Leave checkpoint out."
        )


def check_agents(agents: int) -> None:
    """Raise unless sums over so many agents can be masked."""
    if agents < LEAST_AGENTS:
        raise ValueError(
            f"masked sums need at least {LEAST_AGENTS} agents; there are {agents}: with two, the total and "
            "its own value tell each the other's. Leave secure out, or add agents."
        )


def check_secure(problem: RunProblem) -> None:
    """Raise if sums are to be masked and cannot be, or if more than sums would be sent."""
    settings, method = problem.settings, problem.method
    if settings.sums == OPEN:
        return
    name = type(method).__name__
    check_agents(len(problem.network))
    if not isinstance(method, Method) or not method.sums_only:
        raise ValueError(
            "with secure=True, agents may send sums over all agents only, which can be masked; "
            f"{name} with these settings sends points or gradients of single agents to their neighbors. Use "
            "dcgs.FastDCGS() in its forms by sums, without eta, whose agents stop by themselves."
        )
    if settings.limits.every is not None:
        raise ValueError(
            "with secure=True nothing may be measured: the observer of a run reads the models, losses and "
            f"gradients of single agents; got every={settings.limits.every!r}. Give every=None."
        )
    if not problem.reliable:
        raise ValueError(
            "masked sums need rounds in which every message arrives: masks of a lost message do not cancel. "
            "Use a runtime without faults, in rounds, and a graph that does not change; or leave secure out."
        )


def check_alike(problem: RunProblem) -> None:
    """Raise if sums are to be masked and agents would send arrays of other shapes than others."""
    if problem.settings.sums == OPEN:
        return

    def quadratic(_: int, part: Objective) -> list[float]:
        lower, upper = part.loss.curvature
        return [float(lower == upper)]

    quadratics = problem.f.numbers(quadratic)[:, 0]
    if quadratics.any() and not quadratics.all():
        raise ValueError(
            "with secure=True the losses of all agents or of none must be quadratic, else some send Hessians "
            f"and others none; those of agents {np.flatnonzero(quadratics).tolist()} are. Leave secure out."
        )


def _report(f: Objective, X: ConvexSet) -> dict[str, object]:
    """Return what other processes must know of an objective to report an error in it."""
    usable = f.shape == X.shape and f.loss.size > 0
    faults = [nonfinite(array, name) for name, array in f.data().items()] if usable else []
    bad = [fault for fault in faults if fault is not None]
    return {
        "shape": [int(side) for side in f.shape],
        "empty": f.loss.size == 0,
        "bad": bad,
        "sizes": _extreme_sizes(f, X) if usable and not bad else [],
    }


def _extreme_sizes(f: Objective, X: ConvexSet) -> list[str]:
    """Return which numbers of the data are so large or small that squares of losses over- or underflow."""
    entries = {name: np.asarray(A.data if sp.issparse(A) else A) for name, A in f.data().items()}
    sizes = {name: float(max(A.max(initial=0.0), -A.min(initial=0.0))) for name, A in entries.items()}
    sizes |= {f"{name} × diameter": sizes[name] * float(X.diameter) for name in f.map.data()}
    if not f.map.data():
        sizes["the diameter"] = float(X.diameter)
    extreme = {name: size for name, size in sizes.items() if size > _LARGEST or 0.0 < size < 1.0 / _LARGEST}
    return [f"{name} is up to {size:.2e}" for name, size in extreme.items()]
