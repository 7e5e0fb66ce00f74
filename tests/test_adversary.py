"""What an adversary found in 0.3.0, one test each: false statuses, runs without end, open doors, Ctrl-C."""

from __future__ import annotations

import json
import math
import shlex
import signal
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import networkx as nx
import numpy as np
import pytest

import dcgs
from ctrl_c import RANKS, Run, begin, faults, wait_until
from dcgs.cli import main
from fit_runs import write_sites
from fuzz import Array, Problem, Region, Sum, Term, Verdict, ball, hull, judge, reference
from junk import SPACE, bounds
from test_bad_input import assert_well_formed

NAN = math.nan
GRAPHS: dict[str, nx.Graph] = {
    "two": nx.path_graph(2),
    "path of 3": nx.path_graph(3),
    "triangle": nx.complete_graph(3),
    "star": nx.star_graph(3),
    "complete": nx.complete_graph(4),
    "path": nx.path_graph(4),
    "cycle": nx.cycle_graph(4),
}
every_graph = pytest.mark.parametrize("name", GRAPHS)
METHODS = [
    dcgs.FastDCGS(),
    dcgs.FastDCGS(form="edges"),
    dcgs.FastDCGS(stops_itself=False),
    dcgs.DFW(),
    dcgs.DCGS(answer="last"),
    dcgs.PGExtra(),
    dcgs.NIDS(),
    dcgs.ProjectedAGD(),
]
every_method = pytest.mark.parametrize("method", METHODS, ids=repr)


def squares(A: Array, b: Array) -> tuple[Term, dcgs.Objective]:
    return Term("squares", A, b), dcgs.LeastSquares(A, b)


def problem_of(
    parts: list[tuple[Term, dcgs.Objective]],
    region: Region,
    graph: nx.Graph,
    method: dcgs.Method | None = None,
    gap: float = 1e-3,
    x0: Array | None = None,
) -> Problem:
    """Return a problem for the judge of the fuzz."""
    terms, objectives = zip(*parts, strict=True)
    return Problem(-1, "", Sum(terms), region, objectives, graph, method or dcgs.FastDCGS(), gap, x0)


def l1(d: int, radius: float) -> Region:
    return hull(dcgs.L1Ball(d, radius), radius * np.vstack([np.eye(d), -np.eye(d)]))


# Row 1. A gap means the same on every graph and for every method.


@every_graph
def test_a_loose_ball_and_uneven_columns_make_no_status_lie(name: str) -> None:
    """The gap at x⁰ grows with the radius, f(x⁰) − f* does not."""
    parts = [squares(np.diag([1.0, 1e-3]), np.ones(2))] * len(GRAPHS[name])
    judgment = judge(problem_of(parts, ball(dcgs.L2Ball(2, 1e6), 2, 1e6), GRAPHS[name]))
    assert not judgment.verdict.bad, judgment


def patients(agents: int) -> list[tuple[Term, dcgs.Objective]]:
    """Return measurements in their own units: a constant, an age, a pressure, a concentration."""
    rng = np.random.default_rng(3)
    parts = []
    for _ in range(agents):
        A = rng.standard_normal((12, 4)) * [0.0, 12.0, 15.0, 300.0] + [1.0, 50.0, 120.0, 1500.0]
        parts.append(squares(A, A @ [20.0, 1.5, 0.3, 0.02] + 5.0 * rng.standard_normal(12)))
    return parts


@every_graph
def test_data_in_their_own_units_make_no_status_lie(name: str) -> None:
    judgment = judge(problem_of(patients(len(GRAPHS[name])), l1(4, 100.0), GRAPHS[name]))
    assert not judgment.verdict.bad, judgment


@every_method
@pytest.mark.parametrize("name", ["star", "cycle"])
def test_success_means_a_gap_of_a_share_of_the_decrease(name: str, method: dcgs.Method) -> None:
    """f(x) − f* ≤ ε (f(x⁰) − f*), with f* computed apart from dcgs."""
    rng = np.random.default_rng(8)
    parts = [squares(rng.standard_normal((6, 3)) * [1.0, 0.3, 0.1], rng.standard_normal(6)) for _ in range(4)]
    judgment = judge(problem_of(parts, l1(3, 20.0), GRAPHS[name], method, gap=0.02))
    assert judgment.sharp
    assert not judgment.verdict.bad, judgment


@every_method
def test_a_gap_may_be_an_absolute_number(method: dcgs.Method) -> None:
    rng = np.random.default_rng(8)
    parts = [squares(rng.standard_normal((6, 3)), rng.standard_normal(6)) for _ in range(4)]
    given = problem_of(parts, l1(3, 0.5), GRAPHS["cycle"], method)
    arguments: dict[str, Any] = {"gap_abs": 0.05, "rounds": 2000}
    result = dcgs.minimize(given.objectives, given.region.made, given.graph, method, **arguments)
    best = reference(given)
    assert result.status.success
    assert best.error <= 1e-3
    assert given.f.value(result.x) - best.value <= 0.05 * (1.0 + 1e-9)


# Row 2. The rounding error of a gradient is not overestimated where the loss has no curvature left.


def saturated(kind: str) -> tuple[Term, dcgs.Objective]:
    A = np.array([[1e5 + 1.0, 1e5], [1e5, 1e5 + 2.0]])
    if kind == "huber":
        loss = dcgs.HuberLoss(np.zeros(2), delta=1e-6)
        return Term("huber", A, np.zeros(2), 1e-6), dcgs.Objective(loss, dcgs.matrix_map(A))
    return Term("logistic", 1e4 * A, np.array([1.0, -1.0])), dcgs.Logistic(1e4 * A, [1.0, -1.0])


@pytest.mark.parametrize("kind", ["huber", "logistic"])
@pytest.mark.parametrize("name", ["cycle", "star"])
def test_a_loss_that_is_nearly_linear_makes_no_status_lie(name: str, kind: str) -> None:
    region = hull(dcgs.Simplex(2), np.eye(2))
    judgment = judge(problem_of([saturated(kind)] * 4, region, GRAPHS[name]))
    assert not judgment.verdict.bad, judgment


def test_an_untouched_start_that_is_not_optimal_is_no_success() -> None:
    result = dcgs.minimize(
        [saturated("huber")[1]] * 4, dcgs.Simplex(2), nx.cycle_graph(4), gap=1e-3, rounds=200
    )
    untouched = bool((result.x == dcgs.Simplex(2).start()).all())
    assert not (result.status.success and untouched)


# Row 3. A start at the optimum ends in the first certificate.

# An epoch is at least 4 rounds, and a certificate takes fewer than 8 epochs from the start on these graphs.
FIRST = 32


@every_graph
@pytest.mark.parametrize("form", ["auto", "edges"])
def test_a_start_at_the_optimum_ends_at_once(form: Any, name: str) -> None:
    graph = GRAPHS[name]
    b = np.array([[1.0, 2.0], [-1.0, -2.0], [0.5, -1.0], [-0.5, 1.0]])[: len(graph)]
    b = b - b.mean(axis=0)
    objectives = [dcgs.LeastSquares(np.eye(2), row) for row in b]
    result = dcgs.minimize(
        objectives, dcgs.L1Ball(2, 3.0), graph, dcgs.FastDCGS(form=form), gap=1e-3, rounds=10 * FIRST
    )
    assert result.status.success
    assert result.rounds <= FIRST


@every_graph
def test_a_start_at_an_optimal_corner_ends_at_once(name: str) -> None:
    objectives = [dcgs.LeastSquares(np.eye(2), [5.0, 0.1 * i]) for i in range(len(GRAPHS[name]))]
    start = [1.0, 0.0]
    result = dcgs.minimize(objectives, dcgs.L1Ball(2), GRAPHS[name], gap=1e-3, x0=start, rounds=10 * FIRST)
    assert result.status.success
    assert result.rounds <= FIRST


@pytest.mark.parametrize("name", ["path", "star"])
def test_a_warm_start_ends_by_its_absolute_gap(name: str) -> None:
    rng = np.random.default_rng(8)
    objectives = [dcgs.LeastSquares(rng.standard_normal((6, 3)), rng.standard_normal(6)) for _ in range(4)]
    X = dcgs.L1Ball(3, 0.5)
    cold = dcgs.minimize(objectives, X, GRAPHS[name], gap=1e-4)
    target = float(cold.history.gap[0]) * 1e-3
    more: dict[str, Any] = {"gap_abs": target}
    warm = dcgs.minimize(objectives, X, GRAPHS[name], x0=cold.x, rounds=10 * FIRST, **more)
    assert warm.status.success
    assert warm.rounds <= FIRST


# Row 4. Ctrl-C at any moment.


# Before dcgs has set its handlers, Python itself may print a traceback; tests/ctrl_c.py tries those moments.
MOMENTS: dict[str, Callable[[Run], bool]] = {
    "when dcgs runs in all processes": Run.is_up,
    "in the midst of imports": lambda run: run.has_mapped("_multiarray_umath"),
    "when MPI is loaded": lambda run: run.has_mapped("libmpi"),
    "when the fit goes on": lambda run: any(Path("kept").glob("*/*.dcgs")),
}


@pytest.mark.parametrize(
    ("moment", "mpi"), [(m, mpi) for m in MOMENTS for mpi in (True, False) if mpi or "MPI" not in m]
)
def test_ctrl_c_ends_all_with_one_line_and_130(
    moment: str, mpi: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_sites(RANKS, tmp_path)
    run = begin(mpi, "--checkpoint kept --every 1000 --out m")
    wait_until(run, MOMENTS[moment])
    assert faults(run, signal.SIGINT) == []


# Row 5. One validation for numbers, arrays, flags and names.


@final
@dataclass(frozen=True, eq=False)
class OwnLoss(dcgs.Loss):
    """The squares of z, with the bounds of curvature that are given."""

    bounds: tuple[float, float]

    @property
    def size(self) -> int:
        return 2

    @property
    def curvature(self) -> tuple[float, float]:
        return self.bounds

    def value(self, z: Array) -> float:
        return float(z @ z)

    def grad(self, z: Array) -> Array:
        return 2.0 * z

    def hess(self, z: Array) -> Array:
        return np.full_like(z, 2.0)

    def data(self) -> dict[str, Array]:
        return {}


MASKED = "np.ma.array([1.0, 2.0], mask=[False, True])"
MASKED_MATRIX = "np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, True], [False, False]])"
RUN = "dcgs.minimize([dcgs.LeastSquares(np.eye(2), [1.0, 2.0])] * 2, dcgs.L1Ball(2), nx.path_graph(2), "
MINIMIZE_OWN = "dcgs.minimize([dcgs.Objective(OwnLoss({}), dcgs.matrix_map(np.eye(2)))], dcgs.L1Ball(2), G)"
REFUSED = [
    f"dcgs.LeastSquares(np.eye(2), {MASKED})",
    f"dcgs.LeastSquares({MASKED_MATRIX}, [1.0, 2.0])",
    f"dcgs.Logistic({MASKED_MATRIX}, [1.0, -1.0])",
    f"dcgs.Logistic(np.eye(2), {MASKED})",
    f"dcgs.HuberLoss({MASKED})",
    f"dcgs.SquaredLoss({MASKED})",
    f"dcgs.matrix_map({MASKED_MATRIX})",
    f"dcgs.MatrixCompletion([0, 1], [0, 1], {MASKED}, (2, 2))",
    "dcgs.MatrixCompletion(np.ma.array([0, 1], mask=[0, 1]), [0, 1], [1.0, 2.0], (2, 2))",
    f"dcgs.Box([0.0, 0.0], {MASKED})",
    f"dcgs.ConvexHull({MASKED_MATRIX})",
    f"dcgs.Polytope({MASKED_MATRIX}, [1.0, 1.0])",
    f"{RUN} rounds=2, x0=np.ma.array([0.1, 0.2], mask=[False, True]))",
    "dcgs.Box([0.0, 0.0], np.array([1.0 + 2.0j, 1.0]))",
    "dcgs.ConvexHull(np.eye(2) * (1.0 + 1.0j))",
    "dcgs.Polytope(np.vstack([np.eye(2), -np.eye(2)]) * (1.0 + 1.0j), np.ones(4))",
    "dcgs.Polytope(np.vstack([np.eye(2), -np.eye(2)]), np.ones(4) * (1.0 + 1.0j))",
    "dcgs.L1Ball(2, radius=np.complex128(1.0 + 2.0j))",
    "dcgs.Box(['0', '0'], ['1', '1'])",
    "dcgs.ConvexHull([['0', '1'], ['1', '0']])",
    "dcgs.Polytope([['1'], ['-1']], [1.0, 1.0])",
    "dcgs.L1Ball(2, radius='1')",
    "dcgs.L1Ball(2, radius=True)",
    "dcgs.L1Ball(True)",
    "dcgs.Simplex(2, radius=b'1')",
    "dcgs.KSparseBall(2, True)",
    "dcgs.BirkhoffPolytope(True)",
    "dcgs.FastDCGS(stops_itself='False')",
    "dcgs.FastDCGS(stops_itself=None)",
    "dcgs.FastDCGS(relaxation=True)",
    "dcgs.DFW(tracking='no')",
    "dcgs.Checkpoint('kept', resume=1)",
    "dcgs.LogisticLoss([5, -7])",
    "dcgs.LogisticLoss([0.0, 1.0])",
    "dcgs.MatrixCompletion([0], [0], [1.0], shape=(2.7, 2.2))",
    "dcgs.MatrixCompletion([0], [0], [1.0], shape=('2', '2'))",
    MINIMIZE_OWN.format((-1.0, 2.0)),
    MINIMIZE_OWN.format((-1.0, -1.0)),
    MINIMIZE_OWN.format((3.0, 2.0)),
    MINIMIZE_OWN.format((0.0, math.inf)),
    MINIMIZE_OWN.format("(math.nan, 2.0)"),
    "dcgs.Params(1.0, 1.0, 1.0, 1.0, math.nan)",
    "dcgs.Params(1.0, 1.0, math.nan, 1.0, 0.1)",
    "dcgs.Params(1.0, 1.0, 1.0, math.nan, 0.1)",
    "dcgs.Params(1.0, 0.0, 1.0, 1.0, 0.1)",
    "dcgs.Params(1.0, 1.0, 1.0, 1.0, -1.0)",
    "dcgs.Theorem1(horizon=math.nan)",
    "dcgs.Theorem2(horizon=math.nan)",
    "dcgs.Theorem1(horizon=2.5)",
    # Row 6, what raises other exceptions or never ends.
    "dcgs.Objective(None, None)",
    "dcgs.Objective(dcgs.SquaredLoss([1.0, 2.0]), np.eye(2))",
    "dcgs.L1Ball(2, radius=10**400)",
    "dcgs.NuclearNormBall((2, 2), radius=10**400)",
    "dcgs.LeastSquares([[10**400, 1]], [1.0])",
    "dcgs.GroupL1Ball(2**40, [[0]])",
]


@pytest.mark.parametrize("expression", REFUSED)
def test_it_is_refused_with_a_sentence_of_ours(expression: str) -> None:
    space = SPACE | {"OwnLoss": OwnLoss, "G": nx.empty_graph(1), "nan": NAN, "inf": math.inf}
    with bounds(), pytest.raises((ValueError, TypeError)) as caught:
        eval(expression, space)
    assert_well_formed(str(caught.value))


def test_a_loss_of_ones_own_is_taken_if_it_is_sound() -> None:
    f = dcgs.Objective(OwnLoss((2.0, 2.0)), dcgs.matrix_map(np.eye(2)))
    assert dcgs.minimize([f], dcgs.L1Ball(2), nx.empty_graph(1), x0=[0.5, 0.0]).status.success


# Row 6. Scales, files, models and checkpoints.


def outcome(scale: float, method: dcgs.Method) -> str:
    """Return the status of a run on data of that size, or the sentence that refuses it."""
    rng = np.random.default_rng(8)
    A, b = rng.standard_normal((4, 6, 3)), rng.standard_normal((4, 6))
    objectives = [dcgs.LeastSquares(scale * A[i], scale * b[i]) for i in range(4)]
    try:
        X, graph = dcgs.L1Ball(3, 0.5), nx.path_graph(4)
        return dcgs.minimize(objectives, X, graph, method, gap=0.1, rounds=600, every=10).status.name
    except ValueError as error:
        assert_well_formed(str(error))
        return "refused"


SCALES = pytest.mark.parametrize("scale", [1e200, 1e150, 1e-100, 1e-200])


@SCALES
@pytest.mark.parametrize("form", ["auto", "edges"])
def test_data_of_extreme_size_are_refused_or_solved(scale: float, form: Any) -> None:
    assert outcome(scale, dcgs.FastDCGS(form=form)) in ("refused", "AGREED")


@SCALES
@every_method
def test_data_of_extreme_size_raise_nothing_but_a_refusal(scale: float, method: dcgs.Method) -> None:
    assert outcome(scale, method) in ("refused", *dcgs.Status.__members__)


def command(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run the command here; return its status and its errors. Any exception but SystemExit is a traceback."""
    try:
        status: Any = main(shlex.split(line))
    except SystemExit as ended:
        status = ended.code
    return int(status or 0), capsys.readouterr().err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused_as_a_file(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, errors = command(line, capsys)
    assert status == 2
    assert errors.count("dcgs: error: ") == 1
    assert errors.endswith(".\n")


def test_a_table_with_carriage_returns_is_read_or_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["a,b,y", *(f"{i},{i * i % 7},{i % 3}" for i in range(12))]
    Path("d.csv").write_bytes("\r".join(rows).encode())
    status, errors = command("fit lasso --data d.csv --agents 2 --radius 1 --rounds 5 --out m", capsys)
    assert (status, errors.count("dcgs: error: ")) in ((0, 0), (2, 1))


def write_model(x: Any, **changes: Any) -> None:
    """Write a model by hand, whole but for the changes of what it says of itself."""
    array = np.asarray(x, dtype=np.float64)
    reading = {"names": None, "target": None, "target_at": None, "labels": [3.0, 5.0], "base": 0}
    meta = {"format": 1, "problem": "lasso", "shape": list(array.shape), "reading": reading, "about": {}}
    np.savez(Path("m.npz"), x=array, meta=np.array(json.dumps(meta | changes)))


MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "reading is null": ([1.0, 2.0], {"reading": None}),
    "reading is a list": ([1.0, 2.0], {"reading": [1]}),
    "reading is empty": ([1.0, 2.0], {"reading": {}}),
    "names are numbers": ([1.0, 2.0], {"reading": {"names": 5, "target": 7, "target_at": "x"}}),
    "no labels": (
        [1.0, 2.0],
        {"problem": "logistic", "reading": {"names": None, "target": None, "target_at": None}},
    ),
    "one label": (
        [1.0, 2.0],
        {
            "problem": "logistic",
            "reading": {"names": None, "target": None, "target_at": None, "labels": [1.0]},
        },
    ),
    "no dimensions": (1.0, {}),
    "a matrix for a vector": ([[1.0, 2.0]], {}),
    "a vector for a matrix": ([1.0, 2.0], {"problem": "completion"}),
    "no base": ([[1.0, 2.0]], {"problem": "completion", "reading": {}}),
    "not finite": ([1.0, NAN], {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_made_by_hand_is_refused(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, changes = MODELS[name]
    write_model(x, **changes)
    Path("d.csv").write_text("0,1\n1,0\n")
    refused_as_a_file("predict m.npz --data d.csv", capsys)


def test_a_model_made_by_hand_that_is_sound_predicts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_model([1.0, 2.0])
    Path("d.csv").write_text("3,1\n1,4\n")
    assert command("predict m.npz --data d.csv", capsys)[0] == 0


def test_a_model_that_says_it_is_small_is_not_inflated(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """32 Mi zeros take 256 MiB and next to nothing in the file."""
    meta = {"format": 1, "problem": "lasso", "shape": [3], "reading": {"names": None}, "about": {}}
    np.savez_compressed("m.npz", x=np.zeros(1 << 25), meta=np.array(json.dumps(meta)))
    Path("d.csv").write_text("3,1\n1,4\n")
    tracemalloc.start()
    try:
        refused_as_a_file("predict m.npz --data d.csv", capsys)
        assert tracemalloc.get_traced_memory()[1] < 1 << 25
    finally:
        tracemalloc.stop()


def test_a_line_of_libsvm_with_a_huge_index_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("d.svm").write_text("1 1000000000:2\n-1 1:1\n")
    with bounds():
        refused_as_a_file("fit lasso --data d.svm --agents 2 --radius 1 --rounds 5 --out m", capsys)


def checkpointed(iterations: int, **options: Any) -> dcgs.Result:
    """Run with checkpoints in ``kept``, after every 10 iterations."""
    rng = np.random.default_rng(8)
    objectives = [dcgs.LeastSquares(rng.standard_normal((6, 3)), rng.standard_normal(6)) for _ in range(2)]
    X, graph = dcgs.L1Ball(3, 0.5), nx.path_graph(2)
    checkpoint = dcgs.Checkpoint("kept", every=10, **options)
    return dcgs.minimize(objectives, X, graph, dcgs.DFW(), iterations=iterations, checkpoint=checkpoint)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize("spoil", [a_folder, a_loop])
def test_what_is_no_file_in_place_of_a_checkpoint_is_passed_over_or_refused(
    spoil: Callable[[Path], None], here: Path
) -> None:
    checkpointed(20)
    newest = Path("kept/agent-0000/000020.dcgs")
    newest.unlink()
    spoil(newest)
    refused = ""
    result = None
    try:
        result = checkpointed(30, resume=True)
    except (ValueError, OSError) as error:
        refused = str(error)
        assert_well_formed(refused)
    assert refused or (result is not None and any("000020" in note for note in result.notes))


def test_an_older_checkpoint_under_a_newer_name_is_noticed(here: Path) -> None:
    checkpointed(20)
    for folder in Path("kept").iterdir():
        (folder / "000020.dcgs").write_bytes((folder / "000010.dcgs").read_bytes())
    refused = ""
    notes: tuple[str, ...] = ()
    try:
        notes = checkpointed(30, resume=True).notes
    except ValueError as error:
        refused = str(error)
        assert_well_formed(refused)
    assert refused or any("000020" in note for note in notes)


def test_verdicts_that_are_bad_are_those_of_dcgs() -> None:
    assert {verdict for verdict in Verdict if not verdict.bad} == {
        Verdict.TRUE,
        Verdict.SHORT,
        Verdict.REFUSED,
    }
