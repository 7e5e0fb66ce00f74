"""Which rows a site holds out, and to which site a row is dealt: by a hash of the row.

Equal rows have equal hashes, so that they are held out together. A row that is in the data twice is therefore
the same as one of weight 2, and a row of weight 0 is the same as none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final
from zlib import crc32

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.learn.linear.design import Design
from dcgs.learn.sites import Rows
from dcgs.objectives.losses import LogisticLoss, WeightedLoss
from dcgs.objectives.objective import Objective
from dcgs.validation import instance

Numbers = NDArray[np.intp]
Split = dict[int, Rows]

# A fold is a quarter of the rows at most.
_PARTS = 4


@final
@dataclass(frozen=True, eq=False)
class Fold:
    """What the agents of this process train on, and what they hold out to find the error of a model.

    ``weights`` are the sums of the weights of the rows that they train on; without them a row counts once.

    >>> import dcgs, networkx as nx, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> A = rng.standard_normal((3, 60, 8))
    >>> b = A @ [3.0, -2.0, 0, 0, 0, 0, 0, 0] + rng.standard_normal((3, 60))
    >>> train = {i: dcgs.LeastSquares(A[i, :40], b[i, :40]) for i in range(3)}
    >>> held_out = {i: dcgs.LeastSquares(A[i, 40:], b[i, 40:]) for i in range(3)}
    >>> fold = dcgs.Fold(train, held_out)
    >>> fold.weight(0), fold.held_out_sums(0, np.zeros(8))[0].item()   # rows trained on, and held out
    (40.0, 20.0)
    """

    train: Mapping[int, Objective]
    held_out: Mapping[int, Objective]
    weights: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("train", "held_out"):
            part = instance(getattr(self, name), Mapping, name, "be a mapping from agents to objectives")
            for i, f in part.items():
                instance(f, Objective, f"{name}[{i!r}]", "be an objective such as dcgs.LeastSquares(A, b)")

    def weight(self, i: int) -> float:
        """Return the weight of the rows that agent i trains on."""
        return self.weights.get(i, float(self.train[i].loss.size))

    @property
    def is_of_classes(self) -> bool:
        """Whether the loss is that of classes, which falls to 0 with the radius if they can be separated."""
        loss = next(iter(self.held_out.values())).loss
        return isinstance(loss.loss if isinstance(loss, WeightedLoss) else loss, LogisticLoss)

    def held_out_losses(self, i: int, x: Any) -> NDArray[np.float64]:
        """Return the loss of each held-out row of agent i, without its weight."""
        f = self.held_out[i]
        if f.loss.size == 0:
            return np.zeros(0)
        return (f.loss.loss if isinstance(f.loss, WeightedLoss) else f.loss).values(f.map.image(x))

    def held_out_sums(self, i: int, x: Any, others: NDArray[np.float64] | float = 0.0) -> NDArray[np.float64]:
        """Return sums over the held-out rows of agent i.

        They are of weights, of losses, of squared losses, and of squared differences from ``others``, the
        losses of another model.
        """
        losses, loss = self.held_out_losses(i, x), self.held_out[i].loss
        weights = loss.weights if isinstance(loss, WeightedLoss) else np.ones(loss.size)
        return np.array(
            [weights.sum(), weights @ losses, weights @ losses**2, weights @ (losses - others) ** 2]
        )


def row_hashes(A: Any, targets: NDArray[np.float64], seed: int = 0) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each row, which depends on its entries, its target and the seed."""
    S = sp.csr_array(A, dtype=np.float64, copy=True)
    S.eliminate_zeros()
    S.sort_indices()
    pieces = np.empty(S.nnz, dtype=[("index", np.int64), ("value", np.float64)])
    pieces["index"], pieces["value"] = S.indices, S.data
    entries, ends = memoryview(pieces.tobytes()), S.indptr * pieces.itemsize
    first = [crc32(target.tobytes(), seed) for target in np.asarray(targets, dtype=np.float64) + 0.0]
    codes = [crc32(entries[ends[i] : ends[i + 1]], first[i]) for i in range(S.shape[0])]
    return np.array(codes, dtype=np.float64) / 2.0**32


def deal(A: Any, targets: NDArray[np.float64], sites: int, seed: int = 0) -> Numbers:
    """Return a site for each row: equal rows go to one site, and sites have about equally many distinct rows.

    >>> deal(np.arange(6.0)[:, None], np.zeros(6), 2).tolist()
    [0, 0, 1, 0, 1, 1]
    """
    distinct, which = np.unique(row_hashes(A, targets, seed), return_inverse=True)
    return np.asarray((np.arange(len(distinct)) * sites // len(distinct))[which])


def fold_numbers(rows: Rows, how: HoldOut) -> Numbers:
    """Return the part of each row of an agent; the parts have about equal weights.

    The first part begins at a row that depends on all rows, and not on the name of the agent: so small agents
    hold out different parts, and the same ones if agents are renamed.
    """
    parts = np.zeros(len(rows), dtype=np.intp)
    hashes = row_hashes(rows.A, rows.targets, how.seed)
    for places in _classes(rows) if how.by_class else [np.arange(len(hashes))]:
        distinct, which = np.unique(hashes[places], return_inverse=True)
        weights = np.bincount(which, weights=rows.counts[places], minlength=len(distinct))
        total, first = float(weights.sum()) or 1.0, float(distinct[weights > 0.0].sum())
        middle = (np.cumsum(weights) - 0.5 * weights) / total + first
        parts[places] = np.floor(how.parts * (middle % 1.0)).astype(np.intp)[which]
    return parts


def _classes(rows: Rows) -> list[Numbers]:
    return [np.flatnonzero(rows.targets == label) for label in np.unique(rows.targets)]


@final
@dataclass(frozen=True)
class HoldOut:
    """How rows are held out: each agent divides its rows into ``parts``, and holds out ``folds`` of them.

    It holds out one part after the other. One fold of four parts trains on three quarters of the rows and
    finds errors on the last one. ``by_class`` is for targets that are classes. ``numbers`` are the parts of
    the rows of each agent, if they are known; a row of part −1 is never held out.
    """

    folds: int = 1
    parts: int = _PARTS
    seed: int = 0
    by_class: bool = False
    numbers: Mapping[int, Numbers] | None = field(default=None, compare=False)

    @classmethod
    def in_folds(cls, folds: int, seed: int, by_class: bool) -> HoldOut:
        """Return this number of folds, each of at most a quarter of the rows."""
        return cls(folds, max(_PARTS, folds), seed, by_class)

    def of(self, rows: Mapping[int, Rows], design: Design) -> list[Fold]:
        """Return the folds of the rows of the agents of this process."""
        return [fold_of(train, held_out, design) for train, held_out in self.split(rows)]

    def split(self, rows: Mapping[int, Rows]) -> list[tuple[Split, Split]]:
        """Return for each fold the rows that the agents of this process train on, and those they hold out."""
        numbers = self.numbers or {i: fold_numbers(local, self) for i, local in rows.items()}
        folds = []
        for fold in range(self.folds):
            train, held_out = {}, {}
            for i, local in rows.items():
                out = held_out_rows(numbers[i], fold)
                train[i], held_out[i] = local.some(~out), local.some(out)
            folds.append((train, held_out))
        return folds


def held_out_rows(numbers: Numbers, fold: int) -> NDArray[np.bool_]:
    """Return which rows of an agent are held out in a fold, by the part of each row."""
    out = np.asarray(numbers == fold)
    return np.zeros_like(out) if out.all() else out  # an agent trains on something


def fold_of(train: Split, held_out: Split, design: Design) -> Fold:
    """Return the fold of these rows."""
    return Fold(
        design.objectives(train),
        {i: design.row_losses(local) for i, local in held_out.items()},
        {i: float(local.counts.sum()) for i, local in train.items()},
    )
