"""What ``dcgs site check`` looks at before a run: one line each, with what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple, final

from dcgs.sites.client import CLOCK, clocks_apart, greet
from dcgs.sites.node import Site
from dcgs.sites.study import RELAY


@final
class CheckLine(NamedTuple):
    """What was looked at, and whether it is good."""

    is_good: bool
    text: str


def check_site(site: Site) -> Iterator[CheckLine]:
    """Yield a line on the study, the data, the certificate, the consent, and each neighbor that this site
    dials."""
    study, config = site.study, site.config
    yield CheckLine(True, f"study {study.name}, run {study.run}, SHA-256 {study.hash.hex()[:12]}…")
    exists = site.data.is_file()
    yield CheckLine(exists, f"data {config.data}" if exists else f"data: there is no {site.data}")
    note = site.certificate_note()
    yield CheckLine(note is None, note or f"certificate and keys of {config.name}")
    agreed = (
        "agreed to"
        if site.has_agreed
        else f"not agreed to yet; read it and use: dcgs site agree {config.file}"
    )
    yield CheckLine(site.has_agreed, f"the study is {agreed}")
    dialing = site.dialing()
    for other in (study.names[j] for j in study.neighbors[study.rank(config.name)]):
        edge = study.edge(config.name, other)
        if edge.dials == other:
            yield CheckLine(
                config.listen is not None,
                f"{other} dials this site"
                + (
                    f", which listens on {config.listen[0]}:{config.listen[1]}"
                    if config.listen
                    else ": set listen"
                ),
            )
            continue
        server = study.member(RELAY if edge.dials is None else other)
        problem, date = asyncio.run(greet(study, dialing, server))
        yield CheckLine(problem is None, f"{other} by {server.address}" + (f": {problem}" if problem else ""))
        if date is not None:
            apart = clocks_apart(date)
            text = f"the clock here and that of {server.name} are {abs(apart):.0f} s apart"
            yield CheckLine(abs(apart) <= CLOCK, text + ("" if abs(apart) <= CLOCK else "; set the clock"))
