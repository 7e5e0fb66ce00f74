"""Mistakes in a method, a set or a loss from outside the package are errors or notes, never wrong results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs import Agent, Checkpoint, ConvexSet, Method, Objective, Point, Program, Result
from dcgs.checkpoints.fingerprint import settings_of

GRAPH, BALL = nx.path_graph(3), dcgs.L1Ball(4, radius=2.0)


def objectives() -> list[Objective]:
    rng = np.random.default_rng(0)
    return [dcgs.LeastSquares(rng.standard_normal((5, 4)), rng.standard_normal(5)) for _ in range(3)]


@dataclass
class Iterate:
    """The state of every method here."""

    x: Point


class Own(Method):
    """A method of which a test replaces the program; every iteration takes one round."""

    State = Iterate

    def __init__(self, program: Callable[[Agent], Program[Point]]) -> None:
        self.steps = program

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return None

    def program(self, agent: Agent) -> Program[Point]:
        return self.steps(agent)


def minimize(program: Callable[[Agent], Program[Point]], **rules: Any) -> Result:
    return dcgs.minimize(objectives(), BALL, GRAPH, Own(program), **rules)


def noisy_fw(agent: Agent) -> Program[Point]:
    """Draw random numbers, call the oracle and count a projection before the message is sent."""
    at = agent.restore(Iterate) or Iterate(agent.x0)
    for k in agent.iterations_left:
        agent.projections.count += 1
        g = agent.f.grad(at.x) + 0.1 * agent.rng.standard_normal(at.x.shape)
        step = 2.0 / (k + 2.0) * (agent.lmo(g, None).dense() - at.x)
        at = Iterate((yield from dcgs.average(at.x + step, agent.metropolis)))
        agent.observe(k, at.x)
        agent.save(k, at)
    return at.x


def resumed_after(path: Path, **first: int) -> Result:
    minimize(noisy_fw, **first, checkpoint=Checkpoint(path, every=2))
    return minimize(noisy_fw, iterations=9, checkpoint=Checkpoint(path, every=2, resume=True))


@pytest.mark.parametrize("first", [{"iterations": 4}, {"rounds": 4}, {"rounds": 5}], ids=repr)
def test_a_method_that_works_before_its_yield_resumes_to_the_bit(
    first: dict[str, int], tmp_path: Path
) -> None:
    resumed, uninterrupted = resumed_after(tmp_path, **first), minimize(noisy_fw, iterations=9)
    assert resumed.about["checkpoint"]["resumed"] == 4
    assert resumed.agents.tobytes() == uninterrupted.agents.tobytes()
    assert resumed.lmo_calls.tolist() == uninterrupted.lmo_calls.tolist() == [9, 9, 9]
    assert resumed.projections.tolist() == uninterrupted.projections.tolist() == [9, 9, 9]


def test_the_history_has_the_work_of_each_iteration_and_none_of_the_next() -> None:
    history = minimize(noisy_fw, iterations=5).history
    assert history.lmo_calls.tolist() == history.projections.tolist() == [0, 1, 2, 3, 4, 5]


class Shifted(Method):
    """A method that is no dataclass: its settings are attributes."""

    State = Iterate

    def __init__(self, shift: float, table: Any = ()) -> None:
        self.shift, self.table = shift, table

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return None

    def program(self, agent: Agent) -> Program[Point]:
        return noisy_fw(agent)


class ScaledBall(ConvexSet):
    """An ℓ₁ ball that is no dataclass, and declares no ``polytope``."""

    diameter = 4.0

    def __init__(self, shape: tuple[int, ...], scale: float) -> None:
        self.shape, self.scale = shape, scale

    def lmo(self, direction: Point, near: dcgs.Atom | None = None) -> dcgs.Atom:
        j = int(np.argmax(np.abs(direction)))
        return dcgs.Spike(j, -float(np.copysign(self.scale, direction.flat[j])), self.shape)

    def violation(self, x: Point) -> float:
        return max(0.0, float(np.abs(x).sum()) - self.scale)

    def start(self) -> Point:
        return np.zeros(self.shape)


LONG = tuple(range(200))


@pytest.mark.parametrize(
    ("X", "method", "sentence"),
    [
        (
            BALL,
            Shifted(3.0),
            r"made with method Shifted\(shift=2.0, table=\(\)\), the run has Shifted\(sh",
        ),
        (ScaledBall((4,), 2.0), Shifted(2.0), "made with set L1Ball"),
    ],
)
def test_a_checkpoint_of_other_settings_is_refused_though_no_class_is_a_dataclass(
    X: ConvexSet, method: Method, sentence: str, tmp_path: Path
) -> None:
    rules: dict[str, Any] = {"iterations": 4}
    dcgs.minimize(objectives(), BALL, GRAPH, Shifted(2.0), **rules, checkpoint=Checkpoint(tmp_path, every=2))
    with pytest.raises(ValueError, match=sentence):
        dcgs.minimize(objectives(), X, GRAPH, method, **rules, checkpoint=Checkpoint(tmp_path, resume=True))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Shifted(2.0), Shifted(3.0)),
        (ScaledBall((4,), 2.0), ScaledBall((4,), 1.0)),
        (Shifted(2.0, (*LONG, 1)), Shifted(2.0, (*LONG, 2))),
        (Shifted(2.0, {"a": np.zeros(2000)}), Shifted(2.0, {"a": np.eye(1, 2000, 7)[0]})),
        (Shifted(2.0, lambda k: 1.0 / k), Shifted(2.0, lambda k: 2.0 / k)),
    ],
)
def test_settings_that_differ_have_different_fingerprints(one: object, other: object) -> None:
    assert settings_of(one) != settings_of(other)
    assert settings_of(one) == settings_of(one)


def test_a_setting_that_cannot_be_compared_is_refused_with_a_checkpoint(tmp_path: Path) -> None:
    method = Shifted(2.0, threading.Lock())
    with pytest.raises(TypeError, match=r"must have settings that can be compared .*; a lock cannot be"):
        dcgs.minimize(objectives(), BALL, GRAPH, method, iterations=4, checkpoint=Checkpoint(tmp_path))
    assert dcgs.minimize(objectives(), BALL, GRAPH, method, iterations=4).iterations == 4


def averages(
    agent: Agent, report: bool = True, last: int | None = None, shift: float = 0.0
) -> Program[Point]:
    x = agent.x0
    for k in range(1, (last or agent.iterations) + 1):
        x = yield from dcgs.average(x + shift, agent.metropolis)
        if report:
            agent.observe(k, x)
    return x


def test_a_method_that_never_observes_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"Own must call agent.observe\(k, x\) after each iteration; it n"):
        minimize(lambda agent: averages(agent, report=False), iterations=3)


def test_a_method_that_returns_before_every_limit_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"must go on until a limit .* returned after 2 iterations"):
        minimize(lambda agent: averages(agent, last=2), iterations=3)


@pytest.mark.parametrize("iterations", [2, 5])
def test_a_method_with_a_state_that_it_never_saves_is_an_error(iterations: int, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"must call agent.save\(k, state\) after each iteration"):
        minimize(averages, iterations=iterations, checkpoint=Checkpoint(tmp_path, every=2))


def test_a_run_that_ends_before_its_first_checkpoint_need_not_save(tmp_path: Path) -> None:
    assert minimize(averages, iterations=2, checkpoint=Checkpoint(tmp_path, every=3)).iterations == 2


@pytest.mark.parametrize(
    "name", ["smoothness", "mean_smoothness", "extreme_eigenvalues", "mixing_eigenvalues"]
)
def test_facts_that_were_not_computed_are_an_error(name: str) -> None:
    def program(agent: Agent) -> Program[Point]:
        getattr(agent.facts, name)
        return averages(agent)

    with pytest.raises(ValueError, match=f"facts.{name} is computed only for methods .* projects = True"):
        minimize(program, iterations=3)


def test_answers_outside_of_the_set_have_a_status_and_the_result_has_points_of_the_set() -> None:
    result = minimize(lambda agent: averages(agent, shift=1.0), iterations=3)
    # Three steps of 1 in each of 4 coordinates: an ℓ₁ norm of 12, and the radius is 2.
    assert result.status is dcgs.Status.OUTSIDE
    assert result.notes == (
        "the answers must be in X; they violated it by 1.00e+01. Gaps before the last do not bound "
        "f(x) − f*; the last one is that of the points of X in this result.",
    )
    ball = dcgs.L1Ball(4, 2.0)
    assert all(ball.holds(x) for x in (result.x, *result.agents))
    assert result.history.mean_loss[-1] == sum(f.value(result.x) for f in objectives())
    assert minimize(noisy_fw, iterations=3).notes == ()


def test_a_program_without_a_yield_is_refused() -> None:
    def program(agent: Any) -> Any:
        return agent.x0

    with pytest.raises(TypeError, match=r"must be a generator: it must yield at least once; .* a ndarray"):
        minimize(program, iterations=3)


def test_an_lmo_that_returns_an_array_is_refused() -> None:
    class Dense(ScaledBall):
        def lmo(self, direction: Point, near: dcgs.Atom | None = None) -> Any:
            return np.zeros(self.shape)

    with pytest.raises(TypeError, match=r"lmo must return a dcgs.Atom; that of Dense returned a ndarray"):
        dcgs.minimize(objectives(), Dense((4,), 2.0), GRAPH, Own(noisy_fw), iterations=3)


def test_a_set_without_polytope_and_a_method_without_rounds_per_iteration_have_defaults() -> None:
    assert ScaledBall((4,), 2.0).polytope is False
    assert Shifted(2.0).rounds_per_iteration == 1
    result = dcgs.minimize(objectives(), ScaledBall((4,), 2.0), GRAPH)
    assert result.status.success


def test_a_field_of_another_type_is_refused_with_its_name_and_its_declared_type(tmp_path: Path) -> None:
    def program(agent: Agent) -> Program[Point]:
        for k in agent.iterations_left:
            x = yield from dcgs.average(agent.x0, agent.metropolis)
            agent.observe(k, x)
            agent.save(k, Iterate(x.tolist()))
        return agent.x0

    with pytest.raises(TypeError, match="field 'x' of Iterate: its declared type is array; got a list"):
        minimize(program, iterations=3, checkpoint=Checkpoint(tmp_path, every=1))
