"""The operations that are queued in this worker's pools: claimed while it has slots, and sent under a claim of its own."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from romulus.core.operations import OperationRow
from romulus.core.pools import DEFAULT_POOL
from romulus.store.contract import OperationsServed
from romulus.worker.engine import Engine

from .claimed import ClaimedSends
from .working import Working

if TYPE_CHECKING:
    from .telling import Operations

log = logging.getLogger("romulus.worker")


class PoolQueue:
    """One loop. An operation takes a slot before it is armed: only as many as there are slots can become unknown."""

    def __init__(self, engine: Engine, operations: Operations, serves: OperationsServed) -> None:
        self._engine, self._operations, self._sends = engine, operations, ClaimedSends(engine, operations)
        pools = tuple(pool for pool in serves.pools if pool != DEFAULT_POOL)
        self._serves = OperationsServed(pools, serves.names, serves.lookups)
        self._working = Working(engine)
        self._without_slot = 0  # claimed, waiting for a slot

    def start(self) -> None:
        """Begin, if the worker serves a pool."""
        if self._serves.pools and self._serves.names:
            self._working.start("claiming operations from pools", self._pass, "romulus-operation-pools")

    async def stop(self, grace: int = 0) -> None:
        """Claim nothing more: what is not armed is left to others, what is being sent may end within *grace* µs."""
        await self._working.stop(grace)

    def poke(self) -> None:
        """Look soon."""
        self._working.poke()

    async def _pass(self) -> None:
        self._working.begin()
        engine, due = self._engine, None
        room = engine.slots.free - self._without_slot
        if room > 0 and not engine.owner.stopping and engine.owner.may_arm():
            due = await self._take(room)
        wait = engine.settings.poll if due is None else min(max(due - engine.store.estimated_now(), 1), engine.settings.poll)
        await self._working.poked(wait)

    async def _take(self, room: int) -> int | None:
        """Claim what there is room for; return when to look again."""
        engine = self._engine
        serves = self._operations.serves(self._serves)
        taken = await self._working.claimed(engine.store.take_queued(engine.owner.id, engine.owner.namespace, serves, room))
        for row in taken.rows:
            self._without_slot += 1
            self._working.spawn(self._work(row), f"send {row.id}")
        if len(taken.rows) >= room or not (taken.rows or (taken.next_due or 0) > engine.store.estimated_now()):
            return None  # no slot is left, or what is due is not for this worker, which may be marked dead
        return taken.next_due

    async def _work(self, row: OperationRow) -> None:
        """Send one; whatever goes wrong, it must not stay claimed by a worker that has forgotten it."""
        try:
            await self._slot()
            self._working.sends()
            await self._sends.send(row, self._engine.registry.operations[row.name], self._engine.slots.give)
        except Exception:
            log.exception("operation %s of run %r cannot be sent", row.id, row.run_id)
            self._engine.owner.doubt()

    async def _slot(self) -> None:
        """Wait for a slot, which is ours then."""
        slots, turn = self._engine.slots, _Turn(self._engine)
        try:
            if not slots.take():
                slots.wait(turn)
                await turn.wait()
        finally:
            self._without_slot -= 1


class _Turn:
    """Waits for one slot."""

    def __init__(self, engine: Engine) -> None:
        self._slots = engine.slots
        self._granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def slot_granted(self) -> None:
        """Go on; a slot that nobody waits for any more is given back."""
        if self._granted.done():
            self._slots.give()
        else:
            self._granted.set_result(None)

    async def wait(self) -> None:
        """Wait until it is granted. Cancelled in the very moment it was: it is given back."""
        try:
            await self._granted
        except asyncio.CancelledError:
            self._slots.leave(self)
            if self._granted.done() and not self._granted.cancelled():
                self._slots.give()
            raise
