"""Messages of a shape that is not due: every method names who sent them."""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs.points import Point
from dcgs.runtime.messages import checked_copy
from problems import METHODS

DUE = "(have|be a letter with points of)"


@pytest.mark.parametrize("graph", [nx.cycle_graph(5), nx.star_graph(4), nx.complete_graph(5)], ids=len)
@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize(
    "spoil", [lambda m: m[..., :-1], lambda m: m.reshape(-1)[:1], lambda m: m[None], lambda m: m[..., :0]]
)
def test_a_message_of_a_shape_that_is_not_due_names_its_sender(
    spoil: Callable[[Point], Point], method: dcgs.Method, graph: nx.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    objectives = [dcgs.LeastSquares(rng.standard_normal((4, 7)), rng.standard_normal(4)) for _ in graph]
    sent = 0

    def spoiled(i: int, message: Point | None) -> Point:
        nonlocal sent
        right = checked_copy(i, message)
        sent += i == 1 and right.size > 0
        return spoil(right) if i == 1 and right.size > 0 and sent == 2 else right

    monkeypatch.setattr("dcgs.runtime.lockstep.checked_copy", spoiled)
    with pytest.raises(ValueError, match=rf"^a message must {DUE} shape .*; agent 1 sent one of shape \("):
        dcgs.minimize(objectives, dcgs.L1Ball(7), graph, method, iterations=30)
