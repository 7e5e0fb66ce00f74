"""The radius of a model of ratings, found on ratings that the sites hold out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from dcgs.low_rank import LowRank
from dcgs.objectives.objective import MatrixCompletion
from dcgs.preprocessing import Fold, Path, Reductions, Sent, path_over
from dcgs.ratings.completing import Cost, first_rows, prepare
from dcgs.ratings.ids import Ids, as_texts
from dcgs.ratings.offsets import OffsetsTask, Part
from dcgs.sets import NuclearNormBall

Site = tuple[Any, Any, NDArray[np.float64]]
"""Ids of rows, ids of columns, and values of one site."""

# One rating of this number is held out.
_PARTS = 10


@final
@dataclass(frozen=True)
class RatingsPath:
    """How the path is made: the ridge of the offsets, and the seed of what is held out."""

    ridge: float | None
    seed: int

    def over(self, network: Reductions, sites: Mapping[int, Site]) -> Path:
        """Return the path; all sites hold out a tenth of their ratings."""
        cost = Cost()
        rows = {i: Ids.of(site[0]) for i, site in sites.items()}
        texts = {i: Ids.of(site[1]).tolist() for i, site in sites.items()}
        items = Ids.of(network.union("ids of columns", texts))
        firsts, count = first_rows(
            {i: len(own) for i, own in rows.items()}, network.graph, network.runtime, cost
        )
        shape = count, len(items)
        parts, held_out = {}, {}
        for i, site in sites.items():
            places = rows[i].places(site[0]) + firsts[i], items.places(site[1])
            out = _held_out(site, self.seed)
            parts[i], held_out[i] = (
                Part(places[0][some], places[1][some], site[2][some]) for some in (~out, out)
            )
        prepared = prepare(parts, OffsetsTask(shape, True, self.ridge), network.graph, network.runtime, cost)
        name = "first rows, and offsets of rows and columns"
        sent = int(np.sum(cost.bytes))
        network.sent.append(Sent(name, "fit", shape[1], cost.rounds, sent))
        judges = {
            i: MatrixCompletion(
                part.rows, part.cols, part.values - prepared.offsets[i].of(part.rows, part.cols), shape
            )
            for i, part in held_out.items()
        }
        fold = Fold(prepared.objectives, judges)
        return path_over(
            network, [fold], lambda radius: NuclearNormBall(shape, radius), start=LowRank.zeros(shape)
        )


def _held_out(site: Site, seed: int) -> NDArray[np.bool_]:
    """Return which ratings are held out, by a hash of their row and column; at least one is not."""
    pairs = zip(as_texts(site[0]).tolist(), as_texts(site[1]).tolist(), strict=True)
    codes = [crc32(col, crc32(row, seed)) for row, col in pairs]
    out: NDArray[np.bool_] = np.array(codes) % _PARTS == 0
    out[0] = False
    return out
