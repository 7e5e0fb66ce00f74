"""The fingerprint of one agent's run: what must be the same for a checkpoint to be resumed."""

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
"""Texts to compare, by the name under which a user knows them."""

_LONGEST = 300


def fingerprint(agent: Agent, method: Method, network: Network, seed: int) -> Fingerprint:
    """Return the fingerprint of one agent's part of a run; data are in it as hashes only."""
    edges = sum(map(len, network.neighbors)) // 2
    return {
        "dcgs": version("dcgs"),
        "number of agents": str(len(network)),
        "method": described(method),
        "schedule": method.schedule_fingerprint(agent.facts),
        "set": _hashed(described(agent.X), agent.X),
        "graph": _hashed(f"{len(network)} nodes and {edges} edges", network.neighbors),
        "seed": str(seed),
        "x0": _hashed("", agent.x0),
        "data": _hashed(f"{type(agent.f.loss).__name__}, {type(agent.f.map).__name__}", agent.f),
        "asks for a gap": "yes" if agent.target is not None else "no",
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
        return f"it was made with {name} {was}, the run has {value}."
    return None


@cache
def library_versions() -> dict[str, str]:
    """Return the versions of libraries that the last bits of results may depend on."""
    return {name: version(name) for name in ("numpy", "scipy")}


def described(thing: object) -> str:
    """Return the repr without memory addresses, which differ between runs, cut to a limited length."""
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(thing))
    text = re.sub(r"\s+", " ", text)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _hashed(text: str, thing: object) -> str:
    """Return a description with a short hash of all that the thing holds."""
    digest = hashlib.sha256()
    for piece in _pieces(thing):
        digest.update(piece)
    return f"{text} [{digest.hexdigest()[:16]}]".strip()


def _pieces(thing: object) -> Iterator[bytes | memoryview]:
    """Yield the bytes of all that the thing holds: arrays, numbers, texts, and containers of these."""
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
