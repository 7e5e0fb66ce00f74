"""E2006-tfidf: words of annual reports, and the volatility of the company's stock in the year after."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dcgs.datasets.base import Kind, Regression, Source
from dcgs.datasets.binary import Arrays, kept
from dcgs.datasets.download import Progress, Remote
from dcgs.datasets.errors import BrokenDataError
from dcgs.datasets.libsvm import read_libsvm
from dcgs.datasets.store import PathLike, Wanted, vouched_sha256
from dcgs.datasets.streams import cut_off

COLUMNS: Final = 150_360
_ADDRESS = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/regression/"
_PACKED = ("", ".bz2", ".xz", ".gz")
_ROUNDED = 1e-8  # the known lowest and highest label are given to eight places


@final
@dataclass(frozen=True)
class Split:
    """A file of the set, and what is known of it; no checksum of the official files is published."""

    wanted: Wanted
    rows: int
    highest_index: int
    nonzeros: int | None = None
    labels: tuple[float, float] | None = None

    def check(self, path: Path, A: sparse.csr_array, b: NDArray[np.float64]) -> None:
        """Refuse what is no whole copy of the file, saying every fact that does not hold."""
        facts: list[tuple[str, object, object, bool]] = [
            ("rows", self.rows, A.shape[0], self.rows == A.shape[0]),
            ("highest index", self.highest_index, _highest(A), self.highest_index == _highest(A)),
        ]
        if self.nonzeros is not None:
            facts.append(("nonzeros", self.nonzeros, A.nnz, self.nonzeros == A.nnz))
        if self.labels is not None:
            found = (float(b.min()), float(b.max()))
            near = np.allclose(found, self.labels, rtol=0.0, atol=_ROUNDED)
            facts.append(("lowest and highest label", self.labels, found, near))
        wrong = [f"{what} must be {known}, found {found}" for what, known, found, holds in facts if not holds]
        if wrong:
            last = cut_off(path)
            if last is not None:
                wrong.append(f"line {last}, the last, does not end in a line break and may be cut off")
            raise BrokenDataError(
                f"{path} must be {self.wanted.name}; {'; '.join(wrong)}. Delete it and get "
                f"{self.wanted.remote.url}, or read another file with read_libsvm."
            )


def _split(
    name: str, rows: int, highest: int, nonzeros: int | None, labels: tuple[float, float] | None
) -> Split:
    files = tuple(f"E2006.{name}{packed}" for packed in _PACKED)
    folders = ("e2006", "E2006", "e2006-tfidf", "E2006-tfidf")
    remote = Remote(f"{_ADDRESS}E2006.{name}.bz2", start=b"BZh")
    return Split(Wanted(f"E2006-tfidf ({name})", files, folders, remote), rows, highest, nonzeros, labels)


SPLITS: Final = {
    "train": _split("train", 16_087, COLUMNS, 19_971_015, (-7.89957807, -0.51940953)),
    "test": _split("test", 3_308, 150_358, None, None),
}


def e2006(
    path: PathLike | None = None,
    *,
    split: str = "train",
    download: bool = True,
    progress: Progress | None = None,
) -> Regression:
    """Return E2006-tfidf: 16,087 (train) or 3,308 (test) samples of 150,360 features, and log-volatilities.

    ``path`` is ``E2006.train`` or ``E2006.test``, plain or as bz2, xz or gz, or a folder with it; without
    it, the folder that ``DCGS_DATA`` names, the cache folder and the official download are tried. The
    first reading parses the text; later ones take a binary copy from the cache folder.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {sorted(SPLITS)}; got {split!r}.")
    chosen = SPLITS[split]
    file = chosen.wanted.locate(path, download, progress)
    sha256 = vouched_sha256(file)

    def parse() -> Arrays:
        A, b = read_libsvm(file, COLUMNS)
        chosen.check(file, A, b)
        return {"data": A.data, "indices": A.indices, "indptr": A.indptr, "labels": b}

    kept_arrays = kept(f"E2006.{split}-{sha256}", parse)
    entries = (kept_arrays["data"], kept_arrays["indices"], kept_arrays["indptr"])
    b = kept_arrays["labels"]
    A = sparse.csr_array(entries, shape=(len(b), COLUMNS))
    return Regression(A, b, Source(chosen.wanted.name, Kind.REAL, {file.name: sha256}))


def _highest(A: sparse.csr_array) -> int:
    return int(A.indices.max(initial=-1)) + 1
