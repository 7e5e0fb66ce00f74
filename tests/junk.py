"""Junk given to every public name of dcgs, and a judge of what comes back.

A call is sound but for one argument (or two), which is junk. It must be refused with a ValueError or a
TypeError in a sentence of ours, before any work; or it may succeed where the value is one that the parameter
allows. Arguments are Python expressions, so that a bad call can be pasted into a shell.

Print all bad calls with ``python tests/junk.py``, those of one name with ``python tests/junk.py NAME``.
"""

from __future__ import annotations

import inspect
import math
import os
import re
import resource
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from numbers import Integral, Real
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeAlias, final

import networkx as nx
import numpy as np
import scipy.sparse as sp

import dcgs
import dcgs.datasets
from dcgs.atoms import Atom
from dcgs.inner import Inner
from dcgs.objectives.maps import LinearMap
from dcgs.points import Point
from dcgs.runtime import Runtime
from dcgs.runtime.asynchronous import Record

Fits: TypeAlias = Callable[[Any], bool]

HOME = str(Path(dcgs.__file__).parent)
# Seconds of computing after which a call counts as one without end; refusals take microseconds.
LONGEST = 3.0
# Memory that a call may take beyond what the process has.
ROOM = 1 << 30
PAIRS = 12


@final
class CountingBall(dcgs.ConvexSet):
    """The ℓ₁ ball of radius 2 in two dimensions, which counts the calls of its oracle."""

    shape = (2,)
    polytope = True
    calls = 0

    def __init__(self) -> None:
        self.ball = dcgs.L1Ball(2, 2.0)

    @property
    def diameter(self) -> float:
        return self.ball.diameter

    def lmo(self, direction: Point, near: Atom | None = None) -> Atom:
        CountingBall.calls += 1
        return self.ball.lmo(direction, near)

    def violation(self, x: Point) -> float:
        return self.ball.violation(x)

    def start(self) -> Point:
        return self.ball.start()


JUNK: Sequence[str] = (
    "None",
    "...",
    "NotImplemented",
    "True",
    "False",
    "np.True_",
    "0",
    "-1",
    "1",
    "2",
    "1.5",
    "-0.0",
    "-2.5",
    "1e-320",
    "1e308",
    "math.nan",
    "math.inf",
    "-math.inf",
    "10**400",
    "-10**400",
    "2**40",
    "(2**40, 2**40)",
    "np.float64(math.nan)",
    "np.int64(-3)",
    "1j",
    "np.complex128(1.0)",
    "'1'",
    "''",
    "'auto'",
    "'nonsense'",
    "'a\\x00b'",
    "b''",
    "b'1'",
    "bytearray(b'1')",
    "[]",
    "()",
    "{}",
    "{0: 1}",
    "{1, 2}",
    "range(2)",
    "iter([1.0, 2.0])",
    "(x for x in [1.0, 2.0])",
    "[1.0, None]",
    "['1', '2']",
    "[True, False]",
    "[[1.0], [1.0, 2.0]]",
    "[math.nan, 1.0]",
    "[1.0, math.inf]",
    "[10**400, 1]",
    "[1.0, 2.0, 3.0]",
    "[[1.0, 2.0], [3.0, math.nan]]",
    "[[1.0, 2.0, 3.0]]",
    "np.array(1.0)",
    "np.array('1')",
    "np.array([])",
    "np.zeros((0, 2))",
    "np.zeros((2, 0))",
    "np.zeros((2, 2, 2))",
    "np.array([1.0, 2.0]) * 1j",
    "np.array(['1', '2'])",
    "np.array([1.0, 2.0], dtype=object)",
    "np.array([None, {}], dtype=object)",
    "np.array(['2026-01-01', '2026-01-02'], dtype='datetime64[D]')",
    "np.array([1, 2], dtype='timedelta64[s]')",
    "np.array([(1, 2.0)], dtype=[('a', int), ('b', float)])",
    "np.ma.array([1.0, 2.0], mask=[False, True])",
    "np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=True)",
    "np.ma.masked",
    "np.broadcast_to(1.0, (2**40, 1, 1))",
    "sp.csr_array(np.eye(2) * 1j)",
    "sp.coo_array(np.array([1.0, 2.0]))",
    "sp.csr_array(np.array([[1.0, math.nan], [0.0, 1.0]]))",
    "sp.csr_array((2, 3))",
    "sp.eye_array(2, dtype=bool)",
    "datetime.date(2026, 1, 1)",
    "lambda *_: None",
    "int",
    "object()",
    "dcgs.L1Ball",
    "dcgs.L1Ball(2)",
    "dcgs.FastDCGS",
    "dcgs.FastDCGS()",
    "dcgs.Lockstep()",
    "dcgs.LeastSquares(np.eye(2), [1.0, 2.0])",
    "dcgs.SquaredLoss",
    "dcgs.SquaredLoss([1.0, 2.0])",
    "dcgs.Status.GAP",
    "dcgs.CG()",
    "nx.DiGraph([(0, 1)])",
    "nx.empty_graph(2)",
    "nx.path_graph(2)",
)
RUN = dcgs.minimize(
    [dcgs.LeastSquares(np.eye(2), [1.0, 2.0])] * 2, dcgs.L1Ball(2), nx.path_graph(2), rounds=2
)
SPACE: dict[str, Any] = {
    "RUN": RUN,
    "np": np,
    "sp": sp,
    "nx": nx,
    "dcgs": dcgs,
    "math": math,
    "datetime": __import__("datetime"),
    "CountingBall": CountingBall,
}


# What parameters allow. Each is a function of the value that says whether success is right with it.


def number(least: float = -math.inf, most: float = math.inf, *, open_: bool = True) -> Fits:
    """Allow finite real numbers between two bounds, which are left out if ``open_``."""

    def fits(value: Any) -> bool:
        if isinstance(value, np.ndarray) and value.ndim == 0 and not np.ma.isMaskedArray(value):
            value = value[()]
        if not isinstance(value, Real) or isinstance(value, bool | np.bool_):
            return False
        try:
            as_float = float(value)
        except OverflowError:
            return False
        inside = least < as_float < most if open_ else least <= as_float <= most
        return inside and math.isfinite(as_float)

    return fits


def whole(least: int) -> Fits:
    """Allow whole numbers of at least so much."""
    return lambda value: isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def whole_between(least: int, most: int) -> Fits:
    """Allow whole numbers between two that are allowed, too."""
    return lambda value: whole(least)(value) and value <= most


def numbers(*ndims: int) -> Fits:
    """Allow arrays of so many dimensions of finite real numbers, none masked, none written as text."""

    def fits(value: Any) -> bool:
        if sp.issparse(value):
            real = value.dtype.kind in "fiub"
            return real and value.ndim in ndims and bool(np.isfinite(value.data).all())
        if np.ma.isMaskedArray(value) or isinstance(value, str | bytes | bytearray):
            return False
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, OverflowError):
            return False
        return array.ndim in ndims and array.dtype.kind in "fiub" and bool(np.isfinite(array).all())

    return fits


def indices(value: Any) -> bool:
    """Allow vectors of whole numbers."""
    return numbers(1)(value) and (np.asarray(value).dtype.kind in "iu" or np.asarray(value).size == 0)


def labels(value: Any) -> bool:
    """Allow vectors of −1 and 1."""
    return numbers(1)(value) and bool(np.isin(np.asarray(value, dtype=float), (-1.0, 1.0)).all())


def classes(value: Any) -> bool:
    """Allow vectors of −1 and 1, or of 0 and 1."""
    return numbers(1)(value) and bool(np.isin(np.asarray(value, dtype=float), (0.0, 1.0)).all())


def shape(sides: int | None = None) -> Fits:
    """Allow positive whole numbers, or so many of them in a row."""

    def fits(value: Any) -> bool:
        given = (value,) if isinstance(value, Integral) else value
        if not isinstance(given, Sequence) or isinstance(given, str | bytes):
            return False
        return bool(given) and (sides is None or len(given) == sides) and all(map(whole(1), given))

    return fits


def matrix_shape(value: Any) -> bool:
    """Allow two positive whole numbers."""
    return shape(2)(value) and not isinstance(value, Integral)


def partition(value: Any) -> bool:
    """Allow groups of the two indices; no junk is one."""
    return False


def flag(value: Any) -> bool:
    """Allow True and False."""
    return isinstance(value, bool | np.bool_)


def one_of(*names: str) -> Fits:
    """Allow these names."""
    return lambda value: isinstance(value, str) and value in names


def instance(*kinds: type) -> Fits:
    """Allow objects of these classes."""
    return lambda value: isinstance(value, kinds)


def optional(fits: Fits) -> Fits:
    """Allow None, too."""
    return lambda value: value is None or fits(value)


def either(*all_of: Fits) -> Fits:
    """Allow what one of them allows."""
    return lambda value: any(fits(value) for fits in all_of)


def function(value: Any) -> bool:
    """Allow functions; a class is none, nor is one of our objects."""
    return callable(value)


def path(value: Any) -> bool:
    """Allow names of files."""
    return isinstance(value, str | os.PathLike) and bool(value) and "\x00" not in str(value)


def graph(value: Any) -> bool:
    """Allow the connected undirected graph of two nodes."""
    return isinstance(value, nx.Graph) and not value.is_directed() and nx.is_connected(value)


def share(value: Any) -> bool:
    """Allow probabilities below 1, or a mapping to some, whose keys a run compares with its graph."""
    if isinstance(value, dict):
        return all(number(0.0, 1.0, open_=False)(one) for one in value.values())
    return number(0.0, 1.0, open_=False)(value) and value < 1.0


def delays(value: Any) -> bool:
    """Allow whole numbers, or a mapping to them, whose keys a run compares with its graph."""
    return all(map(whole(0), value.values())) if isinstance(value, dict) else whole(0)(value)


def speeds(value: Any) -> bool:
    """Allow positive numbers: one, or a sequence or a mapping of them."""
    given = list(value.values()) if isinstance(value, dict) else value
    if isinstance(given, Sequence) and not isinstance(given, str | bytes | bytearray):
        return all(map(ABOVE_ZERO, given))
    return ABOVE_ZERO(given)


def increasing(value: Any) -> bool:
    """Allow the numbers of rows of a matrix of two rows."""
    return indices(value) and np.asarray(value).tolist() in ([], [0], [1], [0, 1])


def lists(of: Fits) -> Fits:
    """A sequence for each of two agents, whose entries fit."""

    def fits(value: Any) -> bool:
        if isinstance(value, Mapping):
            value = [value[i] for i in sorted(value)] if sorted(value) == [0, 1] else None
        try:
            each = [list(own) for own in value] if not isinstance(value, str) else []
        except TypeError:
            return False
        texts = any(isinstance(own, str | bytes | Mapping) for own in value)
        return len(each) == 2 and not texts and all(of(one) for own in each for one in own)

    return fits


def same_shapes(value: Any) -> bool:
    """Arrays of finite numbers for each of two agents, of the same shapes."""
    if not lists(lambda one: numbers(0, 1, 2, 3)(one))(value):
        return False
    own = value.values() if isinstance(value, Mapping) else value
    first, second = ([np.shape(array) for array in arrays] for arrays in own)
    return first == second


def runs(value: Any) -> bool:
    """A mapping from names to results, with at least one."""
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(isinstance(one, dcgs.Result) for one in value.values())
    )


def objectives(value: Any) -> bool:
    """Allow two objectives; no junk is that."""
    return False


@final
@dataclass(frozen=True)
class Parameter:
    """What a sound call gives, and what may be given."""

    sound: str
    fits: Fits


ABOVE_ZERO = number(0.0)
INNER = either(
    one_of("auto", "cg", "pcg", "corrective", "block", "exact", "projected", "newton"), instance(Inner)
)
SCHEDULE = either(one_of("auto", "theorem1", "theorem2"), instance(dcgs.Theorem1, dcgs.Theorem2), function)
STEPS = Parameter("10", whole(1))
PARAMETERS: dict[str, Parameter] = {
    "A": Parameter("np.eye(2)", numbers(2)),
    "A_eq": Parameter("[[1.0, 1.0]]", optional(numbers(2))),
    "A_ub": Parameter("np.vstack([np.eye(2), -np.eye(2)])", optional(numbers(2))),
    "X": Parameter("CountingBall()", instance(dcgs.ConvexSet)),
    "U": Parameter("np.ones((2, 1))", numbers(2)),
    "V": Parameter("np.ones((2, 1))", numbers(2)),
    "allow_faults": Parameter("False", flag),
    "alpha": Parameter("1.0", number(0.0, open_=False)),
    "answer": Parameter("'last'", one_of("average", "last")),
    "asynchronous": Parameter("False", flag),
    "b": Parameter("[1.0, 2.0]", numbers(1)),
    "b_eq": Parameter("[0.0]", optional(numbers(1))),
    "b_ub": Parameter("np.ones(4)", optional(numbers(1))),
    "balance": Parameter("0.5", ABOVE_ZERO),
    "blas_threads": Parameter("1", whole(1)),
    "callback": Parameter("None", optional(function)),
    "on_model": Parameter("None", optional(function)),
    "checkpoint": Parameter("None", optional(instance(dcgs.Checkpoint))),
    "cols": Parameter("[1, 0]", indices),
    "comm": Parameter("None", lambda value: value is None),
    "delay": Parameter("1", delays),
    "delta": Parameter("1.0", ABOVE_ZERO),
    "distance": Parameter("1.0", optional(ABOVE_ZERO)),
    "down": Parameter("0.1", share),
    "download": Parameter("False", flag),
    "e": Parameter("0.1", number(0.0, open_=False)),
    "entries": Parameter("5", whole_between(1, 16)),
    "eta": Parameter("None", optional(ABOVE_ZERO)),
    "every": Parameter("1", optional(whole(0))),
    "faults": Parameter("None", optional(instance(dcgs.Faults))),
    "features": Parameter("3", optional(whole(1))),
    "folder": Parameter("'kept'", path),
    "form": Parameter("'edges'", one_of("auto", "edges", "sums", "root", "newton")),
    "gap": Parameter("0.1", optional(number(0.0, 1.0))),
    "gap_abs": Parameter("0.1", optional(ABOVE_ZERO)),
    "gossip": Parameter("'auto'", one_of("auto", "exact", "chebyshev", "repeated")),
    "gossip_rounds": Parameter("None", optional(whole(1))),
    "graph": Parameter("nx.path_graph(2)", graph),
    "groups": Parameter("[[0], [1]]", partition),
    "horizon": Parameter("5", optional(whole(1))),
    "inner": Parameter("'cg'", INNER),
    "iterations": Parameter("2", optional(whole(1))),
    "k": Parameter("1", whole_between(1, 2)),
    "labels": Parameter("[1.0, -1.0]", either(labels, classes)),
    "latency": Parameter("0.5", number(0.0, open_=False)),
    "laziness": Parameter("0.5", lambda value: number(0.0, 1.0, open_=False)(value) and value < 1.0),
    "link": Parameter("'10MB/s,20ms'", optional(lambda value: isinstance(value, str) and "/s" in value)),
    "lmo_calls": Parameter("50", optional(whole(1))),
    "loss": Parameter("dcgs.SquaredLoss([1.0, 2.0])", instance(dcgs.Loss)),
    "lower": Parameter("[0.0, 0.0]", numbers(1)),
    "map": Parameter("dcgs.matrix_map(np.eye(2))", instance(LinearMap)),
    "max_steps": STEPS,
    "method": Parameter("dcgs.FastDCGS()", optional(instance(dcgs.Method))),
    "n": Parameter("2", whole(1)),
    "name": Parameter("'b'", lambda value: isinstance(value, str) and bool(value)),
    "noise": Parameter("1.0", number(0.0, open_=False)),
    "nonzeros": Parameter("2", whole_between(1, 3)),
    "objectives": Parameter("[dcgs.LeastSquares(np.eye(2), [1.0, 2.0])] * 2", objectives),
    "patience": Parameter("1000", whole(1)),
    "path": Parameter("'no-such-file'", path),
    "points": Parameter("[[0.0, 1.0], [1.0, 0.0]]", numbers(2, 3)),
    "precision": Parameter("0.5", lambda value: number(0.0, 1.0, open_=False)(value)),
    "progress": Parameter("None", optional(function)),
    "radius": Parameter("2.0", ABOVE_ZERO),
    "rank": Parameter("2", whole_between(1, 4)),
    "record": Parameter("None", optional(path)),
    "operation": Parameter("'sum'", one_of("sum", "min", "max")),
    "on_message": Parameter("None", optional(function)),
    "secure": Parameter("False", either(flag, one_of("unmasked"))),
    "optimum": Parameter("None", optional(number())),
    "results": Parameter("{'run': RUN}", runs),
    "sent": Parameter("[]", instance(list)),
    "sites": Parameter("1", whole_between(1, 10**6)),
    "texts": Parameter("[['a'], ['b']]", lists(lambda one: isinstance(one, str))),
    "weights": Parameter("[1.0, 2.0]", lambda value: numbers(1)(value) and np.min(value, initial=0.0) >= 0.0),
    "relaxation": Parameter("1.5", optional(number(0.0, 2.0))),
    "replay": Parameter("None", optional(path)),
    "resume": Parameter("'auto'", either(flag, one_of("auto"))),
    "rounds": Parameter("4", optional(whole(1))),
    "rows": Parameter("[0, 1]", indices),
    "named": Parameter("print", function),
    "runtime": Parameter("dcgs.Lockstep()", optional(instance(Runtime))),
    "samples": Parameter("4", whole(1)),
    "schedule": Parameter("'auto'", SCHEDULE),
    "seconds": Parameter("60.0", optional(ABOVE_ZERO)),
    "seed": Parameter("0", whole(0)),
    "shape": Parameter("2", shape()),
    "shared": Parameter("True", flag),
    "side": Parameter("4", whole(1)),
    "sleep": Parameter("0.1", share),
    "speeds": Parameter("None", optional(speeds)),
    "split": Parameter("'train'", one_of("train", "test")),
    "staleness": Parameter("5", whole(1)),
    "step": Parameter("None", optional(ABOVE_ZERO)),
    "stops_itself": Parameter("True", flag),
    "strong_convexity": Parameter("1.0", optional(ABOVE_ZERO)),
    "target": Parameter("[1.0, 2.0]", numbers(1)),
    "tau": Parameter("1.0", ABOVE_ZERO),
    "theta": Parameter("1.0", number(0.0, open_=False)),
    "threads": Parameter("1", optional(whole(1))),
    "start_timeout": Parameter("None", optional(ABOVE_ZERO)),
    "timeout": Parameter("10.0", ABOVE_ZERO),
    "tolerance": Parameter("1e-8", lambda value: number(0.0, 1.0)(value) and value >= 1e-12),
    "tracking": Parameter("True", flag),
    "upper": Parameter("[1.0, 2.0]", numbers(1)),
    "values": Parameter("[1.0, 2.0]", numbers(1)),
    "x0": Parameter("[0.5, 0.5]", optional(numbers(1))),
}
"""By the name of a parameter, which means the same wherever it is used."""

SPECIAL: dict[str, Parameter] = {
    "allreduce.values": Parameter("[[1.0], [2.0]]", same_shapes),
    "Reductions.runtime": Parameter("dcgs.Lockstep()", instance(Runtime)),
    "write_patients.rows": Parameter("3", whole_between(1, 10**6)),
    "CG.step": Parameter("'line-search'", one_of("line-search", "agnostic")),
    "Checkpoint.every": Parameter("5", whole(1)),
    "Floors.min_count": Parameter("10", whole(1)),
    "Floors.min_sites": Parameter("3", whole(1)),
    "Floors.rare_columns": Parameter("'drop'", one_of("drop", "refuse")),
    "FastDCGS.inner": Parameter("'cg'", either(INNER, one_of("oracle"))),
    "Faults.loss": Parameter("0.1", share),
    "Faults.noise": Parameter("0.0", number(0.0, open_=False)),
    "LowRank.rows": Parameter("None", optional(increasing)),
    "LowRank.shape": Parameter("(2, 2)", matrix_shape),
    "Params.eta": Parameter("1.0", ABOVE_ZERO),
    "PrimalDual.precision": Parameter(
        "0.5", lambda value: number(0.0, 1.0, open_=False)(value) and value < 1
    ),
    "FastDCGS.precision": Parameter("0.5", lambda value: number(0.0, 1.0)(value)),
    "Theorem2.balance": Parameter("0.5", lambda value: ABOVE_ZERO(value) and value <= 1.0),
    "MatrixCompletion.shape": Parameter("(2, 2)", matrix_shape),
    "NuclearNormBall.shape": Parameter("(2, 2)", matrix_shape),
    "LeastSquares.shape": Parameter("2", optional(shape())),
    "Logistic.shape": Parameter("2", optional(shape())),
    "LogisticLoss.labels": Parameter("[1.0, -1.0]", labels),
    "SquaredLoss.target": Parameter("[1.0, 2.0]", numbers(1)),
    "lasso_synthetic.features": Parameter("3", whole(1)),
    "e2006_lookalike.features": Parameter("20", whole(1)),
    "e2006_lookalike.samples": Parameter("5", whole(1)),
    "matrix_map.shape": Parameter("2", optional(shape())),
    "movielens1m.path": Parameter("'no-such-file'", optional(path)),
    "movielens100k.path": Parameter("'no-such-file'", optional(path)),
    "e2006.path": Parameter("'no-such-file'", optional(path)),
}

# Names that take nothing from outside: what dcgs returns, interfaces that cannot be made, enumerations and
# exceptions. Parts are what one's own sets and methods are written with: they are made at every step, inside
# the door, where nothing is checked.
OUTPUTS = {"Record", "Result", "History", "Snapshot", "Ratings", "Regression", "Source", "Facts"}
OUTPUTS |= {"AgreedTexts", "Comparison", "Fold", "PathPoint", "RadiusPath", "Reduced", "Sent"}
INTERFACES = {
    "ProjectedMethod",
    "Atom",
    "ConvexSet",
    "Inner",
    "LinearMap",
    "Loss",
    "Method",
    "DiagonallyProjectableSet",
    "ProjectableSet",
    "Solver",
}
ENUMERATIONS = {"Status", "OptionKind", "Outcome", "SourceKind"}
ALIASES = {"Accuracy", "Inbox", "Message", "Outbox", "Path", "Point", "Program"}
PARTS = {"Option", "projector", "Agent", "Dual", "RankOne", "Sparse", "Spike", "Subproblem", "Task", "Vertex"}
PARTS |= {
    "Derivative",
    "DistanceAccuracy",
    "LowerBound",
    "ProjectedPoint",
    "gap_at_most",
    "average",
    "laplacian",
    "norm",
    "onto_l1_ball",
    "onto_simplex",
    "vdot",
}
ERRORS = {"BrokenDataError", "DataNotFoundError", "DownloadError"}
NOTHING = {"cache_folder"}
# What takes any number of arguments, or a function that it calls; tests/test_bad_input.py has their refusals.
# Two read and write a file, by whatever name there may be.
OTHERS = {"MessageRecorder", "ProductSet", "path", "recorded_messages"}
EXCLUDED = OUTPUTS | INTERFACES | ENUMERATIONS | ERRORS | NOTHING | ALIASES | PARTS | OTHERS
# A legitimate value that is too large to look at: 2⁴⁰ points of shape (1, 1), as one number in memory.
TOO_LARGE = {("ConvexHull", "points", "np.broadcast_to(1.0, (2**40, 1, 1))")}
# What a callback raises is its own: a class is one that is called, and raises.
CALLED = {
    (name, kind)
    for name in ("callback", "on_message", "on_model")
    for kind in ("int", "dcgs.L1Ball", "dcgs.FastDCGS", "dcgs.SquaredLoss")
}
# Data in the sizes that are asked for are made, if there is room for them.
BY_SIZE = {
    ("write_patients", "2**40"),
    ("lasso_synthetic", "2**40"),
    ("completion_synthetic", "2**40"),
    ("e2006_lookalike", "2**40"),
}
# Where nothing but a file that is not there is wrong.
ABOUT_FILES = (FileNotFoundError,)


def doors() -> dict[str, Callable[..., Any]]:
    """Return everything public that takes something, by its name."""
    found: dict[str, Callable[..., Any]] = {}
    for module in (dcgs, dcgs.datasets):
        found |= {name: getattr(module, name) for name in module.__all__ if name not in EXCLUDED}
    return found | {"Result.load": dcgs.Result.load, "Record.load": Record.load}


def written(name: str) -> str:
    """Return how a user writes the name."""
    return f"dcgs.{name}" if name.split(".")[0] in dcgs.__all__ else f"dcgs.datasets.{name}"


def parameters(name: str) -> dict[str, Parameter]:
    """Return the parameters of a name."""
    given = inspect.signature(doors()[name]).parameters
    return {each: SPECIAL.get(f"{name}.{each}") or PARAMETERS[each] for each in given}


@final
@dataclass(frozen=True)
class Call:
    """One call: a name, and junk for some of its parameters."""

    name: str
    junk: dict[str, str]

    @property
    def arguments(self) -> dict[str, str]:
        """All arguments, as expressions."""
        return {each: parameter.sound for each, parameter in parameters(self.name).items()} | self.junk

    def __str__(self) -> str:
        return f"{written(self.name)}({', '.join(f'{k}={v}' for k, v in self.arguments.items())})"


def calls(name: str) -> list[Call]:
    """Return all calls of a name: every junk for every parameter, and some pairs from a seed."""
    given = list(parameters(name))
    single = [Call(name, {each: value}) for each in given for value in JUNK]
    rng = np.random.default_rng(sorted(doors()).index(name))
    pairs = []
    for _ in range(PAIRS if len(given) > 1 else 0):
        first, second = rng.choice(len(given), 2, replace=False)
        pairs.append(Call(name, {given[first]: str(rng.choice(JUNK)), given[second]: str(rng.choice(JUNK))}))
    return [call for call in single + pairs if not _left_out(call)]


def _left_out(call: Call) -> bool:
    large = any((call.name, each, value) in TOO_LARGE for each, value in call.junk.items())
    called = any(each in CALLED for each in call.junk.items())
    return large or called or any((call.name, value) in BY_SIZE for value in call.junk.values())


class Verdict(Enum):
    """What the judge says of a call."""

    REFUSED = "refused in our words"
    RIGHT = "accepted, rightly"
    ACCEPTED = "junk is accepted"
    FOREIGN = "refused in the words of Python or NumPy"
    BROKEN = "refused in our words, but with a value that takes several lines"
    EXCEPTION = "another exception"
    ENDLESS = "no end"
    WORKED = "refused after the work had begun"

    @property
    def bad(self) -> bool:
        return self not in (Verdict.REFUSED, Verdict.RIGHT)


@final
@dataclass(frozen=True)
class Judgment:
    """The verdict on a call."""

    call: Call
    verdict: Verdict
    details: str = ""

    def __str__(self) -> str:
        return f"{self.verdict.value}: {self.call}: {self.details}"


@final
class EndlessError(BaseException):
    """A call has computed for too long."""


def _give_up(number: int, frame: FrameType | None) -> NoReturn:
    raise EndlessError


@contextmanager
def bounds(seconds: float = LONGEST) -> Iterator[None]:
    """Bound the computing time and the memory of a call; raise an EndlessError after so many seconds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGVTALRM, _give_up)
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, hard))
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGVTALRM, before)


def in_our_words(error: BaseException, text: str, call: Call) -> bool:
    """Return whether an error with this text is a sentence of ours.

    It is raised by code of dcgs, says what must hold, names a parameter or what was given, is one line in
    lower case but for names, and ends with a full stop.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised_here = trace is not None and trace.tb_frame.f_code.co_filename.startswith(HOME)
    words = re.findall(r"\w+", text)
    # SquaredLoss is told under what name its target is known; a sentence may name the kind of set instead.
    names = {*parameters(call.name), call.arguments.get("name", "").strip("'"), call.name.lower()}
    named_first = {*names, *(value.strip("'") for value in call.arguments.values())}
    begins = bool(text) and (text[0].islower() or text[0] in "'−" or words[:1] in [[n] for n in named_first])
    ends = text.endswith(".") and not text.endswith("..") and "\n" not in text
    holds = re.search(r"\b(must|needs?|cannot|can only|may|is told of)\b", text) is not None
    given = [value.strip("'") for value in call.arguments.values()]
    named = bool(names & set(words)) or any(value and value in text for value in given)
    return raised_here and begins and ends and holds and named


def judge(call: Call) -> Judgment:
    """Make the call and judge it."""
    CountingBall.calls = 0
    values = {each: eval(expression, SPACE) for each, expression in call.arguments.items()}
    target = doors()[call.name]
    try:
        with bounds(), warnings.catch_warnings():
            warnings.simplefilter("error")
            target(**values)
    except EndlessError:
        return Judgment(call, Verdict.ENDLESS, f"more than {LONGEST:g} s")
    except Exception as error:
        told = f"{type(error).__name__}: {error}"[:200]
        if not isinstance(error, (ValueError, TypeError, *ABOUT_FILES)) or isinstance(error, UnicodeError):
            return Judgment(call, Verdict.EXCEPTION, told)
        if not in_our_words(error, str(error), call):
            joined = in_our_words(error, " ".join(str(error).split()), call)
            return Judgment(call, Verdict.BROKEN if joined else Verdict.FOREIGN, told)
        # A value that is allowed may be refused for what the data are, once they were looked at.
        worked = CountingBall.calls and _wrong(call)
        return Judgment(call, Verdict.WORKED if worked else Verdict.REFUSED, told)
    wrong = _wrong(call)
    details = f"{', '.join(wrong)} must not be accepted"
    return Judgment(call, Verdict.ACCEPTED, details) if wrong else Judgment(call, Verdict.RIGHT)


def _wrong(call: Call) -> list[str]:
    """Return the parameters whose values are not allowed."""
    known = parameters(call.name)
    fresh = {each: eval(expression, SPACE) for each, expression in call.junk.items()}
    return [each for each, value in fresh.items() if not known[each].fits(value)]


def main(names: Sequence[str]) -> None:
    """Print all bad calls, and how many there are of each kind."""
    count: Counter[tuple[str, str]] = Counter()
    total = 0
    for name in names or sorted(doors()):
        for call in calls(name):
            total += 1
            judgment = judge(call)
            count[name, judgment.verdict.value] += 1
            if judgment.verdict.bad:
                print(str(judgment).replace("\x00", "\\x00"), flush=True)
    print(total, "calls")
    for (name, verdict), times in sorted(count.items()):
        print(f"{times:6} {name}: {verdict}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main(sys.argv[1:])
