"""The HTTPS server of a site or a relay, by aiohttp: it takes envelopes, and gives neighbors those for them.

Every connection must have a certificate of the study before a byte of HTTP is read. Sizes and times are
bounded before memory is spent. ``PUT /v1/mail/HOP`` brings an envelope for a site; ``GET /v1/mail/HOP``
waits for the next envelope for the site that asks. It says by ``done`` which are on its disk, and by ``has``
which are not yet; with ``wait=0`` it only says so.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
import time
from collections.abc import Callable, Collection
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Protocol, cast, final
from weakref import WeakSet

from aiohttp import web

from dcgs.sites.envelope import OVERHEAD, EnvelopeError
from dcgs.sites.events import EventLog
from dcgs.sites.keys import Identity
from dcgs.sites.mailbox import Pending
from dcgs.sites.signature import BODY, SignatureError, signed_by
from dcgs.sites.study import Study

LONG_POLL = 25.0
"""Seconds after which a request without an answer gets an empty one; devices on the way cut idle
connections."""
STUDY, PLACE, VERSION = "Dcgs-Study", "Dcgs-Place", "Dcgs-Version"
"""Headers: the identity of the study, the number of an envelope in the mailbox, the version of dcgs."""
RELEASE = version("dcgs")
_HANDSHAKE, _BODY, _IDLE = 10.0, 120.0, 60.0
_MOST_HANDSHAKES = 128
_MOST_CONNECTIONS, _MOST_PLACES = 64, 16
_MOST_BODIES = 4
"""Envelopes of one site that are read at a time."""
_LISTENING = {
    errno.EADDRINUSE: "another process listens there. End it, if it is this site, or take another port",
    errno.EADDRNOTAVAIL: "it has no such address. Take one of its own, or 0.0.0.0 for all",
    errno.EACCES: "ports below 1024 need more rights. Take a higher one",
}
_PLAINTEXT = ("http_request", "wrong_version_number", "unknown_protocol")


class MailHandler(Protocol):
    """What a server does with envelopes; a site and a relay do it differently."""

    async def accept(self, caller: str, hop: str, envelope: bytes) -> None:
        """Keep an envelope, and return when it is on disk; raise an EnvelopeError to refuse it."""

    async def next_for(self, caller: str, seconds: float, skip: Collection[int]) -> Pending | None:
        """Return the next envelope for a neighbor but for some, None if none comes in this time."""

    async def delivered(self, caller: str, id: int) -> None:
        """Record that a neighbor has an envelope."""

    def is_neighbor(self, caller: str) -> bool:
        """Return whether a site may use this server."""


def server_context(study: Study, certificate: Path, key: Path) -> ssl.SSLContext:
    """Return TLS 1.3 that asks for a certificate of the study."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # each connection shows a certificate that is valid now
    return _with_certificates(context, study, certificate, key)


def inspected_context(study: Study, certificate: Path, key: Path) -> ssl.SSLContext:
    """Return TLS 1.3 of a relay whose callers may sign their requests in place of a certificate."""
    context = server_context(study, certificate, key)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(study: Study, certificate: Path, key: Path) -> ssl.SSLContext:
    """Return TLS 1.3 that shows a certificate, and checks that of the server: its name, and its keys in the
    study."""
    context = _with_certificates(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), study, certificate, key)
    context.sslobject_class = _pinning(study)
    return context


def _pinning(study: Study) -> type[ssl.SSLObject]:
    """Return connections that end unless the other end has keys of the study: its CA alone is not enough.

    OpenSSL calls nothing of ours when it verifies a certificate, so the handshake is overridden.
    """

    class PinnedConnection(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            if pinned_name(study, self.getpeercert(True)) is None:
                raise ssl.SSLCertVerificationError("its keys are not those in the study")

    return PinnedConnection


def _with_certificates(context: ssl.SSLContext, study: Study, certificate: Path, key: Path) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=study.ca)
    context.load_cert_chain(certificate, key)
    return context


def pinned_name(study: Study, certificate: bytes | None) -> str | None:
    """Return whose certificate it is by the keys in the study, None if it is nobody's."""
    if certificate is None:
        return None
    try:
        shown = Identity.of_certificate(certificate)
    except ValueError:
        return None
    keys = shown.ed25519, shown.x25519
    return next(
        (m.name for m in study.members if (m.ed25519, m.x25519) == keys and m.name == shown.name), None
    )


@final
class Server:
    """Serves until it is closed; runs in an event loop."""

    def __init__(self, study: Study, context: ssl.SSLContext, handler: MailHandler, log: EventLog) -> None:
        self._study = study
        self._context = context
        self._handler = handler
        self._log = log
        self._transports: WeakSet[asyncio.Transport] = WeakSet()
        self._strangers: WeakSet[asyncio.BaseTransport] = WeakSet()
        self._connections: dict[str, WeakSet[asyncio.Transport]] = {}
        self._reading: dict[str, asyncio.Semaphore] = {}
        self._handshakes: dict[asyncio.Task[None], asyncio.Transport] = {}
        self._server: asyncio.Server | None = None
        self._http: web.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port."""
        logger = logging.Logger("dcgs.sites")
        logger.addHandler(_Refusals(self._log))
        http = web.Server(
            self._answer, keepalive_timeout=_IDLE, access_log=None, auto_decompress=False, logger=logger
        )
        self._http = http
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: _Door(lambda new: self._admit(new, http)), host, port
            )
        except OSError as error:
            raise OSError(
                f"listen must be a free port of an address of this machine; {host}:{port}: "
                f"{_LISTENING.get(error.errno or 0, error.strerror or str(error))}."
            ) from error
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._handshakes):
            self._end_handshake(task)
        if self._http is not None:
            await self._http.shutdown(1.0)
        for transport in list(self._transports):
            transport.abort()
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.0)  # closed by the next passes of the loop

    def _admit(self, transport: asyncio.Transport, http: web.Server) -> None:
        """Start the handshake of a new connection; if there are too many, end the oldest one.

        A site shows its certificate at once, so that idle connections do not keep it out.
        """
        if len(self._handshakes) >= _MOST_HANDSHAKES:
            self._end_handshake(next(iter(self._handshakes)))
            self._log.say(
                f"refused connections: more than {_MOST_HANDSHAKES} have not shown a certificate yet."
            )
        task = asyncio.get_running_loop().create_task(self._shake_hands(transport, http()))
        self._handshakes[task] = transport
        task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    def _end_handshake(self, task: asyncio.Task[None]) -> None:
        """Close a connection that has shown no certificate; its task may not have begun."""
        transport = self._handshakes.pop(task)
        task.cancel()
        transport.abort()

    async def _shake_hands(self, transport: asyncio.Transport, protocol: asyncio.Protocol) -> None:
        """Let a connection show its certificate, and hand it over to HTTP."""
        peer = (transport.get_extra_info("peername") or ("?",))[0]
        loop = asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(
                transport, protocol, self._context, server_side=True, ssl_handshake_timeout=_HANDSHAKE
            )
        except (OSError, ConnectionError) as error:
            self._log.say(f"refused a connection from {peer}: {_reason(error)}.")
            transport.abort()
            return
        if secured is not None:
            self._transports.add(transport)
            if not self._may_connect(secured, peer):
                transport.abort()
                return
            if secured.get_extra_info("ssl_object").getpeercert(True) is None:
                if len(self._strangers) >= _MOST_HANDSHAKES:
                    self._log.say(f"refused a connection: {_MOST_HANDSHAKES} others have signed nothing.")
                    transport.abort()
                    return
                self._strangers.add(secured)
                loop.call_later(_HANDSHAKE, self._end_stranger, secured)
            protocol.connection_made(secured)

    def _may_connect(self, secured: asyncio.Transport, peer: str) -> bool:
        """Return whether a site may have one more connection."""
        certificate = secured.get_extra_info("ssl_object").getpeercert(True)
        caller = pinned_name(self._study, certificate)
        mine = self._connections.setdefault(caller or "", WeakSet())
        if certificate and sum(not other.is_closing() for other in mine) >= _MOST_CONNECTIONS:
            who = caller or "somebody with keys that are not in the study"
            self._log.say(f"refused a connection of {who} from {peer}: it has {_MOST_CONNECTIONS} others.")
            return False
        mine.add(secured)
        return True

    def _end_stranger(self, secured: asyncio.Transport) -> None:
        """Close a connection without a certificate on which no signed request has come."""
        if secured in self._strangers:
            self._strangers.discard(secured)
            self._log.say(f"closed a connection on which no signed request came within {_HANDSHAKE:.0f} s.")
            secured.abort()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request; a refusal is said here and there."""
        security = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
        certificate = security.getpeercert(True) if security is not None else None
        caller = pinned_name(self._study, certificate)
        try:
            if certificate is None:
                caller = self._signed(request)
            return await self._dispatch(request, caller)
        except EnvelopeError as error:
            status, text = 403, str(error)
        except _RefusalError as error:
            status, text = error.status, str(error)
        except OSError as error:
            status, text = 507, f"it cannot be kept: {error}"
        self._log.say(f"refused what {caller or 'an unknown site'} ({request.remote}) sent: {text}")
        return web.Response(status=status, text=text, headers={"Connection": "close"})

    def _signed(self, request: web.BaseRequest) -> str:
        """Return which site has signed a request without a certificate; raise if none has."""
        target = request.rel_url.raw_path_qs
        try:
            caller = signed_by(self._study, request.headers, request.method, target, time.time())
        except SignatureError as error:
            raise _RefusalError(403, str(error)) from error
        if (connection := request.transport) is not None:
            mine = self._connections.setdefault(caller, WeakSet())
            others = sum(other is not connection and not other.is_closing() for other in mine)
            if others >= _MOST_CONNECTIONS:
                raise _RefusalError(429, f"a site must have at most {_MOST_CONNECTIONS} connections.")
            mine.add(connection)
            self._strangers.discard(connection)
        return caller

    async def _dispatch(self, request: web.BaseRequest, caller: str | None) -> web.Response:
        if caller is None or not self._handler.is_neighbor(caller):
            raise _RefusalError(
                403, "a certificate must have the keys of a neighbor in this study; it has not."
            )
        if request.headers.get(STUDY) != self._study.hash.hex():
            raise _RefusalError(
                409,
                f"all sites must hold the same study; that of {caller} has another SHA-256 than "
                f"{self._study.hash.hex()[:12]}…, which is that of {self._study.name} here. Compare the "
                "files.",
            )
        if request.path == "/v1/hello":
            return web.Response(status=204, headers={VERSION: RELEASE})
        parts = request.path.split("/")
        if parts[:3] != ["", "v1", "mail"] or len(parts) != 4:
            raise _RefusalError(404, f"there is no {request.path} here.")
        if request.method == "GET" and parts[3] == caller:
            return await self._give(request, caller)
        if request.method == "PUT":
            async with self._reading.setdefault(caller, asyncio.Semaphore(_MOST_BODIES)):
                body = await self._body(request)
            await self._handler.accept(caller, parts[3], body)
            return web.Response(status=204)
        raise _RefusalError(405, f"{request.method} {request.path} is not for {caller}.")

    async def _body(self, request: web.BaseRequest) -> bytes:
        size, limit = request.content_length, self._study.limits.message_bytes + OVERHEAD
        if size is None or size > limit:
            raise _RefusalError(413, f"an envelope must say its size, at most {limit} bytes; got {size}.")
        try:
            async with asyncio.timeout(_BODY):
                body = await request.content.readexactly(size)
        except (TimeoutError, asyncio.IncompleteReadError) as error:
            raise _RefusalError(408, f"an envelope must arrive completely within {_BODY:.0f} s.") from error
        if BODY in request.headers and request.headers[BODY] != sha256(body).hexdigest():
            raise _RefusalError(403, "the body of a signed request must be the one that was signed.")
        return body

    async def _give(self, request: web.BaseRequest, caller: str) -> web.Response:
        for place in _places(request.query.get("done", "")):
            await self._handler.delivered(caller, place)
        if request.query.get("wait") == "0":
            return web.Response(status=204)
        pending = await self._handler.next_for(caller, LONG_POLL, _places(request.query.get("has", "")))
        if pending is None:
            return web.Response(status=204)
        return web.Response(body=pending.envelope, headers={PLACE: str(pending.id)})


@final
class _Refusals(logging.Handler):
    """Says which requests were refused because they are not written as HTTP must be."""

    def __init__(self, log: EventLog) -> None:
        logging.Handler.__init__(self)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Say it in a line, without the traceback."""
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage() if error is None else f"{type(error).__name__}: {error}"
        self._log.say(f"refused a request that cannot be read: {' '.join(text.split())[:200]}")


class _RefusalError(Exception):
    """A request that is refused, and its status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@final
class _Door(asyncio.Protocol):
    """A new connection, before TLS: nothing is read."""

    def __init__(self, admit: Callable[[asyncio.Transport], None]) -> None:
        self._admit = admit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connection = cast(asyncio.Transport, transport)
        connection.pause_reading()
        self._admit(connection)


def _places(text: str) -> list[int]:
    """Return numbers of envelopes, which are separated by commas; those of no envelope are left out."""
    return [int(word) for word in text.split(",")[:_MOST_PLACES] if word.isdecimal() and len(word) < 19]


def _reason(error: Exception) -> str:
    """Return why a handshake failed, in words."""
    text = str(getattr(error, "reason", None) or error).lower()
    if any(part in text for part in _PLAINTEXT):
        return "it speaks no TLS; nothing is sent or taken in plaintext"
    if "peer_did_not_return_a_certificate" in text:
        return "it has shown no certificate"
    if "certificate" in text:
        detail = getattr(error, "verify_message", "") or text
        return f"its certificate is not one of this study that is valid now ({detail})"
    if isinstance(error, ConnectionResetError):
        return "it was closed before it has shown a certificate"
    if "handshake" in text or not text:
        return f"it has not shown a certificate within {_HANDSHAKE:.0f} s"
    return f"no connection by TLS 1.3 was made ({text})"
