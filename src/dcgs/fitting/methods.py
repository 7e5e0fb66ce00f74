"""The method of a fit, made from its name and its options."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from dcgs import registry
from dcgs.methods import Method


def method_named(
    text: str,
    flags: Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
    inner_options: Mapping[str, Any] | None = None,
) -> Method:
    """Return the method with the flags that were given, that is, are not None, and its other options.

    ``text`` is the name of a built-in method, or ``package.module:Name``; so is the flag ``inner``, which is
    made with ``inner_options``.
    """
    kind = registry.resolve("method", text)
    given = {name: value for name, value in flags.items() if value is not None}
    for name in given:
        if name not in inspect.signature(kind).parameters:
            takers = [
                other
                for other, taker in registry.methods().items()
                if name in inspect.signature(taker).parameters
            ]
            raise ValueError(f"--{name} must be left out for {text}; it is for {', '.join(takers)}.")
    given |= options or {}
    inner = given.get("inner", "auto")
    if inner_options and inner == "auto":
        raise ValueError("--inner-option needs the name of an inner solver; got none. Add --inner SOLVER.")
    if inner_options or ":" in str(inner):
        solver = registry.resolve("inner solver", inner)
        registry.check_options("inner solver", inner, solver, dict(inner_options or {}))
        given["inner"] = solver(**inner_options or {})
    registry.check_options("method", text, kind, given)
    return kind(**given)
