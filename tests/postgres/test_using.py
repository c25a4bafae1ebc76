"""Starts, events and changes in a caller's own transaction, on each driver: there when it commits, and not otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import romulus
from romulus.core.errors import ConfigurationError
from romulus.core.requests import request_cancel
from romulus.core.transition import Created, EventClash, Existing, Received
from romulus.store.postgres import PostgresStore
from tests.postgres.server import Database
from tests.store.kit import event, new_run

Opened = AsyncIterator[tuple[Any, Callable[[bool], Awaitable[None]]]]


@asynccontextmanager
async def on_asyncpg(database: Database) -> Opened:
    connection: Any = await asyncpg.connect(database.url)
    transaction = connection.transaction()
    await transaction.start()

    async def end(commit: bool) -> None:
        await (transaction.commit() if commit else transaction.rollback())

    yield connection, end
    await connection.close()


@asynccontextmanager
async def on_psycopg(database: Database) -> Opened:
    async with await psycopg.AsyncConnection.connect(database.url) as connection:

        async def end(commit: bool) -> None:
            await (connection.commit() if commit else connection.rollback())

        yield connection, end


@asynccontextmanager
async def on_psycopg_sync(database: Database) -> Opened:
    with psycopg.connect(database.url) as connection:
        yield connection, _sync_end(connection)


@asynccontextmanager
async def on_sqlalchemy_sync(database: Database) -> Opened:
    engine = sqlalchemy.create_engine(database.url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        connection.begin()
        yield connection, _sync_end(connection)
    engine.dispose()


@asynccontextmanager
async def on_sqlalchemy_orm(database: Database) -> Opened:
    engine = sqlalchemy.create_engine(database.url.replace("postgresql:", "postgresql+psycopg:"))
    with Session(engine) as session:
        session.begin()
        yield session, _sync_end(session)
    engine.dispose()


@asynccontextmanager
async def on_sqlalchemy_asyncpg(database: Database) -> Opened:
    engine = create_async_engine(database.url.replace("postgresql:", "postgresql+asyncpg:"))
    async with engine.connect() as connection:
        await connection.begin()
        yield connection, _async_end(connection)
    await engine.dispose()


@asynccontextmanager
async def on_sqlalchemy_psycopg(database: Database) -> Opened:
    engine = create_async_engine(database.url.replace("postgresql:", "postgresql+psycopg:"))
    async with AsyncSession(engine) as session:
        await session.begin()
        yield session, _async_end(session)
    await engine.dispose()


def _sync_end(connection: Any) -> Callable[[bool], Awaitable[None]]:
    async def end(commit: bool) -> None:
        connection.commit() if commit else connection.rollback()

    return end


def _async_end(connection: Any) -> Callable[[bool], Awaitable[None]]:
    async def end(commit: bool) -> None:
        await (connection.commit() if commit else connection.rollback())

    return end


DRIVERS = (
    on_asyncpg, on_psycopg, on_psycopg_sync, on_sqlalchemy_sync, on_sqlalchemy_orm, on_sqlalchemy_asyncpg, on_sqlalchemy_psycopg,
)  # fmt: skip


@pytest.fixture(params=DRIVERS, ids=lambda f: f.__name__)
def driver(request: pytest.FixtureRequest) -> Any:
    return request.param


async def test_what_is_started_and_sent_is_there_when_the_caller_commits(store: PostgresStore, database: Database, driver: Any) -> None:
    async with driver(database) as (connection, end):
        view = store.using(connection)
        assert isinstance((await view.start([new_run("r1", attributes='{"é":"ü"}', timeout=5)]))[0], Created)
        assert isinstance((await view.send([event("e1", payload=b"\x00\xff")]))[0], Received)
        assert await store.run("default", "r1") is None
        await end(True)

    run = await store.run("default", "r1")
    assert run is not None
    assert run.attributes == '{"é":"ü"}'
    assert [e.payload for e in (await store.events("default", None, None, 10)).items] == [b"\x00\xff"]


async def test_nothing_is_there_when_the_caller_rolls_back(store: PostgresStore, database: Database, driver: Any) -> None:
    async with driver(database) as (connection, end):
        await store.using(connection).start([new_run("r1")])
        await end(False)

    assert await store.run("default", "r1") is None


async def test_answers_about_what_was_there_before_are_the_stores(store: PostgresStore, database: Database, driver: Any) -> None:
    await store.start([new_run("r1", input=b"first")])
    await store.send([event("e1")])
    async with driver(database) as (connection, end):
        view = store.using(connection)
        (existing,) = await view.start([new_run("r1", input=b"second")])
        (clash,) = await view.send([event("e1", payload=b"other")])
        changed = await view.change("default", "r1", lambda run, _, now: request_cancel(run, "why", now))
        await end(True)

    assert isinstance(existing, Existing)
    assert existing.first.input == b"first"
    assert clash == EventClash("e1")
    assert changed is not None
    assert await store.run("default", "r1") == changed[1]


async def test_an_error_leaves_the_callers_transaction_usable(store: PostgresStore, database: Database, driver: Any) -> None:
    async with driver(database) as (connection, end):
        view = store.using(connection)
        with pytest.raises(Exception, match=r"."):
            await view.start([new_run("bad\0")])
        await view.start([new_run("good")])
        await end(True)

    assert await store.run("default", "good") is not None


@romulus.workflow
async def ships(order: str) -> str:
    return order


@pytest.mark.parametrize("commit", [True, False])
async def test_a_clients_start_and_event_are_there_with_the_callers_transaction_or_not_at_all(
    database: Database, driver: Any, commit: bool
) -> None:
    async with romulus.AsyncClient(romulus.App(database.url, workflows=[ships])) as client, driver(database) as (connection, end):
        handle = await client.using(connection).start(ships.options(id="s1"), "42")
        receipt = await client.using(connection).send_event("paid", 42, correlation_id="42", event_id="e1")
        assert (handle.id, receipt.duplicate) == ("s1", False)
        assert ([*await client.runs()], [*await client.events()]) == ([], [])
        await end(commit)
        assert ([run.id for run in await client.runs()], [event.id for event in await client.events()]) == (
            (["s1"], ["e1"]) if commit else ([], [])
        )  # fmt: skip


@pytest.mark.parametrize("driver", [on_psycopg_sync, on_sqlalchemy_sync, on_sqlalchemy_orm])
async def test_the_blocking_client_takes_connections_of_blocking_drivers(database: Database, driver: Any) -> None:
    async with driver(database) as (connection, end):
        with romulus.Client(romulus.App(database.url, workflows=[ships])) as client:
            client.using(connection).start(ships.options(id="s1"), "42")
            client.using(connection).send_event("paid", 42, correlation_id="42", event_id="e1")
            await end(True)
            assert ([run.id for run in client.runs()], [event.id for event in client.events()]) == (["s1"], ["e1"])


async def test_a_connection_without_a_transaction_is_refused(store: PostgresStore, database: Database) -> None:
    connection: Any = await asyncpg.connect(database.url)
    with pytest.raises(ConfigurationError, match="no transaction is open"):
        await store.using(connection).start([new_run("r1")])
    await connection.close()
    with (
        psycopg.connect(database.url, autocommit=True) as automatic,
        pytest.raises(ConfigurationError, match="no transaction is open"),
    ):
        await store.using(automatic).start([new_run("r1")])


async def test_another_kind_of_connection_is_refused(store: PostgresStore) -> None:
    import sqlite3

    connection = sqlite3.connect(":memory:")
    with pytest.raises(ConfigurationError, match=r"sqlite3\.Connection cannot be used: give an asyncpg or psycopg 3 connection"):
        store.using(connection)
    connection.close()
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.begin() as other, pytest.raises(ConfigurationError, match="on another driver"):
        await store.using(other).start([new_run("r1")])
    engine.dispose()
