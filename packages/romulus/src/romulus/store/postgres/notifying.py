"""Telling others of our commits: one NOTIFY for all that was committed in the last moment, never inside those transactions.

A transaction that notifies holds a lock of the whole server until its commit is flushed: inside the batches it would queue them all up.
"""

from __future__ import annotations

import asyncio
from typing import Final, LiteralString

from romulus.core.errors import StoreError
from romulus.core.ports import Host

from .pool import DRIVER_ERRORS, Pool
from .session import OwnSession

EVERY: Final = 10_000  # µs at least between two notices
NOTIFY: Final[LiteralString] = "SELECT set_config('synchronous_commit', 'off', true), pg_notify('romulus', $1)"


class Notifier:
    """Sends a notice soon after it was asked for, and not more often than every 10 ms."""

    def __init__(self, pool: Pool, host: Host, token: str) -> None:
        self._pool, self._host, self._token = pool, host, token
        self._wanted = False
        self._task: asyncio.Task[None] | None = None

    def soon(self) -> None:
        """Tell others that there is something to look for."""
        self._wanted = True
        if self._task is None:
            self._task = self._host.spawn(self._run(), name="romulus-notify")

    async def close(self) -> None:
        """Send what is wanted, then end."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._wanted:
                self._wanted = False
                await self._send()
                await asyncio.sleep(EVERY / 1_000_000)
        finally:
            self._task = None

    async def _send(self) -> None:
        """A notice that is lost is made up for by polling."""
        try:
            await self._pool.statement(self._notify)
        except (StoreError, *DRIVER_ERRORS):
            return

    async def _notify(self, session: OwnSession) -> None:
        await session.rows("notify", NOTIFY, self._token)
