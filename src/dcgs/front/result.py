"""What a run gives back, and the one file it is kept in."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.front.history import History
from dcgs.front.stopping import Status
from dcgs.points import Point

_FORMAT = 1


@final
@dataclass(frozen=True, eq=False)
class Result:
    """The agents' answers, why the run ended, what it took and how it went.

    ``x`` is the network average of ``agents``, shape (m, *X.shape). ``messages``, ``bytes`` (sent)
    and ``lmo_calls`` have one entry per agent. ``notes`` say what a user should know before
    trusting the numbers. ``about`` says how to repeat the run: method, seed, versions.
    """

    x: Point
    agents: NDArray[np.float64]
    status: Status
    iterations: int
    rounds: int
    messages: NDArray[np.int64]
    bytes: NDArray[np.int64]
    lmo_calls: NDArray[np.int64]
    seconds: float
    history: History
    notes: tuple[str, ...]
    about: dict[str, Any]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the result to one file (NumPy's npz, nothing pickled) and return its path.

        The file appears whole or not at all.
        """
        target = Path(path)
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {f"history.{name}": column for name, column in self.history.columns().items()}
        facts = {name: getattr(self, name) for name in _FACTS}
        meta = {"format": _FORMAT, "status": self.status.name, **facts}
        part = target.with_name(target.name + ".part")
        with part.open("wb") as file:
            np.savez_compressed(file, meta=np.array(json.dumps(meta)), **arrays)
        os.replace(part, target)
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Read a result written by :meth:`save`."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            meta = json.loads(str(arrays.pop("meta")))
        except (zipfile.BadZipFile, ValueError, KeyError, EOFError) as error:
            raise ValueError(
                f"{os.fspath(path)!r} must be a result written by Result.save; it cannot be read ({error})."
            ) from error
        if meta.get("format") != _FORMAT:
            raise ValueError(
                f"a result must be of format {_FORMAT}; {os.fspath(path)!r} has {meta.get('format')!r}. "
                "Read it with the version of dcgs that wrote it."
            )
        history = History(**{field.name: arrays.pop(f"history.{field.name}") for field in fields(History)})
        facts = {name: meta[name] for name in _FACTS}
        facts["notes"] = tuple(facts["notes"])
        return cls(status=Status[meta["status"]], history=history, **facts, **arrays)


_ARRAYS = ("x", "agents", "messages", "bytes", "lmo_calls")
_FACTS = ("iterations", "rounds", "seconds", "notes", "about")
