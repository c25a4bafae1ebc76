"""Workers in this process on a real store, which can be stopped, or lost as if killed, and begun again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw

import romulus
from romulus.core.machine import RunStatus
from romulus.host import RealHost
from romulus.store import open_store
from romulus.worker import Worker, WorkerSettings
from tests.postgres.inspection import Inspection
from tests.postgres.server import Database

QUICK = WorkerSettings(lease=2_000_000, sweep=100_000, poll=100_000, alone_pause=10_000)


class World:
    """An App's store with a client, and as many workers as a test asks for."""

    database_used: Database | None = None  # PostgreSQL instead of a file, see conftest

    def __init__(self, app: romulus.App, client: romulus.AsyncClient, path: Path) -> None:
        self.app, self.client, self.path = app, client, path
        self.workers: list[Worker] = []
        self._hosts: list[RealHost] = []

    async def worker(
        self, app: romulus.App | None = None, *, concurrency: int = 20, pools: Sequence[str] = ("default",), **settings: Any
    ) -> Worker:
        """Start a worker with a store object of its own, as another process would have."""
        host = RealHost()
        store = open_store(url_of(self.path), host)
        await store.open()
        registry = (app or self.app).registry
        worker = Worker(store, host, registry, concurrency=concurrency, pools=pools, settings=replace(QUICK, **settings))
        try:
            await worker.start()
        except BaseException:
            await store.close()
            raise
        self.workers.append(worker)
        self._hosts.append(host)
        return worker

    async def kill(self, worker: Worker) -> None:
        """Lose a worker without a word: its row stays, its claims stand until it is found dead."""
        await worker.crash()
        await worker.store.close()
        self.workers.remove(worker)
        with self.database() as database:
            database.execute("UPDATE workers SET lease_until = 0 WHERE id = ?", (worker.id,))

    async def stop(self, worker: Worker, grace: int = 5_000_000) -> None:
        """Stop a worker as SIGTERM does."""
        await worker.stop(grace)
        await worker.store.close()
        self.workers.remove(worker)

    def database(self) -> Any:
        """Return a connection for looking at what is stored, through the same SQLite as the engine."""
        if World.database_used is not None:
            return Inspection(World.database_used)
        connection = apsw.Connection(str(self.path))
        connection.setbusytimeout(5_000)
        return connection

    def make_table(self, columns: str) -> None:
        """Make the user's own table, `bookings`, anew."""
        place = "bookings" if World.database_used is None else "public.bookings"
        with self.database() as database:
            database.execute(f"DROP TABLE IF EXISTS {place}")
            database.execute(f"CREATE TABLE {place} ({columns})")

    def rows(self, sql: str, *bindings: Any) -> list[tuple[Any, ...]]:
        """Return what a query finds."""
        connection = self.database()
        try:
            found: list[tuple[Any, ...]] = connection.execute(sql, bindings).fetchall()
            return found
        finally:
            connection.close()

    async def until(self, run_id: str, *statuses: RunStatus | str) -> romulus.RunDescription:
        """Wait until a run has one of the statuses."""
        async for seen in self.client.get(run_id).watch():
            if seen.status in statuses:
                return seen
        raise AssertionError(f"{run_id} ended without {statuses}")


@asynccontextmanager
async def world(tmp_path: Path, *workflows: Any, **app: Any) -> AsyncIterator[World]:
    """Give a world without workers; stop what a test leaves."""
    path = tmp_path / "romulus.db"
    engine = romulus.App(url_of(path), workflows=list(workflows), **app)
    async with romulus.AsyncClient(engine) as client:
        made = World(engine, client, path)
        try:
            yield made
        finally:
            for worker in tuple(made.workers):
                await made.stop(worker, grace=0)


def url_of(path: Path) -> str:
    """Return the URL of the store that this test runs on."""
    return World.database_used.url if World.database_used is not None else f"sqlite:///{path}"


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; the test's own timeout bounds it."""
    while not condition():
        await asyncio.sleep(0.005)
