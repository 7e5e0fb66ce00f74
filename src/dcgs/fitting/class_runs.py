"""The runs of a fit: one, or with more than two classes one for each. What they cost together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dcgs.front import Checkpoint, Result, Status

COUNTERS = ("messages", "bytes", "lmo_calls", "projections", "computing", "waiting")
_TOTALS = ("iterations", "rounds", "seconds")


def joined(runs: Sequence[Result]) -> Result:
    """Return the result of all runs: models side by side, and the sums of what the runs cost.

    Its status is that of the first run that did not end as it should. The history and the certificates are
    those of single runs, and are left out.
    """
    first = runs[0]
    if len(runs) == 1:
        return first
    sums: dict[str, Any] = {name: np.sum([getattr(run, name) for run in runs], axis=0) for name in COUNTERS}
    sums |= {name: sum(getattr(run, name) for run in runs) for name in _TOTALS}
    return replace(
        first,
        x=np.stack([run.x for run in runs]),
        agents=np.stack([run.agents for run in runs], axis=1),
        status=next((run.status for run in runs if not run.status.success), first.status),
        notes=tuple(dict.fromkeys(note for run in runs for note in run.notes)),
        about=first.about | _checkpoints(runs),
        certificates=first.certificates[:0],
        **sums,
    )


def _checkpoints(runs: Sequence[Result]) -> dict[str, Any]:
    """Return what was saved and resumed: iterations of all runs together."""
    each = [run.about["checkpoint"] for run in runs if "checkpoint" in run.about]
    if not each:
        return {}
    resumed = sum(one["resumed"] or 0 for one in each) or None
    seconds = sum(one["seconds"] for one in each)
    return {"checkpoint": {"every": each[0]["every"], "resumed": resumed, "seconds": seconds}}


def certified_gap(run: Result) -> dict[str, float] | None:
    """Return the last gap that a run certified, and the decrease of the loss up to then.

    A run that was resumed after its end has certified no other gap than the one that it ended by.
    """
    if len(run.certificates):
        gap, decrease = (float(run.certificates[name][-1]) for name in ("gap", "decrease"))
    elif run.status is Status.AGREED:
        gap, decrease = (float(run.about["certified"][name]) for name in ("gap", "decrease"))
    else:
        return None
    return {"gap": max(gap, 0.0), "decrease": decrease}


def with_share(gap: Mapping[str, float]) -> dict[str, float]:
    """Return a gap with its share of the decrease of the loss."""
    return {**gap, **({"share": gap["gap"] / gap["decrease"]} if gap["decrease"] > 0 else {})}


def checkpoint_of(checkpoint: Checkpoint | None, run: int, runs: int) -> Checkpoint | None:
    """Return the checkpoint of a run: a folder of its own if there are several.

    A fit that was interrupted has checkpoints of the first runs only; the others start from the beginning.
    """
    if checkpoint is None or runs == 1:
        return checkpoint
    resume = "auto" if checkpoint.resume and run > 0 else checkpoint.resume
    return Checkpoint(checkpoint.path / f"class-{run:03d}", checkpoint.every, resume)
