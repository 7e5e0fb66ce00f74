"""Asynchronous runs in one process: agents at their own pace, on a simulated clock or as a record says."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from dcgs.protocol import Message
from dcgs.runtime.base import Job
from dcgs.runtime.mailbox import Mailbox
from dcgs.runtime.messages import Reply, packets
from dcgs.runtime.programs import Programs
from dcgs.runtime.record import Record


def run_by_clock(
    job: Job, programs: Programs, record: Record, durations: Sequence[float], latency: float, staleness: int
) -> None:
    """Run all agents at their own pace, until one has returned. A round is a unit of simulated time.

    ``durations`` are the times of a step of each agent, ``latency`` is that of a message.
    """
    agents = range(len(job.neighbors))
    boxes = [Mailbox(job.neighbors[i]) for i in agents]
    replies: dict[int, Reply] = programs.advance()
    # Events by time: an agent ends a step and sends (0), a message arrives (1), an agent may go on (2).
    events: list[tuple[float, int, int, int, int]] = [(durations[i], 0, i, 0, 0) for i in agents]
    messages: dict[tuple[int, int, int], Message] = {}
    idle: set[int] = set()
    heapq.heapify(events)
    while events:
        now, kind, i, sender, step = heapq.heappop(events)
        while now > job.traffic.rounds + 1:
            job.traffic.rounds += 1
            if not job.after_round():
                return
        if kind == 0:
            if replies[i] is None:
                return
            sent = packets(i, replies[i], job.neighbors[i])
            job.traffic.count_messages(i, sent)
            done = record.steps.get(i, 0)
            for j, packet in sent.items():
                messages[i, j, done] = packet.copy
                heapq.heappush(events, (now + latency, 1, j, i, done))
            idle.add(i)
            heapq.heappush(events, (now, 2, i, 0, 0))
        elif kind == 1:
            boxes[i].put(sender, step, messages.pop((sender, i, step)))
            heapq.heappush(events, (now, 2, i, 0, 0))
        elif i in idle and boxes[i].is_ready(record.steps.get(i, 0), staleness):
            idle.discard(i)
            inbox, used = boxes[i].take(record.steps.get(i, 0) + 1)
            record.add(i, used)
            replies |= programs.advance({i: inbox})
            heapq.heappush(events, (now + durations[i], 0, i, 0, 0))


def run_recorded(job: Job, programs: Programs, record: Record) -> None:
    """Run all agents as a record says: every agent uses the same messages in the same steps."""
    agents = range(len(job.neighbors))
    used: dict[tuple[int, int], dict[int, int]] = {}
    for i, step, j, theirs in record.rows:
        used.setdefault((i, step), {})[j] = theirs
    wanted = {(j, theirs, i) for (i, _), each in used.items() for j, theirs in each.items()}
    messages: dict[tuple[int, int, int], Message] = {}
    done = dict.fromkeys(agents, 0)
    replies: dict[int, Reply] = programs.advance()

    def send(i: int) -> None:
        if replies[i] is None:
            return
        sent = packets(i, replies[i], job.neighbors[i])
        job.traffic.count_messages(i, sent)
        for j, packet in sent.items():
            if (i, done[i], j) in wanted:
                messages[i, done[i], j] = packet.copy

    for i in agents:
        send(i)
    left = {i for i in agents if record.steps.get(i, 0)}
    while left:
        ready = [
            i
            for i in sorted(left)
            if all((j, theirs, i) in messages for j, theirs in used.get((i, done[i] + 1), {}).items())
        ]
        if not ready:
            raise ValueError(
                "a record must be of a run of the same agents; agents "
                f"{sorted(left)} wait for messages that nobody sends."
            )
        for i in ready:
            done[i] += 1
            inbox = {
                j: messages.pop((j, theirs, i)) for j, theirs in sorted(used.get((i, done[i]), {}).items())
            }
            replies |= programs.advance({i: inbox})
            send(i)
            if done[i] == record.steps[i] or replies[i] is None:
                left.discard(i)
    job.traffic.rounds = max(done.values())
    job.after_round()
