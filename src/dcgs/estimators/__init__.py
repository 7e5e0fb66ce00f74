"""Estimators with the interface of scikit-learn, for rows that are at several sites.

They need scikit-learn: ``pip install dcgs[sklearn]``.
"""

from dcgs.estimators.completion import DecentralizedCompletion
from dcgs.estimators.lasso import DecentralizedLasso
from dcgs.estimators.logistic_regression import DecentralizedLogisticRegression

__all__ = ["DecentralizedCompletion", "DecentralizedLasso", "DecentralizedLogisticRegression"]
