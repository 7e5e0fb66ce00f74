"""The data of a fit, as all parts of its result need them.

``samples.py`` reads samples, ``ratings.py`` ratings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True, eq=False)
class LoadedData:
    """The number of rows of each hosted agent, and the shape of the coefficients of a model.

    ``reading`` says how new data are read: names and target of the columns, the labels, the first index.
    """

    shape: tuple[int, ...]
    reading: Mapping[str, Any]
    rows: Mapping[int, int]
