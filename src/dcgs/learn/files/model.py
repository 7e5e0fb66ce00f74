"""The files of models: NumPy's npz with arrays and a description in JSON; nothing is pickled.

What a file says is read by the types of :class:`Meta` and checked as these are. Models of versions since 0.4
can be read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.datasets.store import unreadable
from dcgs.files import NpzReader
from dcgs.learn.encoding import EncodedColumn, Encoding
from dcgs.learn.files.specs import Problem, problem_named
from dcgs.learn.ratings.ids import Ids
from dcgs.learn.ratings.model import AgentRatings, FoldIn, Labels, Naming, Numbering, RatingsModel
from dcgs.learn.ratings.offsets import Offsets
from dcgs.learn.summary import FitSummary
from dcgs.low_rank import LowRank
from dcgs.state import from_plain
from dcgs.validation import label_text

FORMAT = 2
_OLD = 1
"""The format of version 0.4: no intercept, no categories. Its models can still be used."""
_RATINGS = "ratings"


@final
@dataclass(frozen=True)
class Reading:
    """How new data are read for a model: the names of columns, the target, the encoding and the labels.

    ``target_at`` is the column of the target, from 0. ``columns`` are those of a table, with levels and what
    takes the place of a missing value; None if the data were no table. ``labels`` are as in the data: numbers
    or texts; of two, the lower means −1 and the higher +1. ``base`` is the index of the first row and column
    of a matrix.
    """

    names: tuple[str, ...] | None
    target: str | None
    target_at: int | None
    columns: tuple[EncodedColumn, ...] | None = None
    labels: tuple[str | float, ...] = ()
    base: int | None = None

    @property
    def encoding(self) -> Encoding | None:
        """How a table becomes numbers; None if the data were no table."""
        return None if self.columns is None else Encoding(self.columns)


@final
@dataclass(frozen=True)
class OffsetsMeta:
    """The mean of ratings, their range, and the ridge of offsets, if there are offsets."""

    mean: float
    low: float
    high: float
    ridge: float | None = None


@final
@dataclass(frozen=True)
class Meta:
    """What the JSON of a model file says; ``about`` describes the fit."""

    problem: str
    shape: tuple[int, ...]
    about: FitSummary
    reading: Reading | None = None
    base: int | None = None
    offsets: OffsetsMeta | None = None


class _ModelError(ValueError):
    """What is wrong with a model, as a part of a sentence."""


@final
@dataclass(frozen=True, eq=False)
class Coefficients:
    """The largest coefficients of a model, or of one of its classes, by their effect.

    A row has the name, the coefficient in the user's units, and the one per deviation of the column, which
    is None if the model has no deviations. ``used`` is the number of all that are not 0.
    """

    label: str
    rows: list[tuple[str, float, float | None]]
    used: int
    count: int
    intercept: float


@final
@dataclass(frozen=True, eq=False)
class Model:
    """One agent's x and intercept, in the units of the data, and what is needed to predict with them.

    A model of more than two classes has a row of x and an intercept for each class. ``about`` describes the
    fit. ``deviation`` is that of each feature over all sites; models before version 0.10 have none.
    """

    x: NDArray[np.float64]
    problem: Problem
    reading: Reading
    about: Mapping[str, Any]
    intercept: float | NDArray[np.float64] = 0.0
    deviation: NDArray[np.float64] | None = None

    @property
    def summary(self) -> FitSummary:
        """The description of the fit."""
        return FitSummary.read(dict(self.about))

    @property
    def width(self) -> int:
        """The number of features."""
        return int(self.x.shape[-1])

    @property
    def labels(self) -> list[str]:
        """The labels of the classes as texts; empty for a model of numbers."""
        return list(map(label_text, self.reading.labels))

    @property
    def classes(self) -> list[tuple[str, NDArray[np.float64], float]]:
        """The coefficients and the intercept of each class; those of one model have an empty label."""
        if self.x.ndim == 1:
            return [("", self.x, float(self.intercept))]
        return list(zip(self.labels, self.x, np.asarray(self.intercept).tolist(), strict=True))

    @property
    def features(self) -> list[str]:
        """The name of each coefficient; ``feature 3`` where the data have no names."""
        if self.reading.encoding is not None:
            return self.reading.encoding.features
        if self.reading.names is not None:
            return list(self.reading.names)
        return [f"feature {number}" for number in range(1, self.width + 1)]

    def effects(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return coefficients per deviation of their columns, if the model has deviations."""
        return x if self.deviation is None else x * self.deviation

    def largest(self, most: int) -> Iterator[Coefficients]:
        """Yield the largest coefficients of each class; those of one model have an empty label."""
        names, is_known = self.features, self.deviation is not None
        for label, x, intercept in self.classes:
            effects = self.effects(x)
            order = [k for k in np.argsort(-np.abs(effects), kind="stable").tolist() if x[k] != 0.0]
            rows = [(names[k], float(x[k]), float(effects[k]) if is_known else None) for k in order[:most]]
            yield Coefficients(label, rows, len(order), x.size, intercept)

    def save(self, file: IO[bytes]) -> None:
        """Write the model to an open file."""
        meta = {"problem": self.problem.name, "shape": list(self.x.shape), "reading": _plain(self.reading)}
        arrays = {"x": self.x, "intercept": np.asarray(self.intercept, float)}
        arrays |= {} if self.deviation is None else {"deviation": self.deviation}
        _write(file, meta | {"about": dict(self.about)}, arrays)

    @classmethod
    def load(cls, path: Path) -> Model:
        """Read a model of rows."""
        model = load_model(path)
        if not isinstance(model, Model):
            raise ValueError(f"{path} must be a model of rows; it is one of ratings.")
        return model


@final
@dataclass(frozen=True, eq=False)
class RatingsFile:
    """One agent's model of ratings, and the description of its fit."""

    agent: AgentRatings
    about: Mapping[str, Any]

    @property
    def summary(self) -> FitSummary:
        """The description of the fit."""
        return FitSummary.read(dict(self.about))

    def save(self, file: IO[bytes]) -> None:
        """Write the model to an open file."""
        naming, x, offsets = self.agent.naming, self.agent.model.x, self.agent.model.offsets
        assert x.rows is not None
        meta: dict[str, Any] = {
            "problem": "completion",
            "kind": _RATINGS,
            "shape": list(x.shape),
            "base": naming.base if isinstance(naming, Numbering) else None,
            "offsets": {"mean": offsets.mean, "low": offsets.low, "high": offsets.high},
            "about": dict(self.about),
        }
        fold_in = self.agent.model.fold_in
        if fold_in is not None:
            meta["offsets"] |= {"ridge": fold_in.ridge}
        arrays: dict[str, NDArray[Any]] = {"U": x.U, "V": x.V, "rows": x.rows}
        arrays |= {"row_offsets": offsets.of_rows(x.rows), "col_offsets": offsets.col_offsets}
        arrays |= {} if fold_in is None else {"row_penalty": fold_in.penalty}
        if isinstance(naming, Labels):
            arrays |= {"users": naming.users.texts, "numbers": naming.numbers, "items": naming.items.texts}
        _write(file, meta, arrays)


def load_model(path: Path) -> Model | RatingsFile:
    """Read a model that ``dcgs fit`` has written."""
    try:
        with path.open("rb") as file:
            npz = NpzReader(file)
            plain = json.loads(str(npz.array("meta")))
            version = plain["format"]
            if version in (_OLD, FORMAT):
                meta = _meta(plain)
                is_ratings = plain.get("kind") == _RATINGS
                return (_ratings if is_ratings else _rows)(npz, meta, plain["about"], version)
    except OSError as error:
        raise unreadable(path, error) from error
    except _ModelError as error:
        raise ValueError(f"{path} must be a model written by dcgs fit; {error}. Fit it again.") from error
    except Exception as error:  # damage can surface in the zip, the arrays, the JSON or the names
        raise ValueError(
            f"{path} must be a model written by dcgs fit; it cannot be read as one. Fit it again."
        ) from error
    raise ValueError(
        f"a model must be of format {FORMAT}; {path} has {version!r}. "
        "Read it with the version of dcgs that wrote it."
    )


def _write(file: IO[bytes], meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    text = np.array(json.dumps({"format": FORMAT, **meta}))
    np.savez_compressed(file, meta=text, **arrays)  # type: ignore[arg-type]  # taken for allow_pickle


def _plain(reading: Reading) -> dict[str, Any]:
    """Return how data are read as JSON; entries that do not apply are left out, but for those on columns."""
    plain = asdict(reading)
    columns = [
        {name: value for name, value in column.items() if value is not None}
        for column in plain.pop("columns") or ()
    ]
    kept = {name: plain[name] for name in ("names", "target", "target_at")}
    kept |= {"columns": columns} if reading.columns is not None else {}
    return kept | ({"labels": list(reading.labels)} if reading.labels else {})


def _meta(plain: Any) -> Meta:
    """Return the description in a file; raise with the entry that is not of its kind."""
    try:
        return from_plain(Meta, plain, lenient=True)
    except (TypeError, ValueError) as error:
        raise _ModelError(f"it must be described as dcgs fit does; {error}") from error


def _rows(npz: NpzReader, meta: Meta, about: Mapping[str, Any], version: int) -> Model:
    """Return a model of rows; raise unless predictions can be made with it."""
    reading, problem, header = meta.reading, problem_named(meta.problem), npz.header("x")
    if reading is None:
        raise _ModelError("it must say how data are read; reading is missing")
    if header.dtype != np.float64 or header.shape != meta.shape:
        raise _ModelError(
            f"its x is of {header.dtype} and shape {header.shape}, not of float64 and shape {meta.shape}"
        )
    x = npz.array("x")
    intercept = np.zeros(()) if version == _OLD else npz.array("intercept")
    classes = len(reading.labels) if problem.labels and len(reading.labels) > 2 else 1
    ndim = 2 if problem.entries or classes > 1 else 1
    if x.ndim != ndim or not x.size:
        raise _ModelError(f"its x must have {ndim} dimensions and entries; it has shape {x.shape}")
    if (classes > 1 and len(x) != classes) or intercept.shape != ((classes,) if classes > 1 else ()):
        raise _ModelError(
            f"its x and intercept must be of {classes} models; they have shapes {x.shape} and "
            f"{intercept.shape}"
        )
    _check_finite("x", x)
    _check_finite("intercept", intercept)
    _check_reading(reading, problem, x.shape[-1])
    constant = meta.about.constant
    if constant is not None and (np.shape(constant) != ((classes,) if classes > 1 else ())):
        raise _ModelError(f"it must have a constant prediction for {classes} models; it is {constant!r}")
    _check_finite("constant prediction", np.asarray(0.0 if constant is None else constant))
    deviation = _deviation(npz, x.shape[-1]) if "deviation" in npz.names else None
    return Model(x, problem, reading, about, intercept if classes > 1 else float(intercept), deviation)


def _check_finite(name: str, array: NDArray[np.float64]) -> None:
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        place = f"[{', '.join(map(str, bad[0]))}]" if array.ndim else ""
        raise _ModelError(f"its {name}{place} is {array[tuple(bad[0])]}, not finite")


def _check_reading(reading: Reading, problem: Problem, width: int) -> None:
    """Raise unless the columns, the labels and the target can be those of a model of this width."""
    columns = reading.columns or ()
    features = sum(len(column.features) for column in columns) if columns else width
    filled = all(len(column.fill) == len(column.features) for column in columns)
    finite = all(math.isfinite(mean) for column in columns for mean in column.fill)
    texts = list(map(label_text, reading.labels))
    wrong = {
        "columns": not (filled and finite and features == width),
        "names": reading.names is not None and len(reading.names) != (len(columns) or width),
        "target": reading.target == "",
        "target_at": (reading.target_at or 0) < 0,
        "labels": problem.labels and not (len(set(texts)) == len(texts) >= 2 and all(map(_is_label, texts))),
        "base": problem.entries and reading.base not in (0, 1),
    }
    name = next((name for name, is_wrong in wrong.items() if is_wrong), None)
    if name is not None:
        raise _ModelError(f"it must say how data are read; {name} is {getattr(reading, name)!r}")


def _is_label(text: str) -> bool:
    return text not in ("nan", "inf", "-inf")


def _deviation(npz: NpzReader, width: int) -> NDArray[np.float64]:
    """Return the deviations of features; raise unless each is finite and at least 0."""
    header = npz.header("deviation")
    is_fit = header.dtype == np.float64 and header.shape == (width,)
    deviation = npz.array("deviation") if is_fit else np.full(1, np.nan)
    if not (np.isfinite(deviation) & (deviation >= 0.0)).all():
        raise _ModelError(
            f"it must have a deviation of at least 0 for each of {width} features; it has others"
        )
    return deviation


def _ratings(npz: NpzReader, meta: Meta, about: Mapping[str, Any], version: int) -> RatingsFile:
    """Return a model of ratings; raise unless its parts fit together."""
    assert meta.offsets is not None
    shape, given = (meta.shape[0], meta.shape[1]), meta.offsets
    U, V, row_offsets, col_offsets = (npz.array(name) for name in ("U", "V", "row_offsets", "col_offsets"))
    for name, array in (("U", U), ("V", V), ("row_offsets", row_offsets), ("col_offsets", col_offsets)):
        if array.dtype != np.float64:
            raise _ModelError(f"its {name} is of {array.dtype}, not of float64")
        _check_finite(name, array)
    _check_finite("offsets", np.array([given.mean, given.low, given.high]))
    rows = npz.array("rows").astype(np.intp)
    fits = row_offsets.shape == rows.shape and len(col_offsets) == shape[1] and (rows >= 0).all()
    if not fits:
        raise ValueError("factors and offsets do not fit together")
    offsets = Offsets(given.mean, given.low, given.high, rows, row_offsets, col_offsets)
    model = RatingsModel(LowRank(U, V, shape, rows), offsets, _fold_in(npz, given, U.shape[1]))
    return RatingsFile(AgentRatings(model, _naming(npz, meta, shape)), about)


def _fold_in(npz: NpzReader, given: OffsetsMeta, rank: int) -> FoldIn | None:
    """Return what finds rows of new users, if the model has it."""
    if "row_penalty" not in npz.names:
        return None
    penalty = npz.array("row_penalty")
    if penalty.dtype != np.float64 or penalty.shape != (rank, rank) or not np.isfinite(penalty).all():
        raise _ModelError(f"its row_penalty must be of finite numbers of shape {(rank, rank)}")
    return FoldIn(penalty, given.ridge)


def _naming(npz: NpzReader, meta: Meta, shape: tuple[int, int]) -> Naming:
    if meta.base is not None:
        if meta.base not in (0, 1):
            raise _ModelError(f"its first index is {meta.base!r}, not 0 or 1")
        return Numbering(meta.base, shape)
    users, numbers, items = (npz.array(name) for name in ("users", "numbers", "items"))
    if len(users) != len(numbers) or len(items) != shape[1]:
        raise ValueError("ids do not fit to factors")
    return Labels(Ids(users), numbers.astype(np.intp), Ids(items))
