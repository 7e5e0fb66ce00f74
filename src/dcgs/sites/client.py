"""The HTTPS client of a site, by aiohttp: on each edge on which it dials, it puts envelopes and gets those
for it.

What fails is tried again, with growing pauses, for as long as the run goes on; each reason is said once.
Proxies are those of the usual environment variables.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
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
_WINDOW, _TELL_AFTER, _PIECE = 2, 0.5, 1 << 18
_CONNECT, _TRANSFER, _MARGIN, _LAST = 20.0, 300.0, 20.0, 3.0


class _RefusedError(Exception):
    """The other end has answered that it does not take something."""


@final
@dataclass
class _Progress:
    """The places of envelopes from a server: those on disk of which it does not know, those being written."""

    name: str
    done: set[str] = field(default_factory=set)
    keeping: dict[str, asyncio.Task[None]] = field(default_factory=dict)


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
        self._progress: dict[Member, _Progress] = {}
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
        next_pending: Callable[[Collection[int]], Awaitable[Pending]],
        delivered: Callable[[int], Awaitable[None]],
    ) -> None:
        """Put envelopes for a neighbor to a server, forever: the next one while the last is written to disk
        there."""
        under_way: dict[int, asyncio.Task[None]] = {}

        async def deliver(pending: Pending, is_sent: asyncio.Event) -> None:
            await self._retried(server, lambda: self._put(server, hop, pending.envelope, is_sent))
            await self._retried(server, lambda: delivered(pending.id))  # the disk may be full
            is_sent.set()
            del under_way[pending.id]

        async with asyncio.TaskGroup() as group:
            while True:
                pending = await self._retried(server, lambda: next_pending(under_way))
                is_sent = asyncio.Event()
                under_way[pending.id] = group.create_task(deliver(pending, is_sent))
                await is_sent.wait()
                if len(under_way) == _WINDOW:
                    await asyncio.wait(under_way.values(), return_when=asyncio.FIRST_COMPLETED)

    async def pull(self, server: Member, name: str, accept: Callable[[bytes], Awaitable[None]]) -> None:
        """Get the envelopes for this site from a server, forever: the next one while the last is written to
        disk here."""
        progress = self._progress[server] = _Progress(name)

        async def keep(envelope: bytes, place: str) -> None:
            try:
                await self._retried(server, lambda: accept(envelope))
            except EnvelopeError as error:
                self._log.say(f"refused what {server.name} gave: {error}")  # its sender is asked again
            progress.done.add(place)
            del progress.keeping[place]
            group.create_task(tell(place))

        async def tell(place: str) -> None:
            await asyncio.sleep(_TELL_AFTER)
            if place in progress.done:  # no request has said so
                await self._retried(server, lambda: self._get(server, progress, wait=0))

        async with asyncio.TaskGroup() as group:
            while True:
                answer = await self._retried(server, lambda: self._get(server, progress))
                if answer is None:
                    continue
                envelope, place = answer
                if place not in progress.keeping:
                    progress.keeping[place] = group.create_task(keep(envelope, place))
                while len(progress.keeping) == _WINDOW:
                    await asyncio.wait(progress.keeping.values(), return_when=asyncio.FIRST_COMPLETED)

    async def acknowledge(self) -> None:
        """Tell servers what has come from them last: no further request does."""
        with suppress(aiohttp.ClientError, OSError, TimeoutError, _RefusedError):
            async with asyncio.timeout(_LAST):
                for server, progress in self._progress.items():
                    if progress.keeping:
                        await asyncio.wait(progress.keeping.values(), return_when=asyncio.FIRST_COMPLETED)
                    if progress.done:
                        await self._get(server, progress, wait=0)

    async def _put(self, server: Member, hop: str, envelope: bytes, is_sent: asyncio.Event) -> None:
        url = URL(f"{server.address}/v1/mail/{hop}")
        how = self._dialing.to(self._study, server, "PUT", url, envelope)
        how["headers"] = {**how.get("headers", {}), "Content-Length": str(len(envelope))}
        async with self._session.put(url, data=_pieces(envelope, is_sent), **how) as answer:
            await _check(answer, 204)
            self._answered(server.name)

    async def _get(
        self, server: Member, progress: _Progress, wait: float = LONG_POLL
    ) -> tuple[bytes, str] | None:
        """Return the next envelope and its place; say which have been kept here, and which are being."""
        done = sorted(progress.done)
        query = {"done": ",".join(done), "has": ",".join(progress.keeping), "wait": f"{wait:g}"}
        url = URL(f"{server.address}/v1/mail/{progress.name}").with_query(query)
        timeout = aiohttp.ClientTimeout(total=_TRANSFER, sock_connect=_CONNECT, sock_read=LONG_POLL + _MARGIN)
        how = self._dialing.to(self._study, server, "GET", url)
        async with self._session.get(url, timeout=timeout, **how) as answer:
            await _check(answer, 200, 204)
            self._answered(server.name)
            self._compare_clocks(server, answer.headers.get("Date"))
            progress.done.difference_update(done)
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


async def _pieces(envelope: bytes, is_sent: asyncio.Event) -> AsyncIterator[bytes]:
    """Yield an envelope in pieces; note when all of it is on its way."""
    for start in range(0, len(envelope), _PIECE):
        yield envelope[start : start + _PIECE]
    is_sent.set()


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
