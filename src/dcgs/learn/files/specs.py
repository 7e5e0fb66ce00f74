"""What a fit is made of, from the names and texts that users give: the problem, the method, the set."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, final

import numpy as np

from dcgs import registry
from dcgs.datasets import BrokenDataError
from dcgs.datasets.store import whole_lines
from dcgs.learn.files.readers import Npz, kind_of, read_npy, read_table
from dcgs.learn.files.source import Numbers
from dcgs.learn.files.text import decoded
from dcgs.methods import Method
from dcgs.sets import ConvexSet, Option, OptionKind
from dcgs.sets.base import shape_text
from dcgs.validation import COUNT, POSITIVE, Rule, listed, number


@final
@dataclass(frozen=True)
class Problem:
    """A loss, the default set, and what the data are.

    ``loss`` is ``"own"`` for a problem that is named after a class of losses; the class is made with the
    targets of an agent as its first argument, and with ``options``.
    """

    name: str
    loss: Literal["squares", "logistic", "entries", "own"]
    usual_set: str
    about: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def labels(self) -> bool:
        """Whether targets are classes."""
        return self.loss == "logistic"

    @property
    def entries(self) -> bool:
        """Whether data are entries of a matrix, not samples."""
        return self.loss == "entries"


PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("lasso", "squares", "l1", "‖A x − b‖² over an ℓ₁ ball: few features get a weight"),
        Problem("least-squares", "squares", "l2", "‖A x − b‖² over an ℓ₂ ball, or any other set"),
        Problem(
            "logistic",
            "logistic",
            "l1",
            "classes: Σ log(1 + exp(−bᵢ (A x)ᵢ)) over an ℓ₁ ball; of more than two, each against all others",
        ),
        Problem("completion", "entries", "nuclear", "a matrix from some of its entries, such as ratings"),
    )
}


def problem_named(text: str, options: Mapping[str, Any] | None = None) -> Problem:
    """Return a problem by its name, or that of a loss, built-in or ``package.module:Name``.

    ``options`` are those of the loss. None makes a problem to predict with, which needs no loss.
    """
    if text in PROBLEMS:
        if options:
            raise ValueError(f"--loss-option must be left out for {text}, whose loss has no options.")
        return PROBLEMS[text]
    if ":" not in text and text not in registry.losses():
        names = ", ".join([*PROBLEMS, *registry.losses()])
        raise ValueError(f"the problem must be one of {names}, or a loss package.module:Name; got {text!r}.")
    if options is not None:
        loss: Any = registry.resolve("loss", text)
        registry.check_options("loss", text, partial(loss, None), dict(options))  # the targets come first
    about = "Σ over samples of a loss of (A x)ᵢ and bᵢ, over an ℓ₁ ball"
    return Problem(text, "own", "l1", about, options or {})


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


T = TypeVar("T")
Shape: TypeAlias = tuple[int, ...]
Reader: TypeAlias = Callable[[Option, str, Shape], Any]
AUTO = "auto"
"""The radius that is found from the data."""


@final
@dataclass(frozen=True)
class SetSpec:
    """The user's ``--set`` and the values of its options, by name: texts, or numbers.

    ``name`` is that of a built-in set, or ``package.module:Name``.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Raise if an option is missing, or if the set does not take it; read no file."""
        takes = registry.resolve("set", self.name).command_options()
        unknown = [name for name in self.options if name not in {option.name for option in takes}]
        if unknown:
            known = self._flags([option.name for option in takes]) or "no option"
            raise ValueError(f"the set {self.name} takes {known}; got {self._flags(unknown)}. Leave it out.")
        missing = [option for option in takes if option.required and option.name not in self.options]
        if missing:
            flags = self._flags([option.name for option in missing])
            hint = " Or give --radius auto to find it." if missing[0].name == "radius" else ""
            raise ValueError(f"the set {self.name} needs {flags}: {missing[0].help}.{hint}")

    @property
    def finds_radius(self) -> bool:
        """Whether the radius is to be found from the data."""
        return self.options.get("radius") == AUTO

    def with_radius(self, radius: float) -> SetSpec:
        """Return the set with this radius."""
        return SetSpec(self.name, {**self.options, "radius": radius})

    def make(self, shape: Shape) -> ConvexSet:
        """Return the set of models of this shape; read the files that options name."""
        made = registry.resolve("set", self.name)
        values = {
            option.name: _READERS[option.kind](option, str(self.options[option.name]), shape)
            for option in made.command_options()
            if option.name in self.options
        }
        X = made.from_options(shape, **values)
        if X.shape != shape:
            raise ValueError(
                f"the set must be of models of shape {shape_text(shape)}; {self.name} as given is of shape "
                f"{shape_text(X.shape)}."
            )
        return X

    def _flags(self, names: Sequence[str]) -> str:
        flags = {option.name for option in built_in_options()}
        return " and ".join(f"--{name}" if name in flags else f"--set-option {name}=…" for name in names)


def built_in_options() -> list[Option]:
    """Return the options of all built-in sets, each once; the command line has a flag for each."""
    options = {option.name: option for X in registry.sets().values() for option in X.command_options()}
    return list(options.values())


def sets_with(option: Option) -> list[str]:
    """Return the names of the built-in sets that take an option."""
    sets = registry.sets().items()
    return [name for name, X in sets if any(other.name == option.name for other in X.command_options())]


def parse_value(text: str) -> int | float | bool | str | None:
    """Return the value of an option: a number, true, false, none, or any other text.

    >>> [parse_value(text) for text in ("3", "1e-3", "true", "none", "last")]
    [3, 0.001, True, None, 'last']
    """
    words: dict[str, bool | None] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _by(rule: Rule[T], parse: Callable[[str], object]) -> Reader:
    """Return the reader of a text whose value must obey a rule."""
    of_text = Rule(rule.must, lambda text: rule.read(parse(text)))
    return lambda option, text, shape: of_text(text, option.name)


def _bound(option: Option, text: str, shape: Shape) -> Numbers:
    try:
        return np.full(shape, float(text))
    except ValueError:
        bound = read_npy(Path(text).expanduser())
        if bound.shape != shape:
            raise ValueError(
                f"{option.name} must be a number or an array of shape {shape_text(shape)}; "
                f"{text} has {bound.shape}."
            ) from None
        return bound


def _groups(option: Option, text: str, shape: Shape) -> list[Sequence[int]]:
    entries = math.prod(shape)
    if text.isdecimal() and int(text) > 0:
        size = int(text)
        return [range(low, min(low + size, entries)) for low in range(0, entries, size)]
    # A file names a group on each line: line j is the group of feature j.
    file = Path(text).expanduser()
    words: list[str] = []
    for first_line, content in whole_lines(file, 1 << 20):
        words += decoded(file, first_line, content).removeprefix("\ufeff").split("\n")
    while words and not words[-1].strip():
        words.pop()
    if len(words) != entries:
        raise BrokenDataError(
            f"{file} must have a line for each of the {entries} features, the name of its group; "
            f"it has {len(words)}."
        )
    members: dict[str, list[int]] = {}
    for feature, word in enumerate(words):
        if not word.strip():
            raise BrokenDataError(f"line {feature + 1} of {file} must name a group; it is empty.")
        members.setdefault(word.strip(), []).append(feature)
    return list(members.values())


def _points(option: Option, text: str, shape: Shape) -> Numbers:
    file = Path(text).expanduser()
    if kind_of(file) == "npy":
        points = read_npy(file)
    else:
        points = read_table(file, lambda head: range(head.width), None)[1]
    flat = len(shape) > 1 and points.ndim == 2 and points.shape[1] == math.prod(shape)
    return points.reshape(len(points), *shape) if flat else points


def _constraints(option: Option, text: str, shape: Shape) -> dict[str, Any]:
    npz = Npz(Path(text).expanduser())
    arrays: dict[str, Any] = {
        name: npz.matrix(name) for name in ("A_ub", "A_eq") if npz.first_of(name, f"{name}_data")
    }
    if not arrays:
        raise BrokenDataError(
            f"{npz.file} must have arrays A_ub and b_ub, or A_eq and b_eq, or all four; "
            f"it has {listed(npz.names)}."
        )
    return arrays | {name: npz.array(name) for name in ("b_ub", "b_eq") if name in npz.names}


_READERS: Mapping[OptionKind, Reader] = {
    OptionKind.NUMBER: _by(POSITIVE, parse_value),
    OptionKind.FLOAT: _by(number("be a finite number", math.isfinite), parse_value),
    OptionKind.COUNT: _by(COUNT, lambda text: int(text) if text.isdecimal() else None),
    OptionKind.VALUE: lambda option, text, shape: parse_value(text),
    OptionKind.BOUND: _bound,
    OptionKind.GROUPS: _groups,
    OptionKind.POINTS: _points,
    OptionKind.CONSTRAINTS: _constraints,
}
