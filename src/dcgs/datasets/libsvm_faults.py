"""Say what is wrong with LIBSVM text, line by line; slow, and only run on text that is at fault."""

from __future__ import annotations

import math
import re

MOST_COLUMNS = 2**31 - 1

_BLANKS = re.compile(rb"[ \t\r]+")
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_SHOWN = 60


def first_fault(text: bytes, first_line: int, name: str, limit: int) -> str:
    """Return a sentence on the first line at fault; lines are counted from ``first_line``."""
    for number, line in enumerate(text.split(b"\n"), first_line):
        fault = line_fault(line, limit)
        if fault is not None:
            return f"line {number} of {name} {fault} Mend the line, or get the file again."
    return f"{name} must be LIBSVM text from line {first_line} on; it is not. Get the file again."


def line_fault(line: bytes, limit: int) -> str | None:
    """Return what is wrong with a line, as the end of a sentence; None if nothing is."""
    tokens = [token for token in _BLANKS.split(line.partition(b"#")[0]) if token]
    if not tokens:
        return None
    label, *pairs = tokens
    if b":" in label:
        return f"must start with a label; it starts with {shown(label)}."
    if (fault := _number_fault(label, "a label")) is not None:
        return fault
    before = 0
    for pair in pairs:
        left, colon, right = pair.partition(b":")
        if not colon or not left or not right:
            return f"must have index:value pairs after its label; it has {shown(pair)}."
        if not left.isdigit():
            return f"must have whole numbers from 1 as indices; it has {shown(pair)}."
        if (fault := _number_fault(right, "a value")) is not None:
            return fault
        here = int(left.lstrip(b"0")[:20] or b"0")
        if not 1 <= here <= limit:
            return f"must have indices from 1 to {limit}, the columns; it has {shown(pair)}."
        if here <= before:
            return f"must have increasing indices; it has {here} after {before}."
        before = here
    return None


def _number_fault(token: bytes, what: str) -> str | None:
    if token.lstrip(b"+-").lower() in {b"nan", b"inf", b"infinity"} or (
        _NUMBER.fullmatch(token) and not math.isfinite(float(token))
    ):
        return f"must have finite numbers; it has {shown(token)} as {what}."
    if not _NUMBER.fullmatch(token):
        return f"must have a number as {what}; it has {shown(token)}."
    return None


def shown(token: bytes) -> str:
    """Return a piece of a file so that it fits into a sentence and shows what it is."""
    text = token.decode("ascii", "backslashreplace")
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
