"""One reader of `Store.changes` for everyone on this loop who waits for runs, running only while somebody waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Self, cast

from romulus.core.errors import StoreError
from romulus.store.contract import Store

log = logging.getLogger("romulus.client")
RETRY_S = 1.0  # after the store could not be read
PACE_S = 0.001  # for each waiter, between two hints: each reads its run then, and a busy store hints all the time


class Changes:
    """Tells its watchers that something may have changed in the store: a hint to look."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._notices: dict[int, Callable[[], object]] = {}
        self._key = 0
        self._pump: asyncio.Task[None] | None = None

    def watch(self, notice: Callable[[], object]) -> Callable[[], object]:
        """Call *notice* soon after commits of other processes; the returned function ends that."""
        self._key += 1
        key = self._key
        self._notices[key] = notice
        if self._pump is None or self._pump.done():
            self._pump = asyncio.get_running_loop().create_task(self._run(), name="romulus client changes")
        return lambda: self._unwatch(key)

    async def close(self) -> None:
        """End the reader. Idempotent."""
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.cancel()
            await asyncio.wait([pump])

    def _unwatch(self, key: int) -> None:
        self._notices.pop(key, None)
        if not self._notices and self._pump is not None:
            self._pump.cancel()
            self._pump = None

    async def _run(self) -> None:
        while True:
            try:
                await self._follow()
            except StoreError as error:
                log.warning("cannot follow the store's changes, trying again: %s", error)
            await asyncio.sleep(RETRY_S)
            self._tell()

    async def _follow(self) -> None:
        stream = cast("AsyncGenerator[None]", self._store.changes())  # closed here, not by the collector
        async with aclosing(stream) as changes:
            async for _ in changes:
                self._tell()
                await asyncio.sleep(PACE_S * len(self._notices))

    def _tell(self) -> None:
        for notice in tuple(self._notices.values()):
            notice()


class RunWatch:
    """Wakes one waiter when its run may have changed: told by this process's hub, and by other processes' commits."""

    def __init__(self, store: Store, changes: Changes, namespace: str, run_id: str) -> None:
        self._told = asyncio.Event()
        self._ends = (store.hub.watch(namespace, run_id, self._told.set), changes.watch(self._told.set))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for end in self._ends:
            end()

    async def changed(self, look_after_s: float) -> None:
        """Return when the run may have changed, or after *look_after_s*: hints can be lost."""
        try:
            async with asyncio.timeout(look_after_s):
                await self._told.wait()
        except TimeoutError:
            pass
        self._told.clear()
