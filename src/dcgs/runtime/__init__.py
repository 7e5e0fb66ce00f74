"""Runtimes: who carries messages. They know the network and no mathematics."""

from dcgs.runtime.base import Job, Runtime, Traffic
from dcgs.runtime.lockstep import Lockstep

__all__ = ["Job", "Lockstep", "Runtime", "Traffic"]
