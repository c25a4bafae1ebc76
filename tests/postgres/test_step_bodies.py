"""What the body of a transactional step does to its connection: nothing of it outlives the step, and its failures are its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import asyncpg
import pytest

import romulus
from romulus.core.transition import Verdict
from romulus.store.postgres import PostgresStore
from tests.postgres.server import Database
from tests.store.kit import MovableHost, advance, again, claimed, entry, worker

TWICE = romulus.Retry(max_attempts=2, initial=0.01)
SETTINGS = "SELECT json_object_agg(name, setting ORDER BY name)::text FROM pg_settings WHERE name !~ '^plpgsql'"
SESSION = (
    "SELECT session_user::text, current_user::text, "
    "(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()), "
    "(SELECT count(*) FROM pg_prepared_statements WHERE from_sql), (SELECT count(*) FROM pg_listening_channels()), 5::bigint"
)
LEAVES = (
    "SET synchronous_commit = off; SET search_path = pg_temp; SET default_transaction_read_only = on; SET timezone = 'Asia/Tokyo'; "
    "SET ROLE tenant; SET statement_timeout = '1ms'; SET array_nulls = off; SET tcp_keepalives_idle = 100"
)
KEEPS = 'SELECT pg_advisory_lock(42); PREPARE "m i""ne" AS SELECT 1; LISTEN mine; CREATE TEMP TABLE scratch (n integer)'
PINS = {
    "synchronous_commit": "on", "role": "none", "statement_timeout": "0", "lock_timeout": "1500ms", "enable_seqscan": "off",
    "idle_in_transaction_session_timeout": "6s",
}  # fmt: skip
BODIES: list[str] = []


@pytest.fixture(autouse=True)
def _tables(database: Database) -> None:
    BODIES.clear()
    database.execute("CREATE TABLE IF NOT EXISTS bookings (id text)")
    database.execute("CREATE TABLE IF NOT EXISTS parents (id text PRIMARY KEY)")
    database.execute("CREATE TABLE IF NOT EXISTS children (id text REFERENCES parents DEFERRABLE INITIALLY DEFERRED)")
    database.execute("DELETE FROM bookings")
    if not database.execute("SELECT 1 FROM pg_roles WHERE rolname = 'tenant'"):
        database.execute("CREATE ROLE tenant")
    database.execute("GRANT ALL ON bookings TO tenant")


def bookings(database: Database) -> list[Any]:
    return [row[0] for row in database.execute("SELECT id FROM bookings ORDER BY id")]


@romulus.step(transaction=True, retry=TWICE)
async def book(how: str) -> str:
    connection = romulus.current_attempt().connection
    BODIES.append(how)
    await connection.execute("INSERT INTO bookings VALUES ($1)", how)
    await HOW[how](connection)
    return how


@romulus.workflow
async def booking(how: str) -> str:
    return await book(how)


async def _deferred(connection: Any) -> None:
    await connection.execute("INSERT INTO children VALUES ('of nobody')")


async def _swallows(connection: Any) -> None:
    with pytest.raises(Exception, match="division"):
        await connection.execute("SELECT 1 / 0")


async def _commits_and_fails(connection: Any) -> None:
    if len(BODIES) == 1:
        await connection.execute("COMMIT; BEGIN")
        raise RuntimeError("too late")


async def _savepoints(connection: Any) -> None:
    async with connection.transaction():
        await connection.execute("INSERT INTO bookings VALUES ('inner')")
    with contextlib.suppress(asyncpg.DivisionByZeroError):
        async with connection.transaction():
            await connection.execute("INSERT INTO bookings VALUES ('undone')")
            await connection.execute("SELECT 1 / 0")
    savepoint = connection.transaction()
    await savepoint.start()
    await connection.execute("INSERT INTO bookings VALUES ('rolled back')")
    await savepoint.rollback()


HOW: dict[str, Any] = {
    "defers": _deferred,
    "swallows": _swallows,
    "closes": lambda connection: connection.close(),
    "read only": lambda connection: connection.execute("SET LOCAL transaction_read_only = on"),
    "commits": lambda connection: connection.execute("COMMIT"),
    "rolls back": lambda connection: connection.execute("ROLLBACK"),
    "commits and fails": _commits_and_fails,
    "as tenant": lambda connection: connection.execute("SET LOCAL ROLE tenant; SET LOCAL search_path = pg_temp; SET LOCAL jit = on"),
    "in no time": lambda connection: connection.execute("SET LOCAL lock_timeout = '1ms'; SET LOCAL statement_timeout = '1ms'"),
    "savepoints": _savepoints,
}
FAILURES = {
    "defers": "ForeignKeyViolationError", "swallows": "went on after an error of the database", "closes": "closed by its body",
    "read only": "ReadOnlySQLTransactionError",
}  # fmt: skip


async def test_a_transaction_that_cannot_be_committed_is_its_attempts_failure(database: Database) -> None:
    app = romulus.App(database.url, workflows=[booking])
    async with app.worker(), app.client() as client:
        handles = {how: await client.start(booking, how) for how in FAILURES}
        for how, why in FAILURES.items():
            with pytest.raises(romulus.RunFailed, match=why):
                await handles[how].result(timeout=20, raise_on_hold=True)
    assert sorted(BODIES) == sorted([*FAILURES, *FAILURES])  # as often as its Retry says
    assert bookings(database) == []


async def test_a_body_that_ends_its_transaction_itself_is_held_and_not_executed_again(database: Database) -> None:
    app = romulus.App(database.url, workflows=[booking])
    async with app.worker(), app.client() as client:
        for how in ("commits", "rolls back", "commits and fails"):
            BODIES.clear()
            handle = await client.start(booking, how)
            with pytest.raises(romulus.RunHeld, match="ended its transaction itself, so what it wrote may be committed"):
                await handle.result(timeout=20, raise_on_hold=True)
            assert len(BODIES) == 1
        await handle.release()
        assert await handle.result(timeout=20, raise_on_hold=True) == "commits and fails"
    assert bookings(database) == ["commits", "commits and fails", "commits and fails"]


async def test_what_a_body_sets_for_its_transaction_breaks_nothing_of_ours_and_savepoints_are_the_drivers(database: Database) -> None:
    app = romulus.App(database.url, workflows=[booking])
    async with app.worker(), app.client() as client:
        for how in ("as tenant", "in no time", "savepoints"):
            assert await (await client.start(booking, how)).result(timeout=20, raise_on_hold=True) == how
    assert bookings(database) == ["as tenant", "in no time", "inner", "savepoints"]


@pytest.mark.parametrize("committed", [True, False])
async def test_nothing_that_a_body_leaves_in_its_session_is_there_for_the_next(
    store: PostgresStore, host: MovableHost, database: Database, committed: bool
) -> None:
    record, seen = await claimed(store, host), list[dict[str, Any]]()
    for leave in (_nothing, lambda c: c.execute(LEAVES), lambda c: c.execute(KEEPS), _alters, _nothing):
        transaction = await store.transaction()
        connection = transaction.connection
        seen.append({**json.loads(await connection.fetchval(SETTINGS)), "session": tuple(await connection.fetchrow(SESSION))})
        await leave(connection)
        if committed:
            assert await transaction.commit(advance(await again(store, record), entry(len(seen) - 1))) is Verdict.APPLIED
        else:
            assert await transaction.rollback()

    assert [found.items() - seen[0].items() for found in seen] == [set()] * 5


async def _nothing(connection: Any) -> None:
    pass


async def _alters(connection: Any) -> None:
    await connection.add_listener("mine", print)
    await connection.set_type_codec("int8", encoder=str, decoder=lambda value: f"X{value}", schema="pg_catalog", format="text")


async def test_what_is_ours_in_the_transaction_is_pinned_whatever_the_body_has_set(store: PostgresStore, host: MovableHost) -> None:
    record = await claimed(store, host)
    for statement in ("SET LOCAL synchronous_commit = off", LEAVES):
        transaction = await store.transaction()
        await transaction.connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = 0; {statement}")
        await transaction.ready()
        shown = {
            name: await transaction.connection.fetchval(f"SHOW {name}")
            for name in PINS
        }  # fmt: skip
        assert shown == PINS
        await transaction.commit(advance(await again(store, record), entry((await again(store, record)).run.position)))


@pytest.mark.parametrize("statement", ["SELECT 1", "SELECT pg_sleep(600)"])
async def test_a_body_that_is_frozen_keeps_what_it_has_locked_no_longer_than_a_body_may_take(
    store: PostgresStore, host: MovableHost, database: Database, statement: str
) -> None:
    """The server hears of neither a frozen process nor a machine that is gone: nobody asks for anything on this connection any more."""
    (await store.register(worker(host, "w1"), 2_000_000)).close()
    database.execute("INSERT INTO bookings VALUES ('x')")
    transaction = await store.transaction()
    try:
        await transaction.connection.execute("UPDATE bookings SET id = 'frozen'")
        last = asyncio.ensure_future(transaction.connection.execute(statement))
        await asyncio.to_thread(database.execute, "UPDATE bookings SET id = 'successor'")

        assert bookings(database) == ["successor"]
        await asyncio.wait([last])
        with pytest.raises((romulus.StoreUnavailable, asyncpg.InFailedSQLTransactionError), match="was lost|went on after an error"):
            await transaction.ready()
    finally:
        assert await transaction.rollback()
