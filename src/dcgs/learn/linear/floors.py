"""Floors of a fit of rows: columns that few people dominate, folds with few people, and too few rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.floors import Floors
from dcgs.learn.floors import above_floors, effective_people, left_out_note, people_of
from dcgs.learn.linear.design import Statistics, statistics
from dcgs.learn.radius.folds import Split
from dcgs.learn.sites import Remedy, Rows, SitesError
from dcgs.learn.sums import Request, Steps
from dcgs.methods import FastDCGS, Method

# With at most this number of unknowns, Hessians may be sent.
_HESSIANS = 64


def without_dominated(rows: Mapping[int, Rows], floors: Floors) -> Steps[tuple[dict[int, Rows], list[str]]]:
    """Return the rows with 0 in columns that few people dominate, and a note on these.

    The squared differences of a column from its mean are shared by as many people as (Σ cₚ)² / Σ cₚ², with cₚ
    the part of one person. A sum of products with a column that one person dominates is that person's row.
    Raise if few people dominate the target, or if there are fewer rows than unknowns of a Hessian.
    """
    found = yield from statistics(rows)
    _check_rows(found, next(iter(rows.values())).features)
    parts = {i: _dominance(local, found) for i, local in rows.items()}
    squares, (whole, target) = yield Request("how many people a column is about", parts)
    dominated = (found.deviation > 0.0) & (found.weight**2 < floors.min_count * squares)
    if whole > 0.0 and whole**2 < floors.min_count * target:
        raise SitesError(
            f"the target must not be dominated by fewer than {floors.min_count} people; the squares of its "
            "differences from the mean are. See whether some values are wrong, or far outside."
        )
    names = next(iter(rows.values())).columns
    left_out = [str(k + 1) if names is None else names[k] for k in np.flatnonzero(dominated)]
    notes = left_out_note(left_out, floors)
    return {i: local.without(dominated) for i, local in rows.items()}, notes


def _check_rows(found: Statistics, features: int) -> None:
    if found.rows < features + 1 <= _HESSIANS:
        raise SitesError(
            f"the rows of all sites must be at least as many as the unknowns of a Hessian, {features + 1}; "
            f"there are {found.rows}, which sums of Hessians would show. Leave columns out.",
        )


def without_hessians(method: Method | None, unknowns: int) -> Method:
    """Return a method that sums gradients: a Hessian of fewer rows than unknowns shows their span."""
    chosen = FastDCGS() if method is None else method
    if not isinstance(chosen, FastDCGS) or chosen.form not in ("auto", "newton"):
        return chosen
    if chosen.form == "newton":
        raise SitesError(
            f"the rows of all sites must be at least as many as the unknowns of a Hessian, {unknowns}; there "
            "are fewer, which sums of Hessians would show. Use another form, or leave columns out."
        )
    return replace(chosen, form="sums")


def _dominance(rows: Rows, found: Statistics) -> list[Any]:
    """Return Σ cₚ² of the columns, in units of the variance; Σ cₚ and Σ cₚ² of the target."""
    variance = np.where(found.deviation > 0.0, found.deviation, 1.0) ** 2
    if rows.is_sparse:
        columns = _sparse_fourth(rows, found.mean, variance)
    else:
        squares = rows.counts[:, None] * (rows.A - found.mean) ** 2 / variance
        columns = effective_people(squares, rows.subjects)
    target = rows.counts * (rows.targets - found.target_mean) ** 2
    return [columns, [target.sum(), effective_people(target[:, None], rows.subjects).sum()]]


def _sparse_fourth(rows: Rows, mean: NDArray[np.float64], variance: NDArray[np.float64]) -> Any:
    """Return Σ (wᵢ (aᵢⱼ − μⱼ)² / σⱼ²)² for each column of a sparse matrix; every row is another person."""
    A, squares = sp.csc_array(rows.A), rows.counts**2
    place = np.repeat(np.arange(A.shape[1]), np.diff(A.indptr))
    stored = squares[A.indices] * ((A.data - mean[place]) ** 2 / variance[place]) ** 2
    weight = np.bincount(place, weights=squares[A.indices], minlength=A.shape[1])
    left = np.maximum(squares.sum() - weight, 0.0) * (mean**2 / variance) ** 2
    return np.bincount(place, weights=stored, minlength=A.shape[1]) + left


def check_folds(
    parts: Sequence[tuple[Split, Split]], classes: Sequence[float], floors: Floors
) -> Steps[None]:
    """Raise unless each fold holds out, and trains on, enough people, of each class if there are classes."""
    counts: dict[int, list[int]] = {}
    for split in (split for sides in parts for split in sides):
        for i, local in split.items():
            chosen = [local.targets == label for label in classes] or [np.ones(len(local), dtype=np.bool_)]
            counts.setdefault(i, []).extend(people_of(rows, local.subjects) for rows in chosen)
    (enough,) = yield above_floors("people of each class in each fold", counts, floors)
    if not enough.all():
        of_classes = " of each class" if classes else ""
        raise SitesError(
            "each part of the rows that is held out to find the radius must have at least "
            f"{floors.min_count} people{of_classes}, at {floors.min_sites} sites or more; one has fewer.",
            Remedy.COARSER,
        )
