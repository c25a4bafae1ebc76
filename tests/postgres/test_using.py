"""Starts, events and changes in a caller's own transaction, on each driver: there when it commits, and not otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import romulus
from romulus.core.errors import ConfigurationError
from romulus.core.requests import request_cancel
from romulus.core.transition import Created, EventClash, Existing, Received
from romulus.store.postgres import PostgresStore
from tests.postgres.kit import opened
from tests.postgres.server import Database
from tests.store.kit import MovableHost, event, new_run

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


async def of_driver(given: Any) -> Any:
    """Return psycopg's connection inside *given*."""
    if isinstance(given, AsyncSession):
        given = await given.connection()
    if isinstance(given, AsyncConnection):
        return (await given.get_raw_connection()).driver_connection
    if isinstance(given, Session):
        given = given.connection()
    return given.connection.driver_connection if isinstance(given, sqlalchemy.Connection) else given


async def enter(stack: AsyncExitStack, context: Any) -> None:
    await stack.enter_async_context(context) if hasattr(context, "__aenter__") else stack.enter_context(context)


@pytest.mark.parametrize("driver", [on_psycopg, on_psycopg_sync, on_sqlalchemy_sync, on_sqlalchemy_orm, on_sqlalchemy_psycopg])
async def test_a_connection_in_pipeline_mode_is_refused_before_anything_is_sent(
    store: PostgresStore, database: Database, driver: Any
) -> None:
    async with driver(database) as (connection, end):
        raw, view = await of_driver(connection), store.using(connection)
        async with AsyncExitStack() as stack:
            await enter(stack, raw.pipeline())
            before = raw.info.transaction_status
            for work in (view.start([new_run("r1")]), view.send([event("e1")])):
                with pytest.raises(ConfigurationError, match=r"pipeline mode.*before `connection.pipeline\(\)` is entered or after"):
                    await work
            assert raw.info.transaction_status == before
        await view.start([new_run("r2")])
        await end(True)

    assert _column(database, "runs", "id") == ["r2"]
    assert _column(database, "events", "id") == []


async def test_a_pipeline_that_another_task_begins_in_between_makes_no_answer_false(
    store: PostgresStore, database: Database, host: MovableHost
) -> None:
    with psycopg.connect(database.url) as connection, ExitStack() as pipelines:

        def begin(point: str) -> None:
            if point == "send.events":
                pipelines.enter_context(connection.pipeline())

        host.at_point = begin
        with pytest.raises(ConfigurationError, match="pipeline mode"):
            await store.using(connection).send([event("e1")])
        host.at_point = None
        pipelines.close()
        connection.commit()

    assert _column(database, "events", "id") == []


async def test_a_connection_to_another_store_or_to_none_is_refused_and_nothing_is_written(
    store: PostgresStore, database: Database, new_database: Database, own_database: Database, driver: Any
) -> None:
    ((incarnation,),) = database.execute("SELECT value FROM romulus.meta WHERE name = 'incarnation'")
    new_database.execute(f"UPDATE romulus.meta SET value = '{incarnation}' WHERE name = 'incarnation'")  # a copy, with all that it says
    for elsewhere, says in ((new_database, f"database '{new_database.name}', which is another store"), (own_database, "has no schema")):
        async with driver(elsewhere) as (connection, end):
            view = store.using(connection)
            for _ in range(2):  # the caller's transaction stays usable
                with pytest.raises(ConfigurationError, match=f"nothing was written.*{says}.*{database.name}: give one to the store's own"):
                    await view.start([new_run("r1")])
            with pytest.raises(ConfigurationError, match=says):
                await view.change("default", "r1", lambda run, _, now: request_cancel(run, "why", now))
            await end(True)
    assert _column(new_database, "runs", "id") == []


async def test_a_database_that_another_store_was_made_in_is_refused(store: PostgresStore, new_database: Database) -> None:
    new_database.execute("UPDATE romulus.meta SET value = 'other' WHERE name = 'incarnation'")
    async with on_asyncpg(new_database) as (connection, _):
        with pytest.raises(ConfigurationError, match="another store"):
            await store.using(connection).send([event("e1")])


async def test_a_store_that_was_restored_meanwhile_takes_connections_to_it(
    store: PostgresStore, other: PostgresStore, database: Database, driver: Any
) -> None:
    async with driver(database) as (known, end), driver(database) as (fresh, end_fresh):
        await store.using(known).start([new_run("r1")])
        await end(True)
        await other.restore()
        await store.using(fresh).start([new_run("r2")])
        await end_fresh(True)

    assert _column(database, "runs", "id") == ["r1", "r2"]


async def test_a_connection_is_asked_once_which_database_it_is_to(store: PostgresStore, database: Database, host: MovableHost) -> None:
    points = Counter[str]()
    host.at_point = lambda point: points.update([point])
    async with asyncpg.create_pool(database.url, min_size=1, max_size=1) as pool:
        for run in ("r1", "r2"):
            async with pool.acquire() as connection, connection.transaction():
                await store.using(connection).start([new_run(run)])
    async with on_psycopg(database) as (connection, _):
        for run in ("r3", "r4"):
            await store.using(connection).start([new_run(run)])

    assert (points["identity.callers"], points["identity.store"], points["using.notify"]) == (2, 1, 4)


async def test_a_role_that_may_not_see_which_store_it_is_is_told_what_to_grant(store: PostgresStore, database: Database) -> None:
    async with on_asyncpg(database) as (connection, end):
        await connection.execute("CREATE ROLE lacking; GRANT USAGE ON SCHEMA romulus TO lacking; SET LOCAL ROLE lacking")
        with pytest.raises(ConfigurationError, match=r"may not read romulus\.meta.*grant it"):
            await store.using(connection).start([new_run("r1")])
        await end(False)


async def test_the_lock_timeout_of_the_callers_connection_bounds_a_wait_for_the_same_id_and_leaves_its_transaction_usable(
    new_database: Database, driver: Any
) -> None:
    new_database.execute(f"ALTER DATABASE {new_database.name} SET lock_timeout = '50ms'")
    async with opened(new_database.url) as store, on_asyncpg(new_database) as (holder, end_holder):
        await store.using(holder).start([new_run("r1")])
        async with driver(new_database) as (connection, end):
            view = store.using(connection)
            with pytest.raises(Exception, match="lock timeout") as refused:
                await view.start([new_run("r1")])
            assert type(refused.value).__name__ in ("LockNotAvailable", "LockNotAvailableError")
            await view.start([new_run("r2")])
            await end(True)
        await end_holder(True)

    assert _column(new_database, "runs", "id") == ["r1", "r2"]


@asynccontextmanager
async def two_phases_of_psycopg(database: Database) -> Opened:
    async with await psycopg.AsyncConnection.connect(database.url) as connection:
        await connection.tpc_begin("one")

        async def end(commit: bool) -> None:
            await connection.tpc_prepare()
            await (connection.tpc_commit() if commit else connection.tpc_rollback())

        yield connection, end


@asynccontextmanager
async def two_phases_of_psycopg_sync(database: Database) -> Opened:
    with psycopg.connect(database.url) as connection:
        connection.tpc_begin("one")

        async def end(commit: bool) -> None:
            connection.tpc_prepare()
            connection.tpc_commit() if commit else connection.tpc_rollback()

        yield connection, end


@asynccontextmanager
async def two_phases_of_sqlalchemy(database: Database) -> Opened:
    engine = sqlalchemy.create_engine(database.url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        transaction = connection.begin_twophase()

        async def end(commit: bool) -> None:
            transaction.prepare()
            transaction.commit() if commit else transaction.rollback()

        yield connection, end
    engine.dispose()


@asynccontextmanager
async def two_phases_of_a_session(database: Database, driver: str = "psycopg") -> Opened:
    engine = create_async_engine(database.url.replace("postgresql:", f"postgresql+{driver}:"))
    async with AsyncSession(engine, twophase=True) as session:
        await session.begin()
        await session.connection()

        async def end(commit: bool) -> None:
            await session.run_sync(lambda inner: inner.prepare())
            await (session.commit() if commit else session.rollback())

        yield session, end
    await engine.dispose()


@asynccontextmanager
async def two_phases_of_a_session_on_asyncpg(database: Database) -> Opened:
    async with two_phases_of_a_session(database, "asyncpg") as both:
        yield both


TWO_PHASES = (
    two_phases_of_psycopg, two_phases_of_psycopg_sync, two_phases_of_sqlalchemy, two_phases_of_a_session,
    two_phases_of_a_session_on_asyncpg,
)  # fmt: skip


@pytest.mark.parametrize("driver", TWO_PHASES)
@pytest.mark.parametrize("commit", [True, False])
async def test_what_is_written_is_part_of_a_two_phase_transaction(
    store: PostgresStore, database: Database, driver: Any, commit: bool
) -> None:
    async with driver(database) as (connection, end):
        view = store.using(connection)
        assert isinstance((await view.start([new_run("r1")]))[0], Created)
        assert isinstance((await view.send([event("e1")]))[0], Received)
        await end(commit)

    assert (await store.run("default", "r1") is not None) is commit
    assert len((await store.events("default", None, None, 10)).items) == commit


async def test_a_worker_finds_by_polling_what_a_two_phase_transaction_has_written(database: Database) -> None:
    app = romulus.App(database.url, workflows=[ships])
    async with app.worker(), app.client() as client, two_phases_of_psycopg(database) as (connection, end):
        handle = await client.using(connection).start(ships, "42")
        await end(True)
        assert await handle.result(timeout=30) == "42"


def _column(database: Database, table: str, column: str) -> list[Any]:
    """Return what stands in a column of a table."""
    return [value for (value,) in database.execute(f"SELECT {column} FROM romulus.{table} ORDER BY 1")]
