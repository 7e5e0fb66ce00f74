"""The rows of one site: features, targets and weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.validation import vector


@final
@dataclass(frozen=True, eq=False)
class SiteData:
    """The rows of a site: ``A`` with one column per feature, dense or a csr_array, and one target per row.

    ``weights`` say how often a row counts; None means once. ``name`` is what errors call the site.
    ``columns`` are the names of the features, which must be the same at all sites; None if they have none.
    """

    A: Any
    targets: NDArray[np.float64]
    weights: NDArray[np.float64] | None = None
    name: str = ""
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        matrix = sp.csr_array(self.A, dtype=np.float64) if sp.issparse(self.A) else np.asarray(self.A, float)
        object.__setattr__(self, "A", matrix)
        object.__setattr__(self, "targets", vector(self.targets, "targets"))
        if self.weights is not None:
            object.__setattr__(self, "weights", vector(self.weights, "weights"))
        sizes = {len(self.targets), self.A.shape[0], len(self.counts)}
        if len(sizes) > 1:
            raise ValueError(
                f"{self.name or 'a site'} must have one target and one weight per row; it has "
                f"{self.A.shape[0]} rows, {len(self.targets)} targets and {len(self.counts)} weights."
            )

    @property
    def counts(self) -> NDArray[np.float64]:
        """The weight of each row; 1 without weights."""
        return np.ones(self.A.shape[0]) if self.weights is None else self.weights

    @property
    def features(self) -> int:
        """The number of columns."""
        return int(self.A.shape[1])

    @property
    def is_sparse(self) -> bool:
        """Whether the features are stored sparse."""
        return bool(sp.issparse(self.A))

    def some(self, rows: NDArray[Any]) -> SiteData:
        """Return the rows with these numbers, or where a mask is True."""
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, A=self.A[rows], targets=self.targets[rows], weights=weights)

    def with_targets(self, targets: NDArray[np.float64]) -> SiteData:
        """Return the same rows with other targets."""
        return replace(self, targets=targets)

    def weighted_by(self, factors: NDArray[np.float64]) -> SiteData:
        """Return the same rows with weights multiplied by these factors."""
        return replace(self, weights=self.counts * factors)
