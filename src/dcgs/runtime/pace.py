"""Asynchronous runs over several processes: every agent uses the newest message of each neighbor."""

from __future__ import annotations

import time

from threadpoolctl import threadpool_limits

from dcgs.counting import BudgetSpentError
from dcgs.runtime.base import Job
from dcgs.runtime.mailbox import Ending, MailExchange
from dcgs.runtime.messages import Reply, packets
from dcgs.runtime.programs import Programs
from dcgs.runtime.record import Record
from dcgs.runtime.transport import MailTransport


def run_at_own_pace(job: Job, transport: MailTransport, staleness: int, record: Record) -> Ending:
    """Run the agents of this process until the run ends in all processes; return why it ended.

    An agent takes a step when a new message has arrived, unless a neighbor has been silent for ``staleness``
    steps. The rounds of the run are the steps of the fastest agent.
    """
    mail = MailExchange(job.neighbors, transport.rank, transport.size)
    hosted = mail.exchange.hosted
    transport.begin(mail.exchange.peers)
    programs = Programs(job, hosted)
    try:
        with threadpool_limits(1, user_api="blas"):
            _work(job, programs, mail, transport, staleness, record)
            mail.close()
            _carry(mail, transport)
            while not (mail.is_complete and transport.is_sent()):
                transport.check(is_idle=True, senders=mail.senders)
                _carry(mail, transport)
    finally:
        programs.close()
        # Agents do not compute in rounds: what counts is the seconds of the busiest agent.
        job.traffic.steps[:] = [max(float(job.traffic.worked[i]) for i in hosted)]
    assert mail.decision is not None
    return mail.decision


def _work(
    job: Job, programs: Programs, mail: MailExchange, transport: MailTransport, staleness: int, record: Record
) -> None:
    """Let agents take steps until the run ends."""

    def post(replies: dict[int, Reply]) -> None:
        for i, reply in replies.items():
            if reply is None:
                mail.announce(Ending.LIMIT)
                continue
            sent = packets(i, reply, job.neighbors[i])
            job.traffic.count_messages(i, sent)
            mail.post(i, record.steps.get(i, 0), sent)

    try:
        post(programs.advance())
        while mail.decision is None:
            _carry(mail, transport)
            goes_on = mail.announced in (None, Ending.AGREED)
            ready = [
                i
                for i, box in mail.boxes.items()
                if goes_on and box.is_ready(record.steps.get(i, 0), staleness)
            ]
            for i in ready:
                inbox, used = mail.boxes[i].take(record.steps.get(i, 0) + 1)
                replies = programs.advance({i: inbox})
                record.add(i, used)
                job.traffic.rounds = max(job.traffic.rounds, record.steps[i])
                post(replies)
            if job.is_late():
                mail.announce(Ending.LIMIT)
            elif job.is_over():
                mail.announce(Ending.AGREED)
            start = time.perf_counter()
            transport.check(is_idle=not ready and not mail.outgoing, senders=mail.senders)
            job.traffic.count_wait(mail.exchange.hosted, time.perf_counter() - start)
    except BudgetSpentError:
        mail.announce(Ending.SPENT)
        while mail.decision is None:
            _carry(mail, transport)
            transport.check(is_idle=True, senders=mail.senders)


def _carry(mail: MailExchange, transport: MailTransport) -> None:
    """Send what is to be sent, and take what has arrived."""
    outgoing, mail.outgoing = mail.outgoing, []
    for rank, buffer in outgoing:
        transport.send(buffer, rank)
    while (arrived := transport.receive()) is not None:
        mail.receive(*arrived)
