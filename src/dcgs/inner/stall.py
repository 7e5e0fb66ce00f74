"""When the bound of an inner solve falls no more: the accuracy asked for is below rounding error."""

from __future__ import annotations

import math
from typing import final

# About √(β/η) steps reduce the bound by a constant factor. It has stopped falling if it is not below _FALL
# times its lowest value after _PATIENCE times as many.
_FALL, _PATIENCE = 0.5, 20


@final
class Stall:
    """Follows the bounds of accelerated steps, for a condition number β/η."""

    def __init__(self, condition: float) -> None:
        self.patience = _PATIENCE * math.ceil(math.sqrt(condition))
        self.lowest = math.inf
        self.waited = 0

    def is_reached(self, bound: float) -> bool:
        """Return True if the bound of this step shows that no further progress is possible."""
        if bound < _FALL * self.lowest:
            self.lowest, self.waited = bound, 0
            return False
        self.waited += 1
        return self.waited > self.patience
