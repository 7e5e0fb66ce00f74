"""Minimize a sum of objectives over a graph of agents: check, build, run, collect."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dcgs.checkpoints.folder import Checkpoint
from dcgs.inner import Outcome
from dcgs.low_rank import LowRank
from dcgs.methods import FastDCGS, Method
from dcgs.methods.certificate import GapKind
from dcgs.network import GraphArgument
from dcgs.objectives.objective import Objective
from dcgs.parallel import blas_threads
from dcgs.run.build import Run, build
from dcgs.run.checks import RunProblem, Settings, check, sums_of
from dcgs.run.observer import Observer
from dcgs.run.result import CERTIFICATES, Callback, OnModel, Result, as_history
from dcgs.run.stopping import LIMITS, Limits, Status
from dcgs.runtime import FaultSchedule, Lockstep, Runtime
from dcgs.secure.session import SecureSums
from dcgs.sets.base import ConvexSet

# A set-up that takes more than this share of the limit on seconds is worth a note.
_LONG_SETUP = 0.1
# With fewer certificates than this, a limit that is short of the gap needs no explanation.
_MANY = 5
_SLOW_ADVICE = (
    "More rounds help little: ask for a larger gap, choose a smaller set, or scale the columns of the data "
    "to one size."
)


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
    secure: bool | Literal["unmasked"] | Mapping[int, SecureSums] = False,
    on_model: OnModel | None = None,
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

    ``on_model`` is called with the number of an agent of this process, its iteration and its model then.

    With ``secure=True`` every sum over the network is masked: neighbors see uniform words, the root totals
    (docs/privacy.md says who sees what). It needs three agents, ``every=None``, a runtime without faults,
    and FastDCGS in a form by sums, which ``form="auto"`` then is. ``"unmasked"`` sums the same integers
    without masks, to the same bits.

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
        sums_of(secure),
        on_model,
        secure if isinstance(secure, Mapping) else {},
    )
    settings.setup.start()
    # Runtimes use more BLAS threads only where bits stay the same.
    with blas_threads(1):
        run = build(check(objectives, X, graph, x0, settings))
        run.run()
        return collect(run)


def collect(run: Run) -> Result:
    """Return the result of a run that has ended."""
    f, observer, counters = run.problem.f, run.observer, run.counters
    assert observer.status is not None
    x_bar, models = observer.members.x_bar, observer.members.models
    counts = f.numbers(lambda i, _: _counts(run, i))
    counted = counts.astype(np.int64).T
    certificates = _certificates(run)
    return Result(
        x=x_bar,
        agents=tuple(models) if run.problem.form.is_common else np.stack(models),
        hosted=np.array(list(observer.members.known), dtype=np.int64),
        status=observer.status,
        iterations=observer.iterations,
        rounds=counters.traffic.rounds,
        messages=counted[0],
        bytes=counted[1],
        lmo_calls=counted[2],
        projections=counted[3],
        computing=counts[:, 6],
        waiting=counts[:, 7],
        seconds=float(f.group.allreduce_max(np.array([counters.clock.seconds]))[0]),
        history=as_history(observer.snapshots),
        notes=(
            *run.checkpoints.notes,
            *_notes_on_the_end(observer),
            *_notes_on_the_gap(observer, certificates),
            *_silent_links(run),
            *_short_solves(counted[4].tolist(), int(counted[5].sum())),
        ),
        about=_about(run.problem) | run.checkpoints.about() | _certificate(observer) | _secured(run),
        certificates=certificates,
    )


def _certificates(run: Run) -> NDArray[Any]:
    """Return all gaps that the root of the tree certified, with the bytes that were sent up to then."""
    observer, group = run.observer, run.problem.f.group
    rows = np.array(observer.certificates, dtype=np.float64).reshape(-1, 4)
    known = max(group.allgather([rows]), key=len)  # the process that has the root knows them
    rounds = np.array(list(observer.sent), dtype=np.float64)
    sent = np.array(list(observer.sent.values()), dtype=np.float64)
    before = np.searchsorted(rounds, known[:, 0], side="right") - 1
    sent_here = np.where(before >= 0, np.append(sent, 0.0)[before], 0.0)
    total = np.sum(group.allgather([sent_here]), axis=0)
    table = np.zeros(len(known), CERTIFICATES)
    table["rounds"], table["bytes"] = known[:, 0], total
    table["gap"], table["decrease"] = known[:, 1], known[:, 2]
    table["kind"] = [GapKind(int(kind)).name.lower() for kind in known[:, 3]]
    return table


def _counts(run: Run, i: int) -> list[float]:
    """Return what was counted of agent i: six whole numbers, then two numbers of seconds."""
    traffic, outcomes = run.counters.traffic, run.agents[i].outcomes
    return [
        traffic.messages[i],
        traffic.bytes[i],
        run.counters.oracles[i].calls,
        run.counters.projections[i].count,
        outcomes[Outcome.STEPS],
        sum(outcomes.values()),
        traffic.worked[i],
        traffic.waited[i],
    ]


def _short_solves(fell_short: Sequence[int], solves: int) -> Iterator[str]:
    """Yield a note if inner solves ended early, given how many of each agent did."""
    short = {i: count for i, count in enumerate(fell_short) if count}
    if short:
        yield (
            f"{sum(short.values())} of {solves} inner solves, of agents {list(short)}, ended at max_steps "
            "before their gap was reached; the theorems do not cover this run."
        )


def _certificate(observer: Observer) -> dict[str, Any]:
    """Return the certified gap with its kind and rounding error, and f(x⁰) − f(x), if the run ended by it."""
    last = observer.certified
    if last is None:
        return {}
    kind = last.kind.name.lower()
    return {"certified": {"gap": last.gap, "decrease": last.decrease, "noise": last.noise, "kind": kind}}


def _secured(run: Run) -> dict[str, Any]:
    """Return how many sums were masked, the rounds of keys, magnitudes and repeats, and the keys."""
    sums = next(iter(run.agents.values())).secure
    if sums is None:
        return {}
    secure = {"masked": sums.is_masked, "sums": sums.sums, "rounds": sums.rounds, "keys": sums.fingerprint}
    return {"secure": secure}


def _notes_on_the_end(observer: Observer) -> Iterator[str]:
    """Yield a note on each thing that ended the run early, or that makes its answer less than it seems."""
    last = observer.certified
    if observer.status is Status.ROUNDING and last is not None:
        is_share = last.decrease > 0.0 and last.gap > 0.0
        share = f", {last.gap / last.decrease:.1e} of f(x0) − f(x)" if is_share else ""
        yield (
            f"the gap that was reached is {max(last.gap, 0.0):.1e}{share}; rounding error alone makes a gap "
            f"of {last.noise:.1e}. Ask for a larger gap, or scale the data."
        )
    if observer.outside_by:
        yield (
            f"the answers must be in X; they violated it by {observer.outside_by:.2e}. Gaps before the last "
            "do not bound f(x) − f*; the last one is that of the points of X in this result."
        )
    limit = observer.limits.seconds
    if observer.status is Status.SECONDS and limit is not None:
        setup = float(observer.group.allreduce_max(np.array([observer.counters.setup.seconds]))[0])
        if setup > _LONG_SETUP * limit:
            yield f"the set-up took {setup:.1f} of the {limit:.1f} seconds."
    if observer.parts:
        yield f"no message crossed between the agents {observer.parts}; mend the links between them."


def _notes_on_the_gap(observer: Observer, certificates: NDArray[Any]) -> Iterator[str]:
    """Yield a note if many certificates were short of the gap asked for: how far, and what would help."""
    has_many = len(certificates) >= _MANY and observer.status in LIMITS and observer.problem.reliable
    if observer.target is None or not (has_many or observer.status is Status.STALLED):
        return
    rounds, gaps, decreases = (certificates[name] for name in ("rounds", "gap", "decrease"))
    best = int(np.argmin(gaps))
    halved = int(np.argmax(gaps <= 2.0 * gaps[best]))  # from then on the gap was not halved again
    asked = observer.target.threshold(max(float(decreases[best]), 0.0))
    slow = halved < len(gaps) // 2 or observer.status is Status.STALLED
    yield (
        f"the lowest gap that was certified is {max(float(gaps[best]), 0.0):.1e}; {asked:.1e} was asked for. "
        f"It was last halved by round {rounds[halved]:.0f} of {rounds[-1]:.0f}. "
        + (_SLOW_ADVICE if slow else "More rounds may reach it.")
    )


def _about(problem: RunProblem) -> dict[str, Any]:
    """Return what is needed to repeat the run."""
    return {
        "method": repr(problem.method),
        "runtime": repr(problem.settings.runtime),
        "set": type(problem.X).__name__,
        "shape": list(problem.X.shape),
        "agents": len(problem.network),
        "edges": problem.network.edges,
        "seed": int(problem.settings.seed),
        "versions": versions(),
    }


@cache
def versions() -> dict[str, str]:
    """Return the versions that results depend on."""
    packages = {name: version(name) for name in ("dcgs", "numpy", "scipy", "networkx")}
    return packages | {"python": platform.python_version()}


def _silent_links(run: Run) -> Iterator[str]:
    """Yield a note with the links that were silent for too long, if a limit ended a run with faults."""
    problem, rounds = run.problem, run.counters.traffic.rounds
    faulty = not (problem.reliable or problem.settings.runtime.asynchronous)
    schedule = problem.settings.runtime.faults
    patience = FaultSchedule.patience if schedule is None else schedule.patience
    if not faulty or run.observer.status not in LIMITS:
        return
    silent = [
        (i, j)
        for j, links in sorted(run.links.items())
        for i in problem.network.neighbors[j]
        if links.newest.get(i, 0) <= rounds - patience
    ]
    if silent:
        yield (
            f"no message arrived in the last {patience} rounds over the links {silent}, each from sender to "
            "receiver; mend them, or take these edges out of the graph."
        )
