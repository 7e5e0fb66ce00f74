"""Floors: how many people, at how many sites, anything that leaves a site must be about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dcgs.validation import COUNT, one_of

_RARE = one_of("drop", "refuse")


@final
@dataclass(frozen=True)
class Floors:
    """Nothing that is about fewer people than ``min_count``, or about fewer sites, leaves a site.

    ``rare_columns`` says what is done with a column of numbers that is about fewer people: ``"drop"`` leaves
    it out of the model, ``"refuse"`` ends the fit.

    >>> Floors().stricter(Floors(min_count=20, min_sites=2))
    Floors(min_count=20, min_sites=3, rare_columns='drop')
    """

    min_count: int = 10
    min_sites: int = 3
    rare_columns: str = "drop"

    def __post_init__(self) -> None:
        COUNT(self.min_count, "min_count")
        COUNT(self.min_sites, "min_sites")
        _RARE(self.rare_columns, "rare_columns")

    def stricter(self, other: Floors) -> Floors:
        """Return the floors that are at least as strict as both."""
        rare = "refuse" if "refuse" in (self.rare_columns, other.rare_columns) else "drop"
        return Floors(max(self.min_count, other.min_count), max(self.min_sites, other.min_sites), rare)

    def allow(self, count: int, sites: int) -> bool:
        """Return True if what is about so many people at so many sites may be told."""
        return count >= self.min_count and sites >= self.min_sites
