"""Data to run on. Synthetic sets are made from a seed and need nothing."""

from dcgs.datasets.base import Kind, Ratings, Regression, Source
from dcgs.datasets.synthetic import completion_synthetic, lasso_synthetic

__all__ = ["Kind", "Ratings", "Regression", "Source", "completion_synthetic", "lasso_synthetic"]
