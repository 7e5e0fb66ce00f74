"""Estimators with the interface of scikit-learn, for rows that are at several sites.

They need scikit-learn: ``pip install dcgs[sklearn]``.
"""

try:
    from dcgs.learn.estimators import (
        DecentralizedCompletion,
        DecentralizedLasso,
        DecentralizedLogisticRegression,
    )
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "sklearn":
        raise
    raise ImportError(
        "dcgs.estimators needs scikit-learn, which is not installed. Install it with: "
        "pip install 'dcgs[sklearn]'."
    ) from error

__all__ = ["DecentralizedCompletion", "DecentralizedLasso", "DecentralizedLogisticRegression"]
