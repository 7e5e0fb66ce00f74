"""Ratings as people have them: ids of users and items, offsets, and predictions in the range of ratings."""

from dcgs.ratings.completing import AgentRatings, FittedRatings, RatingsConfig, fit_ratings
from dcgs.ratings.ids import Ids
from dcgs.ratings.model import RatingsModel
from dcgs.ratings.offsets import Offsets

__all__ = ["AgentRatings", "FittedRatings", "Ids", "Offsets", "RatingsConfig", "RatingsModel", "fit_ratings"]
