"""Bad input: each message, matched; and nothing is run before all was checked."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

import dcgs
from dcgs.runtime import Job, ProcessGroup, Runtime, SingleProcess
from problems import EndedByObserver

Array = NDArray[np.float64]

NAN, INF = float("nan"), float("inf")


def data(rows: int = 8, d: int = 6, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, d)), rng.standard_normal(rows)


OBJECTIVES = [dcgs.LeastSquares(*data(seed=i)) for i in range(3)]
X = dcgs.L1Ball(6, radius=2.0)
PATH = nx.path_graph(3)
SOUND = {"objectives": OBJECTIVES, "X": X, "graph": PATH, "iterations": 2}


@final
@dataclass(eq=False)
class Watched(Runtime):
    """A lockstep runtime that counts how often it was called."""

    runs: int = 0

    def run(self, job: Job) -> None:
        self.runs += 1
        dcgs.Lockstep().run(job)

    def hosts(self, agents: int) -> range:
        return range(agents)

    def group(self) -> ProcessGroup:
        return SingleProcess()


def assert_well_formed(message: str) -> None:
    """Assert that a message starts in lower case, or with a name or letter of mathematics, and ends."""
    first = message.split()[0]
    assert first[0].islower() or first in {"X", "A", "A_ub", "A_eq", "U", "V", "Theorem"}
    assert message.endswith(".")
    assert not message.endswith("..")
    assert "\n" not in message


def refused(kind: type[Exception], message: str, **changes: Any) -> None:
    """Assert that a run with these changes is refused with exactly this message, before any work."""
    watched = Watched()
    arguments: dict[str, Any] = SOUND | {"runtime": watched} | changes
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        dcgs.minimize(**arguments)
    assert watched.runs == 0
    assert_well_formed(message)


def refused_somehow(kind: type[Exception], beginning: str, value: str, **changes: Any) -> None:
    """Assert that a run is refused with a message that begins so and tells the value."""
    watched = Watched()
    arguments: dict[str, Any] = SOUND | {"runtime": watched} | changes
    with pytest.raises(kind, match=rf"^{beginning}.*\b(got|has) .*{re.escape(value)}.*") as caught:
        dcgs.minimize(**arguments)
    assert watched.runs == 0
    assert_well_formed(str(caught.value))


def unmade(kind: type[Exception], message: str, make: Callable[[], object]) -> None:
    """Assert that an object cannot be made, for exactly this reason."""
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        make()
    assert_well_formed(message)


def test_the_run_that_these_tests_spoil_is_sound() -> None:
    watched = Watched()
    dcgs.minimize(**SOUND, runtime=watched)
    assert watched.runs == 1


# The graph.


def graph(nodes: list[Any], edges: list[tuple[Any, Any]]) -> nx.Graph:
    """Return a graph whose nodes are in this order."""
    made = nx.Graph()
    made.add_nodes_from(nodes)
    made.add_edges_from(edges)
    return made


GRAPHS = {
    "the graph must be connected; it has 2 components: [[0, 1, 2], [3, 4, 5]].": graph(
        [], [(0, 2), (1, 2), (5, 4), (3, 4)]
    ),
    "the graph must be connected; it has 3 components: [['Rome', 'Bern'], ['Oslo'], ['Kyiv']].": graph(
        ["Rome", "Oslo", "Bern", "Kyiv"], [("Bern", "Rome")]
    ),
    "the graph must have no loops; nodes [0, 2] are their own neighbors.": graph(
        [0, 1, 2], [(0, 1), (1, 2), (2, 2), (0, 0)]
    ),
    "the graph must have no loops; nodes ['a', (0, 1)] are their own neighbors.": graph(
        [], [("b", "a"), ("a", "a"), ("b", (0, 1)), ((0, 1), (0, 1))]
    ),
    "the graph must have at least one node; it has none.": nx.Graph(),
} | {
    "the graph must be undirected, with one edge between two nodes; "
    f"got a {kind.__name__}. Use nx.Graph(graph).": nx.path_graph(3, create_using=kind)
    for kind in (nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph)
}


@pytest.mark.parametrize("message", GRAPHS)
def test_a_graph_must_be_simple_and_connected(message: str) -> None:
    refused(ValueError, message, graph=GRAPHS[message])


@pytest.mark.parametrize("graph", [{0: [1]}, None, nx.Graph], ids=repr)
def test_a_graph_must_be_one_of_networkx(graph: object) -> None:
    refused(
        TypeError,
        "graph must be a networkx.Graph, a sequence of such graphs, or a function of the round; "
        f"got {graph!r}.",
        graph=graph,
    )


@pytest.mark.parametrize(
    ("graph", "error", "message"),
    [
        (
            [],
            TypeError,
            "graph must be a networkx.Graph, a sequence of such graphs, or a function of the round; got [].",
        ),
        ([nx.path_graph(2), 3], TypeError, "the graph of round 2 must be a networkx.Graph; got 3."),
        (lambda round: None, TypeError, "the graph of round 1 must be a networkx.Graph; got None."),
        (
            [nx.path_graph(3), nx.path_graph(2)],
            ValueError,
            "graphs of all rounds must have the same nodes; that of round 2 differs in [2].",
        ),
        (
            [nx.empty_graph(3), nx.Graph([(0, 1), (2, 0)]).subgraph([0, 1, 2]), nx.DiGraph([(0, 1)])],
            ValueError,
            "the graph must be undirected, with one edge between two nodes; got a DiGraph. "
            "Use nx.Graph(graph).",
        ),
        (
            [nx.empty_graph(3)] * 2,
            ValueError,
            "the graph must be connected; it has 3 components: [[0], [1], [2]].",
        ),
    ],
    ids=["none", "number", "function", "nodes", "directed", "apart"],
)
def test_a_graph_of_every_round_must_be_one_of_networkx_with_the_same_nodes(
    graph: object, error: type[Exception], message: str
) -> None:
    refused(error, message, graph=graph)


# Objectives, set and method: one of each kind, in number and shape.


@pytest.mark.parametrize("count", [0, 2, 4])
def test_there_must_be_an_objective_for_each_node(count: int) -> None:
    refused(
        ValueError,
        f"there must be one objective for each node of the graph; got {count} objectives and 3 nodes.",
        objectives=(OBJECTIVES * 2)[:count],
    )


def test_all_objectives_must_take_points_of_the_set_and_all_that_do_not_are_listed() -> None:
    refused(
        ValueError,
        "all objectives must take points of shape (6,), as X; agent 0 takes (5,), agent 2 takes (2, 3).",
        objectives=[
            dcgs.LeastSquares(*data(d=5)),
            OBJECTIVES[1],
            dcgs.LeastSquares(*data(), shape=(2, 3)),
        ],
    )


@pytest.mark.parametrize(("wrong", "name"), [(data(), "tuple"), (None, "NoneType"), (np.eye(6), "ndarray")])
def test_objectives_must_be_objectives(wrong: object, name: str) -> None:
    refused(
        TypeError,
        f"objectives must be dcgs objectives; agent 1 has a {name}.",
        objectives=[OBJECTIVES[0], wrong, OBJECTIVES[2]],
    )


@pytest.mark.parametrize(
    ("wrong", "name"),
    [(OBJECTIVES[0], "Objective"), (None, "None"), (5, "5")],
    ids=["one", "none", "5"],
)
def test_objectives_must_be_a_sequence(wrong: object, name: str) -> None:
    refused_somehow(TypeError, "objectives must be", name, objectives=wrong)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (None, "None"),
        ("l1", "'l1'"),
        (dcgs.L1Ball, repr(dcgs.L1Ball)),
        (OBJECTIVES[0], ""),
    ],
    ids=["none", "name", "class", "objective"],
)
def test_a_set_must_be_a_set(wrong: object, name: str) -> None:
    given = name or "<Objective>"
    refused(TypeError, f"X must be a set such as dcgs.L1Ball(10); got {given}.", X=wrong)


@pytest.mark.parametrize("wrong", ["dcgs", dcgs.DCGS, 5, dcgs.CG()], ids=repr)
def test_a_method_must_be_a_method_and_not_its_class(wrong: object) -> None:
    refused(TypeError, f"method must be a method such as dcgs.DCGS(); got {wrong!r}.", method=wrong)


@pytest.mark.parametrize("wrong", ["lockstep", dcgs.Lockstep, 2, dcgs.DCGS()], ids=repr)
def test_a_runtime_must_be_a_runtime_and_not_its_class(wrong: object) -> None:
    refused_somehow(TypeError, "runtime must be", repr(wrong), runtime=wrong)


@pytest.mark.parametrize("wrong", [5, "stop", True])
def test_a_callback_must_be_a_function(wrong: object) -> None:
    refused_somehow(TypeError, "callback must be", repr(wrong), callback=wrong)


@pytest.mark.parametrize("wrong", [-1, 1.5, None, "a"])
def test_a_seed_must_be_a_whole_number(wrong: object) -> None:
    refused_somehow(ValueError, "seed must be", repr(wrong), seed=wrong)


# Data.


MAKERS: dict[str, Callable[[Array, Array], object]] = {
    "dense": dcgs.LeastSquares,
    "sparse": lambda A, b: dcgs.LeastSquares(sp.csc_array(A * (np.abs(A) > 0.5)), b),
    "logistic": lambda A, b: dcgs.Logistic(A, np.where(np.isfinite(b), np.sign(b), b)),
    "huber": lambda A, b: dcgs.Objective(dcgs.HuberLoss(b), dcgs.matrix_map(A)),
    "completion": lambda A, b: dcgs.MatrixCompletion([0] * 8, [1] * 8, b, (2, 2)),
}


@pytest.mark.parametrize(
    ("maker", "where", "message"),
    [
        ("dense", (3, 5), "A must be finite; A[3, 5] is nan."),
        ("dense", (slice(0, 2), 1), "A must be finite; A[0, 1] is nan and 1 more."),
        ("sparse", (5, 3), "A must be finite; A[5, 3] is nan."),
        ("logistic", (2, 2), "A must be finite; A[2, 2] is nan."),
        ("dense", 7, "b must be finite; b[7] is nan."),
        ("logistic", 0, "labels must be finite; labels[0] is nan."),
        ("huber", 4, "target must be finite; target[4] is nan."),
        ("completion", 1, "values must be finite; values[1] is nan."),
    ],
)
def test_an_objective_must_be_made_of_finite_data(maker: str, where: Any, message: str) -> None:
    A, b = data()
    (A if isinstance(where, tuple) else b)[where] = NAN
    unmade(ValueError, message, lambda: MAKERS[maker](A, b))


def spoiled(name: str, where: Any, value: float) -> dcgs.Objective:
    """Return least squares whose data, which it shares, are changed after it was made."""
    A, b = data()
    f = dcgs.LeastSquares(A, b)
    {"A": A, "b": b}[name][where] = value
    return f


def spoiled_sparse() -> dcgs.Objective:
    """Return least squares with a sparse matrix whose first entry is changed after it was made."""
    A = sp.csr_array(data()[0])
    f = dcgs.LeastSquares(A, data()[1])
    A.data[0] = NAN
    return f


SPOILED = {
    "agent 1: A[3, 5] is nan": (1, spoiled("A", (3, 5), NAN)),
    "agent 2: A[0, 0] is -inf": (2, spoiled("A", (0, 0), -INF)),
    "agent 0: b[7] is inf": (0, spoiled("b", 7, INF)),
    "agent 0: A[1, 2] is inf and 2 more": (0, spoiled("A", ([1, 4, 4], [2, 0, 1]), INF)),
    "agent 0: A[0, 0] is nan": (0, spoiled_sparse()),
}


@pytest.mark.parametrize("words", SPOILED)
def test_data_must_stay_finite_and_the_message_says_whose_and_where(words: str) -> None:
    agent, f = SPOILED[words]
    objectives = [f if i == agent else OBJECTIVES[i] for i in range(3)]
    refused(ValueError, f"data must be finite; {words}.", objectives=objectives)


def test_every_agent_with_bad_data_is_listed() -> None:
    refused(
        ValueError,
        "data must be finite; agent 0: b[7] is inf; agent 2: A[1, 2] is inf.",
        objectives=[spoiled("b", 7, INF), OBJECTIVES[1], spoiled("A", (1, 2), INF)],
    )


@pytest.mark.parametrize(
    "nothing",
    [
        dcgs.LeastSquares(np.zeros((0, 6)), []),
        dcgs.LeastSquares(sp.csr_array((0, 6)), []),
        dcgs.Logistic(np.zeros((0, 6)), []),
    ],
    ids=["dense", "sparse", "logistic"],
)
def test_every_agent_must_have_data_and_all_that_have_none_are_listed(nothing: dcgs.Objective) -> None:
    refused(
        ValueError,
        "every agent must have data; agents [0, 2] have none. "
        "Give them some, or leave them out of the graph.",
        objectives=[nothing, OBJECTIVES[1], nothing],
    )


def test_a_matrix_must_have_observed_entries() -> None:
    refused(
        ValueError,
        "every agent must have data; agents [0] have none. Give them some, or leave them out of the graph.",
        objectives=[dcgs.MatrixCompletion([], [], [], shape=(2, 2))],
        X=dcgs.NuclearNormBall((2, 2)),
        graph=nx.empty_graph(1),
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dcgs.LeastSquares(np.ones(3), np.ones(3)), "A must be a matrix; got shape (3,)."),
        (
            lambda: dcgs.LeastSquares(np.ones((2, 3)), np.ones(3)),
            "b must have one entry per row of A; A has 2 rows, b has 3.",
        ),
        (
            lambda: dcgs.LeastSquares(sp.csr_array((2, 3)), np.ones(4)),
            "b must have one entry per row of A; A has 2 rows, b has 4.",
        ),
        (
            lambda: dcgs.LeastSquares(np.ones((2, 3)), np.ones((2, 1))),
            "b must be a vector; got shape (2, 1).",
        ),
        (
            lambda: dcgs.LeastSquares(np.ones((2, 3)), np.ones(2), shape=(2, 2)),
            "shape must have 3 entries, one per column of A; got (2, 2).",
        ),
        (
            lambda: dcgs.Logistic(np.ones((3, 2)), [1, -1]),
            "labels must have one entry per row of A; A has 3 rows, labels has 2.",
        ),
        (
            lambda: dcgs.Logistic(np.ones((3, 2)), [1.0, 2.0, 7.0]),
            "labels must be −1 and +1, or 0 and 1 in dcgs.Logistic; got also [2.0, 7.0]. "
            "Encode the classes as −1 and +1.",
        ),
        (
            lambda: dcgs.Logistic(np.ones((3, 2)), [0.0, -1.0, 1.0]),
            "labels must be −1 and +1, or 0 and 1 in dcgs.Logistic; got also [0.0]. "
            "Encode the classes as −1 and +1.",
        ),
        (
            lambda: dcgs.MatrixCompletion([0, 1], [0], [1.0, 2.0], shape=(2, 2)),
            "rows, cols and values must have one length; got 2, 1 and 2.",
        ),
        (
            lambda: dcgs.MatrixCompletion([0, 2, -1], [0, 0, 0], [1.0, 2.0, 3.0], shape=(2, 2)),
            "rows must lie in 0 … 1, for shape (2, 2); 2 do not, the first is rows[1] = 2.",
        ),
        (
            lambda: dcgs.MatrixCompletion([0, 1], [0, 5], [1.0, 2.0], shape=(2, 3)),
            "cols must lie in 0 … 2, for shape (2, 3); 1 do not, the first is cols[1] = 5.",
        ),
        (
            lambda: dcgs.MatrixCompletion([0.0, 1.0], [0, 1], [1.0, 2.0], shape=(2, 2)),
            "rows must be a vector of integers; got [0.0, 1.0].",
        ),
        (
            lambda: dcgs.MatrixCompletion([0], [0], [1.0], shape=(2, 0)),
            "shape must be (rows, columns), two positive integers with at most 2**60 entries; got (2, 0).",
        ),
        (
            lambda: dcgs.HuberLoss(np.ones(2), delta=0.0),
            "delta must be a positive finite number; got 0.0.",
        ),
        (
            lambda: dcgs.Objective(dcgs.HuberLoss(np.ones(2)), dcgs.matrix_map(np.eye(3))),
            "loss and map must have images of one length; the loss has 2 entries, the map gives 3.",
        ),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_an_objective_must_be_made_of_arrays_that_fit(make: Callable[[], object], message: str) -> None:
    unmade(ValueError, message, make)


# Sets.


def test_a_radius_must_be_positive_and_finite() -> None:
    made: list[Callable[..., object]] = [
        partial(dcgs.L1Ball, 6),
        partial(dcgs.L2Ball, 6),
        partial(dcgs.LInfBall, 6),
        partial(dcgs.Simplex, 6),
        partial(dcgs.NuclearNormBall, (2, 3)),
        partial(dcgs.KSparseBall, 6, 2),
        partial(dcgs.GroupL1Ball, 3, [[0, 1], [2]]),
        partial(dcgs.Spectraplex, 3),
    ]
    for make, radius in itertools.product(made, [0, -1.0, NAN, INF]):
        message = f"radius must be a positive finite number; got {radius!r}."
        unmade(ValueError, message, partial(make, radius=radius))


@pytest.mark.parametrize("k", [0, -1, 7, 2.0, None])
def test_k_must_be_a_number_of_entries(k: Any) -> None:
    message = f"k must be a whole number between 1 and 6, the number of entries; got {k!r}."
    unmade(ValueError, message, lambda: dcgs.KSparseBall((2, 3), k=k))


# Methods.


@pytest.mark.parametrize(
    ("X", "name"),
    [
        (dcgs.L2Ball(6), "L2Ball"),
        (dcgs.NuclearNormBall((2, 3)), "NuclearNormBall"),
        (dcgs.GroupL1Ball(6, groups=[[0, 1, 2], [3, 4, 5]]), "GroupL1Ball"),
    ],
    ids=["L2Ball", "NuclearNormBall", "GroupL1Ball"],
)
@pytest.mark.parametrize("method", [dcgs.DCGS(inner="pcg"), dcgs.PrimalDual(inner=dcgs.PCG())], ids=repr)
def test_pairwise_steps_need_finitely_many_extreme_points(
    X: dcgs.ConvexSet, name: str, method: dcgs.Method
) -> None:
    refused(
        ValueError,
        f"pcg needs a set with finitely many extreme points; {name} is not one. Use inner='cg'.",
        objectives=[dcgs.LeastSquares(*data(seed=i), shape=X.shape) for i in range(3)],
        X=X,
        method=method,
    )


WIDE = dcgs.LeastSquares(*data(rows=4))


@pytest.mark.parametrize("schedule", ["theorem2", dcgs.Theorem2(balance=0.5)], ids=repr)
@pytest.mark.parametrize("method", [dcgs.DCGS, dcgs.PrimalDual])
def test_theorem_2_needs_strong_convexity_and_all_that_lack_it_are_listed(
    method: Callable[..., dcgs.Method], schedule: Any
) -> None:
    refused(
        ValueError,
        "Theorem 2 needs strongly convex objectives; those of agents [0, 2] are not known to be. "
        "Use schedule='theorem1', or Theorem2(strong_convexity=...) if you know a bound.",
        objectives=[WIDE, OBJECTIVES[1], WIDE],
        method=method(schedule=schedule),
    )


def test_a_closed_form_is_refused_where_there_is_none() -> None:
    refused(
        ValueError,
        "the closed form is for LeastSquares with a dense matrix over an L2Ball; "
        "got SquaredLoss with DenseMap over L1Ball. Use inner='auto'.",
        method=dcgs.PrimalDual(inner="exact"),
    )


@pytest.mark.parametrize(
    ("method", "also"), [(dcgs.DCGS, ""), (dcgs.FastDCGS, "'oracle', "), (dcgs.PrimalDual, "")]
)
@pytest.mark.parametrize("inner", ["fw", "CG", None, ["cg"], dcgs.CG], ids=repr)
def test_an_inner_solver_must_be_known(method: Callable[..., object], also: str, inner: object) -> None:
    unmade(
        ValueError,
        f"inner must be 'auto', {also}'cg', 'pcg', 'exact', 'block', 'corrective', 'projected', 'newton' or "
        f"an inner solver such as CG(); got {inner!r}.",
        lambda: method(inner=inner),
    )


@pytest.mark.parametrize("method", [dcgs.DCGS, dcgs.PrimalDual])
@pytest.mark.parametrize(
    "schedule", ["theorem3", None, 1, ["theorem1"], dcgs.Theorem1, dcgs.Theorem2], ids=repr
)
def test_a_schedule_must_be_known(method: Callable[..., object], schedule: object) -> None:
    unmade(
        ValueError,
        "schedule must be 'auto', 'theorem1', 'theorem2', a Theorem1(...), a Theorem2(...) "
        f"or a function of k; got {schedule!r}.",
        lambda: method(schedule=schedule),
    )


VALUES: list[tuple[str, str, list[Callable[..., object]], list[object]]] = [
    ("answer", "'average' or 'last'", [dcgs.DCGS, dcgs.PrimalDual], ["first", None, True]),
    ("step", "'line-search' or 'agnostic'", [dcgs.CG], ["exact", None, 0.5]),
    ("precision", "in [0, 1)", [dcgs.PrimalDual], [-1e-3, 1.0, NAN]),
    ("balance", "a positive finite number", [dcgs.Theorem1, dcgs.Theorem2], [0.0, -1.0, NAN, INF]),
    ("distance", "a positive finite number, or None", [dcgs.Theorem1, dcgs.Theorem2], [0.0, -1.0, NAN, INF]),
    ("horizon", "a whole number of at least 1, or None", [dcgs.Theorem1, dcgs.Theorem2], [0, -2, 2.5, NAN]),
    ("balance", "at most 1 in Theorem2, whose proof fails beyond", [dcgs.Theorem2], [1.5]),
    ("strong_convexity", "a positive finite number, or None", [dcgs.Theorem2], [0.0, -1.0, NAN]),
    ("eta", "a positive finite number, or None", [dcgs.FastDCGS], [0.0, -1.0, NAN, INF]),
    ("relaxation", "between 0 and 2, or None", [dcgs.FastDCGS], [0.0, 2.0, -0.5, NAN]),
    ("precision", "positive and less than 1", [dcgs.FastDCGS], [0.0, 1.0, 1.5, -0.5, NAN]),
    ("threads", "a whole number of at least 1, or None", [dcgs.Lockstep], [0, -1]),
    ("blas_threads", "a whole number of at least 1", [dcgs.Lockstep], [0, -1]),
    ("form", "'auto', 'edges', 'sums', 'root' or 'newton'", [dcgs.FastDCGS], ["hub", None, 1]),
    ("allow_faults", "True or False", [dcgs.Lockstep], [1, None]),
    ("speeds", "a positive finite number", [dcgs.Lockstep], [0.0, -1.0, NAN, True]),
    ("latency", "a finite number of at least 0", [dcgs.Lockstep], [-1.0, NAN, INF]),
    ("staleness", "a whole number of at least 1", [dcgs.Lockstep], [0, 1.5]),
    ("record", "a path, or None", [dcgs.Lockstep], [3, ""]),
    ("replay", "a path, or None", [dcgs.Lockstep], [3, ""]),
    ("loss", "at least 0 and less than 1", [dcgs.Faults], [-0.1, 1.0, NAN]),
    ("sleep", "at least 0 and less than 1", [dcgs.Faults], [-0.1, 1.0]),
    ("down", "at least 0 and less than 1", [dcgs.Faults], [-0.1, 1.0, NAN]),
    ("delay", "a whole number of at least 0", [dcgs.Faults], [-1, 0.5]),
    ("noise", "a finite number of at least 0", [dcgs.Faults], [-1e-3, NAN, INF]),
    ("seed", "a whole number of at least 0", [dcgs.Faults], [-1, 0.5]),
    ("patience", "a whole number of at least 1", [dcgs.Faults], [0, 2.5]),
]


@pytest.mark.parametrize(("name", "must", "made", "values"), VALUES)
def test_an_argument_of_a_method_a_schedule_or_a_runtime_must_be_in_its_range(
    name: str, must: str, made: list[Callable[..., object]], values: list[object]
) -> None:
    for make, value in itertools.product(made, values):
        unmade(ValueError, f"{name} must be {must}; got {value!r}.", partial(make, **{name: value}))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dcgs.Lockstep(speeds=[1.0, NAN]), "speeds must be a positive finite number; got nan."),
        (lambda: dcgs.Lockstep(speeds={0: -2.0}), "speeds must be a positive finite number; got -2.0."),
        (lambda: dcgs.Faults(loss={(0, 1): 1.5}), "loss[(0, 1)] must be between 0 and 1; got 1.5."),
        (lambda: dcgs.Faults(sleep={0: -0.5}), "sleep[0] must be between 0 and 1; got -0.5."),
        (
            lambda: dcgs.Lockstep(faults=dcgs.Faults(loss=0.1), speeds=2.0),
            "only one of faults, speeds and replay may be given; got faults and speeds.",
        ),
        (
            lambda: dcgs.FastDCGS(form="sums", eta=1.0),
            "eta must be None with form='sums', which has no such weight; got 1.0.",
        ),
    ],
)
def test_numbers_of_agents_and_edges_must_be_in_their_range(make: Callable[[], object], message: str) -> None:
    unmade(ValueError, message, make)


@pytest.mark.parametrize("faults", [0.1, "loss", dcgs.Faults], ids=repr)
def test_faults_must_be_faults(faults: Any) -> None:
    unmade(
        TypeError,
        f"faults must be faults such as dcgs.Faults(loss=0.1); got {faults!r}.",
        lambda: dcgs.Lockstep(faults=faults),
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], np.ones((3, 1)), (2, 3)), "U must be a matrix; got shape (1,)."),
        (
            (np.ones((2, 1)), np.ones((3, 2)), (2, 3)),
            "V must have shape (3, 1), as many columns as U has; got (3, 2).",
        ),
        (
            (np.ones((3, 1)), np.ones((3, 1)), (2, 3)),
            "U must have a row for each of 2 rows; got shape (3, 1).",
        ),
        (
            (np.ones((2, 1)), np.ones((3, 1)), (4, 3), [1, 0]),
            "rows must be increasing whole numbers from 0 to 3; got [1, 0].",
        ),
        (
            (np.ones((2, 1)), np.ones((3, 1)), 6),
            "shape must be (rows, columns), two positive integers with at most 2**60 entries; got 6.",
        ),
    ],
)
def test_the_factors_of_a_matrix_must_go_together(arguments: Any, message: str) -> None:
    unmade(ValueError, message, lambda: dcgs.LowRank(*arguments))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda x: x.entries([0, 2], [0, 0]), "rows must be from 0 to 1; got 2."),
        (lambda x: x.entries([-1], [0]), "rows must be from 0 to 1; got -1."),
        (lambda x: x.entries([0], [3]), "columns must be from 0 to 2; got 3."),
        (lambda x: x.row(2), "rows must be from 0 to 1; got 2."),
        (lambda x: x.top(-1, 1), "rows must be from 0 to 1; got -1."),
        (lambda x: x[0.5, 1], "rows must be whole numbers; got 0.5."),
    ],
)
def test_an_entry_of_a_matrix_in_factors_must_be_in_it(ask: Callable[[Any], object], message: str) -> None:
    x = dcgs.LowRank(np.ones((2, 1)), np.ones((3, 1)), (2, 3))
    with pytest.raises(IndexError, match=f"^{re.escape(message)}$"):
        ask(x)


@pytest.mark.parametrize("inner", [dcgs.CG, dcgs.PCG, dcgs.Corrective, dcgs.Block])
@pytest.mark.parametrize("steps", [0, -3, 2.5, NAN])
def test_steps_must_be_at_least_one(inner: Callable[..., object], steps: Any) -> None:
    with pytest.raises(ValueError, match=rf"^max_steps must be .*at least 1.*; got {steps!r}\.$"):
        inner(max_steps=steps)


# Stopping rules.


@pytest.mark.parametrize("name", ["iterations", "rounds", "lmo_calls"])
@pytest.mark.parametrize("value", [0, -1, 2.0, 2.5, NAN, INF, True, False, "3"])
def test_a_limit_must_be_a_whole_number(name: str, value: object) -> None:
    refused(
        ValueError,
        f"{name} must be a whole number of at least 1, or None; got {value!r}.",
        **{name: value},
    )


@pytest.mark.parametrize("name", ["iterations", "rounds", "lmo_calls", "every"])
def test_a_whole_number_of_numpy_is_a_whole_number(name: str) -> None:
    watched = Watched()
    arguments: dict[str, Any] = SOUND | {name: np.int64(2), "runtime": watched}
    dcgs.minimize(**arguments)
    assert watched.runs == 1


@pytest.mark.parametrize("value", [0, 0.0, -1.0, NAN, "3", True])
def test_seconds_must_be_positive(value: object) -> None:
    refused_somehow(ValueError, "seconds must be a positive finite number", repr(value), seconds=value)


def test_endless_seconds_are_no_limit() -> None:
    # Else nothing would end the run: neither a gap nor 10,000 iterations would be set in their stead.
    message = "seconds must be a positive finite number, or None; got inf."
    refused(ValueError, message, seconds=INF, iterations=None)


@pytest.mark.parametrize("value", [0, 0.0, -1e-3, 1, 1.0, 2.0, NAN, INF, True, "1e-3"])
def test_a_gap_must_be_a_fraction(value: object) -> None:
    refused(
        ValueError,
        f"gap must be between 0 and 1, a fraction of f(x0) − f(x), or None; got {value!r}.",
        gap=value,
    )


@pytest.mark.parametrize("value", [-1, 1.5, 1.0, NAN, True, False, "1"])
def test_every_must_be_a_whole_number(value: object) -> None:
    refused(ValueError, f"every must be a whole number of at least 0, or None; got {value!r}.", every=value)


@pytest.mark.parametrize("method", [EndedByObserver(dcgs.DFW()), dcgs.FastDCGS(stops_itself=False)], ids=repr)
def test_a_gap_cannot_end_a_run_that_is_not_measured_unless_its_agents_stop_it(method: dcgs.Method) -> None:
    refused(
        ValueError,
        "a gap can only end a run that is measured on the way; got gap with every=0. "
        "Use every=1, or leave gap out and give another rule.",
        method=method,
        gap=1e-3,
        every=0,
    )


@pytest.mark.parametrize("value", [0, 0.0, -1e-3, NAN, INF, True, "1e-3"])
def test_an_absolute_gap_must_be_positive_and_finite(value: object) -> None:
    refused(ValueError, f"gap_abs must be a positive finite number, or None; got {value!r}.", gap_abs=value)


@pytest.mark.parametrize(
    ("A", "b", "radius", "found"),
    [
        (1e200, 1.0, 1.0, "A is up to 1.00e+200; agent 0: A × diameter is up to 2.00e+200"),
        (1.0, 1e-100, 1.0, "b is up to 1.00e-100"),
        (1e50, 1.0, 1e50, "A × diameter is up to 2.00e+100"),
    ],
)
def test_data_whose_losses_would_overflow_or_underflow_are_refused(
    A: float, b: float, radius: float, found: str
) -> None:
    objectives = [dcgs.LeastSquares(A * np.eye(2), [b, 0.0])]
    with pytest.raises(ValueError, match="so that losses do not overflow; agent 0: ") as caught:
        dcgs.minimize(objectives, dcgs.L1Ball(2, radius), nx.empty_graph(1))
    assert found in str(caught.value)
    assert_well_formed(str(caught.value))


@pytest.mark.parametrize("inner", ["pcg", "corrective"])
def test_corrective_steps_need_finitely_many_extreme_points(inner: Any) -> None:
    refused(
        ValueError,
        f"{inner} needs a set with finitely many extreme points; L2Ball is not one. Use inner='cg'.",
        X=dcgs.L2Ball(6),
        method=dcgs.FastDCGS(inner=inner),
    )


# The starting point.


@pytest.mark.parametrize(
    ("x0", "shape"), [(np.zeros(5), "(5,)"), (np.zeros((6, 1)), "(6, 1)"), (0.0, "()"), ([], "(0,)")]
)
def test_x0_must_have_the_shape_of_the_set(x0: object, shape: str) -> None:
    refused(ValueError, f"x0 must have shape (6,), as X; got {shape}.", x0=x0)


@pytest.mark.parametrize(
    ("x0", "message"),
    [
        ([0.0, NAN, 0.0, 0.0, 0.0, 0.0], "x0 must be finite; x0[1] is nan."),
        ([0.0, 0.0, INF, 0.0, -INF, 0.0], "x0 must be finite; x0[2] is inf and 1 more."),
    ],
)
def test_x0_must_be_finite(x0: list[float], message: str) -> None:
    refused(ValueError, message, x0=x0)


@pytest.mark.parametrize(
    ("X", "x0", "violation"),
    [
        (X, np.full(6, 0.5), "1.00e+00"),
        (X, np.full(6, 1.0 / 3.0 + 1e-8), "6.00e-08"),
        (dcgs.L2Ball(6, radius=2.0), np.full(6, 1.0), "4.49e-01"),
        (dcgs.Simplex(6), np.zeros(6), "1.00e+00"),
        (dcgs.Box(np.zeros(6), np.ones(6)), np.full(6, -0.25), "2.50e-01"),
    ],
    ids=["L1Ball", "L1Ball, just outside", "L2Ball", "Simplex", "Box"],
)
def test_x0_must_be_in_the_set(X: dcgs.ConvexSet, x0: Array, violation: str) -> None:
    refused(
        ValueError,
        f"x0 must be in X, a {type(X).__name__}; it violates it by {violation}. "
        "Scale it into X, or leave x0 out.",
        X=X,
        x0=x0,
    )


def test_x0_may_be_outside_by_rounding() -> None:
    x0 = np.full(6, 2.0 / 6.0) * (1.0 + 1e-12)
    assert X.violation(x0) > 0.0
    watched = Watched()
    dcgs.minimize(OBJECTIVES, X, PATH, iterations=2, x0=x0, runtime=watched)
    assert watched.runs == 1


# Types of numbers.


@pytest.mark.parametrize(
    "values", [["a", "b"], np.ones(2, dtype=complex), [None, 1.0]], ids=["text", "complex", "none"]
)
def test_data_must_be_real_numbers(values: Any) -> None:
    with pytest.raises(ValueError, match=r"^b must hold real numbers; got an array of .*\.$"):
        dcgs.LeastSquares(np.eye(2), values)
    with pytest.raises(ValueError, match=r"^A must hold real numbers; got an array of .*\.$"):
        dcgs.LeastSquares([values, values], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"^x0 must hold real numbers; got an array of .*\.$"):
        dcgs.minimize(OBJECTIVES, X, PATH, iterations=1, x0=values)


def test_a_sparse_matrix_must_hold_real_numbers() -> None:
    with pytest.raises(
        ValueError,
        match=r"^A must hold real numbers; got a sparse matrix of complex128 and shape \(2, 2\)\.$",
    ):
        dcgs.LeastSquares(sp.csr_array(np.eye(2, dtype=complex)), [1.0, 2.0])


def test_a_gap_in_a_run_without_measurements_is_refused() -> None:
    message = (
        "a gap can only end a run that is measured on the way; got gap with every=None. "
        "Use every=1, or leave gap out and give another rule."
    )
    refused(ValueError, message, method=dcgs.FastDCGS(stops_itself=False), gap=0.1, every=None)


def test_a_callback_that_is_never_called_is_refused() -> None:
    message = "a callback is called with measurements; got one with every=None. Use every=1, or 0."
    refused(ValueError, message, callback=lambda snapshot: None, every=None)


def test_an_agent_without_an_objective_is_named() -> None:
    message = (
        "objectives must hold those of all agents that this process runs, [0, 1, 2]; agents [1] have none."
    )
    refused(ValueError, message, objectives={0: OBJECTIVES[0], 2: OBJECTIVES[2]})


def test_the_parts_of_a_product_must_be_sets() -> None:
    with pytest.raises(
        TypeError, match=r"parts of a product must be sets such as dcgs.L1Ball\(10\); got \(\)"
    ):
        dcgs.ProductSet()
    with pytest.raises(TypeError, match="parts of a product must be sets"):
        dcgs.ProductSet(X, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"folds": 3}, "folds must be dcgs.Fold"),
        ({"folds": []}, "folds must be dcgs.Fold"),
        ({"set_of": X}, "set_of must be a function of the radius"),
        ({"set_of": dcgs.L1Ball}, "set_of must be a function of the radius"),
        ({"radii": [1.0, -1.0]}, "radii must be positive"),
        ({"radii": []}, "radii must be at least one"),
        ({"radii": "auto"}, "radii must hold real numbers"),
        ({"runtime": "mpi"}, "runtime must be a runtime"),
        ({"graph": nx.empty_graph(3)}, "graph must be connected"),
    ],
)
def test_a_path_of_junk_is_refused(given: dict[str, Any], sentence: str) -> None:
    fold = dcgs.Fold(dict(enumerate(OBJECTIVES)), dict(enumerate(OBJECTIVES)))
    sound: dict[str, Any] = {"folds": fold, "set_of": lambda r: dcgs.L1Ball(6, r), "graph": PATH}
    with pytest.raises((TypeError, ValueError), match=sentence):
        dcgs.path(**sound | given)
