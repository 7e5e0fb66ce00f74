"""Keys, programs and records of messages for the tests of secure sums."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

import networkx as nx
import numpy as np
from numpy.typing import NDArray

import dcgs
from dcgs.learn.sums import run_programs
from dcgs.methods.reduction import added, tree_answer
from dcgs.protocol import Program
from dcgs.secure.keys import AgentKeys, KeyPair, agree
from dcgs.secure.masks import Masks, NoMasks, PairwiseMasks
from dcgs.secure.sum import MaskedReduction, Reduce, complete_answer
from dcgs.tree import TreeNode

T = TypeVar("T")

GRAPHS: dict[str, nx.Graph] = {
    "path": nx.path_graph(5),
    "star": nx.star_graph(4),
    "cycle": nx.cycle_graph(7),
    "grid": nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 3)),
    "complete": nx.complete_graph(4),
    "tree": nx.balanced_tree(2, 3),
}


def key_pairs(agents: int, seed: int = 0) -> list[KeyPair]:
    """Return the same key pairs for the same seed."""
    return [KeyPair.of(sha256(f"{seed} {i}".encode()).digest()) for i in range(agents)]


def agent_keys(agents: int, seed: int = 0, run: str = "test") -> list[AgentKeys]:
    """Return the keys of all agents after an exchange."""
    pairs = key_pairs(agents, seed)
    return [agree(pair, i, [each.public for each in pairs], run) for i, pair in enumerate(pairs)]


def all_masks(agents: int, seed: int = 0) -> list[Masks]:
    """Return the masks of all agents."""
    return [PairwiseMasks(keys) for keys in agent_keys(agents, seed)]


def no_masks(agents: int) -> list[Masks]:
    """Return masks that mask nothing, for all agents."""
    return [NoMasks(agents) for _ in range(agents)]


def along_tree(tree: TreeNode, pieces: int = 1) -> Reduce:
    """Return the reduction along the spanning tree."""
    return partial(tree_answer, tree=tree, combine=added, pieces=pieces)


def in_one_round(tree: TreeNode) -> Reduce:
    """Return the reduction of a complete graph."""
    return complete_answer


class Record:
    """All messages of a run: (round, sender, receiver or None for all neighbors, arrays)."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, int, int | None, tuple[NDArray[Any], ...]]] = []

    def of(self, i: int, program: Program[T]) -> Program[T]:
        """Run the program of agent i and record what it sends."""
        inbox: Any = None
        for round in range(1_000_000):
            try:
                outbox = program.send(inbox)
            except StopIteration as stop:
                result: T = stop.value
                return result
            sent = outbox.items() if isinstance(outbox, dict) else [(None, outbox)]
            for receiver, message in sent:
                arrays = message if isinstance(message, tuple) else (message,)
                self.messages.append((round, i, receiver, tuple(array.copy() for array in arrays)))
            inbox = yield outbox
        raise AssertionError("no end")

    def words(self) -> list[NDArray[np.uint64]]:
        """Return all arrays of words that were sent."""
        return [array for *_, arrays in self.messages for array in arrays if array.dtype == np.uint64]

    def content(self) -> bytes:
        """Return the bytes of all that was sent."""
        return b"|".join(array.tobytes() for *_, arrays in self.messages for array in arrays)


def run_masked(
    graph: nx.Graph,
    program: Callable[[int, MaskedReduction], Program[T]],
    masks: list[Masks],
    record: Record | None = None,
    reduce_of: Callable[[TreeNode], Reduce] = along_tree,
) -> tuple[list[T], int]:
    """Run a program at all agents in one process; return the answers and the number of rounds."""
    record = Record() if record is None else record

    def agent(i: int, tree: TreeNode) -> Program[T]:
        return record.of(i, program(i, MaskedReduction(masks[i], reduce_of(tree))))

    results, traffic = run_programs(agent, graph, dcgs.Lockstep())
    return list(results.values()), traffic.rounds


def chi_square(content: bytes) -> float:
    """Return the chi-square statistic of the bytes, which for random ones has 255 degrees of freedom."""
    counts = np.bincount(np.frombuffer(content, dtype=np.uint8), minlength=256)
    expected = len(content) / 256
    return float(((counts - expected) ** 2 / expected).sum())
