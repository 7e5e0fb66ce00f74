"""Data files: found at a path, in ``DCGS_DATA``, in the cache folder or by a download; text in whole lines.

A download is complete and has the checksum it must have, or it is not saved at all.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, TypeAlias, final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
from numpy.typing import NDArray

from dcgs.datasets.base import BrokenDataError, DataNotFoundError, DownloadError
from dcgs.files import atomic_write, read_npz
from dcgs.validation import FLAG, PATH, function_or_none

PathLike: TypeAlias = str | os.PathLike[str]
"""A path, as the standard library takes it."""

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

CACHE_FORMAT = 1
"""Increase it whenever the meaning of cached arrays changes."""


def cache_folder() -> Path:
    """Return the folder for downloads and cached arrays; it need not exist.

    >>> cache_folder().name
    'dcgs'
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dcgs"


@final
@dataclass(frozen=True)
class Wanted:
    """A data set to look for: any of ``files``, in a folder or in one of its subfolders ``folders``."""

    name: str
    files: tuple[str, ...]
    folders: tuple[str, ...]
    remote: Remote

    def locate(self, path: PathLike | None, download: bool, progress: Progress | None) -> Path:
        """Return the file to read; download it if it is not on this machine and ``download`` allows it."""
        given = PATH.or_none(path, "path")
        FLAG(download, "download")
        function_or_none(progress, "progress", "the bytes so far and in all")
        if given is not None:
            return self._given(given.expanduser())
        named = os.environ.get("DCGS_DATA")
        places = [*([Path(named).expanduser()] if named else []), cache_folder()]
        file = next((file for place in places for file in self._within(place)), None)
        if file is not None:
            return file
        if download:
            return fetch(self.remote, cache_folder(), progress)
        searched = " and in ".join(map(str, places)) + ("" if named else " (DCGS_DATA is not set)")
        raise self._missing(
            f"the data set {self.name} must be on this machine; no {self._names} was found in {searched}."
        )

    def _given(self, path: Path) -> Path:
        if path.is_dir():
            file = next(self._within(path), None)
            if file is None:
                raise self._missing(
                    f"the data set {self.name} must be in the folder {path}; it has no {self._names}."
                )
            return file
        if not path.exists():
            raise self._missing(f"{path} must be {self.name}; there is no such file.")
        return path

    def _within(self, folder: Path) -> Iterator[Path]:
        for inside in (folder, *(folder / sub for sub in self.folders)):
            yield from (inside / name for name in self.files if (inside / name).is_file())

    @property
    def _names(self) -> str:
        return " or ".join(self.files)

    def _missing(self, sentence: str) -> DataNotFoundError:
        return DataNotFoundError(
            f"{sentence} Get {self.remote.url} and put it in the folder that DCGS_DATA names or in "
            f"{cache_folder()}, or give its path, or allow the download."
        )


def cached_arrays(key: str, make: Callable[[], Arrays]) -> Arrays:
    """Return the arrays cached under ``key``; make and cache them if there are none or they are damaged.

    The file is an uncompressed ``.npz``: its zip format has a CRC-32 of every array.
    """
    file = cache_folder() / f"{key}.v{CACHE_FORMAT}.npz"
    with suppress(FileNotFoundError, ValueError):
        return read_npz(file, "cached arrays", lambda npz: {name: npz.array(name) for name in npz.names})
    arrays: dict[str, Any] = dict(make())
    with suppress(OSError):  # a cache that cannot be written only costs time
        atomic_write(file, lambda stream: np.savez(stream, **arrays))
    return arrays


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error


def checked_sha256(path: Path) -> str:
    """Return the SHA-256 of a file; it must be the one in ``<name>.sha256`` if that file exists."""
    sha256 = sha256_of(path)
    beside = path.with_name(path.name + ".sha256")
    if not beside.is_file():
        return sha256
    first = re.match(rb"\s*\\?([0-9a-fA-F]{64})(?:\s|$)", beside.read_bytes())
    if first is None:
        raise BrokenDataError(
            f"{beside} must start with a SHA-256 of 64 hexadecimal digits; it does not. "
            "Correct it or delete it."
        )
    expected = first[1].decode().lower()
    if sha256 != expected:
        raise BrokenDataError(
            f"{path} must have the SHA-256 in {beside.name}, {expected}; it has {sha256}. "
            "Get the file again, or delete the checksum if the change is intended."
        )
    return sha256


def unreadable(path: Path, error: OSError) -> DataNotFoundError:
    """Return the error to raise for a file that cannot be opened or read."""
    return DataNotFoundError(f"{path} must be a file that can be read; {error.strerror or error}.")


Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the bytes so far and, where the server says it, with the bytes in all."""

_BLOCK = 1 << 18
_TIMEOUT = 60.0  # seconds without a byte


@final
@dataclass(frozen=True)
class Remote:
    """A file on a server. Where no checksum is published, the file must begin with ``start``."""

    url: str
    sha256: str | None = None
    start: bytes = b""

    @property
    def name(self) -> str:
        """The file's name, the last part of its address."""
        return Path(urlsplit(self.url).path).name


def fetch(remote: Remote, folder: Path, progress: Progress | None = None) -> Path:
    """Download into ``folder`` and return the file; an error or an interrupt leaves no partial file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _failed(remote, folder, f"the cache folder cannot be written: {error}") from error
    try:
        return atomic_write(folder / remote.name, lambda file: _receive(remote, file, progress))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the download of {remote.url} was interrupted; nothing was saved.") from None
    except HTTPError as error:
        error.close()
        raise _failed(remote, folder, f"the server answered {error.code} {error.reason}") from error
    except URLError as error:
        raise _failed(remote, folder, f"the connection failed: {error.reason}") from error
    except DownloadError as error:
        raise _failed(remote, folder, str(error)) from None
    except (OSError, HTTPException) as error:
        raise _failed(remote, folder, f"it broke off: {error or type(error).__name__}") from error


def _receive(remote: Remote, file: IO[bytes], progress: Progress | None) -> None:
    """Write what the server sends; raise DownloadError if it is not the file."""
    digest, start, done = hashlib.sha256(), b"", 0
    with urlopen(remote.url, timeout=_TIMEOUT) as answer:
        length = answer.headers.get("Content-Length")
        total = int(length) if length and length.isdigit() else None
        while block := answer.read(_BLOCK):
            file.write(block)
            digest.update(block)
            start = (start + block)[: len(remote.start)]
            done += len(block)
            if progress is not None:
                progress(done, total)
    if total is not None and done != total:
        raise DownloadError(f"it broke off after {done:,} of {total:,} bytes")
    if remote.sha256 is not None and digest.hexdigest() != remote.sha256:
        raise DownloadError(f"its SHA-256 must be {remote.sha256}; it is {digest.hexdigest()}")
    if start != remote.start:
        raise DownloadError(f"it must start with {remote.start!r}; it starts with {start!r}")


def _failed(remote: Remote, folder: Path, why: str) -> DownloadError:
    return DownloadError(
        f"the download of {remote.url} failed; {why}. Nothing was saved: try again, or get the file in "
        f"another way and put it in {folder} or in the folder that DCGS_DATA names."
    )


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
