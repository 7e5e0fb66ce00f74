"""Runtimes: they run the agents' programs, and send and count their messages. They import no mathematics.

A runtime (``base``) is ``Lockstep``, which hosts all agents in one process, or ``MPI``, which hosts some in
each process. Both resume the agents' ``programs`` step by step and check their ``messages``. Over several
processes, an ``exchange`` decides in each round what is sent to which process, and checks
what arrives. ``wire`` turns messages into buffers with a header. None of these does I/O.
A ``transport`` sends the buffers; ``mpi_transport`` implements it, and another transport would be a module
beside that. ``traffic`` counts rounds, messages and bytes.

``faults`` says which messages are lost, late or noisy and which agents sleep; ``lossy`` runs rounds with
them, and ``in_flight`` has the messages on their way. Agents at their own pace run on a simulated ``clock``,
or over several processes by ``pace``, with a ``mailbox`` for each agent. A ``record`` of such a run can be
replayed.

A ``group`` has collective operations of all processes. The ``heartbeat`` detects a process that has stopped,
and sends reports of failures. ``errors`` decides which process prints an error, and ``rank`` ends all
processes after one. :mod:`dcgs.supervisor` ends a process that cannot end itself. :mod:`dcgs.watchdog` ends
waits for a process that does not come, before there is a heartbeat.
"""

import dcgs.watchdog as watchdog
from dcgs.environment import started_by_mpi
from dcgs.runtime.base import Job, Runtime
from dcgs.runtime.errors import RunAbortedError, Scope, interrupt_status, report, scope_of
from dcgs.runtime.faults import Faults, FaultSchedule, load_faults
from dcgs.runtime.group import ProcessGroup, SingleProcess
from dcgs.runtime.lockstep import Lockstep
from dcgs.runtime.lossy import PartitionedError
from dcgs.runtime.mpi import MPI
from dcgs.runtime.rank import run_as_rank, run_worker
from dcgs.runtime.traffic import Traffic

__all__ = ["MPI", "Job", "Lockstep", "ProcessGroup", "Runtime", "SingleProcess", "Traffic"]
__all__ += ["FaultSchedule", "Faults", "PartitionedError", "load_faults"]
__all__ += ["RunAbortedError", "Scope", "interrupt_status", "report", "scope_of"]
__all__ += ["run_as_rank", "run_worker", "started_by_mpi"]

# A process that raises or returns before it starts MPI must not leave the others waiting.
watchdog.start()
