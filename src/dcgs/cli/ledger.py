"""``dcgs ledger``: verify what a fit wrote about what was sent, and add it up."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from dcgs.cli.jobs import HELP
from dcgs.cli.values import job
from dcgs.learn.summary import ledger_table
from dcgs.report.numbers import screen_table
from dcgs.runtime.ledger import LedgerFile, in_folder, totals

_ABOUT = """\
Verify the ledgers in the folder of a fit, and add up what left the agents of each process: for what, in
which form, whether it was masked, in how many messages.
"""

_MORE = """\
Each process of a fit writes a ledger, ledger-000.jsonl, …, named after its first agent: a line for each
message, with the SHA-256 of what was sent and of the line before. A line that was changed, removed or put in
between is named, and the exit status is 1. Keep the last hash elsewhere: then nobody can rewrite the whole
file either.

examples:
  dcgs ledger model/
"""


def add(jobs: Any) -> None:
    """Add the job to the command."""
    parser = job(jobs, "ledger", HELP["ledger"], _ABOUT, _MORE)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the folder of a fit")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, console: Console) -> int:
    ledgers = list(in_folder(args.folder))
    if not ledgers:
        raise ValueError(f"the folder must hold ledgers, as dcgs fit writes them; {args.folder} holds none.")
    for ledger in ledgers:
        _print(ledger, console)
    return int(any(ledger.broken for ledger in ledgers))


def _print(ledger: LedgerFile, console: Console) -> None:
    starts = [line for line in ledger.lines if line.agents]
    messages = [line for line in ledger.lines if line.to]

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, highlight=False)

    who = _agents(starts[-1].agents) if starts else "no fit"
    say(f"{ledger.path.name}: {who}, {len(starts)} fit{'s' if len(starts) > 1 else ''}")
    if ledger.broken:
        more = f", and {len(ledger.broken) - 1} more are not" if len(ledger.broken) > 1 else ""
        say(f"BROKEN: line {ledger.broken[0]} is not what was written there, or not in its place{more}.")
    else:
        say("the chain is whole: no line was changed, removed or put in between.")
    if messages:
        say(f"from {messages[0].at} to {messages[-1].at}; last hash {ledger.last}")
    sums = totals(ledger.lines)
    open_bytes = sum(entry.bytes for entry in sums if not entry.masked)
    masked = sum(entry.bytes for entry in sums if entry.masked)
    say(
        f"{masked:,} bytes left masked: who receives them reads nothing but a sum over all agents. "
        f"{open_bytes:,} bytes left open: neighbors read them, and all agents what is flooded."
    )
    if masked:
        say(
            "open beside masked sums are public keys, what sites say of columns and files, and answers, "
            "which the root computes from totals over all agents."
        )
    console.print(screen_table(ledger_table(sums)))


def _agents(agents: tuple[int, ...]) -> str:
    return f"agent {agents[0]}" if len(agents) == 1 else f"agents {agents[0]} to {agents[-1]}"
