"""The checkpoint manager: saves the states of this process's agents, and finds those to resume from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dcgs.front import checkpoint_file
from dcgs.front.checkpoint import Checkpoint, available, common, refusal
from dcgs.front.distributed import agreed
from dcgs.front.fingerprint import Fingerprint, difference
from dcgs.front.observer import Observer
from dcgs.front.run_state import AgentWork, RunState, agent_work, resume_run, run_state
from dcgs.front.signals import SignalListener, exit_by_signal
from dcgs.front.stopping import Status
from dcgs.inner import Solver
from dcgs.methods.base import Agent
from dcgs.runtime import ProcessGroup
from dcgs.runtime.in_flight import AgentLinks
from dcgs.state import Plain, ResumePoint, SavedState, from_plain, to_plain

# The number of iterations whose files are kept on disk.
_GENERATIONS = 2
# The states of an agent: of the method, of its inner solver, and of what certifies gaps.
_PARTS = ("program", "inner", "certifier")


@final
@dataclass(eq=False)
class CheckpointManager:
    """Writes the checkpoints of this process's agents, and reads those to resume from.

    Without a checkpoint it does nothing. ``last`` is the last iteration of the run, if it is known. After
    every round the processes agree on whether one of them received a signal, so that no process is ahead of
    another by more than one checkpoint. If links are not reliable, agents may have taken different numbers of
    steps. Checkpoints are then ``by_rounds``: they hold the last state of every agent, and its ``links``.
    """

    checkpoint: Checkpoint | None
    agents: Sequence[int]
    last: int | None
    group: ProcessGroup
    by_rounds: bool = False

    def __post_init__(self) -> None:
        self.notes: list[str] = []
        self.signals = SignalListener()
        self.links = {i: AgentLinks() for i in self.agents}
        self._resumed: int | None = None
        self._contents: dict[int, dict[str, Any]] = {}
        self._work: Callable[[int], AgentWork]
        self._pending: dict[int, tuple[int, dict[str, Plain], AgentWork]] = {}
        self._first: dict[int, tuple[int, dict[str, Plain]]] = {}
        self._saved = False  # whether an agent of this process has ever saved a state
        self._fingerprints: Mapping[int, Fingerprint] = {}
        self._signal = 0  # received by any process
        self._seconds = 0.0

    def about(self) -> dict[str, Any]:
        """Return what the result reports: ``every``, the iteration resumed from, and the seconds spent."""
        if self.checkpoint is None:
            return {}
        details = {"every": self.checkpoint.every, "resumed": self._resumed, "seconds": self._seconds}
        return {"checkpoint": details}

    def find(self) -> None:
        """Read the newest checkpoint that all agents have, if the run is to be resumed."""
        at = self.checkpoint
        if at is None:
            return
        have, notes = agreed(self.group, lambda: available(at, self.agents))
        everyones = [
            ks.tolist() for ks in self.group.allgather([np.array(ks, np.int64) for ks in have.values()])
        ]
        self.notes += self.group.allgather_texts(notes)
        reason = refusal(at, everyones, self.notes)
        if reason is not None:
            with self.group.common_errors():
                raise ValueError(reason)
        self._resumed = common(everyones) or None
        if self._resumed is not None:
            k = self._resumed
            self._contents = agreed(
                self.group, lambda: {i: checkpoint_file.read(at.file(i, k)) for i in self.agents}
            )

    def resume_point(self, i: int) -> ResumePoint | None:
        """Return what agent i resumes from, or None in a new run."""
        if self._resumed is None:
            return None
        content = self._contents[i]
        states, steps = {part: content.pop(part, None) for part in _PARTS}, content["run"]["steps"]
        if states["program"] is None:  # the agent has slept since the start
            return None
        if self.by_rounds:
            self._first[i] = steps, states
        program, *others = (None if plain is None else SavedState(plain) for plain in states.values())
        assert program is not None
        return ResumePoint(steps, program, *others)

    def begin(
        self, identify: Callable[[Agent], Fingerprint], agents: Mapping[int, Agent], observer: Observer
    ) -> None:
        """Refuse a checkpoint of another run, restore the counters, and clear the folder."""
        at = self.checkpoint
        if at is None:
            return
        start = time.perf_counter()
        self._work = lambda i: agent_work(agents[i], observer.counters)
        agreed(self.group, lambda: self._set_up(at, identify, agents, observer))
        if self.by_rounds:  # an agent that sleeps until the next checkpoint has the state of its last step
            new: tuple[int, dict[str, Plain]] = 0, dict.fromkeys(_PARTS)
            self._pending = {i: (*self._first.get(i, new), self._work(i)) for i in self.agents}
        if self._resumed is not None:
            observer.restore()
        self._seconds += time.perf_counter() - start

    def _set_up(
        self,
        at: Checkpoint,
        identify: Callable[[Agent], Fingerprint],
        agents: Mapping[int, Agent],
        observer: Observer,
    ) -> None:
        self._fingerprints = {i: identify(agents[i]) for i in self.agents}
        contents, self._contents = self._contents, {}
        for i, content in contents.items():
            reason = difference(i, content["fingerprint"], self._fingerprints[i])
            if reason is not None:
                raise ValueError(f"the checkpoint in {str(at.path)!r} is of another run: {reason}")
            if self.by_rounds:
                self.links[i] = from_plain(AgentLinks, content["links"])
        if contents:
            states = {i: from_plain(RunState, content["run"]) for i, content in contents.items()}
            self.notes += resume_run(states, agents, observer)
        try:
            self._clear_folder(at, observer.iterations)
            if not contents:
                # With this file a run that ends before its first checkpoint can be resumed, too.
                self._write(0, {i: {} for i in self.agents})
        except OSError as error:
            raise _unwritable(at, 0, error) from error

    def _clear_folder(self, at: Checkpoint, k: int) -> None:
        """Delete damaged files, files of later iterations, and incomplete files of killed processes."""
        for i in self.agents:
            folder = at.file(i, 0).parent
            folder.mkdir(parents=True, exist_ok=True)
            for part in folder.glob(".*.part"):
                part.unlink()
            for each, path in at.files(i).items():
                if each > k or checkpoint_file.iteration_in(path) != each:
                    path.unlink()

    def save(
        self, i: int, k: int, state: object, inner: Solver | None, certifier: object | None = None
    ) -> None:
        """Take agent i's state after iteration k if a checkpoint is due; called from the agent's thread.

        Counters and random state are taken here as well: the agent works on up to its next ``yield``.
        """
        at, self._saved = self.checkpoint, True
        if at is None or not (self.by_rounds or self._is_due(at, k)):
            return
        if inner is not None and inner.state is None:
            raise TypeError(
                f"an inner solver must have a state to be checkpointed; that of {type(inner).__name__} is "
                "None. Assign an instance of its State to self.state."
            )
        start = time.perf_counter()
        states = (state, None if inner is None else inner.state, certifier)
        plain = [None if each is None else to_plain(each) for each in states]
        self._pending[i] = k, dict(zip(_PARTS, plain, strict=True)), self._work(i)
        self._seconds += time.perf_counter() - start

    def _is_due(self, at: Checkpoint, k: int) -> bool:
        return bool(self._signal) or k % at.every == 0 or k == self.last

    def after_round(self, agents: Mapping[int, Agent], observer: Observer, continues: bool) -> bool:
        """Write the pending states, with the clock stopped; return whether the run continues.

        Called while all agents of this process wait.
        """
        at = self.checkpoint
        if at is None:
            return continues
        # Agents that stop need not save once more; and where messages are missing, all may have slept.
        if not self.by_rounds and observer.status not in (Status.AGREED, Status.ROUNDING, Status.STALLED):
            self._check_saved(at, observer.iterations, continues)
        pending = self._pending if not self.by_rounds or self._is_due(at, observer.iterations) else {}
        if pending:
            observer.counters.clock.pause()
            start = time.perf_counter()
            k = observer.iterations if self.by_rounds else max(k for k, _, _ in pending.values())
            try:
                self._write(k, {i: self._content(agents[i], k, observer) for i in self.agents})
                self.delete_old(k)
            except OSError as error:
                raise _unwritable(at, k, error) from error
            self._seconds += time.perf_counter() - start
            observer.counters.clock.start()
            continues = continues and not self._signal
            if not self.by_rounds:
                self._pending = {}
        # All agents wait here, so all of them save their state after the same iteration.
        received = np.array([float(self.signals.received)])
        self._signal = self._signal or int(self.group.allreduce_max(received)[0])
        return continues

    def _content(self, agent: Agent, k: int, observer: Observer) -> dict[str, Plain]:
        """Return what the file of an agent holds: its state, that of the run, and that of its links."""
        steps, content, work = self._pending[agent.index]
        run = to_plain(run_state(agent, k, steps, work, observer))
        links: dict[str, Plain] = {"links": to_plain(self.links[agent.index])} if self.by_rounds else {}
        return content | {"run": run} | links

    @property
    def interrupted(self) -> bool:
        """Whether a signal ends the run; all processes know it."""
        return bool(self._signal)

    def _check_saved(self, at: Checkpoint, done: int, continues: bool) -> None:
        """Raise if no agent has saved a state though the first checkpoint was due."""
        due = ((self._resumed or 0) // at.every + 1) * at.every
        if not self._saved and done >= due + continues:
            raise RuntimeError(
                "a method that declares a State must call agent.save(k, state) after each iteration; it has "
                f"not in {done - (self._resumed or 0)} iterations, and a checkpoint is due after every "
                f"{at.every}. Call it after agent.observe(k, x)."
            )

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record signals during the run, and exit by them afterwards; without a checkpoint do nothing."""
        if self.checkpoint is None:
            yield
            return
        with self.signals.listening():
            yield
        with self.group.common_errors(BaseException):
            exit_by_signal(
                self._signal,
                f"stopped by a signal; a checkpoint is in {str(self.checkpoint.path)!r}: "
                "resume with resume=True.",
            )

    def _write(self, k: int, contents: Mapping[int, dict[str, Plain]]) -> None:
        assert self.checkpoint is not None
        for i, content in contents.items():
            header: dict[str, Plain] = {"fingerprint": {**self._fingerprints[i]}}
            checkpoint_file.write(self.checkpoint.file(i, k), header | content)

    def delete_old(self, k: int) -> None:
        """Delete files that nobody needs: all agents have complete files up to the one before k."""
        assert self.checkpoint is not None
        for i in self.agents:
            files = self.checkpoint.files(i)
            old = [each for each in sorted(files) if each <= k]
            for each in old[:-_GENERATIONS]:
                files[each].unlink()


def _unwritable(at: Checkpoint, k: int, error: OSError) -> OSError:
    return OSError(
        f"the checkpoint of iteration {k} cannot be written to {str(at.path)!r}: {error.strerror or error}. "
        "Earlier checkpoints are complete; free some space, and resume with resume=True."
    )
