"""A model of ratings: offsets plus a matrix in factors, clipped to the range of the ratings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from dcgs.low_rank import Index, LowRank
from dcgs.ratings.offsets import Numbers, Offsets

# Predictions that are computed at a time, for the best columns of many rows.
_BLOCK = 1 << 22


@final
@dataclass(frozen=True, eq=False)
class RatingsModel:
    """What an agent knows after a fit: the offsets of its rows and of all columns, and a matrix in factors.

    A row or a column with the number −1 is one that the fit has not seen; it gets the offsets that are known.
    """

    x: LowRank
    offsets: Offsets

    def predict(self, rows: Index, cols: Index) -> Numbers:
        """Return predictions for pairs of a row and a column."""
        rows, cols = np.asarray(rows, dtype=np.intp), np.asarray(cols, dtype=np.intp)
        seen = (rows >= 0) & (cols >= 0) & (cols < self.x.shape[1])
        entries = self.x.entries(np.where(seen, rows, 0), np.where(seen, cols, 0))
        return self._clipped(self.offsets.of(rows, cols) + np.where(seen, entries, 0.0))

    def top(self, row: int, count: int, without: Index | None = None) -> tuple[Index, Numbers]:
        """Return the columns with the largest predictions in a row, without some, and the predictions.

        They are sorted before they are clipped; equal ones are in the order of columns.
        """
        one = np.array([row], dtype=np.intp)
        scores = self._scores(one)[0]
        if without is not None:
            scores[without] = -np.inf
        order = np.argsort(-scores, kind="stable")[:count]
        order = order[np.isfinite(scores[order])]
        return order, self._clipped(scores[order])

    def top_of_rows(
        self, rows: Index, count: int, rated: tuple[Index, Index] | None = None
    ) -> Iterator[tuple[Index, Index, Numbers]]:
        """Yield rows, their best columns and the predictions, for some rows at a time.

        ``rated`` are pairs of a place among the rows and a column that are left out. Arrays of columns and
        predictions have a row for each row; a column that is left out because a row has no more is −1.
        """
        count = min(count, self.x.shape[1])
        size = max(1, _BLOCK // self.x.shape[1])
        places = cols = np.empty(0, dtype=np.intp)
        if rated is not None:
            order = np.argsort(rated[0], kind="stable")
            places, cols = rated[0][order], rated[1][order]
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            scores = self._scores(some)
            first, last = np.searchsorted(places, [start, start + len(some)])
            scores[places[first:last] - start, cols[first:last]] = -np.inf
            best = np.argpartition(-scores, count - 1, axis=1)[:, :count]
            best.sort(axis=1)
            found = np.take_along_axis(scores, best, axis=1)
            order = np.argsort(-found, axis=1, kind="stable")
            best, found = np.take_along_axis(best, order, axis=1), np.take_along_axis(found, order, axis=1)
            yield some, np.where(np.isfinite(found), best, -1), self._clipped(found)

    def _scores(self, rows: Index) -> Numbers:
        """Return the predictions for all columns in these rows, not clipped."""
        U = self.x.rows_of(rows)
        low_rank = U @ self.x.V.T if self.x.rank else np.zeros((len(rows), self.x.shape[1]))
        own = self.offsets.mean + self.offsets.of_rows(rows)
        return np.asarray(low_rank + own[:, None] + self.offsets.col_offsets)

    def _clipped(self, scores: Numbers) -> Numbers:
        return np.clip(scores, self.offsets.low, self.offsets.high)
