"""`AsyncClient`: start runs, find them, send events, from asyncio code."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, ParamSpec, Self, TypeVar, overload

from romulus.authoring.checks import check_name, check_run_id, check_workflow
from romulus.authoring.workflow import AnyWorkflow, check_attributes
from romulus.core.duration import instant
from romulus.core.errors import ConfigurationError, SerializationError
from romulus.core.machine import RunStatus
from romulus.core.record import Run
from romulus.core.transition import Existing
from romulus.core.values import dump_untyped
from romulus.store.contract import RunFilter

from . import operations, sending
from .handle import AsyncHandle
from .link import Application, Link, Session
from .operations import Resolution
from .records import EventReceipt, EventRecord, OperationDescription, OperationRecord, Page, RunDescription, WaitRecord, WorkerRecord
from .source import Source
from .starting import SEED_BITS, StartRequest, newest
from .views import Served, event_view, failure_line, run_view, wait_view, worker_view

P = ParamSpec("P")
T = TypeVar("T")
LIMIT_MAX = 1_000  # items of one page


class AsyncClient(AbstractAsyncContextManager["AsyncClient"]):
    """A client of one store and namespace.

    Args:
        store: a store URL, or an App, whose store (shared on the same loop), namespace and code it then uses.
        namespace: "default" for a URL, the App's for an App, unless given.

    The store is opened by `async with`, or at the first call.
    """

    def __init__(self, store: str | Application, *, namespace: str | None = None) -> None:
        if isinstance(store, str):
            self._link = Link(Session(Source(store)), check_name(namespace or "default", "namespace"))
        else:
            self._link = Link(Session(store.source), check_name(namespace or store.namespace, "namespace"), store.registry)

    async def __aenter__(self) -> Self:
        await self._link.session.opened()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give the store back. Idempotent."""
        await self._link.session.close()

    def using(self, connection: Any, /) -> AsyncClient:
        """Return a client whose starts and events are part of the caller's open transaction on *connection*.

        The handle of such a start is an ordinary one: it finds the run once the caller has committed.

        Raises:
            ConfigurationError: *connection* is None; or, at its first use, not one of this store.
        """
        if connection is None:
            raise ConfigurationError("client.using(None) would write outside of every transaction: give the connection that has yours open")
        client = object.__new__(AsyncClient)
        client._link = self._link.using(connection)
        return client

    async def start(self, workflow: AnyWorkflow[P, T], /, *args: P.args, **kwargs: P.kwargs) -> AsyncHandle[T]:
        """Start a run of *workflow*, or return the one that its ID names if it was started alike.

        Raises:
            RunConflict: the ID belongs to another workflow or other arguments; nothing was changed.
            TypeError: the arguments do not fit. SerializationError: one cannot be stored and restored unchanged.
        """
        spec, options = check_workflow(workflow).spec, workflow.start_options
        request = StartRequest(
            id=await self._id(options.id), workflow=spec.name, version=workflow.version,
            arguments=spec.arguments.dump(args, dict(kwargs)), priority=options.priority, delay=options.delay,
            start_at=options.start_at, timeout=spec.timeout if options.timeout is None else options.timeout,
            attributes=_json(options.attributes),
        )  # fmt: skip
        await self._start(request)
        return AsyncHandle(self._link.outside(), request.id, spec)

    async def start_by_name(
        self, workflow: str, arguments: Sequence[object] | Mapping[str, object] = (), *,
        id: str | None = None,  # noqa: A002 - as `.options(id=)`
        version: str | None = None,
    ) -> AsyncHandle[Any]:  # fmt: skip
        """Start a run of the workflow named *workflow*; its code need not be here.

        Args:
            arguments: JSON-like values by name; in order only where the client has the App.
            version: unless given the newest that the App has, or that live workers serve, else "1".

        Raises:
            RunConflict, SerializationError: as `start`. TypeError: where the App is here and the arguments do not fit.
        """
        check_name(workflow, "workflow name")
        chosen = check_name(version, "workflow version") if version is not None else await self._newest(workflow)
        plain = self._arguments(workflow, chosen, arguments)
        known = self._link.reader.workflow(workflow, chosen)
        request = StartRequest(await self._id(id), workflow, chosen, plain, timeout=known.timeout if known else None)
        await self._start(request)
        return AsyncHandle(self._link.outside(), request.id, known)

    async def send_event(self, name: str, payload: object = None, *, correlation_id: str, event_id: str | None = None) -> EventReceipt:
        """Store an event for a wait of this name and correlation ID, open now or later.

        Args:
            payload: any JSON-able value.
            event_id: sending it again with the same body stores nothing and says `duplicate`; a new one unless given.

        Raises:
            EventConflict: the event ID was used with another body. SerializationError: the payload is no JSON.
            TooManyEvents: 10,000 events of this name and correlation ID wait already.
        """
        return await sending.send_event(self._link, name, payload, correlation_id, event_id)

    @overload
    def get(self, run_id: str, /) -> AsyncHandle[Any]: ...
    @overload
    def get(self, run_id: str, /, workflow: AnyWorkflow[..., T]) -> AsyncHandle[T]: ...
    def get(self, run_id: str, /, workflow: AnyWorkflow[..., Any] | None = None) -> AsyncHandle[Any]:
        """Return a handle on the run with this ID; nothing is read until it is used."""
        return AsyncHandle(self._link, run_id, workflow.spec if workflow else None)

    async def runs(
        self, *, workflow: str | None = None, status: RunStatus | None = None, attributes: Mapping[str, str | int | bool] | None = None,
        since: datetime | None = None, until: datetime | None = None, after: str | None = None, limit: int = 100,
    ) -> Page[RunDescription]:  # fmt: skip
        """Return a page of runs in creation order; walking the pages shows each run once, however many come or change meanwhile.

        Args:
            since, until: created at or after, created before; timezone-aware.
            after: `.next` of the page before. limit: items at most, up to 1,000.
        """
        where = RunFilter(
            self._link.namespace, None if workflow is None else check_name(workflow, "workflow name"), _status(status),
            check_attributes(attributes or {}),
            None if since is None else instant(since, "since"), None if until is None else instant(until, "until"),
        )  # fmt: skip
        listed = await (await self._link.store()).runs(where, after, _limit(limit))
        served = await self._link.served()
        return Page([await self._listed(run, served) for run in listed.items], listed.next)

    async def events(self, *, matched: bool | None = None, after: str | None = None, limit: int = 100) -> Page[EventRecord]:
        """Return a page of stored events in arrival order; *matched*: False those no wait has taken, True the others."""
        if matched is not None and not isinstance(matched, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"matched is {matched!r}; use True, False or None")
        listed = await (await self._link.store()).events(self._link.namespace, matched, after, _limit(limit))
        return Page([event_view(event, self._link.reader) for event in listed.items], listed.next)

    async def waits(self, *, after: str | None = None, limit: int = 100) -> Page[WaitRecord]:
        """Return a page of open waits, oldest first."""
        listed = await (await self._link.store()).waits(self._link.namespace, after, _limit(limit))
        return Page([wait_view(wait) for wait in listed.items], listed.next)

    async def operations(self, *, state: str | None = None, after: str | None = None, limit: int = 100) -> Page[OperationRecord]:
        """Return a page of operations in the order they were recorded, those of ended runs too; *state* as `OperationRecord` has it."""
        return await operations.listed(self._link, state, after, _limit(limit))

    async def operation(self, id: str, /) -> OperationDescription:  # noqa: A002 - as elsewhere
        """Return an operation with its arguments and its history.

        Raises:
            OperationNotFound
        """
        return await operations.shown(self._link, id)

    async def resolve_operation(
        self, id: str, resolution: Resolution, *, reason: str, reviewer: str  # noqa: A002 - as elsewhere
    ) -> OperationRecord:  # fmt: skip
        """Settle an operation whose outcome only a person can find out.

        `Applied(value)` records the result; `NotApplied()` has it sent again under the same ID; `GiveUp()` raises `OperationAbandoned` in
        the workflow. Who says so, and why, is kept in the operation's history.

        Raises:
            OperationNotFound. OperationConflict: it is settled already, or may be sent this very moment; nothing was changed.
            SerializationError: the value is not what the operation returns.
            ConfigurationError: `Applied` from a client without the App: the value cannot be checked.
        """
        return await operations.resolve(self._link, id, resolution, reason, reviewer)

    async def receive_callback(self, source: str, headers: Mapping[str, str], body: bytes, *, secret: str) -> OperationRecord:
        """Take a provider's callback: verify its Standard Webhooks signature, have the operation bound to *source* read it, keep it.

        One that says "applied" settles an operation whose outcome is open; any other is evidence and changes nothing.

        Args:
            body: the bytes as they came: the signature covers them. secret: shared with the provider, as `whsec_…`.

        Raises:
            CallbackRefused: the signature does not fit, or the message is old.
            OperationNotFound; OperationConflict: it speaks of an operation that *source* is not bound to.
            DefinitionError: no operation here has a callback for *source*.
        """
        return await operations.received(self._link, source, headers, body, secret)

    async def workers(self) -> Page[WorkerRecord]:
        """Return the registered workers of the namespace."""
        rows = await (await self._link.store()).workers(self._link.namespace)
        return Page([worker_view(row) for row in rows])

    async def _listed(self, run: Run, served: Served) -> RunDescription:
        """Describe one row of a listing; why it failed stands in its generation, so that is read for failed ones only."""
        if run.status is not RunStatus.FAILED:
            return run_view(run, served)
        record = await (await self._link.store()).record(run.namespace, run.id)
        return run_view(run, served, error=failure_line(record.generation, self._link.reader) if record else None)

    async def _start(self, request: StartRequest) -> None:
        new = request.new_run(self._link.namespace, await self._link.random_bits(SEED_BITS), self._link.vault)
        (answer,) = await (await self._link.store()).start([new])
        if isinstance(answer, Existing):
            request.check_same(answer)

    async def _id(self, given: str | None) -> str:
        return check_run_id(given) if given is not None else str(uuid.UUID(int=await self._link.random_bits(128), version=4))

    async def _newest(self, workflow: str) -> str:
        registry = self._link.registry
        here = [version for name, version in registry.workflows if name == workflow] if registry else []
        return newest(here or (await self._link.served()).versions(workflow))

    def _arguments(self, workflow: str, version: str, arguments: Sequence[object] | Mapping[str, object]) -> bytes:
        known = self._link.reader.workflow(workflow, version)
        if known is not None:
            return known.arguments.dump_plain(arguments)
        if isinstance(arguments, Mapping):
            return dump_untyped(arguments)
        if arguments:
            raise SerializationError(f"arguments of workflow {workflow!r} need their names where its code is not here: give a mapping")
        return dump_untyped({})


def _limit(limit: int) -> int:
    if not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"limit is {limit!r}; use 1 to {LIMIT_MAX}")
    return limit


def _status(status: RunStatus | None) -> RunStatus | None:
    try:
        return None if status is None else RunStatus(status)
    except ValueError:
        raise ConfigurationError(f"{status!r} is no status of a run; there are {', '.join(RunStatus)}") from None


def _json(attributes: Mapping[str, str | int | bool]) -> str:
    return json.dumps(dict(attributes), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
