"""``dcgs fit``: fit a model to data that several agents hold."""

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
from dcgs.cli.fit_options import add_options, config_of
from dcgs.cli.launch import launch
from dcgs.experiments.numbers import size
from dcgs.fitting.models import OutputFolder
from dcgs.fitting.run import FitConfig, FitResult, fit
from dcgs.front import agreed
from dcgs.parallel import cores
from dcgs.report.progress import ObservedRuntime, Progress
from dcgs.runtime import (
    MPI,
    Lockstep,
    ProcessGroup,
    RunAbortedError,
    Runtime,
    Scope,
    interrupt_status,
    scope_of,
    started_by_mpi,
)
from dcgs.supervisor import mark_printed, set_hint

_PRINTED_AGENTS = 20
_RANKS_PER_CORE = 4


def add(jobs: Any) -> None:
    """Add the job to the command."""
    add_options(jobs).set_defaults(run=_run)


def _run(args: argparse.Namespace, console: Console) -> int:
    args.runtime = args.runtime or ("mpi" if started_by_mpi() else "lockstep")
    if args.runtime == "mpi" and not started_by_mpi():
        config, _ = _checked(args)
        agents = config.count_agents(processes=1)
        # Without --agents, the processes would count one agent per process.
        count = [] if args.agents is not None else ["--agents", str(agents)]
        return launch([*args.typed, *count], _ranks(args, agents))
    new = not args.out.exists()  # before any process creates it
    runtime = _runtime(args)
    group = runtime.group()
    with command_errors(group, args.checkpoint):
        try:
            with group.reporting_failures():
                return _fit(args, console, runtime, group)
        except (KeyboardInterrupt, SystemExit, RunAbortedError) as stop:
            status = interrupt_status(stop)
            if status is None:
                raise
            if group.is_root:
                _print_interrupted(stop, args.checkpoint, group, console)
            return status
        finally:
            if new:
                OutputFolder(args.out).remove_if_empty()


def _fit(args: argparse.Namespace, console: Console, runtime: Runtime, group: ProcessGroup) -> int:
    def check() -> tuple[FitConfig, OutputFolder]:
        config, output = _checked(args)
        runtime.hosts(config.count_agents(group.size))  # raises if there are more processes than agents
        return config, output

    config, output = agreed(group, check)
    agreed(group, output.create)
    output = replace(output, barrier=group.barrier)
    if config.checkpoint is not None:
        set_hint("continue with --resume")
    if not group.is_root:
        output.write(fit(config, runtime, group).models)
        return 0
    fitted = _fit_with_progress(config, runtime, group, console)
    summary = fitted.summary(shlex.join(["dcgs", *args.typed]))
    output.write(fitted.models, summary, fitted.history())
    _print_result(fitted, summary, args.out, console)
    return 0


def _print_interrupted(
    stop: BaseException, folder: Path | None, group: ProcessGroup, console: Console
) -> None:
    """Print where the checkpoint is and how to resume; only the root prints it."""
    mark_printed()
    common = group.size == 1 or scope_of(stop) is Scope.ALL or not str(stop)
    who = "interrupted" if common else group.describe(stop).rstrip(".")
    there = folder is not None and any(folder.glob("agent-*/*.dcgs"))
    left = f"a checkpoint is in {folder}; continue by the same command with --resume."
    console.print(f"{who}: {left if there else 'nothing was written.'}", soft_wrap=True)


def _checked(args: argparse.Namespace) -> tuple[FitConfig, OutputFolder]:
    """Return what to fit and where to write it; raise if either is impossible."""
    config, output = config_of(args), OutputFolder(args.out)
    config.check()
    output.check(args.force or bool(args.resume))
    return config, output


def _runtime(args: argparse.Namespace) -> Runtime:
    """Return the runtime that was asked for."""
    if args.runtime != "mpi":
        return Lockstep(threads=args.threads)
    return MPI() if args.timeout is None else MPI(timeout=args.timeout)


def _ranks(args: argparse.Namespace, agents: int) -> int:
    """Return how many processes to start: one per agent, but at most four per core."""
    return min(agents, args.ranks or max(2, _RANKS_PER_CORE * cores()))


def _fit_with_progress(
    config: FitConfig, runtime: Runtime, group: ProcessGroup, console: Console
) -> FitResult:
    rounds, iterations = config.rules["rounds"], config.rules["iterations"]
    if iterations is not None:
        iterations *= config.method.rounds_per_iteration
    limits = [limit for limit in (rounds, iterations) if limit is not None]
    with Progress(console) as progress:
        task = progress.rounds(config.problem.name, min(limits, default=None))
        callback = None if config.measure is None else task.measured
        return fit(config, ObservedRuntime(runtime, task.after_round), group, callback)


def _print_result(fitted: FitResult, summary: Mapping[str, Any], out: Path, console: Console) -> None:
    result = fitted.result
    console.print(str(result.status), soft_wrap=True)
    console.print(_agents_table(fitted))
    if fitted.agents > _PRINTED_AGENTS:
        console.print(f"and {fitted.agents - _PRINTED_AGENTS} agents more, in summary.json")
    total = size(result.bytes.sum())
    console.print(f"{result.rounds} rounds, {total} in all, {result.seconds:.2f} s", soft_wrap=True)
    if summary.get("checkpoint", {}).get("resumed"):
        console.print(f"resumed after iteration {summary['checkpoint']['resumed']}")
    _print_reading(fitted, console)
    for name, value in summary.get("measures", {}).items():
        console.print(f"{name} {value:.6g}")
    for note in result.notes:
        console.print(note)
    more = " …" if fitted.agents > 1 else ""
    console.print(f"written: {out}/agent-000.npz{more}, summary.json", soft_wrap=True)


def _agents_table(fitted: FitResult) -> Table:
    result, projects = fitted.result, fitted.config.method.projects
    table = Table("agent")
    work = "projections" if projects else "oracle calls"
    for name in ("rows", "messages", "bytes sent", work, "s computing", "s waiting"):
        table.add_column(name, justify="right")
    for i in range(min(fitted.agents, _PRINTED_AGENTS)):
        table.add_row(
            str(i),
            str(fitted.data.rows.get(i, "")),
            str(result.messages[i]),
            size(result.bytes[i]),
            str((result.projections if projects else result.lmo_calls)[i]),
            f"{result.computing[i]:.2f}",
            f"{result.waiting[i]:.2f}",
        )
    return table


def _print_reading(fitted: FitResult, console: Console) -> None:
    """Print what was assumed in reading the data."""
    reading, sides = fitted.data.reading, ",".join(map(str, fitted.data.shape))
    if "ids" in reading:
        rows, columns = fitted.data.shape
        console.print(f"{rows} rows and {columns} columns, by their ids")
        return
    if "base" in reading:
        console.print(f"the matrix has shape {sides}; rows and columns were counted from {reading['base']}")
        return
    if reading["target_at"] is not None:
        name = f", {reading['target']!r}" if reading["target"] else ""
        console.print(
            f"{sides} features; the target was column {reading['target_at'] + 1}{name}", soft_wrap=True
        )
    if "labels" in reading:
        low, high = reading["labels"]
        console.print(f"label {low:.12g} was mapped to -1 and {high:.12g} to +1")
