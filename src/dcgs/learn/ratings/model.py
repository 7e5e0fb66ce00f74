"""An agent's model of ratings: offsets and a matrix in factors, and the names of its rows and columns.

Rows and columns have the names that people use: ids of users and items, or numbers. A naming turns names into
the numbers of rows and columns, from 0, and back; −1 is a name that is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike

from dcgs.learn.ratings.ids import Ids, as_texts, places_in
from dcgs.learn.ratings.offsets import Numbers, Offsets
from dcgs.low_rank import Index, LowRank

# Predictions that are computed at a time, for the best columns of many rows.
_BLOCK = 1 << 22


@final
@dataclass(frozen=True, eq=False)
class FoldIn:
    """What finds the row w of a new user without a fit: K of the penalty ⟨w, K w⟩, and the ridge of offsets.

    ``ridge`` None means no offsets.
    """

    penalty: Numbers
    ridge: float | None


@final
@dataclass(frozen=True, eq=False)
class RatingsModel:
    """What an agent knows after a fit: the offsets of its rows and of all columns, and a matrix in factors.

    A row or a column with the number −1 is one that the fit has not seen; it gets the offsets that are known.
    ``fold_in`` is None for models before version 0.11, and where rows are with several agents.
    """

    x: LowRank
    offsets: Offsets
    fold_in: FoldIn | None = None

    def predict(self, rows: Index, cols: Index) -> Numbers:
        """Return predictions for pairs of a row and a column."""
        rows, cols = np.asarray(rows, dtype=np.intp), np.asarray(cols, dtype=np.intp)
        seen = (rows >= 0) & (cols >= 0) & (cols < self.x.shape[1])
        entries = self.x.entries(np.where(seen, rows, 0), np.where(seen, cols, 0))
        return self._clipped(self.offsets.of(rows, cols) + np.where(seen, entries, 0.0))

    def with_rows(self, rows: Index, cols: Index, values: Numbers) -> RatingsModel:
        """Return the model with new rows, found from their ratings: offset and factors of least squares.

        The factors of columns and their offsets stay as they are. ``rows`` are numbers that the model lacks.
        """
        if self.fold_in is None:
            raise ValueError(
                "the model must say how rows of new users are found; it does not, since it is of an older "
                "version, of another set, or of rows that several agents have. Fit it again."
            )
        offsets, ridge, numbers = self.offsets, self.fold_in.ridge, np.unique(rows)
        V, K, shifts = self.x.V, self.fold_in.penalty, np.zeros(len(numbers))
        U = np.zeros((len(numbers), self.x.rank))
        for k, row in enumerate(numbers.tolist()):
            some = rows == row
            left = values[some] - offsets.mean - offsets.col_offsets[cols[some]]
            if ridge is not None:
                shifts[k] = left.sum() / (len(left) + ridge)
            W = V[cols[some]]
            U[k] = np.linalg.lstsq(W.T @ W + K, W.T @ (left - shifts[k]), rcond=None)[0]
        every = np.concatenate([np.asarray(self.x.rows), numbers])
        order = np.argsort(every, kind="stable")
        shape = (max(self.x.shape[0], int(numbers[-1]) + 1), self.x.shape[1])
        x = LowRank(np.concatenate([self.x.U, U])[order], V, shape, every[order])
        known = offsets.of_rows(np.asarray(self.x.rows))
        extended = replace(offsets, rows=every[order], row_offsets=np.concatenate([known, shifts])[order])
        return replace(self, x=x, offsets=extended)

    def top(self, row: int, count: int, without: Index | None = None) -> tuple[Index, Numbers]:
        """Return the columns with the largest predictions in a row, without some, and the predictions.

        They are sorted before they are clipped; equal ones are in the order of columns.
        """
        scores = self._scores(np.array([row], dtype=np.intp))[0]
        if without is not None:
            scores[without] = -np.inf
        order = np.argsort(-scores, kind="stable")[:count]
        order = order[np.isfinite(scores[order])]
        return order, self._clipped(scores[order])

    def top_of_rows(
        self,
        rows: Index,
        count: int,
        rated: tuple[Index, Index] | None = None,
        without: Index | None = None,
    ) -> Iterator[tuple[Index, Index, Numbers]]:
        """Yield rows, their best columns and the predictions, for some rows at a time.

        ``rated`` are pairs of a place among the rows and a column that are left out; ``without`` are columns
        that are left out of all rows. Arrays of columns and
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
            scores[:, [] if without is None else without] = -np.inf
            best = np.argpartition(-scores, count - 1, axis=1)[:, :count]
            best.sort(axis=1)
            highest = np.take_along_axis(scores, best, axis=1)
            order = np.argsort(-highest, axis=1, kind="stable")
            best = np.take_along_axis(best, order, axis=1)
            highest = np.take_along_axis(highest, order, axis=1)
            yield some, np.where(np.isfinite(highest), best, -1), self._clipped(highest)

    def _scores(self, rows: Index) -> Numbers:
        """Return the predictions for all columns in these rows, not clipped."""
        U = self.x.rows_of(rows)
        low_rank = U @ self.x.V.T if self.x.rank else np.zeros((len(rows), self.x.shape[1]))
        shifts = self.offsets.mean + self.offsets.of_rows(rows)
        return np.asarray(low_rank + shifts[:, None] + self.offsets.col_offsets)

    def _clipped(self, scores: Numbers) -> Numbers:
        return np.clip(scores, self.offsets.low, self.offsets.high)


@final
@dataclass(frozen=True, eq=False)
class Labels:
    """Ids of users, with the row of each, and ids of items, whose places are the columns."""

    users: Ids
    numbers: Index
    items: Ids

    def rows_of(self, names: ArrayLike) -> Index:
        """Return the rows with these names."""
        return np.append(self.numbers, -1)[self.users.places(names)]  # the place −1 is the last

    def cols_of(self, names: ArrayLike) -> Index:
        """Return the columns with these names."""
        return self.items.places(names)

    def with_users(self, users: ArrayLike, first: int) -> Labels:
        """Return the names with new users, in place of equal ids; their rows count from ``first``."""
        new = Ids.of(users)
        kept = new.places(self.users.texts) < 0
        texts = np.concatenate([self.users.texts[kept], new.texts])
        numbers = np.concatenate([self.numbers[kept], first + np.arange(len(new))])
        order = np.argsort(texts, kind="stable")
        return Labels(Ids(texts[order]), numbers[order], self.items)

    def row_names(self, rows: Index) -> list[Any]:
        order = np.argsort(self.numbers, kind="stable")
        return self.users[order[np.searchsorted(self.numbers[order], rows)]]

    def col_names(self, cols: Index) -> list[Any]:
        return self.items[cols]


@final
@dataclass(frozen=True, eq=False)
class Numbering:
    """Rows and columns with numbers; the first has the number ``base``, 0 or 1."""

    base: int
    shape: tuple[int, int]

    def rows_of(self, names: ArrayLike) -> Index:
        """Return the rows with these names; −1 also for a name that is no number."""
        return self.within(self._numbers(names), 0)

    def cols_of(self, names: ArrayLike) -> Index:
        return self.within(self._numbers(names), 1)

    def with_users(self, users: ArrayLike, first: int) -> Numbering:
        """Return a numbering that has the numbers of new users."""
        highest = int(max(self._numbers(users).max(initial=-1) + 1, first))
        return replace(self, shape=(highest, self.shape[1]))

    def _numbers(self, names: ArrayLike) -> Index:
        texts = [text.decode() for text in as_texts(names).tolist()]
        known = [text.isascii() and text.isdigit() and len(text) < 18 for text in texts]
        numbers = [int(text) - self.base if ok else -1 for text, ok in zip(texts, known, strict=True)]
        return np.array(numbers, dtype=np.intp)

    def within(self, numbers: Index, axis: int) -> Index:
        """Return numbers from 0, with −1 for those outside the matrix."""
        return np.where((numbers >= 0) & (numbers < self.shape[axis]), numbers, -1)

    def row_names(self, rows: Index) -> list[Any]:
        return list((rows + self.base).tolist())

    def col_names(self, cols: Index) -> list[Any]:
        return list((cols + self.base).tolist())


Naming: TypeAlias = Labels | Numbering


@final
@dataclass(frozen=True, eq=False)
class AgentRatings:
    """The model of one agent, or of several put together, and the names of its rows and of all columns.

    ``doubles`` are ids that several of these agents have.
    """

    model: RatingsModel
    naming: Naming
    doubles: tuple[str, ...] = ()

    def rows_of(self, users: ArrayLike) -> Index:
        """Return the rows of users, −1 for those that the model does not have."""
        return self.known(self.naming.rows_of(users))

    def known(self, rows: Index) -> Index:
        """Return the rows, −1 for those that the model does not have."""
        return np.where(places_in(np.asarray(self.model.x.rows), rows) >= 0, rows, -1)

    def with_fold_in(self, fold_in: FoldIn) -> AgentRatings:
        """Return the model with what finds the rows of new users."""
        return replace(self, model=replace(self.model, fold_in=fold_in))

    def folded_in(self, users: ArrayLike, items: ArrayLike, values: Numbers) -> AgentRatings:
        """Return the model with rows of new users, found from their ratings of known items, without a fit.

        Users that the model has keep their rows.
        """
        texts, cols = as_texts(users), self.naming.cols_of(items)
        is_new = (self.rows_of(texts) < 0) & (cols >= 0)
        if not is_new.any():
            return self
        naming = self.naming.with_users(texts[is_new], self.model.x.shape[0])
        rows = naming.rows_of(texts[is_new])
        return replace(self, model=self.model.with_rows(rows, cols[is_new], values[is_new]), naming=naming)

    def predict(self, users: ArrayLike, items: ArrayLike) -> Numbers:
        """Return predictions for pairs of a user and an item; unseen ones get the offsets that are known."""
        return self.model.predict(self.rows_of(users), self.naming.cols_of(items))

    def top(self, user: Any, count: int = 10, without: ArrayLike = ()) -> list[tuple[Any, float]]:
        """Return the items with the highest predictions for a user, and the predictions."""
        (row,) = self.rows_of([user])
        left_out = self.naming.cols_of(without) if np.size(without) else np.empty(0, dtype=np.intp)
        best, scores = self.model.top(int(row), count, left_out[left_out >= 0])
        return list(zip(self.naming.col_names(best), scores.tolist(), strict=True))


def together(agents: Sequence[AgentRatings]) -> AgentRatings:
    """Return the model with the rows of all these agents; of equal ids, the first agent's counts."""
    first = agents[0]
    xs = [agent.model.x for agent in agents]
    if any(not np.array_equal(x.V, xs[0].V) for x in xs):
        raise ValueError("the models must be of one fit; their factors differ. Choose one of them.")
    rows, place = np.unique(np.concatenate([np.asarray(x.rows) for x in xs]), return_index=True)
    U = np.concatenate([x.U for x in xs])[place]
    shifts = np.concatenate([agent.model.offsets.row_offsets for agent in agents])[place]
    offsets = replace(first.model.offsets, rows=rows, row_offsets=shifts)
    model = replace(first.model, x=LowRank(U, xs[0].V, xs[0].shape, rows), offsets=offsets)
    if not isinstance(first.naming, Labels):
        return replace(first, model=model)
    namings = [agent.naming for agent in agents if isinstance(agent.naming, Labels)]
    texts = np.concatenate([naming.users.texts for naming in namings])
    numbers = np.concatenate([naming.numbers for naming in namings])
    distinct, kept = np.unique(texts, return_index=True)
    twice = np.setdiff1d(numbers, numbers[kept])
    doubles = tuple(sorted({text.decode() for text in texts[np.isin(numbers, twice)].tolist()}))
    return AgentRatings(model, Labels(Ids(distinct), numbers[kept], first.naming.items), doubles)
