"""Opens the store of one URL once for each event loop, and closes it with its last user there."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from romulus.host import RealHost
from romulus.store import open_store
from romulus.store.contract import Store

from .changes import Changes

log = logging.getLogger("romulus")


@dataclass(slots=True)
class Opened:
    """An open store, with what its users on one loop share."""

    store: Store
    host: RealHost
    changes: Changes


@dataclass(slots=True)
class _Shared:
    opening: asyncio.Task[Opened]
    users: int = 0


class Source:
    """A store URL, and the open store of each event loop that uses it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._shared: dict[asyncio.AbstractEventLoop, _Shared] = {}
        self._logged = False

    async def acquire(self) -> Opened:
        """Return the store of the running loop, opening it for its first user.

        Raises:
            StoreUnavailable, StoreSchemaError, NotOurFile, ConfigurationError: as `Store.open`.
        """
        loop = asyncio.get_running_loop()
        self._forget_closed_loops()
        shared = self._shared.get(loop)
        if shared is None:
            shared = self._shared[loop] = _Shared(loop.create_task(self._open(), name="romulus open store"))
        shared.users += 1
        try:
            return await asyncio.shield(shared.opening)
        except BaseException:
            await self.release()
            raise

    async def release(self) -> None:
        """Say that one user of the running loop's store is done; the last one closes it."""
        loop = asyncio.get_running_loop()
        shared = self._shared.get(loop)
        if shared is None:
            return
        shared.users -= 1
        if shared.users == 0:
            del self._shared[loop]
            await _close(shared.opening)

    async def _open(self) -> Opened:
        host = RealHost(asyncio.get_running_loop())
        try:
            store = open_store(self.url, host)
            await store.open()
        except BaseException:
            host.close()
            raise
        self._log_once(store)
        return Opened(store, host, Changes(store))

    def _log_once(self, store: Store) -> None:
        if not self._logged:
            self._logged = True
            log.info("store: %s", store.url)

    def _forget_closed_loops(self) -> None:
        for loop in [loop for loop in self._shared if loop.is_closed()]:
            del self._shared[loop]


async def _close(opening: asyncio.Task[Opened]) -> None:
    if not opening.done():
        opening.cancel()
        await asyncio.wait([opening])
    if opening.cancelled() or opening.exception() is not None:
        return
    opened = opening.result()
    await opened.changes.close()
    await opened.store.close()
    opened.host.close()
