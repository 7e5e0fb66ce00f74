"""The radius of a model of ratings, found on ratings that the agents hold out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcgs.low_rank import LowRank
from dcgs.objectives.objective import MatrixCompletion
from dcgs.preprocessing.folds import Fold
from dcgs.preprocessing.path import path_steps
from dcgs.preprocessing.path_result import Path
from dcgs.preprocessing.reductions import Reductions, Sent
from dcgs.ratings.completing import Cost, prepare
from dcgs.ratings.offsets import OffsetsTask, Part
from dcgs.sets import NuclearNormBall

# One rating of this number is held out.
_PARTS = 10
# Multipliers and shifts of a hash of 64 bits (SplitMix64, Steele, Lea and Flood 2014).
_GOLDEN, _MIX = 0x9E3779B97F4A7C15, ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def ratings_path(parts: Mapping[int, Part], task: OffsetsTask, network: Reductions, seed: int = 0) -> Path:
    """Return what radii of the nuclear norm are worth; all agents hold out a tenth of their ratings.

    The offsets are fitted to the other ratings. ``seed`` decides which ratings are held out.
    """
    cost, kept, judges, before = Cost(), {}, {}, (network.rounds, network.bytes)
    out = {i: held_out(part, task.shape[1], seed) for i, part in parts.items()}
    for i, part in parts.items():
        kept[i] = Part(part.rows[~out[i]], part.cols[~out[i]], part.values[~out[i]])
    prepared = prepare(kept, task, network.graph, network.runtime, cost)
    sent = Sent("offsets of the path", "fit", task.shape[1], cost.rounds, int(np.sum(cost.bytes)))
    network.sent.append(sent)
    for i, part in parts.items():
        rows, cols, values = part.rows[out[i]], part.cols[out[i]], part.values[out[i]]
        judges[i] = MatrixCompletion(rows, cols, values - prepared.offsets[i].of(rows, cols), task.shape)
    fold = Fold(prepared.objectives, judges)
    start: Any = LowRank.zeros(task.shape)
    steps = path_steps(network, [fold], lambda radius: NuclearNormBall(task.shape, radius), start=start)
    (path,) = network.run(steps)
    return replace(path, rounds=network.rounds - before[0], bytes=network.bytes - before[1])


def held_out(part: Part, columns: int, seed: int) -> NDArray[np.bool_]:
    """Return which ratings are held out, by a hash of their row and column; the first one never is."""
    code = (part.rows * columns + part.cols).astype(np.uint64) + np.uint64((1 + seed) * _GOLDEN % 2**64)
    for shift, factor in _MIX:
        code = (code ^ (code >> np.uint64(shift))) * np.uint64(factor)
    out: NDArray[np.bool_] = (code ^ (code >> np.uint64(31))) % np.uint64(_PARTS) == 0
    out[0] = False
    return out
