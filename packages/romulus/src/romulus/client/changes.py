"""One reader of `Store.changes` for everyone on this loop who waits for runs, running while somebody waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing
from itertools import groupby
from types import TracebackType
from typing import Protocol, Self, cast

from romulus.core.errors import StoreError
from romulus.core.machine import RunStatus
from romulus.store.contract import Store

log = logging.getLogger("romulus.client")
RETRY_S = 1.0  # after the store could not be read
PACE_MIN_S = 0.001  # before a look, since a busy store hints all the time
PACE_S = 0.00005  # and so much for each waiter
IDLE_S = 1.0  # the reader ends when nobody has waited for so long
LOOK_AFTER_S = 5.0  # everyone looks again after this even if nothing told them: hints can be lost


class Watcher(Protocol):
    """Somebody who waits for a run."""

    @property
    def run(self) -> tuple[str, str]:
        """Return namespace and ID."""
        ...

    @property
    def until(self) -> Collection[RunStatus] | None:
        """Return the statuses waited for; None: any change is."""
        ...

    def tell(self, *, over: bool) -> object:
        """Take note that the run may have changed; *over*: it had such a status, or was not there."""


class Changes:
    """Tells its watchers that their runs may have changed in the store: a hint to look. One look serves all who wait for an end."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watchers: dict[int, Watcher] = {}
        self._key = 0
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._idle: asyncio.TimerHandle | None = None

    def watch(self, watcher: Watcher) -> Callable[[], object]:
        """Tell *watcher* soon after commits of other processes, and every `LOOK_AFTER_S`; the returned function ends that."""
        self._key += 1
        key = self._key
        self._watchers[key] = watcher
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
        self._watchers.pop(key, None)
        if not self._watchers and self._idle is None:
            self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._stop_idle)

    def _stop_idle(self) -> None:
        self._idle = None
        if not self._watchers:
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
                await asyncio.sleep(max(PACE_S * len(self._watchers), PACE_MIN_S))
                await self._look()

    async def _look(self) -> None:
        """Tell those whose run is over, and those who want to hear of any change."""
        watchers = sorted(self._watchers.values(), key=lambda watcher: watcher.run[0])
        for namespace, group in groupby(watchers, key=lambda watcher: watcher.run[0]):
            waiting = [*group]
            wanted = {watcher.run[1] for watcher in waiting if watcher.until is not None}
            found: Mapping[str, RunStatus] = await self._store.statuses(namespace, [*wanted]) if wanted else {}
            for watcher in waiting:
                status = found.get(watcher.run[1])
                if watcher.until is None or status is None or status in watcher.until:
                    watcher.tell(over=watcher.until is not None)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AFTER_S)
            self._tell()

    def _tell(self) -> None:
        for watcher in tuple(self._watchers.values()):
            watcher.tell(over=False)


class RunWatch:
    """Wakes one waiter when its run may have changed: told by this process's hub, and by other processes' commits."""

    def __init__(self, store: Store, changes: Changes, namespace: str, run_id: str, until: Collection[RunStatus] | None = None) -> None:
        self.run, self.until = (namespace, run_id), until
        self._told = asyncio.Event()
        self._over = False
        self._ends = (store.hub.watch(namespace, run_id, lambda: self.tell(over=True)), changes.watch(self))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for end in self._ends:
            end()

    async def changed(self) -> bool:
        """Return when the run may have changed since this was last asked; True: a worker here, or a look, says that it is over."""
        await self._told.wait()
        self._told.clear()
        over, self._over = self._over, False
        return over

    async def changed_within(self, seconds: float) -> None:
        """As `changed`, but after *seconds* at the latest."""
        try:
            async with asyncio.timeout(seconds):
                await self.changed()
        except TimeoutError:
            return

    def tell(self, *, over: bool) -> None:
        """Wake the waiter."""
        self._over = self._over or over
        self._told.set()
