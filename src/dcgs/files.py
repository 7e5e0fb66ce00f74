"""Atomic writes: a file appears complete or not at all, also if the process is killed or the power fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeAlias

Content: TypeAlias = bytes | Callable[[IO[bytes]], object]
"""The bytes of a file, or a function that writes them to an open stream."""

_MOST_LINKS = 40  # as Linux has it


def atomic_write(path: Path, content: Content) -> Path:
    """Write one file atomically (temporary file, fsync, rename) and return its path.

    The folder is created if it does not exist. An error leaves the old file, if there was one.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> atomic_write(folder / "new" / "a.txt", b"all of it").read_text()
    'all of it'
    """
    atomic_write_all({path: content})
    return path


def is_stream(path: Path) -> bool:
    """Return True for a device, a pipe or the like, also behind a link: what is written there is not a file.

    >>> is_stream(Path("/dev/null")), is_stream(Path("new.csv"))
    (True, False)
    """
    for _ in range(_MOST_LINKS):
        path = path.parent.resolve() / path.name
        if not path.is_symlink():
            return path.exists() and not path.is_file()
        if path.is_relative_to("/proc"):  # an open file of this process, as behind /dev/stdout
            return True
        path = path.parent / path.readlink()
    return False


def write_through(path: Path, content: Content) -> Path:
    """Write to the file behind a path, atomically; a link stays a link, and a device or a pipe what it is."""
    if not is_stream(path):
        return atomic_write(path.resolve(), content)
    with path.open("wb") as stream:
        content(stream) if callable(content) else stream.write(content)
    return path


def atomic_write_all(
    files: Mapping[Path, Content], before_rename: Callable[[], object] = lambda: None
) -> None:
    """Write several files, and rename them only after all are complete; an error leaves none of them.

    ``before_rename`` is called in between, for example to wait for other processes.
    """
    # The process id keeps two processes that write the same file apart.
    temporary = {path: path.with_name(f".{path.name}.{os.getpid()}.part") for path in files}
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary[path].open("wb") as stream:
                content(stream) if callable(content) else stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        before_rename()
        for path, part in temporary.items():
            os.replace(part, path)
        for folder in {path.parent for path in files}:
            _fsync_folder(folder)
    finally:
        for part in temporary.values():
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _fsync_folder(folder: Path) -> None:
    """Make new names in the folder outlast a power failure, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
