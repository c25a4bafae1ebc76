"""Settles unknown operations, of any run and also after it has ended: looks them up, sends them again, or has a person look."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from romulus.core.commands import OperationSpec
from romulus.core.operations import (
    OperationEvent,
    OperationRow,
    OperationState,
    ReportKind,
    Step,
    after,
    next_step,
    why_stuck,
)
from romulus.store.contract import OperationsServed
from romulus.worker.engine import Engine

from .asking import Asker
from .claimed import ClaimedSends
from .pacing import Pace
from .working import Working

if TYPE_CHECKING:
    from .telling import Operations

LOST: Final = after(OperationState.ARMED, OperationEvent.LOSE)


log = logging.getLogger("romulus.worker")


class Settler:
    """One loop: claim what is due, work each in a task of its own, a bounded number at once."""

    def __init__(self, engine: Engine, operations: Operations, serves: OperationsServed) -> None:
        self._engine, self._operations = engine, operations
        self._serves, self._sends = serves, ClaimedSends(engine, operations)
        self._asker = Asker(engine, operations.resources)
        self._pace = Pace(engine.host, engine.settings.lookups_per_second_max)
        self._working = Working(engine)
        self._claims_at = 0  # host's monotonic µs: when claims are looked at again, whether they are over

    def start(self) -> None:
        """Begin, also where the code here has no operations: those of dead workers are given up for others to settle."""
        self._working.start("settling operations", self._pass, "romulus-settler")

    async def stop(self, grace: int = 0) -> None:
        """Settle nothing more: what is being looked up is left to others, what is being sent may end within *grace* µs."""
        await self._working.stop(grace)

    def poke(self) -> None:
        """Look soon."""
        self._working.poke()

    def due_at(self, due: int) -> None:
        """Look when *due* (store µs) has come."""
        left = due - self._engine.store.estimated_now()
        if left <= 0:
            self.poke()
        elif left < self._engine.settings.poll:
            self._engine.host.call_later(left, self.poke)

    async def _pass(self) -> None:
        self._working.begin()
        engine, wait = self._engine, self._engine.settings.poll
        room = engine.settings.settling_max - len(self._working)
        if room > 0 and not engine.owner.stopping and engine.owner.may_arm():
            await self._take(room)
            wait = min(max(self._claims_at - engine.host.monotonic(), 1), wait)
        await self._working.poked(wait)

    async def _take(self, room: int) -> None:
        """Claim what there is room for. Whether claims are over is looked at now and then: it takes a look at each there is."""
        engine, owner = self._engine, self._engine.owner
        lost = LOST if engine.host.monotonic() >= self._claims_at else None
        serves = self._operations.serves(self._serves)
        taken = await self._working.claimed(engine.store.take_operations(owner.id, owner.namespace, serves, room, lost))
        if lost is not None:
            self._claims_at = engine.host.monotonic() + engine.settings.poll
        for row in taken.rows:
            self._working.spawn(self._work(row), f"settle {row.id}")
        if taken.next_due is not None and (taken.rows or taken.next_due > engine.store.estimated_now()):
            self.due_at(taken.next_due)  # else what is due is not for this worker, which may be marked dead

    async def _work(self, row: OperationRow) -> None:
        """Do the next thing about one operation; whatever goes wrong, it must not stay claimed by a worker that has forgotten it."""
        try:
            await self._next_thing(row)
        except Exception:
            log.exception("operation %s of run %r cannot be settled", row.id, row.run_id)
            self._engine.owner.doubt()

    async def _next_thing(self, row: OperationRow) -> None:
        spec = self._engine.registry.operations[row.name]
        match next_step(row, self._engine.store.estimated_now(), spec.retry.max_attempts):
            case Step.LOOK:
                await self._pace.turn()
                await self._operations.report(await self._asker.ask(row, spec))
            case Step.SEND:
                await self._send(row, spec)
            case Step.KEY:
                due = self._engine.store.estimated_now() + spec.retry.delay(max(row.sends, 1), self._engine.random01())
                await self._operations.report(self._sends.said(row, ReportKind.KEY, retry_at=due))
            case Step.HOLD:
                await self._operations.report(self._sends.said(row, ReportKind.STUCK, why=why_stuck(row.protocol, row.sends)))
            case Step.TAKE_UP:
                await self._operations.report(self._sends.said(row, ReportKind.CODE_BACK))

    async def _send(self, row: OperationRow, spec: OperationSpec) -> None:
        self._working.sends()
        await self._sends.send(row, spec, _nothing)


def _nothing() -> None:
    """Free nothing: the settler's own bound counts what it works."""
