"""The transport between sites: sealed messages through the mailbox, and the loop that sends and receives
them.

The run waits in its thread; HTTPS is in another. The order of messages between two sites, for each tag, is
their sequence. A site that was started again sends nothing twice: what its mailbox has was sent.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import sqlite3
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dcgs.runtime.encoding import Buffer
from dcgs.runtime.errors import RunAbortedError
from dcgs.runtime.heartbeat import Heartbeat
from dcgs.runtime.transport import Transfer, Transfers, Transport
from dcgs.runtime.wire import HEADER, MAGIC, MessageError, read_header, read_messages
from dcgs.sites import envelope as envelopes
from dcgs.sites.certificate import LiveCertificate
from dcgs.sites.client import Client, Dialing
from dcgs.sites.config import SiteLimits
from dcgs.sites.envelope import EnvelopeError, EnvelopeHeader, Sealer, digest
from dcgs.sites.events import EventLog, duration
from dcgs.sites.mailbox import ROUNDS, Mailbox, Outgoing, Pending
from dcgs.sites.page import SECONDS, SiteView
from dcgs.sites.server import Server
from dcgs.sites.study import RELAY, Study
from dcgs.sites.waiting import WaitingHops
from dcgs.tree import spanning_tree

T = TypeVar("T")

_BROADCAST, _REDUCE, _MISSING = 2, 3, 4  # tags; those below are of collective operations and of rounds
_SAY_AFTER, _SAY_AGAIN = 5.0, 300.0
_ASK_AFTER, _ASK_AGAIN = 20.0, 120.0
_CHECK, _CLOSING = 1.0, 5.0
_MEGABYTE = 1 << 20
_SPENT = {"megabytes_sent": "MB", "messages_sent": "messages", "rounds": "rounds of messages"}
_TRIES = 3
"""How often a message that is not the one that is due is asked for again, before the run ends."""
JOURNAL = "masks-{}.journal"
"""The files of keys and counters of masked sums, in the folder of a study."""
LINGER = 60.0
"""Seconds in which a site delivers its last messages when all sites have ended."""


@final
class SilentHeartbeat:
    """No heartbeat: a site may be away for days. Failures stay at their site, and the others wait."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

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
        self.waiting = WaitingHops(mailbox)
        self.heard: dict[str, float] = {}

    def hear(self, name: str) -> None:
        """Note that there was a sign of life of a site or the relay."""
        self.heard[name] = time.time()

    def is_neighbor(self, caller: str) -> bool:
        return caller in self._neighbors

    def hop_to(self, rank: int) -> str:
        """Return the neighbor to which an envelope for a site goes."""
        return self._study.names[self._hops[rank]]

    async def accept(self, caller: str, hop: str, envelope: bytes) -> None:
        self.hear(caller)
        if hop != self.name:
            raise EnvelopeError(f"this is {self.name}, and no relay for {hop}.")
        header = envelopes.read_header(envelope)
        if header.receiver == self._sealer.rank:
            header, message = self._sealer.open(envelope)
            self.hear(self._study.names[header.sender])
            if header.tag > _MISSING:
                raise EnvelopeError(f"an envelope must be of a known kind; got one of kind {header.tag}.")
            if header.tag == _MISSING:
                await asyncio.to_thread(self._mailbox.send_again, self._missed(header, message))
            else:
                self._check_content(header, message)
                await asyncio.to_thread(self._mailbox.keep, header, message)
            return
        self._check_forward(caller, header)
        item = Outgoing(self.hop_to(header.receiver), header, envelope, b"")
        await asyncio.to_thread(self._mailbox.add, [item], True)

    def _check_content(self, header: EnvelopeHeader, message: bytes) -> None:
        """Raise if a message of a round is not written as messages are, or not finite; it is not kept then.

        Of a long bundle, only the header is in the first message.
        """
        if header.tag != ROUNDS or not message.startswith(MAGIC):
            return
        sender, content = self._study.names[header.sender], np.frombuffer(message, np.uint8)
        try:
            bundle = read_header(content, sender)
            if len(content) == HEADER + bundle.length:
                read_messages(content[HEADER:], bundle, sender)
        except MessageError as error:
            raise EnvelopeError(str(error)) from error

    def missing(self, rank: int, tag: int, sequence: int) -> None:
        """Ask a site to send a message again, in case that it was lost on its way."""
        header = EnvelopeHeader(self._sealer.rank, rank, _MISSING, self._study.run, 0, sequence)
        envelope = self._sealer.seal(header, tag.to_bytes(2, "little"))
        self._mailbox.add([Outgoing(self.hop_to(rank), header, envelope, b"")])

    def _missed(self, request: EnvelopeHeader, message: bytes) -> EnvelopeHeader:
        """Return the place of the message that another site asks for."""
        tag = int.from_bytes(message, "little")
        return request._replace(sender=request.receiver, receiver=request.sender, tag=tag)

    def _check_forward(self, caller: str, header: EnvelopeHeader) -> None:
        names = self._study.names
        if header.run != self._study.run or not {header.sender, header.receiver} < set(range(len(names))):
            raise EnvelopeError("an envelope must be between sites of the study, and of this run.")
        if self.hop_to(header.receiver) == caller or header.sender == self._sealer.rank:
            raise EnvelopeError(f"an envelope for {names[header.receiver]} does not come this way.")

    async def next_for(self, caller: str, seconds: float, skip: Collection[int]) -> Pending | None:
        self.hear(caller)
        return await self.waiting.within(caller, seconds, skip)

    async def delivered(self, caller: str, id: int) -> None:
        await asyncio.to_thread(self._mailbox.delivered, caller, id)


@final
class SiteTransport(Transport):
    """The sites of a study; ranks are in the order of the study."""

    def __init__(
        self, study: Study, sealer: Sealer, mailbox: Mailbox, log: EventLog, limits: SiteLimits
    ) -> None:
        self._limits = limits.within(study.limits)
        self._spent = SiteLimits()
        self._last_round = -1
        self.study, self.rank, self.size = study, sealer.rank, len(study.sites)
        self.heartbeat = Heartbeat(SilentHeartbeat(self.rank, self.size), timeout=math.inf)
        self.heartbeat.name = lambda rank: study.names[rank]
        self.awaited: tuple[str, float] | None = None
        self.is_finishing = False
        self.facts: dict[str, str] = {}
        self.ended = ""
        self.mail = SiteMail(study, sealer, mailbox, log)
        self._sealer, self._mailbox, self._log = sealer, mailbox, log
        self._sent: dict[tuple[int, int], int] = defaultdict(int)
        self._taken: dict[tuple[int, int], int] = defaultdict(int)
        self._near = study.neighbors[sealer.rank]
        self._tree = spanning_tree(study.neighbors, 0)[self.rank]
        self._selector = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self._thread = threading.Thread(target=self._loop.run_forever, name="dcgs-https", daemon=True)
        self._server: Server | None = None
        self._client: Client | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._broken: BaseException | None = None
        self._journals = 0
        self._refused: dict[tuple[int, int, int], int] = defaultdict(int)
        self._in_step: list[tuple[int, int, int]] = []
        self._in_step_of = -1
        self._write_page: Callable[[], object] = lambda: None

    def open(self, listen: tuple[str, int] | None, serving: ssl.SSLContext, dialing: Dialing) -> int | None:
        """Start to send and receive; return the port on which this site listens."""
        self._thread.start()
        self._mailbox.on_outgoing = lambda hops: self._loop.call_soon_threadsafe(
            self.mail.waiting.notify, hops
        )
        port = None
        if listen is not None:
            self._server = Server(self.study, serving, self.mail, self._log)
            port = self._in_loop(self._server.start(*listen))
        self._in_loop(self._dial(dialing))
        return port

    def keep_page(self, folder: Path, certificate: LiveCertificate) -> None:
        """Write the page of this site every few seconds and at the end, and look after its certificate."""

        def write_once() -> None:
            with suppress(OSError, sqlite3.Error):
                self._view(certificate).write(folder)

        async def write() -> None:
            while True:
                await asyncio.to_thread(write_once)
                await asyncio.sleep(SECONDS)

        async def begin() -> None:
            self._write_page = write_once
            self._begin(write())
            self._begin(certificate.watch())

        self._in_loop(begin())

    def _state(self, now: float) -> str:
        """Return what this site does, in a sentence."""
        if self.ended:
            return self.ended
        state = "It computes."
        if self.awaited is not None:
            name, start = self.awaited
            waited, patience = now - start, 3600.0 * self.study.limits.patience_hours
            left = duration(max(0.0, patience - waited))
            state = f"It waits for {name}: for {duration(waited)} so far, and for {left} more at most."
        if self.is_finishing:
            return f"Its model is written, and it stays for the others. {state if self.awaited else ''}"
        return state

    def _view(self, certificate: LiveCertificate) -> SiteView:
        sent, received = self._mailbox.traffic()
        now, study = time.time(), self.study
        facts = {
            "study": f"run {study.run}, SHA-256 {study.hash.hex()}",
            "rounds": f"{self._spent.rounds}, of at most {self._limits.rounds:g}",
            "bytes": f"{sent / _MEGABYTE:.2f} MB sent, of at most {self._limits.megabytes_sent:g}; "
            f"{received / _MEGABYTE:.2f} MB received",
            "certificate": f"valid until {certificate.until:%Y-%m-%d}",
            **self.facts,
        }
        heard = {study.names[j]: self.mail.heard.get(study.names[j], 0.0) for j in self._near}
        waiting, events = self._mailbox.waiting(), list(self._log.events)
        state = self._state(now)
        return SiteView(self.mail.name, study.name, state, facts, heard, waiting, events, now)

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _dial(self, dialing: Dialing) -> None:
        """Start the tasks of the edges on which this site dials."""
        client = self._client = Client(self.study, dialing, self._log, self.mail.hear)
        mail, name = self.mail, self.mail.name
        sources: set[str] = set()
        for j in self.study.neighbors[self.rank]:
            hop = self.study.names[j]
            edge = self.study.edge(name, hop)
            if edge.dials not in (None, name):
                continue
            server = self.study.member(RELAY if edge.dials is None else hop)
            sources.add(server.name)
            work = client.push(server, hop, partial(mail.waiting.next, hop), partial(mail.delivered, hop))
            self._begin(work)
        for source in sources:
            self._begin(client.pull(self.study.member(source), name, partial(mail.accept, source, name)))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task of the event loop; an error of it ends the run."""
        task = asyncio.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = error
            self._mailbox.wake()

    def close(self) -> None:
        """Close all connections; nothing more is sent."""
        if self._thread.is_alive():
            self._in_loop(self._hang_up())
            self._write_page()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()
        self._mailbox.close()

    async def _hang_up(self) -> None:
        """Acknowledge what came in last, and end all tasks."""
        if self._client is not None:
            await self._client.acknowledge()
        if self._server is not None:
            await self._server.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        if self._client is not None:
            await self._client.close()
        end = time.monotonic() + _CLOSING
        while len(self._selector.get_map()) > 1 and time.monotonic() < end:
            await asyncio.sleep(0.01)  # until the other ends have closed, too; one entry is the loop's own

    def next_journal(self) -> Path:
        """Return the file of the keys of the next masked sums; a run that is replayed has the same."""
        self._journals += 1
        return self._mailbox.folder / JOURNAL.format(self._journals)

    def transfer(self, sends: Transfers, receives: Transfers, peers: Sequence[int] = ()) -> None:
        self._send(sends)
        for buffer, rank, tag in receives:
            message = self._receive(rank, tag, len(buffer))
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
            self._spend(len(message), tag)
            header = self._header(rank, tag, self._sent[rank, tag])
            known = self._mailbox.sent(header)
            if known is None:
                envelope = self._sealer.seal(header, message)
                items.append(Outgoing(self.mail.hop_to(rank), header, envelope, digest(message)))
            elif tag == ROUNDS and known != digest(message):
                raise RunAbortedError(
                    "a site that is started again must compute the same as before; message "
                    f"{header.sequence} to "
                    f"{self.study.names[rank]} differs. Use the same data, machine and versions, or a new "
                    "run."
                )
        self._store(items)

    def _spend(self, nbytes: int, tag: int) -> None:
        """Count a message of this site; raise before it is sent if that is beyond the limits."""
        limits, spent, position = self._limits, self._spent, self.heartbeat.position
        is_new = tag == ROUNDS and position != self._last_round
        self._last_round = position if is_new else self._last_round
        megabytes, messages = spent.megabytes_sent + nbytes / _MEGABYTE, spent.messages_sent + 1
        self._spent = SiteLimits(megabytes, messages, spent.rounds + is_new)
        for name, limit in vars(limits).items():
            if limit and getattr(self._spent, name) > limit:
                raise RunAbortedError(
                    f"this site must send at most {limit:g} {_SPENT[name]}, as its file or the study says; "
                    "the next message would be beyond that, and nothing more is sent. To go on, raise the "
                    "limit in its file, or agree on a study with another one."
                )

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

    def _receive(self, rank: int, tag: int, most: int) -> bytes:
        """Return the next message of a site, of at most so many bytes; wait for it, and say so."""
        sequence = self._taken[rank, tag] + 1
        while True:
            found = self._mailbox.take(rank, tag, sequence)
            round, message = self._wait_for(rank, tag, sequence) if found is None else found
            wrong = self._wrong(self.study.names[rank], round, message, most)
            if wrong is None:
                break
            self._refuse(rank, tag, sequence, wrong)
        self._taken[rank, tag] = sequence
        if self._in_step and round != self._in_step_of:
            self._in_step.clear()
        self._in_step_of = round
        self._in_step.append((rank, tag, sequence))
        return message

    def _wrong(self, name: str, round: int, message: bytes, most: int) -> str | None:
        """Return why a message is not the one that is due, None if it is."""
        due = self.heartbeat.position
        if round != due:
            return f"a message of step {_step(due)} was expected; {name} sent one of step {_step(round)}"
        if len(message) > most:
            return f"a message must have at most {most} bytes; {name} sent one of {len(message)}"
        return None

    def _refuse(self, rank: int, tag: int, sequence: int, reason: str) -> None:
        """Remove a message that is not the one that is due, and ask for it again; raise if that is in vain.

        Who has the key of a site by theft can send such a message; the site itself then sends the right one.
        """
        place = rank, tag, sequence
        self._refused[place] += 1
        if self._refused[place] > _TRIES:
            raise MessageError(f"{reason}.")
        self._log.say(f"refused a message: {reason}; it is asked for again")
        self._mailbox.forget(*place)
        with suppress(OSError):
            self.mail.missing(*place)

    def forget_step(self) -> None:
        """Forget the messages of the last step, one of which has ended the run; the next start asks for them
        again."""
        for place in self._in_step:
            self._mailbox.forget(*place)

    def _wait_for(self, rank: int, tag: int, sequence: int) -> tuple[int, bytes]:
        name, start = self.study.names[rank], time.time()
        patience = 3600.0 * self.study.limits.patience_hours
        say_at, self.awaited = start + _SAY_AFTER, (name, start)
        said, ask_at = False, start + _ASK_AFTER
        while (found := self._mailbox.take(rank, tag, sequence)) is None:
            now = time.time()
            if self._broken is not None:
                raise RunAbortedError(f"the connections of this site failed: {self._broken!r}.")
            if now - start > patience:
                raise RunAbortedError(
                    f"a site must answer within {self.study.limits.patience_hours:g} hours; {name} has "
                    "not. See whether it runs, and start this site again to wait as long once more. If it "
                    f"will not come back, use: dcgs study without {name}"
                )
            if now > say_at:
                said, say_at = True, now + _SAY_AGAIN
                waited, left = duration(now - start), duration(patience - (now - start))
                ended = "this site has ended, and stays for the others: " if self.is_finishing else ""
                self._log.say(f"{ended}waiting for {name}, for {waited} so far and {left} more at most")
            if now > ask_at:
                ask_at = now + _ASK_AGAIN
                with suppress(OSError):
                    self.mail.missing(rank, tag, sequence)
            self._mailbox.wait(_CHECK)
        self.awaited = None
        if said:
            self._log.say(f"{name} has answered; going on")
        return found

    def finish(self, linger: float = LINGER) -> None:
        """Wait until all sites have ended, and have what this one has sent.

        Nothing is forwarded after that. A neighbor that is away then has its model, too, so the wait for it
        has an end.
        """
        self.is_finishing = True
        self.heartbeat.begin_run()
        try:
            self.allreduce_max(np.zeros(1))
        except RunAbortedError as error:  # the last message of another site was lost, and it has left
            self._log.say(f"this site has ended without hearing that all others have: {error}")
            return
        self.deliver(linger)

    def deliver(self, linger: float = LINGER) -> None:
        """Wait until neighbors have what this site has sent, at most for some seconds."""
        end = time.monotonic() + linger
        while self._mailbox.waiting() and time.monotonic() < end:
            self._mailbox.wait(_CHECK)


def _step(position: int) -> str:
    """Return the step of a position, after the number of its run if that is not the first."""
    run, step = divmod(position, 1 << 32)
    return f"{run}.{step}" if run else str(step)


def _bytes_of(values: NDArray[np.float64]) -> Buffer:
    return values.view(np.uint8).reshape(-1)
