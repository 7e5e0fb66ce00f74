"""Read text in chunks of whole lines, plain or compressed."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dcgs.datasets.base import BrokenDataError
from dcgs.datasets.store import unreadable

LONGEST_LINE = 1 << 28
"""A file with a line of more bytes is not text."""

_OPENERS: dict[bytes, tuple[str, Callable[..., Any]]] = {
    b"BZh": ("bz2", bz2.open),
    b"\xfd7zXZ\x00": ("xz", lzma.open),
    b"\x1f\x8b": ("gz", gzip.open),
}


def cut_off(path: Path, size: int = 1 << 23) -> int | None:
    """Return the number of the last line if it does not end in a line break, as in a file cut off."""
    last = deque(whole_lines(path, size), maxlen=1)
    line, text = last[0] if last else (1, b"\n")
    return None if text.endswith(b"\n") else line + text.count(b"\n")


def whole_lines(path: Path, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield about ``size`` bytes of whole lines at a time, each with the number of its first line, from 1."""
    line, rest = 1, b""
    for block in _blocks(path, size):
        text, newline, after = block.rpartition(b"\n")
        if not newline:
            rest += block
            if len(rest) > LONGEST_LINE:
                raise BrokenDataError(f"{path} must be text; line {line} has over {LONGEST_LINE:,} bytes.")
            continue
        text = rest + text + newline
        yield line, text
        line, rest = line + text.count(b"\n"), after
    if rest:
        yield line, rest


def _blocks(path: Path, size: int) -> Iterator[bytes]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise unreadable(path, error) from error
    with file:
        start = file.read(6)
        file.seek(0)
        name, opener = next((how for magic, how in _OPENERS.items() if start.startswith(magic)), ("", None))
        if opener is None:
            yield from iter(lambda: file.read(size), b"")
            return
        lines = 0
        try:
            with opener(file) as stream:
                while block := stream.read(size):
                    lines += block.count(b"\n")
                    yield block
        except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
            raise BrokenDataError(
                f"{path} must be a complete {name} file; it breaks off after line {lines}: {error}. "
                "Get the file again."
            ) from error
