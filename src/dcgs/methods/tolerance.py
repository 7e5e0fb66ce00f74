"""The tolerance of the k-th step, for FastDCGS over edges and by sums."""

from __future__ import annotations

# The tolerance is of order k^(−_EARLY), and from k = _TURN on of order k^(−_LATE), so that its root is
# summable.
_EARLY, _LATE, _TURN = 1.5, 2.5, 100


def summable_tolerance(k: int, scale: float) -> float:
    """Return the error in a value that step k may have, for losses of this scale."""
    late = max(k / _TURN, 1.0) ** (_LATE - _EARLY)
    return float(scale / ((k + 1) ** _EARLY * late))
