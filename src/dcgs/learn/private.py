"""Fit a linear model with a promise of privacy: noisy sums of clipped gradients of rows.

Two data sets that differ by one row, of any values, at any site, give what leaves the sites with nearly equal
probabilities: that is (ε, δ)-differential privacy. It holds against all who take part, the root included,
because the sites add the noise before sums are masked. Nothing else that depends on rows leaves a site: the
bounds of columns, which scale them, the levels of categories and the radius are given.

Rows are scaled to |zⱼ| ≤ 1 by the bounds, and to a norm of at most ``row_norm``. The derivative of the loss
of a row is at most 1, in absolute value. So the norm of a row's gradient is at most √(row_norm² + 1), where 1
is for the intercept. It is cut to a share of that, by which a row then changes a sum at most, and to which
the noise is proportional: the fewer rows there are, by their noisy number, the smaller is the share. Steps
are projected gradient steps, whose lengths follow from the norms of the noisy gradients (AdaGrad-Norm: Ward,
Wu, Bottou 2020). The model is the mean of the second half of them. All that is computed from noisy sums
promises the same.

With ``trusted="root"`` the root of the tree reads the totals without noise, and tells the others a vertex of
the ℓ₁ ball in each step, chosen by the exponential mechanism (Frank-Wolfe: Talwar, Thakurta, Zhang 2015). A
row changes each entry of the sum of gradients by at most 1, whatever the number of columns is, so that this
is better with many of them. The promise then holds against all but the root and those who have its memory.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from dcgs.files import atomic_write
from dcgs.learn.linear.design import LinearModel
from dcgs.learn.sites import Rows, Sites
from dcgs.learn.sums import Request, Steps
from dcgs.parallel import blas_threads
from dcgs.secure.noise import SIGMA, discrete_gaussian, epsilon_of, exponential_choice, rho_for
from dcgs.sets import Box, L1Ball, ProductSet
from dcgs.validation import COUNT, POSITIVE, finite, number, one_of, shown, vector

Vector = NDArray[np.float64]

ENOUGH = 50.0
"""With a smaller signal one site alone may have the better model (docs/privacy.md)."""
# The share of the budget that the number of rows takes.
_COUNT_SHARE = 0.01
# Whole numbers in which gradients are summed where a vertex is chosen.
_UNIT = 1 << 20
# The length of a first step, relative to the radius.
_FIRST = 0.25
# Gradients of rows are cut to this share of their largest norm, times the root of the signal.
_CUT = 0.07
# The intercept is in an interval of this half-width beside the radius.
_INTERCEPT = 3.0


@final
@dataclass(frozen=True, eq=False)
class Bounds:
    """The least and the largest value that each column may take, known without looking at the data.

    Values outside are moved onto the bound. ``target`` are those of the target of a lasso, ``labels`` the two
    classes of a logistic regression.
    """

    low: Vector
    high: Vector
    target: tuple[float, float] | None = None
    labels: tuple[Any, Any] | None = None

    def __post_init__(self) -> None:
        low, high = (
            finite(vector(side, name), name) for side, name in ((self.low, "low"), (self.high, "high"))
        )
        if low.shape != high.shape or not (low < high).all():
            raise ValueError(
                "each column must have a lower bound below its upper one; got "
                f"{shown(low.tolist())} and {shown(high.tolist())}."
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def middle(self) -> Vector:
        """The middle between the bounds of each column."""
        return 0.5 * (self.low + self.high)

    @property
    def half(self) -> Vector:
        """Half the distance between the bounds of each column."""
        return 0.5 * (self.high - self.low)

    def scaled(self, A: Any) -> Vector:
        """Return rows in units of the bounds: from −1 to 1."""
        dense = A.toarray() if hasattr(A, "toarray") else np.asarray(A, dtype=np.float64)
        if dense.shape[1] != len(self.low):
            raise ValueError(
                f"there must be bounds for each column; there are {len(self.low)} for {dense.shape[1]} "
                "columns."
            )
        return np.asarray((np.clip(dense, self.low, self.high) - self.middle) / self.half)


@final
@dataclass(frozen=True, eq=False)
class PrivateSpec:
    """What is fitted, and what is promised.

    ``epsilon`` and ``delta`` are those of the whole fit. ``colluders`` is the number of sites that may put
    together what they know: the noise of the others alone is enough. ``row_norm`` None is √features / 3.
    ``trusted`` is ``"nobody"``, or ``"root"`` for Frank-Wolfe steps, in which the intercept counts as a
    feature of the ball. ``steps`` None is 60, or 30 of these.
    """

    loss: Literal["logistic", "squared"]
    radius: float
    bounds: Bounds
    epsilon: float
    delta: float = 1e-6
    steps: int | None = None
    row_norm: float | None = None
    colluders: int = 1
    trusted: Literal["nobody", "root"] = "nobody"

    def __post_init__(self) -> None:
        one_of("logistic", "squared")(self.loss, "loss")
        POSITIVE(self.radius, "radius")
        POSITIVE(self.epsilon, "epsilon")
        number("be between 0 and 1", lambda value: 0.0 < value < 1.0)(self.delta, "delta")
        COUNT.or_none(self.steps, "steps")
        one_of("nobody", "root")(self.trusted, "trusted")
        COUNT(self.colluders, "colluders")
        POSITIVE.or_none(self.row_norm, "row_norm")
        if self.loss == "squared" and self.bounds.target is None:
            raise ValueError(
                "the target of a lasso must have bounds; got none. Give Bounds(low, high, target=…)."
            )

    @property
    def norm(self) -> float:
        """The largest norm of a scaled row, without the intercept."""
        return math.sqrt(len(self.bounds.low)) / 3.0 if self.row_norm is None else self.row_norm

    @property
    def count(self) -> int:
        """The number of steps."""
        return self.steps or (60 if self.trusted == "nobody" else 30)

    @cached_property
    def rho(self) -> float:
        """The whole budget, as zero-concentrated differential privacy."""
        return rho_for(self.epsilon, self.delta)

    @property
    def largest(self) -> float:
        """The largest norm of the gradient of a row, with the intercept."""
        return math.hypot(self.norm, 1.0)

    def scale(self, honest: int, limit: float | None = None) -> _Scale:
        """Return the scale of sums of gradients up to a limit, with the noise of so many sites."""
        share = (1.0 - _COUNT_SHARE) * self.rho / self.count
        return _Scale.of(self.largest if limit is None else limit, len(self.bounds.low) + 1, share, honest)

    def count_scale(self, honest: int) -> _Scale:
        """Return the scale of the number of rows, with the noise of so many sites."""
        return _Scale.of(1.0, 1, _COUNT_SHARE * self.rho, honest)

    def limit(self, number_of_rows: float, honest: int) -> float:
        """Return the norm to which gradients of rows are cut; it follows from the noisy number of rows."""
        signal = ENOUGH * max(1.0, number_of_rows) / self._enough(honest)
        return min(1.0, _CUT * math.sqrt(signal)) * self.largest

    def check_agents(self, agents: int) -> None:
        """Raise unless there are two sites that do not collude: of one, the others know the sum."""
        if self.colluders > agents - 2:
            raise ValueError(
                f"there must be at least two sites that do not collude; got {agents} sites and "
                f"{self.colluders} colluders."
            )

    def enough_rows(self, agents: int) -> float:
        """Return the number of rows of all sites that makes the signal ENOUGH; it follows from no data."""
        size = len(self.bounds.low) + 1
        if (
            self.trusted == "root"
        ):  # a row adds at most 1 to a score, which is to stand out among 2 size others
            return ENOUGH * 2.0 * math.log(2.0 * size) / self.epsilon_of_vertex
        return self._enough(agents - self.colluders)

    def _enough(self, honest: int) -> float:
        """Return the number of rows whose gradients, of the largest norm, make the signal ENOUGH."""
        return ENOUGH * self.scale(honest).deviation * math.sqrt(len(self.bounds.low) + 1) / self.norm

    @property
    def epsilon_of_vertex(self) -> float:
        """ε of each choice of a vertex; the exponential mechanism costs ρ = ε²/8."""
        return math.sqrt(8.0 * (1.0 - _COUNT_SHARE) * self.rho / self.count)


@final
@dataclass(frozen=True, eq=False)
class PrivateFit:
    """A model, and what is promised of it.

    ``rows`` is a noisy number of rows. ``signal`` is it divided by the noise of a mean gradient: with less
    than ENOUGH, one site alone may have the better model (docs/privacy.md). ``agent_bytes`` is
    what each agent of this process sent.
    """

    model: LinearModel
    spec: PrivateSpec
    rows: float
    signal: float
    agent_bytes: NDArray[np.int64]

    @property
    def epsilon(self) -> float:
        """ε of all that left the sites, for the δ of the specification."""
        return epsilon_of(self.spec.rho, self.spec.delta)


@blas_threads(1)
def fit_private(sites: Sites[Rows], spec: PrivateSpec) -> PrivateFit:
    """Return a model of the rows of all sites; targets of classes are −1 and 1. Sums must be masked."""
    network = sites.network
    if not network.secure:
        raise ValueError(
            "the sums of a private fit must be masked, else a neighbor reads a site's own sums, with little "
            "noise; got open ones. Use secure=True, which needs three sites."
        )
    agents = len(network.graph)
    spec.check_agents(agents)
    program = _private_steps if spec.trusted == "nobody" else _vertex_steps
    ((model, number_of_rows),) = network.run(program(sites.data, spec, agents - spec.colluders))
    signal = ENOUGH * max(0.0, number_of_rows) / spec.enough_rows(agents)
    return PrivateFit(model, spec, number_of_rows, signal, network.agent_bytes)


def _private_steps(
    rows: Mapping[int, Rows], spec: PrivateSpec, honest: int
) -> Steps[tuple[LinearModel, float]]:
    local = {i: _scaled(part, spec) for i, part in rows.items()}
    number_of_rows = yield from _noisy_count(local, spec, honest)
    size, most = len(spec.bounds.low) + 1, spec.limit(number_of_rows, honest)
    scale, end = spec.scale(honest, most), spec.radius + _INTERCEPT
    X: Any = ProductSet(L1Ball(size - 1, radius=spec.radius), Box([-end], [end]))
    x, squares, models = np.zeros(size), 0.0, []
    for _ in range(spec.count):
        gradients = {i: _cut_gradient(spec.loss, A, b, x, most) for i, (A, b) in local.items()}
        (total,) = yield Request("noisy sum of gradients", scale.noisy(gradients), "integers")
        g = scale.read(total)
        squares += float(g @ g)
        x = X.project(x - _FIRST * spec.radius / math.sqrt(squares) * g)
        models.append(x)
    x = np.mean(models[len(models) // 2 :], axis=0)
    return _model(x, spec), number_of_rows


def _vertex_steps(
    rows: Mapping[int, Rows], spec: PrivateSpec, honest: int
) -> Steps[tuple[LinearModel, float]]:
    local = {i: _scaled(part, spec, math.inf) for i, part in rows.items()}
    number_of_rows = yield from _noisy_count(local, spec, honest)
    x, models = np.zeros(len(spec.bounds.low) + 1), []
    # A row changes an integer by at most _UNIT, and its rounding by 1.
    scale = math.ceil(2.0 * (_UNIT + 1.0) / spec.epsilon_of_vertex)

    def chosen(totals: Sequence[Vector]) -> Sequence[Vector]:
        g = totals[0].astype(np.int64)
        return [np.array([float(exponential_choice(np.concatenate([-g, g]), scale))])]

    for t in range(spec.count):
        sums = {i: [np.rint(_UNIT * (A.T @ _slope(spec.loss, A @ x, b)))] for i, (A, b) in local.items()}
        (choice,) = yield Request("vertex, by the sum of gradients", sums, "integers", answer=chosen)
        side, place = divmod(int(choice[0]), len(x))
        x = (1.0 - 2.0 / (t + 2.0)) * x
        x[place] += 2.0 / (t + 2.0) * spec.radius * (1.0 - 2.0 * side)
        models.append(x)
    return _model(np.mean(models[len(models) // 2 :], axis=0), spec), number_of_rows


def _noisy_count(local: Mapping[int, tuple[Vector, Vector]], spec: PrivateSpec, honest: int) -> Steps[float]:
    count = spec.count_scale(honest)
    numbers = {i: np.array([float(len(A))]) for i, (A, _) in local.items()}
    (total,) = yield Request("noisy number of rows", count.noisy(numbers), "integers")
    return float(count.read(total)[0])


def _slope(loss: str, z: Vector, b: Vector) -> Vector:
    """Return the derivative of the loss of each row, which is at most 1 in absolute value."""
    if loss == "squared":
        return np.clip(z - b, -1.0, 1.0)  # of the Huber loss: large residuals count linearly
    return np.asarray(-b / (1.0 + np.exp(np.minimum(b * z, 700.0))))


def _cut_gradient(loss: str, A: Vector, b: Vector, x: Vector, most: float) -> Vector:
    """Return the sum of the gradients of rows, each cut to a norm of ``most``."""
    slopes = _slope(loss, A @ x, b)
    norms = np.abs(slopes) * np.linalg.norm(A, axis=1)
    return np.asarray(A.T @ (slopes * np.minimum(1.0, most / np.maximum(norms, most))))


def _scaled(rows: Rows, spec: PrivateSpec, most: float | None = None) -> tuple[Vector, Vector]:
    """Return rows in units of the bounds, of bounded norm, with a column of ones; and their targets."""
    if rows.weights is not None:
        raise ValueError("rows of a private fit must count once each; got weights. Leave them out.")
    Z = spec.bounds.scaled(rows.A)
    norms = np.linalg.norm(Z, axis=1)
    most = spec.norm if most is None else most
    if math.isfinite(most):
        Z *= np.minimum(1.0, most / np.maximum(norms, most))[:, None]
    b = rows.targets
    if spec.bounds.target is not None and spec.loss == "squared":
        low, high = spec.bounds.target
        b = (np.clip(b, low, high) - 0.5 * (low + high)) / (0.5 * (high - low))
    return np.column_stack([Z, np.ones(len(Z))]), b


def _model(x: Vector, spec: PrivateSpec) -> LinearModel:
    """Return the model in the units of the columns and of the target."""
    coef, intercept = x[:-1] / spec.bounds.half, float(x[-1])
    if spec.loss == "squared":
        assert spec.bounds.target is not None
        low, high = spec.bounds.target
        coef, intercept = coef * 0.5 * (high - low), intercept * 0.5 * (high - low) + 0.5 * (low + high)
    return LinearModel(coef, intercept - float(spec.bounds.middle @ coef))


@final
@dataclass(frozen=True)
class _Scale:
    """How real sums become integers to which noise is added: multiplied by ``factor`` and rounded.

    ``deviation`` is that of the noise of all honest sites, in the units of the sums.
    """

    factor: float
    deviation: float

    @classmethod
    def of(cls, sensitivity: float, size: int, rho: float, honest: int) -> _Scale:
        """Return the scale at which sums of this sensitivity, with the noise of so many sites, cost ρ.

        Rounding adds at most √size to the change that one row makes.
        """
        factor = (SIGMA * math.sqrt(2.0 * honest * rho) - math.sqrt(size)) / sensitivity
        return cls(factor, SIGMA * math.sqrt(honest) / factor)

    def noisy(self, sums: Mapping[int, Vector]) -> dict[int, Sequence[Vector]]:
        """Return the integers of each agent of this process, with noise."""
        return {
            i: [np.rint(self.factor * local) + discrete_gaussian(len(local))] for i, local in sums.items()
        }

    def read(self, total: Vector) -> Vector:
        """Return a sum in its own units."""
        return np.asarray(total / self.factor)


@final
@dataclass(frozen=True)
class PrivacyBudget:
    """What has been promised of one site's data so far, in a JSON file, and the most that may be.

    Budgets of several fits add up as zero-concentrated differential privacy.
    """

    path: Path
    epsilon: float
    delta: float

    @classmethod
    def at(cls, path: Path, epsilon: float, delta: float, most: float | None = None) -> PrivacyBudget:
        """Return the budget in a file, or a new one for a fit of this ε; of ``most``, if that is given."""
        if not path.exists():
            return cls(path, epsilon if most is None else most, delta)
        kept = json.loads(path.read_text())
        if most is not None and most != kept["epsilon"]:
            raise ValueError(
                f"the privacy budget of {path} must not be changed by a fit; it is {kept['epsilon']:g}, got "
                f"{most:g}. Who answers for the data may write another into the file."
            )
        return cls(path, float(kept["epsilon"]), float(kept["delta"]))

    def check(self, rho: float) -> tuple[float, list[dict[str, Any]]]:
        """Return the ε of all fits so far and one that costs ρ, and these fits; raise if it is too much."""
        spent: list[dict[str, Any]] = json.loads(self.path.read_text())["spent"] if self.path.exists() else []
        epsilon = epsilon_of(math.fsum([rho, *(float(entry["rho"]) for entry in spent)]), self.delta)
        if epsilon > self.epsilon * (1.0 + 1e-9):
            before = epsilon_of(math.fsum(float(entry["rho"]) for entry in spent), self.delta)
            raise ValueError(
                f"the privacy budget of {self.path} must not be exceeded: ε is {self.epsilon:g} (δ = "
                f"{self.delta:g}), {before:.4g} of it is spent by {len(spent)} fits, and this one would "
                f"make it {epsilon:.4g}. Ask for a smaller epsilon, or use the model that there is."
            )
        return epsilon, spent

    def spend(self, rho: float, name: str) -> float:
        """Write down that a fit costs ρ, before anything leaves; return the ε of all fits so far.

        Raise if that is more than the budget: nothing is written then. Two fits at a time are in order.
        """
        with _alone(self.path):
            epsilon, spent = self.check(rho)
            self._write([*spent, {"fit": name, "rho": rho}])
        return epsilon

    def _write(self, entries: Sequence[Mapping[str, Any]]) -> None:
        given = {"epsilon": self.epsilon, "delta": self.delta, "spent": entries}
        atomic_write(self.path, json.dumps(given, indent=2).encode())


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait for other processes that spend a budget in this folder."""
    if os.name != "posix":
        yield
        return
    import fcntl

    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
