"""A recorder for each agent: it shapes the link when the run starts, and records times and answers."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs import LowRank, Method, Objective
from dcgs.methods.base import Agent, Dual
from dcgs.points import Point
from dcgs.protocol import Inbox, Outbox, Program
from dcgs.runtime.messages import packets
from dcgs.runtime.wire import FRAME, HEADER
from dcgs.sets.base import ConvexSet
from netns import sent_on_wire, shaping


def bytes_each(agent: Agent, message: Outbox) -> float:
    """Return the bytes that an agent sends to a neighbor in a round, on average, with all headers."""
    neighbors = sorted(agent.degrees)
    total = sum(FRAME + packet.nbytes for packet in packets(agent.index, message, neighbors).values())
    return HEADER + total / max(1, len(neighbors))


@final
@dataclass(eq=False)
class Recorder:
    """Measurements of one agent: seconds and CPU seconds of each step, bytes sent, waits, samples of answers.

    A step is what an agent does between two messages. Bytes are those of all messages of a round, divided by
    the number of neighbors. A sample is the model where ratings are, which is all that losses depend on; it
    takes a millisecond, which is counted in the time. It is ``partial`` if the agent has only its own rows of
    a matrix in factors: it is then 0 in all other rows.

    ``barrier`` returns when all agents have called it: the clock then starts for all. ``measure`` returns the
    bytes of a message. ``began`` and ``ended`` are on one clock for all processes of a machine.
    """

    sample: Callable[[Any], NDArray[np.float64]]
    speed: float | None
    barrier: Callable[[], None] = lambda: None
    measure: Callable[[Agent, Outbox], float] = bytes_each
    began: float = 0.0
    ended: float = 0.0
    wire: int = 0
    steps: list[tuple[float, float]] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    stamps: list[tuple[float, int]] = field(default_factory=list)
    samples: list[NDArray[np.float64]] = field(default_factory=list)
    partial: bool = False

    def begin(self) -> None:
        """Shape the link, unless ``speed`` is None; bytes that were sent before are not counted."""
        if self.speed is not None:
            subprocess.run(shaping(self.speed), check=True)
        self.barrier()
        self.wire = sent_on_wire()
        self.began = time.perf_counter()

    def observed(self, x: Point | LowRank) -> None:
        """Record an answer, the seconds, and the step it came in."""
        self.partial = isinstance(x, LowRank) and x.rows is not None
        self.samples.append(self.sample(x))
        self.stamps.append((time.perf_counter() - self.began, len(self.steps)))

    def save(self, path: Path) -> None:
        """Write all measurements to a file."""
        np.savez(
            path,
            steps=np.array(self.steps).reshape(-1, 2),
            sent=np.array(self.sent, dtype=np.float64),
            waits=np.array(self.waits),
            stamps=np.array(self.stamps).reshape(-1, 2),
            samples=np.array(self.samples),
            partial=np.array(self.partial),
            span=np.array([self.began, self.ended]),
        )

    def timed(self, program: Program[Any], agent: Agent) -> Program[Any]:
        """Run the program of an agent unchanged, and time its steps."""
        self.begin()
        try:
            message = self._step(lambda: next(program))
            while True:
                self.sent.append(self.measure(agent, message))
                start = time.perf_counter()
                inbox = yield message
                self.waits.append(time.perf_counter() - start)
                message = self._step(_resumption(program, inbox))
                del inbox
        except StopIteration as end:
            return end.value
        finally:
            program.close()

    def _step(self, step: Callable[[], Outbox]) -> Outbox:
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            return step()
        finally:
            self.ended = time.perf_counter()
            self.steps.append((self.ended - wall, time.thread_time() - cpu))


def _resumption(program: Program[Any], inbox: Inbox) -> Callable[[], Outbox]:
    return lambda: program.send(inbox)


@final
class Recorded(Method):
    """A method with a recorder for the agent of this process; what agents do and send is unchanged."""

    def __init__(self, method: Method, recorder: Recorder) -> None:
        self.method = method
        self.recorder = recorder
        self.rounds_per_iteration = method.rounds_per_iteration
        self.stops_itself = method.stops_itself
        self.certifies = method.certifies
        self.projects = method.projects
        self.uses_sizes = method.uses_sizes
        self.tolerates_faults = method.tolerates_faults

    def __repr__(self) -> str:
        return repr(self.method)

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return self.method.incompatibility(objectives, X)

    def uses_factors(self, f: Objective, X: ConvexSet) -> bool:
        return self.method.uses_factors(f, X)

    def program(self, agent: Agent) -> Program[Any]:
        def observe(k: int, answer: Point | LowRank, dual: Dual | None = None) -> None:
            agent.observe(k, answer, dual)
            self.recorder.observed(answer)

        return self.recorder.timed(self.method.program(replace(agent, observe=observe)), agent)
