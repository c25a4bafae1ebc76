"""Transactional steps: the step's own writes, its outcome and the check of the claim are one transaction of the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any

from romulus.core.attempts import uncounted
from romulus.core.commands import StepCall
from romulus.core.errors import CommitUnknown, DefinitionError, SerializationError, StepTimeout, StoreUnavailable
from romulus.core.ports import Host
from romulus.core.record import HoldKind
from romulus.core.transition import Transition, Verdict
from romulus.store.contract import BatchRejected, Transaction, body_limit

from .engine import Engine, Outcome, TryAgain, Work
from .loader import in_callback
from .patience import ALWAYS, patient

if TYPE_CHECKING:
    from .draft import Draft
    from .driver import RunDriver

log = logging.getLogger("romulus.worker")


class Transactional:
    """Runs bodies that write through the store's own connection.

    When the body has ended, the step takes the run's in-flight slot, the run is advanced, and its guarded transition is
    written as the last statements before COMMIT. A refused or failed commit undoes the body's writes as well, and the
    instance, which has seen an outcome that is not recorded, is rebuilt by replay.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, work: Work, call: StepCall, context: Context) -> None:
        """Start a transactional attempt."""
        task = self._engine.host.spawn(self._run(work, call, context), name=f"{work.driver.run.id}/{call.spec.name}")
        task.add_done_callback(lambda _: self._ended(work))
        work.handle = task

    async def _run(self, work: Work, call: StepCall, context: Context) -> None:
        """Take the run's in-flight slot, then the store's writer; withdrawn before its body began, give back what it has."""
        slot = _Slot(self._engine.host, work.driver)
        try:
            await slot.taken()
            if not work.driver.gone and not work.withdrawn:
                await self._transact(work, call, context)
                return
        except asyncio.CancelledError:
            pass  # nobody waits for the outcome any more
        except Exception:
            log.exception("transactional step %r of run %r could not be ended: the run is taken anew", call.spec.name, work.run_id)
            self._engine.host.call_soon(work.driver.undone)
            return
        slot.give_back()

    def _ended(self, work: Work) -> None:
        """Give back the slot of an attempt that was withdrawn before its body began, perhaps before its task did."""
        if work in self._engine.executor.running:
            self._engine.executor.finish(work)

    async def _transact(self, work: Work, call: StepCall, context: Context) -> None:
        engine = self._engine
        transaction = await patient(engine.host, engine.settings.poll, engine.store.transaction, surprises=ALWAYS)
        try:
            engine.executor.equip(work, context, transaction.connection)
            value = await self._body(work, call, context)
            await transaction.ready()
        except BaseException as error:  # noqa: BLE001  handed on, whatever it is
            await self._undone(work, transaction, partial(engine.executor.raised, work, error))
            return
        try:
            outcome = self._outcome(work, call, value)
        except (SerializationError, DefinitionError) as error:
            await self._undone(work, transaction, partial(engine.executor.unstorable, work, error))
            return
        await self._finish(work, transaction, outcome)

    async def _undone(self, work: Work, transaction: Transaction, tell: Callable[[], object]) -> None:
        """Undo what the body wrote; hand its failure on, and the in-flight slot back, in a plain callback."""
        undone, driver = await transaction.rollback(), work.driver

        def told() -> None:
            driver.in_flight = None
            if undone:
                tell()
            else:
                self._hold(work)
            driver.turn()

        self._engine.host.call_soon(told)

    def _hold(self, work: Work) -> None:
        """Hold a run whose step may have committed something by itself: nothing says whether another attempt would write that again."""
        if self._engine.executor.finish(work) or work.driver.gone:
            return
        command, now = work.command, self._engine.store.estimated_now()
        row = uncounted(work.row, command.seq, command.digest.hex(), work.number, now, name=command.name)
        work.driver.queue.append(TryAgain(work, row))
        work.driver.hold(HoldKind.POISON, (
            f"attempt {work.number} of step {command.name!r} ended its transaction itself, so what it wrote may be committed without "
            "its outcome. Leave BEGIN, COMMIT and ROLLBACK to the engine; look at what it wrote, then release the run to try the step "
            "again, or cancel it"
        ))  # fmt: skip

    async def _body(self, work: Work, call: StepCall, context: Context) -> Any:
        """Run the body within the bound that keeps the store's writer free for lease renewals."""
        spec, limit = call.spec, body_limit(self._engine.settings.lease)
        seconds = min(spec.timeout or limit, limit) / 1_000_000
        args, kwargs = spec.arguments.load(call.arguments)
        scope = asyncio.timeout(seconds)
        try:
            async with scope:
                if spec.is_async:
                    return await self._engine.host.spawn(spec.fn(*args, **kwargs), context=context)
                return await self._engine.host.in_pool(lambda: context.run(spec.fn, *args, **kwargs))
        except TimeoutError as error:
            if not scope.expired():
                raise
            work.token.cancelled = True  # a thread goes on: its connection is taken away
            raise StepTimeout(
                f"attempt {work.number} of step {spec.name!r} ran past its timeout of {seconds:g} s", "StepTimeout"
            ) from error

    async def _finish(self, work: Work, transaction: Transaction, outcome: Outcome) -> None:
        """Advance the run with the outcome and commit both. From here on nothing cancels it: the transaction must end."""
        work.handle = None
        driver = work.driver
        self._engine.executor.finish(work)
        made = await in_callback(self._engine.host, lambda: None if work.withdrawn or driver.gone else driver.advance_with(outcome))
        if made is None:
            await transaction.rollback()
            self._engine.host.call_soon(work.driver.unreserve)
            return
        draft, transition = made
        await self._commit(work, transaction, draft, transition)

    def _outcome(self, work: Work, call: StepCall, value: object) -> Outcome:
        plain, again = call.spec.value.dump(value)
        return Outcome(work, False, self._engine.registry.vault.seal(plain, f"the result of step {call.spec.name!r}"), again)

    async def _commit(self, work: Work, transaction: Transaction, draft: Draft, transition: Transition) -> None:
        host, driver = self._engine.host, work.driver
        try:
            applied = await transaction.commit(transition) is Verdict.APPLIED
        except CommitUnknown:
            applied = False  # or not known: resubmitting it alone would record an outcome without the step's own writes
        except (StoreUnavailable, BatchRejected) as error:
            host.call_soon(self._failed, work, error.__cause__ or error)
            return
        if applied:
            host.call_soon(driver.answered, draft, transition, Verdict.APPLIED)
        else:
            host.call_soon(driver.undone)

    def _failed(self, work: Work, error: BaseException) -> None:
        """Nothing was committed: that is how the attempt failed, and the run, which has seen its outcome, is rebuilt with it."""
        driver = work.driver
        if not driver.gone:
            driver.armed[work.command.seq] = work  # as the record has it
            self._engine.executor.failed(work, error)
            driver.undone()


class _Slot:
    """A transactional step's place in its run's in-flight slot."""

    def __init__(self, host: Host, driver: RunDriver) -> None:
        self._host, self._driver = host, driver
        self._granted, self._unwanted = asyncio.Event(), False
        host.call_soon(driver.reserve, self._grant)

    async def taken(self) -> None:
        """Wait until no transition of the run is in flight and none can be."""
        await self._granted.wait()

    def give_back(self) -> None:
        """Let the run go on without the step, now or as soon as the slot would be granted."""
        self._unwanted = True
        if self._granted.is_set():
            self._host.call_soon(self._driver.unreserve)

    def _grant(self) -> None:
        self._granted.set()
        if self._unwanted:
            self._host.call_soon(self._driver.unreserve)
