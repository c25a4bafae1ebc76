"""Noticing commits of others: `PRAGMA data_version`, looked at every 20 ms while somebody listens.

It is looked at on the writer's connection, where it tells of everybody's commits but our own: the hub tells of those.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import apsw

from romulus.core.errors import StoreError
from romulus.core.ports import Host
from romulus.store.listeners import Listeners

from .writer import Writer

LOOK_EVERY: Final = 20_000  # µs
MISSED_MAX: Final = 5  # looks at a busy writer, then a hint is given without looking


class Watch:
    """One look at the file for all listeners."""

    def __init__(self, writer: Writer, host: Host) -> None:
        self._writer, self._host = writer, host
        self._listeners = Listeners()
        self._handle: asyncio.Handle | None = None
        self._seen = 0
        self._missed = 0

    def changes(self) -> AsyncIterator[None]:
        """Yield soon after somebody else has committed."""
        return self._listeners.changes(self._plan)

    def close(self) -> None:
        """Stop looking."""
        self._listeners.forget()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _plan(self) -> None:
        if self._handle is None and self._listeners:
            self._handle = self._host.call_later(LOOK_EVERY, self._look)

    def _look(self) -> None:
        self._handle = None
        try:
            if self._changed():
                self._listeners.tell()
        finally:
            self._plan()

    def _changed(self) -> bool:
        try:
            version: int | None = self._writer.glance(lambda s: s.value("watch", "PRAGMA data_version"))
        except (StoreError, apsw.Error):
            version = None
        self._missed = self._missed + 1 if version is None else 0
        if version is None:
            return self._missed % MISSED_MAX == 0
        seen, self._seen = self._seen, version
        return version != seen
