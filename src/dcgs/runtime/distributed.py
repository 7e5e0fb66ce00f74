"""A run over a transport: every process runs the programs of the agents that it hosts."""

from __future__ import annotations

import time

import numpy as np
from threadpoolctl import threadpool_limits

from dcgs.runtime.base import Job
from dcgs.runtime.exchange import NeighborExchange, carry_out
from dcgs.runtime.messages import all_sent, check_type
from dcgs.runtime.programs import Programs
from dcgs.runtime.transport import Transport


def run_hosted(job: Job, transport: Transport) -> None:
    """Run the agents of this process until all programs have returned or ``job.after_round`` is False."""
    exchange = NeighborExchange(job.neighbors, transport.rank, transport.size)
    transport.heartbeat.watch(exchange.peers)
    transport.allreduce_max(np.zeros(1))  # from here on all processes watch their neighbors
    programs = Programs(job, exchange.hosted)
    try:
        with threadpool_limits(1, user_api="blas"):
            replies = programs.advance()
            while all_sent(replies):
                messages = {i: check_type(i, reply) for i, reply in replies.items()}
                start = time.perf_counter()
                inboxes = carry_out(exchange.round(messages), transport, exchange.peers)
                job.traffic.count_wait(exchange.hosted, time.perf_counter() - start)
                job.traffic.count_round(messages, job.neighbors)
                del messages
                replies = programs.advance(inboxes)
                del inboxes
                if not job.after_round():
                    return
            carry_out(exchange.end(), transport, exchange.peers)
    finally:
        programs.close()
