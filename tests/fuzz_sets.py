"""Random problems at the edge of their sets: columns of zeros and of all sizes, vertices as x⁰, products of
sets, radii of all sizes, and every form with every inner solver. They are judged as those of fuzz.py are.

Repeat one problem with ``python tests/fuzz_sets.py SEED``, a range of them with two numbers.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence

import numpy as np
from scipy.linalg import block_diag

import dcgs
from fuzz import GAPS, GRAPHS, SHAPES, Array, Judgment, Problem, Region, Sum, Term, any_set, inside, judge
from random_problems import LOSSES, AgentData

# Parts of a product, and their shapes: few corners, so that the judge can list them.
PARTS: dict[str, list[tuple[int, ...]]] = {
    "Simplex": [(1,), (3,)],
    "L1Ball": [(2,), (3,)],
    "L2Ball": [(2,)],
    "Box": [(1,), (2,)],
    "KSparseBall": [(3,)],
    "GroupL1Ball": [(3,)],
    "ConvexHull": [(2,)],
    "Polytope": [(2,)],
    "NuclearNormBall": [(2, 2)],
}
LARGER: dict[str, list[tuple[int, ...]]] = {
    "Simplex": [(10,), (28,)],
    "L1Ball": [(10,), (20,)],
    "L2Ball": [(10,)],
}
INNERS = ("auto", "oracle", "cg", "pcg", "corrective", "block", "exact", "projected", "newton")
FORMS = ("auto", "edges", "sums", "root", "newton")
METHODS = [f"dcgs.FastDCGS(form={form!r}, inner={inner!r})" for form in FORMS for inner in INNERS]
METHODS += [f"dcgs.FastDCGS(stops_itself=False, inner={inner!r})" for inner in ("auto", "oracle", "cg")]
METHODS += [
    f"dcgs.DCGS(inner={inner!r}, answer={a!r})" for inner in ("cg", "pcg") for a in ("average", "last")
]
METHODS += ["dcgs.DFW()", "dcgs.PrimalDual(precision=1e-3)", "dcgs.PGExtra()", "dcgs.NIDS()"]
METHODS += ["dcgs.ProjectedAGD()"]
DEFAULTS = [f"dcgs.FastDCGS(form={form!r}, inner='auto')" for form in ("auto", "auto", "edges", "sums")]
COLUMNS = ("zero", "uneven", "zero and uneven", "even")


def product(parts: Sequence[Region]) -> Region:
    """Return the product of some sets."""
    ends = np.cumsum([len(part.center) for part in parts])[:-1]
    spans = np.cumsum([0, *(part.span.shape[1] for part in parts)])
    count = int(spans[-1])

    def lifted(k: int, F: Array) -> Array:
        matrices = np.zeros((count, *F.shape[1:]))
        matrices[spans[k] : spans[k + 1]] = F
        return matrices

    return Region(
        dcgs.ProductSet(*(part.made for part in parts)),
        np.concatenate([part.center for part in parts]),
        block_diag(*(part.span for part in parts)),
        least=lambda g: sum(part.least(own) for part, own in zip(parts, np.split(g, ends), strict=True)),
        excess=lambda x: max(part.excess(own) for part, own in zip(parts, np.split(x, ends), strict=True)),
        size=max(part.size for part in parts),
        G=block_diag(*(part.G for part in parts)),
        h=np.concatenate([part.h for part in parts]),
        matrices=[(F0, lifted(k, F)) for k, part in enumerate(parts) for F0, F in part.matrices],
    )


def draw_region(rng: np.random.Generator, seed: int) -> tuple[str, Region]:
    """Return a set of any kind and size; every fourth one is a product."""
    if seed % 4 == 0:
        names = rng.choice(list(PARTS), int(rng.integers(2, 4)))
        shapes = [PARTS[name][rng.integers(len(PARTS[name]))] for name in names]
        radii = 10.0 ** (rng.uniform(-4.0, 4.0) + rng.uniform(-2.0, 2.0, len(names)))
        parts = [any_set(rng, str(n), s, float(r)) for n, s, r in zip(names, shapes, radii, strict=True)]
        return " × ".join(map(str, names)), product(parts)
    known = list(SHAPES)
    name = known[(seed - seed // 4) % len(known)]
    shapes = [*SHAPES[name], *LARGER.get(name, [])]
    shape = shapes[rng.integers(len(shapes))]
    return f"{name}{shape}", any_set(rng, name, shape, 10.0 ** rng.uniform(-8.0, 8.0))


def draw_columns(rng: np.random.Generator, kind: str, d: int) -> Array:
    """Return the sizes of the columns of all agents' data; one at least is not zero."""
    sizes = 10.0 ** rng.uniform(-6.0, 6.0, d) if "uneven" in kind else np.ones(d)
    zero = rng.random(d) < 0.5 if "zero" in kind else np.zeros(d, dtype=np.bool_)
    zero[rng.integers(d)] = False
    return np.asarray(np.where(zero, 0.0, sizes))


def draw_agent(rng: np.random.Generator, region: Region, kind: str, columns: Array) -> AgentData:
    """Return the data of an agent, with these columns."""
    d, shape = len(region.center), region.made.shape
    rows = int(rng.integers(1, 6))
    A = rng.standard_normal((rows, d)) * columns / region.size * 10.0 ** rng.uniform(-1.0, 1.0)
    far = 10.0 ** rng.uniform(-2.0, 1.0) * region.size * rng.standard_normal(d)
    z = A @ (region.center + far) + 0.1 * rng.standard_normal(rows)
    way = "sparse" if rng.random() < 0.3 else "dense"
    delta = float(np.abs(z).mean()) or 1.0
    return AgentData(kind, way, A, np.where(z < 0.0, -1.0, 1.0) if kind == "logistic" else z, shape, delta)


def draw_start(rng: np.random.Generator, region: Region) -> Array | None:
    """Return an x⁰: None, a vertex, or a point inside."""
    match int(rng.integers(3)):
        case 0:
            return None
        case 1:
            return region.made.lmo(rng.standard_normal(region.made.shape)).dense()
        case _:
            return inside(rng, region).reshape(region.made.shape)


def draw_method(
    rng: np.random.Generator, objectives: Sequence[dcgs.Objective], X: dcgs.ConvexSet
) -> tuple[str, dcgs.Method]:
    """Return a method that can be used for these objectives over this set, and how it is written."""
    # The default is drawn most often, and the closed form where it applies, which is for few problems.
    likely = DEFAULTS if rng.random() < 0.4 else METHODS
    if isinstance(X, dcgs.L2Ball):
        likely = [text for text in METHODS if "exact" in text]
    for texts in (likely, *[METHODS] * 1000):
        text = str(rng.choice(texts))
        method: dcgs.Method = eval(text, {"dcgs": dcgs})
        if method.incompatibility(dict(enumerate(objectives)), X) is None:
            return text, method
    raise AssertionError("some method must be for every problem")


def set_problem(seed: int) -> Problem:
    """Return the problem of a seed."""
    rng = np.random.default_rng((26, seed))
    name, region = draw_region(rng, seed)
    graph_name = str(rng.choice(list(GRAPHS)))
    graph = GRAPHS[graph_name](rng)
    kind, columns_name = str(rng.choice(LOSSES)), str(rng.choice(COLUMNS))
    columns = draw_columns(rng, columns_name, len(region.center))
    drawn = [draw_agent(rng, region, kind, columns) for _ in graph]
    objectives = [data.objective() for data in drawn]
    text, method = draw_method(rng, objectives, region.made)
    x0, gap = draw_start(rng, region), float(rng.choice(GAPS))
    about = (
        f"{name}, size {region.size:.1e}, {columns_name} columns, {graph_name}, {kind}, {text}, gap={gap:g}"
    )
    terms = [Term(data.kind, data.A, data.b, data.delta) for data in drawn]
    return Problem(seed, about, Sum(terms), region, objectives, graph, method, gap, x0)


def main(seeds: Sequence[int]) -> None:
    """Judge the problems of these seeds; print what is bad, the slow ones, and the worst of each set."""
    worst: dict[str, tuple[float, int]] = {}
    judgments: list[Judgment] = []
    for seed in seeds:
        problem = set_problem(seed)
        began = time.process_time()
        judgment = judge(problem)
        seconds = time.process_time() - began
        judgments.append(judgment)
        name = type(problem.region.made).__name__
        worst[name] = max(worst.get(name, (0.0, seed)), (judgment.roundings, seed))
        if judgment.verdict.bad or len(seeds) == 1:
            print(judgment, flush=True)
        if seconds > 5.0:
            print(f"seed {seed}: {seconds:.1f} s with its judge [{problem.about}]", flush=True)
    for name, (units, seed) in sorted(worst.items()):
        print(f"{name}: at most {units:.1f} ε · magnitude, at seed {seed}")
    for verdict in {judgment.verdict for judgment in judgments}:
        print(sum(judgment.verdict is verdict for judgment in judgments), verdict.value)
    print(sum(math.isfinite(judgment.roundings) for judgment in judgments), "answers checked")


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:]] or [0, 120]
    main(numbers if len(numbers) == 1 else range(*numbers))
