"""What agents may send: arrays of finite numbers, bytes or masked words; and what that costs.

``Traffic`` counts rounds, messages and bytes, and the seconds of agents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeAlias, final

import numpy as np

from dcgs.points import Point, is_finite, read_only
from dcgs.protocol import Inbox, Message
from dcgs.runtime.encoding import FLOATS, MAX_DIMENSIONS, EncodedArray, where_not_finite
from dcgs.runtime.wire import FRAME, HEADER

OnMessage: TypeAlias = Callable[[int, int, int, tuple[Any, ...]], object]
"""Called with the round, the sender, the receiver and the arrays of every message as it is sent."""

Reply: TypeAlias = Any
"""What a program yields, or None once it has returned."""


@final
class Packet:
    """A message that one agent sends: checked, and ready to be copied or encoded.

    ``nbytes`` are the bytes of its encoded arrays.
    """

    def __init__(self, sender: int, message: Message) -> None:
        self.is_tuple = isinstance(message, tuple)
        arrays = message if isinstance(message, tuple) else (message,)
        self.parts = [EncodedArray(_checked(sender, array)) for array in arrays]
        for part in self.parts:
            if not part.is_finite:
                raise FloatingPointError(
                    f"a message must be finite; agent {sender} sent {where_not_finite(part.array)}."
                )
        self.nbytes = sum(part.nbytes for part in self.parts)

    @cached_property
    def copy(self) -> Message:
        """A read-only copy, which later changes by the sender do not affect."""
        return self.arrays if self.is_tuple else self.arrays[0]

    @cached_property
    def arrays(self) -> tuple[Point, ...]:
        """Read-only copies of its arrays."""
        return tuple(read_only(part.array.copy()) for part in self.parts)


Packets: TypeAlias = dict[int, Packet]
"""The message of one agent to each neighbor that it sends one to; the same object if it is for several."""


def packets(sender: int, reply: Reply, neighbors: Sequence[int]) -> Packets:
    """Return what the agent sends to each neighbor; raise unless its messages are valid."""
    if not isinstance(reply, Mapping):
        packet = Packet(sender, reply)
        return dict.fromkeys(neighbors, packet)
    strangers = [j for j in reply if j not in neighbors]
    if strangers:
        raise ValueError(
            f"messages must be for neighbors of the sender; agent {sender} has the neighbors "
            f"{list(neighbors)} and sent messages to {strangers}."
        )
    made: dict[int, Packet] = {}  # by identity: the same message may be for several neighbors
    for message in reply.values():
        if id(message) not in made:
            made[id(message)] = Packet(sender, message)
    return {j: made[id(reply[j])] for j in sorted(reply)}


@contextmanager
def blaming_senders(inboxes: Mapping[int, Inbox]) -> Iterator[None]:
    """If what is done in here with received messages fails, and one of them is not finite, name its sender.

    Long messages are not checked on arrival. An agent that computes with a NaN sends one itself, or fails.
    """
    try:
        yield
    except Exception as error:
        for sender, message in [item for inbox in inboxes.values() for item in inbox.items()]:
            for array in message if isinstance(message, tuple) else (message,):
                if array.dtype in FLOATS and not is_finite(array):
                    raise FloatingPointError(
                        f"a message must be finite; agent {sender} sent {where_not_finite(array)}."
                    ) from error
        raise


def _checked(sender: int, array: Any) -> Point:
    """Return the array; raise unless it is one of floats, of bytes (uint8) or of masked words (uint64)."""
    if not isinstance(array, np.ndarray) or array.dtype not in (*FLOATS, np.uint8, np.uint64):
        is_array = isinstance(array, np.ndarray)
        sent = f"one of {np.asarray(array).dtype}" if is_array else f"a {type(array).__name__}"
        raise TypeError(
            f"a message must be an array of float64, or a tuple of such arrays; agent {sender} sent {sent}."
        )
    if array.ndim > MAX_DIMENSIONS:
        raise ValueError(
            f"a message must have at most {MAX_DIMENSIONS} dimensions; agent {sender} sent {array.ndim}."
        )
    return array


def all_sent(replies: Mapping[int, Reply]) -> bool:
    """Return True if all agents sent a message, False if all returned; raise if some did each."""
    returned = [i for i, reply in replies.items() if reply is None]
    sending = [i for i, reply in replies.items() if reply is not None]
    if returned and sending:
        raise early_return(returned, sending)
    return bool(sending)


def early_return(returned: list[int], sending: list[int]) -> RuntimeError:
    """Return the error for agents that returned while others still send."""
    return RuntimeError(f"agents {returned} returned while agents {sending} still send.")


@final
class Traffic:
    """Counters of a run: rounds of all agents, messages and bytes that each agent sent.

    ``steps`` holds, for each step, the seconds of the slowest agent. Their sum is the time that a run takes
    if every agent has its own machine and messages take no time. ``peaks`` holds, for each round, the most
    bytes that an agent sent. ``worked`` and ``waited`` are the seconds that each agent spent computing and
    waiting for messages. A process counts for the agents that it hosts, and bytes as if it hosted one only.
    """

    def __init__(self, agents: int) -> None:
        self.rounds = 0
        self.steps: list[float] = []
        self.peaks: list[int] = []
        self.messages = np.zeros(agents, dtype=np.int64)
        self.bytes = np.zeros(agents, dtype=np.int64)
        self.worked = np.zeros(agents)
        self.waited = np.zeros(agents)

    def count_step(self, seconds: Mapping[int, float]) -> None:
        """Count one step of each of these agents, with its seconds."""
        for i, spent in seconds.items():
            self.worked[i] += spent
        self.steps.append(max(seconds.values()))

    def count_wait(self, agents: Sequence[int], seconds: float) -> None:
        """Count the seconds that these agents waited for messages."""
        for i in agents:
            self.waited[i] += seconds

    def count_round(self, packets: Mapping[int, Packets], neighbors: Sequence[Sequence[int]]) -> None:
        """Count a round with these messages: their encoded arrays and their headers.

        The header of a round goes to every neighbor, also to one for which there is no message.
        """
        self.rounds += 1
        peak = 0
        for i, sent in packets.items():
            headers = HEADER * (len(neighbors[i]) - len(sent))
            self.bytes[i] += headers
            peak = max(peak, headers + self.count_messages(i, sent))
        self.peaks.append(peak)

    def count_messages(self, i: int, sent: Packets) -> int:
        """Count the messages that agent i sent: their encoded arrays and their headers; return the bytes."""
        nbytes = sum([HEADER + FRAME + packet.nbytes for packet in sent.values()])
        self.messages[i] += len(sent)
        self.bytes[i] += nbytes
        return nbytes
