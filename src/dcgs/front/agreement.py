"""Errors and arguments that all processes of a run must agree on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TypeVar

from dcgs.runtime import ProcessGroup

T = TypeVar("T")

# Errors of these types keep their type in other processes.
_TYPES: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (TypeError, ValueError, OSError, ImportError, MemoryError, ArithmeticError, RuntimeError)
}


def agreed(group: ProcessGroup, check: Callable[[], T]) -> T:
    """Return what the check returns; if it raises in one process, raise the same error in all processes."""
    own: Exception | None = None
    text = ""
    try:
        value = check()
    except Exception as error:
        own, text = error, f"{type(error).__name__}\n{error}"
    first = next(filter(None, group.allgather_texts([text])), None)
    if first is None:
        return value
    with group.common_errors():
        if own is not None and first == text:
            raise own  # with its traceback and notes
        kind, _, sentence = first.partition("\n")
        raise _TYPES.get(kind, RuntimeError)(sentence)


def check_same(group: ProcessGroup, arguments: Mapping[str, str]) -> None:
    """Raise unless all processes have the same arguments; each argument is given as a text."""
    first, *others = map(json.loads, group.allgather_texts([json.dumps(dict(arguments))]))
    for rank, other in enumerate(others, 1):
        odd = [name for name in first if first[name] != other[name]]
        if odd:
            raise ValueError(
                f"all processes must be given the same {' and '.join(odd)}; process {rank} was given "
                f"{other[odd[0]]}, process 0 {first[odd[0]]}."
            )
