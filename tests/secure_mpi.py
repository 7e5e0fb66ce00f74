"""Secure sums under mpiexec, each compared with the same sums in the open in a single process.

Prints, in the first process, one line of JSON with the number of graphs.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import networkx as nx
import numpy as np

import dcgs
from dcgs.floors import Floors
from dcgs.learn.sums import run_programs
from dcgs.protocol import Program
from dcgs.secure.keys import KeyPair, exchange_keys
from dcgs.secure.masks import Masks, NoMasks, PairwiseMasks
from dcgs.secure.sum import MaskedReduction, Reduce, Total, Value, secure_answer
from dcgs.secure.union import SecureUnion, secure_union
from dcgs.tree import TreeNode
from secure_runs import along_tree

Outcome = tuple[list[bytes], tuple[int, ...], SecureUnion]


def program_of(
    agents: int, masks_of: Callable[[int, Reduce], Program[Masks]]
) -> Callable[..., Program[Outcome]]:
    """Return a program with two sums, the second of which overflows, and a union."""

    def told(total: Total) -> Value:
        return *total.arrays, np.array(total.errors)

    def program(i: int, tree: TreeNode) -> Program[Outcome]:
        reduce = along_tree(tree)
        reduction = MaskedReduction((yield from masks_of(i, reduce)), reduce)
        numbers = np.random.default_rng(i).standard_normal(2000)
        first, _ = yield from secure_answer((numbers,), reduction, told, (45,), "numbers")
        second, used = yield from secure_answer((1e8 * numbers,), reduction, told, (45,), "more")
        texts = {"all have it": 5, f"only {i} has it": 50, f"some have it {i % 2}, ü": 9}
        union = yield from secure_union(texts, Floors(10, 2), reduction, "texts")
        return [array.tobytes() for array in (*first, *second)], used, union

    return program


def main() -> None:
    """Run all cases."""
    runtime = dcgs.MPI(timeout=120.0)
    graphs = [nx.path_graph(5), nx.star_graph(5), nx.cycle_graph(7)]
    for number, graph in enumerate(graphs):
        agents = len(graph)

        def masked(i: int, reduce: Reduce, agents: int = agents, number: int = number) -> Program[Masks]:
            keys = yield from exchange_keys(KeyPair.generate(), i, agents, f"graph {number}", reduce)
            return PairwiseMasks(keys)

        def unmasked(i: int, reduce: Reduce, agents: int = agents) -> Program[Masks]:
            yield from ()
            return NoMasks(agents)

        answers, _ = run_programs(program_of(agents, masked), graph, runtime)
        alone, _ = run_programs(program_of(agents, unmasked), graph)
        assert answers == {i: alone[i] for i in runtime.hosts(agents)}
        assert len({repr(answer) for answer in alone.values()}) == 1
        assert alone[0][1] == (45 - 16,)
    if runtime.group().is_root:
        print(json.dumps({"graphs": len(graphs)}))


if __name__ == "__main__":
    main()
