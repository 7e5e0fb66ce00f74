"""The problems that ``dcgs fit`` solves and the methods it solves them by, from their names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

from dcgs import registry
from dcgs.methods import Method


@final
@dataclass(frozen=True)
class Problem:
    """A loss, the default set, and what the data are.

    ``loss`` is ``"own"`` for a problem that is named after a class of losses; the class is made with the
    targets of an agent as its only argument.
    """

    name: str
    loss: Literal["squares", "logistic", "entries", "own"]
    usual_set: str
    about: str

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
        Problem("logistic", "logistic", "l1", "two classes: Σ log(1 + exp(−bᵢ (A x)ᵢ)) over an ℓ₁ ball"),
        Problem("completion", "entries", "nuclear", "a matrix from some of its entries, such as ratings"),
    )
}


def problem_named(text: str) -> Problem:
    """Return a problem by its name, or that of a loss, built-in or ``package.module:Name``."""
    if text in PROBLEMS:
        return PROBLEMS[text]
    if ":" not in text and text not in registry.losses():
        names = ", ".join([*PROBLEMS, *registry.losses()])
        raise ValueError(f"the problem must be one of {names}, or a loss package.module:Name; got {text!r}.")
    return Problem(text, "own", "l1", "Σ over samples of a loss of (A x)ᵢ and bᵢ, over an ℓ₁ ball")


def method_named(text: str, flags: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> Method:
    """Return the method with the flags that were given, that is, are not None, and its other options.

    ``text`` is the name of a built-in method, or ``package.module:Name``; so is the flag ``inner``.
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
    if ":" in str(given.get("inner", "")):
        given["inner"] = registry.resolve("inner solver", given["inner"])()
    registry.check_options("method", text, kind, given)
    return kind(**given)
