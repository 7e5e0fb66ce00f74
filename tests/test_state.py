"""States: what is saved is restored to the bit, also for methods, solvers and atoms outside the package."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, final

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray

import dcgs
from dcgs import Checkpoint, ConvexSet, Objective
from dcgs.atoms import Atom, RankOne, Sparse, Spike, Vertex
from dcgs.inner import Accuracy, Inner, Solver, Subproblem, Task, gap_at_most
from dcgs.methods import Agent, Method
from dcgs.methods.mixing import average
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.state import from_plain, to_plain, unsupported


class Color(Enum):
    RED = "r"
    BLUE = "b"


@dataclass
class Part:
    t: float = 0.1


@dataclass
class Everything:
    """One field of every supported kind."""

    flag: bool
    count: int
    value: float
    name: str
    nothing: None
    color: Color
    array: NDArray[np.intp]
    numbers: list[float]
    pair: tuple[int, str]
    many: tuple[float, ...]
    table: dict[int, Part]
    maybe: Part | None
    absent: Point | None
    atoms: list[Atom]
    doubled: float = field(init=False)

    def __post_init__(self) -> None:
        self.doubled = 2.0 * self.value


def everything() -> Everything:
    atoms = [
        Spike(3, 2.0, (5,)),
        Sparse(np.array([1]), np.array([0.5]), (5,)),
        Vertex(np.arange(5.0)),
        RankOne(2.0, np.ones(1), np.ones(5)),
    ]
    return Everything(
        flag=True,
        count=2**100,
        value=-0.0,
        name="ε",
        nothing=None,
        color=Color.BLUE,
        array=np.array([3, 1]),
        numbers=[0.1, float("inf"), 1e-320],
        pair=(1, "a"),
        many=(0.5, 0.25),
        table={7: Part(0.7), 2: Part(0.2)},
        maybe=Part(0.3),
        absent=None,
        atoms=atoms,
    )


def test_a_restored_state_equals_the_saved_one() -> None:
    state = everything()
    plain = to_plain(state)
    assert "doubled" not in plain
    restored = from_plain(Everything, plain)
    # The order of a dictionary is part of its state: sums follow it.
    assert repr(restored) == repr(state)
    assert restored.array is state.array


def test_numbers_of_numpy_are_saved_as_those_of_python() -> None:
    plain = to_plain(Part(np.float64(0.25)))
    assert type(plain["t"]) is float


@dataclass
class WithoutType:
    x: Point
    anything: object


@dataclass
class Nested:
    parts: list[WithoutType]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (WithoutType, r"^field 'anything' of WithoutType: object cannot be saved: it is neither a dataclass"),
        (Nested, r"^field 'parts' of Nested: field 'anything' of WithoutType: object cannot be saved"),
        (dict, r"^dict cannot be saved: it is neither a dataclass nor"),
        (Part | WithoutType, r"^field 'anything' of WithoutType"),
    ],
)
def test_a_state_with_a_field_that_cannot_be_saved_is_named(kind: Any, sentence: str) -> None:
    reason = unsupported(kind)
    assert reason is not None
    assert re.match(sentence, reason)


def test_supported_states_have_no_reason_against_them() -> None:
    assert unsupported(Everything) is None
    assert unsupported(Part | Everything) is None


@dataclass
class SubPart(Part):
    more: int = 1


@dataclass
class Holder:
    shape: Part


def test_a_value_of_another_type_than_declared_is_named() -> None:
    with pytest.raises(TypeError, match=r"^field 't' of Part: .* got a str"):
        to_plain(Part("0.1"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^field 'shape' of Holder: a Part is needed; got a SubPart"):
        to_plain(Holder(SubPart()))
    with pytest.raises(TypeError, match=r"^field 'array' of Everything: arrays must hold numbers"):
        to_plain(dataclass_with(np.array(["a"])))


def dataclass_with(array: Any) -> Everything:
    state = everything()
    state.array = array
    return state


def test_a_state_whose_fields_have_changed_since_it_was_saved_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Part must be what .* it has the fields \['t'\], .* \['t', 'u'\]"):
        from_plain(Part, {"t": 0.1, "u": 2.0})


class Shape(ABC):
    @abstractmethod
    def area(self) -> float: ...


@dataclass
class Square(Shape):
    side: float

    def area(self) -> float:
        return self.side**2


@dataclass
class Drawing:
    shape: Shape


def test_a_field_of_an_abstract_class_names_its_class_and_only_imported_ones_are_restored() -> None:
    plain = to_plain(Drawing(Square(3.0)))
    assert plain["shape"] == {"class": f"{__name__}.Square", "side": 3.0}
    assert from_plain(Drawing, plain) == Drawing(Square(3.0))
    with pytest.raises(
        ValueError, match=r"the class os.Circle of a Shape in the checkpoint must be imported"
    ):
        from_plain(Drawing, {"shape": {"class": "os.Circle", "radius": 1.0}})


# A method, an inner solver, a set and an atom that live outside the package.


@final
@dataclass(frozen=True)
class Corner(Atom):
    """A vertex of the cube [−1, 1]^d, by its signs."""

    signs: tuple[int, ...]

    def dot(self, direction: Point) -> float:
        return float(np.asarray(self.signs, dtype=np.float64) @ direction)

    def add_to(self, x: Point, weight: float) -> None:
        x += weight * np.asarray(self.signs, dtype=np.float64)

    def norm_squared(self) -> float:
        return float(len(self.signs))

    def dense(self) -> Point:
        return np.asarray(self.signs, dtype=np.float64)


@final
@dataclass(frozen=True)
class Cube(ConvexSet):
    shape: tuple[int, ...]
    polytope = True

    @property
    def diameter(self) -> float:
        return 2.0 * float(np.sqrt(self.shape[0]))

    def start(self) -> Point:
        return np.zeros(self.shape)

    def lmo(self, direction: Point, near: Atom | None = None) -> Atom:
        return Corner(tuple(np.where(direction > 0.0, -1, 1).tolist()))

    def violation(self, x: Point) -> float:
        return max(0.0, float(np.abs(x).max()) - 1.0)


@dataclass
class StepState:
    x: Point
    s: Atom | None = None
    calls: int = 0


@final
class StepSolver(Solver):
    """One Frank-Wolfe step a call."""

    state: StepState

    def __init__(self, task: Task) -> None:
        self.task = task
        self.state = task.restore(StepState) or StepState(task.x0)

    def __call__(self, phi: Subproblem, accuracy: Accuracy) -> Point:
        state = self.state
        state.s = self.task.lmo(phi.grad(state.x, phi.f.map.image(state.x)), state.s)
        state.calls += 1
        state.x = state.x + 2.0 / (state.calls + 2.0) * (state.s.dense() - state.x)
        return state.x


@final
@dataclass(frozen=True)
class Step(Inner):
    State = StepState

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        return None

    def start(self, task: Task) -> Solver:
        return StepSolver(task)


@dataclass
class MixState:
    x: Point
    total: dict[str, float]


@final
@dataclass(frozen=True)
class Mix(Method):
    rounds_per_iteration = 1
    State = MixState

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return None

    def inner_solver(self, f: Objective, X: ConvexSet) -> Inner:
        return Step()

    def program(self, agent: Agent) -> Program[Point]:
        solver = self.inner_solver(agent.f, agent.X).start(agent.task)
        state = agent.restore(MixState) or MixState(agent.x0, {"weight": 0.0})
        for k in agent.iterations_left:
            center = yield from average(state.x, agent.metropolis)
            state.x = solver(Subproblem(agent.f, 0.0 * center, 1.0, center), gap_at_most(0.0))
            state.total["weight"] += agent.rng.random()
            state.x = state.x / (1.0 + 1e-3 * state.total["weight"])
            agent.observe(k, state.x)
            agent.save(k, state, solver)
        return state.x


T1 = dcgs.Theorem1(horizon=9)
OUTSIDE = [Mix(), dcgs.DCGS(inner=Step(), schedule=T1), dcgs.DCGS(inner="pcg", schedule=T1), dcgs.FastDCGS()]


def run(method: Method, iterations: int, **rules: Any) -> dcgs.Result:
    rng = np.random.default_rng(5)
    data = [(rng.standard_normal((4, 6)), 3.0 * rng.standard_normal(4)) for _ in range(4)]
    objectives = [dcgs.LeastSquares(A, b) for A, b in data]
    return dcgs.minimize(objectives, Cube((6,)), nx.path_graph(4), method, iterations=iterations, **rules)


@pytest.mark.parametrize("method", OUTSIDE, ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("stop", [1, 6])
def test_a_method_solver_and_atom_from_outside_are_resumed_to_the_bit(
    method: Method, stop: int, tmp_path: Path
) -> None:
    run(method, stop, checkpoint=Checkpoint(tmp_path, every=3))
    resumed = run(method, 9, checkpoint=Checkpoint(tmp_path, resume=True))
    np.testing.assert_array_equal(resumed.agents, run(method, 9).agents)
    assert resumed.about["checkpoint"]["resumed"] == stop


@final
class Bare(Solver):
    """A solver that has no state."""

    def __call__(self, phi: Subproblem, accuracy: Accuracy) -> Point:
        return phi.center


@final
@dataclass(frozen=True)
class Undeclared(Method):
    """A method that does not declare its inner solver."""

    rounds_per_iteration = 1
    State = Part

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return None

    def program(self, agent: Agent) -> Program[Point]:
        for k in agent.iterations_left:
            yield agent.x0
            agent.save(k, Part(), Bare())
        return agent.x0


def test_a_solver_without_a_state_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"an inner solver must have a state .*; that of Bare is None"):
        run(Undeclared(), 3, checkpoint=Checkpoint(tmp_path))


@final
@dataclass(frozen=True)
class Wrong(Method):
    rounds_per_iteration = 1
    State = WithoutType

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return None

    def program(self, agent: Agent) -> Program[Point]:
        yield agent.x0
        return agent.x0


def test_a_method_whose_state_cannot_be_saved_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"a run of Wrong cannot be checkpointed: field 'anything' of Without"
    ):
        run(Wrong(), 3, checkpoint=Checkpoint(tmp_path))
