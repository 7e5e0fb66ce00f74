"""State of a method or an inner solver: a dataclass that is saved and restored generically.

:func:`to_plain` turns a dataclass into dictionaries, lists, numbers, texts and arrays; :func:`from_plain`
restores the dataclass. Both follow the declared types of the fields. Fields with ``init=False`` are not
saved; ``__post_init__`` recomputes them. A file cannot cause an import or run code.

Supported types: bool, int, float, str, None, an Enum, an array, list, tuple, dict, unions, a dataclass, and
an abstract class whose subclasses are dataclasses.

A file that people or other versions may have written is read with ``lenient=True``: a field with a default
may be missing, others that are there are ignored, a dictionary may be one of JSON, and every value is checked
against its declared type.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache, partial
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

_LONGEST = 1 << 63
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


def from_plain(kind: type[T], plain: Plain, lenient: bool = False) -> T:
    """Return the dataclass of this type that :func:`to_plain` was given.

    >>> @dataclass
    ... class Fit:
    ...     rounds: int
    ...     radius: float | str = "auto"
    >>> from_plain(Fit, {"rounds": 3, "other": 5}, lenient=True)
    Fit(rounds=3, radius='auto')
    >>> from_plain(Fit, {"rounds": "x"}, lenient=True)
    Traceback (most recent call last):
    TypeError: field 'rounds' of Fit: its declared type is int; got 'x'
    """
    hashable: Any = kind
    state: T = _codec(hashable, lenient).decode(plain)
    return state


def unsupported(kind: type | UnionType) -> str | None:
    """Return why a state of this type cannot be saved, or None if it can."""
    try:
        for alternative in get_args(kind) or (kind,):
            _dataclass_codec(alternative)
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
def _codec(kind: Any, lenient: bool = False) -> _Codec:
    """Return how values of the declared type are saved and restored; raise TypeError if they cannot be."""
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if kind in _SCALARS:
        return _checked(_SCALARS[kind], kind.__name__, kind, _strict(kind) if lenient else kind)
    if kind is NoneType:
        return _Codec(lambda value: None, lambda plain: None)
    if origin is np.ndarray:
        return _checked(np.ndarray, "array", _numeric, _numeric)
    if origin in (Union, UnionType):
        return _union(arguments, lenient)
    if origin in (list, tuple, dict) and arguments:
        return _container(origin, arguments, lenient)
    if isinstance(origin, type) and issubclass(origin, Enum):
        return _checked(origin, origin.__name__, lambda value: value.name, lambda name: origin[name])
    if inspect.isabstract(kind):
        return _abstract_codec(kind)
    return _dataclass_codec(kind, lenient)


def _checked(
    expected: Any, declared: str, encode: Callable[[Any], Any], decode: Callable[[Any], Any]
) -> _Codec:
    def checked(value: Any) -> Any:
        if not isinstance(value, expected):
            raise TypeError(f"its declared type is {declared}; got a {type(value).__name__}")
        return encode(value)

    return _Codec(checked, decode)


def _strict(kind: type) -> Callable[[Any], Any]:
    """Return the function that restores a number or a text only if it is one; a flag is no number."""

    def decode(plain: Any) -> Any:
        is_flag = isinstance(plain, bool)
        is_long = isinstance(plain, int) and abs(plain) >= _LONGEST
        if not isinstance(plain, _SCALARS[kind]) or (is_flag and kind is not bool) or is_long:
            raise TypeError(f"its declared type is {kind.__name__}; got {plain!r}")
        return kind(plain)

    return decode


def _union(arguments: tuple[Any, ...], lenient: bool) -> _Codec:
    """Return the codec of a union: None, or the first of the others that a value is of."""
    others = [argument for argument in arguments if argument is not NoneType]
    if len(others) == 1:
        of_value = _codec(others[0], lenient)
        return _Codec(
            lambda value: None if value is None else of_value.encode(value),
            lambda plain: None if plain is None else of_value.decode(plain),
        )
    codecs = [_codec(other, True) for other in others]  # each must know its own values

    def first(values: list[Callable[[], Any]]) -> Any:
        for value in values[:-1]:
            try:
                return value()
            except (TypeError, ValueError, AttributeError, KeyError):
                continue
        return values[-1]()

    def of_first(name: str) -> Callable[[Any], Any]:
        def convert(value: Any) -> Any:
            if value is None and NoneType in arguments:
                return None
            return first([partial(getattr(codec, name), value) for codec in codecs])

        return convert

    return _Codec(of_first("encode"), of_first("decode"))


def _numeric(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in NUMERIC:
        raise TypeError(f"arrays must hold numbers; got one of {array.dtype}")
    return array


def _container(origin: Any, arguments: tuple[Any, ...], lenient: bool) -> _Codec:
    codecs = [_codec(argument, lenient) for argument in arguments if argument is not Ellipsis]
    if origin is tuple and Ellipsis not in arguments:
        return _Codec(
            lambda value: [codec.encode(part) for codec, part in zip(codecs, value, strict=True)],
            lambda plain: tuple(codec.decode(part) for codec, part in zip(codecs, plain, strict=True)),
        )
    if origin is dict:
        key, entry = codecs
        return _Codec(
            lambda value: [[key.encode(name), entry.encode(part)] for name, part in value.items()],
            lambda plain: {
                key.decode(name): entry.decode(part)
                for name, part in (plain.items() if isinstance(plain, dict) else plain)
            },
        )
    (item,) = codecs

    def items(plain: Any) -> Any:
        if lenient and not isinstance(plain, list | tuple):
            raise TypeError(f"its declared type is {origin.__name__}; got {plain!r}")
        return origin(item.decode(part) for part in plain)

    return _Codec(lambda value: [item.encode(part) for part in value], items)


def _dataclass_codec(kind: Any, lenient: bool = False) -> _Codec:
    """Return the codec of a dataclass; all fields of ``__init__`` are saved, in their order."""
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise TypeError(
            f"{getattr(kind, '__name__', kind)} cannot be saved: it is neither a dataclass nor a supported "
            "type (bool, int, float, str, None, Enum, array, list, tuple, dict, T | None)"
        )
    codecs = {}
    for field in (field for field in fields(kind) if field.init):
        try:
            codecs[field.name] = _codec(get_type_hints(kind)[field.name], lenient)
        except (TypeError, NameError) as error:
            raise TypeError(f"field {field.name!r} of {kind.__name__}: {error}") from error

    def encode(value: Any) -> dict[str, Plain]:
        if type(value) is not kind:
            raise TypeError(f"a {kind.__name__} is needed; got a {type(value).__name__}")
        plain = {}
        for name, codec in codecs.items():
            try:
                plain[name] = codec.encode(getattr(value, name))
            except TypeError as error:
                raise TypeError(f"field {name!r} of {kind.__name__}: {error}") from error
        return plain

    def decode_leniently(plain: Any) -> Any:
        if not isinstance(plain, dict):
            raise TypeError(f"a {kind.__name__} is needed; got {plain!r}")
        fields = {}
        for name in codecs.keys() & plain.keys():
            try:
                fields[name] = codecs[name].decode(plain[name])
            except (TypeError, ValueError, OverflowError) as error:
                raise TypeError(f"field {name!r} of {kind.__name__}: {error}") from error
        return kind(**fields)

    def decode(plain: Any) -> Any:
        if plain.keys() != codecs.keys():
            raise ValueError(
                f"{kind.__name__} must be what the checkpoint was written with; it has the fields "
                f"{[*codecs]}, the checkpoint {[*plain]}. Resume with the code that wrote it."
            )
        return kind(**{name: codec.decode(plain[name]) for name, codec in codecs.items()})

    return _Codec(encode, decode_leniently if lenient else decode)


def _abstract_codec(kind: type) -> _Codec:
    """Return the codec of an abstract class: the name of the concrete class, and its fields."""

    def encode(value: Any) -> dict[str, Plain]:
        return {"class": _name(type(value)), **to_plain(value)}

    def decode(plain: Any) -> Any:
        name = plain["class"]
        # The last one: a class may have been defined again, and slots=True makes a second class.
        classes = [subclass for subclass in _subclasses(kind) if _name(subclass) == name][-1:]
        if not classes:
            raise ValueError(
                f"the class {name} of a {kind.__name__} in the checkpoint must be imported to resume; it "
                "is not. Import it first."
            )
        return from_plain(classes[0], {key: plain[key] for key in plain if key != "class"})

    return _Codec(encode, decode)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _subclasses(kind: type) -> Iterator[type]:
    subclass: type
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
