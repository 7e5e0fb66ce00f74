"""Faults of links and agents: lost, late and noisy messages, sleeping agents, edges that are down.

Faults belong to the runtime. They are drawn from a seed and the number of the round, so that a run with
faults can be repeated. A schedule of faults can be saved to a file and replayed. ``AgentLinks`` is the state
of the links to one agent: messages on their way, and what has arrived of each neighbor.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.files import NpzReader, read_npz, write_npz
from dcgs.points import Point
from dcgs.protocol import Message
from dcgs.validation import COUNT, NOT_NEGATIVE, PATH, SEED, number, whole

Neighbors: TypeAlias = Sequence[Sequence[int]]
Edge: TypeAlias = tuple[int, int]

_SHARE = number("be at least 0 and less than 1", lambda x: 0.0 <= x < 1.0)
_SHARE_OF_ONE = number("be between 0 and 1", lambda x: 0.0 <= x <= 1.0)


@final
@dataclass(frozen=True)
class RoundFaults:
    """The faults of one round.

    ``asleep`` are agents that neither compute nor send; messages to them wait. ``lost`` are messages that do
    not arrive, by sender and receiver. ``late`` are the rounds by which messages are late. ``noise`` is the
    standard deviation of what is added to each entry of a message, relative to the size of its entries.
    """

    asleep: frozenset[int] = frozenset()
    lost: frozenset[Edge] = frozenset()
    late: Mapping[Edge, int] = field(default_factory=dict)
    noise: float = 0.0


class FaultSchedule(ABC):
    """Which faults happen in which round."""

    patience: int = 1000
    """If no message crosses between two parts of the network for so many rounds, the run ends."""
    seed: int = 0
    """The seed of the noise."""

    @property
    @abstractmethod
    def has_noise(self) -> bool:
        """Whether messages may be changed on their way."""

    @abstractmethod
    def at(self, round: int, neighbors: Neighbors) -> RoundFaults:
        """Return the faults of a round; rounds count from 1."""

    @abstractmethod
    def check(self, neighbors: Neighbors) -> None:
        """Raise unless all agents and edges that have faults are in the graph."""

    def changed(self, round: int, edge: Edge, message: Message, noise: float) -> Message:
        """Return a message with noise; the same in every run."""
        if noise == 0.0:
            return message
        rng = np.random.default_rng((self.seed, round, *edge))
        parts = message if isinstance(message, tuple) else (message,)
        noisy = tuple(_with_noise(part, noise, rng) for part in parts)
        return noisy if isinstance(message, tuple) else noisy[0]


def _with_noise(part: Point, noise: float, rng: np.random.Generator) -> Point:
    size = float(np.sqrt(np.mean(part**2))) if part.size else 0.0
    changed = part + noise * size * rng.standard_normal(part.shape)
    changed.flags.writeable = False
    return changed


@final
@dataclass(frozen=True)
class Faults(FaultSchedule):
    """Random faults, the same for the same seed.

    * ``loss`` is the probability that a message is lost: one number, or a mapping from (sender, receiver).
    * ``sleep`` is the probability that an agent sleeps in a round: one number, or a mapping from agents.
    * ``down`` is the probability that an edge is down in a round, in both directions: one number, or a
      mapping from (agent, neighbor).
    * ``delay`` is the largest number of rounds by which a message is late; each number up to it is as likely.
      It is one number, or a mapping from (sender, receiver).
    * ``noise`` is the standard deviation of what is added to the entries of a message, relative to the root
      mean square of its entries.
    * ``patience``: if no message crosses between two parts of the network for so many rounds, the run ends.

    What a mapping does not name has no such fault. A probability of a mapping may be 1.

    >>> faults = Faults(loss=0.3, sleep=0.1, seed=1)
    >>> faults.at(1, [(1,), (0,)]) == faults.at(1, [(1,), (0,)])
    True
    """

    loss: float | Mapping[Edge, float] = 0.0
    sleep: float | Mapping[int, float] = 0.0
    down: float | Mapping[Edge, float] = 0.0
    delay: int | Mapping[Edge, int] = 0
    noise: float = 0.0
    seed: int = 0
    patience: int = 1000

    def __post_init__(self) -> None:
        for name in ("loss", "sleep", "down"):
            given = getattr(self, name)
            if not isinstance(given, Mapping):
                _SHARE(given, name)
                continue
            for key, share in given.items():
                _SHARE_OF_ONE(share, f"{name}[{key!r}]")
        for delay in self.delay.values() if isinstance(self.delay, Mapping) else (self.delay,):
            whole(0)(delay, "delay")
        NOT_NEGATIVE(self.noise, "noise")
        SEED(self.seed, "seed")
        COUNT(self.patience, "patience")

    def check(self, neighbors: Neighbors) -> None:
        edges = {(i, j) for i, near in enumerate(neighbors) for j in near}
        for name in ("loss", "down", "delay"):
            given = getattr(self, name)
            odd = [edge for edge in given if edge not in edges] if isinstance(given, Mapping) else []
            if odd:
                raise ValueError(f"{name} must be of edges of the graph; it has none for {odd}.")
        agents = range(len(neighbors))
        strangers = [i for i in self.sleep if i not in agents] if isinstance(self.sleep, Mapping) else []
        if strangers:
            raise ValueError(f"sleep must be of agents 0 to {len(neighbors) - 1}; got {strangers}.")

    @property
    def has_noise(self) -> bool:
        return self.noise > 0.0

    def at(self, round: int, neighbors: Neighbors) -> RoundFaults:
        rng = np.random.default_rng((self.seed, round))
        agents = range(len(neighbors))
        edges = [(i, j) for i in agents for j in neighbors[i]]
        sleeping = rng.random(len(neighbors)) < _each(self.sleep, agents)
        lost = rng.random(len(edges)) < _each(self.loss, edges)
        pairs = [edge for edge in edges if edge[0] < edge[1]]
        drawn = rng.random(len(pairs)) < np.maximum(
            _each(self.down, pairs), _each(self.down, [(j, i) for i, j in pairs])
        )
        down = {edge for edge, is_down in zip(pairs, drawn.tolist(), strict=True) if is_down}
        delays = _each(self.delay, edges).astype(np.int64)
        late = rng.integers(0, delays + 1) if delays.any() else delays
        return RoundFaults(
            frozenset(np.flatnonzero(sleeping).tolist()),
            frozenset(
                edge
                for edge, is_lost in zip(edges, lost.tolist(), strict=True)
                if is_lost or (min(edge), max(edge)) in down
            ),
            {edge: rounds for edge, rounds in zip(edges, late.tolist(), strict=True) if rounds},
            self.noise,
        )

    def save(self, path: str | os.PathLike[str], neighbors: Neighbors, rounds: int) -> Path:
        """Write the faults of the first rounds to a file, from which :func:`load_faults` reads them.

        It is a file of NumPy's (npz), whose path is returned.
        """
        faults = [(round, self.at(round, neighbors)) for round in range(1, rounds + 1)]
        asleep = [(round, i) for round, drawn in faults for i in sorted(drawn.asleep)]
        lost = [(round, *edge) for round, drawn in faults for edge in sorted(drawn.lost)]
        late = [(round, *edge, by) for round, drawn in faults for edge, by in sorted(drawn.late.items())]
        arrays: dict[str, Any] = {
            "asleep": np.array(asleep, dtype=np.int64).reshape(-1, 2),
            "lost": np.array(lost, dtype=np.int64).reshape(-1, 3),
            "late": np.array(late, dtype=np.int64).reshape(-1, 4),
            "noise": np.array([drawn.noise for _, drawn in faults]),
            "seed": np.array(self.seed),
        }
        return write_npz(PATH(path, "path"), arrays)


@final
@dataclass(frozen=True, eq=False)
class RecordedFaults(FaultSchedule):
    """The faults of a file, round by round; after its last round nothing fails."""

    rounds: Sequence[RoundFaults]
    seed: int = 0

    @property
    def has_noise(self) -> bool:
        return any(drawn.noise > 0.0 for drawn in self.rounds)

    def at(self, round: int, neighbors: Neighbors) -> RoundFaults:
        return self.rounds[round - 1] if round <= len(self.rounds) else RoundFaults()

    def check(self, neighbors: Neighbors) -> None:
        edges = {(i, j) for i, near in enumerate(neighbors) for j in near}
        odd = {edge for drawn in self.rounds for edge in (*drawn.lost, *drawn.late)} - edges
        strangers = {i for drawn in self.rounds for i in drawn.asleep} - set(range(len(neighbors)))
        if odd or strangers:
            raise ValueError(
                f"recorded faults must be of the agents and edges of the graph; it has none for "
                f"{sorted(strangers) + sorted(odd)}. Load those of a run on the same graph."
            )


def load_faults(path: str | os.PathLike[str]) -> RecordedFaults:
    """Return the faults that :meth:`Faults.save` wrote.

    >>> import dcgs, pathlib, tempfile
    >>> neighbors = [(1,), (0,)]
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "faults.npz"
    >>> faults = dcgs.Faults(loss=0.5, seed=1)
    >>> saved = faults.save(path, neighbors, rounds=3)
    >>> dcgs.load_faults(path).at(2, neighbors) == faults.at(2, neighbors)
    True
    """
    return read_npz(PATH(path, "path"), "a file written by Faults.save", _read)


def _read(npz: NpzReader) -> RecordedFaults:
    noise = npz.array("noise").tolist()
    asleep: list[set[int]] = [set() for _ in noise]
    lost: list[set[Edge]] = [set() for _ in noise]
    late: list[dict[Edge, int]] = [{} for _ in noise]
    for round, i in npz.array("asleep").tolist():
        asleep[round - 1].add(i)
    for round, i, j in npz.array("lost").tolist():
        lost[round - 1].add((i, j))
    for round, i, j, by in npz.array("late").tolist():
        late[round - 1][i, j] = by
    parts = zip(asleep, lost, late, noise, strict=True)
    rounds = [RoundFaults(frozenset(a), frozenset(b), c, d) for a, b, c, d in parts]
    return RecordedFaults(rounds, int(npz.array("seed")))


def _each(given: float | Mapping[Any, float], keys: Sequence[Any]) -> NDArray[np.float64]:
    """Return the number of each key; a key that a mapping does not have gets 0."""
    if not isinstance(given, Mapping):
        return np.full(len(keys), float(given))
    return np.array([given.get(key, 0.0) for key in keys], dtype=np.float64)


@final
@dataclass(frozen=True, eq=False)
class SentMessage:
    """A message: its sender, the round in which it was sent, and that in which it arrives.

    ``slot`` is the place of the message within an iteration of the sender.
    """

    sender: int
    sent: int
    due: int
    slot: int
    parts: tuple[Point, ...]
    is_tuple: bool

    @classmethod
    def of(cls, sender: int, sent: int, due: int, slot: int, message: Message) -> SentMessage:
        """Return a message on its way."""
        is_tuple = isinstance(message, tuple)
        return cls(sender, sent, due, slot, message if isinstance(message, tuple) else (message,), is_tuple)

    @property
    def message(self) -> Message:
        """What was sent."""
        return self.parts if self.is_tuple else self.parts[0]


@final
@dataclass(eq=False)
class AgentLinks:
    """The links to one agent, and the messages that it has sent.

    ``steps`` counts the messages that it has sent. ``is_unsent`` is True if its next message was not sent
    yet. ``in_flight`` are messages on their way to it. ``newest`` is, for each neighbor, the
    round in which the newest message that has arrived was sent. ``latest`` are the last messages that have
    arrived of each neighbor, one for each place in an iteration. ``met`` are pairs of a neighbor and a place
    of which a message was sent to this agent.
    """

    steps: int = 0
    is_unsent: bool = True
    in_flight: list[SentMessage] = field(default_factory=list)
    newest: dict[int, int] = field(default_factory=dict)
    latest: list[SentMessage] = field(default_factory=list)
    met: list[tuple[int, int]] = field(default_factory=list)

    def arrived(self, round: int) -> dict[int, Message]:
        """Return the newest message of each neighbor that has arrived since the last call.

        A message that is older than one that has arrived before is dropped.
        """
        here = [message for message in self.in_flight if message.due <= round]
        self.in_flight = [message for message in self.in_flight if message.due > round]
        arrived: dict[int, Message] = {}
        for message in sorted(here, key=lambda message: message.sent):
            if message.sent > self.newest.get(message.sender, 0):
                self.newest[message.sender] = message.sent
                arrived[message.sender] = message.message
                place = message.sender, message.slot
                others = [latest for latest in self.latest if (latest.sender, latest.slot) != place]
                self.latest = sorted([*others, message], key=lambda latest: (latest.sender, latest.slot))
        return {i: arrived[i] for i in sorted(arrived)}

    def repeated(self, slot: int) -> dict[int, Message]:
        """Return the last message of each neighbor that has this place in an iteration."""
        return {message.sender: message.message for message in self.latest if message.slot == slot}
