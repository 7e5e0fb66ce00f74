"""What every method of an experiment costs until the worst agent's model is good on everyone's data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dcgs.experiments.numbers import count, short_duration, size
from dcgs.experiments.results import Curve, Findings
from dcgs.link import Link

ACCURACY = 0.01
"""A model is good if at most this share of the possible decrease of the loss is missing."""


@final
@dataclass(frozen=True, eq=False)
class CostToAccuracy:
    """The first recorded point of a curve at which every agent's model is good.

    ``missing`` is the share of the possible decrease that is missing at the end of the run: (worst_loss −
    best) / (worst_loss at x⁰ − best), where best is the least worst_loss of all runs. If the run does not
    come to the accuracy, all that follows is None.
    """

    curve: Curve
    missing: float
    rounds: float | None = None
    bytes: float | None = None
    computing: float | None = None
    peak_bytes: float | None = None


def costs_to_accuracy(findings: Findings) -> list[CostToAccuracy]:
    """Return the costs of all methods, fewest rounds first; methods that do not get there are last."""
    losses = {curve.key: _finite(curve.columns["worst_loss"]) for curve in findings.curves}
    best = min(float(loss.min()) for loss in losses.values())
    start = max(float(loss[0]) for loss in losses.values() if loss[0] < np.inf)
    costs = []
    for curve in findings.curves:
        missing = (losses[curve.key] - best) / (start - best or 1.0)
        good = np.flatnonzero(missing <= ACCURACY)
        if len(good):
            at = int(good[0])
            spent = {name: float(curve.columns[name][at]) for name in ("rounds", "bytes", "computing")}
            costs.append(
                CostToAccuracy(curve, float(missing[-1]), **spent, peak_bytes=float(curve.peak_bytes[at]))
            )
        else:
            costs.append(CostToAccuracy(curve, float(missing[-1])))
    return sorted(costs, key=lambda cost: (cost.rounds is None, cost.rounds, cost.missing))


def _finite(loss: Sequence[float]) -> NDArray[np.float64]:
    """Return the losses with ∞ where they are not finite."""
    values = np.asarray(loss, dtype=float)
    return np.where(np.isfinite(values), values, np.inf)


def modeled_seconds(cost: CostToAccuracy, findings: Findings, link: Link) -> float | None:
    """Return computing and sending to the accuracy, in seconds; None if the run does not get there."""
    if cost.peak_bytes is None or cost.computing is None:
        return None
    return cost.computing + float(link.waiting(cost.peak_bytes / findings.degree))


def conclusion(costs: Sequence[CostToAccuracy], findings: Findings, link: Link) -> str:
    """Return the sentence that tells which method serves every agent, and at what cost."""
    arrived = [cost for cost in costs if cost.rounds is not None]
    names = ", ".join(cost.curve.label for cost in costs if cost.rounds is None)
    told = [_told(cost, findings, link) for cost in arrived[:2]]
    text = f"{told[0]}." if told else "No method brings every agent there."
    if len(told) > 1:
        text += f" Next is {told[1]}."
    return text + (f" Not within their budgets: {names}." if names and arrived else "")


def _told(cost: CostToAccuracy, findings: Findings, link: Link) -> str:
    seconds = modeled_seconds(cost, findings, link)
    assert cost.rounds is not None
    assert cost.bytes is not None
    assert seconds is not None
    rounds = "round" if cost.rounds == 1 else "rounds"
    return (
        f"{cost.curve.label}, after {count(cost.rounds)} {rounds}, {size(cost.bytes)} sent by the busiest "
        f"agent, and {short_duration(seconds)} on links of {link}"
    )
