"""What a client and its handles share: an open store, a namespace, the code at hand, perhaps a caller's transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractContextManager
from typing import Any, Protocol

from romulus.authoring.registry import Registry
from romulus.core.errors import RunNotFound
from romulus.core.machine import RunStatus
from romulus.core.record import Entry, Generation, Record, Run
from romulus.core.transition import Next
from romulus.core.values import Vault
from romulus.store.contract import Store

from .changes import RunWatch
from .reading import VALUE_MAX_BYTES, Reader
from .source import Opened, Source
from .views import Served

HISTORY_CHUNK = 1_000  # entries read at once
Decide = Callable[[Run, Generation, int], Next | None]


class Application(Protocol):
    """What a client needs of an App."""

    @property
    def source(self) -> Source: ...
    @property
    def registry(self) -> Registry: ...
    @property
    def namespace(self) -> str: ...


class Session:
    """One use of a source: opened at first need, given back once."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._opened: Opened | None = None

    async def opened(self) -> Opened:
        """Return the open store; the first call opens it."""
        if self._opened is None:
            self._opened = await self._source.acquire()
        return self._opened

    async def close(self) -> None:
        """Give the store back. Idempotent; a later use opens it again."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await self._source.release()


class Link:
    """A namespace of a store, with the code that reads its values."""

    def __init__(self, session: Session, namespace: str, registry: Registry | None = None, connection: Any = None) -> None:
        self.session, self.namespace, self.registry = session, namespace, registry
        self.vault = registry.vault if registry else Vault(None, VALUE_MAX_BYTES)
        self.reader = Reader(self.vault, registry)
        self._connection = connection

    def using(self, connection: Any) -> Link:
        """Return a link that writes in the caller's open transaction."""
        return Link(self.session, self.namespace, self.registry, connection)

    def outside(self) -> Link:
        """Return a link that has no part in a transaction of the caller's, for handles, which outlive it."""
        return self if self._connection is None else Link(self.session, self.namespace, self.registry)

    async def store(self) -> Store:
        """Return the store, or its view in the caller's transaction."""
        store = (await self.session.opened()).store
        return store if self._connection is None else store.using(self._connection)

    async def random_bits(self, bits: int) -> int:
        """Return random bits for seeds and identifiers."""
        return (await self.session.opened()).host.random_bits(bits)

    async def watch(self, run_id: str, until: Collection[RunStatus] | None = None) -> AbstractContextManager[RunWatch]:
        """Return what wakes a waiter when the run may have changed; *until*: when it may have come to one of these."""
        opened = await self.session.opened()
        return RunWatch(opened.store, opened.changes, self.namespace, run_id, until)

    async def record(self, run_id: str) -> Record:
        """Return a run's record.

        Raises:
            RunNotFound
        """
        record = await (await self.store()).record(self.namespace, run_id)
        if record is None:
            raise RunNotFound(run_id, self.namespace)
        return record

    async def run(self, run_id: str) -> Run:
        """Return a run's row alone.

        Raises:
            RunNotFound
        """
        run = await (await self.store()).run(self.namespace, run_id)
        if run is None:
            raise RunNotFound(run_id, self.namespace)
        return run

    async def status(self, run_id: str) -> RunStatus:
        """Return a run's status alone.

        Raises:
            RunNotFound
        """
        found = await (await self.store()).statuses(self.namespace, [run_id])
        if run_id not in found:
            raise RunNotFound(run_id, self.namespace)
        return found[run_id]

    async def change(self, run_id: str, decide: Decide) -> tuple[Run, Run]:
        """Apply a person's request to the run's row; return the row before and after.

        Raises:
            RunNotFound; IllegalTransition: as *decide* raises it.
        """
        changed = await (await self.store()).change(self.namespace, run_id, decide)
        if changed is None:
            raise RunNotFound(run_id, self.namespace)
        return changed

    async def entries(self, generation: int, position: int = 0) -> AsyncIterator[Entry]:
        """Yield the journal of *generation* from *position*, read in chunks."""
        store = await self.store()
        while True:
            chunk = await store.history(generation, position, HISTORY_CHUNK)
            for entry in chunk:
                yield entry
            if len(chunk) < HISTORY_CHUNK:
                return
            position = chunk[-1].position + 1

    async def served(self) -> Served:
        """Return what the live workers of the namespace serve."""
        return Served(await (await self.store()).workers(self.namespace))
