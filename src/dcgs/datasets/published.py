"""Published data sets: E2006-tfidf, and MovieLens 100K and 1M, whose license forbids redistribution.

E2006-tfidf has words of annual reports, and the volatility of the company's stock in the year after.
MovieLens has the stars that users gave to films.
"""

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
from numpy.typing import NDArray
from scipy import sparse

from dcgs.datasets.base import BrokenDataError, Ratings, Regression, Source, SourceKind
from dcgs.datasets.libsvm import quoted, read_libsvm
from dcgs.datasets.store import (
    Arrays,
    PathLike,
    Progress,
    Remote,
    Wanted,
    cached_arrays,
    checked_sha256,
    cut_off,
    unreadable,
)
from dcgs.validation import one_of

COLUMNS: Final = 150_360
_ADDRESS = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/regression/"
_ROUNDED = 1e-8  # the known lowest and highest label are given to eight places


@final
@dataclass(frozen=True)
class Split:
    """One file of the set and known facts about it; no checksum of the official files is published."""

    wanted: Wanted
    rows: int
    highest_index: int
    nonzeros: int | None = None
    labels: tuple[float, float] | None = None

    def check(self, path: Path, A: sparse.csr_array, b: NDArray[np.float64]) -> None:
        """Raise if the data are not the complete set, with every fact that does not hold."""
        labels = (float(b.min()), float(b.max()))
        if self.labels is not None and np.allclose(labels, self.labels, rtol=0.0, atol=_ROUNDED):
            labels = self.labels
        facts: list[tuple[str, object, object]] = [
            ("rows", self.rows, A.shape[0]),
            ("highest index", self.highest_index, int(A.indices.max(initial=-1)) + 1),
            ("nonzeros", self.nonzeros, A.nnz),
            ("lowest and highest label", self.labels, labels),
        ]
        wrong = [f"{what} must be {known}, found {x}" for what, known, x in facts if known not in (None, x)]
        if wrong:
            last = cut_off(path)
            if last is not None:
                wrong.append(f"line {last}, the last, does not end in a line break and may be cut off")
            raise BrokenDataError(
                f"{path} must be {self.wanted.name}; {'; '.join(wrong)}. Delete it and get "
                f"{self.wanted.remote.url}, or read another file with read_libsvm."
            )


def _wanted(name: str) -> Wanted:
    files = tuple(f"E2006.{name}{packed}" for packed in ("", ".bz2", ".xz", ".gz"))
    folders = ("e2006", "E2006", "e2006-tfidf", "E2006-tfidf")
    return Wanted(
        f"E2006-tfidf ({name})", files, folders, Remote(f"{_ADDRESS}E2006.{name}.bz2", start=b"BZh")
    )


SPLITS: Final = {
    "train": Split(_wanted("train"), 16_087, COLUMNS, 19_971_015, (-7.89957807, -0.51940953)),
    "test": Split(_wanted("test"), 3_308, 150_358),
}


def e2006(
    path: PathLike | None = None,
    *,
    split: str = "train",
    download: bool = True,
    progress: Progress | None = None,
) -> Regression:
    """Return E2006-tfidf: 16,087 (train) or 3,308 (test) samples of 150,360 features, and log-volatilities.

    ``path`` is ``E2006.train`` or ``E2006.test``, plain or as bz2, xz or gz, or a folder with it. Without a
    path, the folder that ``DCGS_DATA`` names, the cache folder and the official download are tried. The
    first call parses the text; later calls load a binary copy from the cache folder.
    """
    chosen = SPLITS[one_of(*SPLITS)(split, "split")]
    file = chosen.wanted.locate(path, download, progress)
    sha256 = checked_sha256(file)

    def parse() -> Arrays:
        A, b = read_libsvm(file, COLUMNS)
        chosen.check(file, A, b)
        return {"data": A.data, "indices": A.indices, "indptr": A.indptr, "labels": b}

    arrays = cached_arrays(f"E2006.{split}-{sha256}", parse)
    b = arrays["labels"]
    A = sparse.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(len(b), COLUMNS))
    return Regression(A, b, Source(chosen.wanted.name, SourceKind.REAL, {file.name: sha256}))


_LARGEST = 1 << 28  # bytes; the largest edition here has a tenth of it
_DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError)


@final
@dataclass(frozen=True)
class Edition:
    """One release: lines of user, item, stars and time, separated by ``between``; ``sha256`` of the text."""

    wanted: Wanted
    member: str
    between: bytes
    shape: tuple[int, int]
    count: int
    sha256: str

    def load(self, path: PathLike | None, download: bool, progress: Progress | None) -> Ratings:
        """Find the file, check it, and return its ratings."""
        file = self.wanted.locate(path, download, progress)
        content = _content(file, self.member)
        sha256 = hashlib.sha256(content).hexdigest()
        if sha256 != self.sha256:
            # An invalid line says more than two checksums, so it is looked for first.
            lines = content.count(b"\n")
            fault = self._fault(content) or (
                f"{self.member} must have the SHA-256 {self.sha256}; it has {sha256}, and {lines:,} ratings "
                f"instead of {self.count:,}"
            )
            raise BrokenDataError(f"{fault}. Delete {file} and get {self.wanted.remote.url}.")
        numbers = np.fromstring(content.replace(self.between, b" "), dtype=np.int64, sep=" ").reshape(-1, 4)
        rows, cols = (np.ascontiguousarray(numbers[:, column] - 1, dtype=np.intp) for column in range(2))
        source = Source(self.wanted.name, SourceKind.REAL, {self.member: sha256})
        return Ratings(rows, cols, numbers[:, 2].astype(np.float64), self.shape, source)

    def _fault(self, content: bytes) -> str | None:
        """Return a sentence, without its full stop, on the first invalid line; None if all are valid."""
        line = re.compile(rb"(\d{1,9})%b(\d{1,9})%b([1-5])%b\d+" % ((re.escape(self.between),) * 3))
        users, items = self.shape
        *lines, last = content.split(b"\n")
        for number, text in enumerate(lines, 1):
            match = line.fullmatch(text)
            if match is None:
                must = f"4 whole numbers, user, item, stars and time, with {quoted(self.between)} between"
            elif 1 <= int(match[1]) <= users and 1 <= int(match[2]) <= items:
                continue
            else:
                must = f"a user from 1 to {users} and an item from 1 to {items}"
            return f"line {number} of {self.member} must have {must}; it is {quoted(text)}"
        if last:
            number = len(lines) + 1
            return f"line {number} of {self.member} must end in a line break; it is cut off: {quoted(last)}"
        return None


def _member(name: str, member: str, sha256: str) -> Wanted:
    remote = Remote(f"https://files.grouplens.org/datasets/movielens/{name}.zip", sha256)
    return Wanted(f"MovieLens {name[3:].upper()}", (member, f"{name}.zip"), (name,), remote)


ML_100K: Final = Edition(
    _member("ml-100k", "u.data", "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229"),
    "u.data",
    b"\t",
    (943, 1682),
    100_000,
    "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
)
ML_1M: Final = Edition(
    _member("ml-1m", "ratings.dat", "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20"),
    "ratings.dat",
    b"::",
    (6040, 3952),
    1_000_209,
    "506d64ca44484487c11dc2d9a28de5c54948213e6b96285e298afe28d6ea4e0f",
)


def movielens100k(
    path: PathLike | None = None, *, download: bool = True, progress: Progress | None = None
) -> Ratings:
    """Return MovieLens 100K: 100,000 ratings from 1 to 5 by 943 users of 1682 items; ids minus one.

    ``path`` is ``u.data`` or ``ml-100k.zip``, or a folder with one of them. Without a path, the folder that
    ``DCGS_DATA`` names, the cache folder and the official download are tried.
    """
    return ML_100K.load(path, download, progress)


def movielens1m(
    path: PathLike | None = None, *, download: bool = True, progress: Progress | None = None
) -> Ratings:
    """Return MovieLens 1M: 1,000,209 ratings from 1 to 5 by 6040 users; ids minus one.

    There are 3952 columns, one for each id; 3706 of them have ratings. ``path`` is ``ratings.dat`` or
    ``ml-1m.zip``, or a folder with one of them. Without a path, the same places are tried as for
    MovieLens 100K.
    """
    return ML_1M.load(path, download, progress)


def _content(file: Path, member: str) -> bytes:
    """Return the text to parse, extracted if the file is an archive."""
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
    except _DAMAGE as error:
        raise BrokenDataError(
            f"{file} must be a complete zip archive; it is not: {error}. Delete it and get it again."
        ) from error
