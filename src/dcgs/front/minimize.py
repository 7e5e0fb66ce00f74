"""The front door: check, run, observe, return a result."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from dcgs.counting import BudgetSpentError, CountedOracle, Tally
from dcgs.front.checkpoint import Checkpoint, Keeper, check_checkpoint
from dcgs.front.checks import (
    agreed,
    check_kinds,
    check_limits,
    check_parts,
    check_problem,
    check_running,
    check_same,
    check_start,
)
from dcgs.front.facts import facts_of
from dcgs.front.fingerprint import fingerprint
from dcgs.front.history import as_history, average
from dcgs.front.network import Network, as_network
from dcgs.front.observer import Callback, Meters, Observer, Watch
from dcgs.front.parts import Parts
from dcgs.front.result import Result
from dcgs.front.stopping import Limits, Stopwatch
from dcgs.inner import Outcome
from dcgs.methods import Agent, FastDCGS, Method
from dcgs.objectives.objective import Objective
from dcgs.points import Point
from dcgs.runtime import Job, Lockstep, Runtime, Traffic
from dcgs.sets.base import ConvexSet


def minimize(
    objectives: Sequence[Objective] | Mapping[int, Objective],
    X: ConvexSet,
    graph: nx.Graph,
    method: Method | None = None,
    *,
    iterations: int | None = None,
    rounds: int | None = None,
    seconds: float | None = None,
    lmo_calls: int | None = None,
    gap: float | None = None,
    runtime: Runtime | None = None,
    seed: int = 0,
    x0: ArrayLike | None = None,
    every: int | None = 1,
    callback: Callback | None = None,
    checkpoint: Checkpoint | None = None,
) -> Result:
    """Minimize Σ fᵢ(x) over x ∈ X with one agent per objective, talking over the graph.

    Agent i is node i of the graph (or its i-th node, where nodes are not 0 … m−1).

    The run ends at the first of: ``iterations``, ``rounds``, ``seconds`` (measuring not counted),
    ``lmo_calls`` of any one agent, or a ``gap``, the certified Wolfe gap of f at the network
    average as a fraction of its value at x⁰. With no rule the gap is 1e-3; a run with no limit but
    a gap ends after 10,000 iterations at the latest. The method is FastDCGS() if none is given, whose
    agents certify the gap themselves and stop with one model for all.

    ``every`` says after how many iterations to measure (0: only first and last; None: never, so that the
    history is empty and no process sees what others' agents have or answer). ``callback`` is
    called with each :class:`Snapshot`, and ends the run by returning True. ``x0`` is the point all
    agents start from, by default the set's own. ``checkpoint`` keeps the state of all agents on disk, and
    resumes from there; see :class:`Checkpoint`.

    With ``runtime=dcgs.MPI()`` every process calls this with the same arguments, but for ``objectives``, of
    which each needs those of the agents it runs only: a mapping from these agents. The result is the same in
    all of them, unless ``every`` is None.

    >>> import dcgs
    >>> f = [dcgs.LeastSquares(np.eye(2), b) for b in ([3.0, 0.0], [1.0, 0.0])]
    >>> result = dcgs.minimize(f, dcgs.L1Ball(2, radius=5.0), nx.path_graph(2), rounds=200)
    >>> str(result.status), result.x.round(1)
    ('the limit on rounds was reached.', array([2., 0.]))
    """
    runtime = Lockstep() if runtime is None else runtime
    method = FastDCGS() if method is None else method
    check_running(runtime, seed, callback)
    group = runtime.group()

    def door() -> tuple[Limits, Network, dict[int, Objective], Point]:
        asked = Limits(iterations, rounds, seconds, lmo_calls, gap, every)
        network = as_network(graph)
        held = check_parts(objectives, runtime.hosts(len(network)), network)
        check_kinds(X, method)
        check_limits(asked, method, callback)
        check_checkpoint(checkpoint, held, X, method)
        return asked, network, held, check_start(x0, X)

    asked, network, held, start = agreed(group, door)
    limits = asked.completed(method.stops_itself)
    with group.common_errors():
        check_same(group, _identity(method, X, network, limits, seed, start, checkpoint))
    parts = Parts(held, group)
    keeper = Keeper(checkpoint, list(held), limits.iterations, group)
    keeper.find()
    # Measuring on one BLAS thread, as agents compute: its sums are then the same in every run.
    with threadpool_limits(1, user_api="blas"):
        with group.common_errors():
            check_problem(parts, X, method)
        meters = _meters(X, len(network), held, limits)
        observer = Observer(parts, X, start, limits, meters, Watch(callback, method.stops_itself))
        facts = replace(
            facts_of(parts, X, network, method.projects),
            horizon=asked.horizon(method.rounds_per_iteration),
            accuracy=observer.target,
        )
        agents = {
            i: Agent(
                index=i,
                f=f,
                X=X,
                lmo=meters.oracles[i],
                x0=start,
                degrees=network.degrees(i),
                weights=network.weights(i),
                facts=facts,
                iterations=limits.iterations or sys.maxsize,
                rng=np.random.default_rng((seed, i)),
                observe=partial(observer.post, i),
                gap=limits.gap if method.stops_itself else None,
                agree=observer.agree,
                projections=meters.projections[i],
                keep=partial(keeper.keep, i),
                past=keeper.past(i),
            )
            for i, f in held.items()
        }
        keeper.begin(lambda agent: fingerprint(agent, method, network, seed), agents, observer)
        limited = limits.lmo_calls is not None or limits.seconds is not None
        job = Job(
            program=lambda i: method.program(agents[i]),
            neighbors=network.neighbors,
            traffic=meters.traffic,
            after_round=lambda: keeper.after_round(agents, observer, observer.after_round()),
            wide=all(f.map.wide for f in held.values()),
            spent=group.any if limited else None,
        )
        with keeper.listening(), group.reporting_failures():
            if observer.status is None:
                meters.clock.go()
                with suppress(BudgetSpentError):
                    runtime.run(job)
            status = observer.finish()
        answers = observer.everyones()
    counts = parts.numbers(lambda i, _: _counts(meters, agents[i], i))
    whole = counts.astype(np.int64).T
    return Result(
        x=average(list(answers.values())),
        agents=np.stack(list(answers.values())),
        hosted=np.array(list(answers), dtype=np.int64),
        status=status,
        iterations=observer.iterations,
        rounds=meters.traffic.rounds,
        messages=whole[0],
        bytes=whole[1],
        lmo_calls=whole[2],
        projections=whole[3],
        computing=counts[:, 6],
        waiting=counts[:, 7],
        seconds=float(group.allreduce_max(np.array([meters.clock.seconds]))[0]),
        history=as_history(observer.snapshots),
        notes=(*keeper.notes, *_notes(whole[4].tolist(), int(whole[5].sum()))),
        about=_about(method, runtime, X, network, seed) | keeper.about(),
    )


def _identity(
    method: Method,
    X: ConvexSet,
    network: Network,
    limits: Limits,
    seed: int,
    start: Point,
    checkpoint: Checkpoint | None,
) -> dict[str, str]:
    """Return what all processes must have been given alike."""
    return {
        "graph": f"{len(network)} agents with edges {_digest(repr(network.neighbors).encode())}",
        "method": type(method).__name__,
        "set": f"{type(X).__name__} of shape {X.shape}, {X.diameter:.6e} wide",
        "limits": repr(limits),
        "seed": repr(int(seed)),
        "x0": f"a point {_digest(start.tobytes())}",
        "checkpoint": "none" if checkpoint is None else f"every={checkpoint.every}, {checkpoint.resume!r}",
    }


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:8]


def _meters(X: ConvexSet, agents: int, held: Iterable[int], limits: Limits) -> Meters:
    clock = Stopwatch()

    def may_call(calls: int) -> bool:
        in_calls = limits.lmo_calls is None or calls < limits.lmo_calls
        return in_calls and (limits.seconds is None or clock.seconds < limits.seconds)

    oracles = {i: CountedOracle(X, may_call) for i in held}
    return Meters(Traffic(agents), oracles, {i: Tally() for i in held}, clock)


def _counts(meters: Meters, agent: Agent, i: int) -> list[float]:
    """Return all that was counted of agent i: six whole numbers and two of seconds."""
    traffic = meters.traffic
    return [
        float(traffic.messages[i]),
        float(traffic.bytes[i]),
        float(meters.oracles[i].calls),
        float(meters.projections[i].count),
        float(agent.outcomes[Outcome.STEPS]),
        float(sum(agent.outcomes.values())),
        float(traffic.worked[i]),
        float(traffic.waited[i]),
    ]


def _notes(fell_short: Sequence[int], solves: int) -> tuple[str, ...]:
    """Say what of the run fell short without ending it, given how many inner solves of each agent did."""
    short = {i: count for i, count in enumerate(fell_short) if count}
    if not short:
        return ()
    return (
        f"{sum(short.values())} of {solves} inner solves, of agents {list(short)}, ended at max_steps before "
        "their gap was reached; the theorems do not cover this run.",
    )


def _about(method: Method, runtime: Runtime, X: ConvexSet, network: Network, seed: int) -> dict[str, Any]:
    """Say how to repeat the run."""
    return {
        "method": repr(method),
        "runtime": repr(runtime),
        "set": type(X).__name__,
        "shape": list(X.shape),
        "agents": len(network),
        "edges": sum(map(len, network.neighbors)) // 2,
        "seed": int(seed),
        "versions": versions(),
    }


@cache
def versions() -> dict[str, str]:
    """Return the versions that results depend on."""
    packages = {name: version(name) for name in ("dcgs", "numpy", "scipy", "networkx")}
    return packages | {"python": platform.python_version()}
