"""What a worker does about operations beside its runs' transitions: late results become reports, unknown ones are settled."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from romulus.authoring.resource import ResourceSet
from romulus.core.machine import Change, RunStatus, after
from romulus.core.operations import Decided, Ending, OperationRow, Report, ReportKind, decide
from romulus.core.record import Entry, Kind
from romulus.core.transition import Transition
from romulus.store.contract import OperationsServed
from romulus.worker.aside import Aside
from romulus.worker.ending import end
from romulus.worker.engine import Engine, OperationEnded
from romulus.worker.patience import SURPRISES_MAX, patient

from .queue import PoolQueue
from .sending import Send, Sender, Sent
from .settling import Settler
from .unserved import served_by
from .working import within

if TYPE_CHECKING:
    from romulus.worker.driver import RunDriver

UNREAD_DIVISOR: Final = 4  # of an operation's age: after so much of it one that could not be read is looked at again
TRIES: Final = 25  # to cancel a body that goes on, for five seconds in all
log = logging.getLogger("romulus.worker")
REOPENED: Final = after(RunStatus.HELD, Change.RELEASE)
KINDS: Final = {
    Ending.RETURNED: ReportKind.SENT,
    Ending.REJECTED: ReportKind.REJECTED,
    Ending.NOT_SENT: ReportKind.NOT_SENT,
    Ending.NOT_SENT_LAST: ReportKind.NOT_SENT,
    Ending.RAISED: ReportKind.NO_ANSWER,
    Ending.TIMEOUT: ReportKind.NO_ANSWER,
    Ending.CANCELLED: ReportKind.NO_ANSWER,
    Ending.UNBEGUN: ReportKind.UNBEGUN,
}


class Operations:
    """A worker's sender, its settler, its pools' queue, and its reports."""

    def __init__(self, engine: Engine, resources: ResourceSet) -> None:
        self._engine, self.resources = engine, resources
        self.sender = Sender(engine, resources)
        self.aside = Aside()
        served = served_by(engine.registry)
        serves = OperationsServed(engine.owner.pools, tuple(name for name, _ in served), tuple(name for name, looks in served if looks))
        self.settler = Settler(engine, self, serves)
        self.queue = PoolQueue(engine, self, serves)
        self._tasks: set[asyncio.Task[None]] = set()
        self.over = False  # nothing is reported any more

    def start(self) -> None:
        """Begin to settle what is unknown, and to send what is queued in the worker's pools."""
        self.settler.start()
        self.queue.start()

    async def stop(self) -> None:
        """Settle nothing more; what is being sent may end, and what is to be reported be stored, within the usual grace."""
        grace = self._engine.settings.grace
        await asyncio.gather(self.settler.stop(grace), self.queue.stop(grace))
        await self._sends_ended(self._engine.settings.grace)
        await within(self._engine.host, self._engine.settings.lease, self._tasks)
        await self.crash()

    async def _sends_ended(self, grace: int) -> None:
        """Let sends end that no run waits for any more, within *grace* µs; then cut them off."""
        handles: list[Any] = [work.handle for work in self._engine.executor.running]
        tasks: list[asyncio.Task[None]] = [handle for handle in handles if isinstance(handle, asyncio.Task)]
        await within(self._engine.host, grace, tasks)
        for deaf in await end(tasks, tries=TRIES):
            log.warning("%s goes on although it was cancelled %d times: the worker stops without it", deaf.get_name(), TRIES)

    async def crash(self) -> None:
        """Stop without a word."""
        self.over = True
        await asyncio.gather(self.settler.stop(), self.queue.stop())
        await end(self._tasks)

    def serves(self, served: OperationsServed) -> OperationsServed:
        """Return what of *served* is claimed now: nothing that could not be read here a moment ago."""
        aside = self.aside.keys(self._engine.host.monotonic())
        return replace(served, names=self.aside.other_steps(served.names), aside=aside)

    def leave(self, row: OperationRow) -> None:
        """Leave an operation that cannot be read here to others for a while, the longer it is there."""
        engine, settings = self._engine, self._engine.settings
        age = engine.store.estimated_now() - row.created_at
        pause = max(min(age // UNREAD_DIVISOR, settings.code_patience), settings.unread_pause)
        self.aside.put(row.key, row.name, engine.host.monotonic() + pause)

    async def report(self, report: Report) -> Decided | None:
        """Store a report, for certain; return what it made of the operation."""
        engine = self._engine
        told = partial(engine.store.report, [report], decide, REOPENED)
        (decided,) = await patient(engine.host, engine.settings.poll, told, surprises=SURPRISES_MAX)
        if decided is not None and decided.row.due is not None:
            self.settler.due_at(decided.row.due)
            self.queue.poke()
        return decided

    def late(self, send: Send, fence: int, sent: Sent) -> None:
        """Report how a send ended that its run no longer waits for."""
        kind = KINDS[sent.ending]
        body = b"" if kind is ReportKind.NO_ANSWER else sent.body
        who = self._engine.owner.id
        self._spawn(Report(send.run.namespace, send.operation.id, kind, who, fence, body, note=sent.body, applied=sent.applied))

    def exchanged(self, send: Send) -> None:
        """Keep what went over the wire for a send."""
        detail = json.dumps({"attempt": send.operation.attempt, "exchanges": send.exchanges}, default=str)
        self._spawn(Report(send.run.namespace, send.operation.id, ReportKind.EXCHANGE, self._engine.owner.id, detail=detail))

    def salvage(self, driver: RunDriver, refused: Transition | None) -> None:
        """Report the outcomes that a driver about to be dropped has in hand: of its refused transition, and queued behind it."""
        for delivery in driver.queue:
            if isinstance(delivery, OperationEnded) and delivery.report is not None:
                delivery.report()
        if refused is not None:
            own = {mark.seq for mark in refused.marks}
            for entry in refused.entries:
                if entry.kind == Kind.OPERATION and entry.seq in own:
                    self._spawn(_of_entry(driver, refused, entry))

    def _spawn(self, report: Report) -> None:
        if not self.over:
            task = self._engine.host.spawn(self._spawned(report), name=f"report {report.id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _spawned(self, report: Report) -> None:
        """Store a report that nobody waits for. An operation whose outcome cannot be stored is given up: nobody else would settle it."""
        try:
            await self.report(report)
        except Exception:
            log.exception("what is to be reported of operation %s cannot be stored", report.id)
            if report.kind is not ReportKind.EXCHANGE:
                self._engine.owner.doubt()


def _of_entry(driver: RunDriver, refused: Transition, entry: Entry) -> Report:
    """Return the report of an outcome that its run's transition could not record."""
    from .arming import id_in

    kind = ReportKind.SENT
    if entry.failed:
        kind = ReportKind.REJECTED if id_in(entry)[1] == "rejected" else ReportKind.NOT_SENT
    return Report(driver.run.namespace, id_in(entry)[0], kind, refused.owner, refused.fence, entry.body)
