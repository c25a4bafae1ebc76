"""Calls that arrive together become one piece of work: one commit for many starts or sends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from romulus.core.errors import StoreError
from romulus.core.ports import Host

from .contract import RowsLocked

Item = TypeVar("Item")
Answer = TypeVar("Answer")

Write: TypeAlias = Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]]
Group: TypeAlias = list[tuple[Sequence[Item], asyncio.Future[Sequence[Answer]]]]  # calls, and where their answers go

GROUP_MAX: Final = 1000  # items of one commit


class Grouped(Generic[Item, Answer]):
    """Gathers items while the group before is being written, at least until the loop has run what is ready."""

    def __init__(self, host: Host, write: Write[Item, Answer], alone: Write[Item, Answer] | None = None) -> None:
        """*alone* writes one call after its group has found rows locked, and does not wait long for them itself."""
        self._host, self._write, self._alone = host, write, alone or write
        self._waiting: Group[Item, Answer] = []
        self._running: asyncio.Task[None] | None = None

    async def submit(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Write *items* with whatever else has gathered and return their answers."""
        future: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, future))
        if self._running is None:
            self._running = self._host.spawn(self._drain(), name="romulus-store-group")
        return await future

    async def idle(self) -> None:
        """Wait until everything submitted so far is written."""
        if self._running is not None:
            await asyncio.wait([self._running])

    async def _drain(self) -> None:
        try:
            while self._waiting:
                await self._written(self._take(), self._write)
        finally:
            self._running = None

    def _take(self) -> Group[Item, Answer]:
        taken, count = 0, 0
        for items, _ in self._waiting:
            count += len(items)
            if taken and count > GROUP_MAX:
                break
            taken += 1
        group, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return group

    async def _written(self, group: Group[Item, Answer], write: Write[Item, Answer]) -> None:
        try:
            answers = await write([item for items, _ in group for item in items])
        except Exception as error:  # noqa: BLE001  # whatever it is, it is the callers' to see
            await self._apart(group, error)
            return
        first = 0
        for items, future in group:
            _settle(future, answers[first : first + len(items)])
            first += len(items)

    async def _apart(self, group: Group[Item, Answer], error: Exception) -> None:
        """Write the calls of a failed group one by one, so that one's fault is not another's; a store that is away fails all."""
        locked = isinstance(error, RowsLocked)
        if len(group) == 1 or (isinstance(error, StoreError) and not locked):
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
            return
        for call in group:
            await self._written([call], self._alone if locked else self._write)


def _settle(future: asyncio.Future[Sequence[Answer]], answers: Sequence[Answer]) -> None:
    if not future.done():
        future.set_result(answers)
