"""The description of a fit in a model file, ``about``: what must hold before it is shown or used.

A file may say anything. An entry may be missing; one that is there must be of its kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

Check: TypeAlias = Callable[[Any], bool]


def wrong_entry(about: object, classes: int) -> str | None:
    """Return what is wrong with a description, as a part of a sentence; None if nothing is.

    ``classes`` is the number of classes, 0 for a model of numbers.

    >>> wrong_entry({"rounds": 3, "gap": {"gap": "x"}}, 0)
    "gap is {'gap': 'x'}"
    """
    if not isinstance(about, dict):
        return f"about is {about!r}"
    checks = _CHECKS | {"constant": _constants(classes) if classes > 2 else _is_finite}
    wrong = [name for name, holds in checks.items() if name in about and not holds(about[name])]
    return f"{wrong[0]} is {about[wrong[0]]!r}" if wrong else None


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < 1e300)


def _is_finite(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _entries(**checks: Check) -> Check:
    """Return a check of a mapping that must have these entries."""

    def holds(value: Any) -> bool:
        return isinstance(value, dict) and all(k in value and check(value[k]) for k, check in checks.items())

    return holds


def _each(check: Check) -> Check:
    """Return a check of all entries of a mapping, or of a list."""

    def holds(value: Any) -> bool:
        return isinstance(value, dict | list) and all(
            map(check, value.values() if isinstance(value, dict) else value)
        )

    return holds


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _constants(count: int) -> Check:
    return lambda value: isinstance(value, list) and len(value) == count and all(map(_is_finite, value))


_PATH = _entries(
    points=lambda points: isinstance(points, list),
    best_radius=_is_number,
    one_standard_error_radius=_is_number,
)
_SCORE = _entries(model=_or_none(_is_number), constant=_or_none(_is_number))
_CHECKS: dict[str, Check] = {
    "set": lambda value: isinstance(value, dict),
    "status": _is_text,
    "method": _is_text,
    "gap": _or_none(
        lambda gap: _entries(gap=_is_number)(gap) and ("share" not in gap or _is_number(gap["share"]))
    ),
    "rounds": _is_finite,
    "bytes": _is_finite,
    "agents": _is_finite,
    "intercept": lambda value: isinstance(value, bool),
    "standardized": lambda value: isinstance(value, bool),
    "balanced": lambda value: isinstance(value, bool),
    "path": _PATH,
    "paths": lambda paths: isinstance(paths, dict) and _each(_PATH)(paths),
    "scores": _entries(scores=lambda scores: isinstance(scores, dict) and _each(_SCORE)(scores)),
    "sent": lambda sent: (
        isinstance(sent, list)
        and _each(
            _entries(
                name=_is_text, operation=_is_text, numbers=_is_number, rounds=_is_number, bytes=_is_finite
            )
        )(sent)
    ),
}
