"""Hearing of others' commits: LISTEN on a connection of its own, watched and rebuilt, and polling where that is not to be had.

A notice is a hint to look, never a fact. Everybody is told to look once right after LISTEN has begun, so nothing is missed between a
look before and the first notice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, Final

from romulus.core.ports import Host
from romulus.store.listeners import Listeners

from .driver import Link, connect
from .place import Place

log = logging.getLogger("romulus.store")

CHANNEL: Final = "romulus"
KEEP_ALIVE_S: Final = 5.0  # between two signs of life of the listening connection
ANSWER_S: Final = 3.0
PROBE_S: Final = 2.0
RETRY_MIN, RETRY_MAX = 200_000, 5_000_000  # µs
RETRY_POOLED: Final = 60_000_000  # µs between two tries behind a pooler that swallowed LISTEN
POLL: Final = 1_000_000  # µs, with jitter, while nothing is heard


class Listener:
    """One listening connection for everybody in this process."""

    def __init__(self, place: Place, host: Host, token: str) -> None:
        self._place, self._host, self._token = place, host, token
        self._listeners = Listeners()
        self._task: asyncio.Task[None] | None = None
        self._poller: asyncio.Task[None] | None = None
        self._probed = asyncio.Event()
        self._warned = False
        self.listening = False  # for status: False while notices are replaced by polling

    def changes(self) -> AsyncIterator[None]:
        """Yield soon after somebody else has committed, and now and then while that cannot be known."""
        return self._listeners.changes(self._begin)

    @property
    def wanted(self) -> bool:
        """Return whether anybody has asked to hear of commits."""
        return self._task is not None

    async def close(self) -> None:
        """Stop listening. Idempotent."""
        tasks = [task for task in (self._task, self._poller) if task is not None]
        self._task = self._poller = None
        self._listeners.forget()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = self._host.spawn(self._listen(), name="romulus-listen")
            self._poller = self._host.spawn(self._poll(), name="romulus-listen-poll")

    # ---- listening -------------------------------------------------------------------------
    async def _listen(self) -> None:
        pause = RETRY_MIN
        while True:
            link: Link | None = None
            try:
                link = await connect(self._place, command_s=ANSWER_S, name="romulus listen")
                await self._establish(link)
                pause = RETRY_MIN
                await self._keep(link.connection)
            except _Swallowed:
                self._warn("a pooler in transaction mode swallows LISTEN: polling instead, which wakes runs up to a second later")
                pause = RETRY_POOLED
            except Exception as error:  # noqa: BLE001  whatever it is, it may end
                self._warn(f"notices are not heard now, polling instead: {error}")
            finally:
                self.listening = False
                if link is not None:
                    link.connection.terminate()
            await self._pause(pause)
            pause = min(pause * 2, RETRY_MAX) if pause < RETRY_MAX else pause

    async def _establish(self, link: Link) -> None:
        """Begin to listen, prove it with a notice of our own, then have everybody look once."""
        self._probed.clear()
        await link.connection.add_listener(CHANNEL, self._heard)
        await self._probe(link)
        try:
            async with asyncio.timeout(PROBE_S):
                await self._probed.wait()
        except TimeoutError:
            raise _Swallowed from None
        if link.pooled and not await self._heard_again(link):
            raise _Swallowed
        if self._warned:
            log.info("%s: notices are heard again", self._place.shown)
        self.listening, self._warned = True, False
        self._listeners.tell()

    async def _heard_again(self, link: Link) -> bool:
        """Return whether LISTEN outlives the transaction it was given in: a pooler may have heard the probe by chance."""
        other = await connect(self._place, pooled=link.pooled, command_s=ANSWER_S)
        try:
            self._probed.clear()
            await self._probe(other)
            async with asyncio.timeout(PROBE_S):
                await self._probed.wait()
        except TimeoutError:
            return False
        finally:
            other.connection.terminate()
        return True

    async def _probe(self, link: Link) -> None:
        async with link.connection.transaction():
            await link.connection.execute("SELECT pg_notify($1, $2)", CHANNEL, f"probe {self._token}")

    async def _keep(self, connection: Any) -> None:
        """Ask for a sign of life until there is none."""
        gone = asyncio.Event()

        def closed(_: object) -> None:
            gone.set()

        connection.add_termination_listener(closed)
        while not gone.is_set():
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    await gone.wait()
            except TimeoutError:
                await connection.fetchval("SELECT 1")
        raise ConnectionResetError("the listening connection was closed")

    def _heard(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        if payload == f"probe {self._token}":
            self._probed.set()
        elif payload != self._token:
            self._listeners.tell()

    def _warn(self, text: str) -> None:
        if not self._warned:
            log.warning("%s: %s", self._place.shown, text)
        self._warned = True

    # ---- polling ---------------------------------------------------------------------------
    async def _poll(self) -> None:
        while True:
            await self._pause(POLL * 3 // 4 + self._host.random_bits(19))
            if not self.listening:
                self._listeners.tell()

    async def _pause(self, us: int) -> None:
        waited = asyncio.get_running_loop().create_future()
        handle = self._host.call_later(us, _settle, waited)
        try:
            await waited
        finally:
            handle.cancel()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Swallowed(Exception):
    """LISTEN was accepted and nothing is heard."""
