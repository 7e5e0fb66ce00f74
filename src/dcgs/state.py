"""State of a method or an inner solver: a dataclass that is saved and restored generically.

:func:`to_plain` turns a dataclass into dictionaries, lists, numbers, texts and arrays; :func:`from_plain`
restores the dataclass. Both follow the declared types of the fields. Fields with ``init=False`` are not
saved; ``__post_init__`` recomputes them. A file cannot cause an import or run code.

Supported types: bool, int, float, str, None, an Enum, an array, list, tuple, dict, ``T | None``, a dataclass,
and an abstract class whose subclasses are dataclasses.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, TypeAlias, TypeVar, Union, final, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

Plain: TypeAlias = "bool | int | float | str | NDArray[Any] | list[Plain] | dict[str, Plain] | None"
"""Numbers, texts, None, arrays of numbers, and lists and dictionaries of these."""

T = TypeVar("T")

NUMERIC = "fiub"
"""The kinds of arrays that can be saved: floats, signed and unsigned integers, booleans."""

_SCALARS: dict[Any, Any] = {bool: (bool, np.bool_), int: Integral, float: Real, str: str}


def to_plain(state: object) -> dict[str, Plain]:
    """Return the fields of a dataclass as plain values. Arrays are not copied.

    >>> @dataclass
    ... class State:
    ...     k: int
    ...     weights: tuple[float, ...]
    >>> to_plain(State(3, (0.25, 0.75)))
    {'k': 3, 'weights': [0.25, 0.75]}
    >>> from_plain(State, {'k': 3, 'weights': [0.25, 0.75]})
    State(k=3, weights=(0.25, 0.75))
    """
    kind: Any = type(state)
    plain: dict[str, Plain] = _codec(kind).encode(state)
    return plain


def from_plain(kind: type[T], plain: Plain) -> T:
    """Return the dataclass of this type that :func:`to_plain` was given."""
    hashable: Any = kind
    state: T = _codec(hashable).decode(plain)
    return state


def unsupported(kind: type | UnionType) -> str | None:
    """Return why a state of this type cannot be saved, or None if it can."""
    try:
        for each in get_args(kind) or (kind,):
            _dataclass_codec(each)
    except TypeError as error:
        return str(error)
    return None


@final
class SavedState:
    """A state as plain values. ``restore`` hands its arrays over and keeps no reference to them."""

    def __init__(self, plain: Plain) -> None:
        self._plain = plain

    def restore(self, kind: type[T]) -> T:
        """Return the state. This can be done once."""
        plain, self._plain = self._plain, None
        return from_plain(kind, plain)


@final
@dataclass(frozen=True, eq=False)
class ResumePoint:
    """What one agent resumes from: the last iteration done, and states.

    They are those of the method, of the inner solver, and of what certifies gaps, if there are any.
    """

    iteration: int
    program: SavedState
    inner: SavedState | None = None
    certifier: SavedState | None = None


@final
@dataclass(frozen=True)
class _Codec:
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


@cache
def _codec(kind: Any) -> _Codec:
    """Return how values of the declared type are saved and restored; raise TypeError if they cannot be."""
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if kind in _SCALARS:
        return _checked(_SCALARS[kind], kind.__name__, kind, kind)
    if kind is NoneType:
        return _Codec(lambda value: None, lambda plain: None)
    if origin is np.ndarray:
        return _checked(np.ndarray, "array", _numeric, _numeric)
    if origin in (Union, UnionType) and len(arguments) == 2 and NoneType in arguments:
        each = _codec(next(argument for argument in arguments if argument is not NoneType))
        return _Codec(
            lambda value: None if value is None else each.encode(value),
            lambda plain: None if plain is None else each.decode(plain),
        )
    if origin in (list, tuple, dict) and arguments:
        return _container(origin, arguments)
    if isinstance(origin, type) and issubclass(origin, Enum):
        return _checked(origin, origin.__name__, lambda value: value.name, lambda name: origin[name])
    if inspect.isabstract(kind):
        return _abstract_codec(kind)
    return _dataclass_codec(kind)


def _checked(
    expected: Any, declared: str, encode: Callable[[Any], Any], decode: Callable[[Any], Any]
) -> _Codec:
    def checked(value: Any) -> Any:
        if not isinstance(value, expected):
            raise TypeError(f"its declared type is {declared}; got a {type(value).__name__}")
        return encode(value)

    return _Codec(checked, decode)


def _numeric(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in NUMERIC:
        raise TypeError(f"arrays must hold numbers; got one of {array.dtype}")
    return array


def _container(origin: Any, arguments: tuple[Any, ...]) -> _Codec:
    each = [_codec(argument) for argument in arguments if argument is not Ellipsis]
    if origin is tuple and Ellipsis not in arguments:
        return _Codec(
            lambda value: [one.encode(part) for one, part in zip(each, value, strict=True)],
            lambda plain: tuple(one.decode(part) for one, part in zip(each, plain, strict=True)),
        )
    if origin is dict:
        key, entry = each
        return _Codec(
            lambda value: [[key.encode(name), entry.encode(part)] for name, part in value.items()],
            lambda plain: {key.decode(name): entry.decode(part) for name, part in plain},
        )
    (item,) = each
    return _Codec(
        lambda value: [item.encode(part) for part in value],
        lambda plain: origin(item.decode(part) for part in plain),
    )


def _dataclass_codec(kind: Any) -> _Codec:
    """Return the codec of a dataclass; all fields of ``__init__`` are saved, in their order."""
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise TypeError(
            f"{getattr(kind, '__name__', kind)} cannot be saved: it is neither a dataclass nor a supported "
            "type (bool, int, float, str, None, Enum, array, list, tuple, dict, T | None)"
        )
    each = {}
    for field in (field for field in fields(kind) if field.init):
        try:
            each[field.name] = _codec(get_type_hints(kind)[field.name])
        except (TypeError, NameError) as error:
            raise TypeError(f"field {field.name!r} of {kind.__name__}: {error}") from error

    def encode(value: Any) -> dict[str, Plain]:
        if type(value) is not kind:
            raise TypeError(f"a {kind.__name__} is needed; got a {type(value).__name__}")
        plain = {}
        for name, codec in each.items():
            try:
                plain[name] = codec.encode(getattr(value, name))
            except TypeError as error:
                raise TypeError(f"field {name!r} of {kind.__name__}: {error}") from error
        return plain

    def decode(plain: Any) -> Any:
        if plain.keys() != each.keys():
            raise ValueError(
                f"{kind.__name__} must be what the checkpoint was written with; it has the fields {[*each]}, "
                f"the checkpoint {[*plain]}. Resume with the code that wrote it."
            )
        return kind(**{name: codec.decode(plain[name]) for name, codec in each.items()})

    return _Codec(encode, decode)


def _abstract_codec(kind: type) -> _Codec:
    """Return the codec of an abstract class: the name of the concrete class, and its fields."""

    def encode(value: Any) -> dict[str, Plain]:
        return {"class": _name(type(value)), **to_plain(value)}

    def decode(plain: Any) -> Any:
        name = plain["class"]
        # The last one: a class may have been defined again, and slots=True makes a second class.
        found = [each for each in _subclasses(kind) if _name(each) == name][-1:]
        if not found:
            raise ValueError(
                f"the class {name} of a {kind.__name__} in the checkpoint must be imported to resume; it "
                "is not. Import it first."
            )
        return from_plain(found[0], {key: plain[key] for key in plain if key != "class"})

    return _Codec(encode, decode)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _subclasses(kind: type) -> Iterator[type]:
    each: type
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)
