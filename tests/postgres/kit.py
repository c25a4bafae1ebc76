"""What the PostgreSQL tests share: stores on one database, and waiting for what its backends do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest

from romulus.store.postgres import PostgresStore, place_of
from tests.postgres.server import Database
from tests.store.kit import MovableHost

BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@asynccontextmanager
async def opened(url: str, host: MovableHost | None = None) -> AsyncIterator[PostgresStore]:
    """Give an open store with a host of its own."""
    mine = host or MovableHost()
    store = PostgresStore(place_of(url), mine)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
        if host is None:
            mine.close()


async def blocked(database: Database, count: int) -> None:
    """Wait until so many backends wait for a lock."""
    await until(lambda: database.execute(BLOCKED) == [(count,)])


@contextmanager
def held(database: Database, sql: str) -> Iterator[psycopg.Connection[Any]]:
    """Hold what a statement locks, and leave nothing of what it wrote."""
    with database.server.connect(database.name) as connection:
        connection.execute("BEGIN")
        connection.execute(sql.encode())
        yield connection
        connection.execute("ROLLBACK")


def deadlocks(database: Database) -> list[Any]:
    """Return how many deadlocks the server has broken in this database, in earlier tests too."""
    return database.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")


def counts_at_once(database: Database) -> None:
    """Skip the test where the server cannot be asked for what it has read so far."""
    if int(database.execute("SHOW server_version_num")[0][0]) < 150_000:
        pytest.skip("before PostgreSQL 15 a server counts what was read half a second late, and cannot be asked sooner")


async def until(condition: Callable[[], bool], unless: asyncio.Future[Any] | None = None) -> None:
    """Wait for a condition, or for *unless* to be done; the test's own timeout bounds it."""
    while not (unless is not None and unless.done()) and not condition():
        await asyncio.sleep(0.01)


async def settled(store: PostgresStore) -> None:
    """Match until nothing is queued."""
    while await store.match(100):
        pass


class Died(Exception):
    """The process is gone."""


def dies_at(name: str) -> Any:
    def at_point(point: str) -> None:
        if point == name:
            raise Died(point)

    return at_point
