"""What agents may send: arrays of finite float64 numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from dcgs.points import Point, frozen, is_finite, vdot

Reply: TypeAlias = Point | None
"""What a program yields, or None once it has returned."""


def check_type(sender: int, message: Reply) -> Point:
    """Return the message; raise unless it is an array of float64."""
    if not isinstance(message, np.ndarray) or message.dtype != np.float64:
        is_array = isinstance(message, np.ndarray)
        sent = f"one of {np.asarray(message).dtype}" if is_array else f"a {type(message).__name__}"
        raise TypeError(f"a message must be an array of float64; agent {sender} sent {sent}.")
    return message


def check_finite(sender: int, message: Point, squares: float) -> None:
    """Raise unless all numbers of a message are finite, given the sum of their squares.

    A finite sum proves that they are, which is the fastest check. A sum that overflows proves nothing.
    """
    if not math.isfinite(squares) and not is_finite(message):
        where = tuple(np.argwhere(~np.isfinite(message))[0].tolist())
        raise FloatingPointError(
            f"a message must be finite; agent {sender} sent {message[where]} at {where}."
        )


def checked_copy(sender: int, message: Reply) -> Point:
    """Return a read-only copy of a message; raise unless it is an array of finite float64 numbers."""
    copy = frozen(check_type(sender, message))
    check_finite(sender, copy, vdot(copy, copy))
    return copy


def all_sent(replies: Mapping[int, Reply]) -> bool:
    """Return True if all agents sent a message, False if all returned; raise if some did each."""
    returned = [i for i, reply in replies.items() if reply is None]
    sending = [i for i, reply in replies.items() if reply is not None]
    if returned and sending:
        raise early_return(returned, sending)
    return bool(sending)


def early_return(returned: list[int], sending: list[int]) -> RuntimeError:
    """Return the error for agents that returned while others still send."""
    return RuntimeError(f"agents {returned} returned while agents {sending} still send.")
