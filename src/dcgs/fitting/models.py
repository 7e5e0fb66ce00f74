"""A model: the result of one agent, and the file it is saved in (NumPy's npz, nothing pickled)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.datasets.store import unreadable
from dcgs.fitting.problems import Problem, problem_named

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
            with path.open("rb") as file, np.load(file, allow_pickle=False) as npz:
                x, meta = npz["x"], json.loads(str(npz["meta"]))
            version = meta["format"]
            if version == FORMAT:
                if x.dtype != np.float64 or list(x.shape) != meta["shape"]:
                    raise ValueError("x does not have the shape in meta")
                return cls(x, problem_named(meta["problem"]), meta["reading"], meta["about"])
        except OSError as error:
            raise unreadable(path, error) from error
        except Exception as error:  # damage can surface in the zip, the arrays, the JSON or the names
            raise ValueError(
                f"{path} must be a model written by dcgs fit; it cannot be read as one. Fit it again."
            ) from error
        raise ValueError(
            f"a model must be of format {FORMAT}; {path} has {version!r}. "
            "Read it with the version of dcgs that wrote it."
        )


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
