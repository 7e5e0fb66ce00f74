"""The paper's claims of its section 5, each held against what was measured.

A claim is judged by the curve of DCGS with the theorem's parameters, since it is of those that the
paper speaks; what the best scaling reaches is said beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from dcgs.experiments.study import Claim, Curve, Verdict
from dcgs.experiments.words import count, number, times

DFW_ROUNDS = 800
_ORDERS = 100.0  # "orders of magnitude", in the plural
_COMPARABLE = 3.0  # as many oracle calls as DFW, give or take this factor


@final
@dataclass(frozen=True)
class Promise:
    """What the paper says of an experiment, in short; ``rounds`` is what it gives DCGS against 800."""

    rounds: int
    of_rounds: str
    of_loss: str | None = None
    of_calls: str | None = None


_LASSO = Promise(
    rounds=3,
    of_rounds="DFW takes more than 800 rounds of communication where DCGS takes only 3.",
    of_loss="With a moderate number of oracle calls DCGS reaches a loss orders of magnitude better than "
    "DFW's.",
)
_COMPLETION = Promise(
    rounds=5,
    of_rounds="DFW takes 800 rounds of communication where DCGS takes 5.",
    of_calls="DCGS and DFW need comparable numbers of oracle calls to a moderate precision.",
)
PROMISES = {
    "lasso-synthetic": _LASSO,
    "lasso-e2006": replace(_LASSO, of_rounds="A similar gap as on synthetic data (3 rounds against 800)."),
    "completion-synthetic": _COMPLETION,
    "completion-movielens": replace(
        _COMPLETION, of_rounds="A similar gap as on synthetic data (5 rounds against 800)."
    ),
}
PROMISES["lasso-e2006-lookalike"] = replace(
    PROMISES["lasso-e2006"], of_rounds="Of the real data: a similar gap as on synthetic ones (3 against 800)."
)


def judge(promise: Promise, theorem: Curve, scaled: Curve | None, dfw: Curve) -> list[Claim]:
    """Return the claims of one experiment with their verdicts."""
    case = _Case(theorem, scaled, dfw)
    claims = [_rounds(promise.rounds, promise.of_rounds, case)]
    if promise.of_loss is not None:
        claims.append(_loss(promise.of_loss, case))
    if promise.of_calls is not None:
        claims.append(_calls(promise.of_calls, case))
    return claims


@final
@dataclass(frozen=True)
class _Case:
    theorem: Curve
    scaled: Curve | None
    dfw: Curve

    def level(self, measure: str) -> float:
        """Return what DFW has after the rounds the paper gives it."""
        return at(self.dfw, "rounds", DFW_ROUNDS, measure)

    def better(self, curve: Curve, measure: str) -> float:
        """Return how many times lower than DFW's the measure is at the end of the curve."""
        value = curve.columns[measure][-1]
        return self.level(measure) / value if value > 0.0 else float("inf")

    @property
    def dfw_rounds(self) -> int:
        return int(min(DFW_ROUNDS, self.dfw.columns["rounds"][-1]))


def at(curve: Curve, across: str, limit: float, measure: str) -> float:
    """Return the measure at the last entry whose ``across`` is within the limit."""
    pairs = zip(curve.columns[across], curve.columns[measure], strict=True)
    return [value for x, value in pairs if x <= limit][-1]


def first(curve: Curve, across: str, measure: str, level: float) -> float | None:
    """Return where along ``across`` the measure is first at most the level, or None."""
    pairs = zip(curve.columns[across], curve.columns[measure], strict=True)
    return next((x for x, value in pairs if value <= level), None)


def _rounds(promised: int, said: str, case: _Case) -> Claim:
    # An iteration of Algorithm 2 is two rounds; the paper may have counted iterations.
    enough = 2 * promised
    own = _within(case.theorem, "rounds", "local_loss", case.level("local_loss"), enough)
    all_data = _within(case.theorem, "rounds", "worst_loss", case.level("worst_loss"), enough)
    start = case.dfw.columns["worst_loss"][0]
    text = (
        f"After {case.dfw_rounds} rounds DFW has {number(case.level('local_loss'))} on the paper's loss and "
        f"{number(case.level('worst_loss'))} on everyone's data (x⁰ = 0, which needs no round, has "
        f"{number(start)}). With the theorem's parameters DCGS is as good {_when(case.theorem, case)}."
    )
    if case.scaled is not None:
        text += f" With the best scaling it is as good {_when(case.scaled, case)}."
    return Claim(said, text, _verdict(own, all_data))


def _loss(said: str, case: _Case) -> Claim:
    spent = count(at(case.dfw, "rounds", DFW_ROUNDS, "lmo_calls"))
    text = (
        f"DFW, after {case.dfw_rounds} rounds and {spent} oracle calls, has "
        f"{number(case.level('local_loss'))} on the paper's loss and {number(case.level('worst_loss'))} on "
        f"everyone's data. With the theorem's parameters DCGS has {_end(case.theorem, case)}."
    )
    if case.scaled is not None:
        text += f" With the best scaling it has {_end(case.scaled, case)}."
    own, all_data = (case.better(case.theorem, name) >= _ORDERS for name in ("local_loss", "worst_loss"))
    return Claim(said, text, _verdict(own, all_data))


def _calls(said: str, case: _Case) -> Claim:
    spent = at(case.dfw, "rounds", DFW_ROUNDS, "lmo_calls")
    enough = _COMPARABLE * spent
    own = _within(case.theorem, "lmo_calls", "local_loss", case.level("local_loss"), enough)
    all_data = _within(case.theorem, "lmo_calls", "worst_loss", case.level("worst_loss"), enough)
    text = (
        f"DFW calls its oracle {count(spent)} times in {case.dfw_rounds} rounds. To be as good, DCGS needs "
        f"{_needs(case.theorem, case)} with the theorem's parameters"
    )
    if case.scaled is not None:
        text += f"; {_needs(case.scaled, case)} with the best scaling"
    return Claim(said, text + ".", _verdict(own, all_data))


def _within(curve: Curve, across: str, measure: str, level: float, enough: float) -> bool:
    reached = first(curve, across, measure, level)
    return reached is not None and reached <= enough


def _verdict(own: bool, all_data: bool) -> Verdict:
    """Return the verdict on what is true or not on the paper's loss and on everyone's data."""
    if all_data:
        return Verdict.HOLDS
    return Verdict.PAPER_ONLY if own else Verdict.FAILS


def _when(curve: Curve, case: _Case) -> str:
    own, all_data = (_reached(curve, name, case) for name in ("local_loss", "worst_loss"))
    never = f"not within its {count(curve.columns['rounds'][-1])} rounds"
    return f"on the paper's loss {own or never}, and on everyone's data {all_data or never}"


def _reached(curve: Curve, measure: str, case: _Case) -> str | None:
    reached = first(curve, "rounds", measure, case.level(measure))
    if reached is None:
        return None
    return "from the start" if reached == 0 else f"after {count(reached)} rounds"


def _needs(curve: Curve, case: _Case) -> str:
    given = f"more than the {count(curve.columns['lmo_calls'][-1])} calls it was given"
    reached = [first(curve, "lmo_calls", name, case.level(name)) for name in ("local_loss", "worst_loss")]
    own, all_data = (given if calls is None else f"{count(calls)} calls" for calls in reached)
    return f"{own} on the paper's loss and {all_data} on everyone's data"


def _end(curve: Curve, case: _Case) -> str:
    last = {name: column[-1] for name, column in curve.columns.items()}
    return (
        f"{number(last['local_loss'])} ({_compared(case.better(curve, 'local_loss'))}) and "
        f"{number(last['worst_loss'])} ({_compared(case.better(curve, 'worst_loss'))}) after "
        f"{count(last['rounds'])} rounds and {count(last['lmo_calls'])} calls"
    )


def _compared(better: float) -> str:
    """Return in words how a value compares with DFW's, from how many times lower it is."""
    if better >= 1.05:
        return f"{times(better)} lower"
    return "about the same" if better > 0.95 else f"{times(1.0 / better)} as high"
