"""Runtimes: who carries messages. They know the network and no mathematics."""

from dcgs.runtime.base import Job, ProcessGroup, RunAbortedError, Runtime, SingleProcess, Traffic, is_in_all
from dcgs.runtime.guard import advise, forsake, is_first, run_as_rank
from dcgs.runtime.lockstep import Lockstep
from dcgs.runtime.mpi import MPI

__all__ = [
    "MPI",
    "Job",
    "Lockstep",
    "ProcessGroup",
    "RunAbortedError",
    "Runtime",
    "SingleProcess",
    "Traffic",
    "advise",
    "forsake",
    "is_first",
    "is_in_all",
    "run_as_rank",
]
