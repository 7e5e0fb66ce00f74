"""The path of radii: the error of each radius on rows that were held out."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.curves import pyplot
from dcgs.validation import one_of

RULE = one_of("best", "one_standard_error")
SAME = 0.01
"""Errors that differ by less than this share of their standard error are equal: models are found to a gap."""
CLEARLY = 1.0
"""An error is clearly less than that of no model by this number of standard errors of their difference."""
_SURE, _AS_GOOD = 2.0, 0.25
"""Below this number the evidence for a model is weak. The least error is then no guide to the radius, and any
smaller one will do whose error is larger by at most this share of the standard error of that difference."""


@final
@dataclass(frozen=True)
class PathPoint:
    """One radius: the mean loss on held-out rows with its standard error, and the size of the model.

    ``loss`` is the mean loss on the rows trained on. ``features`` is the number of nonzero coefficients, or
    the rank of a matrix; a mean over folds. ``paired_error`` is the standard error of the difference from the
    error of no model, which is smaller than both standard errors: the rows are the same.

    >>> import dcgs
    >>> dcgs.PathPoint(radius=2.0, error=1.1, standard_error=0.2, loss=0.9, features=3).radius
    2.0
    """

    radius: float
    error: float
    standard_error: float
    loss: float
    features: float
    paired_error: float = 0.0

    def is_as_good_as(self, larger: PathPoint, null: PathPoint, enough: float) -> bool:
        """Return True if this model explains nearly all, and one of larger radius is not clearly better.

        With ``enough`` 0 there is no such rule: losses may then be negative, and have no share. The model
        leaves less than the share ``enough`` of the loss of no model on the rows trained on. On the rows held
        out it does so too, or its error exceeds the other by at most both standard errors together, which
        bound that of the difference.
        """
        explains = enough > 0.0 and self.loss < enough * null.loss
        differs = self.error - larger.error > self.standard_error + larger.standard_error
        return explains and (self.error < enough * null.error or not differs)


@final
@dataclass(frozen=True, eq=False)
class RadiusPath:
    """Radii in increasing order with their errors on held-out rows, and what finding them cost.

    ``null`` is the point of radius 0: no model but an intercept. ``stopped`` says why there is no larger
    radius. ``models`` are the points that ``minimize`` or Newton steps found, for each radius one per fold.
    ``size`` says what ``features`` of the points count: features, or the rank of a matrix. With a share
    ``enough`` above 0 the best radius is the smallest that :meth:`PathPoint.is_as_good_as` the others.
    ``ran_out`` are radii whose models ran out of steps: the path has no points for them, unless it has no
    other ones. ``gap`` is, for ratings, that of the best model at which its held-out error falls no more.

    >>> import dcgs, networkx as nx, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> A = rng.standard_normal((3, 60, 8))
    >>> b = A @ [3.0, -2.0, 0, 0, 0, 0, 0, 0] + rng.standard_normal((3, 60))
    >>> train = {i: dcgs.LeastSquares(A[i, :40], b[i, :40]) for i in range(3)}
    >>> held_out = {i: dcgs.LeastSquares(A[i, 40:], b[i, 40:]) for i in range(3)}
    >>> found = dcgs.path(dcgs.Fold(train, held_out), lambda r: dcgs.L1Ball(8, r), nx.path_graph(3))
    >>> found.best.error < found.null.error, found.folds
    (True, 1)
    >>> list(found.to_frame().columns)
    ['radius', 'error', 'standard_error', 'loss', 'features', 'paired_error']
    """

    points: tuple[PathPoint, ...]
    null: PathPoint
    rounds: int
    bytes: int
    folds: int
    stopped: str
    models: tuple[tuple[Any, ...], ...] = field(repr=False)
    size: str = "features"
    enough: float = 0.0
    ran_out: tuple[float, ...] = ()
    gap: float = math.nan

    @property
    def _least(self) -> PathPoint:
        """The point with the smallest error."""
        return min(self.points, key=lambda point: point.error)

    @property
    def best(self) -> PathPoint:
        """The smallest radius with the smallest error on held-out rows, up to 1 % of its standard error.

        If that error is less than the one of no model by less than two standard errors of their difference,
        it is the smallest radius whose error is larger by at most a quarter of such a standard error.

        The loss of classes that can be separated falls to 0 as the radius grows. Once a model of classes
        leaves less than 1 % of the loss on the rows trained on, a larger radius must be clearly better.
        """
        least = self._least
        most = least.error + SAME * least.standard_error
        if self.null.error - least.error < _SURE * least.paired_error:
            most = max(most, least.error + _AS_GOOD * least.paired_error)
        as_good = (
            p for p in self.points if p.error <= most or p.is_as_good_as(least, self.null, self.enough)
        )
        return next(as_good, least)

    @property
    def one_standard_error(self) -> PathPoint:
        """The smallest radius whose error exceeds the best by at most the standard error of the best."""
        most = self.best.error + self.best.standard_error
        return next((point for point in self.points if point.error <= most), self.best)

    @property
    def needs_no_model(self) -> bool:
        """Whether the point of no model is as good as the one with the smallest error.

        That one must be better by :data:`CLEARLY` standard errors of their difference, since the least of
        many errors is too small by chance. It is False if no row was held out.
        """
        return self.null.error <= self._least.error + CLEARLY * self._least.paired_error

    def chosen(self, rule: str) -> PathPoint:
        """Return the point that a rule takes: ``"best"``, or ``"one_standard_error"``."""
        return self.best if RULE(rule, "rule") == "best" else self.one_standard_error

    def model(self, point: PathPoint) -> Any:
        """Return the model of the first fold at a point of the path."""
        return self.models[self.points.index(point)][0]

    def columns(self) -> dict[str, NDArray[np.float64]]:
        """Return the table of the path as arrays, one entry for each radius."""
        names = list(asdict(self.null))
        return {name: np.array([getattr(point, name) for point in self.points]) for name in names}

    def to_frame(self) -> Any:
        """Return the table of the path as a pandas data frame."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    def to_dict(self) -> dict[str, Any]:
        """Return the path as values that JSON takes."""
        return {
            "points": [asdict(point) for point in self.points],
            "null": asdict(self.null),
            "best_radius": self.best.radius,
            "one_standard_error_radius": self.one_standard_error.radius,
            "rounds": self.rounds,
            "bytes": self.bytes,
            "folds": self.folds,
            "size": self.size,
            "stopped": self.stopped,
            "needs_no_model": self.needs_no_model,
            "ran_out": list(self.ran_out),
            "gap": None if math.isnan(self.gap) else self.gap,
        }

    def to_json(self) -> str:
        """Return the path as JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def plot(self, axes: Any = None) -> Any:
        """Draw error and number of features against the radius; return the Matplotlib axes of the error."""
        axes = pyplot().subplots(figsize=(7.0, 4.2), layout="constrained")[1] if axes is None else axes
        table = self.columns()
        axes.errorbar(
            table["radius"], table["error"], table["standard_error"], marker="o", capsize=3, label="held out"
        )
        axes.plot(table["radius"], table["loss"], linestyle=":", label="trained on")
        for point, style, label in (
            (self.best, "-", f"best, {self.best.radius:.3g}"),
            (self.one_standard_error, "--", f"one standard error, {self.one_standard_error.radius:.3g}"),
        ):
            axes.axvline(point.radius, color="0.5", linestyle=style, linewidth=1.0, label=label)
        axes.set(xscale="log", xlabel="radius", ylabel="mean loss per row")
        axes.legend(loc="upper center")
        counts = axes.twinx()
        counts.plot(table["radius"], table["features"], color="tab:green", alpha=0.6)
        counts.set_ylabel(f"{self.size} of the model", color="tab:green")
        return axes

    def __str__(self) -> str:
        best, count = self.best, len(self.points)
        error = f"held-out loss {best.error:.4g} ± {best.standard_error:.2g}; {self.null.error:.4g} without"
        if math.isnan(best.error):
            sentence = (
                f"nothing could be held out, so that radius {best.radius:.4g} was taken without an error."
            )
        elif self.needs_no_model:
            less = "offsets alone are" if self.size == "rank" else "a model without features is"
            sentence = f"{less} as good as radius {best.radius:.4g}, the best of {count} ({error} a model)."
        else:
            within = f"{self.one_standard_error.radius:.4g} is within one standard error."
            sentence = f"radius {best.radius:.4g} is best ({error} a model); {within}"
        return f"{sentence} {count} radii, {self.rounds} rounds; {self.stopped}."


def from_sums(radius: float, sums: Sequence[float], loss: float, features: float) -> PathPoint:
    """Return a point from the sums that :meth:`Fold.held_out_sums` returns."""
    weight, total, squares, differences = sums
    if weight <= 0.0:
        return PathPoint(radius, math.nan, math.nan, loss, features, math.nan)
    mean, paired = total / weight, math.sqrt(differences) / weight
    variance = max(0.0, squares / weight - mean**2)
    return PathPoint(radius, mean, math.sqrt(variance / weight), loss, features, paired)
