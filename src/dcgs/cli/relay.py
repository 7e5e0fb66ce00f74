"""``dcgs relay``: a mailbox for edges whose two ends can only dial out."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from rich.console import Console

from dcgs.cli.jobs import HELP
from dcgs.cli.values import job
from dcgs.sites.config import SiteConfig
from dcgs.sites.events import EVENTS, EventLog
from dcgs.sites.relay import run_relay

_ABOUT = """\
Keep envelopes for sites that can only dial out. A relay sees sender, receiver, size and time, and cannot
read them.
"""
_MORE = """\
Its keys are made by dcgs site key in a folder named relay, and signed with the study.

examples:
  dcgs site key relay/ --listen 0.0.0.0:8443
  dcgs relay run relay            when relay.crt and study.toml have come back from the coordinator
"""


def add(jobs: Any) -> None:
    """Add the job to the command."""
    kinds = job(jobs, "relay", HELP["relay"], _ABOUT, _MORE).add_subparsers(required=True, metavar="WHAT")
    run = job(kinds, "run", "serve until it is stopped", _ABOUT, _MORE)
    run.add_argument("relay", type=Path, metavar="RELAY", help="the file of the relay, or its folder")
    run.set_defaults(run=_run)


def _run(args: argparse.Namespace, console: Console) -> int:
    folder = SiteConfig.load(args.relay).folder
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(run_relay(args.relay, EventLog(folder / EVENTS)))
    return 0
