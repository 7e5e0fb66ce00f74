"""A relay: a mailbox for edges whose two ends can only dial out. It cannot read what it keeps.

It sees sender, receiver, size and time of an envelope. It can delay envelopes, and cannot forge them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import final

from dcgs.sites.certificate import LiveCertificate
from dcgs.sites.config import SiteConfig
from dcgs.sites.envelope import EnvelopeError, read_header
from dcgs.sites.events import EventLog
from dcgs.sites.keys import SiteKeys
from dcgs.sites.mailbox import Mailbox, Outgoing, Pending
from dcgs.sites.server import Server, inspected_context, server_context
from dcgs.sites.study import RELAY, Study
from dcgs.sites.waiting import WaitingHops


@final
class RelayMail:
    """What a relay does with envelopes: it keeps each until the site that it is for has got it."""

    def __init__(self, study: Study, mailbox: Mailbox) -> None:
        self._study, self._mailbox = study, mailbox
        self.waiting = WaitingHops(mailbox)
        self._edges = {
            (name, edge.other(name)) for edge in study.edges if edge.dials is None for name in edge.ends
        }

    def is_neighbor(self, caller: str) -> bool:
        return any(caller == name for name, _ in self._edges)

    async def accept(self, caller: str, hop: str, envelope: bytes) -> None:
        header, sites = read_header(envelope), range(len(self._study.sites))
        if (caller, hop) not in self._edges:
            raise EnvelopeError(f"the study has no edge between {caller} and {hop!r} by the relay.")
        if header.run != self._study.run or header.sender not in sites or header.receiver not in sites:
            raise EnvelopeError("an envelope must be between sites of the study, and of this run.")
        item = Outgoing(hop, header, envelope, b"")
        await asyncio.to_thread(self._mailbox.add, [item], True)

    async def next_for(self, caller: str, seconds: float, skip: Collection[int]) -> Pending | None:
        return await self.waiting.within(caller, seconds, skip)

    async def delivered(self, caller: str, id: int) -> None:
        await asyncio.to_thread(self._mailbox.delivered, caller, id)


async def run_relay(file: Path, log: EventLog) -> None:
    """Serve until the task is canceled."""
    config = SiteConfig.load(file)
    study = Study.load(config.study)
    study.check_signed()
    if config.name != RELAY or study.relay is None or config.listen is None:
        raise ValueError(
            f"{file} must be that of a relay with an entry listen, and its study must have a relay."
        )
    if SiteKeys.load(config.key).publics != (study.relay.ed25519, study.relay.x25519):
        raise ValueError(
            f"the keys of the relay in the study must be those of {config.key}; they are others."
        )
    mailbox = Mailbox(config.state(study.hash), study.limits.mailbox_bytes)
    mail, loop = RelayMail(study, mailbox), asyncio.get_running_loop()
    mailbox.on_outgoing = lambda hops: loop.call_soon_threadsafe(mail.waiting.notify, hops)
    context_of = inspected_context if study.relay.inspected else server_context
    context = context_of(study, config.certificate, config.key)
    certificate = LiveCertificate(study.relay, config.certificate, config.key, [context], log)
    server = Server(study, context, mail, log)
    try:
        port = await server.start(*config.listen)
        log.say(f"the relay of {study.name} listens on port {port}")
        await certificate.watch()
    finally:
        await server.close()
        mailbox.close()
