"""The runtime between sites: each site hosts one agent, in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from dcgs.runtime.base import Job, Runtime, run_hosted
from dcgs.runtime.group import ProcessGroup, TransportGroup
from dcgs.sites.transport import SiteTransport


@final
@dataclass(frozen=True, eq=False)
class SiteRuntime(Runtime):
    """Run the agent of this site; the other sites of the study run theirs."""

    transport: SiteTransport
    separate_sites = True

    def __repr__(self) -> str:
        return f"SiteRuntime({self.transport.study.name!r})"

    def run(self, job: Job) -> None:
        run_hosted(job, self.transport)

    def hosts(self, agents: int) -> range:
        if agents != self.transport.size:
            raise ValueError(
                f"a study must have an agent for each site; got {agents} agents and {self.transport.size} "
                "sites."
            )
        return range(self.transport.rank, self.transport.rank + 1)

    def journal(self) -> Path:
        return self.transport.next_journal()

    def group(self) -> ProcessGroup:
        return TransportGroup(self.transport)
