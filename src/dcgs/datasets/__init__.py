"""Data sets: synthetic ones, made from a seed; real ones, read from files; readers of LIBSVM text."""

from dcgs.datasets.base import (
    BrokenDataError,
    DataNotFoundError,
    DownloadError,
    Ratings,
    Regression,
    Source,
    SourceKind,
)
from dcgs.datasets.libsvm import read_libsvm
from dcgs.datasets.published import e2006, movielens1m, movielens100k
from dcgs.datasets.store import cache_folder
from dcgs.datasets.synthetic import completion_synthetic, e2006_lookalike, lasso_synthetic, write_patients

__all__ = [
    "BrokenDataError",
    "DataNotFoundError",
    "DownloadError",
    "Ratings",
    "Regression",
    "Source",
    "SourceKind",
    "cache_folder",
    "completion_synthetic",
    "e2006",
    "e2006_lookalike",
    "lasso_synthetic",
    "movielens1m",
    "movielens100k",
    "read_libsvm",
    "write_patients",
]
