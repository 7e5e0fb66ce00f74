"""Minimize a sum of objectives over a graph of agents: check, build, run, collect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from numpy.typing import ArrayLike

from dcgs.counting import BudgetSpentError
from dcgs.front.build import Run, build
from dcgs.front.checkpoint import Checkpoint
from dcgs.front.checks import check
from dcgs.front.collect import collect
from dcgs.front.history import Callback
from dcgs.front.network import GraphArgument
from dcgs.front.problem import Settings
from dcgs.front.result import Result
from dcgs.front.stopping import Limits
from dcgs.low_rank import LowRank
from dcgs.methods import FastDCGS, Method
from dcgs.objectives.objective import Objective
from dcgs.parallel import blas_threads
from dcgs.runtime import Lockstep, PartitionedError, Runtime
from dcgs.sets.base import ConvexSet


def minimize(
    objectives: Sequence[Objective] | Mapping[int, Objective],
    X: ConvexSet,
    graph: GraphArgument,
    method: Method | None = None,
    *,
    iterations: int | None = None,
    rounds: int | None = None,
    seconds: float | None = None,
    lmo_calls: int | None = None,
    gap: float | None = None,
    gap_abs: float | None = None,
    runtime: Runtime | None = None,
    seed: int = 0,
    x0: ArrayLike | LowRank | None = None,
    every: int | None = 1,
    callback: Callback | None = None,
    checkpoint: Checkpoint | None = None,
) -> Result:
    """Minimize Σ fᵢ(x) over x ∈ X with one agent per objective, which communicate over the graph.

    Agent i is node i of the graph (or its i-th node, if the nodes are not 0 … m−1). The graph may also be a
    sequence of graphs, which is repeated, or a function of the round. The default method is
    FastDCGS(): its agents certify the gap themselves, and stop with one model for all.

    The run ends at the first of: ``iterations``, ``rounds``, ``seconds`` (the set-up counts, measurements
    do not), ``lmo_calls`` of any one agent, or a certified Wolfe gap of f at the answer x: one of at most
    ``gap`` · (f(x⁰) − f(x)), so that f(x) − f* ≤ ``gap`` · (f(x⁰) − f*), or of at most ``gap_abs``. Without
    any of them the gap is 1e-3. A run without a limit on iterations, rounds and seconds ends after 10,000
    iterations at the latest, or after ``lmo_calls`` iterations if that is more.

    ``every`` is the number of iterations between measurements. 0 measures only the first and the last
    iteration. None measures nothing: the history is empty, and no process sees the models of other processes.
    ``callback`` is called with each :class:`Snapshot`, and ends the run by returning True. Agents start at
    ``x0``, by default ``X.start()``. ``checkpoint`` saves the state of all agents to disk and resumes from
    there; see :class:`Checkpoint`.

    With ``runtime=dcgs.MPI()`` every process calls this with the same arguments, except for ``objectives``: a
    process needs only those of its own agents, as a mapping from agent to objective. All processes return the
    same result, unless ``every`` is None.

    >>> import dcgs, networkx as nx, numpy as np
    >>> f = [dcgs.LeastSquares(np.eye(2), b) for b in ([3.0, 0.0], [1.0, 0.0])]
    >>> result = dcgs.minimize(f, dcgs.L1Ball(2, radius=5.0), nx.path_graph(2), rounds=200)
    >>> str(result.status), result.x.round(1)
    ('the limit on rounds was reached.', array([2., 0.]))
    """
    settings = Settings(
        FastDCGS() if method is None else method,
        Limits(iterations, rounds, seconds, lmo_calls, gap, every, gap_abs),
        Lockstep() if runtime is None else runtime,
        seed,
        callback,
        checkpoint,
    )
    settings.setup.start()
    # One BLAS thread gives the same bits in every run. Runtimes use more only where bits stay the same.
    with blas_threads(1):
        problem = check(objectives, X, graph, x0, settings)
        run = build(problem)
        _run(run)
        return collect(run)


def _run(run: Run) -> None:
    """Run the agents until the observer ends the run, or an agent may not call its oracle again."""
    group, observer = run.problem.f.group, run.observer
    with run.checkpoints.listening(), group.reporting_failures():
        observer.end_setup()
        if observer.status is None:
            run.counters.clock.start()
            try:
                run.problem.settings.runtime.run(run.job())
            except BudgetSpentError:
                observer.spend_budget()
            except PartitionedError as error:
                observer.partition(error.parts)
        if not run.checkpoints.interrupted:
            observer.finish()
