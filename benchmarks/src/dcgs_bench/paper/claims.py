"""Verdicts on the claims of the paper's section 5.

A claim is judged by the curve of DCGS with the theorem's parameters, which the paper uses. The reference is
DFW's loss after 800 rounds, or that of x⁰ if it is lower.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator
from threadpoolctl import threadpool_info

from dcgs.link import Link
from dcgs.report.numbers import count, share, short_duration, short_number, times
from dcgs.sets import NuclearNormBall
from dcgs_bench.paper.results import Claim, Curve, OracleCost, Verdict

DFW_ROUNDS = 800
_ORDERS = 100.0  # "orders of magnitude", in the plural
_COMPARABLE = 3.0  # as many oracle calls as DFW, give or take this factor
_LOSSES = ("local_loss", "worst_loss")


@final
@dataclass(frozen=True)
class Promise:
    """What the paper claims of an experiment; ``rounds`` are those of DCGS, against 800 of DFW."""

    rounds: int
    of_rounds: str
    of_loss: str | None = None
    of_calls: str | None = None

    @property
    def enough(self) -> int:
        """The rounds to judge by: an iteration of DCGS is two, and the paper may have counted iterations."""
        return 2 * self.rounds

    def of(self, data: str) -> Promise:
        """Return the same claims for other data, on which the paper calls the gap similar."""
        texts = (self.of_rounds, self.of_loss, self.of_calls)
        rounds, loss, calls = (text and f"Similar on {data}: {text}" for text in texts)
        return replace(self, of_rounds=rounds or "", of_loss=loss, of_calls=calls)


_LASSO = Promise(
    rounds=3,
    of_rounds="DFW takes more than 800 rounds of communication where DCGS takes only 3.",
    of_loss="With a moderate number of oracle calls DCGS has a loss by orders of magnitude better than "
    "DFW's.",
)
_COMPLETION = Promise(
    rounds=5,
    of_rounds="DFW takes 800 rounds of communication where DCGS takes 5.",
    of_calls="DCGS and DFW need comparable numbers of oracle calls to a moderate precision.",
)
PROMISES = {
    "lasso-synthetic": _LASSO,
    "lasso-e2006": _LASSO.of("E2006-tfidf"),
    "lasso-e2006-lookalike": _LASSO.of("the real E2006-tfidf"),
    "completion-synthetic": _COMPLETION,
    "completion-movielens": _COMPLETION.of("MovieLens 100K"),
}


def judge(promise: Promise, theorem: Curve, dfw: Curve) -> list[Claim]:
    """Return the claims of one experiment with their verdicts."""
    pair = _Pair(theorem, dfw)
    claims = [
        Claim(
            promise.of_rounds,
            f"{pair.describe_dfw()} With the theorem's parameters DCGS is as good {pair.when()}.",
            _verdict(*(pair.within("rounds", name, promise.enough) for name in _LOSSES)),
        )
    ]
    if promise.of_loss is not None:
        text = f"{pair.describe_dfw()} With the theorem's parameters DCGS has {pair.end()}."
        better = (pair.better(name) >= _ORDERS for name in _LOSSES)
        claims.append(Claim(promise.of_loss, text, _verdict(*better)))
    if promise.of_calls is not None:
        text = f"{pair.describe_dfw()} To be as good, DCGS needs {pair.needs()}."
        enough = _COMPARABLE * at(dfw, "rounds", DFW_ROUNDS, "lmo_calls")
        within = (pair.within("lmo_calls", name, enough) for name in _LOSSES)
        claims.append(Claim(promise.of_calls, text, _verdict(*within)))
    return claims


def at(curve: Curve, across: str, limit: float, measure: str) -> float:
    """Return the measure at the last recorded point whose ``across`` is within the limit."""
    pairs = zip(curve.columns[across], curve.columns[measure], strict=True)
    return [value for x, value in pairs if x <= limit][-1]


def first(curve: Curve, across: str, measure: str, level: float) -> float | None:
    """Return the ``across`` of the first iterate, x⁰ excluded, whose measure is at most the level."""
    pairs = list(zip(curve.columns[across], curve.columns[measure], strict=True))
    return next((x for x, value in pairs[1:] if value <= level), None)


@final
@dataclass(frozen=True)
class _Pair:
    """The curves of DCGS with the theorem's parameters and of DFW."""

    theorem: Curve
    dfw: Curve

    def reached(self, measure: str) -> float:
        """Return DFW's loss after the rounds that the paper gives it."""
        return at(self.dfw, "rounds", DFW_ROUNDS, measure)

    def reference(self, measure: str) -> float:
        """Return the loss that DCGS must reach."""
        return min(self.reached(measure), self.dfw.columns[measure][0])

    def better(self, measure: str) -> float:
        """Return how many times lower than DFW's the measure is at the end of DCGS."""
        value = self.theorem.columns[measure][-1]
        return self.reached(measure) / value if value > 0.0 else float("inf")

    def within(self, across: str, measure: str, enough: float) -> bool | None:
        """Return whether DCGS reaches the reference within the limit; None if it ended before both."""
        reached = first(self.theorem, across, measure, self.reference(measure))
        if reached is not None:
            return reached <= enough
        spent = self.theorem.run.rounds if across == "rounds" else self.theorem.run.lmo_calls
        return None if spent < enough else False

    def describe_dfw(self) -> str:
        rounds = count(min(DFW_ROUNDS, self.dfw.columns["rounds"][-1]))
        calls = count(at(self.dfw, "rounds", DFW_ROUNDS, "lmo_calls"))
        local, all_data = (short_number(self.reached(name)) for name in _LOSSES)
        start = short_number(self.dfw.columns["worst_loss"][0])
        return (
            f"After {rounds} rounds and {calls} oracle calls DFW has {local} on the paper's loss and "
            f"{all_data} on everyone's data (x⁰ = 0, which needs none, has {start} on both)."
        )

    def when(self) -> str:
        never = f"not within its {count(self.theorem.run.rounds)} rounds"
        local, all_data = self._reached("rounds", "after {} rounds", never)
        return f"on the paper's loss {local}, and on everyone's data {all_data}"

    def needs(self) -> str:
        more = f"more than the {count(self.theorem.run.lmo_calls)} calls it made"
        local, all_data = self._reached("lmo_calls", "{} calls", more)
        return f"{local} on the paper's loss and {all_data} on everyone's data"

    def end(self) -> str:
        last = {name: column[-1] for name, column in self.theorem.columns.items()}
        local, all_data = (f"{short_number(last[name])} ({_compared(self.better(name))})" for name in _LOSSES)
        spent = f"{count(last['rounds'])} rounds and {count(last['lmo_calls'])} calls"
        return f"{local} and {all_data} after {spent}"

    def _reached(self, across: str, form: str, never: str) -> list[str]:
        """Return for each loss where along ``across`` DCGS reaches the reference."""
        reached_at = [first(self.theorem, across, name, self.reference(name)) for name in _LOSSES]
        return [never if reached is None else form.format(count(reached)) for reached in reached_at]


def _verdict(local: bool | None, all_data: bool | None) -> Verdict:
    """Return the verdict from what holds, or is unknown, on the paper's loss and on everyone's data."""
    if all_data:
        return Verdict.HOLDS
    if local is False:
        return Verdict.FAILS
    return Verdict.PAPER_ONLY if local and all_data is False else Verdict.OPEN


def _compared(better: float) -> str:
    """Return in words how a value compares with DFW's, from how many times lower it is."""
    if better in (0.0, float("inf")):
        return "one of the two is 0"
    if better >= 1.05:
        return f"{times(better)} lower"
    return "about the same" if better > 0.95 else f"{times(1.0 / better)} as high"


def meaning(promise: Promise, verdict: Verdict, theorem: Curve, dfw: Curve) -> str:
    """Return what follows from the verdict on the rounds, and a warning if DFW is hardly better than x⁰."""
    start, left = theorem.columns["worst_loss"][0], at(theorem, "rounds", promise.enough, "worst_loss")
    text = {
        Verdict.HOLDS: "DCGS reaches the loss of DFW on everyone's data in far fewer rounds.",
        Verdict.FAILS: "With the theorem's parameters DCGS does not reach the loss of DFW in so few rounds.",
        Verdict.OPEN: "These runs are too short for a verdict.",
        Verdict.PAPER_ONLY: "The paper's figure is correct for each agent's loss on its own data. It shows "
        f"little about the loss on everyone's data: after {promise.enough} rounds the worst agent's model "
        f"still has {share(left / start)} of the loss of x⁰ = 0 there.",
    }[verdict]
    reached = at(dfw, "rounds", DFW_ROUNDS, "worst_loss")
    if reached < 0.5 * start:
        return text
    return (
        f"{text} The reference is weak: on everyone's data DFW has {short_number(reached)} after its rounds, "
        f"and x⁰ = 0, which needs none, has {short_number(start)}."
    )


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
