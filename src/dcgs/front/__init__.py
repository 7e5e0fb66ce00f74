"""``minimize`` and what it returns: check the arguments, build the run, run it, collect the result."""

from dcgs.front.allreduce import AgreedTexts, Reduced, agree_on_texts, allreduce, run_programs
from dcgs.front.checkpoint import Checkpoint
from dcgs.front.collect import versions
from dcgs.front.comparison import Comparison, compare
from dcgs.front.distributed import agreed
from dcgs.front.history import Callback, History, Snapshot
from dcgs.front.minimize import minimize
from dcgs.front.result import Result
from dcgs.front.stopping import Status

__all__ = [
    "AgreedTexts",
    "Callback",
    "Checkpoint",
    "Comparison",
    "History",
    "Reduced",
    "Result",
    "Snapshot",
    "Status",
    "agree_on_texts",
    "agreed",
    "allreduce",
    "compare",
    "minimize",
    "run_programs",
    "versions",
]
