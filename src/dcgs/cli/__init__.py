"""The command ``dcgs``."""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import NoReturn

from rich.console import Console

from dcgs import __version__
from dcgs.cli import bench, fit, predict, reproduce
from dcgs.cli.errors import ERRORS
from dcgs.runtime import RunAbortedError, forsake, is_first, is_in_all, run_as_rank

_DESCRIPTION = """\
Decentralized, projection-free optimization: agents on a graph, each with private data,
minimize a sum of smooth convex losses over a set that is given by its linear oracle.
"""

_EPILOG = """\
examples:
  dcgs fit lasso --data data.svm --agents 10 --radius 1000 --out model/
                                    fit a model to your own data; see dcgs fit --help
  dcgs predict model/ --data new.svm
  dcgs reproduce --quick            the paper's experiments at small scale, as an HTML page
  dcgs reproduce lasso-synthetic    one of them at full scale
  dcgs report dcgs-report           write the page again from the files in the folder
  dcgs bench rounds --quick         rounds that each method needs to an accuracy, on small problems
  dcgs bench step                   cost of one inner step over its unavoidable parts
  dcgs bench threads --threads 2    speedup by threads on the paper's dense Lasso
  dcgs bench memory --out peak.json peak memory of a run beyond its data

In Python, start at help(dcgs.minimize).
"""


# Seconds in which the first process may tell of what went wrong in all, before others do.
_TURN = 3.0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command with all its jobs."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("dcgs", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=raw)
    parser.add_argument("--version", action="version", version=f"dcgs {__version__}")
    jobs = parser.add_subparsers(title="jobs", required=True, metavar="JOB")
    for job in (fit, predict, reproduce, bench):
        job.add(jobs)
    return parser


def command() -> NoReturn:
    """Run the command and exit, under mpiexec or srun with somebody to tell if it is killed."""
    run_as_rank(main)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = make_parser()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for terminals that have no ‖ and no η
    typed = sys.argv[1:] if argv is None else list(argv)
    speaks = is_first()
    with nullcontext() if speaks else _silence():
        args = parser.parse_args(typed)
    args.typed = typed
    try:
        status: int = args.run(args, Console(markup=False, emoji=False))
    except RunAbortedError:
        raise
    except ERRORS as error:
        if is_in_all(error) and not speaks:
            return 2
        if not speaks:
            time.sleep(_TURN)
        if isinstance(error, ImportError):
            forsake()
        parser.exit(2, f"dcgs: error: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, "dcgs: interrupted.\n" if speaks else None)
    return status


@contextmanager
def _silence() -> Iterator[None]:
    """Say nothing in here: all processes would say the same."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield
