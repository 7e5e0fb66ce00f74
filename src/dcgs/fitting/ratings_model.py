"""The file of an agent's model of ratings: factors, offsets and ids (NumPy's npz, nothing pickled).

Rows and columns have the names that people use: ids of users and items, or numbers. A naming turns names into
the numbers of rows and columns, from 0, and back; −1 is a name that is not known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dcgs.datasets.store import unreadable
from dcgs.fitting.about import wrong_entry
from dcgs.fitting.data import Indices
from dcgs.low_rank import LowRank
from dcgs.npz import NpzReader
from dcgs.ratings import Ids, Offsets, RatingsModel

FORMAT = 2
KIND = "ratings"


@final
@dataclass(frozen=True, eq=False)
class Labels:
    """Ids of users, with the row of each, and ids of items, whose places are the columns."""

    users: Ids
    numbers: Indices
    items: Ids

    def rows_of(self, names: ArrayLike) -> Indices:
        """Return the rows with these names."""
        return np.append(self.numbers, -1)[self.users.places(names)]  # the place −1 is the last

    def row_names(self, rows: Indices) -> list[Any]:
        order = np.argsort(self.numbers, kind="stable")
        return self.users[order[np.searchsorted(self.numbers[order], rows)]]

    def col_names(self, cols: Indices) -> list[Any]:
        return self.items[cols]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a model file needs."""
        return {"users": self.users.texts, "numbers": self.numbers, "items": self.items.texts}


@final
@dataclass(frozen=True, eq=False)
class Numbering:
    """Rows and columns with numbers; the first has the number ``base``, 0 or 1."""

    base: int
    shape: tuple[int, int]

    def rows_of(self, names: Sequence[str]) -> Indices:
        """Return the rows with these names; −1 also for a name that is no number."""
        known = [name.isascii() and name.isdigit() and len(name) < 18 for name in names]
        numbers = [int(name) - self.base if ok else -1 for name, ok in zip(names, known, strict=True)]
        return self.within(np.array(numbers, dtype=np.intp), 0)

    def within(self, numbers: Indices, axis: int) -> Indices:
        """Return numbers from 0, with −1 for those outside the matrix."""
        return np.where((numbers >= 0) & (numbers < self.shape[axis]), numbers, -1)

    def row_names(self, rows: Indices) -> list[Any]:
        return list((rows + self.base).tolist())

    def col_names(self, cols: Indices) -> list[Any]:
        return list((cols + self.base).tolist())

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {}


Naming: TypeAlias = Labels | Numbering


@final
@dataclass(frozen=True, eq=False)
class RatingsFile:
    """One agent's model of ratings, the names of its rows and of all columns, and a description of the fit.

    ``doubles`` are ids that several agents have, if the models of several agents were put together.
    """

    model: RatingsModel
    naming: Naming
    about: Mapping[str, Any]
    doubles: tuple[str, ...] = ()

    def save(self, file: IO[bytes]) -> None:
        """Write the model to an open file."""
        x, offsets = self.model.x, self.model.offsets
        assert x.rows is not None
        meta = {
            "format": FORMAT,
            "problem": "completion",
            "kind": KIND,
            "shape": list(x.shape),
            "base": self.naming.base if isinstance(self.naming, Numbering) else None,
            "offsets": {"mean": offsets.mean, "low": offsets.low, "high": offsets.high},
            "about": dict(self.about),
        }
        np.savez_compressed(
            file,
            meta=np.array(json.dumps(meta)),
            U=x.U,
            V=x.V,
            rows=x.rows,
            row_offsets=offsets.of_rows(x.rows),
            col_offsets=offsets.col_offsets,
            **self.naming.arrays(),  # type: ignore[arg-type]  # the stubs take them for allow_pickle
        )

    @classmethod
    def load(cls, path: Path) -> RatingsFile:
        """Read a model written by :meth:`save`."""
        try:
            with path.open("rb") as file:
                return _read(NpzReader(file))
        except OSError as error:
            raise unreadable(path, error) from error
        except Exception as error:  # damage can surface in the zip, the arrays, the JSON or the names
            raise ValueError(
                f"{path} must be a model written by dcgs fit; it cannot be read as one: {error}. "
                "Fit it again."
            ) from error


def is_ratings_file(path: Path) -> bool:
    """Return True if a file says that it is a model of ratings; a file that cannot be read does not."""
    try:
        with path.open("rb") as file:
            meta = json.loads(str(NpzReader(file).array("meta")))
            return isinstance(meta, dict) and meta.get("kind") == KIND
    except Exception:  # whatever is wrong with it is reported when it is read as a model
        return False


def together(files: Sequence[RatingsFile]) -> RatingsFile:
    """Return the model with the rows of all these agents; of equal ids, the first agent's counts."""
    first = files[0]
    xs = [file.model.x for file in files]
    if any(not np.array_equal(x.V, xs[0].V) for x in xs):
        raise ValueError(
            "the models in a folder must be of one fit; their factors differ. Choose one with --agent."
        )
    every = np.concatenate([np.asarray(x.rows) for x in xs])
    rows, place = np.unique(every, return_index=True)
    U = np.concatenate([x.U for x in xs])[place]
    shifts = np.concatenate([file.model.offsets.row_offsets for file in files])[place]
    offsets = replace(first.model.offsets, rows=rows, row_offsets=shifts)
    model = RatingsModel(LowRank(U, xs[0].V, xs[0].shape, rows), offsets)
    if not isinstance(first.naming, Labels):
        return replace(first, model=model)
    namings = [file.naming for file in files if isinstance(file.naming, Labels)]
    texts = np.concatenate([naming.users.texts for naming in namings])
    numbers = np.concatenate([naming.numbers for naming in namings])
    distinct, at = np.unique(texts, return_index=True)
    twice = np.setdiff1d(numbers, numbers[at])
    doubles = tuple(sorted({text.decode() for text in texts[np.isin(numbers, twice)].tolist()}))
    naming = Labels(Ids(distinct), numbers[at], first.naming.items)
    return replace(first, model=model, naming=naming, doubles=doubles)


def _read(npz: NpzReader) -> RatingsFile:
    meta = json.loads(str(npz.array("meta")))
    if meta["format"] != FORMAT:
        raise ValueError(f"its format is {meta['format']!r}, not {FORMAT}")
    side, told = meta["shape"], meta["offsets"]
    shape = int(side[0]), int(side[1])
    U, V, row_offsets, col_offsets = (_floats(npz, name) for name in ("U", "V", "row_offsets", "col_offsets"))
    rows = npz.array("rows")
    x = LowRank(U, V, shape, rows.astype(np.intp))
    numbers = [float(told[name]) for name in ("mean", "low", "high")]
    offsets = Offsets(numbers[0], numbers[1], numbers[2], rows.astype(np.intp), row_offsets, col_offsets)
    fits = (
        U.shape == (len(rows), V.shape[1])
        and row_offsets.shape == rows.shape
        and V.shape[0] == shape[1] == len(col_offsets)
        and bool(np.isfinite(numbers).all())
        and bool((np.diff(rows) > 0).all())
        and bool(len(rows) == 0 or (rows[0] >= 0 and rows[-1] < shape[0]))
    )
    if not fits:
        raise ValueError("its factors and offsets do not fit together")
    odd = wrong_entry(meta["about"], 0)
    if odd is not None:
        raise ValueError(f"it must describe its fit as dcgs fit does, and {odd}")
    return RatingsFile(RatingsModel(x, offsets), _naming(npz, meta, shape), meta["about"])


def _naming(npz: NpzReader, meta: Mapping[str, Any], shape: tuple[int, int]) -> Naming:
    if meta["base"] is not None:
        if meta["base"] not in (0, 1):
            raise ValueError(f"its first index is {meta['base']!r}, not 0 or 1")
        return Numbering(meta["base"], shape)
    users, numbers, items = (npz.array(name) for name in ("users", "numbers", "items"))
    if len(users) != len(numbers) or len(items) != shape[1]:
        raise ValueError("its ids do not fit to its factors")
    return Labels(Ids(users), numbers.astype(np.intp), Ids(items))


def _floats(npz: NpzReader, name: str) -> Any:
    array = npz.array(name)
    if array.dtype != np.float64 or not np.isfinite(array).all():
        raise ValueError(f"its {name} is not of finite numbers")
    return array
