"""Runs an operation's body and says how it ended; the outcome of a send is never guessed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Final

from romulus.authoring.current import Attempt, attempt_var
from romulus.authoring.operation import Operation
from romulus.authoring.resource import ResourceSet
from romulus.core.commands import OperationSpec
from romulus.core.errors import DefinitionError, NotSent, OperationRejected, Rejected, RomulusError, SerializationError
from romulus.core.failures import dump_failure
from romulus.core.info import RunInfo
from romulus.core.operations import Ending
from romulus.worker.engine import Engine
from romulus.worker.exiting import Exited

DEAF: Final = 1_000_000  # µs after its timeout within which a body has heard of it
log = logging.getLogger("romulus.worker")


@dataclass(slots=True)
class Sent:
    """How a send ended."""

    ending: Ending
    body: bytes  # sealed: the result, or the failure
    value: Any = None  # decoded again from the body, where it returned
    error: BaseException | None = None
    applied: bool = False  # the provider took it, although its result cannot be stored


@dataclass(slots=True, eq=False)
class Send:
    """One send of an operation: its ID is stored, and it is armed."""

    spec: OperationSpec
    operation: Operation
    arguments: bytes  # plaintext
    run: RunInfo
    seq: int
    context: Context
    may_leave: Callable[[], bool]  # the last check of the lease, right before the body; from any thread
    ended: Callable[[Sent], object]  # once; what comes after a timeout goes to `late`
    late: Callable[[Sent], object]
    free: Callable[[], object]  # once, when nothing of the body runs any more
    handle: Any = None
    told: bool = False
    exchanges: list[dict[str, object]] = field(default_factory=list[dict[str, object]])  # over the wire, redacted


class Sender:
    """Runs bodies: at once where they cannot suspend, as tasks, or in the pool."""

    def __init__(self, engine: Engine, resources: ResourceSet) -> None:
        self._engine, self._resources = engine, resources

    def begin(self, send: Send) -> None:
        """Run the body. Its ending is told in a plain callback, or before this returns."""
        spec = send.spec
        try:
            self._engine.registry.admit_operation(spec)
            args, kwargs = spec.arguments.load(send.arguments)
        except RomulusError as error:  # nothing of it can have left
            known = error
            self._end(send, lambda: self._failed(spec, Ending.NOT_SENT_LAST, known))
            return
        op = send.operation
        token = Attempt(
            send.run, spec.name, send.seq, op.attempt, op.fence, b"", key=op.id, resources=self._resources, keep=send.exchanges.append
        )
        send.context.run(attempt_var.set, token)
        if not spec.is_async:
            self._in_thread(send, args, kwargs)
        elif spec.suspends:
            self._in_task(send, args, kwargs)
        else:
            self._at_once(send, args, kwargs)

    # ---- the ways a body runs --------------------------------------------------------------------

    def _at_once(self, send: Send, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            self._check(send)
            value = send.context.run(_drive, send.spec, send.operation, args, kwargs)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  a body may raise anything, CancelledError too
            raised = error
            self._end(send, lambda: self.judge(send.spec, raised))
        else:
            self._end(send, lambda: self.returned(send.spec, value))

    def _in_task(self, send: Send, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run an `async def` body. One that goes on although its timeout has cancelled it is late evidence, as a thread is."""
        spec, host = send.spec, self._engine.host
        task = host.spawn(self._await(send, args, kwargs), context=send.context, name=f"{send.run.id}/{spec.name}")
        send.handle = task
        timer = host.call_later(spec.timeout + DEAF, lambda: self._tell(send, lambda: self.judge(spec, _Late(late_text(spec)))))

        def done(finished: asyncio.Future[Any]) -> None:
            timer.cancel()
            self._end(send, lambda: self._of(spec, finished))

        task.add_done_callback(done)

    def _in_thread(self, send: Send, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run a `def` body in the pool. A thread cannot be stopped: past its timeout what it comes to is late evidence."""
        spec = send.spec

        def body() -> Any:
            self._check(send)
            return send.context.run(spec.fn, send.operation, *args, **kwargs)

        future = self._engine.host.in_pool(body)
        timer = self._engine.host.call_later(spec.timeout, lambda: self._tell(send, lambda: self.judge(spec, _Late(late_text(spec)))))

        def done(finished: asyncio.Future[Any]) -> None:
            timer.cancel()
            self._end(send, lambda: self._of(spec, finished))

        future.add_done_callback(done)

    def _check(self, send: Send) -> None:
        """Look once more, right before the body: it may have waited for a thread until its timeout, or past its lease."""
        if send.told or not send.may_leave():
            raise _Unbegun
        self._engine.host.crash_point("operation.send")

    async def _await(self, send: Send, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scope = asyncio.timeout(send.spec.timeout / 1_000_000)
        try:
            async with scope:
                self._check(send)
                return await send.spec.fn(send.operation, *args, **kwargs)
        except SystemExit as error:
            return Exited(error)
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise _Late(late_text(send.spec)) from error

    # ---- how it ended ----------------------------------------------------------------------------

    def _of(self, spec: OperationSpec, done: asyncio.Future[Any]) -> Sent:
        if done.cancelled():
            return self.judge(spec, asyncio.CancelledError("cancelled while it was sent"))
        error = done.exception()
        if error is not None:
            return self.judge(spec, error)
        value = done.result()
        return self.judge(spec, value.error) if isinstance(value, Exited) else self.returned(spec, value)

    def _end(self, send: Send, make: Callable[[], Sent]) -> None:
        send.free()
        if send.told:
            self._sealed(send, make, send.late)
        else:
            self._tell(send, make)

    def _tell(self, send: Send, make: Callable[[], Sent]) -> None:
        send.told = True
        if send.exchanges:
            self._engine.operations.exchanged(send)
        self._sealed(send, make, send.ended)

    def _sealed(self, send: Send, make: Callable[[], Sent], tell: Callable[[Sent], object], warned: bool = False) -> None:
        """Tell how a send ended. While the App's codec fails it is kept in hand and tried again: nobody else knows it."""
        engine = self._engine
        if warned and engine.operations.over:
            return
        try:
            sent = make()
        except SerializationError as error:
            if not warned:
                log.warning("how operation %s of run %r ended waits to be stored: %s", send.operation.id, send.run.id, error)
            engine.host.call_later(engine.settings.poll, self._sealed, send, make, tell, True)
        else:
            tell(sent)

    def returned(self, spec: OperationSpec, value: object) -> Sent:
        """Return the success with *value*; one that cannot be stored leaves open what the result is, not whether it was applied.

        Raises:
            SerializationError: the App's codec fails at present; so does `judge`.
        """
        vault = self._engine.registry.vault
        try:
            plain, again = spec.value.dump(value)
            return Sent(Ending.RETURNED, vault.seal(plain, f"the result of operation {spec.name!r}"), again)
        except (SerializationError, DefinitionError) as error:
            if not vault.works():
                raise SerializationError(str(error)) from error
            sent = self._failed(spec, Ending.RAISED, error)
            sent.applied = True
            return sent

    def judge(self, spec: OperationSpec, error: BaseException) -> Sent:
        """Return what a body that raised *error* comes to: definite only where it says so."""
        match error:
            case Rejected():
                refused = OperationRejected(str(error))
                refused.__cause__ = error
                return self._failed(spec, Ending.REJECTED, refused)
            case NotSent():
                return self._failed(spec, Ending.NOT_SENT, error)
            case _Unbegun():
                return Sent(Ending.UNBEGUN, b"", error=error)
            case _Late():
                return self._failed(spec, Ending.TIMEOUT, TimeoutError(str(error)))
            case asyncio.CancelledError():
                return self._failed(spec, Ending.CANCELLED, error)
            case _:
                return self._failed(spec, Ending.RAISED, error)

    def _failed(self, spec: OperationSpec, ending: Ending, error: BaseException) -> Sent:
        body = self._engine.registry.vault.seal_failure(dump_failure(error), f"the failure of operation {spec.name!r}")
        return Sent(ending, body, error=error)


class _Late(Exception):
    """A send ran past its timeout."""


class _Unbegun(Exception):
    """The body was not begun: its claim may be over by now, or its outcome is told."""


def late_text(spec: OperationSpec) -> str:
    """Return the words of a timeout."""
    return f"operation {spec.name!r} ran past its timeout of {spec.timeout / 1_000_000:g} s"


def _drive(spec: OperationSpec, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a coroutine that never suspends."""
    coroutine = spec.fn(operation, *args, **kwargs)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError(f"operation {spec.name!r} suspended although its code has no await")
