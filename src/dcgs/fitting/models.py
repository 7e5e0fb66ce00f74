"""The file of an agent's model of samples (NumPy's npz, nothing pickled)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import IO, Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.datasets.store import unreadable
from dcgs.fitting.about import wrong_entry
from dcgs.fitting.encoding import Encoding
from dcgs.fitting.problems import Problem, problem_named
from dcgs.fitting.tables import label_texts
from dcgs.npz import ArrayHeader, NpzReader

FORMAT = 2
_OLD = 1
"""The format of version 0.4: no intercept, no categories. Its models can still be used."""


@final
@dataclass(frozen=True, eq=False)
class Model:
    """One agent's x and intercept, in the units of the data, and what is needed to predict with them.

    A model of more than two classes has a row of x and an intercept for each class.

    ``reading`` says how new data are read: ``names`` and ``target`` of columns, ``columns`` with the levels
    of categories and what takes the place of a missing value, ``labels`` (of two, the lower means −1 and the
    higher +1), ``base``, the index of the first row and column. ``about`` describes the fit. ``deviation`` is
    that of each feature over all sites; models before version 0.10 have none.
    """

    x: NDArray[np.float64]
    problem: Problem
    reading: Mapping[str, Any]
    about: Mapping[str, Any]
    intercept: float | NDArray[np.float64] = 0.0
    deviation: NDArray[np.float64] | None = None

    @property
    def width(self) -> int:
        """The number of features."""
        return int(self.x.shape[-1])

    @property
    def labels(self) -> list[str]:
        """The labels of the classes as texts; empty for a model of numbers."""
        return label_texts(self.reading.get("labels", ()))

    @property
    def classes(self) -> list[tuple[str, NDArray[np.float64], float]]:
        """The coefficients and the intercept of each class; those of one model have an empty label."""
        if self.x.ndim == 1:
            return [("", self.x, float(self.intercept))]
        return list(zip(self.labels, self.x, np.asarray(self.intercept).tolist(), strict=True))

    @property
    def features(self) -> list[str]:
        """The name of each coefficient; ``feature 3`` where the data have no names."""
        columns = self.reading.get("columns")
        if columns is not None:
            return Encoding.from_json(columns).features
        names = self.reading.get("names")
        return [f"feature {at + 1}" for at in range(self.width)] if names is None else list(names)

    def effects(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return coefficients per deviation of their columns, if the model has deviations."""
        return x if self.deviation is None else x * self.deviation

    def save(self, file: IO[bytes]) -> None:
        """Write the model to an open file."""
        meta = {
            "format": FORMAT,
            "problem": self.problem.name,
            "shape": list(self.x.shape),
            "reading": dict(self.reading),
            "about": dict(self.about),
        }
        arrays = {"x": self.x, "intercept": np.asarray(self.intercept, float)}
        arrays |= {} if self.deviation is None else {"deviation": self.deviation}
        np.savez_compressed(file, meta=np.array(json.dumps(meta)), **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> Model:
        """Read a model written by :meth:`save`."""
        try:
            with path.open("rb") as file:
                npz = NpzReader(file)
                meta = json.loads(str(npz.array("meta")))
                version = meta["format"]
                if version in (_OLD, FORMAT):
                    _check_header(npz.header("x"), meta["shape"])
                    intercept = np.zeros(()) if version == _OLD else npz.array("intercept")
                    model = cls(
                        npz.array("x"),
                        problem_named(meta["problem"]),
                        meta["reading"],
                        meta["about"],
                        intercept if intercept.ndim else float(intercept),
                        _deviation(npz, meta["shape"]) if "deviation" in npz.names else None,
                    )
                    _check(model)
                    return model
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


class _ModelError(ValueError):
    """What is wrong with a model, as a part of a sentence."""


def _check_header(x: ArrayHeader, shape: object) -> None:
    """Raise unless x is as ``shape`` says, before it is read."""
    if x.dtype != np.float64 or list(x.shape) != shape:
        raise _ModelError(f"its x is of {x.dtype} and shape {x.shape}, not of float64 and shape {shape}")


def _deviation(npz: NpzReader, shape: list[int]) -> NDArray[np.float64]:
    """Return the deviations of features; raise unless each is finite and at least 0."""
    header = npz.header("deviation")
    deviation = (
        npz.array("deviation") if header.dtype == np.float64 and header.shape == (shape[-1],) else None
    )
    if deviation is None or not (np.isfinite(deviation) & (deviation >= 0.0)).all():
        raise _ModelError(
            f"it must have a deviation of at least 0 for each of {shape[-1]} features; it has others"
        )
    return deviation


def _check(model: Model) -> None:
    """Raise unless predictions can be made with the model."""
    x, reading = model.x, model.reading
    labels = reading.get("labels", ()) if isinstance(reading, dict) and model.problem.labels else ()
    several = isinstance(labels, list) and len(labels) > 2
    ndim = 2 if model.problem.entries or several else 1
    if x.ndim != ndim or not x.size:
        raise _ModelError(f"its x must have {ndim} dimensions and entries; it has shape {x.shape}")
    sides = (len(labels),) if several else ()
    if (several and len(x) != len(labels)) or np.shape(model.intercept) != sides:
        raise _ModelError(
            f"its x and intercept must be of {len(labels) if several else 1} models; they have shapes "
            f"{x.shape} and {np.shape(model.intercept)}"
        )
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        raise _ModelError(f"its x[{', '.join(map(str, bad[0]))}] is {x[tuple(bad[0])]}, not finite")
    if not np.isfinite(model.intercept).all():
        raise _ModelError(f"its intercept is {model.intercept}, not finite")
    if not isinstance(reading, dict):
        raise _ModelError(f"it must say how data are read; it has {reading!r}")
    wrong = [name for name, holds in _reading_checks(model).items() if not holds(reading.get(name, ""))]
    if wrong:
        raise _ModelError(
            f"it must say how data are read; {wrong[0]} is {reading.get(wrong[0], 'missing')!r}"
        )
    odd = wrong_entry(model.about, len(labels))
    if odd is not None:
        raise _ModelError(f"it must describe its fit as dcgs fit does; {odd}")


def _reading_checks(model: Model) -> dict[str, Callable[[Any], bool]]:
    """Return what must hold for each entry of ``reading``."""
    if model.problem.entries:
        return {"base": _is_index}
    checks: dict[str, Callable[[Any], bool]] = {
        "names": lambda names: (
            names is None
            or (
                isinstance(names, list)
                and len(names) == (len(reading_columns(model)) or model.width)
                and all(isinstance(n, str) for n in names)
            )
        ),
        "target": lambda name: name is None or (isinstance(name, str) and name != ""),
        "target_at": lambda at: at is None or _is_index(at),
    }
    if "columns" in model.reading:
        checks["columns"] = lambda columns: _are_columns(columns, model.width)
    if model.problem.labels:
        checks["labels"] = lambda labels: (
            (_is_list(labels, str) or (_is_list(labels, float | int) and all(map(math.isfinite, labels))))
            and len(labels) >= 2
            and len(set(label_texts(labels))) == len(labels)
        )
    return checks


def reading_columns(model: Model) -> list[Any]:
    """Return the columns of the table of a model; none if its data were no table."""
    columns = model.reading.get("columns")
    return columns if isinstance(columns, list) else []


def _are_columns(columns: object, width: int) -> bool:
    """Return True if the columns have a name, levels or none, and as many means as features, all finite."""
    try:
        encoding = Encoding.from_json(columns)  # type: ignore[arg-type]  # anything may be in a file
    except (TypeError, KeyError, ValueError):
        return False
    filled = all(len(column.fill) == len(column.features) for column in encoding.columns)
    finite = all(math.isfinite(mean) for column in encoding.columns for mean in column.fill)
    return filled and finite and len(encoding.features) == width


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_list(values: object, kind: type | UnionType) -> bool:
    return isinstance(values, list) and all(isinstance(value, kind) for value in values)
