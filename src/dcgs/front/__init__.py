"""The front door: checks, runs, observes, returns a result."""

from dcgs.front.checkpoint import Checkpoint
from dcgs.front.checks import agreed
from dcgs.front.history import History, Snapshot
from dcgs.front.minimize import minimize, versions
from dcgs.front.observer import Callback
from dcgs.front.result import Result
from dcgs.front.stopping import Status

__all__ = [
    "Callback",
    "Checkpoint",
    "History",
    "Result",
    "Snapshot",
    "Status",
    "agreed",
    "minimize",
    "versions",
]
