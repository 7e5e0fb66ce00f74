"""The options of a set on the command line: which there are, and how their texts are read."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, final


class Kind(Enum):
    """What the text of an option stands for; ``dcgs.fitting.sets`` reads it.

    >>> import dcgs
    >>> dcgs.Kind.COUNT.value
    'a whole number of at least 1'
    """

    NUMBER = "a positive number"
    FLOAT = "a finite number"
    COUNT = "a whole number of at least 1"
    VALUE = "a number, true, false, none, or any other text"
    BOUND = "a number, or an .npy file with one for each entry"
    GROUPS = "the number of consecutive features in a group, or a file with the name of a group on each line"
    POINTS = "a file of points, one per row"
    CONSTRAINTS = "an .npz file with A_ub and b_ub, A_eq and b_eq, or both pairs"


@final
@dataclass(frozen=True)
class Option:
    """One option of a set: the name of the argument, how its text is read, and what it means.

    >>> import dcgs
    >>> dcgs.Option("k", dcgs.Kind.COUNT).help
    'a whole number of at least 1'
    """

    name: str
    kind: Kind
    meaning: str = ""
    required: bool = True

    @property
    def help(self) -> str:
        """What to write after the option."""
        return self.meaning or self.kind.value


RADIUS = Option(
    "radius", Kind.NUMBER, "how large a model may be; a larger one fits the data closer and generalizes less"
)
OPTIONAL_RADIUS = replace(RADIUS, required=False)


def options_from_signature(made: type[Any]) -> tuple[Option, ...]:
    """Return an option for each argument that a class takes after the shape."""
    _, *arguments = inspect.signature(made).parameters.values()
    kinds = {"float": Kind.FLOAT, "int": Kind.COUNT}
    return tuple(
        Option(
            argument.name,
            kinds.get(getattr(argument.annotation, "__name__", str(argument.annotation)), Kind.VALUE),
            required=argument.default is argument.empty,
        )
        for argument in arguments
    )
