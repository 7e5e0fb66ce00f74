"""Studies between sites on this machine, for tests: sites are threads of this process, or processes."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import networkx as nx

from dcgs.sites.config import site_file
from dcgs.sites.events import EventLog
from dcgs.sites.keys import Authority, Identity, SiteKeys
from dcgs.sites.node import Site
from dcgs.sites.relay import run_relay
from dcgs.sites.runtime import SiteRuntime
from dcgs.sites.study import RELAY, Member, Study, StudyLimits, edges_between

T = TypeVar("T")
NAMES = ("ulm", "graz", "bern", "lyon", "oslo", "turin", "gent", "porto", "york", "split")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class Sites:
    """A study in a folder, signed and agreed to by all its sites, and what each of them has said."""

    folder: Path
    study: Study
    authority: Authority
    keys: Mapping[str, SiteKeys]
    listen: Mapping[str, int] = field(default_factory=dict)
    said: dict[str, list[str]] = field(default_factory=dict)

    def file(self, name: str) -> Path:
        return self.folder / name / f"{name}.toml"

    def port(self, name: str) -> int:
        address = self.study.member(name).address
        assert address is not None
        return int(address.rpartition(":")[2])

    def log(self, name: str) -> EventLog:
        return EventLog(show=self.said.setdefault(name, []).append)

    @contextmanager
    def running(self, name: str) -> Iterator[SiteRuntime]:
        with Site.load(self.file(name)).running(self.log(name)) as runtime:
            yield runtime

    def run(self, work: Callable[[SiteRuntime], T], names: Sequence[str] | None = None) -> list[T]:
        """Run at these sites, each in a thread; return what each returns."""

        def at(name: str) -> T:
            with self.running(name) as runtime:
                return work(runtime)

        chosen = self.study.names if names is None else names
        with ThreadPoolExecutor(len(chosen)) as pool:
            return list(pool.map(at, chosen))

    @contextmanager
    def relay(self) -> Iterator[None]:
        stop: list[Callable[[], object]] = []

        async def serve() -> None:
            task = asyncio.create_task(run_relay(self.file(RELAY), self.log(RELAY)))
            stop.append(partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel))
            await asyncio.wait([task])

        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        try:
            yield
        finally:
            stop[0]()
            thread.join()


def make_sites(
    folder: Path,
    graph: nx.Graph,
    listening: Sequence[int],
    fit: Mapping[str, Any] | None = None,
    limits: StudyLimits | None = None,
    links: bool = False,
    inspected: bool = False,
) -> Sites:
    """Make a study on a graph, in which these sites can be dialed; the others need them or the relay.

    With ``links``, sites listen on other ports than those of the study, for proxies in between.
    """
    names = NAMES[: len(graph)]
    address = {name: f"https://127.0.0.1:{free_port()}" for name in (*names, RELAY)}
    sites = tuple(Member(name, address[name] if i in listening else None) for i, name in enumerate(names))
    edges = edges_between(sites, sorted((min(edge), max(edge)) for edge in graph.edges))
    relay = (
        Member(RELAY, address[RELAY], inspected=inspected)
        if any(edge.dials is None for edge in edges)
        else None
    )
    limits = limits or StudyLimits(patience_hours=0.05)
    study = Study("test", sites, edges, fit or {}, limits, 1, relay)
    dialed = [member.name for member in study.members if member.address is not None]
    return sign_study(folder, study, {name: free_port() for name in dialed} if links else {})


def sign_study(folder: Path, study: Study, listen: Mapping[str, int] | None = None) -> Sites:
    """Sign the keys of all members of a study, and write the files of each; all agree to it."""
    authority = Authority.create("test")
    keys = {member.name: SiteKeys.generate() for member in study.members}

    def signed(member: Member) -> Member:
        ed25519, x25519 = keys[member.name].publics
        return replace(member, ed25519=ed25519, x25519=x25519)

    sites, relay = tuple(map(signed, study.sites)), study.relay and signed(study.relay)
    study = replace(study, ca=authority.pem, sites=sites, relay=relay)
    made = Sites(folder, Study.read(study.to_toml().encode()), authority, keys, listen or {})
    for member in made.study.members:
        write_site(made, member)
    return made


def write_site(sites: Sites, member: Member) -> None:
    """Write the files of a site: its study, its keys, its certificate."""
    name, folder = member.name, sites.file(member.name).parent
    folder.mkdir(parents=True, exist_ok=True)
    sites.keys[name].save(folder / f"{name}.key")
    (folder / f"{name}.crt").write_bytes(sites.authority.sign(Identity(name, *sites.keys[name].publics)))
    (folder / "study.toml").write_bytes(sites.study.content)
    (folder / "data.csv").write_text("of tests without files\n")
    listen = None
    if member.address is not None:
        host = member.address.removeprefix("https://").rpartition(":")[0]
        listen = f"{host}:{sites.listen.get(name, sites.port(name))}"
    sites.file(name).write_text(site_file(name, "study.toml", listen, "data.csv"))
    if name != RELAY:
        Site.load(sites.file(name)).agree("test")
