"""Noticing commits of other connections and processes: `PRAGMA data_version`, looked at every 20 ms while somebody listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from romulus.core.errors import StoreUnavailable
from romulus.core.ports import Host

from .session import Session

LOOK_EVERY: Final = 20_000  # µs


class Watch:
    """One look at the file for all listeners."""

    def __init__(self, session: Session, host: Host) -> None:
        self._session, self._host = session, host
        self._listeners: set[asyncio.Event] = set()
        self._handle: asyncio.Handle | None = None
        self._seen: int | None = None

    async def changes(self) -> AsyncIterator[None]:
        """Yield soon after somebody else has committed."""
        event = asyncio.Event()
        self._listeners.add(event)
        self._plan()
        try:
            while True:
                await event.wait()
                event.clear()
                yield
        finally:
            self._listeners.discard(event)

    def close(self) -> None:
        """Stop looking."""
        self._listeners.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _plan(self) -> None:
        if self._handle is None and self._listeners:
            self._handle = self._host.call_later(LOOK_EVERY, self._look)

    def _look(self) -> None:
        self._handle = None
        try:
            version = self._session.read(lambda s: s.value("watch", "PRAGMA data_version"))
        except StoreUnavailable:
            version = self._seen  # busy for a moment: the next look tells
        if version != self._seen:
            self._seen = version
            for event in self._listeners:
                event.set()
        self._plan()
