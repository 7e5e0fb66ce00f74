"""A link with faults: a TCP proxy that delays, loses connections, cuts, stalls, or trickles."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

_PIECE = 1 << 16


class FaultyLink:
    """Passes connections to a port of this machine on to another one; runs in a thread of its own.

    ``delay`` is in seconds, for each piece. ``loss`` is the probability that a piece closes its connection.
    With ``trickles`` one byte passes in a second.
    """

    def __init__(self, port: int, target: int, delay: float = 0.0) -> None:
        self.port, self.target, self.delay = port, target, delay
        self.loss, self.trickles = 0.0, False
        self.lost = self.cuts = 0
        self._cut_until = self._stalled_until = 0.0
        self._random = _numbers(port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._serve, "127.0.0.1", port))

    def cut(self, seconds: float) -> None:
        """Close all connections, and refuse new ones for some seconds."""
        self.cuts += 1
        self._cut_until = time.monotonic() + seconds
        self._loop.call_soon_threadsafe(self._close_all)

    def stall(self, seconds: float) -> None:
        """Pass nothing on for some seconds, and keep connections open."""
        self.cuts += 1
        self._stalled_until = time.monotonic() + seconds

    def close(self) -> None:
        """End all connections and the thread."""

        async def end() -> None:
            self._server.close()
            self._close_all()
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

        self._call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _close_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if time.monotonic() < self._cut_until:
            writer.transport.abort()
            return
        try:
            there, on = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, on}
        try:
            await asyncio.gather(self._pass_on(reader, on), self._pass_on(there, writer))
        except OSError:
            pass
        finally:
            self._writers -= {writer, on}
            for end in (writer, on):
                end.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(1 if self.trickles else _PIECE):
            await asyncio.sleep(1.0 if self.trickles else self.delay)
            while (left := self._stalled_until - time.monotonic()) > 0.0:
                await asyncio.sleep(left)
            if self.loss and next(self._random) < self.loss:
                self.lost += 1
                raise ConnectionResetError
            writer.write(piece)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()


def _numbers(seed: int) -> Any:
    import random

    source = random.Random(seed)
    while True:
        yield source.random()
