"""The fingerprint of one agent's run: what must be the same for a checkpoint to be resumed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, cached_property, partial
from importlib.metadata import version
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from dcgs.methods.base import Agent, Method
from dcgs.network import Network
from dcgs.points import Point

Fingerprint: TypeAlias = dict[str, str]
"""Texts to compare, by the name under which a user knows them."""

_LONGEST = 300
_CODED, _KEY = 1 << 16, bytes(range(32))
_HASH = re.compile(r" ?\[[0-9a-f]{16}\]$")


def fingerprint(agent: Agent, method: Method, network: Network, seed: int) -> Fingerprint:
    """Return the fingerprint of one agent's part of a run; data are in it as hashes only."""
    return {
        "dcgs": version("dcgs"),
        "number of agents": str(len(network)),
        "method": settings_of(method),
        "schedule": method.schedule_fingerprint(agent.facts),
        "set": settings_of(agent.X),
        "graph": _hashed(f"{len(network)} nodes and {network.edges} edges", network.neighbors),
        "seed": str(seed),
        "x0": _hashed("", agent.x0 if agent.low_rank_start is None else agent.low_rank_start),
        "data": _hashed(f"{type(agent.f.loss).__name__}, {type(agent.f.map).__name__}", agent.f),
        "certifies a gap": "yes" if agent.target is not None else "no",
    }


def difference(i: int, saved: Mapping[str, Any], here: Fingerprint) -> str | None:
    """Return a sentence about the first entry that differs, or None if none does."""
    for name, value in here.items():
        was = saved.get(name)
        if was == value:
            continue
        if name == "data":
            return f"the data of agent {i} differ: {was} in the checkpoint, {value} in this run."
        if name == "schedule":
            return (
                "the schedule depends on the limits of the run, and they differ: the checkpoint was made "
                f"with {was}, the run has {value}. Give the same iterations, rounds and gap, or a schedule "
                "with a horizon."
            )
        texts = [_HASH.sub("", str(text)) for text in (was, value)]
        was, value = texts if texts[0] != texts[1] else (was, value)
        return f"it was made with {name} {was}, the run has {value}."
    return None


@cache
def library_versions() -> dict[str, str]:
    """Return the versions of libraries that the last bits of results may depend on."""
    return {name: version(name) for name in ("numpy", "scipy")}


def settings_of(thing: object) -> str:
    """Return a description of a method or a set with a short hash of all its settings."""
    return _hashed(described(thing), thing)


def described(thing: object) -> str:
    """Return the repr without memory addresses, which differ between runs, cut to a limited length.

    The default repr of a class shows no settings; the attributes are written instead.
    """
    if type(thing).__repr__ is object.__repr__:
        settings = ", ".join(f"{name}={value!r}" for name, value in _attributes(thing).items())
        text = f"{type(thing).__name__}({settings})"
    else:
        text = repr(thing)
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", text)
    text = re.sub(r"\s+", " ", text)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _hashed(text: str, thing: object) -> str:
    """Return a description with a short hash of all that the thing holds.

    Of long arrays it hashes a code of 16 bytes, which takes far less time: Poly1305 with a known key finds
    every difference that nobody made on purpose.
    """
    from cryptography.hazmat.primitives.poly1305 import Poly1305

    digest = hashlib.sha256()
    for piece in _pieces(thing, ()):
        digest.update(piece if len(piece) < _CODED else Poly1305.generate_tag(_KEY, piece))
    return f"{text} [{digest.hexdigest()[:16]}]".strip()


def _pieces(thing: Any, inside: tuple[int, ...]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of all that the thing holds: arrays, numbers, texts, functions, and objects of these.

    ``inside`` are the ids of the objects that hold it. Raise TypeError for what cannot be compared.
    """
    yield type(thing).__name__.encode()
    if id(thing) in inside:
        return
    if isinstance(thing, np.ndarray) and not thing.dtype.hasobject:
        yield f"{thing.dtype.str}{thing.shape}".encode()
        yield from _entries(thing)
    elif isinstance(thing, _PLAIN):
        yield repr(thing).encode()
    elif isinstance(thing, type):
        yield f"{thing.__module__}.{thing.__qualname__}".encode()
    elif isinstance(thing, Enum):
        yield thing.name.encode()
    else:
        parts = _parts(thing)
        yield str(len(parts)).encode()
        for part in parts:
            yield from _pieces(part, (*inside, id(thing)))


_PLAIN = (bool, int, float, complex, str, bytes, range, slice, np.generic, np.dtype, type(None), type(...))


def _parts(thing: Any) -> list[Any]:
    """Return all values that an object holds, in an order that is the same in every run."""
    match thing:
        case list() | tuple():
            return list(thing)
        case Mapping():
            return [part for item in thing.items() for part in item]
        case set() | frozenset():
            return sorted(_hashed("", item) for item in thing)
        case FunctionType():
            cells = [cell.cell_contents for cell in thing.__closure__ or ()]
            return [thing.__qualname__, thing.__code__, thing.__defaults__, thing.__kwdefaults__, cells]
        case CodeType():
            return [thing.co_code, thing.co_consts, thing.co_names]
        case MethodType():
            return [thing.__self__, thing.__func__]
        case partial():
            return [thing.func, thing.args, thing.keywords]
        case np.ndarray():
            return [thing.shape, thing.tolist()]
        case _ if sp.issparse(thing):
            matrix = sp.csr_array(thing)
            return [matrix.data, matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)]
        case BuiltinFunctionType() | np.ufunc():
            return [thing.__name__]
        case _ if getattr(thing, "__dict__", getattr(type(thing), "__slots__", None)) is None:
            raise TypeError(
                "a run with a checkpoint must have settings that can be compared with those of the run that "
                f"resumes it; a {type(thing).__name__} cannot be. Use numbers, texts, arrays or dataclasses."
            )
        case _:
            return [part for item in _attributes(thing).items() for part in item]


def _attributes(thing: object) -> dict[str, Any]:
    """Return the attributes of an object by name, without cached properties."""
    classes = [kind for kind in type(thing).__mro__ if kind is not object]
    declared = [vars(kind).get("__slots__", ()) for kind in classes]
    slots = [name for names in declared for name in ([names] if isinstance(names, str) else names)]
    field_names = [field.name for field in fields(thing)] if is_dataclass(thing) else []
    values: Mapping[str, Any] = getattr(thing, "__dict__", {})
    cached = {
        name for kind in classes for name, part in vars(kind).items() if isinstance(part, cached_property)
    }
    attributes = dict.fromkeys([*field_names, *slots, *values])
    left_out = {*cached, "__dict__", "__weakref__"}
    return {name: getattr(thing, name, None) for name in attributes if name not in left_out}


def _entries(array: Point) -> Iterator[memoryview]:
    """Yield the entries in memory order, on which sums depend, without copying the whole array."""
    if array.flags.c_contiguous:
        yield array.reshape(-1).view(np.uint8).data
    elif array.flags.f_contiguous:
        yield array.T.reshape(-1).view(np.uint8).data
    elif array.ndim == 1:
        yield array.copy().view(np.uint8).data
    else:
        for row in array:
            yield from _entries(row)
