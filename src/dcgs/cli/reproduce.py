"""``dcgs reproduce`` and ``dcgs report``: the paper's experiments, and the page about them."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console
from rich.table import Table

from dcgs.bench import record
from dcgs.cli.jobs import HELP
from dcgs.cli.values import job, link, option, seed
from dcgs.experiments.catalog import NAMES, Options, experiment
from dcgs.experiments.manifest import open_manifest, read_manifest, write_manifest
from dcgs.experiments.oracle_cost import PAPER_SIDE
from dcgs.experiments.results import Study
from dcgs.experiments.runner import Runner
from dcgs.front import versions
from dcgs.link import Link
from dcgs.report import Progress
from dcgs.study import ResultCache

_ABOUT = """\
Run the experiments of the paper's section 5, 10 agents on a cycle, and write a page that
shows the paper's curves next to curves on all data, and a verdict on each claim.

  lasso-synthetic        2000 samples x 10000 features, 100 of them nonzero, l1 radius 1000
  lasso-e2006            E2006-tfidf, 4000 samples x 150360 features, l1 radius 1000
  completion-synthetic   5000 entries of a 200 x 200 matrix of rank 5, nuclear radius 10^4
  completion-movielens   MovieLens 100K, 943 x 1682, nuclear radius 10^4
"""

_MORE = """\
The folder gets index.html (open it in a browser), figures/ (PNG and PDF), data/ (all histories as
CSV; the same seed gives the same digits), timing/, runs/ and manifest.json. After Ctrl-C every
finished run is saved; the same command continues from there.

Real data are searched in the folder that --data or DCGS_DATA names and in the cache; they are
downloaded only with --download. An experiment without data is left out, and the page says so.
With --quick, lasso-e2006 is always on the look-alike.

examples:
  dcgs reproduce --quick                               all of it at small scale, in a minute
  dcgs reproduce lasso-synthetic completion-synthetic  these two at the paper's size
  dcgs reproduce completion-movielens --data ~/data    on your copy of MovieLens 100K
  dcgs reproduce lasso-e2006 --look-alike              on data made to resemble E2006-tfidf
"""


def add(jobs: Any) -> None:
    """Add the two jobs to the command."""
    run = job(jobs, "reproduce", HELP["reproduce"], _ABOUT, _MORE)
    run.add_argument("names", nargs="*", metavar="NAME", help="which experiments (default: all four)")
    option(run, "--out DIR", "output (default: dcgs-report)", Path, default=Path("dcgs-report"))
    option(run, "--quick", "small problems: the whole picture in a minute", bool)
    option(run, "--seed N", "of all data made here (default: 0)", seed, default=0)
    option(run, "--data DIR", "folder with real data (default: $DCGS_DATA)", Path)
    option(run, "--download", "download real data that are missing", bool)
    option(run, "--look-alike", "for lasso-e2006: data made to resemble the real ones", bool)
    run.set_defaults(run=_reproduce)
    about = "Write page and figures again from the recorded runs; nothing is run."
    more = "examples:\n  dcgs report dcgs-report\n  dcgs report dcgs-report --link 100Mbit/s"
    report = job(jobs, "report", HELP["report"], about, more)
    report.add_argument("folder", type=Path, metavar="DIR", help="a folder that dcgs reproduce wrote")
    report.set_defaults(run=_report)
    text = "of each link, for the modeled time: 10MB/s, 100Mbit/s, … (default: as last time, or 10MB/s)"
    for parser in (run, report):
        option(parser, "--link SPEED", text, link)


def _reproduce(args: argparse.Namespace, console: Console) -> int:
    report = _study_report()
    names = _chosen(args.names)
    if args.data is not None:
        os.environ["DCGS_DATA"] = str(args.data)
    cache = ResultCache(args.out)
    manifest = open_manifest(cache, {"seed": args.seed, "quick": args.quick, "versions": versions()})
    _note_circumstances(manifest, args)
    progress = Progress(console)
    downloaded = progress.download("downloading")
    options = Options(args.quick, args.seed, args.download, args.look_alike, downloaded)
    runner = Runner(cache, manifest, args.seed, progress)
    start, earlier = time.perf_counter(), manifest["seconds"]
    interrupted = False
    try:
        with progress:
            runner.run([experiment(name, options) for name in names])
            runner.measure_oracle(side=PAPER_SIDE // 5 if args.quick else PAPER_SIDE)
    except KeyboardInterrupt as stop:
        interrupted = True
        console.print(str(stop) or "interrupted: every finished run is saved.")
        console.print("Run the same command again to continue.")
    manifest["seconds"] = earlier + time.perf_counter() - start
    if runner.has_runs or not interrupted:
        write_manifest(cache, manifest)
        _write(report, cache, Link(manifest["link"]), console)
    if interrupted:
        return 130
    return 0 if runner.has_runs else 1


def _note_circumstances(manifest: dict[str, Any], args: argparse.Namespace) -> None:
    """Add to the manifest the command, the time, the machine and the link speed."""
    earlier = manifest.get("command")
    manifest |= record.environment(args.seed) | {"quick": args.quick}
    if earlier not in (None, manifest["command"]):
        manifest["command"] = f"{earlier}; {manifest['command']}"
    manifest.setdefault("started", datetime.now(UTC).isoformat(timespec="seconds"))
    manifest.setdefault("seconds", 0.0)
    manifest["link"] = manifest.get("link", Link().speed) if args.link is None else args.link.speed


def _report(args: argparse.Namespace, console: Console) -> int:
    report = _study_report()
    cache = ResultCache(args.folder)
    link = args.link or Link(read_manifest(cache).get("link", Link().speed))
    _write(report, cache, link, console)
    return 0


def _write(report: ModuleType, cache: ResultCache, link: Link, console: Console) -> None:
    with console.status("drawing the figures…"):
        study, page = report.write_report(cache, link)
    console.print(_verdicts(study))
    console.print(f"open {page}", soft_wrap=True)


def _chosen(names: Sequence[str]) -> list[str]:
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ValueError(
            f"an experiment must be one of {', '.join(NAMES)}; got {', '.join(unknown)}. "
            "See dcgs reproduce --help for what each is."
        )
    return list(dict.fromkeys(names or NAMES))


def _study_report() -> ModuleType:
    """Return the module that writes reports, or raise with what it needs."""
    try:
        from dcgs.report import study_report
    except ImportError as error:
        raise ImportError(
            f"reports need matplotlib and Jinja2; {error.name} is not installed. "
            "Install them with: pip install 'dcgs[report]'"
        ) from error
    return study_report


def _verdicts(study: Study) -> Table:
    title = "verdicts at small scale" if study.manifest["quick"] else "verdicts"
    table = Table("experiment", "the paper says", "verdict", title=title, title_justify="left")
    for findings in study.findings:
        for claim in findings.claims:
            table.add_row(findings.name, claim.paper, str(claim.verdict))
    if study.cost is not None:
        table.add_row("cost", study.cost.claim.paper, str(study.cost.claim.verdict))
    return table
