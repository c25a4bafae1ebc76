"""Brings claimed runs into memory: a parked instance as it is, any other by replay in chunks that let the loop breathe."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from romulus.core.ports import Host
from romulus.core.record import Entry, HoldKind, Record

from . import holding, takeup
from .driver import RunDriver
from .ending import end
from .engine import Engine
from .memory import Memory
from .patience import patient

T = TypeVar("T")
log = logging.getLogger("romulus.worker")


class Loader:
    """Turns records into drivers in progress."""

    def __init__(self, engine: Engine, memory: Memory, give_up: Callable[[Record, BaseException], object]) -> None:
        self._engine, self._memory, self._give_up = engine, memory, give_up
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken: dict[tuple[int, int], Record | None] = {}  # by run and fence, being replayed: the newest record, if it was woken

    @property
    def loading(self) -> int:
        """Return how many runs are being replayed."""
        return len(self._tasks)

    def take(self, record: Record) -> None:
        """Take up a run just claimed. Called in a plain callback of the loop."""
        if not self._ours(record):
            return
        cached = self._memory.parked(record.run)
        if cached is not None:
            self._memory.enter(cached)
            takeup.resume(cached, record)
        elif record.run.position == 0 and not (record.parent or record.operates or record.pooled):
            self._begin(record)
        else:
            self.rebuild(record)

    def rebuild(self, record: Record) -> None:
        """Replay a run's journal and take it up."""
        claim = record.run.key, record.run.fence
        self._woken[claim] = None
        task = self._engine.host.spawn(self._replay(record), name=f"replay {record.run.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._woken.pop(claim, None))

    def keep(self, record: Record) -> bool:
        """Keep what a run is to be woken with until it is taken up; False: it is not being replayed."""
        claim = record.run.key, record.run.fence
        if claim not in self._woken:
            return False
        self._woken[claim] = record
        return True

    def loads(self, run: int) -> bool:
        """Return whether a run is being replayed."""
        return any(run == key for key, _ in self._woken)

    async def stop(self) -> None:
        """Give up what is being replayed."""
        await end(self._tasks)

    def _begin(self, record: Record) -> None:
        """Take up a run without entries: its first activation is a replay only if other code has made it before."""
        driver = self._driver(record)
        if driver is not None:
            self._finish(driver, record)

    def _ours(self, record: Record) -> bool:
        """Return whether the run was claimed under the worker's present name, not one that it has given up since."""
        return record.run.owner == self._engine.owner.id

    def _driver(self, record: Record) -> RunDriver | None:
        if not self._ours(record):
            return None
        try:
            driver = RunDriver.of(self._engine, record)
        except Exception as error:  # noqa: BLE001  its code, its codec or what is stored: a run in nobody's memory stays claimed for good
            self._give_up(record, error)
            return None
        self._memory.enter(driver)
        return driver

    def _finish(self, driver: RunDriver, record: Record) -> None:
        try:
            self._take_up(driver, record)
        except Exception as error:  # noqa: BLE001
            self._failed(driver, error)

    def _failed(self, driver: RunDriver, error: Exception) -> None:
        """Hold a run that a defect keeps from being taken up: it would be claimed for good and go no further."""
        log.error("run %r cannot be taken up", driver.run.id, exc_info=error)
        driver.hold(HoldKind.COMMIT, f"it could not be taken up: {type(error).__name__}: {error}; {holding.MEND}")

    def _take_up(self, driver: RunDriver, record: Record) -> None:
        try:
            driver.replay_end(known=record.run.digest != "")
        except holding.HELD as error:
            takeup.refuse(driver, error)
        else:
            takeup.take_up(driver, record)
            newer = self._woken.pop((record.run.key, record.run.fence), None)
            if newer is not None:
                driver.woken(newer)

    async def _replay(self, record: Record) -> None:
        host, chunk = self._engine.host, self._engine.settings.history_chunk
        if not await self._operations_read(record):
            return
        driver = await in_callback(host, lambda: self._driver(record))
        if driver is None:
            return
        try:
            for start in range(0, record.run.position, chunk):
                entries = await patient(host, self._engine.settings.poll, partial(self._history, record, start))
                await in_callback(host, lambda entries=entries: driver.replay(entries))  # type: ignore[misc]
            if record.parent:
                listed = partial(self._engine.store.children, record.generation.key)
                record.children = await patient(host, self._engine.settings.poll, listed)
            if record.pooled:
                standing = partial(self._engine.store.pooled, record.generation.key)
                record.pool = await patient(host, self._engine.settings.poll, standing)
        except holding.HELD as error:
            reason = error
            await in_callback(host, lambda: takeup.refuse(driver, reason))
            return
        except Exception as error:  # noqa: BLE001
            defect = error
            await in_callback(host, lambda: self._failed(driver, defect))
            return
        await in_callback(host, lambda: self._finish(driver, record))

    async def _operations_read(self, record: Record) -> bool:
        """Read what the record has of operations, first: a run that cannot be opened here is not ended while one may have been sent."""
        if not record.operates:
            return True
        host = self._engine.host
        try:
            awaited = partial(self._engine.store.operations_of, record.generation.key)
            record.operations = await patient(host, self._engine.settings.poll, awaited)
        except Exception as error:  # noqa: BLE001
            defect, record.run.hold_reason = error, ""  # held, though it was cancelled: what was sent is not known
            await in_callback(host, lambda: self._give_up(record, defect))
            return False
        return True

    async def _history(self, record: Record, start: int) -> Sequence[Entry]:
        return await self._engine.store.history(record.run.generation_key, start, self._engine.settings.history_chunk)


async def in_callback(host: Host, fn: Callable[[], T]) -> T:
    """Run *fn* in a plain callback of the loop: workflow code never runs inside one of the loop's tasks."""
    done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def call() -> None:
        if done.cancelled():
            return
        try:
            done.set_result(fn())
        except BaseException as error:  # noqa: BLE001  handed on, whatever it is
            done.set_exception(error)

    host.call_soon(call)
    return await done
