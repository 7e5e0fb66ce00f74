"""The paper's cost claim, with the oracle measured at that size.

The paper: a 10⁴ × 10⁴ matrix takes 800 MB, which is 80 seconds at 10 MB/s, while a call of the oracle
takes less than 2, so that methods such as DFW wait for over 97% of their time.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator
from threadpoolctl import threadpool_info

from dcgs.link import Link
from dcgs.report.numbers import share, short_duration
from dcgs.sets import NuclearNormBall
from dcgs_bench.paper.results import Claim, OracleCost, Verdict

PAPER_LINK = Link(10e6)
PAPER_SIDE = 10_000
_SHARE = 0.97
_ORACLE = 2.0


def measure(side: int, seed: int) -> dict[str, Any]:
    """Time the oracle of the nuclear-norm ball at side × side, on the gradient of a completion.

    One entry in a hundred of the gradient is nonzero; it is of a matrix of rank 5 with noise. The first two
    calls get a dense array, as agents hold points here; the third gets a sparse one.
    """
    rng = np.random.default_rng(seed)
    entries = side * side // 100
    rows, cols = (rng.integers(side, size=entries) for _ in range(2))
    U, V = (rng.standard_normal((side, 5)) for _ in range(2))
    values = np.einsum("ij,ij->i", U[rows], V[cols]) + rng.standard_normal(entries)
    gradient = sparse.csr_array((values, (rows, cols)), shape=(side, side))
    dense = gradient.toarray()
    calls = [
        _call("dense, to 1e-8 (as in all runs here)", dense, 1e-8),
        _call("dense, to 1e-3", dense, 1e-3),
        _call("zeros left out, to 1e-8", gradient, 1e-8),
    ]
    threads = max((library["num_threads"] for library in threadpool_info()), default=1)
    return {"side": side, "threads": threads, "calls": calls}


def judged(measured: dict[str, Any]) -> OracleCost:
    """Return the measured calls and the verdict on the paper's claim.

    The claim is about DFW on a completion, whose gradients are sparse. DFW sends two messages a call.
    The paper counts one, which is the harder test.
    """
    side = measured["side"]
    round_seconds = PAPER_LINK.waiting(8.0 * side**2)
    rows = [
        {
            **call,
            "round_seconds": round_seconds,
            "waiting_share": round_seconds / (round_seconds + call["seconds"]),
            "waiting_share_dfw": 2.0 * round_seconds / (2.0 * round_seconds + call["seconds"]),
        }
        for call in measured["calls"]
    ]
    dense, loose, sparing = rows
    dense_time, loose_time = (short_duration(row["seconds"]) for row in (dense, loose))
    holds = sparing["seconds"] < _ORACLE and sparing["waiting_share"] > _SHARE
    claim = Claim(
        "A 10⁴ × 10⁴ matrix is 800 MB, 80 s at 10 MB/s; an oracle call takes less than 2 s; so DFW spends "
        "over 97% of its time waiting.",
        f"At {side} × {side} a message is {8 * side**2 / 1e6:,.0f} MB, {short_duration(round_seconds)} at "
        f"{PAPER_LINK}. On {measured['threads']} threads, an oracle that leaves out the zeros of the "
        f"gradient took {short_duration(sparing['seconds'])}: with one message a call, as in the paper, "
        f"{share(sparing['waiting_share'])} of the time is spent waiting. On a dense matrix, as agents hold "
        f"theirs here, it took {dense_time} ({loose_time} to a precision of 1e-3): "
        f"{share(dense['waiting_share'])}, or {share(dense['waiting_share_dfw'])} with the two "
        "messages that DFW sends a call.",
        (Verdict.HOLDS if holds else Verdict.FAILS) if side == PAPER_SIDE else Verdict.OPEN,
    )
    return OracleCost(side, rows, claim)


def _call(case: str, G: Any, tolerance: float) -> dict[str, Any]:
    """Time one call of the oracle."""
    X = NuclearNormBall(G.shape, 1e4, tolerance)
    start = time.perf_counter()
    X.lmo(aslinearoperator(G))
    return {"case": case, "seconds": time.perf_counter() - start}
