"""The models that a site has while a run goes on, in a file, and where they are read from.

If a site leaves, the run of the others begins at the models that they have. A model is coefficients by the
names of features, because other sites may have other levels of a column.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

from dcgs.files import atomic_write
from dcgs.learn.linear.design import LinearModel
from dcgs.learn.linear.fit import Handover

_PAUSE = 10.0
"""Seconds between two times that the file is written."""


@final
@dataclass(frozen=True)
class HandoverFiles:
    """``latest`` gets the models of this run. With ``begins`` it starts at those in ``start``, at all sites.

    ``notes`` say so in the result.
    """

    latest: Path
    start: Path | None = None
    notes: tuple[str, ...] = ()

    @property
    def begins(self) -> bool:
        """Whether the run begins at the models of another one; the same at all sites."""
        return self.start is not None

    def of(self, features: Sequence[str]) -> Handover:
        """Return the models of these features."""
        writer = _LatestModels(self.latest, list(features))
        return Handover(writer.seen, self.begins, lambda label: self._start(label, features))

    def _start(self, label: str, features: Sequence[str]) -> LinearModel | None:
        if self.start is None or not self.start.exists():
            return None
        content = json.loads(self.start.read_text(encoding="utf-8"))
        model = content["models"].get(label)
        if model is None:
            return None
        known = dict(zip(content["features"], model["coef"], strict=True))
        return LinearModel(np.array([known.get(name, 0.0) for name in features]), model["intercept"])


@final
@dataclass(eq=False)
class _LatestModels:
    """Writes the models of the last iterations to a file, now and then."""

    file: Path
    features: list[str]
    models: dict[str, Any] = field(default_factory=dict)
    written: float = -_PAUSE

    def seen(self, label: str, model: LinearModel) -> None:
        """Note a model; write the file if it is time."""
        now = time.monotonic()
        if label in self.models and now - self.written < _PAUSE:
            return
        self.models[label] = {"coef": model.coef.tolist(), "intercept": float(model.intercept)}
        content = {"features": self.features, "models": self.models}
        with suppress(OSError):  # a full disk must not end the run
            atomic_write(self.file, json.dumps(content, ensure_ascii=False).encode())
        self.written = now
