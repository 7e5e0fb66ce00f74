"""The paper's claims of its section 5, each held against what was measured.

A claim is judged by the curve of DCGS with the theorem's parameters, since it is of those that the
paper speaks; what the best scaling reaches is said beside it. What DFW has after 800 rounds is the bar,
or what x⁰ has, if that is lower: DFW may be worse than doing nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from dcgs.experiments.study import Claim, Curve, Verdict
from dcgs.experiments.words import count, number, times

DFW_ROUNDS = 800
_ORDERS = 100.0  # "orders of magnitude", in the plural
_COMPARABLE = 3.0  # as many oracle calls as DFW, give or take this factor
_LOSSES = ("local_loss", "worst_loss")


@final
@dataclass(frozen=True)
class Promise:
    """What the paper says of an experiment, in short; ``rounds`` is what it gives DCGS against 800."""

    rounds: int
    of_rounds: str
    of_loss: str | None = None
    of_calls: str | None = None

    @property
    def enough(self) -> int:
        """The rounds to judge by: an iteration of DCGS is two, and the paper may have counted iterations."""
        return 2 * self.rounds

    def of(self, data: str) -> Promise:
        """Return the promise for other data, of which the paper says that the gap is similar."""
        said = (self.of_rounds, self.of_loss, self.of_calls)
        rounds, loss, calls = (text and f"Similar on {data}: {text}" for text in said)
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


def judge(promise: Promise, theorem: Curve, scaled: Curve | None, dfw: Curve) -> list[Claim]:
    """Return the claims of one experiment with their verdicts."""
    case = _Case(theorem, scaled, dfw)
    claims = [_rounds(promise, case)]
    if promise.of_loss is not None:
        claims.append(_loss(promise.of_loss, case))
    if promise.of_calls is not None:
        claims.append(_calls(promise.of_calls, case))
    return claims


def at(curve: Curve, across: str, limit: float, measure: str) -> float:
    """Return the measure at the last entry whose ``across`` is within the limit."""
    pairs = zip(curve.columns[across], curve.columns[measure], strict=True)
    return [value for x, value in pairs if x <= limit][-1]


def first(curve: Curve, across: str, measure: str, level: float) -> float | None:
    """Return where along ``across`` the measure of an iterate, not of x⁰, is first at most the level."""
    pairs = list(zip(curve.columns[across], curve.columns[measure], strict=True))
    return next((x for x, value in pairs[1:] if value <= level), None)


@final
@dataclass(frozen=True)
class _Case:
    theorem: Curve
    scaled: Curve | None
    dfw: Curve

    def reached(self, measure: str) -> float:
        """Return what DFW has after the rounds the paper gives it."""
        return at(self.dfw, "rounds", DFW_ROUNDS, measure)

    def bar(self, measure: str) -> float:
        """Return what DCGS has to get down to."""
        return min(self.reached(measure), self.dfw.columns[measure][0])

    def better(self, curve: Curve, measure: str) -> float:
        """Return how many times lower than DFW's the measure is at the end of the curve."""
        value = curve.columns[measure][-1]
        return self.reached(measure) / value if value > 0.0 else float("inf")

    def told(self) -> str:
        """Return what DFW has, in words."""
        rounds = count(min(DFW_ROUNDS, self.dfw.columns["rounds"][-1]))
        calls = count(at(self.dfw, "rounds", DFW_ROUNDS, "lmo_calls"))
        own, all_data = (number(self.reached(name)) for name in _LOSSES)
        start = number(self.dfw.columns["worst_loss"][0])
        return (
            f"After {rounds} rounds and {calls} oracle calls DFW has {own} on the paper's loss and "
            f"{all_data} on everyone's data (x⁰ = 0, which needs none, has {start} on both)."
        )


def _rounds(promise: Promise, case: _Case) -> Claim:
    own, all_data = (_within(case.theorem, "rounds", name, case, promise.enough) for name in _LOSSES)
    text = f"{case.told()} With the theorem's parameters DCGS is as good {_when(case.theorem, case)}."
    if case.scaled is not None:
        text += f" With the best scaling and the last iterate it is as good {_when(case.scaled, case)}."
    return Claim(promise.of_rounds, text, _verdict(own, all_data))


def _loss(said: str, case: _Case) -> Claim:
    text = f"{case.told()} With the theorem's parameters DCGS has {_end(case.theorem, case)}."
    if case.scaled is not None:
        text += f" With the best scaling and the last iterate it has {_end(case.scaled, case)}."
    own, all_data = (case.better(case.theorem, name) >= _ORDERS for name in _LOSSES)
    return Claim(said, text, _verdict(own, all_data))


def _calls(said: str, case: _Case) -> Claim:
    spent = at(case.dfw, "rounds", DFW_ROUNDS, "lmo_calls")
    own, all_data = (_within(case.theorem, "lmo_calls", name, case, _COMPARABLE * spent) for name in _LOSSES)
    text = (
        f"{case.told()} To be as good, DCGS needs {_needs(case.theorem, case)} with the theorem's parameters"
    )
    if case.scaled is not None:
        text += f"; {_needs(case.scaled, case)} with the best scaling and the last iterate"
    return Claim(said, text + ".", _verdict(own, all_data))


def _within(curve: Curve, across: str, measure: str, case: _Case, enough: float) -> bool | None:
    """Return whether the curve is down to the bar soon enough; None if it ended too early to tell."""
    reached = first(curve, across, measure, case.bar(measure))
    if reached is not None:
        return reached <= enough
    spent = curve.rounds if across == "rounds" else curve.lmo_calls
    return None if spent < enough else False


def _verdict(own: bool | None, all_data: bool | None) -> Verdict:
    """Return the verdict on what is true, false or unknown on the paper's loss and on everyone's data."""
    if all_data:
        return Verdict.HOLDS
    if own is False:
        return Verdict.FAILS
    return Verdict.PAPER_ONLY if own and all_data is False else Verdict.OPEN


def _when(curve: Curve, case: _Case) -> str:
    never = f"not within its {count(curve.rounds)} rounds"
    reached = [first(curve, "rounds", name, case.bar(name)) for name in _LOSSES]
    own, all_data = (never if rounds is None else f"after {count(rounds)} rounds" for rounds in reached)
    return f"on the paper's loss {own}, and on everyone's data {all_data}"


def _needs(curve: Curve, case: _Case) -> str:
    more = f"more than the {count(curve.lmo_calls)} calls it made"
    reached = [first(curve, "lmo_calls", name, case.bar(name)) for name in _LOSSES]
    own, all_data = (more if calls is None else f"{count(calls)} calls" for calls in reached)
    return f"{own} on the paper's loss and {all_data} on everyone's data"


def _end(curve: Curve, case: _Case) -> str:
    last = {name: column[-1] for name, column in curve.columns.items()}
    own, all_data = (f"{number(last[name])} ({_compared(case.better(curve, name))})" for name in _LOSSES)
    return f"{own} and {all_data} after {count(last['rounds'])} rounds and {count(last['lmo_calls'])} calls"


def _compared(better: float) -> str:
    """Return in words how a value compares with DFW's, from how many times lower it is."""
    if better in (0.0, float("inf")):
        return "one of the two is 0"
    if better >= 1.05:
        return f"{times(better)} lower"
    return "about the same" if better > 0.95 else f"{times(1.0 / better)} as high"
