"""Keep parsed arrays in the cache folder, so that a large text file is parsed once.

A copy is an uncompressed ``.npz``, so every array in it has a checksum (the CRC-32 of the zip format). Its
name has a format number and the SHA-256 of the text. What is damaged is made again.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dcgs.datasets.store import cache_folder

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

FORMAT = 1
"""To be raised whenever what is kept changes its meaning."""


def kept(key: str, make: Callable[[], Arrays]) -> Arrays:
    """Return the arrays kept under ``key``; make and keep them if there are none, or if they are damaged."""
    file = cache_folder() / f"{key}.v{FORMAT}.npz"
    arrays = _load(file)
    if arrays is None:
        arrays = make()
        with suppress(OSError):  # a cache that cannot be written only costs time
            _save(file, arrays)
    return arrays


def _load(file: Path) -> Arrays | None:
    try:
        with zipfile.ZipFile(file) as archive:
            if archive.testzip() is not None:
                return None
        with np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, KeyError, EOFError, NotImplementedError, RuntimeError):
        return None
    except (zipfile.BadZipFile, zlib.error):
        return None


def _save(file: Path, arrays: Arrays) -> None:
    """Write under another name first, so that nobody ever sees half a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(".part", file.name + ".", file.parent)
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            entries: dict[str, Any] = dict(arrays)
            np.savez(stream, **entries)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
