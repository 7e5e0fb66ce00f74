"""``dcgs fit``: a model of one's own data, fitted by agents that keep theirs."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dcgs.cli.errors import command_errors
from dcgs.cli.fit_options import add_options, order_of
from dcgs.cli.launch import launch
from dcgs.fitting import Fitted, Order, Output, Ticking, agents_of, fit
from dcgs.front import Callback, agreed
from dcgs.parallel import cores
from dcgs.report.ticker import Ticker, shown_bytes
from dcgs.runtime import (
    MPI,
    Lockstep,
    ProcessGroup,
    Runtime,
    Scope,
    is_printed_here,
    scope_of,
    set_hint,
    started_by_mpi,
)

_SHOWN_AGENTS = 20
_RANKS_PER_CORE = 4


def add(jobs: Any) -> None:
    """Add the job to the command."""
    add_options(jobs).set_defaults(run=_run)


def _run(args: argparse.Namespace, console: Console) -> int:
    args.runtime = args.runtime or ("mpi" if started_by_mpi() else "lockstep")
    if args.runtime == "mpi" and not started_by_mpi():
        order, _ = _checked(args)
        agents = agents_of(order, processes=1)
        # The processes would otherwise assume that there are as many agents as processes.
        said = [] if args.agents is not None else ["--agents", str(agents)]
        return launch([*args.typed, *said], _ranks(args, agents))
    new = not args.out.exists()  # before all meet, and any process makes it
    runtime = _runtime(args)
    group = runtime.group()
    with command_errors(group, args.checkpoint):
        try:
            with group.reporting_failures():
                return _fit(args, console, runtime, group)
        except (KeyboardInterrupt, SystemExit) as stop:
            return _interrupted(stop, args.checkpoint, group, console)
        finally:
            if new:
                Output(args.out).leave()


def _fit(args: argparse.Namespace, console: Console, runtime: Runtime, group: ProcessGroup) -> int:
    def door() -> tuple[Order, Output]:
        order, output = _checked(args)
        runtime.hosts(agents_of(order, group.size))
        return order, output

    order, output = agreed(group, door)
    agreed(group, output.open)
    output = replace(output, meet=group.barrier)
    if order.checkpoint is not None:
        set_hint("go on with --resume")
    fitted = _fitted(order, runtime, group, console if group.is_root else None)
    if not group.is_root:
        output.write(fitted.models)
        return 0
    summary = fitted.summary(shlex.join(["dcgs", *args.typed]))
    output.write_all(fitted.models, summary, fitted.history())
    _tell(fitted, summary, args.out, console)
    return 0


def _interrupted(
    stop: KeyboardInterrupt | SystemExit, kept: Path | None, group: ProcessGroup, console: Console
) -> int:
    """Print, in one process, what an interrupted fit has left and how to go on; return the exit status."""
    status = stop.code if isinstance(stop, SystemExit) and isinstance(stop.code, int) else 130
    scope = scope_of(stop)
    if not is_printed_here(scope, group.is_root):
        return status
    common = scope is Scope.ALL or group.size == 1
    who = "interrupted" if common else group.describe(stop).rstrip(".")
    there = kept is not None and any(kept.glob("agent-*/*.dcgs"))
    left = f"a checkpoint is in {kept}; go on by the same command with --resume."
    console.print(f"{who}: {left if there else 'nothing was written.'}", soft_wrap=True)
    return status


def _checked(args: argparse.Namespace) -> tuple[Order, Output]:
    """Return what is asked for, and where to write it, if that can be."""
    order, output = order_of(args), Output(args.out)
    order.check()
    output.check(args.force or bool(args.resume))
    return order, output


def _runtime(args: argparse.Namespace) -> Runtime:
    """Return who carries messages."""
    if args.runtime != "mpi":
        return Lockstep(threads=args.threads)
    return MPI() if args.timeout is None else MPI(timeout=args.timeout)


def _ranks(args: argparse.Namespace, agents: int) -> int:
    """Return how many processes to start: one per agent, as far as the machine has cores for them."""
    return min(agents, args.ranks or max(2, _RANKS_PER_CORE * cores()))


def _fitted(order: Order, runtime: Runtime, group: ProcessGroup, console: Console | None) -> Fitted:
    """Return what the fit comes to; with progress where there is a console to show it on."""
    if console is None:
        return fit(order, runtime, group)
    limits = [order.rules["rounds"], order.rules["iterations"]]
    limits[1] = limits[1] and limits[1] * order.method.rounds_per_iteration
    rounds = min((limit for limit in limits if limit is not None), default=None)
    with Ticker(console, order.problem.name, rounds) as ticker:
        callback: Callback | None = None if order.measure is None else ticker.measured
        return fit(order, Ticking(runtime, ticker.tick), group, callback)


def _tell(fitted: Fitted, summary: Mapping[str, Any], out: Path, console: Console) -> None:
    result, agents = fitted.result, len(fitted.wiring.graph)
    console.print(str(result.status), soft_wrap=True)
    table = Table("agent")
    for name in (
        "rows",
        "messages",
        "bytes sent",
        "projections" if fitted.order.method.projects else "oracle calls",
        "s computing",
        "s waiting",
    ):
        table.add_column(name, justify="right")
    work = result.projections if fitted.order.method.projects else result.lmo_calls
    for i in range(min(agents, _SHOWN_AGENTS)):
        rows = str(fitted.loaded.rows.get(i, ""))
        sent = str(result.messages[i]), shown_bytes(int(result.bytes[i]))
        spent = f"{result.computing[i]:.2f}", f"{result.waiting[i]:.2f}"
        table.add_row(str(i), rows, *sent, str(work[i]), *spent)
    console.print(table)
    if agents > _SHOWN_AGENTS:
        console.print(f"and {agents - _SHOWN_AGENTS} agents more, in summary.json")
    console.print(
        f"{result.rounds} rounds, {shown_bytes(int(result.bytes.sum()))} in all, {result.seconds:.2f} s",
        soft_wrap=True,
    )
    if summary.get("checkpoint", {}).get("resumed"):
        console.print(f"resumed after iteration {summary['checkpoint']['resumed']}")
    _tell_reading(fitted, console)
    for name, value in summary.get("measures", {}).items():
        console.print(f"{name} {value:.6g}")
    for note in result.notes:
        console.print(note)
    console.print(
        f"written: {out}/agent-000.npz" + (" …" if agents > 1 else "") + ", summary.json", soft_wrap=True
    )


def _tell_reading(fitted: Fitted, console: Console) -> None:
    """Say what was taken for granted in reading the data."""
    reading, sides = fitted.loaded.reading, ",".join(map(str, fitted.loaded.shape))
    if "base" in reading:
        console.print(f"the matrix has shape {sides}; rows and columns were counted from {reading['base']}")
        return
    if reading["target_at"] is not None:
        name = f"column {reading['target_at'] + 1}" + (
            f", {reading['target']!r}" if reading["target"] else ""
        )
        console.print(f"{sides} features; the target was {name}", soft_wrap=True)
    if "labels" in reading:
        low, high = reading["labels"]
        console.print(f"label {low:.12g} was taken for -1 and {high:.12g} for +1")
