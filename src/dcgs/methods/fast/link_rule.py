"""What takes less time over a link, by rules of known sizes, so that runs repeat to the bit.

One rule chooses the form of FastDCGS. An iteration over edges takes one round and an inner solve. An
iteration by sums takes as many rounds as a sum over the network, and two passes over the data; fewer of them
are needed. Another rule says whether sums are flooded, and a third the number of pieces in which they go up
and down the tree. No clock is read.
"""

from __future__ import annotations

import math

import numpy as np

from dcgs.facts import SizeFacts
from dcgs.link import SHORTEST_ROUND, Link
from dcgs.points import Point

# What an iteration by sums is worth, in iterations over edges. On Lassos of `dcgs bench rounds` it is 3 to 5,
# on the other instances with even columns 1.7 to 3.
_WORTH = 2.5
# Passes over an agent's data of an iteration, the bytes of memory that one core reads in a second, and the
# seconds that an iteration takes without data: for each form, measured on the instances of `dcgs bench time`.
_EDGE_PASSES, _SUM_PASSES = 6.0, 2.0
_MEMORY = 8e9
_EDGE_SECONDS, _SUM_SECONDS = 3e-4, 1e-4
# The bytes that a piece of a sum has at least.
_SMALLEST_PIECE = 1000

ASSUMED = Link(speed=12.5e6, latency=0.02)
"""The link for which sums are cut if the method is told none. Rounds are slow on it: few sums are cut."""


def prefers_sums(link: Link, sizes: SizeFacts, sum_rounds: int, unknowns: int) -> bool:
    """Return True if the form by sums is expected to take less time over such links.

    ``sum_rounds`` are the rounds of a sum over the network.
    """
    sending = link.waiting(8.0 * unknowns * sizes.most_neighbors)
    one_pass = 8.0 * sizes.most_entries / _MEMORY
    over_edges = link.latency + sending + _EDGE_PASSES * one_pass + _EDGE_SECONDS
    by_sums = sum_rounds * link.latency + sending + _SUM_PASSES * one_pass + _SUM_SECONDS
    return by_sums < _WORTH * over_edges


def prefers_flood(link: Link, height: int, diameter: int, agents: int, neighbors: int, nbytes: int) -> bool:
    """Return True if values of so many bytes are known to all sooner by flooding than along the tree.

    ``neighbors`` is the largest number of an agent, which sends each of all values to all but one of them.
    Along a tree of height H a value and an answer, which is mostly shorter, take 2 H rounds.
    """
    flooding = diameter * link.latency + link.waiting(nbytes * ((neighbors - 1) * agents + 1))
    return flooding < height * (2.0 * link.latency + link.waiting(nbytes))


def sparse_bytes(value: tuple[Point, ...]) -> int:
    """Return about how many bytes these arrays take in messages, which leave zeros out."""
    return sum(min(8 * array.size, 12 * int(np.count_nonzero(array))) for array in value)


def sum_pieces(link: Link, height: int, nbytes: int) -> int:
    """Return the number of pieces c in which a sum of so many bytes takes the least time over such links.

    Along a tree of height H it takes 2 (H + c − 1) rounds, each of τ + K/c seconds, if the latency is τ and
    all bytes take K seconds. The minimum is at c = √((H − 1) K/τ).
    """
    latency = max(link.latency, SHORTEST_ROUND)
    best = math.sqrt(max(0, height - 1) * link.waiting(nbytes) / latency)
    return max(1, min(round(best), nbytes // _SMALLEST_PIECE))
