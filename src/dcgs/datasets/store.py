"""Find data files: a path that was given, ``DCGS_DATA``, the cache folder, the official download."""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.datasets.base import BrokenDataError, DataNotFoundError
from dcgs.datasets.download import Progress, Remote, fetch
from dcgs.files import atomic_write
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
        found = next((file for place in places for file in self._within(place)), None)
        if found is not None:
            return found
        if download:
            return fetch(self.remote, cache_folder(), progress)
        searched = " and in ".join(map(str, places)) + ("" if named else " (DCGS_DATA is not set)")
        raise self._missing(
            f"the data set {self.name} must be on this machine; no {self._names} was found in {searched}."
        )

    def _given(self, path: Path) -> Path:
        if path.is_dir():
            found = next(self._within(path), None)
            if found is None:
                raise self._missing(
                    f"the data set {self.name} must be in the folder {path}; it has no {self._names}."
                )
            return found
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
    # Damage can surface in the archive, in the header of an array or in its data.
    with suppress(OSError, ValueError, LookupError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error):
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip() is not None
        if not damaged:
            with np.load(file, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
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
    found = sha256_of(path)
    beside = path.with_name(path.name + ".sha256")
    if not beside.is_file():
        return found
    first = re.match(rb"\s*\\?([0-9a-fA-F]{64})(?:\s|$)", beside.read_bytes())
    if first is None:
        raise BrokenDataError(
            f"{beside} must start with a SHA-256 of 64 hexadecimal digits; it does not. "
            "Correct it or delete it."
        )
    expected = first[1].decode().lower()
    if found != expected:
        raise BrokenDataError(
            f"{path} must have the SHA-256 in {beside.name}, {expected}; it has {found}. "
            "Get the file again, or delete the checksum if the change is intended."
        )
    return found


def unreadable(path: Path, error: OSError) -> DataNotFoundError:
    """Return the error to raise for a file that cannot be opened or read."""
    return DataNotFoundError(f"{path} must be a file that can be read; {error.strerror or error}.")
