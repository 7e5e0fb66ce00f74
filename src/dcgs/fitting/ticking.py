"""A runtime that tells after each round what has crossed the edges: progress that needs nobody's data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

from dcgs.runtime import Job, ProcessGroup, Runtime, Traffic


@final
@dataclass(frozen=True, repr=False)
class Ticking(Runtime):
    """Run as ``runtime`` does, and call ``tick`` after each round."""

    runtime: Runtime
    tick: Callable[[Traffic], None]

    def __repr__(self) -> str:
        return repr(self.runtime)

    def hosts(self, agents: int) -> range:
        return self.runtime.hosts(agents)

    def group(self) -> ProcessGroup:
        return self.runtime.group()

    def run(self, job: Job) -> None:
        def after_round() -> bool:
            goes_on = job.after_round()
            self.tick(job.traffic)
            return goes_on

        self.runtime.run(replace(job, after_round=after_round))
