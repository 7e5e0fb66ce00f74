"""Checks of what a user gives: numbers, arrays, flags, names, shapes and paths; and values in sentences.

Every check takes a value and the name of the parameter. It returns the value in the type that the code
computes with, or raises: a ValueError, or a TypeError for an object of the wrong class. The message says what
must hold, and what was given.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.points import is_finite, read_only

T = TypeVar("T")
Floats: TypeAlias = NDArray[np.float64]

# An array of float64 with more entries cannot be addressed.
_MOST_ENTRIES = 2**60
_LONGEST_QUOTE = 120
_SHORT = reprlib.Repr()
_SHORT.maxstring, _SHORT.maxother = 80, 1000


@final
@dataclass(frozen=True)
class Rule(Generic[T]):
    """What a value must be: in words, and as a function that returns the value, or None if it is not that."""

    must: str
    read: Callable[[Any], T | None]

    def __call__(self, value: object, name: str) -> T:
        """Return the value; raise unless it is what it must be."""
        read = self.read(value)
        if read is None:
            raise ValueError(f"{name} must {self.must}; got {shown(value)}.")
        return read

    def or_none(self, value: object, name: str) -> T | None:
        """Return the value, which may also be None."""
        return None if value is None else Rule(f"{self.must}, or None", self.read)(value, name)


def number(must: str, holds: Callable[[float], bool]) -> Rule[float]:
    """Return the rule for real numbers, Python's or NumPy's, for which ``holds`` is True."""

    def read(value: Any) -> float | None:
        if not isinstance(value, Real) or isinstance(value, bool):
            return None
        try:
            as_float = float(value)
        except OverflowError:
            return None
        return as_float if holds(as_float) else None

    return Rule(must, read)


def whole(least: int, most: int | None = None, meaning: str = "") -> Rule[int]:
    """Return the rule for whole numbers, Python's or NumPy's; ``meaning`` says what ``most`` is."""

    def read(value: Any) -> int | None:
        if not isinstance(value, Integral) or isinstance(value, bool):
            return None
        as_int = int(value)
        return as_int if least <= as_int and (most is None or as_int <= most) else None

    if most is None:
        return Rule(f"be a whole number of at least {least}", read)
    return Rule(f"be a whole number between {least} and {most}{meaning and ', ' + meaning}", read)


def one_of(*names: str, also: tuple[str, ...] = ()) -> Rule[str]:
    """Return the rule for some names; ``also`` says what the caller allows besides."""
    *head, last = *map(repr, names), *also
    return Rule(
        f"be {', '.join(head)} or {last}",
        lambda value: value if isinstance(value, str) and value in names else None,
    )


def _read_path(value: Any) -> Path | None:
    if not isinstance(value, str | os.PathLike) or not (path := os.fspath(value)) or "\0" in str(path):
        return None
    return Path(path)


def _read_shape(value: Any) -> tuple[int, ...] | None:
    sides = (value,) if isinstance(value, Integral) else value
    if not isinstance(sides, tuple | list) or not sides:
        return None
    read = [COUNT.read(side) for side in sides]
    shape = tuple(side for side in read if side is not None)
    return shape if len(shape) == len(sides) and math.prod(shape) <= _MOST_ENTRIES else None


def _read_matrix_shape(value: Any) -> tuple[int, int] | None:
    match _read_shape(value):
        case (rows, columns):
            return rows, columns
    return None


POSITIVE = number("be a positive finite number", lambda x: 0.0 < x < math.inf)
NOT_NEGATIVE = number("be a finite number of at least 0", lambda x: 0.0 <= x < math.inf)
COUNT = whole(1)
SEED = whole(0)
FLAG = Rule("be True or False", lambda value: bool(value) if isinstance(value, bool | np.bool_) else None)
TEXT = Rule("be a text that is not empty", lambda value: value if isinstance(value, str) and value else None)
PATH = Rule("be a path", _read_path)
SHAPE = Rule("be a positive integer or a tuple of them, with at most 2**60 entries", _read_shape)
MATRIX_SHAPE = Rule(
    "be (rows, columns), two positive integers with at most 2**60 entries", _read_matrix_shape
)


def instance(value: Any, kind: type[Any], name: str, must: str) -> Any:
    """Return an object of the class ``kind``; ``must`` says what that is, for example "be a graph"."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must {must}; got {shown(value)}.")
    return value


def function_or_none(value: object, name: str, argument: str) -> None:
    """Raise unless the value is None or can be called; ``argument`` says with what."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be a function of {argument}, or None; got {shown(value)}.")


def takes(function: Any, *arguments: Any) -> bool:
    """Return True if a value is a function that can be called with these arguments."""
    if not callable(function):
        return False
    try:
        signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # a function without a signature, of another language
        pass
    return True


def reals(values: Any, name: str, ndim: int | None = None) -> Floats:
    """Return an array of float64, which may hold NaN; an array of float64 is not copied."""
    array = _unmasked(values, name)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold real numbers; got an array of {array.dtype}.")
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} must be a {_FORMS[ndim]}; got shape {array.shape}.")
    return array.astype(np.float64, copy=False)


def vector(values: Any, name: str) -> Floats:
    """Return a read-only vector of finite numbers; a vector of float64 is not copied."""
    array = reals(values, name, 1)
    finite(array, name)
    return read_only(array.view())


def matrix(values: Any, name: str) -> Any:
    """Return a matrix of finite float64, a csr_array if it is sparse; data in float64 are not copied."""
    if not sp.issparse(values):
        return finite(reals(values, name, 2), name)
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold real numbers; got {shown(values)}.")
    if values.ndim != 2:
        raise ValueError(f"{name} must be a matrix; got shape {values.shape}.")
    return finite(sp.csr_array(values, dtype=np.float64), name)


def indices(values: Any, name: str) -> NDArray[np.intp]:
    """Return a vector of whole numbers."""
    array = _unmasked(values, name)
    if array.ndim != 1 or not (array.dtype.kind in "iu" or array.size == 0):
        raise ValueError(f"{name} must be a vector of integers; got {shown(values)}.")
    return array.astype(np.intp, copy=False)


def finite(array: Any, name: str) -> Any:
    """Return an array or a sparse matrix of float64; raise unless all its numbers are finite."""
    fault = nonfinite(array, name)
    if fault is not None:
        raise ValueError(f"{name} must be finite; {fault}.")
    return array


def nonfinite(array: Any, name: str) -> str | None:
    """Return which entry of an array or a sparse matrix is not finite, or None if all are."""
    entries = np.asarray(array.data if sp.issparse(array) else array)
    if is_finite(entries):
        return None
    bad = np.argwhere(~np.isfinite(entries))
    first = entries[tuple(bad[0])]
    if sp.issparse(array):
        bad = np.column_stack(array.tocoo().coords)[bad[:, 0]]
    where = ", ".join(map(str, bad[0].tolist()))
    return f"{name}[{where}] is {first}" + (f" and {len(bad) - 1} more" if len(bad) > 1 else "")


def shown(value: Any) -> str:
    """Return a value as a message quotes it: short, and in one line."""
    if isinstance(value, np.ndarray) or sp.issparse(value):
        kind = "a sparse matrix" if sp.issparse(value) else "an array"
        return f"{kind} of {value.dtype} and shape {value.shape}"
    try:
        text = _SHORT.repr(value)
    except ValueError:  # an integer with more digits than Python converts
        text = ""
    return text if 0 < len(text) <= _LONGEST_QUOTE and text.isprintable() else f"<{type(value).__name__}>"


def _unmasked(values: Any, name: str) -> NDArray[Any]:
    if np.ma.is_masked(values):
        raise ValueError(f"{name} must have no masked entries; got {shown(values)}. Fill them first.")
    if isinstance(values, bytes | bytearray | memoryview):
        raise ValueError(f"{name} must be an array of numbers; got {shown(values)}.")
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"{name} must be an array with rows of one length; got {shown(values)}.") from None


_FORMS = {1: "vector", 2: "matrix"}


Label: TypeAlias = str | float
"""A class, as the data have it."""


def listed(names: Sequence[str], limit: int = 8) -> str:
    """Return names for a sentence; if there are many, the first ones and the number of the others.

    >>> listed(["age", "dose"])
    "'age', 'dose'"
    """
    first = ", ".join(map(repr, names[:limit]))
    return first if len(names) <= limit else f"{first} and {len(names) - limit} more"


def counted(number: int, what: str) -> str:
    """Return how many there are, in words.

    >>> counted(1, "missing value"), counted(1200, "missing value")
    ('1 missing value', '1,200 missing values')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def in_words(names: Sequence[str]) -> str:
    """Return names for a sentence; those with numbers get one plural.

    >>> in_words(["agent 1"]), in_words(["agent 1", "agent 2", "agent 3"])
    ('agent 1', 'agents 1, 2 and 3')
    >>> in_words(["ulm", "agent 1", "bern"])
    'ulm, agent 1 and bern'
    """
    for kind, plural in (("agent ", "agents "), ("process ", "processes ")):
        if len(names) > 1 and all(name.startswith(kind) for name in names):
            return plural + in_words([name.removeprefix(kind) for name in names])
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def shortened(text: str, most: int = 40) -> str:
    """Return a text for a sentence, without what is beyond its first characters."""
    return text if len(text) <= most else text[:most] + "…"


def label_text(label: Label) -> str:
    """Return a label or a level as a text.

    >>> label_text(2.0), label_text(0.1), label_text("yes")
    ('2', '0.1', 'yes')
    """
    return label if isinstance(label, str) else f"{label:.12g}"
