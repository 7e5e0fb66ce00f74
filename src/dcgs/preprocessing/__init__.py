"""From rows at several sites to a problem: statistics, standardization, intercept, folds and the path."""

from dcgs.preprocessing.design import Design, LinearModel, LossOf, design
from dcgs.preprocessing.reductions import Reductions, Sent
from dcgs.preprocessing.site_data import SiteData
from dcgs.preprocessing.statistics import Extremes, Statistics, extremes, statistics

__all__ = [
    "Design",
    "Extremes",
    "LinearModel",
    "LossOf",
    "Reductions",
    "Sent",
    "SiteData",
    "Statistics",
    "design",
    "extremes",
    "statistics",
]
