"""Words of the conversation between neighbors."""

from __future__ import annotations

from collections.abc import Mapping

from dcgs.points import Point
from dcgs.protocol import Inbox, Program


def expect(inbox: Inbox, shape: tuple[int, ...]) -> None:
    """Raise unless all messages are of this shape; the error names who sent another."""
    for j, theirs in inbox.items():
        if theirs.shape != shape:
            raise ValueError(
                f"a message must have shape {shape}; agent {j} sent one of shape {theirs.shape}."
            )


def laplacian(value: Point) -> Program[Point]:
    """Tell the neighbors ``value``; return Σⱼ Lᵢⱼ valueⱼ."""
    inbox = yield value
    expect(inbox, value.shape)
    total = 0.0 * value
    for theirs in inbox.values():
        total = total + (value - theirs)
    return total


def average(value: Point, weights: Mapping[int, float]) -> Program[Point]:
    """Tell the neighbors ``value``; return Σⱼ Wᵢⱼ valueⱼ, Wᵢᵢ being what the weights leave of 1."""
    inbox = yield value
    expect(inbox, value.shape)
    total = (1.0 - sum(weights.values())) * value
    for j, theirs in inbox.items():
        total = total + weights[j] * theirs
    return total
