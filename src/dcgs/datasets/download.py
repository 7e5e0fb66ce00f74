"""Fetch one file: all of it, with the checksum it must have, or nothing."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, TypeAlias, final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from dcgs.datasets.errors import DownloadError

Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the bytes so far and, where the server says it, with the bytes in all."""

_BLOCK = 1 << 18
_TIMEOUT = 60.0  # seconds without a byte


@final
@dataclass(frozen=True)
class Remote:
    """A file elsewhere. Where no checksum is published, ``start`` tells it from a page that says sorry."""

    url: str
    sha256: str | None = None
    start: bytes = b""

    @property
    def name(self) -> str:
        """The file's name, the last part of its address."""
        return Path(urlsplit(self.url).path).name


def fetch(remote: Remote, folder: Path, progress: Progress | None = None) -> Path:
    """Download into ``folder`` and return the file; whatever goes wrong, nothing half done is left."""
    part = _part(remote, folder)
    try:
        with part.open("wb") as file:
            digest = _receive(remote, file, progress)
        _check(remote, part, digest)
        return part.replace(folder / remote.name)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the download of {remote.url} was interrupted; nothing was kept.") from None
    except HTTPError as error:
        error.close()
        raise _failed(remote, folder, f"the server answered {error.code} {error.reason}") from error
    except URLError as error:
        raise _failed(remote, folder, f"the connection failed: {error.reason}") from error
    except DownloadError as error:
        raise _failed(remote, folder, str(error)) from None
    except (OSError, HTTPException) as error:
        raise _failed(remote, folder, f"it broke off: {error or type(error).__name__}") from error
    finally:
        part.unlink(missing_ok=True)


def _part(remote: Remote, folder: Path) -> Path:
    """Return a new, empty file of this process alone, so that two downloads at once do not mix."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(".part", remote.name + ".", folder)
    except OSError as error:
        raise _failed(remote, folder, f"the cache folder cannot be written: {error}") from error
    os.close(handle)
    return Path(name)


def _receive(remote: Remote, file: IO[bytes], progress: Progress | None) -> str:
    digest = hashlib.sha256()
    done = 0
    with urlopen(remote.url, timeout=_TIMEOUT) as answer:
        length = answer.headers.get("Content-Length")
        total = int(length) if length and length.isdigit() else None
        while block := answer.read(_BLOCK):
            file.write(block)
            digest.update(block)
            done += len(block)
            if progress is not None:
                progress(done, total)
    if total is not None and done != total:
        raise DownloadError(f"it broke off after {done:,} of {total:,} bytes")
    return digest.hexdigest()


def _check(remote: Remote, part: Path, digest: str) -> None:
    if remote.sha256 is not None and digest != remote.sha256:
        raise DownloadError(f"its SHA-256 must be {remote.sha256}; it is {digest}")
    with part.open("rb") as file:
        start = file.read(len(remote.start))
    if start != remote.start:
        raise DownloadError(f"it must start with {remote.start!r}; it starts with {start!r}")


def _failed(remote: Remote, folder: Path, why: str) -> DownloadError:
    return DownloadError(
        f"the download of {remote.url} must come through; {why}. Nothing was kept: try again, or get the "
        f"file in another way and put it in {folder} or in the folder that DCGS_DATA names."
    )
