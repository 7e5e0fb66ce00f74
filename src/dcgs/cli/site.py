"""``dcgs site``: the life of one site of a study."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from rich.console import Console

from dcgs.cli.fit import fit_over
from dcgs.cli.fit_options import config_of
from dcgs.cli.jobs import HELP
from dcgs.cli.study import describe_study, fit_arguments
from dcgs.cli.values import job, option
from dcgs.files import atomic_write
from dcgs.learn.files.folder import SUMMARY
from dcgs.learn.files.layout import SamplesLayout
from dcgs.learn.files.readers import kind_of, read_words
from dcgs.sites.checks import CheckLine, check_site
from dcgs.sites.config import site_file
from dcgs.sites.events import EVENTS, EventLog
from dcgs.sites.keys import SiteKeys
from dcgs.sites.node import Site

_ABOUT = """\
Take part in a study: a process at each site keeps its data, and exchanges sealed messages with its neighbors.
"""
_MORE = """\
dcgs site run ends when the model is certified and no other site needs this one. After anything else, a kill,
a reboot or an update of the machine, start it again: it goes on where it was, to the bit, and the others
wait.

from nothing to a model, at the site ulm, in this order, as examples:
  dcgs site key ulm/ --data patients.csv --listen 0.0.0.0:8443
                                  make keys; send ulm/ulm.csr to the coordinator, and compare by phone
  dcgs site check ulm             study.toml and ulm.crt came back, and are in ulm/: what is missing?
  dcgs site agree ulm             read what is computed and what leaves the site, and agree
  dcgs site run ulm               until it is done
  dcgs site status ulm            does it run, whom does it wait for?
  dcgs show ulm/run/*/model       the model

Without --listen the site only dials out. The coordinator begins with dcgs study new; see dcgs study --help.
docs/sites.md has all commands, and a unit for systemd.
"""


def add(jobs: Any) -> None:
    """Add the job to the command."""
    kinds = job(jobs, "site", HELP["site"], _ABOUT, _MORE).add_subparsers(required=True, metavar="WHAT")
    key = job(kinds, "key", "make the keys of a site, and a request to be signed", _ABOUT, _MORE)
    key.add_argument(
        "folder", type=Path, metavar="FOLDER", help="the folder of the site; its name is that of the site"
    )
    option(key, "--data FILE", "the file of this site's data (default: data.csv)", default="data.csv")
    option(
        key,
        "--study FILE",
        "where the study will be (default: study.toml in the folder)",
        default="study.toml",
    )
    option(key, "--listen HOST:PORT", "where this site takes connections (default: it only dials out)")
    key.set_defaults(run=_key)
    for name, text, run in (
        ("check", "check data, certificate, study and neighbors: one line each", _check),
        ("agree", "agree to what the study computes, as it is now", _agree),
        ("run", "take part until it is done", _run),
        ("status", "print how far this site is", _status),
    ):
        parser = job(kinds, name, text, _ABOUT, _MORE)
        parser.add_argument("site", type=Path, metavar="SITE", help="the file of the site, or its folder")
        parser.set_defaults(run=run)
        if name == "agree":
            option(parser, "--yes", "agree without being asked", bool)


def _key(args: argparse.Namespace, console: Console) -> int:
    folder, name = args.folder, args.folder.resolve().name
    folder.mkdir(parents=True, exist_ok=True)
    private, request, config = (folder / f"{name}.{end}" for end in ("key", "csr", "toml"))
    if private.exists():
        keys = SiteKeys.load(private)  # a renewed certificate is of the same keys
    else:
        keys = SiteKeys.generate()
        keys.save(private)
    atomic_write(request, keys.request(name))
    if not config.exists():
        atomic_write(config, site_file(name, args.study, args.listen, args.data).encode())
    console.print(
        f"{private} is the private key and stays here; {request} is the request that dcgs study sign signs; "
        f"{config} is the file of the site. Send {request.name} to the coordinator, put {args.study} and "
        f"{name}.crt, which come back, into {folder}, and see what is missing with: dcgs site check {config}",
        soft_wrap=True,
    )
    return 0


def _check(args: argparse.Namespace, console: Console) -> int:
    good = True
    for line in check_site(args.site, _columns):
        console.print(f"{'ok   ' if line.is_good else 'NOT  '}{line.text}", soft_wrap=True, highlight=False)
        good &= line.is_good
    return 0 if good else 1


def _agree(args: argparse.Namespace, console: Console) -> int:
    site = Site.load(args.site)
    text = "\n".join([describe_study(site.study), _columns(site).text])
    console.print(text, soft_wrap=True, highlight=False)
    if not args.yes and input(f"Does {site.config.name} agree? Type yes: ").strip() != "yes":
        console.print("not agreed")
        return 1
    site.agree(text)
    console.print(
        f"{site.config.name} has agreed to this study; start with: dcgs site run {args.site}", soft_wrap=True
    )
    return 0


def _columns(site: Site) -> CheckLine:
    """Return which columns of this site's file take part."""
    file = site.config.data_file
    if not file.is_file():
        return CheckLine(False, f"columns: {file} is not there yet")
    try:
        layout = config_of(fit_arguments(site.study, site.config, site.state)).layout
        if not isinstance(layout, SamplesLayout) or kind_of(file) not in ("text", "parquet"):
            return CheckLine(True, f"columns: all of {file.name}, which has no names of columns")
        table = read_words(file, layout)
    except (ValueError, OSError) as error:
        return CheckLine(False, f"columns: {error}")
    target = f"to predict {table.target_name}" if table.target_name is not None else "to predict the last"
    if table.names is None:
        return CheckLine(True, f"columns of {file.name}: {len(table.columns)} without names, {target}")
    return CheckLine(True, f"columns of {file.name}: {', '.join(table.names)}; {target}")


def _run(args: argparse.Namespace, console: Console) -> int:
    site = Site.load(args.site)
    state = site.state.resolve()
    os.chdir(site.config.file.resolve().parent)  # so that the others learn the name of the data, and no path
    fit = fit_arguments(site.study, site.config, state)
    log = EventLog(state / EVENTS)
    again = site.done is not None and fit.out.exists()
    with site.running(log, again) as runtime:
        if again:
            console.print(f"the model is in {fit.out}; this run was done before", soft_wrap=True)
            return 0
        if (status := fit_over(runtime, fit, console)) != 0:
            raise SystemExit(status)  # it was stopped: it goes on when it is started again, and has not ended
        runtime.transport.facts["result"] = how_it_ended(fit.out)
        return 0


def how_it_ended(out: Path) -> str:
    """Return how the run of a fit ended, with the certified gap, from its summary."""
    summary = json.loads((out / SUMMARY).read_text(encoding="utf-8"))
    gap = summary.get("gap") or {}
    certified = [f"{name} {gap[name]:.1e}" for name in ("gap", "share") if gap.get(name) is not None]
    return f"{summary.get('status', '')} {', '.join(certified)}".strip()


def _status(args: argparse.Namespace, console: Console) -> int:
    for line in Site.load(args.site).status():
        console.print(line, soft_wrap=True, highlight=False)
    return 0
