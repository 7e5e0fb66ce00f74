"""Where data files are: a path that was given, ``DCGS_DATA``, the cache folder, the official download."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, final

from dcgs.datasets.download import Progress, Remote, fetch
from dcgs.datasets.errors import BrokenDataError, DataNotFoundError

PathLike: TypeAlias = str | os.PathLike[str]
"""A path, as the standard library takes it."""

_BLOCK = 1 << 20


def cache_folder() -> Path:
    """Return the folder for downloads and binary copies; it need not exist.

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
        """Return the file to read; fetch it if it is nowhere and may be fetched."""
        if path is not None:
            return self._given(Path(path).expanduser())
        named = os.environ.get("DCGS_DATA")
        places = [*([Path(named).expanduser()] if named else []), cache_folder()]
        found = next((file for place in places for file in self._within(place)), None)
        if found is not None:
            return found
        if download:
            return fetch(self.remote, cache_folder(), progress)
        looked = " and in ".join(str(place) for place in places)
        unset = "" if named else " (DCGS_DATA is not set)"
        raise DataNotFoundError(
            f"{self.name} must be on this machine; neither {self._names} was found in {looked}{unset}. "
            f"{self._how}"
        )

    def _given(self, path: Path) -> Path:
        if path.is_dir():
            found = next(self._within(path), None)
            if found is None:
                raise DataNotFoundError(
                    f"{self.name} must be in the folder {path}; it has neither {self._names}. {self._how}"
                )
            return found
        if not path.exists():
            raise DataNotFoundError(f"{path} must be {self.name}; there is no such file. {self._how}")
        return path

    def _within(self, folder: Path) -> Iterator[Path]:
        for inside in (folder, *(folder / sub for sub in self.folders)):
            yield from (inside / name for name in self.files if (inside / name).is_file())

    @property
    def _names(self) -> str:
        return " nor ".join(self.files)

    @property
    def _how(self) -> str:
        return (
            f"Get {self.remote.url} and put it in the folder that DCGS_DATA names or in {cache_folder()}, "
            "or give its path, or allow the download."
        )


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, read in blocks."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            for block in iter(lambda: file.read(_BLOCK), b""):
                digest.update(block)
    except OSError as error:
        raise unreadable(path, error) from error
    return digest.hexdigest()


def vouched_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, which must be the one in ``<name>.sha256`` where that lies beside it."""
    found = sha256_of(path)
    beside = path.with_name(path.name + ".sha256")
    if not beside.is_file():
        return found
    first = re.match(rb"\s*\\?([0-9a-fA-F]{64})(?:\s|$)", beside.read_bytes())
    if first is None:
        raise BrokenDataError(
            f"{beside} must start with a SHA-256 of 64 hexadecimal digits; it does not. Mend it or delete it."
        )
    expected = first[1].decode().lower()
    if found != expected:
        raise BrokenDataError(
            f"{path} must have the SHA-256 in {beside.name}, {expected}; it has {found}. "
            "Get the file again, or delete the checksum if the change is meant."
        )
    return found


def unreadable(path: Path, error: OSError) -> DataNotFoundError:
    """Return the error to raise for a file that cannot be opened or read."""
    return DataNotFoundError(f"{path} must be a file that can be read; {error.strerror or error}.")
