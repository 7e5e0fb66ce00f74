"""Where the agents' data are: a file for each, or one file that is cut into parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar, final

import numpy as np

from dcgs.datasets import DataNotFoundError
from dcgs.datasets.base import cuts
from dcgs.fitting.data import Entries, Places, Samples

_PLACEHOLDER = re.compile(r"\{(?:rank|agent)(?::0?(\d+)d?)?\}")

Split = Literal["even", "random", "sorted"]
Data = TypeVar("Data", Samples, Entries)


@final
@dataclass(frozen=True)
class Sites:
    """The user's ``--data``: a path with ``{agent}`` (or ``{rank}``) in it, or one path for all agents.

    >>> Sites("site-{agent:02d}.npz").file(3)
    PosixPath('site-03.npz')
    """

    data: str
    split: Split = "even"
    seed: int = 0

    @property
    def apart(self) -> bool:
        """Whether every agent has a file of its own."""
        return _PLACEHOLDER.search(self.data) is not None

    def file(self, agent: int) -> Path:
        """Return the file with this agent's data."""
        return Path(at_agent(self.data, agent)).expanduser()

    def found(self) -> int:
        """Return how many agents have files here, counted from agent 0 on."""
        count = 0
        while self.file(count).exists():
            count += 1
        if count == 0:
            started_at_1 = (
                f" There is {self.file(1)}: agents are counted from 0." if self.file(1).exists() else ""
            )
            raise DataNotFoundError(
                f"{self.data} must be a file for each agent; there is no {self.file(0)}.{started_at_1}"
            )
        return count

    def check(self, agents: int) -> None:
        """Raise if files beside those of the agents would be left unread."""
        if self.apart and self.file(agents).exists():
            raise ValueError(
                f"there must be as many files {self.data} as agents; there are {agents} agents and a file "
                f"{self.file(agents)}. Give --agents {self.found()}, or move the file away."
            )

    def parts(self, agents: int, hosted: Sequence[int], read: Callable[[Path, int], Data]) -> dict[int, Data]:
        """Return the data of the agents hosted here; of others nothing is kept.

        One file for all is read as a whole, as no format tells where an agent's rows start.
        """
        if self.apart:
            return {i: self._own(i, read) for i in hosted}
        whole = read(self.file(0), 0)
        order = self._order(whole)
        edges = cuts(len(whole), agents)
        parts = {
            i: whole.take(slice(*edges[i]) if order is None else order[slice(*edges[i])]) for i in hosted
        }
        # A slice of a dense array would keep all of it in memory.
        return parts if len(parts) == agents else {i: part.copied() for i, part in parts.items()}

    def _own(self, agent: int, read: Callable[[Path, int], Data]) -> Data:
        try:
            return read(self.file(agent), agent)
        except Exception as error:
            error.add_note(f"raised in agent {agent}")
            raise

    def _order(self, whole: Samples | Entries) -> Places | None:
        """Return the order in which to cut; None is the order of the file."""
        match self.split:
            case "random":
                return np.random.default_rng(self.seed).permutation(len(whole))
            case "sorted":
                return np.argsort(whole.key(), kind="stable")
            case _:
                return None


def at_agent(path: str, agent: int) -> str:
    """Return a path with the number of an agent for ``{agent}``, ``{rank}``, ``{agent:03d}``.

    >>> at_agent("site-{rank}/y.npy", 2)
    'site-2/y.npy'
    """
    return _PLACEHOLDER.sub(lambda found: str(agent).zfill(int(found[1] or 0)), path)
