"""A loop that claims operations, and a task for each that it has claimed: what the settler and the queue of pools have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any

from romulus.core.errors import CommitUnknown
from romulus.core.ports import Host
from romulus.store.contract import TakenOperations
from romulus.worker.ending import end
from romulus.worker.engine import Engine
from romulus.worker.patience import forever
from romulus.worker.pause import pause


class Working:
    """The loop's task, those that work what it has claimed, and of these the ones that may have sent something."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._poked = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, what: str, one_pass: Callable[[], Awaitable[None]], name: str) -> None:
        """Begin to make passes; *what* they do is told where they have to wait."""
        engine = self._engine
        self._loop = engine.host.spawn(forever(engine.host, engine.settings.poll, what, one_pass), name=name)

    async def stop(self, grace: int) -> None:
        """Claim nothing more: what has sent nothing is left to others, what is being sent may end within *grace* µs."""
        await end([task for task in (self._loop, *self._tasks) if task is not None and task not in self._sending])
        await within(self._engine.host, grace, self._sending)
        await end([*self._sending])

    def poke(self) -> None:
        """Make a pass soon."""
        self._poked.set()

    def begin(self) -> None:
        """Begin a pass: what pokes from here on asks for another."""
        self._poked.clear()

    async def poked(self, limit: int) -> None:
        """Wait until another pass is asked for, at most *limit* µs."""
        handle = self._engine.host.call_later(limit, self.poke)
        try:
            await self._poked.wait()
        finally:
            handle.cancel()

    async def claimed(self, taking: Awaitable[TakenOperations]) -> TakenOperations:
        """Return what was claimed; without an answer, operations may be claimed in this worker's name that nobody here knows of."""
        try:
            return await taking
        except CommitUnknown:
            self._engine.owner.doubt()
            raise

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Work one of what was claimed."""
        task = self._engine.host.spawn(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def sends(self) -> None:
        """From here on the current task may have sent something."""
        task = asyncio.current_task()
        assert task is not None
        self._sending.add(task)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._sending.discard(task)
        self.poke()


async def within(host: Host, limit: int, tasks: Collection[asyncio.Task[None]]) -> None:
    """Wait for *tasks*, at most *limit* µs."""
    if tasks and limit > 0:
        over = host.spawn(pause(host, limit), name="romulus-grace")
        ended = host.spawn(_all_of(tasks), name="romulus-sends")
        await asyncio.wait([over, ended], return_when=asyncio.FIRST_COMPLETED)
        await end([over, ended])


async def _all_of(tasks: Collection[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)
