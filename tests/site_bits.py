"""Random runs between sites over HTTPS, compared with those of one process: ``site_bits.py FIRST END``.

Graphs, methods, problems and kinds of edges are random; every third run is masked. Sites are threads of this
process. Models, rounds, bytes and oracle calls must be the same, to the bit.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from site_cases import site_case
from site_runs import make_sites


def differences(number: int, folder: Path) -> list[str]:
    """Run a case in one process and between sites; return what differs."""
    case = site_case(number)
    expected = case.run()
    sites = make_sites(folder, case.graph, case.listening)
    with nullcontext() if sites.study.relay is None else sites.relay():
        results = sites.run(case.run)
    found = []
    if not np.array_equal(np.concatenate([result.agents for result in results]), expected.agents):
        found.append("models")
    names = ("rounds", "bytes", "messages", "lmo_calls", "projections", "status")
    return found + [
        name
        for name in names
        if not all(np.array_equal(getattr(r, name), getattr(expected, name)) for r in results)
    ]


def main(first: int, end: int) -> int:
    """Print a line for each case; return 1 if one differs."""
    bad = 0
    for number in range(first, end):
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            found = differences(number, Path(folder))
        bad += bool(found)
        seconds = time.monotonic() - start
        print(f"{number}: {', '.join(found) or 'equal'}, {seconds:.1f} s: {site_case(number)}", flush=True)
    print(f"{end - first} runs, {bad} differ")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
