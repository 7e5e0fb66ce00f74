"""Methods by name, with the options each takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dcgs.methods import DCGS, DFW, NIDS, FastDCGS, Method, PGExtra, PrimalDual, ProjectedAGD

METHODS: Mapping[str, type[Method]] = {
    "fastdcgs": FastDCGS,
    "dcgs": DCGS,
    "dfw": DFW,
    "primaldual": PrimalDual,
    "pgextra": PGExtra,
    "nids": NIDS,
    "projectedagd": ProjectedAGD,
}


def method_named(name: str, options: Mapping[str, Any]) -> Method:
    """Return the method with those of the options that were given, that is, are not None."""
    kind = METHODS[name]
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        if option not in _options(kind):
            takers = [other for other, taker in METHODS.items() if option in _options(taker)]
            raise ValueError(f"--{option} must be left out for {name}; it is for {', '.join(takers)}.")
    return kind(**given)


def _options(kind: Any) -> set[str]:
    return {field.name for field in fields(kind)}
