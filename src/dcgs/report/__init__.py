"""Reports: progress during a run, and tables, figures and a page of the results."""

from dcgs.report.progress import Progress
from dcgs.report.table import measures_table

__all__ = ["Progress", "measures_table"]
