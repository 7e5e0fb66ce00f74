"""The diagonal preconditioner of FastDCGS: agents agree on it if the columns of the data differ much.

In text some columns have ten thousand times the curvature of others. One η for all coordinates is then too
small for some and too large for the rest.
"""

from __future__ import annotations

import numpy as np

from dcgs.points import Point

# The smallest entry of the preconditioner, as a share of the largest: no data may have that column.
_LEAST = 1e-12
# The smallest entry of the one for sums of even columns, as a share of the mean. From 0.02 to 0.5 it makes
# little difference on the sparse Lassos of `dcgs bench growth`.
_LEAST_EVEN = 0.1


def summed_preconditioner(curvature: Point, uneven: bool) -> Point:
    """Return the diagonal for steps along sums, given the sum of all agents' curvatures.

    Where columns are even, a coordinate of which agents have little data gets the least weight, as its
    columns overlap with others.
    """
    h = curvature / (curvature.mean() or 1.0)
    return np.asarray(np.maximum(h, _LEAST * float(h.max()) or 1.0 if uneven else _LEAST_EVEN))


def as_preconditioner(largest: Point) -> Point:
    """Return the diagonal, given the largest curvature of each coordinate over all agents that sent theirs.

    An agent whose columns are even sends none. A coordinate of which only such agents have data gets the
    median: with a far smaller weight, their objectives would be far from smooth in this metric.
    """
    filled = np.where(largest > 0.0, largest, np.median(largest[largest > 0.0]))
    h = filled / filled.mean()
    return np.asarray(np.maximum(h, _LEAST * float(h.max())))
