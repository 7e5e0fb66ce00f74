"""What a run and its checkpoints know of each other: the state of a run, and a run without checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from numpy.typing import NDArray

from dcgs.checkpoints.fingerprint import Fingerprint
from dcgs.inner import Outcome, Solver
from dcgs.methods.certificate import GapTarget
from dcgs.points import Point
from dcgs.secure.session import SecureState


class AgentWork(NamedTuple):
    """What one agent has counted and drawn up to an iteration. ``rng`` is the random state, as JSON.

    ``secure`` is that of masked sums.
    """

    lmo_calls: int
    projections: int
    outcomes: dict[Outcome, int]
    rng: str
    secure: SecureState | None


@final
@dataclass(frozen=True, eq=False)
class RunState:
    """The state of the run for one agent after an iteration: counters, clock, answer, history.

    ``steps`` are the iterations of this agent: fewer than those of the run if it slept. ``agreed`` is True if
    the agent knows that the gap is certified. ``answer`` has the arrays of its model.
    ``peaks`` are the most bytes of an agent of the same process, in each round since the last snapshot.
    ``history`` has a row for each snapshot: agent 0 has all of them, the others the last one.
    ``certificates`` are those of the same process, and ``sent`` has the bytes that it had sent after each
    round; of all agents of the process the first one has them. ``rng`` is the random state, as JSON, and
    ``secure`` that of masked sums.
    """

    iteration: int
    steps: int
    agreed: bool
    answer: tuple[NDArray[Any], ...]
    target: GapTarget | None
    rounds: int
    peak_bytes: int
    peaks: Point
    computing: float
    seconds: float
    worked: float
    waited: float
    messages: int
    bytes: int
    lmo_calls: int
    projections: int
    outcomes: dict[Outcome, int]
    rng: str
    history: Point
    certificates: Point
    sent: dict[int, int]
    versions: dict[str, str]
    secure: SecureState | None


class CheckpointedRun(ABC):
    """The run that is saved and resumed, as the manager sees it."""

    @property
    @abstractmethod
    def iterations(self) -> int:
        """The iterations done."""

    @property
    @abstractmethod
    def is_decided(self) -> bool:
        """Whether the agents have decided to stop; they need not save once more."""

    @abstractmethod
    def fingerprint(self, i: int) -> Fingerprint:
        """Return what must be the same for agent i's part of the run to be resumed."""

    @abstractmethod
    def work(self, i: int) -> AgentWork:
        """Return what agent i has counted and drawn so far; called while the agent itself waits."""

    @abstractmethod
    def state(self, i: int, k: int, steps: int, work: AgentWork) -> RunState:
        """Return the state of the run for agent i after iteration k, given its own steps and work."""

    @abstractmethod
    def set_state(self, states: Mapping[int, RunState]) -> list[str]:
        """Set counters, clock and answers to those of a checkpoint; return notes for the user."""

    @abstractmethod
    def resume(self) -> None:
        """Go on from the state that was set; all processes take part."""

    @abstractmethod
    def paused(self) -> AbstractContextManager[None]:
        """Return a context in which the clock of the run stands still."""


@final
class NoCheckpoints:
    """The checkpoints of a run that has none: nothing is saved, and nothing is resumed."""

    notes: Sequence[str] = ()
    interrupted = False

    def about(self) -> dict[str, Any]:
        """Return that there is nothing to report."""
        return {}

    def resume_point(self, i: int) -> None:
        """Return that agent i starts anew."""

    def begin(self, run: CheckpointedRun) -> None:
        """Do nothing."""

    def save(self, i: int, k: int, state: object, inner: Solver | None, certifier: object = None) -> None:
        """Do nothing."""

    def after_round(self, continues: bool) -> bool:
        """Return whether the run continues, as it is."""
        return continues

    def listening(self) -> AbstractContextManager[None]:
        """Return a context in which signals do what they do."""
        return nullcontext()
