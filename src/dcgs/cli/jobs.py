"""The jobs of the command: their modules, and what ``dcgs --help`` prints about each."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

# By module of this folder.
JOBS = {
    "fit": {"fit": "fit a model to your own data"},
    "predict": {"predict": "apply a model of dcgs fit to new data"},
    "show": {"show": "print what a model of dcgs fit is"},
    "reproduce": {
        "reproduce": "run the paper's experiments and check its claims",
        "report": "write the page of a folder of dcgs reproduce again",
    },
    "bench": {"bench": "measure ratios side by side in one run"},
}
HELP = {name: text for jobs in JOBS.values() for name, text in jobs.items()}


def add_jobs(jobs: Any, typed: Sequence[str] | None) -> None:
    """Add all jobs to the command, with their options: without ``typed`` of all, else of the job typed.

    The modules of the other jobs are not imported, because they take long to import.
    """
    name = next((word for word in typed or () if not word.startswith("-")), None)
    for module, of_module in JOBS.items():
        if typed is None or name in of_module:
            import_module(f"dcgs.cli.{module}").add(jobs)
        else:
            for job, text in of_module.items():
                jobs.add_parser(job, help=text)
