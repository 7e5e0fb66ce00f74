"""Messages of a shape that is not due: every method names who sent them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs.points import Point
from dcgs.runtime.messages import Packets, packets
from problems import METHODS

MUST = "(have shape|hold a vector of shape|be a tuple of arrays of shapes)"


def spoiled(reply: Any, spoil: Callable[[Point], Point]) -> Any:
    """Return what an agent sends, with its first array spoiled, for whomever it is."""
    if isinstance(reply, Mapping):
        return {j: spoiled(message, spoil) for j, message in reply.items()}
    return (spoil(reply[0]), *reply[1:]) if isinstance(reply, tuple) else spoil(reply)


@pytest.mark.parametrize("graph", [nx.cycle_graph(5), nx.star_graph(4), nx.complete_graph(5)], ids=len)
@pytest.mark.parametrize(
    "method", [*METHODS, dcgs.FastDCGS(form="sums"), dcgs.FastDCGS(form="root")], ids=repr
)
@pytest.mark.parametrize(
    "spoil", [lambda m: m[..., :-1], lambda m: m.reshape(-1)[:1], lambda m: m[None], lambda m: m[..., :0]]
)
def test_a_message_of_a_shape_that_is_not_due_names_its_sender(
    spoil: Callable[[Point], Point], method: dcgs.Method, graph: nx.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    objectives = [dcgs.LeastSquares(rng.standard_normal((4, 7)), rng.standard_normal(4)) for _ in graph]
    # Of sums along a tree the first message, as later ones may be answers, whose shapes only the root knows.
    sent, when = 0, 1 if getattr(method, "form", "edges") != "edges" else 2

    def spoil_once(i: int, reply: Any, neighbors: Sequence[int]) -> Packets:
        nonlocal sent
        right = packets(i, reply, neighbors)
        sent += i == 1 and len(right) > 0
        return packets(i, spoiled(reply, spoil), neighbors) if i == 1 and right and sent == when else right

    monkeypatch.setattr("dcgs.runtime.base.packets", spoil_once)
    with pytest.raises(ValueError, match=rf"^a message must {MUST} .*; agent 1 sent one of shapes? [(\[]"):
        dcgs.minimize(objectives, dcgs.L1Ball(7), graph, method, iterations=30)


@pytest.mark.parametrize(
    ("spoil", "given"),
    [(lambda m: m[0], r"\[\(7,\)\]"), (lambda m: (m[0], m[1][:0]), r"\[\(7,\), \(0,\)\]")],
    ids=["no numbers", "no scale"],
)
def test_a_message_without_its_numbers_names_its_sender(
    spoil: Callable[[Any], Any], given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    objectives = [dcgs.LeastSquares(np.eye(7), np.full(7, float(i))) for i in range(3)]

    def without(i: int, reply: Any, neighbors: Sequence[int]) -> Packets:
        wrong = {j: spoil(message) for j, message in reply.items()}
        return packets(i, wrong if i == 1 else reply, neighbors)

    monkeypatch.setattr("dcgs.runtime.base.packets", without)
    with pytest.raises(ValueError, match=rf"^a message must hold .*; agent 1 sent one of shapes {given}, "):
        dcgs.minimize(objectives, dcgs.L1Ball(7), nx.path_graph(3), dcgs.FastDCGS(form="edges"), iterations=3)
