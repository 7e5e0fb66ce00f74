"""The seed of an estimator, from scikit-learn's ``random_state``."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state


def as_seed(random_state: Any) -> int:
    """Return the seed; None is the same as 0, so that every fit can be repeated."""
    if random_state is None:
        return 0
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
