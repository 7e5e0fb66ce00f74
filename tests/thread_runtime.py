"""A runtime for tests: several processes, each a thread of this one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dcgs.runtime import Job, ProcessGroup, Runtime
from dcgs.runtime.base import run_hosted
from dcgs.runtime.group import TransportGroup
from dcgs.runtime.transport import hosted_by
from thread_transport import Threads


@final
@dataclass(frozen=True)
class OverThreads(Runtime):
    """One process of several; its transport is a thread."""

    transport: Threads

    def run(self, job: Job) -> None:
        run_hosted(job, self.transport)

    def hosts(self, agents: int) -> range:
        return hosted_by(self.transport.rank, self.transport.size, agents)

    def group(self) -> ProcessGroup:
        return TransportGroup(self.transport)
