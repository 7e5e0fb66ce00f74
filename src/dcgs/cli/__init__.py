"""The command ``dcgs``."""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import IO, Any, NoReturn, final

from rich.console import Console
from rich.text import Text

from dcgs import __version__
from dcgs.cli.jobs import CommandJob, add_jobs, find_jobs, missing_package
from dcgs.learn.sites import Remedy, SitesError
from dcgs.processes.environment import is_root, started_by_mpi
from dcgs.processes.marks import others_wait, own_name
from dcgs.processes.supervisor import detach, print_interrupted, raise_on_signals, signal_received
from dcgs.processes.watchdog import claim_line
from dcgs.runtime import ProcessGroup, RunAbortedError, Scope, interrupt_status, report, run_worker, scope_of
from dcgs.runtime.errors import describe, printable

# What bad input, a full disk, a lack of memory or a failed run raises. Their messages are for users.
ERRORS = (ValueError, OSError, ImportError, ArithmeticError, RuntimeError, MemoryError)

_SAME = "Rename them, or leave them out at all sites with --drop, which takes columns that some sites lack."
_CORRECT = "Correct it, make it a category with --categorical {0}, or leave it out with --drop {0}."
REMEDIES = {
    Remedy.SAME_NAMES: "Add names to the first line of each, or give --no-header.",
    Remedy.SAME_COLUMNS: _SAME,
    Remedy.CORRECT_COLUMN: _CORRECT,
    Remedy.LEAVE_OUT_COLUMN: "Leave it out with --drop {}.",
    Remedy.NO_FLOORS: "Leave out --min-count and --min-sites, or fit with more sites.",
    Remedy.COARSER: "Give a number as --radius, or a lower --min-count.",
    Remedy.FEWER_FLOORS: "Give a lower --min-count or --min-sites.",
    Remedy.SMALL_SITE: "Leave the site out, or give a lower --min-count if it may be.",
    Remedy.NO_CATEGORY: "Leave it out with --drop, or if it is a category, name it with --categorical.",
    Remedy.FEWER_HELD_OUT: "Hold out fewer rows with --held-out.",
}
"""What to do about an error on the data of sites, in the options of the command."""


@contextmanager
def command_errors(group: ProcessGroup, checkpoint: Path | None) -> Iterator[None]:
    """Turn an error that is raised in here into a RunAbortedError in the words of the command.

    ``checkpoint`` is the folder of checkpoints, if there is one.
    """
    try:
        yield
    except ERRORS as error:
        scope = scope_of(error)
        bad_input = group.size == 1 or scope is Scope.ALL
        if isinstance(error, SitesError):
            message = error.worded(REMEDIES)
        else:
            message = group.describe(error)
            if isinstance(error, RunAbortedError) and checkpoint is not None:
                message += " Continue with --resume."
        raise RunAbortedError(message, scope, status=2 if bad_input else 1) from error


@final
class EscapingConsole(Console):
    """A console that shows control characters escaped; colors and the like are its own only.

    All texts that it is given, also those in tables and of progress, pass through ``render_str``. Rich has no
    hook that sees them before they are laid out, so this method is overridden.
    """

    def __init__(self, file: IO[str] | None = None) -> None:
        super().__init__(file=file, markup=False, emoji=False)

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(printable(text), **how)


_DESCRIPTION = """\
Decentralized, projection-free optimization: agents on a graph, each with private data,
minimize a sum of smooth convex losses over a set that is given by its linear oracle.
"""

# Seconds after which a process prints an error that it had before it met the others. If all processes have
# the same error, the root has printed it by then, and ended them.
_ROOT_FIRST = 3.0


def make_parser(typed: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command with all its jobs, or one that can parse ``typed`` only."""
    raw, known_jobs = argparse.RawDescriptionHelpFormatter, find_jobs(typed)
    parser = argparse.ArgumentParser(
        "dcgs", description=_DESCRIPTION, epilog=_epilog(known_jobs.values()), formatter_class=raw
    )
    parser.add_argument("--version", action="version", version=f"dcgs {__version__}")
    jobs = parser.add_subparsers(title="jobs", required=True, metavar="JOB")
    missing = missing_package(known_jobs, typed or ())
    if missing is not None:
        parser.error(missing)
    try:
        add_jobs(jobs, known_jobs, typed)
    except ImportError as error:
        parser.error(f"the job cannot be loaded: {str(error).rstrip('.')}.")
    return parser


def _epilog(jobs: Iterable[CommandJob]) -> str:
    examples = "\n".join(f"  {line}" for job in jobs for line in job.examples)
    return f"examples:\n{examples}\n\nIn Python, start at help(dcgs.minimize).\n"


def run_as_command() -> int:
    """Run the command in this process, the worker of a supervisor; return its exit status."""
    return run_worker(_run)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in this process; return its exit status."""
    try:
        return _run(argv)
    except RunAbortedError as error:
        raise SystemExit(report(error, is_root())) from error


def _run(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status, or raise a RunAbortedError."""
    typed = sys.argv[1:] if argv is None else list(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for terminals that have no ‖ and no η
    with _errors_of_root_first():
        parser = make_parser(typed)
        args, unknown = parser.parse_known_args(typed)
        if unknown:
            parser.error(f"unrecognized arguments: {' '.join(unknown)}{_hint(args)}")
    args.typed = typed
    if not started_by_mpi():  # the processes of mpiexec do this when they have met
        raise_on_signals()
    try:
        status: int = args.run(args, EscapingConsole())
    except RunAbortedError:
        raise
    except ERRORS as error:
        if signal_received():  # it interrupted something that raised this instead
            _exit_interrupted(128 + signal_received())
        text = str(error)
        if scope_of(error) is Scope.ONE and (others_wait() or not is_root()):
            time.sleep(0.0 if is_root() else _ROOT_FIRST)
            text = describe(error, own_name())
        if isinstance(error, ImportError):
            detach()
        raise RunAbortedError(text, scope_of(error), status=2) from error
    except (KeyboardInterrupt, SystemExit) as stop:
        interrupted = interrupt_status(stop)
        if interrupted is None:
            raise
        _exit_interrupted(interrupted)
    return status


def _hint(args: argparse.Namespace) -> str:
    """Return how options of classes from other packages are given, if there are such classes."""
    given = {"set": "set", "method": "method", "problem": "loss", "inner": "inner"}
    flags = [
        f"--{kind}-option KEY=VALUE" for name, kind in given.items() if ":" in str(vars(args).get(name, ""))
    ]
    return f". Options of a class from another package are given as {' or '.join(flags)}" if flags else ""


def _exit_interrupted(status: int) -> NoReturn:
    print_interrupted()
    raise SystemExit(status)


@contextmanager
def _errors_of_root_first() -> Iterator[None]:
    """Let the root alone print what is printed in here, unless another process alone has an error."""
    printed, errors = io.StringIO(), io.StringIO()
    try:
        if is_root():
            yield
        else:
            with redirect_stdout(printed), redirect_stderr(errors):
                yield
    except SystemExit:
        time.sleep(_ROOT_FIRST if errors.getvalue() else 0.0)
        if claim_line() and errors.getvalue():
            print(f"{own_name()}: {errors.getvalue().splitlines()[-1]}", file=sys.stderr, flush=True)
        raise
