"""Print how long one of ten agents takes for its part in a secure sum of 10,000 numbers.

Run it with ``.venv/bin/python tests/secure_speed.py``. Times are medians of 200 repetitions.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from dcgs.secure import sum as secure_sum
from dcgs.secure.fixed_point import decode, encode
from dcgs.secure.keys import KeyPair, agree
from dcgs.secure.masks import PairwiseMasks

AGENTS, NUMBERS, EXPONENT = 10, 10_000, 40


def milliseconds(step: Callable[[], object]) -> float:
    """Return the median time of a step."""
    times = []
    for _ in range(200):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def main() -> None:
    """Print one line for each step."""
    pairs = [KeyPair.generate() for _ in range(AGENTS)]
    publics = [pair.public for pair in pairs]
    masks = PairwiseMasks(agree(pairs[0], 0, publics, "speed"))
    values = np.random.default_rng(0).standard_normal(NUMBERS)
    words = encode(values, EXPONENT, AGENTS)
    assert words is not None
    weights = np.random.Philox(key=0).random_raw(NUMBERS)
    steps: dict[str, Callable[[], object]] = {
        "keys of one agent": lambda: agree(pairs[0], 0, publics, "speed"),
        "encode": lambda: encode(values, EXPONENT, AGENTS),
        "check": lambda: secure_sum._check(words, weights),
        "mask and record": lambda: masks.seal(words, "speed"),
        "decode": lambda: decode(words, EXPONENT),
    }
    print(f"{NUMBERS} numbers, {AGENTS} agents")
    for name, step in steps.items():
        print(f"{name:20} {milliseconds(step):6.2f} ms")


if __name__ == "__main__":
    main()
