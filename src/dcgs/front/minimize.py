"""The front door: check, run, observe, return a result."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from dcgs.counting import BudgetSpentError, CountedOracle, Tally
from dcgs.front.checkpoint import Checkpoint, Keeper, check_checkpoint
from dcgs.front.checks import check_limits, check_problem, check_running, check_start
from dcgs.front.facts import facts_of
from dcgs.front.fingerprint import fingerprint
from dcgs.front.history import as_history, average
from dcgs.front.network import Network, as_network
from dcgs.front.observer import Callback, Meters, Observer
from dcgs.front.result import Result
from dcgs.front.stopping import Limits, Stopwatch
from dcgs.inner import Outcome
from dcgs.methods import Agent, FastDCGS, Method
from dcgs.objectives.objective import Objective
from dcgs.runtime import Job, Lockstep, Runtime, Traffic
from dcgs.sets.base import ConvexSet


def minimize(
    objectives: Sequence[Objective],
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
    every: int = 1,
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

    ``every`` says after how many iterations to measure (0: only first and last). ``callback`` is
    called with each :class:`Snapshot`, and ends the run by returning True. ``x0`` is the point all
    agents start from, by default the set's own. ``checkpoint`` keeps the state of all agents on disk, and
    resumes from there; see :class:`Checkpoint`.

    >>> import dcgs
    >>> f = [dcgs.LeastSquares(np.eye(2), b) for b in ([3.0, 0.0], [1.0, 0.0])]
    >>> result = dcgs.minimize(f, dcgs.L1Ball(2, radius=5.0), nx.path_graph(2), rounds=200)
    >>> str(result.status), result.x.round(1)
    ('the limit on rounds was reached.', array([2., 0.]))
    """
    asked = Limits(iterations, rounds, seconds, lmo_calls, gap, every)
    method = FastDCGS() if method is None else method
    runtime = Lockstep() if runtime is None else runtime
    check_running(runtime, seed, callback)
    network = as_network(graph)
    check_problem(objectives, X, network, method)
    check_limits(asked, method)
    limits = asked.completed(method.stops_itself)
    start = check_start(x0, X)
    check_checkpoint(checkpoint, objectives, X, method)
    keeper = Keeper(checkpoint, range(len(network)), limits.iterations)
    keeper.find()
    # Measuring on one BLAS thread, as agents compute: its sums are then the same in every run.
    with threadpool_limits(1, user_api="blas"):
        meters = _meters(X, len(network), limits)
        observer = Observer(objectives, X, start, limits, meters, callback, not method.stops_itself)
        facts = replace(
            facts_of(objectives, X, network, method.projects),
            horizon=asked.horizon(method.rounds_per_iteration),
            accuracy=observer.target,
        )
        agents = [
            Agent(
                index=i,
                f=objectives[i],
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
            for i in range(len(network))
        ]
        hosted = dict(enumerate(agents))
        keeper.begin(lambda agent: fingerprint(agent, method, network, seed), hosted, observer)
        job = Job(
            program=lambda i: method.program(agents[i]),
            neighbors=network.neighbors,
            traffic=meters.traffic,
            after_round=lambda: keeper.after_round(hosted, observer, observer.after_round()),
            wide=all(f.map.wide for f in objectives),
        )
        if observer.status is None:
            meters.clock.go()
            with keeper.listening(), suppress(BudgetSpentError):
                runtime.run(job)
        status = observer.finish()
    return Result(
        x=average(observer.answers),
        agents=np.stack(observer.answers),
        status=status,
        iterations=observer.iterations,
        rounds=meters.traffic.rounds,
        messages=meters.traffic.messages,
        bytes=meters.traffic.bytes,
        lmo_calls=np.array([oracle.calls for oracle in meters.oracles]),
        projections=np.array([tally.count for tally in meters.projections]),
        seconds=meters.clock.seconds,
        history=as_history(observer.snapshots),
        notes=(*keeper.notes, *_notes(agents)),
        about=_about(method, runtime, X, network, seed) | keeper.about(),
    )


def _meters(X: ConvexSet, agents: int, limits: Limits) -> Meters:
    clock = Stopwatch()

    def may_call(calls: int) -> bool:
        in_calls = limits.lmo_calls is None or calls < limits.lmo_calls
        return in_calls and (limits.seconds is None or clock.seconds < limits.seconds)

    oracles = [CountedOracle(X, may_call) for _ in range(agents)]
    return Meters(Traffic(agents), oracles, [Tally() for _ in range(agents)], clock)


def _notes(agents: Sequence[Agent]) -> tuple[str, ...]:
    """Say what of the run fell short without ending it."""
    short = {i: agent.outcomes[Outcome.STEPS] for i, agent in enumerate(agents)}
    short = {i: count for i, count in short.items() if count}
    if not short:
        return ()
    solves = sum(sum(agent.outcomes.values()) for agent in agents)
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
