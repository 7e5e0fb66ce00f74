"""The checkpoint manager: saves the states of this process's agents, and finds those to resume from.

Ctrl-C and SIGTERM during a run with checkpoints are recorded. The process exits after a last checkpoint.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple, final

import numpy as np

from dcgs.checkpoints.fingerprint import Fingerprint, difference
from dcgs.checkpoints.folder import (
    Checkpoint,
    available,
    common,
    iteration_in,
    read_file,
    refusal,
    write_files,
)
from dcgs.checkpoints.run_state import AgentWork, CheckpointedRun, RunState
from dcgs.inner import Solver
from dcgs.runtime import AgentLinks, ProcessGroup, agreed
from dcgs.state import Plain, ResumePoint, SavedState, from_plain, to_plain

# The number of iterations whose files are kept on disk.
_GENERATIONS = 2
# The states of an agent: of the method, of its inner solver, and of what certifies gaps.
_PARTS = ("program", "inner", "certifier")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds within which a second signal counts as the first one: mpiexec may send each twice.
_REPEATED = 0.5


class _Pending(NamedTuple):
    """What an agent has saved and what is not written yet."""

    steps: int
    states: dict[str, Plain]
    work: AgentWork


@final
@dataclass(eq=False)
class CheckpointManager:
    """Writes the checkpoints of this process's agents, and reads those to resume from.

    ``last`` is the last iteration of the run, if it is known. After every round the processes agree on
    whether one of them received a signal, so that no process is ahead of another by more than one checkpoint.
    If links are not reliable, agents may have taken different numbers of steps. Checkpoints are then by
    rounds: they hold the last state of every agent, and that of its ``links``.
    """

    checkpoint: Checkpoint
    agents: Sequence[int]
    last: int | None
    group: ProcessGroup
    links: dict[int, AgentLinks] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.notes: list[str] = []
        self._listener = SignalListener()
        self._resumed: int | None = None
        self._contents: dict[int, dict[str, Any]] = {}
        self._run: CheckpointedRun
        self._pending: dict[int, _Pending] = {}
        self._first: dict[int, tuple[int, dict[str, Plain]]] = {}
        self._saved = False  # whether an agent of this process has ever saved a state
        self._fingerprints: Mapping[int, Fingerprint] = {}
        self._signal = 0  # received by any process
        self._seconds = 0.0

    @property
    def _by_rounds(self) -> bool:
        return bool(self.links)

    def about(self) -> dict[str, Any]:
        """Return what the result reports: ``every``, the iteration resumed from, and the seconds spent."""
        details = {"every": self.checkpoint.every, "resumed": self._resumed, "seconds": self._seconds}
        return {"checkpoint": details}

    def find(self) -> None:
        """Read the newest checkpoint that all agents have, if the run is to be resumed."""
        have, notes = agreed(self.group, lambda: available(self.checkpoint, self.agents))
        held = [ks.tolist() for ks in self.group.allgather([np.array(ks, np.int64) for ks in have.values()])]
        self.notes += self.group.allgather_texts(notes)
        reason = refusal(self.checkpoint, held, self.notes)
        if reason is not None:
            with self.group.common_errors():
                raise ValueError(reason)
        k = self._resumed = common(held) or None
        if k is not None:
            self._contents = agreed(
                self.group, lambda: {i: read_file(self.checkpoint.file(i, k)) for i in self.agents}
            )

    def resume_point(self, i: int) -> ResumePoint | None:
        """Return what agent i resumes from, or None in a new run."""
        if self._resumed is None:
            return None
        content = self._contents[i]
        states, steps = {part: content.pop(part, None) for part in _PARTS}, content["run"]["steps"]
        if states["program"] is None:  # the agent has slept since the start
            return None
        if self._by_rounds:
            self._first[i] = steps, states
        program, *others = (None if plain is None else SavedState(plain) for plain in states.values())
        assert program is not None
        return ResumePoint(steps, program, *others)

    def begin(self, run: CheckpointedRun) -> None:
        """Refuse a checkpoint of another run, restore the counters, and clear the folder."""
        start = time.perf_counter()
        self._run = run
        agreed(self.group, self._set_up)
        if self._by_rounds:  # an agent that sleeps until the next checkpoint has the state of its last step
            new: tuple[int, dict[str, Plain]] = 0, dict.fromkeys(_PARTS)
            self._pending = {i: _Pending(*self._first.get(i, new), run.work(i)) for i in self.agents}
        if self._resumed is not None:
            run.resume()
        self._seconds += time.perf_counter() - start

    def _set_up(self) -> None:
        self._fingerprints = {i: self._run.fingerprint(i) for i in self.agents}
        contents, self._contents = self._contents, {}
        for i, content in contents.items():
            reason = difference(i, content["fingerprint"], self._fingerprints[i])
            if reason is not None:
                raise ValueError(
                    f"the checkpoint in {str(self.checkpoint.path)!r} is of another run: {reason}"
                )
            if self._by_rounds:
                self.links[i] = from_plain(AgentLinks, content["links"])
        if contents:
            states = {i: from_plain(RunState, content["run"]) for i, content in contents.items()}
            self.notes += self._run.set_state(states)
        try:
            self._clear_folder(self._run.iterations)
            if not contents:
                # With this file a run that ends before its first checkpoint can be resumed, too.
                self._write(0, {i: {} for i in self.agents})
        except OSError as error:
            raise self._unwritable(0, error) from error

    def _clear_folder(self, k: int) -> None:
        """Delete damaged files, files of later iterations, and incomplete files of killed processes."""
        for i in self.agents:
            folder = self.checkpoint.file(i, 0).parent
            folder.mkdir(parents=True, exist_ok=True)
            for part in folder.glob(".*.part"):
                part.unlink()
            for iteration, path in self.checkpoint.files(i).items():
                if iteration > k or iteration_in(path) != iteration:
                    path.unlink()

    def save(self, i: int, k: int, state: object, inner: Solver | None, certifier: object = None) -> None:
        """Take agent i's state after iteration k if a checkpoint is due; called from the agent's thread.

        Counters and random state are taken here as well: the agent works on up to its next ``yield``.
        """
        self._saved = True
        if not (self._by_rounds or self._is_due(k)):
            return
        if inner is not None and inner.state is None:
            raise TypeError(
                f"an inner solver must have a state to be checkpointed; that of {type(inner).__name__} is "
                "None. Assign an instance of its State to self.state."
            )
        start = time.perf_counter()
        states = (state, None if inner is None else inner.state, certifier)
        plain = [None if part is None else to_plain(part) for part in states]
        self._pending[i] = _Pending(k, dict(zip(_PARTS, plain, strict=True)), self._run.work(i))
        self._seconds += time.perf_counter() - start

    def _is_due(self, k: int) -> bool:
        return bool(self._signal) or k % self.checkpoint.every == 0 or k == self.last

    def after_round(self, continues: bool) -> bool:
        """Write the pending states, with the clock stopped; return whether the run continues.

        Called while all agents of this process wait.
        """
        run = self._run
        # Agents that stop need not save once more; and where messages are missing, all may have slept.
        if not (self._by_rounds or run.is_decided):
            self._check_saved(run.iterations, continues)
        if self._pending and (not self._by_rounds or self._is_due(run.iterations)):
            with run.paused():
                start = time.perf_counter()
                steps = max(pending.steps for pending in self._pending.values())
                self._write_pending(run.iterations if self._by_rounds else steps)
                self._seconds += time.perf_counter() - start
            continues = continues and not self._signal
        # All agents wait here, so all of them save their state after the same iteration.
        received = np.array([float(self._listener.received)])
        self._signal = self._signal or int(self.group.allreduce_max(received)[0])
        return continues

    def _write_pending(self, k: int) -> None:
        """Write what agents have saved as the checkpoint of iteration k, and delete files of older ones."""
        contents: dict[int, dict[str, Plain]] = {}
        for i in self.agents:
            steps, states, work = self._pending[i]
            contents[i] = states | {"run": to_plain(self._run.state(i, k, steps, work))}
            if self._by_rounds:
                contents[i]["links"] = to_plain(self.links[i])
        try:
            self._write(k, contents)
            self.delete_old(k)
        except OSError as error:
            raise self._unwritable(k, error) from error
        if not self._by_rounds:
            self._pending = {}

    @property
    def interrupted(self) -> bool:
        """Whether a signal ends the run; all processes know it."""
        return bool(self._signal)

    def _check_saved(self, done: int, continues: bool) -> None:
        """Raise if no agent has saved a state though the first checkpoint was due."""
        every, resumed = self.checkpoint.every, self._resumed or 0
        due = (resumed // every + 1) * every
        if not self._saved and done >= due + continues:
            raise RuntimeError(
                "a method that declares a State must call agent.save(k, state) after each iteration; it has "
                f"not in {done - resumed} iterations, and a checkpoint is due after every "
                f"{every}. Call it after agent.observe(k, x)."
            )

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record signals during the run, and exit by them afterwards."""
        with self._listener.listening():
            yield
        with self.group.common_errors(BaseException):
            exit_by_signal(
                self._signal,
                f"stopped by a signal; a checkpoint is in {str(self.checkpoint.path)!r}: "
                "resume with resume=True (--resume).",
            )

    def _write(self, k: int, contents: Mapping[int, dict[str, Plain]]) -> None:
        write_files(
            {
                self.checkpoint.file(i, k): {"fingerprint": {**self._fingerprints[i]}, **content}
                for i, content in contents.items()
            }
        )

    def delete_old(self, k: int) -> None:
        """Delete files that nobody needs: all agents have complete files up to the one before k."""
        for i in self.agents:
            files = self.checkpoint.files(i)
            old = [iteration for iteration in sorted(files) if iteration <= k]
            for iteration in old[:-_GENERATIONS]:
                files[iteration].unlink()

    def _unwritable(self, k: int, error: OSError) -> OSError:
        return OSError(
            f"the checkpoint of iteration {k} cannot be written to {str(self.checkpoint.path)!r}: "
            f"{error.strerror or error}. Earlier checkpoints are complete; free some space, and resume with "
            "resume=True (--resume)."
        )


@final
class SignalListener:
    """Records SIGINT and SIGTERM. ``received`` is the number of the first signal, 0 if there was none."""

    def __init__(self) -> None:
        self.received = 0
        self._when = 0.0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record signals inside this context; the process does not exit. A second signal ends it at once.

        In other threads than the main one, Python handles no signals and this does nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {number: signal.getsignal(number) for number in _SIGNALS}

        def restore() -> None:
            for number, handler in before.items():
                if signal.getsignal(number) is record:
                    # None is a handler that was not set from Python, and cannot be restored from here.
                    signal.signal(number, signal.SIG_DFL if handler is None else handler)

        def record(number: int, frame: FrameType | None) -> None:
            now = time.monotonic()
            if not self.received:
                self.received, self._when = number, now
            elif now - self._when > _REPEATED:
                restore()
                signal.raise_signal(number)

        for number in _SIGNALS:
            # What is ignored, for example by nohup, stays ignored.
            if before[number] is not signal.SIG_IGN:
                signal.signal(number, record)
        try:
            yield
        finally:
            restore()


def exit_by_signal(number: int, sentence: str) -> None:
    """Raise KeyboardInterrupt for SIGINT, SystemExit for another signal, and nothing if ``number`` is 0."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt(sentence)
    if number:
        raise SystemExit(128 + number)
