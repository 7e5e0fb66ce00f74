"""The certificate of a running site or relay: a renewed one is used without a restart, an old one is told."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import final

from dcgs.sites.events import EventLog
from dcgs.sites.keys import Identity
from dcgs.sites.study import Member

_SOON, _DAY = timedelta(days=14), timedelta(days=1)
_CHECK = 10.0
"""Seconds between two looks at the file."""


def read_certificate(member: Member, file: Path) -> Identity:
    """Return what the certificate in a file says; raise unless it is of the keys of this member."""
    try:
        shown = Identity.of_certificate(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    if (shown.name, shown.ed25519, shown.x25519) != (member.name, member.ed25519, member.x25519):
        raise ValueError(
            f"{file} must be the certificate of {member.name} with the keys in the study; it is another."
        )
    return shown


def certificate_note(member: Member, file: Path) -> str | None:
    """Return a sentence if a certificate has expired or will soon, else None."""
    until = read_certificate(member, file).until
    assert until is not None
    left = until - datetime.now(UTC)
    if left > _SOON:
        return None
    ends = "expires" if left > timedelta(0) else "has expired"
    return f"the certificate of {member.name} {ends} on {until:%Y-%m-%d}; have the request signed again"


@final
class LiveCertificate:
    """The certificate with which connections are made; ``contexts`` are those of new connections."""

    def __init__(
        self, member: Member, certificate: Path, key: Path, contexts: Sequence[ssl.SSLContext], log: EventLog
    ) -> None:
        self._member, self._file, self._key = member, certificate, key
        self._contexts, self._log = contexts, log
        self._content = certificate.read_bytes()
        self._noted = datetime.min.replace(tzinfo=UTC)
        self.until = read_certificate(member, certificate).until

    async def watch(self) -> None:
        """Look at the file again and again, forever."""
        while True:
            self.look()
            await asyncio.sleep(_CHECK)

    def look(self) -> None:
        """Use the certificate in the file if it is another one; say once a day if it expires soon."""
        try:
            content = self._file.read_bytes()
            if content != self._content:
                self._renew(content)
            note = certificate_note(self._member, self._file)
        except (OSError, ValueError) as error:  # it is being written, or is another's
            self._log.say(f"the certificate in {self._file} cannot be used, and the last one is: {error}")
            return
        now = datetime.now(UTC)
        if note is not None and now - self._noted > _DAY:
            self._noted = now
            self._log.say(note)

    def _renew(self, content: bytes) -> None:
        shown = read_certificate(self._member, self._file)
        for context in self._contexts:
            context.load_cert_chain(self._file, self._key)
        self._content, self.until = content, shown.until
        self._log.say(f"a renewed certificate is used, valid until {shown.until:%Y-%m-%d}")
