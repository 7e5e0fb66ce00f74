"""The fit of samples: the models of a problem, their scores, and what was sent for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from dcgs.fitting.held_out import FitScores
from dcgs.fitting.sample_problem import SampleProblem
from dcgs.preprocessing.design import LinearModel
from dcgs.preprocessing.path_result import Path
from dcgs.preprocessing.reductions import Sent


@final
@dataclass(frozen=True, eq=False)
class SampleFit:
    """What a fit of samples has beside the result of its run: models in the user's units, scores, messages.

    ``sent`` lists what the agents agreed on before and after the run. ``paths`` are those of the radii, if
    they were found, by the class of the model; an empty text if there is one model only.
    """

    problem: SampleProblem
    models: Mapping[int, LinearModel]
    scores: FitScores
    sent: tuple[Sent, ...]
    paths: Mapping[str, Path] = field(default_factory=dict)

    @property
    def _constant(self) -> float | list[float]:
        constant = self.problem.constant
        return constant if isinstance(constant, float) else list(constant)

    @property
    def notes(self) -> list[str]:
        """Sentences on the data."""
        return self.problem.agreement.notes

    def about(self) -> dict[str, Any]:
        """Return what a model says of its fit."""
        options = self.problem.options
        return {
            "intercept": bool(options.intercept),
            "standardized": bool(options.standardize),
            "balanced": options.balanced,
            "constant": self._constant,
            "scores": {"held_out": self.scores.held_out, **self.scores.everyone.to_json()},
            "sent": [each.to_dict() for each in self.sent],
            **paths_of(self.paths),
        }

    def summary(self) -> dict[str, Any]:
        """Return what summary.json has of it."""
        about = self.about()
        return {
            "scores": self.scores.to_json(),
            "sent": about["sent"],
            "data_notes": self.notes,
            **{name: about[name] for name in ("intercept", "standardized", "balanced", "constant")},
            **paths_of(self.paths),
        }


def paths_of(paths: Mapping[str, Path]) -> dict[str, Any]:
    """Return the entry of JSON for the path of one model, or for those of several classes."""
    if not paths:
        return {}
    if "" in paths:
        return {"path": paths[""].to_dict()}
    return {"paths": {label: path.to_dict() for label, path in paths.items()}}
