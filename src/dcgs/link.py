"""The link model: the time of a run with one machine per agent and links of a given speed.

By rules of known sizes, sums are flooded or not, and go up and down the tree in pieces, as takes less time
over the links. No clock is read, so that runs repeat to the bit.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TypeVar, final

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", float, NDArray[np.float64])

_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_SPEED = re.compile(r"\s*([0-9.eE+]+)\s*([kKMG]?)(B|bit)/s\s*(?:,\s*([0-9.eE+-]+)\s*(s|ms|us)\s*)?")
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
# The bytes that a piece of a sum has at least, and the time that fewer pieces may take, beside the least.
_SMALLEST_PIECE, _LONGER = 1000, 1.05


@final
@dataclass(frozen=True)
class Link:
    """A link between two agents that carries ``speed`` bytes a second, in both directions at once.

    Every edge of the graph has its own link, so a round takes as long as its largest message. In the same
    way the paper counts 80 seconds for 800 MB at 10 MB/s. ``latency`` is the seconds of a round without
    data.
    """

    speed: float = 10e6
    latency: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 < self.speed < float("inf"):
            raise ValueError(f"the speed of a link must be positive and finite; got {self.speed!r}.")
        if not 0.0 <= self.latency < float("inf"):
            raise ValueError(f"the latency of a link must be finite and at least 0; got {self.latency!r}.")

    @classmethod
    def parse(cls, text: str) -> Link:
        """Return the link that text such as ``10MB/s``, ``100Mbit/s`` or ``10MB/s,20ms`` describes.

        >>> Link.parse("100Mbit/s").speed, Link.parse("10MB/s,20ms").latency
        (12500000.0, 0.02)
        """
        match = _SPEED.fullmatch(text)
        try:
            if match is None:
                raise ValueError
            number, prefix, unit, latency, scale = match.groups()
            speed = float(number) * _UNITS[prefix.replace("K", "k")] * (1.0 if unit == "B" else 0.125)
            return cls(speed, float(latency) * _TIMES[scale] if latency else 0.0)
        except ValueError as error:
            raise ValueError(
                "a link must be a positive speed such as 10MB/s, 1GB/s or 100Mbit/s, and may have a latency "
                f"of at least 0, as in 10MB/s,20ms; got {text!r}."
            ) from error

    def __str__(self) -> str:
        for prefix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
            if self.speed >= scale:
                return f"{self.speed / scale:g} {prefix}B/s"
        return f"{self.speed:g} B/s"

    def waiting(self, carried: Number) -> Number:
        """Return the seconds that ``carried`` bytes take over one link."""
        return carried / self.speed

    def seconds(self, carried: float, rounds: int) -> float:
        """Return the seconds of so many rounds, in which ``carried`` bytes cross one link.

        >>> Link(10e6, latency=0.02).seconds(1e6, 10)
        0.30000000000000004
        """
        return self.waiting(carried) + rounds * self.latency


SHORTEST_ROUND = 1e-4
"""The least seconds of a round: an agent computes as long."""
LINKS = {
    "lan": Link(125e6, 0.2e-3),
    "paper": Link(10e6, 1e-3),
    "wan": Link(12.5e6, 20e-3),
}
"""Three links: 1 Gbit/s and 0.2 ms a round, the paper's 10 MB/s and 1 ms, 100 Mbit/s and 20 ms."""

ASSUMED = Link(speed=12.5e6, latency=0.02)
"""The link for which sums are cut if the method is told none. Rounds are slow on it: few sums are cut."""


def prefers_flood(link: Link, height: int, diameter: int, agents: int, neighbors: int, nbytes: int) -> bool:
    """Return True if values of so many bytes are known to all sooner by flooding than along the tree.

    ``neighbors`` is the largest number of an agent, which sends each of all values to all but one of them.
    Along a tree of height H a value and an answer, which is mostly shorter, take 2 H rounds.
    """
    flooding = diameter * link.latency + link.waiting(nbytes * ((neighbors - 1) * agents + 1))
    return flooding < height * (2.0 * link.latency + link.waiting(nbytes))


def sparse_bytes(value: tuple[NDArray[np.float64], ...]) -> int:
    """Return about how many bytes these arrays take in messages, which leave zeros out."""
    return sum(min(8 * array.size, 12 * int(np.count_nonzero(array))) for array in value)


def sum_pieces(link: Link, height: int, nbytes: int) -> int:
    """Return the number of pieces c in which a sum of so many bytes takes about the least time.

    Along a tree of height H it takes 2 (H + c − 1) rounds, each of τ + K/c seconds, if the latency is τ and
    all bytes take K seconds. The minimum is at c = √((H − 1) K/τ). It is the smallest c with at most 1.05
    times the least time, as further rounds take more than their latency.
    """
    latency, whole = max(link.latency, SHORTEST_ROUND), link.waiting(nbytes)
    levels = max(0, height - 1) * latency
    best = math.sqrt(levels * whole) / latency
    # (H − 1) τ + K + c τ + (H − 1) K/c is half of the time, and (√((H − 1) τ) + √K)² its minimum.
    spare = _LONGER * (math.sqrt(levels) + math.sqrt(whole)) ** 2 - levels - whole
    fewest = (spare - math.sqrt(spare**2 - 4.0 * levels * whole)) / (2.0 * latency)
    return max(1, min(math.ceil(fewest), round(best), nbytes // _SMALLEST_PIECE))
