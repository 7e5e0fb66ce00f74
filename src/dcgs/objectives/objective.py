"""An objective is a smooth loss of a linear image, f(x) = ℓ(A x)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from dcgs.low_rank import LowRank
from dcgs.objectives.losses import CheckedLoss, Image, LogisticLoss, Loss, SquaredLoss, WeightedLoss
from dcgs.objectives.maps import DenseMap, LinearMap, Shape, SparseMap
from dcgs.objectives.sampling import Sampling
from dcgs.points import EPS, Point, norm, read_only
from dcgs.validation import MATRIX_SHAPE, SHAPE, indices, instance, matrix, vector

# The number of entries of images that are computed at a time.
_BLOCK = 1 << 20
# Columns are uneven if the largest curvature is more than this multiple of the median positive one. For one
# sample of a million Gaussian features the ratio is about 50, and smaller for several samples.
_UNEVEN = 100.0


@final
@dataclass(frozen=True, eq=False)
class Objective:
    """f(x) = loss(map x), convex and smooth: the private term of one agent.

    >>> from dcgs.objectives import HuberLoss, matrix_map
    >>> f = Objective(HuberLoss([1.0, -5.0], delta=2.0), matrix_map(np.eye(2)))
    >>> f.value(np.zeros(2)), f.grad(np.zeros(2)), f.smoothness
    (17.0, array([-2.,  4.]), 2.0)
    """

    loss: Loss
    map: LinearMap

    def __post_init__(self) -> None:
        instance(self.loss, Loss, "loss", "be a loss such as dcgs.SquaredLoss(b)")
        instance(self.map, LinearMap, "map", "be a linear map such as dcgs.matrix_map(A)")
        lower, upper = self.loss.curvature
        if not (-math.inf < lower <= upper < math.inf and upper >= 0.0):
            raise ValueError(
                "the curvature of a loss must be finite bounds (lower, upper), lower ≤ upper and upper ≥ 0; "
                f"got {lower!r} and {upper!r} of {type(self.loss).__name__}."
            )
        if self.loss.size != self.map.size:
            raise ValueError(
                f"loss and map must have images of one length; "
                f"the loss has {self.loss.size} entries, the map gives {self.map.size}."
            )

    @property
    def shape(self) -> Shape:
        """The shape of the points f takes."""
        return self.map.shape

    def value(self, x: Point) -> float:
        """Return f(x)."""
        return self.loss.value(self.map.image(x))

    def images(self, points: Point) -> Iterator[NDArray[np.float64]]:
        """Yield the images of all rows, flat points, in blocks of bounded memory."""
        rows = max(1, _BLOCK // self.map.size)
        for start in range(0, len(points), rows):
            yield self.map.images(points[start : start + rows])

    def grad(self, x: Point) -> Point:
        """Return ∇f(x)."""
        return self.map.adjoint(self.loss.grad(self.map.image(x)))

    def grad_noise(self, image: Image) -> float:
        """Return the typical rounding error of ∇f(x), given the image A x, at which inner solvers stop.

        The rounding error of the image counts as far as the loss is curved: not where a Huber loss is linear,
        or a logistic loss nearly so.
        """
        z_error = norm(self.loss.hess(image) * image)
        return EPS * self.map.norm_bound * (norm(self.loss.grad(image)) + z_error)

    def grad_error(self, x: Point | LowRank, image: Image) -> float:
        """Return a bound of the rounding error of ∇f(x), given the image A x, for certificates."""
        z_error = self.loss.hess(image) * (self.map.image_error(x) + EPS * np.abs(image))
        return self.map.adjoint_error(self.loss.grad(image)) + self.map.spread(z_error)

    def value_error(self, x: Point | LowRank, image: Image) -> float:
        """Return a bound of the error of f(x) that the rounding error of the image A x causes."""
        return float(np.abs(self.loss.grad(image)) @ self.map.image_error(x))

    @property
    def smoothness(self) -> float:
        """An l with ‖∇f(x) − ∇f(y)‖ ≤ l ‖x − y‖ for all x, y."""
        return self.loss.curvature[1] * self.map.largest_eigenvalue

    def smoothness_by(self, preconditioner: Point | None) -> float:
        """Return the smoothness in the metric Σ hⱼ xⱼ² of a diagonal preconditioner h."""
        if preconditioner is None:
            return self.smoothness
        return self.loss.curvature[1] * self.map.largest_eigenvalue_by(preconditioner)

    @property
    def mean_curvature(self) -> float:
        """An upper bound of the mean curvature of f over all directions; exact for squares."""
        return self.loss.curvature[1] * self.map.mean_eigenvalue

    @property
    def uneven_curvatures(self) -> Point | None:
        """The curvature of each coordinate if they differ much, else None."""
        curvatures = self.loss.curvature[1] * self.map.column_squares
        positive = curvatures[curvatures > 0.0]
        uneven = positive.size > 0 and float(positive.max()) > _UNEVEN * float(np.median(positive))
        return curvatures if uneven else None

    @property
    def strong_convexity(self) -> float:
        """A u ≥ 0 with f − u/2 ‖·‖² convex; 0 if none is known."""
        lower = self.loss.curvature[0]
        return lower * self.map.smallest_eigenvalue if lower > 0.0 else 0.0

    def data(self) -> dict[str, NDArray[np.float64] | sp.csr_array]:
        """Return the arrays of f, by the names that the user knows."""
        return self.map.data() | self.loss.data()


@final
@dataclass(frozen=True, eq=False)
class Baseline:
    """f at the starting point x⁰, from which decreases are measured, with their rounding errors.

    A decrease is not the difference of two values of f where the loss has a formula that rounds less.

    >>> import dcgs, numpy as np
    >>> f = dcgs.LeastSquares([[1.0], [0.0]], [1.0, 1e9])
    >>> Baseline.at(f, np.zeros(1)).decrease(np.ones(1), np.array([1.0, 0.0]))[0]
    1.0
    >>> f.value(np.zeros(1)) - f.value(np.ones(1))
    0.0
    """

    f: Objective
    image: Image
    error: float

    @classmethod
    def at(cls, f: Objective, x0: Point | LowRank) -> Baseline:
        """Return f at x⁰."""
        image = f.map.image(x0)
        return cls(f, image, f.value_error(x0, image))

    def decrease(self, x: Point | LowRank, image: Image) -> tuple[float, float]:
        """Return f(x⁰) − f(x), given the image A x, and a bound of its rounding error."""
        decrease, error = self.f.loss.decrease(self.image, image)
        return decrease, error + self.error + self.f.value_error(x, image)


def LeastSquares(A: ArrayLike | sp.sparray, b: ArrayLike, shape: int | Shape | None = None) -> Objective:
    """Return ‖A x − b‖², A dense or scipy.sparse.

    ``shape`` lets x be a matrix, flattened in C order; without it x is a vector.

    >>> LeastSquares(np.eye(2), [3.0, 4.0]).value(np.zeros(2))
    25.0
    """
    return _with_rows(matrix_map(A, shape), SquaredLoss(vector(b, "b")), "b")


def Logistic(A: ArrayLike | sp.sparray, labels: ArrayLike, shape: int | Shape | None = None) -> Objective:
    """Return Σ log(1 + exp(−labelᵢ (A x)ᵢ)); labels are ±1, or 0 and 1 (0 then means −1).

    >>> import dcgs, numpy as np
    >>> f = dcgs.Logistic(np.eye(2), [0, 1])
    >>> f.grad(np.zeros(2)), f.smoothness
    (array([ 0.5, -0.5]), 0.25)
    """
    y = vector(labels, "labels")
    if np.isin(y, (0.0, 1.0)).all() and (y == 0.0).any():
        y = 2.0 * y - 1.0
    return _with_rows(matrix_map(A, shape), LogisticLoss(y), "labels")


def MatrixCompletion(
    rows: ArrayLike, cols: ArrayLike, values: ArrayLike, shape: tuple[int, int]
) -> Objective:
    """Return Σ (x[rowsᵢ, colsᵢ] − valuesᵢ)², the squared errors on the observed entries.

    >>> f = MatrixCompletion([0, 1], [1, 0], [2.0, 3.0], shape=(2, 2))
    >>> f.value(np.zeros((2, 2)))
    13.0
    """
    sides = MATRIX_SHAPE(shape, "shape")
    r, c, target = indices(rows, "rows"), indices(cols, "cols"), vector(values, "values")
    if not len(r) == len(c) == len(target):
        raise ValueError(
            f"rows, cols and values must have one length; got {len(r)}, {len(c)} and {len(target)}."
        )
    for name, index, side in (("rows", r, sides[0]), ("cols", c, sides[1])):
        outside = np.flatnonzero((index < 0) | (index >= side))
        if outside.size:
            first = int(outside[0])
            raise ValueError(
                f"{name} must lie in 0 … {side - 1}, for shape {sides}; "
                f"{outside.size} do not, the first is {name}[{first}] = {int(index[first])}."
            )
    return Objective(SquaredLoss(target, name="values"), Sampling(r, c, sides))


def matrix_map(A: Any, shape: int | Shape | None = None) -> LinearMap:
    """Return x ↦ A x for a dense or scipy.sparse matrix; float64 data are not copied.

    A sparse matrix is stored by rows (shared with the user's CSR matrix) and by columns.

    >>> import dcgs, numpy as np, scipy.sparse as sp
    >>> A = dcgs.matrix_map(sp.csr_array([[1.0, 2.0], [0.0, 1.0]]))
    >>> A.image(np.array([1.0, 1.0])), A.adjoint(np.array([1.0, 0.0]))
    (array([3., 1.]), array([1., 2.]))
    """
    checked = matrix(A, "A")
    d = int(checked.shape[1])
    point_shape = SHAPE.or_none(shape, "shape") or (d,)
    if math.prod(point_shape) != d:
        raise ValueError(f"shape must have {d} entries, one per column of A; got {point_shape}.")
    if sp.issparse(checked):
        if not checked.has_canonical_format:
            checked = checked.copy()  # do not change the user's arrays
            checked.sum_duplicates()
        return SparseMap(checked, checked.tocsc(), point_shape)
    # BLAS would copy any other layout at every product.
    checked = checked if checked.flags.forc else np.ascontiguousarray(checked)
    return DenseMap(read_only(checked.view()), point_shape)


def _with_rows(map_: LinearMap, loss: Loss, name: str) -> Objective:
    if map_.size != loss.size:
        raise ValueError(
            f"{name} must have one entry per row of A; A has {map_.size} rows, {name} has {loss.size}."
        )
    return Objective(loss, map_)


def with_checked_loss(f: Objective, agent: int) -> Objective:
    """Return the objective; a loss that is not of this package is checked whenever it answers."""
    loss = f.loss.loss if isinstance(f.loss, WeightedLoss) else f.loss
    if type(loss).__module__.startswith("dcgs."):
        return f
    return Objective(CheckedLoss(f.loss, agent), f.map)
