"""The problems people fit, by the names of the command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final


@final
@dataclass(frozen=True)
class Problem:
    """A loss, the set it goes with unless another is asked for, and what it reads."""

    name: str
    loss: Literal["squares", "logistic", "entries"]
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
