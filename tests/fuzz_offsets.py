"""Random least squares with targets up to 10⁹ away from the range of A: f is far larger than its decreases.

The part of b that is orthogonal to the range of A changes f by a constant. The judge gets the other part,
computed with fractions, so that its own values do not cancel. Problems are judged as those of fuzz.py are.

Repeat one problem with ``python tests/fuzz_offsets.py SEED``, a range of them with ``A:B``; with ``--peers``
before the seeds, by the methods other than FastDCGS.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from scipy.linalg import null_space

import dcgs
from fuzz import (
    GAPS,
    GAPS_OF_PEERS,
    GRAPHS,
    METHODS,
    PEERS,
    SHAPES,
    Array,
    Problem,
    Sum,
    Term,
    any_set,
    draw_method,
    for_peers,
    judge,
    seeds_of,
)


def solved(M: list[list[Fraction]], v: list[Fraction]) -> list[Fraction]:
    """Return M⁻¹ v, by elimination; M is positive definite."""
    rows = [[*row, value] for row, value in zip(M, v, strict=True)]
    for k, pivot in enumerate(rows):
        for i, row in enumerate(rows):
            factor = row[k] / pivot[k] if i != k else Fraction(0)
            rows[i] = [a - factor * b for a, b in zip(row, pivot, strict=True)]
    return [row[-1] / row[k] for k, row in enumerate(rows)]


def in_range(A: Array, b: Array) -> Array:
    """Return the projection of b onto the range of A, right to the last bit."""
    columns = [[Fraction(value) for value in column] for column in A.T.tolist()]
    target = [Fraction(value) for value in b.tolist()]
    gram = [[sum((x * y for x, y in zip(a, c, strict=True)), Fraction(0)) for c in columns] for a in columns]
    products = [sum((x * y for x, y in zip(a, target, strict=True)), Fraction(0)) for a in columns]
    x = solved(gram, products)
    exact = [
        sum((t * y for t, y in zip(row, x, strict=True)), Fraction(0)) for row in zip(*columns, strict=True)
    ]
    return np.array([float(value) for value in exact])


def offset_problem(seed: int, peers: bool = False) -> Problem:
    """Return the problem of a seed; every method is as likely as others, with ``peers`` none is FastDCGS."""
    rng = np.random.default_rng((261, seed))
    names = list(SHAPES)
    name = names[seed % len(names)]
    shape = SHAPES[name][rng.integers(len(SHAPES[name]))]
    method = draw_method(rng, dict.fromkeys(PEERS if peers else METHODS, 1.0), name)
    graph_name = str(rng.choice(list(GRAPHS)))
    graph = GRAPHS[graph_name](rng)
    region = any_set(rng, name, shape, 10.0 ** rng.uniform(-1.0, 1.0))
    d, offset = len(region.center), 10.0 ** rng.uniform(3.0, 9.0)
    far = 10.0 ** rng.uniform(-4.0, 0.5) * region.size
    terms, objectives = [], []
    for _ in graph:
        A = rng.standard_normal((d + int(rng.integers(1, 4)), d)) * 10.0 ** rng.uniform(-1.0, 1.0)
        normal = null_space(A.T) @ rng.standard_normal(len(A) - d)
        b = offset * normal + A @ (region.center + far * rng.standard_normal(d))
        terms.append(Term("squares", A, in_range(A, b)))
        objectives.append(dcgs.LeastSquares(A, b, shape))
    gap = float(rng.choice(GAPS_OF_PEERS if peers else GAPS))
    about = f"{name}{shape}, {graph_name} of {len(graph)}, offset {offset:.1e}, {method}, gap={gap:g}"
    made: dcgs.Method = eval(method, {"dcgs": dcgs})
    drawn = Problem(seed, about, Sum(terms), region, objectives, graph, made, gap, None)
    return for_peers(drawn) if peers else drawn


def main(seeds: Sequence[int], peers: bool = False) -> None:
    """Judge the problems of these seeds; print what is bad, and how many of each verdict there are."""
    judgments = [judge(offset_problem(seed, peers)) for seed in seeds]
    for judgment in judgments:
        if judgment.verdict.bad or len(judgments) == 1:
            print(judgment)
    for verdict, count in Counter(judgment.verdict for judgment in judgments).items():
        print(count, verdict.value)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--peers"]
    main(seeds_of(words, range(120)), "--peers" in sys.argv)
