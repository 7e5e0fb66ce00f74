"""The data of a fit: objectives of the hosted agents, and what all agents agree on.

``samples.py`` reads samples, ``ratings.py`` ratings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from dcgs.objectives import Objective


@final
@dataclass(frozen=True, eq=False)
class LoadedData:
    """The objectives and the number of rows of each hosted agent, and the shape of a model.

    ``reading`` says how new data are read: names and target of the columns, the two labels, the first index.
    """

    objectives: Mapping[int, Objective]
    shape: tuple[int, ...]
    reading: Mapping[str, Any]
    rows: Mapping[int, int]
