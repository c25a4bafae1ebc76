"""A simulated client process: the real client on the world's store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from romulus.client.aio import AsyncClient
from romulus.client.changes import Changes
from romulus.client.source import Opened
from romulus.store.sqlite import Place, SQLiteStore

from .process import SimProcess
from .world import VARIANTS, World, registry


@dataclass(slots=True)
class _Source:
    opened: Opened

    async def acquire(self) -> Opened:
        return self.opened

    async def release(self) -> None:
        """The process ends with its store."""


@dataclass(slots=True)
class _App:
    source: Any
    registry: Any
    namespace: str = "default"


class SimClient:
    """A client and the process it lives in."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.process: SimProcess = world.process("client")
        self.client: AsyncClient
        self.store: SQLiteStore

    async def open(self) -> SimClient:
        """Open the store."""
        await self._world.call(self.process, self._open())
        return self

    async def _open(self) -> None:
        host = self._world.host(self.process)
        self.store = SQLiteStore(Place(str(self._world.path)), host, lock_wait=0)
        await self.store.open()
        opened = Opened(cast("Any", self.store), cast("Any", host), Changes(cast("Any", self.store)))
        self.client = AsyncClient(cast("Any", _App(_Source(opened), registry(VARIANTS[0]))))
