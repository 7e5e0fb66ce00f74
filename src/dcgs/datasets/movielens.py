"""MovieLens 100K and 1M: stars that people gave to films. Their license does not allow to pass them on."""

from __future__ import annotations

import hashlib
import lzma
import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np

from dcgs.datasets.base import Kind, Ratings, Source
from dcgs.datasets.download import Progress, Remote
from dcgs.datasets.errors import BrokenDataError
from dcgs.datasets.libsvm_faults import shown
from dcgs.datasets.store import PathLike, Wanted, unreadable

_ADDRESS = "https://files.grouplens.org/datasets/movielens/"


@final
@dataclass(frozen=True)
class Edition:
    """One release of the ratings: lines of user, item, stars and time, with ``between`` between them."""

    wanted: Wanted
    member: str
    between: bytes
    shape: tuple[int, int]
    count: int
    sha256: str

    def parse(self, content: bytes, source: Source) -> Ratings:
        """Return the ratings; the content has passed its checksum."""
        numbers = np.fromstring(content.replace(self.between, b" "), dtype=np.int64, sep=" ").reshape(-1, 4)
        users, items, stars = (np.ascontiguousarray(numbers[:, at]) for at in range(3))
        return Ratings(
            (users - 1).astype(np.intp, copy=False),
            (items - 1).astype(np.intp, copy=False),
            stars.astype(np.float64),
            self.shape,
            source,
        )

    def fault(self, content: bytes) -> str | None:
        """Return a sentence, without its full stop, on the first line at fault; None if no line is."""
        line = re.compile(rb"(\d{1,9})%b(\d{1,9})%b([1-5])%b\d+" % ((re.escape(self.between),) * 3))
        users, items = self.shape
        *lines, last = content.split(b"\n")
        for number, text in enumerate(lines, 1):
            match = line.fullmatch(text)
            if match is None:
                must = f"4 whole numbers, user, item, stars and time, with {shown(self.between)} between"
            elif 1 <= int(match[1]) <= users and 1 <= int(match[2]) <= items:
                continue
            else:
                must = f"a user from 1 to {users} and an item from 1 to {items}"
            return f"line {number} of {self.member} must have {must}; it is {shown(text)}"
        if last:
            number = len(lines) + 1
            return f"line {number} of {self.member} must end in a line break; it is cut off: {shown(last)}"
        return None


def _edition(
    name: str, member: str, between: bytes, shape: tuple[int, int], count: int, sums: tuple[str, str]
) -> Edition:
    wanted = Wanted(
        f"MovieLens {name[3:].upper()}",
        (member, f"{name}.zip"),
        (name,),
        Remote(f"{_ADDRESS}{name}.zip", sums[0]),
    )
    return Edition(wanted, member, between, shape, count, sums[1])


_LARGEST = 1 << 28  # bytes; the largest edition here has a tenth of it

ML_100K: Final = _edition(
    "ml-100k",
    "u.data",
    b"\t",
    (943, 1682),
    100_000,
    (
        "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
        "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
    ),
)
ML_1M: Final = _edition(
    "ml-1m",
    "ratings.dat",
    b"::",
    (6040, 3952),
    1_000_209,
    (
        "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
        "506d64ca44484487c11dc2d9a28de5c54948213e6b96285e298afe28d6ea4e0f",
    ),
)


def movielens100k(
    path: PathLike | None = None, *, download: bool = True, progress: Progress | None = None
) -> Ratings:
    """Return MovieLens 100K: 100,000 ratings from 1 to 5 by 943 users of 1682 items; ids minus one.

    ``path`` is ``u.data`` or ``ml-100k.zip``, or a folder with one of them; without it, the folder that
    ``DCGS_DATA`` names, the cache folder and the official download are tried.
    """
    return _ratings(ML_100K, path, download, progress)


def movielens1m(
    path: PathLike | None = None, *, download: bool = True, progress: Progress | None = None
) -> Ratings:
    """Return MovieLens 1M: 1,000,209 ratings from 1 to 5 by 6040 users, ids minus one.

    There are 3952 columns, one for each id, and 3706 of them have ratings. ``path`` is ``ratings.dat`` or
    ``ml-1m.zip``, or a folder with one of them; else places are tried as for MovieLens 100K.
    """
    return _ratings(ML_1M, path, download, progress)


def _ratings(edition: Edition, path: PathLike | None, download: bool, progress: Progress | None) -> Ratings:
    file = edition.wanted.locate(path, download, progress)
    content = _content(file, edition.member)
    found = hashlib.sha256(content).hexdigest()
    if found != edition.sha256:
        # A line at fault says more than two checksums, so it is looked for first.
        lines = content.count(b"\n")
        fault = edition.fault(content) or (
            f"{edition.member} must have the SHA-256 {edition.sha256}; it has {found}, and "
            f"{lines:,} ratings where there are {edition.count:,}"
        )
        raise BrokenDataError(f"{fault}. Delete {file} and get {edition.wanted.remote.url}.")
    return edition.parse(content, Source(edition.wanted.name, Kind.REAL, {edition.member: found}))


def _content(file: Path, member: str) -> bytes:
    """Return the text that is parsed, out of its archive if it is in one."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise unreadable(file, error) from error
    if not content.startswith(b"PK"):
        return content
    try:
        with zipfile.ZipFile(file) as archive:
            name = next((name for name in archive.namelist() if Path(name).name == member), None)
            if name is None:
                raise BrokenDataError(f"{file} must have {member} in it; it has {archive.namelist()}.")
            size = archive.getinfo(name).file_size
            if size > _LARGEST:
                raise BrokenDataError(
                    f"{member} in {file} must have at most {_LARGEST:,} bytes; it has {size:,}."
                )
            return archive.read(name)
    except (
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        RuntimeError,
        NotImplementedError,
    ) as error:
        raise BrokenDataError(
            f"{file} must be a whole zip archive; it is not: {error}. Delete it and get it again."
        ) from error
