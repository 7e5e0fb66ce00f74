"""``dcgs fit``: fit a model to data that several agents hold."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from dcgs.cli import command_errors
from dcgs.cli.fit_options import add_options, config_of, private_of
from dcgs.cli.launch import launch
from dcgs.learn.files.describe import describe, history, models, reading_lines, summary_of
from dcgs.learn.files.fit import FileFit, FitConfig, Watch, fit_files
from dcgs.learn.files.folder import PATH, PATH_PICTURE, REPORT, SUMMARY, OutputFolder, ledger_name, locked
from dcgs.learn.linear.scores import warning
from dcgs.learn.summary import agents_table, classes_table, path_table, scores_table
from dcgs.learn.sums import Named
from dcgs.parallel import cores
from dcgs.processes.supervisor import mark_printed, print_interrupted, set_hint
from dcgs.report.numbers import screen_table, size
from dcgs.report.progress import Progress, observed
from dcgs.runtime import (
    MPI,
    Lockstep,
    MessageRecorder,
    ProcessGroup,
    RunAbortedError,
    Runtime,
    Scope,
    agreed,
    interrupt_status,
    scope_of,
    started_by_mpi,
)
from dcgs.runtime.ledger import Entry, Ledger, added, with_ledger

if TYPE_CHECKING:  # private fits are rare
    from dcgs.learn.files.private import PrivateFileFit, PrivateOptions

_RANKS_PER_CORE = 4
_NEEDS = {REPORT: "jinja2", PATH_PICTURE: "matplotlib"}
"""The optional package that each optional file needs."""


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
    return fit_over(_runtime(args), args, console)


def fit_over(runtime: Runtime, args: argparse.Namespace, console: Console) -> int:
    """Fit as the options say, in the processes of a runtime; return the exit status."""
    new = not args.out.exists()  # before any process creates it
    group = runtime.group()
    with command_errors(group, args.checkpoint):
        try:
            with group.reporting_failures(), _recorded(runtime, args.record_messages) as runtime:
                return _fit(args, console, runtime, group)
        except (KeyboardInterrupt, SystemExit, RunAbortedError) as stop:
            status = interrupt_status(stop)
            if status is None:
                raise
            if group.is_root or runtime.separate_sites:
                _print_interrupted(stop, args.checkpoint, group, console)
            else:
                print_interrupted(group.describe(stop).rstrip("."))  # if the root cannot
            return status
        finally:
            if new:
                OutputFolder(args.out).remove_if_empty()


def _fit_private(
    args: argparse.Namespace, options: PrivateOptions, console: Console, runtime: Runtime, group: ProcessGroup
) -> int:
    from dcgs.learn.files.private import describe_private, fit_private_files, private_models

    config, output = agreed(group, lambda: _checked(args))
    agreed(group, output.create)
    output, prints = replace(output, barrier=group.barrier), group.is_root or runtime.separate_sites

    def note(text: str) -> None:
        if prints:
            console.print(f"note: {text}", soft_wrap=True, highlight=False)

    with locked(args.out, group) as writes_summary, _ledger(args, config, runtime) as ledger:
        runtime = with_ledger(runtime, ledger)
        found = fit_private_files(
            config, options, runtime, Watch(note, named=ledger.named, note_here=_noting(console))
        )
        found = replace(found, ledger=_of_all(ledger, group))
        summary = describe_private(found, shlex.join(["dcgs", *args.typed]))
        output.write(private_models(found, summary), summary if writes_summary else None)
    if prints:
        _print_private(found, args.out, console)
    return 0


def _print_private(found: PrivateFileFit, out: Path, console: Console) -> None:
    from dcgs.learn.files.private import STATUS
    from dcgs.learn.private import ENOUGH

    say, fit = partial(console.print, soft_wrap=True, highlight=False), found.fit
    rounds, sent = (sum(getattr(entry, name) for entry in found.sent) for name in ("rounds", "bytes"))
    say(f"{STATUS.capitalize()} {rounds} rounds, {size(sent)} in all")
    say(f"about {max(0.0, fit.rows):,.0f} rows, a signal of {fit.signal:.0f}")
    if fit.signal < ENOUGH:
        say("warning: the signal is below 50: the model of one site alone may be better.")
    for path, epsilon in found.spent.items():
        say(f"spent of {path}: ε = {epsilon:.4g}")
    say(f"written: {out}/agent-000.npz …, {SUMMARY}")


def _fit(args: argparse.Namespace, console: Console, runtime: Runtime, group: ProcessGroup) -> int:
    def check() -> tuple[FitConfig, OutputFolder]:
        config, output = _checked(args)
        runtime.hosts(config.count_agents(group.size))  # raises if there are more processes than agents
        return config, output

    private = agreed(group, lambda: private_of(args))
    if private is not None:
        return _fit_private(args, private, console, runtime, group)
    config, output = agreed(group, check)
    agreed(group, output.create)
    output = replace(output, barrier=group.barrier)
    if config.run.checkpoint is not None:
        set_hint("continue with --resume")
    with locked(args.out, group) as writes_summary, _ledger(args, config, runtime) as ledger:
        runtime = with_ledger(runtime, ledger)
        agreed(group, lambda: output.check(_replaces(args)))  # another fit may just have ended
        possible, left_out = _optional_files(args.report is not False, config.set.finds_radius)
        prints, named = group.is_root or runtime.separate_sites, ledger.named
        if prints:
            fit = _fit_with_progress(config, runtime, console, left_out, named)
        else:
            fit = fit_files(config, runtime, Watch(named=named, note_here=_noting(console)))
        fit = replace(fit, notes=(*fit.notes, *left_out), ledger=_of_all(ledger, group))
        summary = describe(fit, shlex.join(["dcgs", *args.typed]))
        if not writes_summary:
            output.write(models(fit, summary))
            return 0
        files = _other_files(fit, summary, possible)
        output.write(models(fit, summary), summary, history(fit), files)
    if prints:
        print_fit(fit, summary, args.out, REPORT in files, console)
    return 0


def _optional_files(page: bool, path: bool) -> tuple[list[str], list[str]]:
    """Return the files that can be written, of a page and a picture of the path; and notes on the others."""
    wanted = [*([REPORT] if page else []), *([PATH_PICTURE] if path else [])]
    possible = [name for name in wanted if _is_installed(_NEEDS[name])]
    left_out = [name for name in wanted if name not in possible]
    return possible, [f"{name} {_not_installed(name, ', and is left out')}" for name in left_out]


def _replaces(args: argparse.Namespace) -> bool:
    """Return True if models in the folder may be replaced."""
    return args.force or bool(args.resume)


def _other_files(fit: FileFit, summary: dict[str, Any], optional: Collection[str]) -> dict[str, bytes]:
    """Return the page of the fit, and the path of the radii as JSON and as a picture."""
    files = {}
    if REPORT in optional:
        from dcgs.report.page import render_fit  # jinja2 and matplotlib are large, and needed here only

        files[REPORT] = render_fit(fit, summary).encode()
    if fit.paths:
        paths = {label: path.to_dict() for label, path in fit.paths.items()}
        files[PATH] = json.dumps(paths.get("", paths), indent=2, ensure_ascii=False).encode()
    if PATH_PICTURE in optional:
        from dcgs.report.figures import path_picture

        files[PATH_PICTURE] = path_picture(fit.paths)
    return files


def _is_installed(package: str) -> bool:
    return find_spec(package) is not None


def _not_installed(file: str, then: str = "") -> str:
    return f"needs {_NEEDS[file]}, which is not installed{then}. Install it with: pip install 'dcgs[report]'"


def _print_interrupted(
    stop: BaseException, folder: Path | None, group: ProcessGroup, console: Console
) -> None:
    """Print where the checkpoint is and how to resume; only the root prints it."""
    if not mark_printed():
        return
    common = group.size == 1 or scope_of(stop) is Scope.ALL or not str(stop)
    who = "interrupted" if common else group.describe(stop).rstrip(".")
    there = folder is not None and any(folder.rglob("agent-*/*.dcgs"))
    left = f"a checkpoint is in {folder}; continue by the same command with --resume."
    console.print(f"{who}: {left if there else 'no model was written.'}", soft_wrap=True)


def _checked(args: argparse.Namespace) -> tuple[FitConfig, OutputFolder]:
    """Return what to fit and where to write it; raise if either is impossible."""
    config, output = config_of(args), OutputFolder(args.out)
    config.check()
    if args.runtime == "mpi" and args.record_messages is not None:
        raise ValueError(
            "--record-messages needs all agents in one process; with MPI they are in several. Leave it out, "
            "or add --runtime lockstep."
        )
    if args.report and not _is_installed(_NEEDS[REPORT]):
        raise ValueError(f"--report {_not_installed(REPORT)}")
    output.check(_replaces(args))
    return config, output


def _runtime(args: argparse.Namespace) -> Runtime:
    """Return the runtime that was asked for."""
    if args.runtime != "mpi":
        return Lockstep(threads=args.threads)
    given = {"timeout": args.timeout, "start_timeout": args.start_timeout}
    return MPI(**{name: value for name, value in given.items() if value is not None})


@contextmanager
def _recorded(runtime: Runtime, file: Path | None) -> Iterator[Runtime]:
    """Give the runtime; if there is a file, every message is written to it."""
    if file is None or not isinstance(runtime, Lockstep):
        yield runtime
        return
    with MessageRecorder(file) as recorder:
        yield replace(runtime, on_message=recorder)


def _ledger(args: argparse.Namespace, config: FitConfig, runtime: Runtime) -> Ledger:
    """Return the ledger of this process, which is written as messages are sent, also if the fit fails."""
    total = config.count_agents(runtime.group().size)
    agents = runtime.hosts(total)
    path, command = args.out / ledger_name(agents[0]), shlex.join(["dcgs", *args.typed])
    return Ledger(path, agents, command, alone=len(agents) == total)


def _of_all(ledger: Ledger, group: ProcessGroup) -> tuple[Entry, ...]:
    """Return what left the agents of all processes."""
    texts = group.allgather_texts([json.dumps([asdict(entry) for entry in ledger.totals])])
    return added([[Entry(**entry) for entry in json.loads(text)] for text in texts])


def _ranks(args: argparse.Namespace, agents: int) -> int:
    """Return how many processes to start: one per agent, but at most four per core."""
    return min(agents, args.ranks or max(2, _RANKS_PER_CORE * cores()))


def _noting(console: Console) -> Callable[[str], None]:
    """Return what prints a note."""
    return lambda text: console.print(f"note: {text}", soft_wrap=True)


def _fit_with_progress(
    config: FitConfig, runtime: Runtime, console: Console, notes: Sequence[str], named: Named
) -> FileFit:
    """Fit, and print progress and notes: these ones, and those on files and data."""

    note = _noting(console)
    for text in notes:
        note(text)
    rounds, iterations = config.run.rules.get("rounds"), config.run.rules.get("iterations")
    if iterations is not None:
        iterations *= config.method.rounds_per_iteration
    limits = [limit for limit in (rounds, iterations) if limit is not None]
    with Progress(console) as progress:
        task = progress.rounds(config.problem.name, min(limits, default=None))
        if config.run.every is not None:
            config = replace(config, run=replace(config.run, callback=task.measured))
        watch = Watch(note, lambda plain: observed(plain, task.after_round), named, note)
        return fit_files(config, runtime, watch)


_PRINTED_AGENTS = 20


def print_fit(fit: FileFit, described: Mapping[str, Any], out: Path, page: bool, console: Console) -> None:
    """Print why the run ended, what it cost, how good the models are, and where they are."""
    say, summary = partial(console.print, soft_wrap=True), summary_of(fit, described)
    say(summary.status)
    if summary.classes:
        console.print(screen_table(classes_table(summary)))
    console.print(screen_table(agents_table(summary, fit.config.method.projects), _PRINTED_AGENTS))
    if summary.count > _PRINTED_AGENTS:
        say(f"and {summary.count - _PRINTED_AGENTS} agents more, in summary.json")
    say(f"{summary.rounds} rounds, {size(summary.bytes)} in all, {described['seconds']:.2f} s")
    rounds, sent = sum(entry.rounds for entry in summary.sent), sum(entry.bytes for entry in summary.sent)
    beside = f"{rounds} rounds and {size(sent)}"
    say(f"beside the run {beside}, for what the agents agree on: summary.json lists it")
    if described.get("checkpoint", {}).get("resumed"):
        say(f"resumed after iteration {described['checkpoint']['resumed']}")
    for line in (*reading_lines(fit), *_measures(described.get("measures", {}))):
        say(line)
    what = "rows" if fit.prepared is not None else "ratings"
    for label, path in fit.paths.items():
        console.print(screen_table(path_table(summary.all_paths[label], label, what)))
        say(str(path))
    if summary.scores is not None and fit.scores is not None:
        console.print(screen_table(scores_table(summary.scores, summary.labels), _PRINTED_AGENTS))
        worse = warning(dict(fit.scores.everyone.scores), summary.balanced)
        if worse:
            say(f"warning: {worse}")
    for note in described["notes"]:
        say(note)
    if fit.notes:
        say(f"notes: {len(fit.notes)}, above and in summary.json")
    written = [f"{out}/agent-000.npz{' …' if summary.count > 1 else ''}", "summary.json"]
    say(f"written: {', '.join(written + [REPORT] * page)}")


def _measures(measures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the last measures; those of several classes with their label."""
    for name, value in measures.items():
        if isinstance(value, Mapping):
            yield f"{name}: " + ", ".join(f"{measure} {number:.6g}" for measure, number in value.items())
        else:
            yield f"{name} {value:.6g}"
