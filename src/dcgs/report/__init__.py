"""Reports: progress during a run, and figures and a page of the results."""

from dcgs.report.progress import Progress

__all__ = ["Progress"]
