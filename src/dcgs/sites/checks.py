"""What ``dcgs site check`` looks at before a run: one line each, with what to do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, final

from dcgs.sites.client import CLOCK, clocks_apart, greet
from dcgs.sites.config import SiteConfig
from dcgs.sites.lock import runs_in
from dcgs.sites.node import Site, load_certificate, load_keys
from dcgs.sites.server import RELEASE
from dcgs.sites.study import RELAY, Member, Study


@final
class CheckLine(NamedTuple):
    """What was looked at, and whether it is good."""

    is_good: bool
    text: str


def check_site(file: Path, columns: Callable[[Site], CheckLine]) -> Iterator[CheckLine]:
    """Yield a line on the study, the data, key and certificate, the consent, the port, and each neighbor.

    What is wrong does not end it, unless all that follows needs it. ``columns`` looks at the data of a site.
    """
    config = SiteConfig.load(file)
    exists = bool(config.data) and config.data_file.is_file()
    missing = f"there is no {config.data_file}" if config.data else "the file of the site must have data"
    try:
        study = Study.load(config.study)
        member = study.member(config.name)
    except (ValueError, OSError) as error:
        yield CheckLine(False, f"study: {error}")
        yield CheckLine(exists, f"data {config.data}" if exists else f"data: {missing}")
        return
    waits = [other.name for other in study.members if not other.is_signed]
    text = f"study {study.name}, run {study.run}, SHA-256 {study.hash.hex()[:12]}…"
    yield CheckLine(not waits, text + (f", not signed yet: {', '.join(waits)}" if waits else ""))
    keys = None
    try:
        if member.is_signed:
            keys = load_keys(config, member)
            until = load_certificate(config, member).until
            assert until is not None
            text = f"key and certificate of {config.name}, valid until {until:%Y-%m-%d}"
    except (ValueError, OSError) as error:
        keys, text = None, f"key and certificate: {error}"
    else:
        text = text if keys else f"key and certificate: {config.name} is not signed yet"
    site = None if keys is None else Site(config, study, keys)
    note = None if site is None else site.certificate_note()
    yield CheckLine(site is not None and note is None, note or text)
    if not exists or site is None or waits:
        yield CheckLine(exists, f"data {config.data}" if exists else f"data: {missing}")
        return
    yield columns(site)
    agreed = "agreed to" if site.has_agreed else f"not agreed to; read it with: dcgs site agree {config.file}"
    yield CheckLine(site.has_agreed, f"the study is {agreed}")
    yield from _check_neighbors(site)


def _check_neighbors(site: Site) -> Iterator[CheckLine]:
    """Yield a line on the port of this site, and on each neighbor, as far as this site can ask it."""
    study, config = site.study, site.config
    if config.listen is not None:
        yield _check_port(config.listen, runs_in(site.state))
    asked = set()
    for other in (study.names[j] for j in study.neighbors[study.rank(config.name)]):
        edge = study.edge(config.name, other)
        if edge.dials == other:
            what = "waits for that" if config.listen else "must have an entry listen for that"
            yield CheckLine(config.listen is not None, f"{other} dials this site, which {what}")
            continue
        server = study.member(RELAY if edge.dials is None else other)
        if edge.dials is None:
            yield CheckLine(True, f"{other} is reached by the relay, and cannot be asked from here")
        if server.name not in asked:
            asked.add(server.name)
            yield from _check_server(site, server)


def _check_server(site: Site, server: Member) -> Iterator[CheckLine]:
    """Yield lines on a site or relay that this site dials: its answer, its version, its clock."""
    greeting = asyncio.run(greet(site.study, site.dialing(), server))
    where = f"{server.name} by {server.address}"
    if greeting.problem is not None:
        yield CheckLine(False, f"{where}: {greeting.problem}")
        return
    same = greeting.version == RELEASE
    what = f"the same study, dcgs {greeting.version}"
    text = what if same else f"{what}; here is {RELEASE}: install the same"
    yield CheckLine(same, f"{where}: {text}")
    apart = clocks_apart(greeting.date)
    text = f"the clock here and that of {server.name} are {abs(apart):.0f} s apart"
    yield CheckLine(
        abs(apart) <= CLOCK, text + ("" if abs(apart) <= CLOCK else "; set the one that is wrong")
    )


def _check_port(listen: tuple[str, int], process: str | None) -> CheckLine:
    """Return whether this site listens, or can."""
    where = f"{listen[0]}:{listen[1]}"
    if process is not None:
        return CheckLine(True, f"this site runs, as process {process}, and listens on {where}")
    family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
    try:
        socket.create_server(listen, family=family).close()
    except OSError as error:
        return CheckLine(False, f"this site cannot listen on {where}: {error.strerror or error}")
    return CheckLine(True, f"this site can listen on {where}")
