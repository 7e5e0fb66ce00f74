"""The transport between sites: sealed messages through the mailbox, and the loop that sends and receives them.

The run waits in its thread; HTTPS is in another. The order of messages between two sites, for each tag, is their
sequence. A site that was started again sends nothing twice: what its mailbox has was sent.
"""

from __future__ import annotations

import asyncio
import math
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dcgs.runtime.encoding import Buffer
from dcgs.runtime.errors import RunAbortedError
from dcgs.runtime.heartbeat import Heartbeat
from dcgs.runtime.transport import Transfer, Transfers, Transport
from dcgs.runtime.wire import MessageError
from dcgs.sites.client import Client
from dcgs.sites.envelope import EnvelopeError, EnvelopeHeader, Sealer, digest, read_header
from dcgs.sites.events import EventLog
from dcgs.sites.mailbox import ROUNDS, Mailbox, Outgoing, Pending
from dcgs.sites.server import Server
from dcgs.sites.study import Study
from dcgs.tree import spanning_tree

T = TypeVar("T")

_BROADCAST, _REDUCE, _DONE = 2, 3, 4  # tags; those below are of collective operations and of rounds
_SAY_AFTER, _SAY_AGAIN = 5.0, 300.0
_CHECK = 1.0
LINGER = 20.0
"""Seconds in which a site that has ended delivers its last messages when all others have ended, too."""


@final
class SilentHeartbeat:
    """No heartbeat: a site may be away for days. Failures stay at their site, and the others wait."""

    rank, size = 0, 1

    def send(self, text: bytes, rank: int, tag: int) -> None:
        """Send nothing."""

    def receive(self) -> None:
        """Receive nothing."""

    def flush(self, seconds: float) -> None:
        """Do not wait."""


@final
class SiteMail:
    """What a site does with envelopes: it opens those for it, and forwards the others."""

    def __init__(self, study: Study, sealer: Sealer, mailbox: Mailbox, log: EventLog) -> None:
        self._study, self._sealer, self._mailbox, self._log = study, sealer, mailbox, log
        self.name = study.names[sealer.rank]
        self._hops = study.next_hops(sealer.rank)
        self._neighbors = {study.names[j] for j in study.neighbors[sealer.rank]}
        self._waiting: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.heard: dict[str, float] = {}

    def is_neighbor(self, caller: str) -> bool:
        return caller in self._neighbors

    def hop_to(self, rank: int) -> str:
        """Return the neighbor to which an envelope for a site goes."""
        return self._study.names[self._hops[rank]]

    def notify(self, hops: set[str]) -> None:
        """Wake those who wait for envelopes for these neighbors; in the event loop."""
        for hop in hops:
            self._waiting[hop].set()

    async def accept(self, caller: str, hop: str, envelope: bytes) -> None:
        self.heard[caller] = time.time()
        if hop != self.name:
            raise EnvelopeError(f"this is {self.name}, and no relay for {hop}.")
        header = read_header(envelope)
        if header.receiver == self._sealer.rank:
            header, message = self._sealer.open(envelope)
            await asyncio.to_thread(self._mailbox.keep, header, message)
            return
        self._check_forward(caller, header)
        item = Outgoing(self.hop_to(header.receiver), header, envelope, b"")
        await asyncio.to_thread(self._mailbox.add, [item], True)

    def _check_forward(self, caller: str, header: EnvelopeHeader) -> None:
        names = self._study.names
        if header.run != self._study.run or not {header.sender, header.receiver} < set(range(len(names))):
            raise EnvelopeError("an envelope must be between sites of the study, and of this run.")
        if self.hop_to(header.receiver) == caller or header.sender == self._sealer.rank:
            raise EnvelopeError(f"an envelope for {names[header.receiver]} does not come this way.")

    async def next_for(self, caller: str, seconds: float) -> Pending | None:
        self.heard[caller] = time.time()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self.wait_for(caller)
        return None

    async def wait_for(self, hop: str) -> Pending:
        """Return the next envelope for a neighbor as soon as there is one."""
        event = self._waiting[hop]
        while True:
            event.clear()
            pending = await asyncio.to_thread(self._mailbox.next_for, hop)
            if pending is not None:
                return pending
            await event.wait()

    async def delivered(self, caller: str, id: int) -> None:
        await asyncio.to_thread(self._mailbox.delivered, caller, id)


@final
class SiteTransport(Transport):
    """The sites of a study; ranks are in the order of the study."""

    def __init__(self, study: Study, sealer: Sealer, mailbox: Mailbox, log: EventLog) -> None:
        self.study, self.rank, self.size = study, sealer.rank, len(study.sites)
        self.heartbeat = Heartbeat(SilentHeartbeat(), timeout=math.inf)
        self.heartbeat.name = lambda rank: study.names[rank]
        self.awaited: tuple[str, float] | None = None
        self.mail = SiteMail(study, sealer, mailbox, log)
        self._sealer, self._mailbox, self._log = sealer, mailbox, log
        self._sent: dict[tuple[int, int], int] = defaultdict(int)
        self._taken: dict[tuple[int, int], int] = defaultdict(int)
        self._tree = spanning_tree(study.neighbors, 0)[self.rank]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dcgs-https", daemon=True)
        self._server: Server | None = None
        self._client: Client | None = None
        self._tasks: list[Future[None]] = []

    def open(self, listen: tuple[str, int] | None, serving: ssl.SSLContext, dialing: ssl.SSLContext) -> int | None:
        """Start to send and receive; return the port on which this site listens."""
        self._thread.start()
        self._mailbox.on_outgoing = lambda hops: self._loop.call_soon_threadsafe(self.mail.notify, hops)
        port = None
        if listen is not None:
            self._server = Server(self.study, serving, self.mail, self._log)
            port = self._in_loop(self._server.start(*listen))
        self._in_loop(self._dial(dialing))
        return port

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _dial(self, context: ssl.SSLContext) -> None:
        """Start the tasks of the edges on which this site dials."""
        client = self._client = Client(self.study, context, self._log)
        mail, name = self.mail, self.mail.name
        sources: dict[str, str] = {}
        for j in self.study.neighbors[self.rank]:
            hop = self.study.names[j]
            edge = self.study.edge(name, hop)
            if edge.dials not in (None, name):
                continue
            server = self.study.member("relay" if edge.dials is None else hop)
            sources[server.name] = hop
            pushing = client.push(
                server, hop, lambda there=hop: mail.wait_for(there), lambda id, there=hop: mail.delivered(there, id)
            )
            self._tasks.append(asyncio.run_coroutine_threadsafe(pushing, self._loop))
        for source in sources:
            server = self.study.member(source)
            pulling = client.pull(server, name, lambda body, there=source: mail.accept(there, name, body))
            self._tasks.append(asyncio.run_coroutine_threadsafe(pulling, self._loop))

    def close(self) -> None:
        """Close all connections; nothing more is sent."""
        for task in self._tasks:
            task.cancel()
        if self._client is not None:
            self._in_loop(self._client.close())
        if self._server is not None:
            self._in_loop(self._server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._mailbox.close()

    def transfer(self, sends: Transfers, receives: Transfers, peers: Sequence[int] = ()) -> None:
        self._send(sends)
        for buffer, rank, tag in receives:
            message = self._receive(rank, tag)
            if len(message) > len(buffer):
                raise MessageError(
                    f"a message must have at most {len(buffer)} bytes; {self.study.names[rank]} sent one of "
                    f"{len(message)}."
                )
            buffer[: len(message)] = np.frombuffer(message, np.uint8)

    def broadcast(self, buffer: Buffer) -> None:
        tree = self._tree
        if tree.parent is not None:
            self.transfer([], [Transfer(buffer, tree.parent, _BROADCAST)])
        self._send([Transfer(buffer, child, _BROADCAST) for child in tree.children])

    def allreduce_max(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        largest = np.array(values, dtype=np.float64)
        theirs = np.empty_like(largest)
        for child in self._tree.children:
            self.transfer([], [Transfer(_bytes_of(theirs), child, _REDUCE)])
            largest = np.maximum(largest, theirs)
        if self._tree.parent is not None:
            self._send([Transfer(_bytes_of(largest), self._tree.parent, _REDUCE)])
        self.broadcast(_bytes_of(largest))
        return largest

    def abandon(self) -> None:
        """Stop nothing: what was sent is delivered, and the others wait until this site is started again."""

    def _send(self, sends: Transfers) -> None:
        items = []
        for buffer, rank, tag in sends:
            self._sent[rank, tag] += 1
            message = buffer.tobytes()
            header = self._header(rank, tag, self._sent[rank, tag])
            known = self._mailbox.sent(header)
            if known is None:
                envelope = self._sealer.seal(header, message)
                items.append(Outgoing(self.mail.hop_to(rank), header, envelope, digest(message)))
            elif tag == ROUNDS and known != digest(message):
                raise RunAbortedError(
                    f"a site that is started again must compute the same as before; message {header.sequence} to "
                    f"{self.study.names[rank]} differs. Use the same data, machine and versions, or a new run."
                )
        self._store(items)

    def _store(self, items: Sequence[Outgoing]) -> None:
        """Keep envelopes to be sent; wait if there is no space."""
        while items:
            try:
                self._mailbox.add(items)
            except OSError as error:
                self._log.say(f"what is to be sent cannot be kept: {error}; trying again")
                time.sleep(_CHECK)
            else:
                return

    def _header(self, rank: int, tag: int, sequence: int) -> EnvelopeHeader:
        return EnvelopeHeader(self.rank, rank, tag, self.study.run, self.heartbeat.position, sequence)

    def _receive(self, rank: int, tag: int) -> bytes:
        """Return the next message of a site; wait for it, and say so."""
        sequence = self._taken[rank, tag] + 1
        found = self._mailbox.take(rank, tag, sequence)
        if found is None:
            found = self._wait_for(rank, tag, sequence)
        self._taken[rank, tag] = sequence
        round, message = found
        if round != self.heartbeat.position:
            raise MessageError(
                f"a message of step {self.heartbeat.position} was expected; {self.study.names[rank]} sent one of "
                f"step {round}."
            )
        return message

    def _wait_for(self, rank: int, tag: int, sequence: int) -> tuple[int, bytes]:
        name, start = self.study.names[rank], time.time()
        patience = 3600.0 * self.study.limits.patience_hours
        say_at, self.awaited = start + _SAY_AFTER, (name, start)
        said = False
        while (found := self._mailbox.take(rank, tag, sequence)) is None:
            now = time.time()
            if now - start > patience:
                raise RunAbortedError(
                    f"a site must answer within {self.study.limits.patience_hours:g} hours; {name} has not. See "
                    "whether it runs, and start this site again to wait as long once more."
                )
            if now > say_at:
                said, say_at = True, now + _SAY_AGAIN
                waited = timedelta(seconds=round(now - start))
                left = timedelta(seconds=round(patience - (now - start)))
                self._log.say(f"waiting for {name} since {waited}; this site waits {left} more")
            self._mailbox.wait(_CHECK)
        self.awaited = None
        if said:
            self._log.say(f"{name} has answered; going on")
        return found

    def finish(self, linger: float = LINGER) -> None:
        """Wait until no other site needs this one: all have ended, and have what this one has sent."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        self.heartbeat.begin_run()
        self._send([Transfer(np.zeros(0, np.uint8), rank, _DONE) for rank in others])
        missing, end, said = set(others), math.inf, time.monotonic() + _SAY_AFTER
        while missing or (self._mailbox.waiting() and time.monotonic() < end):
            missing -= {rank for rank in missing if self._mailbox.take(rank, _DONE, 1) is not None}
            if not missing and end == math.inf:
                end = time.monotonic() + linger
            if time.monotonic() > said:
                said = time.monotonic() + _SAY_AGAIN
                names = ", ".join(self.study.names[rank] for rank in sorted(missing)) or "the last messages"
                self._log.say(f"this site has ended, and stays for the others: waiting for {names}")
            self._mailbox.wait(0.05 if not missing else _CHECK)


def _bytes_of(values: NDArray[np.float64]) -> Buffer:
    return values.view(np.uint8).reshape(-1)
