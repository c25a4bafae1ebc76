"""Sends an operation that this worker has claimed for itself, of whichever run: to be sent again, or queued in one of its pools."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from romulus.core.attempts import never_again
from romulus.core.commands import OperationSpec
from romulus.core.operations import Ending, OperationRow, Report, ReportKind
from romulus.worker.aside import reason_of
from romulus.worker.engine import Engine

from .asking import operation_of, run_of
from .sending import Send, Sent

if TYPE_CHECKING:
    from .telling import Operations

log = logging.getLogger("romulus.worker")


class ClaimedSends:
    """Arms, durably; sends, after a last check of the lease; reports what came of it."""

    def __init__(self, engine: Engine, operations: Operations) -> None:
        self._engine, self._operations = engine, operations

    async def send(self, row: OperationRow, spec: OperationSpec, free: Callable[[], object]) -> None:
        """Send it once; *free* is called once, when nothing of the body runs any more. Cancelled: the body is cut off."""
        slot = _Slot(free)
        try:
            latest = self._engine.store.estimated_now() + self._engine.settings.lease
            armed = await self._arm(row, spec, latest)
            if armed is not None:
                await self._operations.report(await self._told(armed, spec, slot, latest))
        finally:
            slot.unused()

    async def _arm(self, row: OperationRow, spec: OperationSpec, latest: int) -> OperationRow | None:
        """Return the armed operation, whose body begins before *latest* (store µs) or not at all; None: it is not to be sent."""
        armed = await self._operations.report(self.said(row, ReportKind.ARMED, may_leave_until=latest + spec.timeout))
        return armed.row if armed is not None and armed.changed else None

    def _may_leave(self, latest: int) -> bool:
        engine = self._engine
        return not engine.owner.stopping and engine.owner.may_arm() and engine.store.estimated_now() < latest

    async def _told(self, row: OperationRow, spec: OperationSpec, slot: _Slot, latest: int) -> Report:
        """Return what is reported of an armed operation."""
        try:
            arguments = self._engine.registry.vault.open(row.arguments, f"arguments of operation {row.name!r}")
            spec.arguments.load(arguments)
        except Exception as error:  # noqa: BLE001  a validator of the user's may raise anything
            return self._unread(row, reason_of(error))
        return self._of(row, spec, await self._sent(row, spec, arguments, slot, latest))

    def _unread(self, row: OperationRow, reason: str) -> Report:
        """Leave to other workers what the code or the codec here cannot read, as it was."""
        log.warning("operation %s of run %r is left to other workers: %s", row.id, row.run_id, reason)
        self._operations.leave(row)
        detail = json.dumps({"sends": row.sends, "reason": reason}, ensure_ascii=False)
        return replace(self.said(row, ReportKind.UNBEGUN, retry_at=self._engine.store.estimated_now()), detail=detail)

    async def _sent(self, row: OperationRow, spec: OperationSpec, arguments: bytes, slot: _Slot, latest: int) -> Sent:
        """Run the body to its end, or cut it off with the caller."""
        ended: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
        send = Send(
            spec, operation_of(row), arguments, run_of(row), row.seq, contextvars.Context(),
            may_leave=lambda: self._may_leave(latest),
            ended=lambda sent: None if ended.done() else ended.set_result(sent),
            late=lambda sent: self._operations.late(send, row.fence, sent), free=slot.used(),
        )  # fmt: skip
        self._operations.sender.begin(send)
        try:
            return await ended
        finally:
            if send.handle is not None:
                send.handle.cancel()

    def _of(self, row: OperationRow, spec: OperationSpec, sent: Sent) -> Report:
        """Return what is reported; what never left is tried again after a back-off, a first send only so often as its policy has it."""
        from .telling import KINDS

        kind, now = KINDS[sent.ending], self._engine.store.estimated_now()
        body = b"" if kind is ReportKind.NO_ANSWER else sent.body
        if kind is not ReportKind.NOT_SENT:
            return self.said(row, kind, body=body, note=sent.body, applied=sent.applied, retry_at=now)
        tried = row.looks + 1
        return self.said(
            row, kind, body=body, note=sent.body, retry_at=now + spec.retry.delay(tried, self._engine.random01()),
            last=bool(body) and _is_last(spec, sent, tried),
        )  # fmt: skip

    def said(
        self, row: OperationRow, kind: ReportKind, *, body: bytes = b"", note: bytes = b"", applied: bool = False,
        retry_at: int | None = None, why: str = "", may_leave_until: int = 0, last: bool = False,
    ) -> Report:  # fmt: skip
        """Return a report of this worker on an operation that it has claimed."""
        return Report(
            row.namespace, row.id, kind, self._engine.owner.id, row.fence, body, json.dumps({"sends": row.sends}), retry_at, why,
            may_leave_until, note, applied, last,
        )  # fmt: skip


def _is_last(spec: OperationSpec, sent: Sent, tried: int) -> bool:
    """Return whether a send that never left was the last of its attempts."""
    used_up = spec.retry.max_attempts is not None and tried >= spec.retry.max_attempts
    return used_up or sent.ending is Ending.NOT_SENT_LAST or (sent.error is not None and never_again(spec.retry, sent.error))


class _Slot:
    """A slot that is given back once: when the body has ended, or where none has begun."""

    def __init__(self, free: Callable[[], object]) -> None:
        self._free: Callable[[], object] | None = free

    def used(self) -> Callable[[], object]:
        """Return what the body's end calls."""
        assert self._free is not None
        free, self._free = self._free, None
        return free

    def unused(self) -> None:
        """Give it back, unless a body has it."""
        if self._free is not None:
            self.used()()
