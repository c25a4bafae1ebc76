"""Those in this process who want to hear of others' commits: a hint to look, never a fact to act on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable


class Listeners:
    """Everybody who iterates over `changes` now."""

    def __init__(self) -> None:
        self._events: set[asyncio.Event] = set()

    def __bool__(self) -> bool:
        """Return whether anybody listens."""
        return bool(self._events)

    async def changes(self, begin: Callable[[], object]) -> AsyncIterator[None]:
        """Yield after each `tell`; several before the next look are one. *begin* is called once this one is among them."""
        event = asyncio.Event()
        self._events.add(event)
        begin()
        try:
            while True:
                await event.wait()
                event.clear()
                yield
        finally:
            self._events.discard(event)

    def tell(self) -> None:
        """Let everybody look."""
        for event in self._events:
            event.set()

    def forget(self) -> None:
        """Tell those who listen now no more."""
        self._events.clear()
