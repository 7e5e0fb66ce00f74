"""The fingerprint of one agent's run: what must be the same for a checkpoint to be gone on with."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import version
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from dcgs.front.network import Network
from dcgs.methods.base import Agent, Method
from dcgs.points import Point

Fingerprint: TypeAlias = dict[str, str]
"""What is compared, each under the name that a user knows it by."""

_LONGEST = 300


def fingerprint(agent: Agent, method: Method, network: Network, seed: int) -> Fingerprint:
    """Return the fingerprint of one agent's part of a run; nothing in it shows anybody's data."""
    edges = sum(map(len, network.neighbors)) // 2
    return {
        "dcgs": version("dcgs"),
        "number of agents": str(len(network)),
        "method": described(method),
        "plan": method.plan(agent.facts),
        "set": _sealed(described(agent.X), agent.X),
        "graph": _sealed(f"{len(network)} nodes and {edges} edges", network.neighbors),
        "seed": str(seed),
        "x0": _sealed("", agent.x0),
        "data": _sealed(f"{type(agent.f.loss).__name__}, {type(agent.f.map).__name__}", agent.f),
        "asks for a gap": "yes" if agent.gap is not None else "no",
    }


def difference(i: int, kept: Mapping[str, Any], here: Fingerprint) -> str | None:
    """Return a sentence about the first thing that differs, or None if nothing does."""
    for name, value in here.items():
        was = kept.get(name)
        if was == value:
            continue
        if name == "data":
            return f"the data of agent {i} are not those it was made with: {was} then, {value} now."
        if name == "plan":
            return (
                "the method plans its steps by the limits of the run, and these differ: "
                f"it was made with {was}, the run has {value}. Give the same iterations, rounds and gap, or "
                "a schedule with a horizon of its own."
            )
        return f"it was made with {name} {was}, the run has {value}."
    return None


@cache
def surroundings() -> dict[str, str]:
    """Return the versions that bits may depend on."""
    return {name: version(name) for name in ("numpy", "scipy")}


def described(thing: object) -> str:
    """Return the repr without addresses in memory, which differ from run to run, and not at any length."""
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(thing))
    text = re.sub(r"\s+", " ", text)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _sealed(text: str, thing: object) -> str:
    """Return a description and a short seal of what it does not show."""
    seal = hashlib.sha256()
    for piece in _pieces(thing):
        seal.update(piece)
    return f"{text} [{seal.hexdigest()[:16]}]".strip()


def _pieces(thing: object) -> Iterator[bytes | memoryview]:
    """Return all that the thing holds, bit by bit: arrays, numbers, words, and what is made of them."""
    yield type(thing).__name__.encode()
    if isinstance(thing, np.ndarray):
        yield f"{thing.dtype.str}{thing.shape}".encode()
        yield from _entries(thing)
    elif sp.issparse(thing):
        matrix = sp.csr_array(thing)
        for array in (matrix.data, matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)):
            yield from _pieces(array)
    elif is_dataclass(thing):
        for field in fields(thing):
            yield field.name.encode()
            yield from _pieces(getattr(thing, field.name))
    elif isinstance(thing, list | tuple):
        yield str(len(thing)).encode()
        for each in thing:
            yield from _pieces(each)
    else:
        yield described(thing).encode()


def _entries(array: Point) -> Iterator[memoryview]:
    """Return the entries as they lie, for sums depend on that; without a copy of the whole."""
    if array.flags.c_contiguous:
        yield array.reshape(-1).view(np.uint8).data
    elif array.flags.f_contiguous:
        yield array.T.reshape(-1).view(np.uint8).data
    elif array.ndim == 1:
        yield array.copy().view(np.uint8).data
    else:
        for row in array:
            yield from _entries(row)
