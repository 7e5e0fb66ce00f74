"""The mailbox of a site or a relay: what came in and what is to be sent, in two files of SQLite.

What has come in can be taken before it is on disk: if it is lost, so is its acknowledgment, and the sender
sends it again. Commits of what came in are synchronous, and those of envelopes that are kept for others.
What this site itself sends survives the end of its process; after a loss of power its program makes the same
messages again.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, final

from dcgs.sites.envelope import EnvelopeError, EnvelopeHeader, digest

_RECEIVED = """
create table if not exists received (
    sender integer, tag integer, sequence integer, round integer, message blob not null,
    primary key (sender, tag, sequence)) without rowid;
create table if not exists facts (name text primary key, value text not null) without rowid;
"""
_OUTGOING = """
create table if not exists outgoing (
    id integer primary key, hop text not null, sender integer, receiver integer, tag integer, sequence
    integer, digest blob not null, size integer not null, pending integer not null,
    unique (sender, receiver, tag, sequence, hop));
create table if not exists envelopes (id integer primary key, envelope blob not null);
create index if not exists undelivered on outgoing (hop, id) where pending;
"""
RECEIVED = "received.db"
_NEXT = "(select max(id) + 1 from outgoing)"
"""An envelope that is sent again gets another number: the one before may just be acknowledged."""
_REQUEST = "or digest = x''"  # which may have been read, and not yet acknowledged
_UNWRITTEN = "delete from outgoing where (pending or digest != x'') and id not in (select id from envelopes)"
ROUNDS = 1
"""The tag of agents' messages. Those of collective operations may have seconds, which differ when
repeated."""
_PAGE, _CHECKPOINT = 1 << 14, 1 << 26
"""Messages are long: with these pages, and copied to the file each so many bytes, they are written faster."""
_WINDOW = 10_000
"""A sender is at most this many messages ahead of what its receiver has taken."""
_IN_MEMORY = 1 << 28
"""Bytes of messages that can be taken before they are on disk; of more, those that come later are first
written."""


class Outgoing(NamedTuple):
    """An envelope that is to be sent; ``hop`` is the neighbor to which it goes next.

    ``digest`` is that of a message of this site, and empty for envelopes of others.
    """

    hop: str
    header: EnvelopeHeader
    envelope: bytes
    digest: bytes


class Pending(NamedTuple):
    """An envelope that has not been acknowledged."""

    id: int
    envelope: bytes


@final
class Mailbox:
    """Messages on disk. Its methods may be called by any thread.

    ``on_outgoing`` is called with the hops of new envelopes, ``capacity`` bounds the bytes kept for others.
    """

    def __init__(self, folder: Path, capacity: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.on_outgoing: Callable[[set[str]], object] = lambda hops: None
        self._capacity = capacity
        self._incoming = _connection(folder / RECEIVED, _RECEIVED)
        self._outgoing = _connection(folder / "outgoing.db", _OUTGOING)
        self._bytes_sent = _total(self._outgoing, "select sum(size) from outgoing")
        self._bytes_received = _total(self._incoming, "select sum(length(message)) from received")
        self._locks = threading.Lock(), threading.Lock()
        self._arrived = threading.Condition()
        self._new: dict[tuple[int, int, int], tuple[int, bytes]] = {}
        self._in_memory = 0
        self._fresh: dict[int, tuple[str, bytes]] = {}
        self._untaken: dict[tuple[int, int, int], int] = {}
        self._untaken_of: dict[int, int] = defaultdict(int)
        self._taken: dict[tuple[int, int], int] = {}

    def recover(self) -> None:
        """Forget envelopes that a kill kept from being written, before a run goes on: it makes them again."""
        with self._locks[1], _transaction(self._outgoing):
            self._outgoing.execute(_UNWRITTEN)

    def keep(self, header: EnvelopeHeader, message: bytes) -> bool:
        """Keep a message for this site, and return when it is on disk: True if it is new.

        Raise if another message has the same place, if its place is far ahead, or if what this sender has
        sent and nobody has taken is beyond the capacity.
        """
        key = header.sender, header.tag, header.sequence
        before = self._find(*key)
        if before is not None:
            if header.tag == ROUNDS and digest(before[1]) != digest(message):
                raise EnvelopeError(
                    "a message that is sent again must be the same: its sender has other data or another "
                    "version of dcgs than before it was started again."
                )
            self._write(key, *before)  # the first time it may not have got to the disk
            return False
        if header.sequence > self._taken.get(key[:2], 0) + _WINDOW:
            raise EnvelopeError(f"message {header.sequence} is too far ahead of the run.")
        with self._arrived:
            if key not in self._untaken:
                untaken = self._untaken_of[header.sender] + len(message)
                if untaken > self._capacity:
                    raise EnvelopeError(
                        f"messages of a site that wait to be taken must have at most {self._capacity} bytes; "
                        f"with this one they have {untaken}."
                    )
                self._untaken[key], self._untaken_of[header.sender] = len(message), untaken
            fits = self._in_memory + len(message) <= _IN_MEMORY
            if fits:
                self._in_memory += len(message)
                self._new[key] = header.round, message
                self._arrived.notify_all()
        self._write(key, header.round, message)
        if not fits:
            self.wake()
        return True

    def _write(self, key: tuple[int, int, int], round: int, message: bytes) -> None:
        with self._locks[0], _transaction(self._incoming):
            row = (*key, round, message)
            done = self._incoming.execute("insert or ignore into received values (?, ?, ?, ?, ?)", row)
            self._bytes_received += len(message) * done.rowcount

    def _find(self, sender: int, tag: int, sequence: int) -> tuple[int, bytes] | None:
        with self._arrived:
            if (sender, tag, sequence) in self._new:
                return self._new[sender, tag, sequence]
        with self._locks[0]:
            query = "select round, message from received where sender = ? and tag = ? and sequence = ?"
            row: tuple[int, bytes] | None = self._incoming.execute(query, (sender, tag, sequence)).fetchone()
        return row

    def take(self, sender: int, tag: int, sequence: int) -> tuple[int, bytes] | None:
        """Return round and message if it has come; it stays on disk, for the next start."""
        found = self._find(sender, tag, sequence)
        if found is not None:
            self._taken[sender, tag] = sequence
            self._release(sender, tag, sequence)
        return found

    def _release(self, sender: int, tag: int, sequence: int) -> None:
        """Note that a message was taken: it is no longer in memory."""
        with self._arrived:
            self._untaken_of[sender] -= self._untaken.pop((sender, tag, sequence), 0)
            if (sender, tag, sequence) in self._new:
                self._in_memory -= len(self._new.pop((sender, tag, sequence))[1])

    def forget(self, sender: int, tag: int, sequence: int) -> None:
        """Remove a message that came in, so that another one can have its place."""
        self._release(sender, tag, sequence)
        with self._locks[0], _transaction(self._incoming):
            query = "delete from received where sender = ? and tag = ? and sequence = ?"
            self._incoming.execute(query, (sender, tag, sequence))

    def wait(self, seconds: float) -> None:
        """Wait until something comes in, or for this number of seconds."""
        with self._arrived:
            self._arrived.wait(seconds)

    def wake(self) -> None:
        """End a wait."""
        with self._arrived:
            self._arrived.notify_all()

    def add(self, items: Iterable[Outgoing], of_others: bool = False) -> None:
        """Keep envelopes to be sent; those of others are limited, and on disk when this returns.

        One of this site's own is on its way while it is written.
        """
        items, fresh = list(items), dict[int, tuple[str, bytes]]()
        with self._locks[1], _transaction(self._outgoing, "full" if of_others else "normal"):
            if of_others:
                self._check_capacity(sum(len(item.envelope) for item in items))
            insert = (
                "insert into outgoing (hop, sender, receiver, tag, sequence, digest, size, pending) "
                "values (?, ?, ?, ?, ?, ?, ?, 1) on conflict do update set pending = 1, "
                f"id = {_NEXT} where not pending {'' if of_others else _REQUEST} returning id"
            )
            for hop, header, envelope, known in items:
                place = header.sender, header.receiver, header.tag, header.sequence
                row = self._outgoing.execute(insert, (hop, *place, known, len(envelope))).fetchone()
                if row is not None:
                    self._bytes_sent += len(envelope)
                    fresh[row[0]] = hop, envelope
            if of_others:
                self._write_envelopes(fresh)
        with self._arrived:
            self._fresh |= {} if of_others else fresh
        self.on_outgoing({item.hop for item in items})
        if not of_others:
            self._write_fresh()

    def _write_fresh(self) -> None:
        """Write the envelopes that are on their way; those that do not fit on the disk stay in memory."""
        with self._locks[1], _transaction(self._outgoing, "normal"):
            written = dict(self._fresh)
            self._write_envelopes(written)
        with self._arrived:
            for id in written:
                self._fresh.pop(id, None)

    def _write_envelopes(self, envelopes: Mapping[int, tuple[str, bytes]]) -> None:
        rows = [(id, envelope) for id, (_, envelope) in envelopes.items()]
        self._outgoing.executemany("insert or replace into envelopes values (?, ?)", rows)

    def _check_capacity(self, more: int) -> None:
        query = "select coalesce(sum(size), 0) from outgoing where pending"
        (kept,) = self._outgoing.execute(query).fetchone()
        if kept + more > self._capacity:
            raise EnvelopeError(
                f"the mailbox must keep at most {self._capacity} bytes; it has {kept}, and got {more} more."
            )

    def sent(self, header: EnvelopeHeader) -> bytes | None:
        """Return the digest of the message that was sent in this place, None if there was none."""
        query = "select digest from outgoing where sender = ? and receiver = ? and tag = ? and sequence = ?"
        place = header.sender, header.receiver, header.tag, header.sequence
        with self._locks[1]:
            row = self._outgoing.execute(query, place).fetchone()
        return None if row is None else row[0]

    def next_for(self, hop: str, skip: Collection[int] = ()) -> Pending | None:
        """Return the first envelope for a neighbor that it has not acknowledged, but for some."""
        with self._arrived:
            for id, (to, envelope) in self._fresh.items():
                if to == hop and id not in skip:
                    return Pending(id, envelope)
        query = "select id, envelope from outgoing join envelopes using (id) where hop = ? and pending "
        query += f"and id not in ({', '.join('?' * len(skip))}) order by id limit 1"
        with self._locks[1], _as_os_error():
            row = self._outgoing.execute(query, (hop, *skip)).fetchone()
        return None if row is None else Pending(*row)

    def delivered(self, hop: str, id: int) -> None:
        """Record that a neighbor has acknowledged an envelope. One of this site's own is kept: it may get
        lost."""
        with self._locks[1], _transaction(self._outgoing, "normal"):  # what is lost of it is sent twice
            query = "update outgoing set pending = 0 where id = ? and hop = ? returning digest"
            row = self._outgoing.execute(query, (id, hop)).fetchone()
            if row == (b"",):
                self._outgoing.execute("delete from envelopes where id = ?", (id,))
        self.wake()

    def send_again(self, header: EnvelopeHeader) -> None:
        """Send an envelope of this site once more, which its receiver waits for; do nothing if there is
        none."""
        place = header.sender, header.receiver, header.tag, header.sequence
        where = "sender = ? and receiver = ? and tag = ? and sequence = ? and not pending"
        with self._locks[1], _transaction(self._outgoing, "normal"):
            found = self._outgoing.execute(f"select id, hop from outgoing where {where}", place).fetchall()
            for id, _ in found:
                query = f"update outgoing set pending = 1, id = {_NEXT} where id = ? returning id"
                (new,) = self._outgoing.execute(query, (id,)).fetchone()
                self._outgoing.execute("update envelopes set id = ? where id = ?", (new, id))
                with self._arrived:
                    if id in self._fresh:
                        self._fresh[new] = self._fresh.pop(id)
        self.on_outgoing({hop for _, hop in found})

    def waiting(self) -> dict[str, int]:
        """Return how many envelopes each neighbor has not acknowledged."""
        query = "select hop, count(*) from outgoing where pending group by hop"
        with self._locks[1]:
            return dict(self._outgoing.execute(query).fetchall())

    def traffic(self) -> tuple[int, int]:
        """Return the bytes of all envelopes that were sent or are to be, and of all messages that came in."""
        return self._bytes_sent, self._bytes_received

    def fact(self, name: str) -> str | None:
        """Return what was recorded under a name."""
        with self._locks[0]:
            row = self._incoming.execute("select value from facts where name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def record(self, name: str, value: str) -> None:
        """Record a text under a name."""
        with self._locks[0], _transaction(self._incoming):
            self._incoming.execute("insert or replace into facts values (?, ?)", (name, value))

    def close(self) -> None:
        """Close the file."""
        with self._locks[0], self._locks[1]:
            self._outgoing.close()
            self._incoming.close()


def _total(connection: sqlite3.Connection, query: str) -> int:
    (total,) = connection.execute(query).fetchone()
    return int(total or 0)


def _connection(file: Path, tables: str) -> sqlite3.Connection:
    file.touch(mode=0o600)
    connection = sqlite3.connect(file, timeout=60.0, check_same_thread=False)
    connection.execute(f"pragma page_size = {_PAGE}")
    connection.execute("pragma journal_mode = wal")
    connection.execute(f"pragma wal_autocheckpoint = {_CHECKPOINT // _PAGE}")
    connection.execute("pragma synchronous = full")
    connection.executescript(tables)
    return connection


@contextmanager
def _transaction(connection: sqlite3.Connection, synchronous: str = "full") -> Iterator[None]:
    """Commit what is done in here, or nothing of it; raise an OSError if there is no space."""
    with _as_os_error():
        connection.execute(f"pragma synchronous = {synchronous}")
        with connection:
            yield


@contextmanager
def _as_os_error() -> Iterator[None]:
    """Raise an OSError if there is no space, or the file cannot be read."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OSError(str(error)) from error
