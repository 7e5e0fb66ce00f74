"""The HTTPS client of a site, by aiohttp: on each edge on which it dials, it puts envelopes and gets those
for it.

What fails is tried again, with growing pauses, for as long as the run goes on; each reason is said once.
Proxies are those of the usual environment variables.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar, final

import aiohttp
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from yarl import URL

from dcgs.sites.envelope import OVERHEAD, EnvelopeError
from dcgs.sites.events import EventLog
from dcgs.sites.keys import host_of
from dcgs.sites.mailbox import Pending
from dcgs.sites.server import LONG_POLL, PLACE, STUDY, VERSION
from dcgs.sites.signature import sign_request
from dcgs.sites.study import Member, Study

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 15.0
CLOCK = 60.0
"""Seconds by which clocks may differ."""
_CONNECT, _TRANSFER, _MARGIN, _LAST = 20.0, 300.0, 20.0, 3.0


class _RefusedError(Exception):
    """The other end has answered that it does not take something."""


@final
@dataclass(frozen=True)
class Dialing:
    """How a site shows who it is: by its certificate, and at a relay that may be inspected by signatures.

    ``inspected`` is the context of connections to such a relay.
    """

    name: str
    key: Ed25519PrivateKey
    context: ssl.SSLContext
    inspected: ssl.SSLContext

    def to(self, study: Study, server: Member, method: str, url: URL, body: bytes = b"") -> dict[str, Any]:
        """Return the arguments of a request."""
        common = {"server_hostname": host_of(server.name), "allow_redirects": False}
        if not server.inspected:
            return {**common, "ssl": self.context}
        request = method, url.raw_path_qs, body
        headers = sign_request(study, self.name, self.key, time.time(), request)
        return {**common, "ssl": self.inspected, "headers": headers}


@final
class Client:
    """The connections of a site; runs in an event loop."""

    def __init__(
        self, study: Study, dialing: Dialing, log: EventLog, answered: Callable[[str], object]
    ) -> None:
        self._study, self._dialing = study, dialing
        self._log, self._answered = log, answered
        self._done: dict[Member, tuple[str, str]] = {}
        self._told_clock: set[Member] = set()
        timeout = aiohttp.ClientTimeout(total=_TRANSFER, sock_connect=_CONNECT)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_MARGIN),
            timeout=timeout,
            trust_env=True,
            headers={STUDY: study.hash.hex()},
            auto_decompress=False,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def push(
        self,
        server: Member,
        hop: str,
        next_pending: Callable[[], Awaitable[Pending]],
        delivered: Callable[[int], Awaitable[None]],
    ) -> None:
        """Put envelopes for a neighbor to a server, one after the other, forever."""
        while True:
            pending = await self._retried(server, next_pending)
            await self._retried(server, partial(self._put, server, hop, pending.envelope))
            await self._retried(server, partial(delivered, pending.id))  # the disk may be full

    async def pull(self, server: Member, name: str, accept: Callable[[bytes], Awaitable[None]]) -> None:
        """Get the envelopes for this site from a server, forever."""
        while True:
            answer = await self._retried(server, partial(self._get, server, name))
            if answer is None:
                continue
            envelope, place = answer
            try:
                await self._retried(server, partial(accept, envelope))
            except EnvelopeError as error:
                self._log.say(f"refused what {server.name} gave: {error}")  # its sender is asked again
            self._done[server] = name, place

    async def acknowledge(self) -> None:
        """Tell servers what has come from them last: no further request does."""
        with suppress(aiohttp.ClientError, OSError, TimeoutError, _RefusedError):
            async with asyncio.timeout(_LAST):
                for server, (name, _) in list(self._done.items()):
                    await self._get(server, name, wait=0)

    async def _put(self, server: Member, hop: str, envelope: bytes) -> None:
        url = URL(f"{server.address}/v1/mail/{hop}")
        how = self._dialing.to(self._study, server, "PUT", url, envelope)
        async with self._session.put(url, data=envelope, **how) as answer:
            await _check(answer, 204)
            self._answered(server.name)

    async def _get(self, server: Member, name: str, wait: float = LONG_POLL) -> tuple[bytes, str] | None:
        """Return the next envelope and its place; say which was the last that has been kept here."""
        done = self._done.get(server, ("", ""))[1]
        url = URL(f"{server.address}/v1/mail/{name}").with_query(done=done, wait=f"{wait:g}")
        timeout = aiohttp.ClientTimeout(total=_TRANSFER, sock_connect=_CONNECT, sock_read=LONG_POLL + _MARGIN)
        how = self._dialing.to(self._study, server, "GET", url)
        async with self._session.get(url, timeout=timeout, **how) as answer:
            await _check(answer, 200, 204)
            self._answered(server.name)
            self._compare_clocks(server, answer.headers.get("Date"))
            if self._done.get(server, ("", ""))[1] == done:
                self._done.pop(server, None)
            if answer.status == 204:
                return None
            limit = self._study.limits.message_bytes + OVERHEAD
            if answer.content_length is None or answer.content_length > limit:
                raise _RefusedError(f"it gave an envelope of more than {limit} bytes")
            return await answer.read(), answer.headers.get(PLACE, "")

    def _compare_clocks(self, server: Member, date: str | None) -> None:
        """Say once if the clock of a server is another one."""
        apart = clocks_apart(date)
        if abs(apart) > CLOCK and server not in self._told_clock:
            self._told_clock.add(server)
            self._log.say(
                f"the clock here and that of {server.name} are {abs(apart):.0f} s apart: set the one that is "
                "wrong. Certificates begin and end by the clock."
            )

    async def _retried(self, server: Member, attempt: Callable[[], Awaitable[T]]) -> T:
        pause, failed = _FIRST_PAUSE, False
        while True:
            try:
                result = await attempt()
            except (aiohttp.ClientError, OSError, TimeoutError, _RefusedError) as error:
                self._log.say(
                    f"nothing passes to or from {server.name} ({server.address}): {reason(error)}; "
                    "trying again"
                )
                failed = True
                await asyncio.sleep(pause)
                pause = min(2.0 * pause, _LONGEST_PAUSE)
            else:
                if failed:
                    self._log.say(f"messages pass to and from {server.name} again")
                return result


def clocks_apart(date: str | None) -> float:
    """Return by how many seconds the clock here is ahead of the one that gave a date; 0 without a date."""
    return 0.0 if date is None else time.time() - parsedate_to_datetime(date).timestamp()


async def _check(answer: aiohttp.ClientResponse, *expected: int) -> None:
    if answer.status not in expected:
        text = (await answer.content.read(1000)).decode(errors="replace")
        raise _RefusedError(f"it answered {answer.status}: {text}")


def reason(error: Exception) -> str:
    """Return why a request failed, in words, with what to do where that is known."""
    text = str(error)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        return f"its certificate is not that of this site in this study ({why})"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"no name server knows the host {error.host}; see the address in the study, and the network"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy refuses to connect ({error.status} {error.message})"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"no connection to the proxy {error.host}:{error.port} ({_os_reason(error.os_error)})"
    if "alert" in text.lower():
        return f"it refuses the certificate of this site ({text})"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"no connection ({_os_reason(error.os_error)})"
    return text or "it has not answered in time"


def _os_reason(error: OSError) -> str:
    """Return why there is no connection."""
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there: it does not run, or a firewall refuses"
    return " ".join(str(error.strerror or error).split()) or "no answer"


@final
class Greeting(NamedTuple):
    """How a site or relay answered: why it does not take this site's messages, None if it does; its clock and
    its version of dcgs, if known."""

    problem: str | None
    date: str | None = None
    version: str | None = None


async def greet(study: Study, dialing: Dialing, server: Member) -> Greeting:
    """Ask a site or relay whether it takes this one's messages."""
    session = aiohttp.ClientSession(trust_env=True, headers={STUDY: study.hash.hex()})
    async with session:
        try:
            url = URL(f"{server.address}/v1/hello")
            how = dialing.to(study, server, "GET", url)
            async with session.get(url, timeout=aiohttp.ClientTimeout(total=_CONNECT), **how) as answer:
                await _check(answer, 204)
                return Greeting(None, answer.headers.get("Date"), answer.headers.get(VERSION))
        except (aiohttp.ClientError, OSError, TimeoutError, _RefusedError) as error:
            return Greeting(reason(error))
