"""E2006-tfidf: words of annual reports, and the volatility of the company's stock in the year after."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dcgs.datasets.base import BrokenDataError, Regression, Source, SourceKind
from dcgs.datasets.libsvm import read_libsvm
from dcgs.datasets.store import (
    Arrays,
    PathLike,
    Progress,
    Remote,
    Wanted,
    cached_arrays,
    checked_sha256,
    cut_off,
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
