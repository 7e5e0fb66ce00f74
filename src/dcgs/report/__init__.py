"""Reports: progress while a run goes on; tables and figures of what came out."""

from dcgs.report.progress import Progress
from dcgs.report.table import measures_table

__all__ = ["Progress", "measures_table"]
