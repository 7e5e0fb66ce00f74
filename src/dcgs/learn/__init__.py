"""Rows or ratings at several sites become a certified model.

:func:`fit_rows` and :func:`fit_ratings` take arrays, as the estimators do; ``dcgs fit`` reads files.
:func:`fit_private` promises differential privacy.
"""

from dcgs.learn.linear.design import DesignSpec, LinearModel
from dcgs.learn.linear.fit import RowsFit, RowsSpec, fit_rows
from dcgs.learn.private import Bounds, PrivacyBudget, PrivateFit, PrivateSpec, fit_private
from dcgs.learn.ratings.fit import RatingsFit, RatingsSpec, fit_ratings
from dcgs.learn.sites import Rows, RunSpec, Sites, SitesError

__all__ = [
    "Bounds",
    "DesignSpec",
    "LinearModel",
    "PrivacyBudget",
    "PrivateFit",
    "PrivateSpec",
    "RatingsFit",
    "RatingsSpec",
    "Rows",
    "RowsFit",
    "RowsSpec",
    "RunSpec",
    "Sites",
    "SitesError",
    "fit_private",
    "fit_ratings",
    "fit_rows",
]
