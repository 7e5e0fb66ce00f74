"""The interface of a feasible set: linear oracle, diameter, violation, starting point, options."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import Any, ClassVar, TypeAlias, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import LinearOperator

from dcgs.atoms import Atom
from dcgs.points import EPS, Point, frozen
from dcgs.projections import ProjectedPoint
from dcgs.validation import finite, number, reals

Direction: TypeAlias = Point | sp.sparray | sp.spmatrix | LinearOperator

ROUNDINGS = 10.0
"""A point of a set violates it by at most this multiple of ε times the magnitude of the set."""
FEASIBLE = 1e-9
"""A user's point may violate the set by this fraction of the diameter, as numbers with few decimals do."""

TOLERANCE = number("be at least 1e-12 and less than 1", lambda x: 1e-12 <= x < 1.0)
"""The tolerance of an iterative oracle; rounding error permits no smaller one."""


@final
@dataclass(frozen=True)
class LowerBound:
    """A lower bound of ⟨direction, x⟩ over a set: ``value`` minus ``error``, the rounding error of value.

    >>> import dcgs, numpy as np
    >>> X, direction = dcgs.L1Ball(2, radius=3.0), np.array([1.0, -2.0])
    >>> X.lower_bound(direction, X.lmo(direction))
    LowerBound(value=-6.0, error=0.0)
    """

    value: float
    error: float = 0.0


class ConvexSet(ABC):
    """A compact convex set, known through its linear minimization oracle (LMO).

    ``polytope`` is True if the set has finitely many extreme points, which pairwise steps need.
    ``cheap_violation`` is True if a violation costs about as much as some passes over the point. Every model
    that is measured is then checked; over other sets, those that a run certifies or returns.

    On the command line a built-in set is called ``name``; a set of another package is called
    ``package.module:Name``. ``options`` lists what ``dcgs fit`` asks for. A set that lists nothing gets an
    option for each argument of its constructor after the shape.

    >>> import dcgs, numpy as np
    >>> X = dcgs.Simplex(3)
    >>> isinstance(X, dcgs.ConvexSet), X.lmo(np.array([2.0, -1.0, 0.0])).dense()
    (True, array([0., 1., 0.]))
    >>> X.violation(np.ones(3)), X.start().round(2)
    (2.0, array([0.33, 0.33, 0.33]))
    """

    name: ClassVar[str] = ""
    options: ClassVar[tuple[Option, ...] | None] = None
    shape: tuple[int, ...]
    polytope: bool = False
    cheap_violation: bool = False

    @property
    @abstractmethod
    def diameter(self) -> float:
        """An upper bound of ‖x − y‖ over x, y in the set; tight unless the class says otherwise."""

    @property
    def magnitude(self) -> float:
        """The size of the numbers in the constraints, by which their rounding error is measured."""
        return self.diameter + largest_entry(self.start())

    @abstractmethod
    def lmo(self, direction: Point, near: Atom | None = None) -> Atom:
        """Return an extreme point s minimizing ⟨direction, s⟩.

        A zero direction gives an extreme point, too. Ties go to the lowest index. ``near`` is an earlier
        answer; an iterative oracle may start from it to save work.
        """

    def lower_bound(self, direction: Point, s: Atom, slack: float = 0.0) -> LowerBound:
        """Return a lower bound of ⟨direction, x⟩ over the set, where s is the answer of the oracle.

        Certificates are made of it. The oracle is exact unless the class says otherwise, and then the bound
        is ⟨direction, s⟩. An iterative oracle may be wrong, or less accurate than the certificate must be.
        Its set bounds the minimum by other means. A bound that is lower than ⟨direction, s⟩ by the slack is
        good enough.
        """
        return LowerBound(s.dot(direction))

    def more(self, direction: Point, level: float, most: int) -> Sequence[Atom]:
        """Return up to ``most`` extreme points s with ⟨direction, s⟩ ≤ level; the best, if there are more.

        Return none if they take more work than one pass over the direction. Points with
        ⟨direction, s⟩ > 0 may be left out.
        """
        return ()

    @abstractmethod
    def violation(self, x: Point) -> float:
        """Return how much x violates the constraints of the set; 0 inside.

        The unit is that of the constraint: excess of the norm, largest excess of an inequality. The caller
        chooses the tolerance.
        """

    @abstractmethod
    def start(self) -> Point:
        """Return the point of the set where a run starts if no x0 is given."""

    def holds(self, x: Point) -> bool:
        """Return True if x is in the set up to rounding error: it violates it by at most 10 ε · magnitude."""
        return self.violation(x) <= ROUNDINGS * EPS * self.magnitude

    def accepts(self, x: Point) -> bool:
        """Return True if x can be x0: the set holds it, or it violates it by at most 1e-9 of the diameter."""
        return self.violation(x) <= FEASIBLE * self.diameter or self.holds(x)

    def restore(self, x: Point) -> Point:
        """Return x itself if the set holds it, or does not accept it; else a point of the set close to x."""
        return x if self.holds(x) or not self.accepts(x) else self.nearby(x)

    def nearby(self, x: Point) -> Point:
        """Return a point of the set close to x, which is outside; x itself if none is found.

        By default it is the first that the set holds on the way from x to its start, in steps that double.
        """
        center = self.start()
        excess = self.violation(x)
        share = EPS if not excess > 0.0 else max(EPS, min(0.5, excess / (self.magnitude or 1.0)))
        while share < 1.0:
            y = x + share * (center - x)
            if self.holds(y):
                return np.asarray(y)
            share *= 2.0
        return center if self.holds(center) else x

    @classmethod
    def from_options(cls, shape: tuple[int, ...], **options: Any) -> ConvexSet:
        """Return the set of points of this shape, made from the options of the command line."""
        make: Any = cls
        made: ConvexSet = make(shape, **options)
        return made

    @classmethod
    def command_options(cls) -> tuple[Option, ...]:
        """Return the options that the command line takes for this set."""
        return options_from_signature(cls) if cls.options is None else cls.options


class ProjectableSet(ConvexSet):
    """A set with an exact Euclidean projection, as ``NIDS``, ``PGExtra`` and ``ProjectedAGD`` need it.

    ``cheap_projection`` is True if a projection costs about as much as some passes over the vector. Inner
    solvers of FastDCGS then project instead of calling the oracle.

    >>> import dcgs, numpy as np
    >>> X = dcgs.NuclearNormBall((2, 2), radius=1.0)
    >>> isinstance(X, dcgs.ProjectableSet), X.project(np.diag([3.0, 0.0])).round(6)
    (True, array([[1., 0.],
           [0., 0.]]))
    """

    cheap_projection: ClassVar[bool] = True

    @abstractmethod
    def project(self, y: Point) -> Point:
        """Return the point of the set that is nearest to y; y itself may be returned if it is inside."""

    def jacobian(self, y: Point) -> NDArray[np.float64] | None:
        """Return the derivative of the projection at y as a matrix of flat points; None if not known."""
        return None


class Ball(ProjectableSet):
    """{x : a norm of x ≤ radius}; a run starts at its center, 0."""

    radius: float

    @property
    def magnitude(self) -> float:
        return self.radius

    def start(self) -> Point:
        return np.zeros(self.shape)

    def nearby(self, x: Point) -> Point:
        return shortened(x, self.radius + self.violation(x), self.radius)


class DiagonallyProjectableSet(ProjectableSet):
    """A set with a projection in every diagonal metric, whose derivative is known.

    >>> import dcgs, numpy as np
    >>> X = dcgs.L1Ball(2, radius=1.0)
    >>> X.project(np.array([2.0, 1.5]))
    array([0.75, 0.25])
    >>> X.projected(np.array([2.0, 1.5]), h=np.array([3.0, 1.0])).point
    array([1., 0.])
    """

    @abstractmethod
    def projected(self, y: Point, h: Point | None = None) -> ProjectedPoint:
        """Return the point with the least Σ hⱼ (xⱼ − yⱼ)², h = 1 if None, and the derivative there."""

    def project(self, y: Point) -> Point:
        return self.projected(y).point


def projects_cheaply(X: ConvexSet) -> bool:
    """Return True if a projection onto the set costs about as much as some passes over the vector."""
    return isinstance(X, ProjectableSet) and X.cheap_projection


def matrix_shape(name: str, shape: tuple[int, ...], square: bool = False) -> tuple[int, int]:
    """Return the shape of a model if it is a matrix, and square if the set must be of such."""
    if len(shape) != 2 or (square and shape[0] != shape[1]):
        must = "square matrices" if square else "matrices"
        raise ValueError(f"the set {name} must be of {must}; the model has shape {shape_text(shape)}.")
    return shape[0], shape[1]


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as the command line writes it, for example 6,4."""
    return ",".join(map(str, shape))


def as_data(values: ArrayLike, name: str) -> Point:
    """Return a read-only copy of the user's numbers; all must be finite.

    −0 becomes 0, since atoms compare by their bytes.
    """
    return frozen(finite(reals(values, name), name) + 0.0)


def largest_entry(x: Point) -> float:
    """Return max |xⱼ|, without a temporary array."""
    return max(float(x.max()), -float(x.min()))


def listed(items: Iterable[object], limit: int = 5) -> str:
    """Return the first items as a list for an error message, with … for the rest."""
    it = iter(items)
    head = [repr(item) for item in islice(it, limit)]
    rest = ["…"] if next(it, None) is not None else []
    return f"[{', '.join(head + rest)}]"


def set_fields(instance: ConvexSet, **values: object) -> None:
    """Set fields of a frozen set; for its ``__init__`` only."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def shortened(x: Point, length: float, radius: float) -> Point:
    """Return a multiple of x of length at most the radius, given the length of x."""
    return x * (radius / length) if length > radius else x


def lowest(values: Point, level: float, most: int) -> list[int]:
    """Return the indices of the lowest ``most`` entries that are ≤ level; ties go to the lowest index."""
    indices = np.flatnonzero(values <= level)
    if len(indices) > most:
        indices = indices[np.argsort(values[indices], kind="stable")[:most]]
    return list(map(int, indices))


class OptionKind(Enum):
    """What the text of an option stands for; ``dcgs.learn.files.specs`` reads it.

    >>> import dcgs
    >>> dcgs.OptionKind.COUNT.value
    'a whole number of at least 1'
    """

    NUMBER = "a positive number"
    FLOAT = "a finite number"
    COUNT = "a whole number of at least 1"
    VALUE = "a number, true, false, none, or any other text"
    BOUND = "a number, or an .npy file with one for each entry"
    GROUPS = "the number of consecutive features in a group, or a file with the name of a group on each line"
    POINTS = "a file of points, one per row"
    CONSTRAINTS = "an .npz file with A_ub and b_ub, A_eq and b_eq, or both pairs"


@final
@dataclass(frozen=True)
class Option:
    """One option of a set: the name of the argument, how its text is read, and what it means.

    >>> import dcgs
    >>> dcgs.Option("k", dcgs.OptionKind.COUNT).help
    'a whole number of at least 1'
    """

    name: str
    kind: OptionKind
    meaning: str = ""
    required: bool = True

    @property
    def help(self) -> str:
        """What to write after the option."""
        return self.meaning or self.kind.value


RADIUS = Option(
    "radius",
    OptionKind.NUMBER,
    "how large a model may be; a larger one fits the data closer and generalizes less",
)
OPTIONAL_RADIUS = replace(RADIUS, required=False)


def options_from_signature(made: type[Any]) -> tuple[Option, ...]:
    """Return an option for each argument that a class takes after the shape."""
    _, *arguments = inspect.signature(made).parameters.values()
    kinds = {"float": OptionKind.FLOAT, "int": OptionKind.COUNT}
    return tuple(
        Option(
            argument.name,
            kinds.get(getattr(argument.annotation, "__name__", str(argument.annotation)), OptionKind.VALUE),
            required=argument.default is argument.empty,
        )
        for argument in arguments
    )
