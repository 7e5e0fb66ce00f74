"""Download one file: complete and with the checksum it must have, or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, TypeAlias, final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from dcgs.datasets.base import DownloadError
from dcgs.files import atomic_write

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
