"""Count rounds, messages and bytes, and the seconds of agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from dcgs.runtime.messages import Packets
from dcgs.runtime.wire import FRAME, HEADER


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
        for i, own in seconds.items():
            self.worked[i] += own
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
        nbytes = sum([HEADER + FRAME + one.nbytes for one in sent.values()])
        self.messages[i] += len(sent)
        self.bytes[i] += nbytes
        return nbytes
