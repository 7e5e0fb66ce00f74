"""Estimators with the interface of scikit-learn, for rows that are at several sites.

They need scikit-learn: ``pip install dcgs[sklearn]``.
"""

from dcgs.learn.estimators import (
    DecentralizedCompletion,
    DecentralizedLasso,
    DecentralizedLogisticRegression,
)

__all__ = ["DecentralizedCompletion", "DecentralizedLasso", "DecentralizedLogisticRegression"]
