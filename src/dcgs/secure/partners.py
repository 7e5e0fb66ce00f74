"""Who shares a mask with whom, and what colluding agents learn.

Up to 50 agents, every agent shares a mask with every other. Above, the partners of an agent are its
neighbors in the union of r random Hamiltonian cycles, which all agents derive from a public seed: at most 2 r
partners, fewer where cycles have an edge in common. The graph is connected, whatever the seed.

What colluders learn. Let C be the colluding agents, H the others, and G[H] the graph of partners among the
latter. Colluders know all masks with an end in C, and subtract them. What remains at an agent i of H is
its value plus Σⱼ ± pⱼ over its edges in G[H], with independent uniform p for each edge. The incidence matrix
of a connected graph has, mod 2⁶⁴ too, the left kernel {multiples of (1, …, 1)}. So from the messages of a
connected component of G[H] the colluders learn the sum over this component, and nothing else: all values
with the same sum are equally likely. If G[H] is connected, they learn the total over H, which the total over
all agents tells them anyway. With all pairs as partners G[H] is connected for every C.

How r is chosen. Let c = |C|, and let S be a set of s agents of H, T the t others. In a random cycle no agent
of S is next to one of T with the probability

    p(s) = (c − 1)! s! t! / (m − 1)! · Σₐ binom(c, a) binom(s − 1, a − 1) binom(c − a + t − 1, t):

the c colluders leave c gaps, a of which S fills, and T some of the others. Cycles are independent, so that
G[H] is disconnected with a probability of at most Σ_{s ≤ |H|/2} binom(|H|, s) p(s)^r. r is the smallest
number for which this is at most 2⁻⁴⁰ if half of all agents collude. The bound is for colluders who do not
depend on the seed. The graph is public: who can choose whom to corrupt after it is known needs only the
partners of one agent.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from itertools import count

import numpy as np
from scipy.special import gammaln, logsumexp

ALL_PAIRS = 50
"""Up to this number of agents all pairs share a mask."""
FAILURE = 2.0**-40
"""The probability with which colluding agents may learn more than the total over the others."""


@lru_cache(maxsize=8)
def partner_graph(agents: int, seed: bytes) -> tuple[tuple[int, ...], ...]:
    """Return the partners of every agent, in increasing order.

    >>> partner_graph(4, b"public")
    ((1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2))
    """
    if agents <= ALL_PAIRS:
        return tuple(tuple(j for j in range(agents) if j != i) for i in range(agents))
    partners: list[set[int]] = [set() for _ in range(agents)]
    for cycle in range(cycles_needed(agents)):
        order = sorted(range(agents), key=lambda i: _rank(seed, cycle, i))
        for i, j in zip(order, [*order[1:], order[0]], strict=True):
            partners[i].add(j)
            partners[j].add(i)
    return tuple(tuple(sorted(near)) for near in partners)


def _rank(seed: bytes, cycle: int, agent: int) -> bytes:
    """Return a random number; the order of agents by it is a random cycle, on every machine the same."""
    return sha256(seed + cycle.to_bytes(8, "little") + agent.to_bytes(8, "little")).digest()


@lru_cache(maxsize=8)
def cycles_needed(agents: int) -> int:
    """Return the smallest r with which half of all agents may collude."""
    return next(r for r in count(1) if disconnection_bound(agents, agents // 2, r) <= FAILURE)


def disconnection_bound(agents: int, colluders: int, cycles: int) -> float:
    """Return a bound of the probability that the other agents are not connected by masks.

    >>> disconnection_bound(100, 1, cycles=1)
    0.0
    """
    honest = agents - colluders
    sizes = np.arange(1, honest // 2 + 1)
    if colluders < 2 or len(sizes) == 0:
        return 0.0
    terms = _log_choose(honest, sizes) + cycles * _log_separation(agents, colluders)
    return float(np.exp(min(0.0, float(logsumexp(terms)))))


@lru_cache(maxsize=8)
def _log_separation(agents: int, colluders: int) -> np.ndarray:
    """Return log p(s) for s = 1, …, |H|/2."""
    honest, c = agents - colluders, colluders
    probabilities = []
    for s in range(1, honest // 2 + 1):
        t, a = honest - s, np.arange(1, min(s, c - 1) + 1)
        ways = _log_choose(c, a) + _log_choose(s - 1, a - 1) + _log_choose(c - a + t - 1, t)
        orders = gammaln(c) + gammaln(s + 1) + gammaln(t + 1) - gammaln(agents)
        probabilities.append(float(logsumexp(ways)) + float(orders))
    return np.array(probabilities)


def _log_choose(n: np.ndarray | int, k: np.ndarray | int) -> np.ndarray:
    chosen: np.ndarray = gammaln(np.add(n, 1)) - gammaln(np.add(k, 1)) - gammaln(np.subtract(n, k) + 1)
    return chosen
