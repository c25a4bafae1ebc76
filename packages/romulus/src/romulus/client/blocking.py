"""`Client`: the asyncio client for code without an event loop. It holds a portal to one, and nothing else of its own."""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

import anyio
from anyio.from_thread import BlockingPortal

from romulus.authoring.workflow import AnyWorkflow
from romulus.core.duration import Duration
from romulus.core.machine import RunStatus

from .aio import AsyncClient
from .handle import AsyncHandle
from .link import Application
from .operations import Resolution
from .records import (
    CancelReply,
    EventReceipt,
    EventRecord,
    EvidenceRecord,
    JournalEntry,
    OperationDescription,
    OperationRecord,
    Page,
    RunDescription,
    WaitRecord,
    WorkerRecord,
)  # fmt: skip

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class Portal:
    """One event loop in a daemon thread of its own, begun at the first call.

    Nothing outside that thread waits for it when the interpreter ends: daemon threads stand still by then.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._portal: BlockingPortal | None = None

    def call(self, function: Callable[..., Coroutine[Any, Any, R]], *args: Any, **kwargs: Any) -> R:
        """Run *function* on the loop and return what it returns."""

        async def run() -> R:
            return await function(*args, **kwargs)

        return self._started().call(run)

    def close(self) -> None:
        """End the loop and its thread. Idempotent."""
        with self._lock:
            thread, portal, self._thread, self._portal = self._thread, self._portal, None, None
        if thread is not None and portal is not None:
            portal.call(portal.stop)
            thread.join()

    @property
    def open(self) -> bool:
        """Whether the loop runs."""
        return self._portal is not None and not sys.is_finalizing()

    def _started(self) -> BlockingPortal:
        with self._lock:
            if self._portal is None:
                begun: Future[BlockingPortal] = Future()
                self._thread = threading.Thread(target=anyio.run, args=(_serve, begun), name="romulus-client", daemon=True)
                self._thread.start()
                self._portal = begun.result()
            return self._portal


async def _serve(begun: Future[BlockingPortal]) -> None:
    async with BlockingPortal() as portal:
        begun.set_result(portal)
        await portal.sleep_until_stopped()


class Handle(Generic[T]):
    """One run; every method is `AsyncHandle`'s, blocking."""

    def __init__(self, handle: AsyncHandle[T], portal: Portal) -> None:
        self.id: str = handle.id
        self._handle, self._portal = handle, portal

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of run {self.id!r}>"

    def result(self, timeout: Duration | None = None, *, raise_on_hold: bool = False) -> T:
        """As `AsyncHandle.result`."""
        return self._portal.call(self._handle.result, timeout, raise_on_hold=raise_on_hold)

    def describe(self) -> RunDescription:
        """As `AsyncHandle.describe`."""
        return self._portal.call(self._handle.describe)

    def history(self) -> list[JournalEntry]:
        """As `AsyncHandle.history`."""
        return self._portal.call(self._handle.history)

    def evidence(self) -> list[EvidenceRecord]:
        """As `AsyncHandle.evidence`."""
        return self._portal.call(self._handle.evidence)

    def watch(self) -> Iterator[RunDescription]:
        """As `AsyncHandle.watch`."""
        stream = self._handle.watch()
        try:
            while (seen := self._portal.call(anext_or_none, stream)) is not None:
                yield seen
        finally:
            if self._portal.open:
                self._portal.call(close_stream, stream)

    def cancel(self, reason: str = "") -> CancelReply:
        """As `AsyncHandle.cancel`."""
        return self._portal.call(self._handle.cancel, reason)

    def terminate(self, reason: str = "") -> None:
        """As `AsyncHandle.terminate`."""
        self._portal.call(self._handle.terminate, reason)

    def send_event(self, name: str, payload: object = None, *, event_id: str | None = None) -> EventReceipt:
        """As `AsyncHandle.send_event`."""
        return self._portal.call(self._handle.send_event, name, payload, event_id=event_id)

    def retry(self) -> None:
        """As `AsyncHandle.retry`."""
        self._portal.call(self._handle.retry)

    def release(self) -> None:
        """As `AsyncHandle.release`."""
        self._portal.call(self._handle.release)

    def fork(self, position: int, version: str | None = None) -> Handle[T]:
        """As `AsyncHandle.fork`."""
        return Handle(self._portal.call(self._handle.fork, position, version), self._portal)


class Client(AbstractContextManager["Client"]):
    """A client of one store and namespace; every method is `AsyncClient`'s, blocking. Any thread may call it.

    `with` closes it at the end; without it the loop's thread ends with the process.
    """

    def __init__(self, store: str | Application, *, namespace: str | None = None) -> None:
        self._client, self._portal = AsyncClient(store, namespace=namespace), Portal()

    def __enter__(self) -> Self:
        self._portal.call(self._client.__aenter__)
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """As `AsyncClient.close`; also ends the loop's thread. Idempotent."""
        if self._portal.open:
            self._portal.call(self._client.close)
            self._portal.close()

    def using(self, connection: Any, /) -> Client:
        """As `AsyncClient.using`."""
        client = object.__new__(Client)
        client._client, client._portal = self._client.using(connection), self._portal
        return client

    def start(self, workflow: AnyWorkflow[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Handle[T]:
        """As `AsyncClient.start`."""
        return Handle(self._portal.call(lambda: self._client.start(workflow, *args, **kwargs)), self._portal)

    def start_by_name(
        self, workflow: str, arguments: Sequence[object] | Mapping[str, object] = (), *,
        id: str | None = None,  # noqa: A002 - as `.options(id=)`
        version: str | None = None,
    ) -> Handle[Any]:  # fmt: skip
        """As `AsyncClient.start_by_name`."""
        return Handle(self._portal.call(self._client.start_by_name, workflow, arguments, id=id, version=version), self._portal)

    def send_event(self, name: str, payload: object = None, *, correlation_id: str, event_id: str | None = None) -> EventReceipt:
        """As `AsyncClient.send_event`."""
        return self._portal.call(self._client.send_event, name, payload, correlation_id=correlation_id, event_id=event_id)

    @overload
    def get(self, run_id: str, /) -> Handle[Any]: ...
    @overload
    def get(self, run_id: str, /, workflow: AnyWorkflow[..., T]) -> Handle[T]: ...
    def get(self, run_id: str, /, workflow: AnyWorkflow[..., Any] | None = None) -> Handle[Any]:
        """As `AsyncClient.get`."""
        handle = self._client.get(run_id) if workflow is None else self._client.get(run_id, workflow)
        return Handle(handle, self._portal)

    def runs(
        self, *, workflow: str | None = None, status: RunStatus | None = None, attributes: Mapping[str, str | int | bool] | None = None,
        since: datetime | None = None, until: datetime | None = None, after: str | None = None, limit: int = 100,
    ) -> Page[RunDescription]:  # fmt: skip
        """As `AsyncClient.runs`."""
        return self._portal.call(
            self._client.runs, workflow=workflow, status=status, attributes=attributes, since=since, until=until,
            after=after, limit=limit,
        )  # fmt: skip

    def events(self, *, matched: bool | None = None, after: str | None = None, limit: int = 100) -> Page[EventRecord]:
        """As `AsyncClient.events`."""
        return self._portal.call(self._client.events, matched=matched, after=after, limit=limit)

    def waits(self, *, after: str | None = None, limit: int = 100) -> Page[WaitRecord]:
        """As `AsyncClient.waits`."""
        return self._portal.call(self._client.waits, after=after, limit=limit)

    def operations(self, *, state: str | None = None, after: str | None = None, limit: int = 100) -> Page[OperationRecord]:
        """As `AsyncClient.operations`."""
        return self._portal.call(self._client.operations, state=state, after=after, limit=limit)

    def operation(self, id: str, /) -> OperationDescription:  # noqa: A002 - as elsewhere
        """As `AsyncClient.operation`."""
        return self._portal.call(self._client.operation, id)

    def resolve_operation(
        self, id: str, resolution: Resolution, *, reason: str, reviewer: str  # noqa: A002 - as elsewhere
    ) -> OperationRecord:  # fmt: skip
        """As `AsyncClient.resolve_operation`."""
        return self._portal.call(self._client.resolve_operation, id, resolution, reason=reason, reviewer=reviewer)

    def receive_callback(self, source: str, headers: Mapping[str, str], body: bytes, *, secret: str) -> OperationRecord:
        """As `AsyncClient.receive_callback`."""
        return self._portal.call(self._client.receive_callback, source, headers, body, secret=secret)

    def workers(self) -> Page[WorkerRecord]:
        """As `AsyncClient.workers`."""
        return self._portal.call(self._client.workers)


async def anext_or_none(stream: AsyncIterator[RunDescription]) -> RunDescription | None:
    """Return the next item of *stream*, None at its end."""
    async for item in stream:
        return item
    return None


async def close_stream(stream: Any) -> None:
    """End *stream* where it stands."""
    await stream.aclose()
