"""The study engine: run methods on problems, record every run in a folder, and skip what is recorded."""

from dcgs.study.cache import FolderError, ResultCache
from dcgs.study.pool import alone, run_in_processes
from dcgs.study.run import Budget, Metric, Problem, RunResult, execute

__all__ = [
    "Budget",
    "FolderError",
    "Metric",
    "Problem",
    "ResultCache",
    "RunResult",
    "alone",
    "execute",
    "run_in_processes",
]
