"""What goes wrong, in the words of the command, by one process only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dcgs.runtime import ProcessGroup, RunAbortedError, is_in_all

# What bad input, a full disk, a lack of memory or a run gone wrong raises: each has a sentence.
ERRORS = (ValueError, OSError, ImportError, ArithmeticError, RuntimeError, MemoryError)

_WORDS = {
    "resume=True": "--resume",
    "Leave out resume": "Leave out --resume",
    "MPI(timeout=...)": "--timeout",
    "Use every=1.": "Add --measure.",
}


def worded(sentence: str, kept: Path | None) -> str:
    """Return a sentence of the library as one of the command; ``kept`` is where there are checkpoints.

    >>> worded("see whether the link is up and start again, or allow more by MPI(timeout=...).", Path("kept"))
    'see whether the link is up and go on with --resume, or allow more by --timeout.'
    """
    for ours, commands in _WORDS.items():
        sentence = sentence.replace(ours, commands)
    return sentence if kept is None else sentence.replace("and start again", "and go on with --resume")


@contextmanager
def in_words_of_the_command(group: ProcessGroup, kept: Path | None) -> Iterator[None]:
    """Let one process tell of an error that is raised in here, and end the others without a word."""
    try:
        yield
    except RunAbortedError as error:
        raise RunAbortedError(worded(str(error), kept), error.told) from error
    except ERRORS as error:
        if is_in_all(error) and not group.is_root:
            raise SystemExit(2) from error
        sentence = worded(group.sentence(error), kept)
        if group.size == 1 or is_in_all(error):
            raise ValueError(sentence) from error
        raise RunAbortedError(sentence) from error
