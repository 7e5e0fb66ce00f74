"""The runtime over MPI: the agents run in the processes that ``mpiexec`` or ``srun`` started."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from typing import Any, final

from dcgs.counting import BudgetSpentError
from dcgs.runtime.asynchronous import Ending, Record, run_at_own_pace
from dcgs.runtime.base import Job, Runtime, run_hosted
from dcgs.runtime.group import ProcessGroup, TransportGroup
from dcgs.runtime.mpi_transport import MPIMailTransport, MPITransport, transport_of
from dcgs.runtime.transport import hosted_by
from dcgs.validation import COUNT, FLAG, PATH, POSITIVE, shown


@final
@dataclass(frozen=True)
class MPI(Runtime):
    """Run the agents in the processes that ``mpiexec`` or ``srun`` started.

    Every process hosts consecutive agents, as evenly distributed as possible: one each if there are as
    many agents as processes. If no heartbeat message of a process arrives for ``timeout`` seconds, the
    run ends in all processes. A thread sends these messages, also while agents compute. All processes must
    have started MPI within ``start_timeout`` seconds of the first, by default 120 s and 2 s for each
    process. ``comm`` is an mpi4py communicator, by default that of all processes.

    With ``asynchronous=True`` nobody waits for a round: an agent takes a step when a message has arrived,
    with the newest message of each neighbor. It waits only for a neighbor of which it has used no message in
    its last ``staleness`` steps. ``record`` is a file to which process 0 writes which message was used when;
    ``Lockstep(replay=...)`` repeats the run from it. Models are measured before and after the run only.

    >>> import dcgs
    >>> dcgs.MPI(timeout=30.0).timeout
    30.0
    """

    timeout: float = 10.0
    comm: Any = None
    asynchronous: bool = False
    staleness: int = 50
    record: str | os.PathLike[str] | None = None
    start_timeout: float | None = None

    def __post_init__(self) -> None:
        POSITIVE(self.timeout, "timeout")
        POSITIVE.or_none(self.start_timeout, "start_timeout")
        FLAG(self.asynchronous, "asynchronous")
        COUNT(self.staleness, "staleness")
        PATH.or_none(self.record, "record")
        if self.record is not None and not self.asynchronous:
            raise ValueError("record must be None unless asynchronous=True: other runs repeat by themselves.")
        # There is no communicator before mpi4py is imported.
        mpi = sys.modules.get("mpi4py.MPI")
        if self.comm is not None and (mpi is None or not isinstance(self.comm, mpi.Comm)):
            raise TypeError(f"comm must be an mpi4py communicator, or None; got {shown(self.comm)}.")

    def __repr__(self) -> str:
        pace = f", asynchronous=True, staleness={self.staleness}" if self.asynchronous else ""
        return f"MPI(timeout={self.timeout!r}{pace})"

    @property
    def transport(self) -> MPITransport:
        """The transport between the processes. All processes must make the first call, which creates it."""
        return transport_of(self.comm, float(self.timeout), self.start_timeout)

    def in_rounds(self) -> MPI:
        return replace(self, asynchronous=False, record=None)

    def run(self, job: Job) -> None:
        self.transport.name_by_agents(len(job.neighbors))
        if not self.asynchronous:
            run_hosted(job, self.transport)
            return
        record = Record()
        ending = run_at_own_pace(job, MPIMailTransport(self.transport), self.staleness, record)
        if self.record is not None:
            everyone = Record.joined(job.allgather(record.arrays()))
            if self.transport.rank == 0:
                everyone.save(self.record)
        if ending is Ending.SPENT:
            raise BudgetSpentError

    def hosts(self, agents: int) -> range:
        transport = self.transport
        if transport.size > agents:
            raise ValueError(
                f"there must be at least one agent for each process; got {agents} agents and "
                f"{transport.size} processes. Start {agents}, or fewer."
            )
        transport.name_by_agents(agents)
        return hosted_by(transport.rank, transport.size, agents)

    def group(self) -> ProcessGroup:
        return TransportGroup(self.transport)
