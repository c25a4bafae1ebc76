"""What every worker does for all: finds dead workers, frees their runs, keeps an eye on who else is there."""

from __future__ import annotations

import asyncio
import json
import logging

from romulus.core.machine import Change, RunStatus, after
from romulus.core.record import Run, WorkerRow

from .claiming import Claimer
from .ending import end
from .engine import Engine
from .memory import Memory
from .operations import Unserved
from .patience import forever
from .pause import pause
from .settings import SECOND
from .strays import Strays

log = logging.getLogger("romulus.worker")
FREED = after(RunStatus.RUNNING, Change.FREE)
SWEEP_POOL_MAX = 500  # attempts of pools given up in one transaction
SWEEP_RUNS_MAX = 500  # runs freed in one transaction
EXPIRE_MAX = 1_000  # events deleted in one transaction
EXPIRE_EVERY = 60 * SECOND


class Maintenance:
    """A sweep at a jittered interval, and notices of what other processes write."""

    def __init__(self, engine: Engine, claimer: Claimer, strays: Strays, memory: Memory) -> None:
        self._engine, self._claimer, self._strays, self._memory = engine, claimer, strays, memory
        self._tasks: list[asyncio.Task[None]] = []
        self._others: list[WorkerRow] = []
        self._expire_at = self._strays_at = 0  # host's monotonic µs
        self._left = 0  # runs that had left memory when what they had was last given back
        self._unserved = Unserved(engine)

    def start(self) -> None:
        """Begin: one sweep at once, so that a run of a worker killed a moment ago goes on now."""
        host, interval = self._engine.host, self._engine.settings.poll
        self._tasks = [
            host.spawn(forever(host, interval, "the sweep for dead workers", self._round), name="romulus-sweep"),
            host.spawn(forever(host, interval, "listening for changes", self._listen), name="romulus-changes"),
        ]

    async def stop(self) -> None:
        """End."""
        await end(self._tasks)

    async def sweep(self) -> None:
        """Free the runs of dead workers, and note who else lives."""
        engine, settings = self._engine, self._engine.settings
        while True:
            freed = await engine.store.sweep(SWEEP_RUNS_MAX, FREED, alone_after=settings.alone_after, pause=settings.alone_pause)
            for worker in freed.dead:
                log.warning("worker %s is dead: its runs go on elsewhere", worker)
            if freed.runs:
                self._claimer.poke()
            if freed.runs < SWEEP_RUNS_MAX:
                break
        while await engine.store.lose_pool(SWEEP_POOL_MAX) == SWEEP_POOL_MAX:
            pass
        reopened = await engine.store.reopen_held(engine.owner.namespace, engine.owner.serves, FREED)
        if reopened:
            log.info("%d runs held for their code are tried again with the code that is here", reopened)
            self._claimer.poke()
        workers = await engine.store.workers(engine.owner.namespace)
        self._others = [row for row in workers if row.id != engine.owner.id and row.status == "live"]
        mine = set(engine.registry.digests.values())
        self._claimer.others = tuple({digest for row in self._others for _, _, digest in json.loads(row.workflows)} - mine)

    async def expire(self) -> None:
        """Delete events that were kept long enough, now and then."""
        engine = self._engine
        if engine.host.monotonic() < self._expire_at:
            return
        while await engine.store.expire_events(engine.settings.event_retention, EXPIRE_MAX) == EXPIRE_MAX:
            pass
        self._expire_at = engine.host.monotonic() + EXPIRE_EVERY

    async def give_memory_back(self) -> None:
        """Give back to the system what many runs have freed, once few are in progress that could need it again."""
        host, settings, memory = self._engine.host, self._engine.settings, self._memory
        if memory.left - self._left >= settings.memory_back_after and len(memory.active) <= settings.memory_back_busy_max:
            self._left = memory.left
            await host.offload("memory", host.give_memory_back)

    async def _find_strays(self) -> None:
        engine = self._engine
        if engine.host.monotonic() >= self._strays_at:
            self._strays_at = engine.host.monotonic() + engine.settings.stray
            await self._strays.look()

    def has_other_code(self, run: Run, excluded: str) -> bool:
        """Return whether another live worker has code for the run that is not among *excluded*."""
        return any(
            name == run.workflow and version == run.version and digest not in excluded.split()
            for row in self._others
            for name, version, digest in json.loads(row.workflows)
        )

    async def _round(self) -> None:
        await self.sweep()
        await self.expire()
        await self._find_strays()
        await self._unserved.look(self._others)
        await self.give_memory_back()
        await pause(self._engine.host, int(self._engine.settings.sweep * (0.75 + 0.5 * self._engine.random01())))

    async def _listen(self) -> None:
        async for _ in self._engine.store.changes():
            self._claimer.poke()
            self._engine.pools.poke()
            self._engine.operations.queue.poke()
