"""Runs the bodies of armed attempts, and turns how each one ends into its outcome or its next try."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, cast

from romulus.authoring.current import Attempt, attempt_var
from romulus.authoring.resource import ResourceSet
from romulus.core.commands import OperationCall, StepCall, StepSpec
from romulus.core.errors import DefinitionError, SerializationError, StepTimeout, Undecodable, ValueTooLarge
from romulus.core.failures import describe_failure, dump_failure

from .beats import Heartbeat, last_details
from .engine import Body, Engine, Outcome, TryAgain, Work
from .exiting import Exited
from .operations import arming

if TYPE_CHECKING:
    from .transactional import Transactional

log = logging.getLogger("romulus.worker")


class Executor:
    """Begins attempts and withdraws them. Every body runs in a copy of its caller's context."""

    def __init__(self, engine: Engine, resources: ResourceSet, transactional: Transactional) -> None:
        self._engine, self._resources, self._transactional = engine, resources, transactional
        self.running: set[Body] = set()

    def begin(self, work: Body) -> None:
        """Start the body of an attempt whose arming is durable."""
        if isinstance(work.command.detail, OperationCall):
            arming.begin(cast("Work", work))
            return
        call = cast("StepCall", work.command.detail)
        spec = call.spec
        work.begun = True
        context = call.context.copy()
        self.running.add(work)
        try:
            self.equip(work, context)
            self._engine.registry.admit(spec)
        except (DefinitionError, Undecodable) as error:
            self.raised(work, error)
            return
        if spec.transaction:
            self._transactional.begin(cast("Work", work), call, context)
        elif not spec.is_async:
            self._in_thread(work, call, context)
        elif spec.suspends or spec.heartbeat_timeout is not None:
            self._in_task(work, call, context)
        else:
            self._at_once(work, call, context)

    def withdraw(self, work: Body) -> None:
        """Tell an attempt that nobody waits for its outcome any more; its slot comes back when the body has ended."""
        if work.withdrawn:
            return
        work.withdrawn = True
        if not work.begun:
            self._engine.slots.give()
            return
        if isinstance(work.command.detail, OperationCall):
            self._withdraw_operation(cast("Work", work))
            return
        work.token.cancelled = True
        if work.handle is not None:
            work.handle.cancel()

    def _withdraw_operation(self, work: Work) -> None:
        """Let a send go on, which is reported late, unless its claim is lost: then as little as possible may still leave."""
        owner = self._engine.owner
        if work.handle is not None and (owner.stopping or (work.driver.gone and not owner.may_arm())):
            work.handle.cancel()

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return what runs on the loop now."""
        handles: list[Any] = [work.handle for work in self.running]
        return [handle for handle in handles if isinstance(handle, asyncio.Task)]

    def silent(self, work: Body, error: StepTimeout) -> None:
        """End an attempt that sends no heartbeats: its outcome is the timeout."""
        work.silenced = error
        work.token.cancelled = True
        work.handle.cancel()

    def log_held(self, run_id: str, reason: str) -> None:
        """Tell the operator of a run that waits for a person."""
        log.warning("run %r is held: %s", run_id, reason)

    def log_failed(self, run_id: str, failure: bytes) -> None:
        """Tell the operator of a run that failed: whoever started it may not be there any more."""
        try:
            why = describe_failure(self._engine.registry.vault.open(failure, "failure"))
        except Undecodable as error:
            why = f"({error})"
        log.info("run %r failed: %s", run_id, why)

    def log_stuck(self, run_id: str, error: str) -> None:
        """Tell the operator of a run that cannot even be held."""
        log.error("run %r can be neither advanced nor held, it is tried again later: %s", run_id, error)

    def log_long(self, run_id: str, entries: int, limit: int) -> None:
        """Tell the operator of a run whose history grows long."""
        log.warning("run %r has %d journal entries and is held at %d: let its workflow continue_as_new()", run_id, entries, limit)

    def equip(self, work: Body, context: Context, connection: object = None) -> None:
        """Make the attempt known to the body that will run in *context*."""
        command, details = work.command, last_details(self._engine, work)
        work.token = Attempt(
            work.info, command.name, command.seq, work.number, work.fence, work.seed,
            last_heartbeat=details, connection=connection, resources=self._resources, beat=Heartbeat(self._engine, work).beat,
        )  # fmt: skip
        context.run(attempt_var.set, work.token)

    # ---- the ways a body runs --------------------------------------------------------------------

    def _at_once(self, work: Body, call: StepCall, context: Context) -> None:
        """Run a body that cannot suspend to its end, without a task of its own."""
        try:
            value = context.run(_drive, call)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  a body may raise anything, CancelledError too
            self.raised(work, error)
        else:
            self._returned(work, call.spec, value)

    def _in_task(self, work: Body, call: StepCall, context: Context) -> None:
        task = self._engine.host.spawn(_await(call, work), context=context, name=f"{work.run_id}/{call.spec.name}")
        work.handle = task
        task.add_done_callback(lambda done: self._task_done(work, call, done))

    def _in_thread(self, work: Body, call: StepCall, context: Context) -> None:
        """Run a `def` body in the pool. A thread cannot be stopped: past its timeout it keeps its slot until it ends."""
        future = self._engine.host.in_pool(lambda: context.run(_call, call))
        work.handle = _Thread()
        if call.spec.timeout is not None:
            work.handle.timer = self._engine.host.call_later(call.spec.timeout, self._thread_late, work, call)
        future.add_done_callback(lambda done: self._thread_done(work, call, done))

    def _task_done(self, work: Body, call: StepCall, task: asyncio.Future[Any]) -> None:
        if work.silenced is not None:
            self.raised(work, work.silenced)
        elif task.cancelled():
            self.raised(work, asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.raised(work, error)
        elif isinstance(value := task.result(), Exited):
            self.raised(work, value.error)
        else:
            self._returned(work, call.spec, value)

    def _thread_done(self, work: Body, call: StepCall, future: asyncio.Future[Any]) -> None:
        if work.handle.timer is not None:
            work.handle.timer.cancel()
        self._task_done(work, call, future)

    def _thread_late(self, work: Body, call: StepCall) -> None:
        """The body is told; its outcome is the timeout, and no next attempt overlaps its thread."""
        work.token.cancelled = True
        work.silenced = _late(call.spec, work.number)

    # ---- how it ended ----------------------------------------------------------------------------

    def _returned(self, work: Body, spec: StepSpec, value: object) -> None:
        """Encode the value, decode it again, and deliver that: the code only ever sees what the record holds."""
        if self.finish(work):
            return
        try:
            plain, again = spec.value.dump(value)
        except (SerializationError, DefinitionError) as error:
            self._fail(work, error)
            return
        self._sealed(work, lambda: self._result(work, plain, again))

    def unstorable(self, work: Body, error: Exception) -> None:
        """Deliver that what the body returned cannot be stored: another attempt would return no other."""
        if not self.finish(work):
            self._fail(work, error)

    def raised(self, work: Body, error: BaseException) -> None:
        """Decide whether the attempt is tried again; if not, its failure is the outcome."""
        if not self.finish(work):
            self.failed(work, error)

    def failed(self, work: Body, error: BaseException) -> None:
        """Decide the same of an attempt whose slot was given back."""
        self._sealed(work, lambda: self._next(work, error))

    def _next(self, work: Body, error: BaseException) -> Outcome | TryAgain:
        engine, spec = self._engine, cast("StepCall", work.command.detail).spec
        body = engine.registry.vault.seal_failure(dump_failure(error), f"the failure of step {spec.name!r}")
        return work.after(spec.retry, body, error, engine.store.estimated_now(), engine.random01())

    def _result(self, work: Body, plain: bytes, again: object) -> Outcome:
        try:
            return Outcome(work, False, self._engine.registry.vault.seal(plain, f"the result of step {work.command.name!r}"), again)
        except ValueTooLarge as error:
            return self._failure(work, error)

    def _fail(self, work: Body, error: BaseException) -> None:
        self._sealed(work, lambda: self._failure(work, error))

    def _failure(self, work: Body, error: BaseException) -> Outcome:
        body = self._engine.registry.vault.seal_failure(dump_failure(error), f"the failure of step {work.command.name!r}")
        return Outcome(work, True, body, None)

    def _sealed(self, work: Body, make: Callable[[], Outcome | TryAgain], told: bool = False) -> None:
        """Deliver how an attempt ended. While the App's codec fails it is kept in hand and tried again: it may be paid for."""
        if work.over:
            return
        try:
            delivery = make()
        except SerializationError as error:
            if not told:
                log.warning("how step %r of run %r ended waits to be stored: %s", work.command.name, work.run_id, error)
            self._engine.host.call_later(self._engine.settings.poll, self._sealed, work, make, True)
        else:
            work.deliver(delivery)

    def finish(self, work: Body) -> bool:
        """Give the slot back; return whether nobody waits for the outcome."""
        self.running.discard(work)
        self._engine.slots.give()
        return work.withdrawn


class _Thread:
    """A body in the pool: what is known of it besides its future."""

    def __init__(self) -> None:
        self.timer: asyncio.Handle | None = None

    def cancel(self) -> None:
        """A thread cannot be cancelled; its attempt's `cancelled` says so to the body."""


def _late(spec: StepSpec, number: int) -> StepTimeout:
    seconds = (spec.timeout or 0) / 1_000_000
    return StepTimeout(f"attempt {number} of step {spec.name!r} ran past its timeout of {seconds:g} s", "StepTimeout")


def _call(call: StepCall) -> Any:
    args, kwargs = call.spec.arguments.load(call.arguments)
    return call.spec.fn(*args, **kwargs)


def _drive(call: StepCall) -> Any:
    """Run a coroutine that never suspends."""
    coroutine = _call(call)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError(f"step {call.spec.name!r} suspended although its code has no await")


async def _await(call: StepCall, work: Body) -> Any:
    """Await a body within its timeout."""
    try:
        return await (_call(call) if call.spec.timeout is None else _in_time(call, work, call.spec.timeout))
    except SystemExit as error:
        return Exited(error)


async def _in_time(call: StepCall, work: Body, limit: int) -> Any:
    scope = asyncio.timeout(limit / 1_000_000)
    try:
        async with scope:
            return await _call(call)
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise _late(call.spec, work.number) from error
