"""Checkpoints: every agent's state on disk, so that a run goes on as if it had never stopped.

Each agent has a folder of its own, with one file for every iteration that is kept. Nobody needs to see
another agent's files: all that agents exchange in order to go on is which iterations they have.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

import numpy as np

from dcgs.front import checkpoint_file
from dcgs.front.checks import agreed
from dcgs.front.fingerprint import Fingerprint, difference, surroundings
from dcgs.front.observer import Observer
from dcgs.front.resuming import resume, standing
from dcgs.front.signals import SignalListener, obey
from dcgs.memory import Memory, Past, State, plain
from dcgs.methods.base import Agent, Method
from dcgs.objectives.objective import Objective
from dcgs.points import is_whole
from dcgs.runtime import ProcessGroup
from dcgs.sets.base import ConvexSet

_SUFFIX = ".dcgs"
# Whole generations that stay when a newer one is there.
_GENERATIONS = 2


@final
@dataclass(frozen=True)
class Checkpoint:
    """Keep the state of all agents in ``folder`` after every so many iterations, and after the last.

    ``resume=True`` goes on from the newest iteration that all agents have, and raises where there is none;
    ``"auto"`` then starts anew. Without it the folder must hold no checkpoints yet.
    """

    folder: str | os.PathLike[str]
    every: int = 10
    resume: bool | Literal["auto"] = False

    def __post_init__(self) -> None:
        if not isinstance(self.folder, str | os.PathLike):
            raise TypeError(f"folder must be a path; got {self.folder!r}.")
        if not is_whole(self.every, 1):
            raise ValueError(f"every must be a whole number of at least 1; got {self.every!r}.")
        if self.resume not in (False, True, "auto"):
            raise ValueError(f"resume must be False, True or 'auto'; got {self.resume!r}.")

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.folder)

    def file(self, i: int, k: int) -> Path:
        """Return where agent i's state after iteration k is kept."""
        return self.path / f"agent-{i:04}" / f"{k:06}{_SUFFIX}"

    def files(self, i: int) -> dict[int, Path]:
        """Return agent i's files by their iteration, whole or not."""
        found = self.file(i, 0).parent.glob(f"*{_SUFFIX}")
        return {int(path.stem): path for path in sorted(found) if path.stem.isdecimal()}


def check_checkpoint(
    checkpoint: Checkpoint | None, objectives: Mapping[int, Objective], X: ConvexSet, method: Method
) -> None:
    """Raise unless there is none, or it is one and the method can be kept in it."""
    if checkpoint is None:
        return
    if not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"checkpoint must be a dcgs.Checkpoint(folder), or None; got {checkpoint!r}.")
    reason = method.forgets(objectives, X)
    if reason is not None:
        raise ValueError(reason)


def available(checkpoint: Checkpoint, agents: Iterable[int]) -> tuple[dict[int, list[int]], list[str]]:
    """Return which iterations each agent has whole files of, and notes on those that are not."""
    have: dict[int, list[int]] = {}
    notes = []
    for i in agents:
        files = checkpoint.files(i)
        have[i] = [k for k, path in files.items() if checkpoint_file.is_whole(path)]
        notes += [
            f"the checkpoint {str(files[k])!r} is damaged, and was passed over."
            for k in files.keys() - set(have[i])
        ]
    return have, notes


def common(have: Iterable[Iterable[int]]) -> int | None:
    """Return the newest iteration that all have, None where there is none."""
    return max(set.intersection(*map(set, have)), default=None)


@final
class Keeper:
    """Writes the checkpoints of this process's agents, and finds the one to go on from.

    Without a checkpoint it does nothing. ``last`` is the last iteration of the run, if that is known.
    Processes meet after every round to agree on whether one was told to stop, so that none is ahead of
    another by more than one checkpoint.
    """

    def __init__(
        self, checkpoint: Checkpoint | None, agents: Sequence[int], last: int | None, group: ProcessGroup
    ) -> None:
        self.checkpoint = checkpoint
        self.group = group
        self.notes: list[str] = []
        self.signals = SignalListener()
        self._agents = agents
        self._last = last
        self._pasts: dict[int, Past] = {}
        self._offers: dict[int, tuple[int, Memory]] = {}
        self._fingerprints: Mapping[int, Fingerprint] = {}
        self._signal = 0  # that some process heard
        self._seconds = 0.0

    def about(self) -> dict[str, Any]:
        """Say what was kept and resumed, and how many seconds that took, all agents' together."""
        if self.checkpoint is None:
            return {}
        resumed = next((past.whole("iteration") for past in self._pasts.values()), None)
        return {"checkpoint": {"every": self.checkpoint.every, "resumed": resumed, "seconds": self._seconds}}

    def find(self) -> None:
        """Read what is there to go on from, if that was asked for."""
        at = self.checkpoint
        if at is None:
            return
        have, notes = agreed(self.group, lambda: available(at, self._agents))
        held = self.group.allgather([np.array(ks, np.int64) for ks in have.values()])
        everyones = [ks.tolist() for ks in held]
        newest = common(everyones)
        texts = self.group.allgather([np.frombuffer(note.encode(), np.uint8) for note in notes])
        self.notes += [bytes(text).decode() for text in texts]
        reason = _refusal(at, everyones, self.notes)
        if reason is not None:
            with self.group.common_errors():
                raise ValueError(reason)
        if newest:
            self._pasts = agreed(self.group, lambda: self._read(at, newest))

    def past(self, i: int) -> Past | None:
        """Return what agent i's program kept, or None at the start of a run."""
        return self._pasts[i].part("program") if i in self._pasts else None

    def begin(
        self, seal: Callable[[Agent], Fingerprint], agents: Mapping[int, Agent], observer: Observer
    ) -> None:
        """Refuse a checkpoint of another run; set everything to where it stood, and clear the folder."""
        at = self.checkpoint
        if at is None:
            return
        start = time.perf_counter()
        agreed(self.group, lambda: self._set_up(at, seal, agents, observer))
        if self._pasts:
            observer.go_on()
        self._seconds += time.perf_counter() - start

    def _read(self, at: Checkpoint, k: int) -> dict[int, Past]:
        return {i: Past(checkpoint_file.read(at.file(i, k))) for i in self._agents}

    def _set_up(
        self,
        at: Checkpoint,
        seal: Callable[[Agent], Fingerprint],
        agents: Mapping[int, Agent],
        observer: Observer,
    ) -> None:
        self._fingerprints = {i: seal(agents[i]) for i in self._agents}
        for i, past in self._pasts.items():
            reason = difference(i, past.part("fingerprint").values, self._fingerprints[i])
            if reason is not None:
                raise ValueError(f"the checkpoint in {str(at.path)!r} is of another run: {reason}")
        if self._pasts:
            self.notes += resume(self._pasts, agents, observer)
        try:
            for i in self._agents:
                at.file(i, 0).parent.mkdir(parents=True, exist_ok=True)
                for k, path in at.files(i).items():
                    if k > observer.iterations or not checkpoint_file.is_whole(path):
                        path.unlink()
            if not self._pasts:
                # So that a run that ends before its first checkpoint can be gone on with, too.
                self._write(0, {i: {} for i in self._agents})
        except OSError as error:
            raise _unwritable(at, 0, error) from error

    def keep(self, i: int, k: int, /, **state: State) -> None:
        """Take agent i's state after iteration k if it is time; called from the agent's thread."""
        at = self.checkpoint
        if at is not None and (self._signal or k % at.every == 0 or k == self._last):
            start = time.perf_counter()
            variables: dict[str, Memory] = {name: plain(value) for name, value in state.items()}
            self._offers[i] = k, {"k": k, **variables}
            self._seconds += time.perf_counter() - start

    def after_round(self, agents: Mapping[int, Agent], observer: Observer, going: bool) -> bool:
        """Write what agents have offered, off the clock; return whether the run goes on.

        Called while all of this process's agents stand still.
        """
        at = self.checkpoint
        if at is None:
            return going
        offers, self._offers = self._offers, {}
        if offers:
            observer.meters.clock.halt()
            start = time.perf_counter()
            k = max(k for k, _ in offers.values())
            try:
                self._write(k, {i: standing(agents[i], offers[i][1], observer) for i in self._agents})
                self.tidy(k)
            except OSError as error:
                raise _unwritable(at, k, error) from error
            self._seconds += time.perf_counter() - start
            observer.meters.clock.go()
            going = going and not self._signal
        # Asked here, where all stand still, so that all offer their state after the same iteration.
        heard = np.array([float(self.signals.received)])
        self._signal = self._signal or int(self.group.allreduce_max(heard)[0])
        return going

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear signals to end, if there is a checkpoint to write then, and end as they ask afterwards."""
        if self.checkpoint is None:
            yield
            return
        with self.signals.listening():
            yield
        with self.group.common_errors(BaseException):
            obey(
                self._signal,
                f"stopped by a signal; a checkpoint is in {str(self.checkpoint.path)!r}: "
                "go on with resume=True.",
            )

    def _write(self, k: int, memories: Mapping[int, dict[str, Memory]]) -> None:
        assert self.checkpoint is not None
        for i, memory in memories.items():
            head: dict[str, Memory] = {
                "agent": i,
                "iteration": k,
                "fingerprint": {**self._fingerprints[i]},
                "versions": {**surroundings()},
            }
            checkpoint_file.write(self.checkpoint.file(i, k), head | memory)

    def tidy(self, k: int) -> None:
        """Delete what nobody goes on from any more: all agents have whole files up to the one before k."""
        assert self.checkpoint is not None
        for i in self._agents:
            files = self.checkpoint.files(i)
            old = [each for each in sorted(files) if each <= k]
            for each in old[:-_GENERATIONS]:
                files[each].unlink()


def _refusal(at: Checkpoint, held: Sequence[Sequence[int]], notes: Sequence[str]) -> str | None:
    """Return why there is nothing to go on from, or no place for a new run; None if all is well."""
    some = sorted({k for ks in held for k in ks})
    if at.resume is False:
        # Of iteration 0 there is nothing that would be lost.
        return (
            f"the folder of a new run must hold no checkpoints; {str(at.path)!r} has iterations {some}. "
            "Go on from them with resume=True, or choose another folder."
            if any(some)
            else None
        )
    if any(some) and common(held) is None:
        without = [i for i, ks in enumerate(held) if not ks]
        listed = f"agents {without} have none" if without else f"agents have {[list(ks) for ks in held]}"
        return (
            f"all agents must have a whole checkpoint of one iteration to resume; in {str(at.path)!r} "
            f"{listed}. Start anew in another folder."
        )
    if at.resume is True and not some:
        return " ".join(
            [
                f"there must be a checkpoint to resume; {str(at.path)!r} has none that is whole.",
                *notes,
                "Leave out resume to start anew.",
            ]
        )
    return None


def _unwritable(at: Checkpoint, k: int, error: OSError) -> OSError:
    return OSError(
        f"the checkpoint of iteration {k} cannot be written to {str(at.path)!r}: {error.strerror or error}. "
        "Earlier ones are whole; make room, and go on with resume=True."
    )
