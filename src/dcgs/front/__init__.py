"""The front door: checks, runs, observes, returns a result."""

from dcgs.front.history import History, Snapshot
from dcgs.front.minimize import minimize
from dcgs.front.result import Result
from dcgs.front.stopping import Status

__all__ = ["History", "Result", "Snapshot", "Status", "minimize"]
