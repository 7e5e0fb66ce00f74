"""Verdicts on the claims of the paper's section 5.

A claim is judged by the curve of DCGS with the theorem's parameters, which the paper uses. The result of the
best scaling is reported, too. The reference is DFW's loss after 800 rounds, or that of x⁰ if it is lower.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from dcgs.experiments.numbers import count, short_number, times
from dcgs.experiments.results import Claim, Curve, Verdict

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
    """Return the measure at the last recorded point whose ``across`` is within the limit."""
    pairs = zip(curve.columns[across], curve.columns[measure], strict=True)
    return [value for x, value in pairs if x <= limit][-1]


def first(curve: Curve, across: str, measure: str, level: float) -> float | None:
    """Return the ``across`` of the first iterate, x⁰ excluded, whose measure is at most the level."""
    pairs = list(zip(curve.columns[across], curve.columns[measure], strict=True))
    return next((x for x, value in pairs[1:] if value <= level), None)


@final
@dataclass(frozen=True)
class _Case:
    theorem: Curve
    scaled: Curve | None
    dfw: Curve

    def reached(self, measure: str) -> float:
        """Return DFW's loss after the rounds that the paper gives it."""
        return at(self.dfw, "rounds", DFW_ROUNDS, measure)

    def reference(self, measure: str) -> float:
        """Return the loss that DCGS must reach."""
        return min(self.reached(measure), self.dfw.columns[measure][0])

    def better(self, curve: Curve, measure: str) -> float:
        """Return how many times lower than DFW's the measure is at the end of the curve."""
        value = curve.columns[measure][-1]
        return self.reached(measure) / value if value > 0.0 else float("inf")

    def describe_dfw(self) -> str:
        """Return DFW's losses as a sentence."""
        rounds = count(min(DFW_ROUNDS, self.dfw.columns["rounds"][-1]))
        calls = count(at(self.dfw, "rounds", DFW_ROUNDS, "lmo_calls"))
        own, all_data = (short_number(self.reached(name)) for name in _LOSSES)
        start = short_number(self.dfw.columns["worst_loss"][0])
        return (
            f"After {rounds} rounds and {calls} oracle calls DFW has {own} on the paper's loss and "
            f"{all_data} on everyone's data (x⁰ = 0, which needs none, has {start} on both)."
        )


def _rounds(promise: Promise, case: _Case) -> Claim:
    own, all_data = (_within(case.theorem, "rounds", name, case, promise.enough) for name in _LOSSES)
    text = f"{case.describe_dfw()} With the theorem's parameters DCGS is as good {_when(case.theorem, case)}."
    if case.scaled is not None:
        text += f" With the best scaling and the last iterate it is as good {_when(case.scaled, case)}."
    return Claim(promise.of_rounds, text, _verdict(own, all_data))


def _loss(paper: str, case: _Case) -> Claim:
    text = f"{case.describe_dfw()} With the theorem's parameters DCGS has {_end(case.theorem, case)}."
    if case.scaled is not None:
        text += f" With the best scaling and the last iterate it has {_end(case.scaled, case)}."
    own, all_data = (case.better(case.theorem, name) >= _ORDERS for name in _LOSSES)
    return Claim(paper, text, _verdict(own, all_data))


def _calls(paper: str, case: _Case) -> Claim:
    spent = at(case.dfw, "rounds", DFW_ROUNDS, "lmo_calls")
    own, all_data = (_within(case.theorem, "lmo_calls", name, case, _COMPARABLE * spent) for name in _LOSSES)
    needs = f"{_needs(case.theorem, case)} with the theorem's parameters"
    text = f"{case.describe_dfw()} To be as good, DCGS needs {needs}"
    if case.scaled is not None:
        text += f"; {_needs(case.scaled, case)} with the best scaling and the last iterate"
    return Claim(paper, text + ".", _verdict(own, all_data))


def _within(curve: Curve, across: str, measure: str, case: _Case, enough: float) -> bool | None:
    """Return whether the curve reaches the reference within the limit; None if it ended before both."""
    reached = first(curve, across, measure, case.reference(measure))
    if reached is not None:
        return reached <= enough
    spent = curve.rounds if across == "rounds" else curve.lmo_calls
    return None if spent < enough else False


def _verdict(own: bool | None, all_data: bool | None) -> Verdict:
    """Return the verdict from what holds, or is unknown, on the paper's loss and on everyone's data."""
    if all_data:
        return Verdict.HOLDS
    if own is False:
        return Verdict.FAILS
    return Verdict.PAPER_ONLY if own and all_data is False else Verdict.OPEN


def _when(curve: Curve, case: _Case) -> str:
    never = f"not within its {count(curve.rounds)} rounds"
    own, all_data = _reached(curve, case, "rounds", "after {} rounds", never)
    return f"on the paper's loss {own}, and on everyone's data {all_data}"


def _needs(curve: Curve, case: _Case) -> str:
    more = f"more than the {count(curve.lmo_calls)} calls it made"
    own, all_data = _reached(curve, case, "lmo_calls", "{} calls", more)
    return f"{own} on the paper's loss and {all_data} on everyone's data"


def _reached(curve: Curve, case: _Case, across: str, form: str, never: str) -> list[str]:
    """Return for each loss where along ``across`` the curve reaches the bar."""
    found = [first(curve, across, name, case.reference(name)) for name in _LOSSES]
    return [never if at is None else form.format(count(at)) for at in found]


def _end(curve: Curve, case: _Case) -> str:
    last = {name: column[-1] for name, column in curve.columns.items()}
    own, all_data = (
        f"{short_number(last[name])} ({_compared(case.better(curve, name))})" for name in _LOSSES
    )
    return f"{own} and {all_data} after {count(last['rounds'])} rounds and {count(last['lmo_calls'])} calls"


def _compared(better: float) -> str:
    """Return in words how a value compares with DFW's, from how many times lower it is."""
    if better in (0.0, float("inf")):
        return "one of the two is 0"
    if better >= 1.05:
        return f"{times(better)} lower"
    return "about the same" if better > 0.95 else f"{times(1.0 / better)} as high"
