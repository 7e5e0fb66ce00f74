"""Errors of the library in the words of the command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dcgs.learn.sites import Remedy, SitesError
from dcgs.runtime import ProcessGroup, RunAbortedError, Scope, scope_of

# What bad input, a full disk, a lack of memory or a failed run raises. Their messages are for users.
ERRORS = (ValueError, OSError, ImportError, ArithmeticError, RuntimeError, MemoryError)

_WORDS = {
    "resume=True": "--resume",
    "Leave out resume": "Leave out --resume",
    "MPI(timeout=...)": "--timeout",
    "Use every=1.": "Add --measure.",
}


_SAME = "Rename them, or leave them out at all sites with --drop, which takes columns that some sites lack."
_CORRECT = "Correct it, make it a category with --categorical {0}, or leave it out with --drop {0}."
REMEDIES = {
    Remedy.SAME_NAMES: "Add names to the first line of each, or give --no-header.",
    Remedy.SAME_COLUMNS: _SAME,
    Remedy.CORRECT_COLUMN: _CORRECT,
    Remedy.LEAVE_OUT_COLUMN: "Leave it out with --drop {}.",
    Remedy.NO_CATEGORY: "Leave it out with --drop, or if it is a category, name it with --categorical.",
    Remedy.FEWER_HELD_OUT: "Hold out fewer rows with --held-out.",
}
"""What to do about an error on the data of sites, in the options of the command."""


def translate(message: str, checkpoint: Path | None) -> str:
    """Return a message of the library as one of the command; ``checkpoint`` is the folder, if there is one.

    >>> translate("see whether the link is up and start again, or allow more by MPI(timeout=...).", Path("c"))
    'see whether the link is up and continue with --resume, or allow more by --timeout.'
    """
    for library, command in _WORDS.items():
        message = message.replace(library, command)
    return message if checkpoint is None else message.replace("and start again", "and continue with --resume")


@contextmanager
def command_errors(group: ProcessGroup, checkpoint: Path | None) -> Iterator[None]:
    """Turn an error that is raised in here into a RunAbortedError in the words of the command."""
    try:
        yield
    except ERRORS as error:
        scope = scope_of(error)
        bad_input = group.size == 1 or scope is Scope.ALL
        if isinstance(error, SitesError):
            message = error.worded(REMEDIES)
        else:
            message = translate(group.describe(error), checkpoint)
        raise RunAbortedError(message, scope, status=2 if bad_input else 1) from error
