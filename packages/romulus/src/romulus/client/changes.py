"""One reader of `Store.changes` for everyone on this loop who waits for runs, running while somebody waits."""

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
PACE_S = 0.001  # for each waiter, before a hint: each reads its run then, and a busy store hints all the time
IDLE_S = 1.0  # the reader ends when nobody has waited for so long
LOOK_AFTER_S = 5.0  # everyone looks again after this even if nothing told them: hints can be lost


class Changes:
    """Tells its watchers that something may have changed in the store: a hint to look."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._notices: dict[int, Callable[[], object]] = {}
        self._key = 0
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._idle: asyncio.TimerHandle | None = None

    def watch(self, notice: Callable[[], object]) -> Callable[[], object]:
        """Call *notice* soon after commits of other processes, and every `LOOK_AFTER_S`; the returned function ends that."""
        self._key += 1
        key = self._key
        self._notices[key] = notice
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._tasks = (loop.create_task(self._run(), name="romulus changes"), loop.create_task(self._tick(), name="romulus look again"))
        return lambda: self._unwatch(key)

    async def close(self) -> None:
        """End the reader. Idempotent."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        tasks = self._stop()
        if tasks:
            await asyncio.wait(tasks)

    def _unwatch(self, key: int) -> None:
        self._notices.pop(key, None)
        if not self._notices and self._idle is None:
            self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._stop_idle)

    def _stop_idle(self) -> None:
        self._idle = None
        if not self._notices:
            self._stop()

    def _stop(self) -> tuple[asyncio.Task[None], ...]:
        tasks, self._tasks = self._tasks, ()
        for task in tasks:
            task.cancel()
        return tasks

    async def _run(self) -> None:
        while True:
            try:
                await self._follow()
            except StoreError as error:
                log.warning("cannot follow the store's changes, trying again: %s", error)
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        stream = cast("AsyncGenerator[None]", self._store.changes())  # closed here, not by the collector
        async with aclosing(stream) as changes:
            async for _ in changes:
                await asyncio.sleep(PACE_S * len(self._notices))
                self._tell()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AFTER_S)
            self._tell()

    def _tell(self) -> None:
        for notice in tuple(self._notices.values()):
            notice()


class RunWatch:
    """Wakes one waiter when its run may have changed: told by this process's hub, and by other processes' commits."""

    def __init__(self, store: Store, changes: Changes, namespace: str, run_id: str) -> None:
        self._told = asyncio.Event()
        self._here = False
        self._ends = (store.hub.watch(namespace, run_id, self._tell), changes.watch(self._told.set))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for end in self._ends:
            end()

    async def changed(self) -> bool:
        """Return when the run may have changed since this was last asked; True: a worker here says that it has ended or is held."""
        await self._told.wait()
        self._told.clear()
        here, self._here = self._here, False
        return here

    async def changed_within(self, seconds: float) -> None:
        """As `changed`, but after *seconds* at the latest."""
        try:
            async with asyncio.timeout(seconds):
                await self.changed()
        except TimeoutError:
            return

    def _tell(self) -> None:
        self._here = True
        self._told.set()
