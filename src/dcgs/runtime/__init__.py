"""Runtimes: they run the agents' programs, and send and count their messages. They import no mathematics.

A runtime (``base``) is ``Lockstep``, which hosts all agents in one process, or ``MPI``, which hosts some in
each process. Both resume the agents' programs step by step, and check and count their ``messages``. Over
several processes, an ``exchange`` decides in each round what is sent to which process, and checks
what arrives. ``wire`` turns messages into buffers with a header, ``encoding`` each array. None of these does
I/O. A ``transport`` sends the buffers; ``mpi_transport`` implements it, and another transport would be a
module beside that.

``recording`` writes all messages to a file. ``faults`` says which messages are lost, late or noisy and which
agents sleep. ``asynchronous`` runs agents at their own pace: on a simulated clock, over several processes, or
as a record says.

A ``group`` has collective operations of all processes. The ``heartbeat`` detects a process that has stopped,
and sends reports of failures. ``errors`` decides which process prints an error, and ends all processes after
one. ``dcgs.processes`` has the supervisor, which ends a process that cannot end itself, and the watchdog,
which ends waits for a process that does not come, before there is a heartbeat.
"""

import dcgs.processes.watchdog as watchdog
from dcgs.processes.environment import started_by_mpi
from dcgs.runtime.base import Job, Runtime
from dcgs.runtime.errors import (
    RunAbortedError,
    Scope,
    interrupt_status,
    report,
    run_as_rank,
    run_worker,
    scope_of,
)
from dcgs.runtime.faults import AgentLinks, Faults, FaultSchedule, load_faults
from dcgs.runtime.group import ProcessGroup, SingleProcess, agreed, check_same
from dcgs.runtime.lockstep import Lockstep, PartitionedError
from dcgs.runtime.messages import Traffic
from dcgs.runtime.mpi import MPI
from dcgs.runtime.recording import MessageRecorder, recorded_messages

__all__ = [
    "MPI",
    "AgentLinks",
    "Job",
    "Lockstep",
    "ProcessGroup",
    "Runtime",
    "SingleProcess",
    "Traffic",
    "agreed",
    "check_same",
]
__all__ += ["FaultSchedule", "Faults", "PartitionedError", "load_faults"]
__all__ += ["RunAbortedError", "Scope", "interrupt_status", "report", "scope_of"]
__all__ += ["MessageRecorder", "recorded_messages"]
__all__ += ["run_as_rank", "run_worker", "started_by_mpi"]

# A process that raises or returns before it starts MPI must not leave the others waiting.
watchdog.start()
