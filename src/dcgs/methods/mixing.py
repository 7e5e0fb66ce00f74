"""One round with the neighbors: products with the graph Laplacian and with a mixing matrix."""

from __future__ import annotations

from collections.abc import Mapping

from dcgs.points import Point
from dcgs.protocol import Inbox, Program


def check_shapes(inbox: Inbox, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless all messages have this shape; the error names the sender."""
    for j, theirs in inbox.items():
        if theirs.shape != shape:
            raise ValueError(
                f"a message must have shape {shape}; agent {j} sent one of shape {theirs.shape}."
            )


def laplacian(value: Point) -> Program[Point]:
    """Send ``value`` to the neighbors; return Σⱼ Lᵢⱼ valueⱼ = Σ (value − theirs). One round.

    Inside a method's program: ``v = yield from laplacian(x)``.

    >>> import numpy as np
    >>> program = laplacian(np.array([2.0]))
    >>> next(program)  # what the agent sends
    array([2.])
    >>> try:
    ...     program.send({0: np.array([1.0]), 3: np.array([5.0])})  # what its neighbors 0 and 3 sent
    ... except StopIteration as end:
    ...     end.value
    array([-2.])
    """
    inbox = yield value
    check_shapes(inbox, value.shape)
    total = 0.0 * value
    for theirs in inbox.values():
        total = total + (value - theirs)
    return total


def average(value: Point, weights: Mapping[int, float]) -> Program[Point]:
    """Send ``value`` to the neighbors; return Σⱼ Wᵢⱼ valueⱼ with Wᵢᵢ = 1 − Σ weights. One round.

    ``weights`` maps each neighbor j to Wᵢⱼ; ``agent.metropolis`` is a choice that works on every graph.
    Inside a method's program: ``x_bar = yield from average(x, agent.metropolis)``.
    """
    inbox = yield value
    check_shapes(inbox, value.shape)
    total = (1.0 - sum(weights.values())) * value
    for j, theirs in inbox.items():
        total = total + weights[j] * theirs
    return total
