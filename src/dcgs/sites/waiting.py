"""Who waits for envelopes that are to be sent, in an event loop."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from typing import final

from dcgs.sites.mailbox import Mailbox, Pending


@final
class WaitingHops:
    """Waits for the next envelope for a neighbor."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._events: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def notify(self, hops: set[str]) -> None:
        """Wake those who wait for envelopes for these neighbors."""
        for hop in hops:
            self._events[hop].set()

    async def next(self, hop: str, skip: Collection[int] = ()) -> Pending:
        """Return the next envelope for a neighbor as soon as there is one, but for those on their way."""
        event, skip = self._events[hop], tuple(skip)
        while True:
            event.clear()
            pending = await asyncio.to_thread(self._mailbox.next_for, hop, skip)
            if pending is not None:
                return pending
            await event.wait()

    async def within(self, hop: str, seconds: float, skip: Collection[int]) -> Pending | None:
        """Return the next envelope for a neighbor, None if there is none within this time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self.next(hop, skip)
        return None
