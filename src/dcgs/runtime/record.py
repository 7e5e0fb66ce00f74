"""The record of an asynchronous run: which message each agent used in which step."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.files import atomic_write
from dcgs.npz import read_npz
from dcgs.validation import PATH


@final
@dataclass(eq=False)
class Record:
    """For every step of an agent the neighbors whose message it used first then, and their steps.

    ``rows`` are (agent, step, neighbor, step of the neighbor); ``steps`` counts the steps of each agent. An
    agent sends a message after each step; step 0 is its start.
    """

    rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    steps: dict[int, int] = field(default_factory=dict)

    def add(self, agent: int, used: Mapping[int, int]) -> None:
        """Note that the next step of an agent used these messages, by neighbor and its step."""
        step = self.steps.get(agent, 0) + 1
        self.steps[agent] = step
        self.rows += [(agent, step, j, theirs) for j, theirs in sorted(used.items())]

    def arrays(self) -> list[NDArray[np.int64]]:
        """Return the record as two arrays."""
        rows = np.array(self.rows, dtype=np.int64).reshape(-1, 4)
        return [rows, np.array(sorted(self.steps.items()), dtype=np.int64).reshape(-1, 2)]

    @classmethod
    def joined(cls, arrays: Iterable[NDArray[Any]]) -> Record:
        """Return the record of all agents, from the arrays of several processes."""
        record, each = cls(), list(arrays)
        for rows, steps in zip(each[::2], each[1::2], strict=True):
            record.rows += [(a, b, c, d) for a, b, c, d in rows.tolist()]
            record.steps |= {int(i): int(count) for i, count in steps.tolist()}
        return record

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the record to a file (NumPy's npz), and return its path."""
        rows, steps = self.arrays()
        return atomic_write(
            PATH(path, "path"), lambda stream: np.savez_compressed(stream, rows=rows, steps=steps)
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Record:
        """Return the record that :meth:`save` wrote."""
        return read_npz(
            PATH(path, "path"),
            "the record of an asynchronous run",
            lambda npz: cls.joined([npz.array("rows"), npz.array("steps")]),
        )
