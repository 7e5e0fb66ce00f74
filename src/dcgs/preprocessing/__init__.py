"""From rows at several sites to a problem: statistics, standardization, intercept, folds and the path."""

from dcgs.preprocessing.classes import agree_on_classes, balanced_weights, balancing, row_factors
from dcgs.preprocessing.design import Design, LinearModel, LossOf, design, designs
from dcgs.preprocessing.design_path import design_paths
from dcgs.preprocessing.folds import Fold, HoldOut, deal
from dcgs.preprocessing.one_vs_rest import (
    against_rest,
    class_log_probabilities,
    class_numbers,
    class_probabilities,
    stacked,
)
from dcgs.preprocessing.path import path, path_steps
from dcgs.preprocessing.path_result import Path, PathPoint
from dcgs.preprocessing.reductions import ReductionRequest, Reductions, Sent, Steps
from dcgs.preprocessing.site_data import SiteData
from dcgs.preprocessing.statistics import Statistics, statistics

__all__ = [
    "Design",
    "Fold",
    "HoldOut",
    "LinearModel",
    "LossOf",
    "Path",
    "PathPoint",
    "ReductionRequest",
    "Reductions",
    "Sent",
    "SiteData",
    "Statistics",
    "Steps",
    "against_rest",
    "agree_on_classes",
    "balanced_weights",
    "balancing",
    "class_log_probabilities",
    "class_numbers",
    "class_probabilities",
    "deal",
    "design",
    "design_paths",
    "designs",
    "path",
    "path_steps",
    "row_factors",
    "stacked",
    "statistics",
]
