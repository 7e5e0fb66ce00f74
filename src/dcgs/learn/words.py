"""Names, numbers and labels in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Label: TypeAlias = str | float
"""A class, as the data have it."""


def listed(names: Sequence[str], limit: int = 8) -> str:
    """Return names for a sentence; if there are many, the first ones and the number of the others.

    >>> listed(["age", "dose"])
    "'age', 'dose'"
    """
    first = ", ".join(map(repr, names[:limit]))
    return first if len(names) <= limit else f"{first} and {len(names) - limit} more"


def numbered(numbers: Sequence[int], kind: str = "agent") -> str:
    """Return numbers for a sentence.

    >>> numbered([1]), numbered([1, 2, 3]), numbered([0, 1], "process")
    ('agent 1', 'agents 1, 2 and 3', 'processes 0 and 1')
    """
    *most, last = map(str, numbers)
    plural = {"agent": "agents", "process": "processes"}[kind]
    return f"{plural} {', '.join(most)} and {last}" if most else f"{kind} {last}"


def shortened(text: str, most: int = 40) -> str:
    """Return a text for a sentence, without what is beyond its first characters."""
    return text if len(text) <= most else text[:most] + "…"


def label_text(label: Label) -> str:
    """Return a label or a level as a text.

    >>> label_text(2.0), label_text(0.1), label_text("yes")
    ('2', '0.1', 'yes')
    """
    return label if isinstance(label, str) else f"{label:.12g}"
