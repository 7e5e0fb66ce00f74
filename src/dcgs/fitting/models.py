"""A model: the result of one agent, and the file it is saved in (NumPy's npz, nothing pickled)."""

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
from dcgs.fitting.problems import Problem, problem_named
from dcgs.npz import ArrayHeader, NpzReader
from dcgs.points import is_whole

FORMAT = 1
_PATTERN = "agent-*.npz"


@final
@dataclass(frozen=True, eq=False)
class Model:
    """One agent's x, and what is needed to predict with it.

    ``reading`` says how new data are read: ``names`` and ``target`` of columns, ``labels`` (the lower means
    −1, the higher +1), ``base``, the index of the first row and column. ``about`` describes the fit.
    """

    x: NDArray[np.float64]
    problem: Problem
    reading: Mapping[str, Any]
    about: Mapping[str, Any]

    def save(self, file: IO[bytes]) -> None:
        """Write the model to an open file."""
        meta = {
            "format": FORMAT,
            "problem": self.problem.name,
            "shape": list(self.x.shape),
            "reading": dict(self.reading),
            "about": dict(self.about),
        }
        np.savez_compressed(file, x=self.x, meta=np.array(json.dumps(meta)))

    @classmethod
    def load(cls, path: Path) -> Model:
        """Read a model written by :meth:`save`."""
        try:
            with path.open("rb") as file:
                npz = NpzReader(file)
                meta = json.loads(str(npz.array("meta")))
                version = meta["format"]
                if version == FORMAT:
                    _check_header(npz.header("x"), meta["shape"])
                    model = cls(
                        npz.array("x"), problem_named(meta["problem"]), meta["reading"], meta["about"]
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


def _check(model: Model) -> None:
    """Raise unless predictions can be made with the model."""
    x, reading = model.x, model.reading
    ndim = 2 if model.problem.entries else 1
    if x.ndim != ndim or not x.size:
        raise _ModelError(f"its x must have {ndim} dimensions and entries; it has shape {x.shape}")
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        raise _ModelError(f"its x[{', '.join(map(str, bad[0]))}] is {x[tuple(bad[0])]}, not finite")
    if not isinstance(reading, dict):
        raise _ModelError(f"it must say how data are read; it has {reading!r}")
    wrong = [name for name, holds in _reading_checks(model).items() if not holds(reading.get(name, ""))]
    if wrong:
        raise _ModelError(
            f"it must say how data are read; {wrong[0]} is {reading.get(wrong[0], 'missing')!r}"
        )


def _reading_checks(model: Model) -> dict[str, Callable[[Any], bool]]:
    """Return what must hold for each entry of ``reading``."""
    if model.problem.entries:
        return {"base": lambda base: is_whole(base, 0)}
    checks: dict[str, Callable[[Any], bool]] = {
        "names": lambda names: (
            names is None
            or (
                isinstance(names, list)
                and len(names) == len(model.x)
                and all(isinstance(n, str) for n in names)
            )
        ),
        "target": lambda name: name is None or (isinstance(name, str) and name != ""),
        "target_at": lambda at: at is None or is_whole(at, 0),
    }
    if model.problem.labels:
        checks["labels"] = lambda labels: (
            _is_list(labels, float | int) and len(labels) == 2 and all(map(math.isfinite, labels))
        )
    return checks


def _is_list(values: object, kind: type | UnionType) -> bool:
    return isinstance(values, list) and all(isinstance(value, kind) for value in values)


def model_name(agent: int) -> str:
    """Return the name of an agent's file.

    >>> model_name(7)
    'agent-007.npz'
    """
    return f"agent-{agent:03d}.npz"


def models_in(folder: Path) -> list[Path]:
    """Return the models in a folder, in the order of agents."""
    return sorted(folder.glob(_PATTERN), key=lambda file: (len(file.name), file.name))


def find_model(path: Path, agent: int | None) -> Path:
    """Return the file of a model: ``path``, or if that is a folder, an agent's file (default: 0) in it."""
    if not path.is_dir():
        if agent is not None:
            raise ValueError(f"--agent chooses a model in a folder; {path} is not a folder. Leave it out.")
        return path
    file = path / model_name(0 if agent is None else agent)
    if file.exists():
        return file
    there = [found.name for found in models_in(path)]
    if not there:
        raise ValueError(f"the folder must hold models, as dcgs fit writes them; {path} holds none.")
    raise ValueError(
        f"the folder must hold {file.name}; {path} holds {there[0]} to {there[-1]}. Choose with --agent."
    )
