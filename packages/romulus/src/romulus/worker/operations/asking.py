"""Lookups: the provider is asked what became of an operation, and whatever the answer is becomes a report."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from romulus.authoring.current import Attempt, attempt_var
from romulus.authoring.operation import Operation
from romulus.authoring.resource import ResourceSet
from romulus.core.commands import OperationSpec
from romulus.core.duration import to_datetime
from romulus.core.errors import RomulusError, SerializationError
from romulus.core.failures import describe_failure, dump_failure
from romulus.core.info import RunInfo
from romulus.core.operations import (
    WHY_MAX_CHARS,
    Applied,
    NotApplied,
    OperationRow,
    Report,
    ReportKind,
    Step,
    Unknown,
    after_silence,
    why_stuck,
)
from romulus.core.text import escaped
from romulus.worker.aside import reason_of
from romulus.worker.ending import end
from romulus.worker.engine import Engine
from romulus.worker.exiting import Exited
from romulus.worker.pause import pause

K = ReportKind
log = logging.getLogger("romulus.worker")


def operation_of(row: OperationRow) -> Operation:
    """Return what the user's functions are handed of *row*."""
    first = None if row.first_sent_at is None else to_datetime(row.first_sent_at)
    return Operation(row.id, max(row.sends, 1), row.fence, first)


def run_of(row: OperationRow) -> RunInfo:
    """Return what is known of the run of *row*."""
    return RunInfo(row.run_id, row.workflow, row.version, to_datetime(row.created_at), row.namespace, 0)


class Asker:
    """Runs lookups."""

    def __init__(self, engine: Engine, resources: ResourceSet) -> None:
        self._engine, self._resources = engine, resources

    async def ask(self, row: OperationRow, spec: OperationSpec) -> Report:
        """Return what the provider says of *row*. While the App's codec fails it is not asked, or asked again: nothing could be kept.

        Never raises, but when it is cancelled.
        """
        engine, warned = self._engine, False
        while True:
            try:
                return await self._asked(row, spec)
            except _CodecFails as error:
                if not warned:
                    log.warning("operation %s of run %r waits to be looked up: %s", row.id, row.run_id, error)
                warned = True
                await pause(engine.host, engine.settings.poll)

    async def _asked(self, row: OperationRow, spec: OperationSpec) -> Report:
        try:
            plain = self._engine.registry.vault.open(row.arguments, f"arguments of operation {row.name!r}")
            args, kwargs = spec.arguments.load(plain)
        except Exception as error:  # noqa: BLE001  a validator of the user's may raise anything
            self._check_codec(error)
            self._engine.operations.leave(row)  # others may have other code, or the key
            who = self._engine.owner.id
            return self.silence(row, spec, f"its lookup cannot be called by worker {who}: {reason_of(error)}")
        answer = await self._call(row, spec, args, kwargs)
        return self.silence(row, spec, answer.why, answer.failure) if isinstance(answer, _NoAnswer) else self._answered(row, spec, answer)

    def _check_codec(self, error: Exception) -> None:
        if not self._engine.registry.vault.works():
            raise _CodecFails(str(error)) from error

    async def _call(self, row: OperationRow, spec: OperationSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the lookup returns within the time one send may take, else why that is no answer: it may do anything."""
        lookup: Any = spec.extras.lookup
        context = contextvars.Context()
        token = Attempt(run_of(row), spec.name, row.seq, row.sends, row.fence, b"", key=row.id, resources=self._resources)
        context.run(attempt_var.set, token)
        asked: Any
        if inspect.iscoroutinefunction(lookup):
            called = _contained(lookup(operation_of(row), *args, **kwargs))
            asked = self._engine.host.spawn(called, context=context, name=f"{row.run_id}/{spec.name} lookup")
        else:
            asked = self._engine.host.in_pool(lambda: context.run(lookup, operation_of(row), *args, **kwargs))
        seconds = row.protocol.timeout / 1_000_000
        try:
            await asyncio.wait([asked], timeout=seconds)
        except asyncio.CancelledError:  # the worker stops
            await end([asked])
            raise
        if not asked.done():
            asked.cancel()
            return _NoAnswer(f"its lookup ran past the {seconds:g} s that a send may take")
        return _heard(asked)

    def _answered(self, row: OperationRow, spec: OperationSpec, answer: Any) -> Report:
        match answer:
            case Applied(value):  # pyright: ignore[reportUnknownVariableType]  # whatever it is
                return self._applied(row, spec, value)
            case NotApplied():
                left = spec.retry.max_attempts is None or row.sends < spec.retry.max_attempts
                return self._report(row, K.LOOKED_ABSENT, retry_at=self._engine.store.estimated_now() if left else None)
            case Unknown():
                return self.silence(row, spec, f"its lookup cannot tell: {answer.words}")
            case _:
                given = type(answer).__name__
                return self._report(row, K.LOOKED_WRONG, why=f"its lookup returned {given}, not Applied, NotApplied or Unknown")

    def _applied(self, row: OperationRow, spec: OperationSpec, value: Any) -> Report:
        try:
            body = self._engine.registry.vault.seal(spec.value.dump(value)[0], f"the result of operation {row.name!r}")
        except RomulusError as error:
            self._check_codec(error)
            why = f"its lookup says applied, with what is no result of it ({type(value).__name__}): {error}"
            return self._report(row, K.LOOKED_WRONG, why=why, applied=True)
        return self._report(row, K.LOOKED_APPLIED, body=body)

    def silence(self, row: OperationRow, spec: OperationSpec, why: str, failure: bytes = b"") -> Report:
        """Return what follows where no answer came: another lookup later, a send under the key, or a person."""
        engine, retry = self._engine, spec.lookup_retry
        now, looks, why = engine.store.estimated_now(), row.looks + 1, why[:WHY_MAX_CHARS]
        note = self._note(row, failure) if failure else b""
        if retry.max_attempts is None or looks < retry.max_attempts:
            return self._report(row, K.LOOKED_UNKNOWN, retry_at=now + retry.delay(looks, engine.random01()), why=why, note=note)
        if after_silence(row, now, spec.retry.max_attempts) is Step.KEY:
            return self._report(row, K.KEY, retry_at=now, why=why, note=note)
        words = f"{why} (asked {looks} times), and {why_stuck(row.protocol, row.sends)}"
        return self._report(row, K.LOOKED_UNKNOWN, why=words, note=note)

    def _note(self, row: OperationRow, failure: bytes) -> bytes:
        try:
            return self._engine.registry.vault.seal_failure(failure, f"the failure of the lookup of operation {row.name!r}")
        except SerializationError as error:
            raise _CodecFails(str(error)) from error

    def _report(self, row: OperationRow, kind: ReportKind, *, why: str = "", **more: Any) -> Report:
        """Return the report; *why*, of which the user's code may have written a part, is for the history and the reason of a hold."""
        said = escaped(why)
        detail = json.dumps({"reason": said}, ensure_ascii=False) if said else "{}"
        return Report(row.namespace, row.id, kind, self._engine.owner.id, row.fence, why=said, detail=detail, **more)


class _CodecFails(Exception):
    """The App's codec fails at present."""


@dataclass(frozen=True, slots=True)
class _NoAnswer:
    """Why a lookup gave none."""

    why: str
    failure: bytes = b""  # what it raised


async def _contained(lookup: Coroutine[Any, Any, Any]) -> Any:
    """Await a lookup, and let it end no more than itself."""
    try:
        return await lookup
    except SystemExit as error:
        return Exited(error)


def _heard(asked: asyncio.Future[Any]) -> Any:
    """Return what a lookup that has ended returned, else what it raised."""
    error: BaseException | None = asyncio.CancelledError() if asked.cancelled() else asked.exception()
    value = asked.result() if error is None else None
    if isinstance(value, Exited):
        error = value.error
    if error is None:
        return value
    failure = dump_failure(error)
    return _NoAnswer(f"its lookup raised {describe_failure(failure)}", failure)
