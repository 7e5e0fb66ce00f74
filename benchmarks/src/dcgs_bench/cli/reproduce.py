"""``dcgs reproduce`` and ``dcgs report``: the paper's experiments, and the page about them."""

from __future__ import annotations

import argparse
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from dcgs.cli.values import job, link, option, seed
from dcgs.link import Link
from dcgs.report import Progress
from dcgs.run.minimize import versions
from dcgs_bench.cli.common import Runner, show
from dcgs_bench.jobs import REPORT, REPRODUCE
from dcgs_bench.paper import claims
from dcgs_bench.paper.catalog import NAMES, Options, experiment
from dcgs_bench.paper.claims import PAPER_SIDE
from dcgs_bench.paper.folder import open_manifest, plan, read_manifest, write_manifest, write_report
from dcgs_bench.paper.results import PaperStudy
from dcgs_bench.study import Records, TextTable, environment

_ABOUT = """\
Run the experiments of the paper's section 5, 10 agents on a cycle, and write a page that
shows the paper's curves next to curves on all data, and a verdict on each claim.

  lasso-synthetic        2000 samples x 10000 features, 100 of them nonzero, l1 radius 1000
  lasso-e2006            E2006-tfidf, 4000 samples x 150360 features, l1 radius 1000
  completion-synthetic   5000 entries of a 200 x 200 matrix of rank 5, nuclear radius 10^4
  completion-movielens   MovieLens 100K, 943 x 1682, nuclear radius 10^4
"""
_MORE = """\
Finished runs are saved, and the same command continues after Ctrl-C. Real data are searched in the folder
that --data or DCGS_DATA names and in the cache, and downloaded only with --download. An experiment without
data is left out, and the page says so. With --quick, lasso-e2006 is always on the look-alike.

examples:
  dcgs reproduce --quick                               all of it at small scale, in a minute
  dcgs reproduce completion-movielens --data ~/data    on your copy of MovieLens 100K
  dcgs reproduce lasso-e2006 --look-alike              on data made to resemble E2006-tfidf
"""
_LINK = "of each link, for the modeled time: 10MB/s, 100Mbit/s, … (default: as last time, or 10MB/s)"


def add_reproduce(jobs: Any) -> None:
    """Add ``dcgs reproduce`` to the command."""
    run = job(jobs, "reproduce", REPRODUCE.text, _ABOUT, _MORE)
    run.add_argument("names", nargs="*", metavar="NAME", help="which experiments (default: all four)")
    option(run, "--out DIR", "output (default: dcgs-report)", Path, default=Path("dcgs-report"))
    option(run, "--quick", "small problems: the whole picture in a minute", bool)
    option(run, "--seed N", "of all data made here (default: 0)", seed, default=0)
    option(run, "--data DIR", "folder with real data (default: $DCGS_DATA)", Path)
    option(run, "--download", "download real data that are missing", bool)
    option(run, "--look-alike", "for lasso-e2006: data made to resemble the real ones", bool)
    option(run, "--link SPEED", _LINK, link)
    run.set_defaults(run=_reproduce)


def add_report(jobs: Any) -> None:
    """Add ``dcgs report`` to the command."""
    about = "Write page and figures again from the recorded runs; nothing is run."
    more = "examples:\n  dcgs report dcgs-report\n  dcgs report dcgs-report --link 100Mbit/s"
    report = job(jobs, "report", REPORT.text, about, more)
    report.add_argument("folder", type=Path, metavar="DIR", help="a folder that dcgs reproduce wrote")
    option(report, "--link SPEED", _LINK, link)
    report.set_defaults(run=_report)


def _reproduce(args: argparse.Namespace, console: Console) -> int:
    unknown = [name for name in args.names if name not in NAMES]
    if unknown:
        raise ValueError(f"an experiment must be one of {', '.join(NAMES)}; got {', '.join(unknown)}.")
    if args.data is not None:
        os.environ["DCGS_DATA"] = str(args.data)
    runner = Runner(Records(args.out), None, console, [])
    records = runner.records
    manifest = open_manifest(records, {"seed": args.seed, "quick": args.quick, "versions": versions()})
    _note_circumstances(manifest, args)
    start, earlier = time.perf_counter(), manifest["seconds"]
    with Progress(console) as progress:
        downloaded = progress.download("downloading")
        options = Options(args.quick, args.seed, args.download, args.look_alike, downloaded)
        chosen = [experiment(name, options) for name in dict.fromkeys(args.names or NAMES)]
        tasks = plan(records, manifest, chosen, args.seed)
    interrupted = runner.run([lambda: tasks])
    side = PAPER_SIDE // 5 if args.quick else PAPER_SIDE
    if not interrupted and "cost" not in manifest:
        console.print(f"oracle: timing it on a {side} × {side} matrix")
        manifest["cost"] = claims.measure(side, args.seed)
    manifest["seconds"] = earlier + time.perf_counter() - start
    has_runs = any(map(records.has, tasks))
    if has_runs or not interrupted:
        write_manifest(records, manifest)
        _write(records, Link(manifest["link"]), console)
    skipped = [item["skipped"] for item in manifest["experiments"].values() if "skipped" in item]
    for note in [*runner.notes, *(f"{item['why']} {item['how']}" for item in skipped)]:
        console.print(note)
    return 130 if interrupted else int(not has_runs)


def _note_circumstances(manifest: dict[str, Any], args: argparse.Namespace) -> None:
    """Add to the manifest the command, the time, the machine and the link speed."""
    earlier = manifest.get("command")
    manifest |= environment(args.seed) | {"quick": args.quick}
    if earlier not in (None, manifest["command"]):
        manifest["command"] = f"{earlier}; {manifest['command']}"
    manifest.setdefault("started", datetime.now(UTC).isoformat(timespec="seconds"))
    manifest.setdefault("seconds", 0.0)
    manifest["link"] = manifest.get("link", Link().speed) if args.link is None else args.link.speed


def _report(args: argparse.Namespace, console: Console) -> int:
    records = Records(args.folder)
    _write(records, args.link or Link(read_manifest(records).get("link", Link().speed)), console)
    return 0


def _write(records: Records, link: Link, console: Console) -> None:
    with console.status("drawing the figures…"):
        study, page = write_report(records, link)
    show(console, _verdicts(study))
    console.print(f"open {page}", soft_wrap=True)


def _verdicts(study: PaperStudy) -> TextTable:
    rows = [[part.name, claim.paper, str(claim.verdict)] for part in study.findings for claim in part.claims]
    if study.cost is not None:
        rows.append(["cost", study.cost.claim.paper, str(study.cost.claim.verdict)])
    title = "verdicts at small scale" if study.manifest["quick"] else "verdicts"
    return TextTable.plain(title, ["experiment", "the paper says", "verdict"], rows)
