"""The problems that ``dcgs fit`` solves and the methods it solves them by, from their names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, final

from dcgs import registry
from dcgs.methods import Method


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
