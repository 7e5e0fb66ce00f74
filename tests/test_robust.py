"""No exception of another package, and no small problem without an end: what 0.8.0 did, a test each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray

import dcgs
from dcgs.cli import main
from dcgs.counting import CountedOracle, Tally
from dcgs.inner.quadratic import Domain, Quadratic, minimize_quadratic
from dcgs.methods.certificate import CertifiedGap
from dcgs.methods.fast.second_order import Progress
from dcgs.methods.fast.step_size import StepSize

Array = NDArray[np.float64]
TWO = nx.path_graph(2)
METHODS: list[dcgs.Method] = [
    dcgs.FastDCGS(form="newton"),
    dcgs.FastDCGS(form="edges"),
    dcgs.FastDCGS(form="sums"),
    dcgs.FastDCGS(form="root"),
    dcgs.FastDCGS(form="edges", inner="oracle"),
    dcgs.FastDCGS(form="edges", inner="cg"),
    dcgs.DCGS(),
    dcgs.PrimalDual(precision=1e-3),
    dcgs.DFW(),
    dcgs.NIDS(),
    dcgs.PGExtra(),
    dcgs.ProjectedAGD(),
]
every_method = pytest.mark.parametrize("method", METHODS, ids=repr)


# Exceptions of other packages.


@pytest.mark.parametrize("agents", [1, 2])
def test_a_gap_far_below_its_target_overflows_nothing(agents: int) -> None:
    """At the first model the loss is below 1e-300 where it was 9,089."""
    f = dcgs.Logistic([[556.7, 0.467, 9089.0, -0.00186, 95.9, 1605.0]], [1.0])
    x0 = -np.eye(6)[2]
    result = dcgs.minimize(
        [f] * agents, dcgs.L1Ball(6), nx.path_graph(agents), dcgs.FastDCGS(form="edges"), x0=x0, gap=1e-4
    )
    assert result.status is dcgs.Status.AGREED


def squares(seed: int) -> list[dcgs.Objective]:
    rng = np.random.default_rng(seed)
    return [dcgs.LeastSquares(rng.standard_normal((4, 5)), rng.standard_normal(4)) for _ in range(2)]


@pytest.mark.parametrize("eta", [1e-300, 1e-16, 1e300])
def test_an_eta_that_is_rounding_error_is_refused(eta: float) -> None:
    method = dcgs.FastDCGS(form="edges", eta=eta)
    message = r"eta must be 1e-12 to 1e\+12 times the smoothness of each objective, .* agent 0 has the smooth"
    with pytest.raises(ValueError, match=message):
        dcgs.minimize(squares(0), dcgs.L1Ball(5), TWO, method, rounds=5)


@pytest.mark.parametrize("radius", [1.0, 100.0])
@pytest.mark.parametrize("rows", [2, 4, 12])
def test_a_tiny_eta_makes_no_newton_system_an_exception(rows: int, radius: float) -> None:
    rng = np.random.default_rng(1)
    objectives = [dcgs.Logistic(rng.standard_normal((rows, 5)), rng.choice([-1.0, 1.0], rows)) for _ in TWO]
    eta = 2e-12 * max(f.smoothness for f in objectives)
    method = dcgs.FastDCGS(form="edges", eta=eta)
    result = dcgs.minimize(objectives, dcgs.L1Ball(5, radius), TWO, method, rounds=10)
    assert result.status is dcgs.Status.ROUNDS
    assert np.isfinite(result.agents).all()


class Bowl(dcgs.Loss):
    """Squares; what it answers at points far from 0 is that of a subclass."""

    curvature = (0.0, 2.0)

    def __init__(self, b: Array) -> None:
        self.b = b

    def data(self) -> dict[str, Array]:
        return {"b": self.b}

    def value(self, z: Array) -> Any:
        return float(((z - self.b) ** 2).sum())

    def grad(self, z: Array) -> Any:
        return 2.0 * (z - self.b)

    def hess(self, z: Array) -> Any:
        return np.full_like(z, 2.0)


def where_far(z: Array, wrong: float, right: Array) -> Array:
    return np.where(np.abs(z).max() > 0.3, wrong, right)


class NanGradient(Bowl):
    def grad(self, z: Array) -> Array:
        return where_far(z, np.nan, 2.0 * (z - self.b))


class InfiniteValue(Bowl):
    def value(self, z: Array) -> float:
        return float(where_far(z, np.inf, np.array(super().value(z))))


class ShortGradient(Bowl):
    def grad(self, z: Array) -> Array:
        return np.zeros(len(z) - 1)


class NoValue(Bowl):
    def value(self, z: Array) -> Any:
        return None


class NegativeCurvature(Bowl):
    def hess(self, z: Array) -> Array:
        return where_far(z, -1.0, np.full_like(z, 2.0))


def with_loss(kind: type[Bowl]) -> list[dcgs.Objective]:
    """Return objectives of two agents; the second has a loss of this kind."""
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((2, 4, 5)), 3.0 * rng.standard_normal((2, 4))
    return [dcgs.LeastSquares(A[0], b[0]), dcgs.Objective(kind(b[1]), dcgs.matrix_map(A[1]))]


FAULTS = {
    NanGradient: r"the grad of a loss must be finite; of NanGradient, .* grad\[0\] is nan",
    InfiniteValue: r"the (value|totals) of a loss must be .*finite.*; of InfiniteValue, .* inf",
    ShortGradient: r"the grad of a loss must be an array of 4 real numbers; of ShortGradient, .* \(3,\)",
    NoValue: r"the value of a loss must be a finite number; of NoValue, .* it is None",
}


@every_method
@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.__name__)
def test_a_faulty_loss_is_named_with_its_agent(kind: type[Bowl], method: dcgs.Method) -> None:
    message = FAULTS[kind] + r".* Mend the loss, or choose a smaller set\."
    with pytest.raises(ValueError, match=message) as raised:
        dcgs.minimize(with_loss(kind), dcgs.L1Ball(5, 4.0), TWO, method, rounds=40)
    assert "the loss of agent 1, " in str(raised.value)


@pytest.mark.parametrize("form", ["edges", "newton"])
def test_a_second_derivative_outside_of_its_bounds_is_named(form: Any) -> None:
    message = r"the hess of a loss must be within .*0\.0 to 2\.0; of NegativeCurvature, .* is -1\.000e\+00"
    with pytest.raises(ValueError, match=message):
        dcgs.minimize(
            with_loss(NegativeCurvature), dcgs.L1Ball(5, 4.0), TWO, dcgs.FastDCGS(form=form), rounds=40
        )


class Cosine(Bowl):
    curvature = (-1.0, 1.0)

    def value(self, z: Array) -> float:
        return float(np.cos(z).sum())

    def grad(self, z: Array) -> Array:
        return -np.sin(z)

    def hess(self, z: Array) -> Array:
        return -np.cos(z)


@every_method
def test_a_loss_that_is_not_convex_ends_at_its_limit(method: dcgs.Method) -> None:
    result = dcgs.minimize(
        with_loss(Cosine), dcgs.L2Ball(5, 3.0), TWO, method, rounds=20, lmo_calls=None, every=0
    )
    assert result.status is dcgs.Status.ROUNDS
    assert np.isfinite(result.agents).all()


# Small problems that took long.


def two_scales(seed: int, kind: str, scale: float) -> list[dcgs.Objective]:
    """Return two agents with four rows each of five unknowns; the data of one are this much larger."""
    rng = np.random.default_rng(seed)
    objectives = []
    for size in (1.0, scale):
        A = size * rng.standard_normal((4, 5))
        if kind == "logistic":
            objectives.append(dcgs.Logistic(A, rng.choice([-1.0, 1.0], 4)))
        else:
            loss = dcgs.HuberLoss(A @ rng.standard_normal(5) * 30.0, 0.1)
            objectives.append(dcgs.Objective(loss, dcgs.matrix_map(A)))
    return objectives


SETS = [dcgs.L1Ball(5, 30.0), dcgs.Box(np.full(5, -30.0), np.full(5, 30.0)), dcgs.L2Ball(5, 30.0)]


@pytest.mark.parametrize("X", SETS, ids=lambda X: type(X).__name__)
@pytest.mark.parametrize("kind", ["logistic", "huber"])
def test_edges_find_their_balance_if_agents_differ_by_a_factor_of_100(kind: str, X: dcgs.ConvexSet) -> None:
    """None was certified in 1,500 rounds: the scale had become too large, and fell by too little."""
    method = dcgs.FastDCGS(form="edges")
    result = dcgs.minimize(two_scales(0, kind, 100.0), X, TWO, method, gap=0.038, rounds=500, every=0)
    assert result.status is dcgs.Status.AGREED


@pytest.mark.parametrize(("seed", "X"), [(2, SETS[1]), (5, SETS[1]), (1, SETS[2])], ids=["2", "5", "1"])
def test_steps_with_hessians_do_not_stall_if_agents_differ_by_orders(seed: int, X: dcgs.ConvexSet) -> None:
    """By default two agents with five unknowns take Newton steps; these took 20,000 rounds to no end."""
    result = dcgs.minimize(two_scales(seed, "huber", 1e4), X, TWO, gap=0.038, rounds=500, every=0)
    assert result.status is dcgs.Status.AGREED


def wide_table(folder: Path, seed: int, columns: int) -> Path:
    """Write five rows with columns of any scale, of two classes."""
    rng = np.random.default_rng(seed)
    rng.choice([1, 2, 4, 10]), rng.choice([1, 2, 3, 5])
    scale = 10.0 ** rng.uniform(-6, 6, columns)
    offset = rng.choice([0, 1, 3], columns) * scale
    rows = []
    for _ in range(5):
        x = rng.standard_normal(columns) * scale + offset
        rows.append([*map(repr, map(float, x)), str(int(rng.random() < 0.5))])
    rows[0][-1], rows[1][-1] = "0", "1"
    path = folder / "rows.csv"
    path.write_text("\n".join(map(",".join, [[*"abcd"[:columns], "y"], *rows])) + "\n")
    return path


def fit_logistic(folder: Path, data: Path, agents: int, form: str = "auto") -> dict[str, Any]:
    options = f"--radius 1e6 --no-standardize --held-out 0 --no-report --agents {agents}"
    options += f" --method-option form={form}"
    main(["fit", "logistic", "--data", str(data), "--out", str(folder / "out"), *options.split()])
    summary: dict[str, Any] = json.loads((folder / "out" / "summary.json").read_text())
    return summary


@pytest.mark.parametrize(("seed", "columns", "agents"), [(60, 1, 2), (79, 1, 5), (81, 1, 2), (103, 4, 2)])
def test_five_rows_over_a_huge_ball_are_certified(
    tmp_path: Path, seed: int, columns: int, agents: int
) -> None:
    """`dcgs fit logistic --radius 1e6 --no-standardize` took 3,000 rounds to no end."""
    summary = fit_logistic(tmp_path, wide_table(tmp_path, seed, columns), agents)
    assert summary["status"] == str(dcgs.Status.AGREED)
    assert summary["rounds"] <= 100


def test_a_fit_that_cannot_reach_its_gap_ends_soon_and_says_what_would_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It made no progress for 500 steps, until gradient steps helped where Newton steps stall."""
    summary = fit_logistic(tmp_path, wide_table(tmp_path, 63, 2), 3, form="newton")
    assert summary["status"] == str(dcgs.Status.ROUNDING)
    assert summary["rounds"] <= 20
    assert "Ask for a larger gap, or scale the data." in capsys.readouterr().out.replace("\n", " ")


def test_progress_is_over_only_after_500_steps_without_any() -> None:
    progress = Progress()
    stuck = CertifiedGap(1.0, 1.0, 0.0)
    assert not any(progress.is_over(stuck) for _ in range(500))
    assert progress.is_over(stuck)
    assert not progress.is_over(CertifiedGap(0.5, 1.0, 0.0))  # halved
    assert not any(progress.is_over(CertifiedGap(0.5, 1.0, 0.0)) for _ in range(499))
    assert not progress.is_over(CertifiedGap(0.5, 1.02, 0.0))  # f fell by 2 % of what it had fallen by


def test_a_limit_that_ends_a_run_short_of_its_gap_says_how_far_it_got() -> None:
    objectives = two_scales(0, "logistic", 100.0)
    result = dcgs.minimize(objectives, SETS[0], TWO, dcgs.DFW(tracking=False), gap=1e-3, rounds=1000)
    assert result.status is dcgs.Status.ROUNDS
    (note,) = result.notes
    assert note.startswith("the lowest gap that was certified is ")
    assert " was asked for. It was last halved by round " in note


def test_the_scale_is_sought_anew_after_four_epochs_far_from_a_balance() -> None:
    step = StepSize(1.0, 1.0, 1.0, 1.0, {}, {}, 1.0, is_fixed=False, scale_degree=1.0, epochs=40)
    factors = []
    for _ in range(8):
        step.update([1.0, 1.0, 1.0, 1e-9], switch=0)
        assert step.next_scale is not None
        factors.append(step.next_scale)
    slow, again = np.exp(-3.0 / 40**1.1), np.exp(-3.0 / 2**1.1)
    assert factors[0] == pytest.approx(slow)
    assert factors[3] == pytest.approx(again)
    assert step.restarts == 1


def test_the_scale_is_sought_anew_at_most_six_times() -> None:
    """The changes must have a finite sum."""
    step = StepSize(1.0, 1.0, 1.0, 1.0, {}, {}, 1.0, is_fixed=False, scale_degree=1.0, epochs=1)
    for _ in range(1000):
        step.update([1.0, 1.0, 1.0, 0.0], switch=0)
    assert step.restarts == 6
    assert step.epochs > 900


@pytest.mark.parametrize("form", ["edges", "sums", "root"])
@pytest.mark.parametrize("inner", ["auto", "oracle"])
def test_a_product_with_a_nuclear_norm_ball_takes_few_oracle_calls(form: Any, inner: Any) -> None:
    """CG took hundreds of thousands, in over 25 seconds."""
    rng = np.random.default_rng(0)
    X = dcgs.ProductSet(dcgs.NuclearNormBall((3, 3), 5.0), dcgs.L1Ball(3))
    objectives = [
        dcgs.LeastSquares(rng.standard_normal((6, 12)), 3.0 * rng.standard_normal(6)) for _ in range(3)
    ]
    method = dcgs.FastDCGS(form=form, inner=inner)
    result = dcgs.minimize(objectives, X, nx.path_graph(3), method, gap=1e-3, rounds=100, every=0)
    assert int(result.lmo_calls.max()) <= 3000


def test_a_quadratic_with_a_condition_of_1e13_is_minimized_to_its_gap() -> None:
    rng = np.random.default_rng(5)
    A = rng.standard_normal((6, 5)) * 10.0 ** np.linspace(-3.0, 3.5, 5)
    X = dcgs.L1Ball(5, 30.0)
    q = Quadratic(A.T @ A, A.T @ rng.standard_normal(6), np.zeros(5))
    domain = Domain(X, CountedOracle(X), Tally())
    goal = 1e-6 * domain.wolfe_gap(q, np.zeros(5))
    x = minimize_quadratic(q, domain, np.zeros(5), lambda decrease: goal)
    assert domain.wolfe_gap(q, x) <= goal
