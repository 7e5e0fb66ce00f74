"""The jobs of the command: its own, and those that other packages add.

A package adds a job by an entry point of the group ``dcgs.jobs``. The name of the entry point is what is
typed after ``dcgs``. Its value is a :class:`CommandJob`, in a module that imports little: ``dcgs --help``
lists all jobs, and imports none of the modules that do them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, final

from dcgs import __version__

GROUP = "dcgs.jobs"


@final
@dataclass(frozen=True)
class CommandJob:
    """What ``dcgs --help`` prints about a job, and where the job is.

    ``add`` is ``package.module:function``. The module is imported when the job is typed, and the function
    adds its parser to the jobs of the command. ``examples`` are lines of the help: a command and its purpose.
    """

    text: str
    add: str
    examples: tuple[str, ...] = ()


OWN: Mapping[str, CommandJob] = {
    "fit": CommandJob(
        "fit a model to your own data",
        "dcgs.cli.fit:add",
        (
            "dcgs fit lasso --data data.svm --agents 10 --radius 1000 --out model/",
            "                                  fit a model to your own data; see dcgs fit --help",
        ),
    ),
    "describe": CommandJob(
        "what sites have in each column, without small counts",
        "dcgs.cli.describe:add",
        ("dcgs describe --data 'hospital-{agent}.csv'    table one of all sites, before a fit",),
    ),
    "predict": CommandJob(
        "apply a model of dcgs fit to new data",
        "dcgs.cli.predict:add",
        ("dcgs predict model/ --data new.svm",),
    ),
    "show": CommandJob(
        "print what a model of dcgs fit is",
        "dcgs.cli.show:add",
        ("dcgs show model/                  the largest coefficients, the certified gap, what was sent",),
    ),
    "ledger": CommandJob(
        "verify and add up what left the sites in a fit",
        "dcgs.cli.ledger:add",
        ("dcgs ledger model/                what was sent, for what, masked or open",),
    ),
    "study": CommandJob("make a study between organizations", "dcgs.cli.study:add"),
    "site": CommandJob("take part in a study between organizations", "dcgs.cli.site:add"),
    "relay": CommandJob("keep sealed messages for sites that only dial out", "dcgs.cli.relay:add"),
}
HELP = {name: job.text for name, job in OWN.items()}
_PACKAGES = dict.fromkeys(("bench", "reproduce", "report"), "dcgs-bench")
"""The package of each job of this project that is not in this one."""


def find_jobs(typed: Sequence[str] | None) -> dict[str, CommandJob]:
    """Return the jobs by name; only those of this package if the first word that was typed is one of them.

    To search for others takes some milliseconds, in each process of a run.
    """
    if typed and typed[0] in OWN:
        return dict(OWN)
    others = (entry for entry in entry_points(group=GROUP) if entry.name not in OWN)
    return {**OWN, **{entry.name: _load(entry) for entry in others}}


def add_jobs(jobs: Any, known_jobs: Mapping[str, CommandJob], typed: Sequence[str] | None) -> None:
    """Add all jobs to the command, with their options: without ``typed`` of all, else of the job typed.

    The modules of the other jobs are not imported, because they take long to import.
    """
    name = next((word for word in typed or () if not word.startswith("-")), None)
    for known, job in known_jobs.items():
        if typed is None or known == name:
            EntryPoint(known, job.add, GROUP).load()(jobs)
        else:
            jobs.add_parser(known, help=job.text)


def missing_package(known_jobs: Mapping[str, CommandJob], typed: Sequence[str]) -> str | None:
    """Return what to install if the job that was typed is in a package that is not installed, else None."""
    name = next((word for word in typed if not word.startswith("-")), "")
    package = _PACKAGES.get(name)
    if package is None or name in known_jobs:
        return None
    return (
        f"dcgs {name} is in the package {package}, which is not installed. "
        f"Install it with: pip install {package}=={__version__}; in a copy of the repository: pip install "
        "./benchmarks"
    )


def _load(entry: EntryPoint) -> CommandJob:
    """Return the job of an entry point; one that cannot be imported is listed with the reason."""
    try:
        job = entry.load()
    except ImportError as error:
        return CommandJob(f"cannot be loaded: {error}", entry.value)
    if not isinstance(job, CommandJob):
        raise TypeError(f"the entry point {entry.value} must name a dcgs.cli.jobs.CommandJob; got {job!r}.")
    return job
