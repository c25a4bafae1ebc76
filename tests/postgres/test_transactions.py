"""Transactional steps: the body's writes and the guarded transition are one transaction, the guard its last statement."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import romulus
from romulus.core.errors import CommitUnknown
from romulus.core.transition import Verdict
from romulus.store.contract import BatchRejected
from romulus.store.postgres import PostgresStore
from romulus.worker import Worker
from tests.postgres.kit import blocked, opened, until
from tests.postgres.proxy import proxied
from tests.postgres.server import Database
from tests.store.kit import MovableHost, advance, again, claimed, entry


@pytest.fixture
def bookings(database: Database) -> Any:
    """A table of the user's, beside ours."""
    database.execute("CREATE TABLE IF NOT EXISTS bookings (id text)")
    database.execute("DELETE FROM bookings")
    return lambda: [row[0] for row in database.execute("SELECT id FROM bookings ORDER BY id")]


@romulus.step(transaction=True)
async def book(order: str) -> str:
    await romulus.current_attempt().connection.execute("INSERT INTO bookings VALUES ($1)", order)
    return order


@romulus.step(transaction=True, retry=romulus.Retry(max_attempts=2, initial=0.01))
async def overbook(order: str) -> str:
    await romulus.current_attempt().connection.execute("INSERT INTO bookings VALUES ($1)", order)
    if romulus.current_attempt().number == 1:
        raise RuntimeError("full")
    return order


@romulus.workflow
async def booking(order: str) -> str:
    await book(order)
    return await overbook(order + "2")


async def test_writes_and_transition_are_committed_together(store: PostgresStore, host: MovableHost, bookings: Any) -> None:
    record = await claimed(store, host)
    transaction = await store.transaction()
    await transaction.connection.execute("INSERT INTO bookings VALUES ('x')")

    assert bookings() == []
    assert await transaction.commit(advance(record, entry(0))) is Verdict.APPLIED
    assert bookings() == ["x"]
    assert (await again(store, record)).run.position == 1


async def test_a_lost_claim_rolls_the_writes_back(store: PostgresStore, database: Database, host: MovableHost, bookings: Any) -> None:
    record = await claimed(store, host)
    transaction = await store.transaction()
    await transaction.connection.execute("INSERT INTO bookings VALUES ('x')")
    database.execute("UPDATE romulus.runs SET fence = fence + 1")

    assert await transaction.commit(advance(record, entry(0))) is Verdict.REFUSED
    assert bookings() == []
    assert len(await store.evidence(record.run.key)) == 1


async def test_a_claim_lost_while_the_guard_waits_rolls_the_writes_back(
    store: PostgresStore, database: Database, host: MovableHost, bookings: Any
) -> None:
    record = await claimed(store, host)
    transaction = await store.transaction()
    await transaction.connection.execute("INSERT INTO bookings VALUES ('x')")
    with database.server.connect(database.name) as thief:
        thief.execute("BEGIN")
        thief.execute("UPDATE romulus.runs SET fence = fence + 1")
        committing = asyncio.ensure_future(transaction.commit(advance(record, entry(0))))
        await blocked(database, 1)
        thief.execute("COMMIT")

    assert await committing is Verdict.REFUSED
    assert bookings() == []


async def test_a_rollback_leaves_nothing_and_the_connection_clean(store: PostgresStore, host: MovableHost, bookings: Any) -> None:
    transaction = await store.transaction()
    await transaction.connection.execute("INSERT INTO bookings VALUES ('x')")
    await transaction.connection.execute("CREATE TEMP TABLE scratch (n integer)")
    await transaction.rollback()
    await transaction.rollback()

    assert bookings() == []
    following = await store.transaction()
    await following.connection.execute("CREATE TEMP TABLE scratch (n integer)")
    await following.rollback()


async def test_a_body_that_ends_the_transaction_itself_is_told_so(store: PostgresStore, host: MovableHost, bookings: Any) -> None:
    record = await claimed(store, host)
    for statements in ("COMMIT", "COMMIT; BEGIN"):
        transaction = await store.transaction()
        await transaction.connection.execute("INSERT INTO bookings VALUES ('x')")
        await transaction.connection.execute(statements)
        with pytest.raises(BatchRejected, match="ended the transaction itself"):
            await transaction.commit(advance(record, entry(0)))
    assert (await again(store, record)).run.position == 0


async def test_an_error_the_body_swallowed_is_not_committed_over(store: PostgresStore, host: MovableHost, bookings: Any) -> None:
    record = await claimed(store, host)
    transaction = await store.transaction()
    with pytest.raises(Exception, match="division by zero"):
        await transaction.connection.execute("SELECT 1 / 0")

    with pytest.raises(BatchRejected):
        await transaction.commit(advance(record, entry(0)))
    assert (await again(store, record)).run.position == 0


@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_commit_without_an_answer_is_unknown(
    store: PostgresStore, database: Database, host: MovableHost, bookings: Any, how: str
) -> None:
    record = await claimed(store, host)
    async with proxied(database.server.port) as proxy, opened(f"{database.server.url(database.name, proxy.port)}?pooler=none", host) as far:
        transaction = await far.transaction()
        await transaction.connection.execute("INSERT INTO bookings VALUES ('x')")
        proxy.cut_at(b"COMMIT;\x00", how)  # the driver's
        with pytest.raises(CommitUnknown):
            await transaction.commit(advance(record, entry(0)))

    written = how == "after"
    assert (bookings(), (await again(store, record)).run.position) == ((["x"], 1) if written else ([], 0))


async def test_a_run_with_transactional_steps_writes_each_once(database: Database, bookings: Any) -> None:
    app = romulus.App(database.url, workflows=[booking])
    async with app.worker(concurrency=5), app.client() as client:
        assert await (await client.start(booking, "x")).result(timeout=20) == "x2"
    assert bookings() == ["x", "x2"]


async def test_a_cancel_accepted_while_a_step_holds_its_transaction_is_told_with_the_steps_outcome(
    store: PostgresStore, host: MovableHost, database: Database, bookings: Any
) -> None:
    """The code must not go on, or end, before it is told: its end would be refused, and with it what the step has written."""
    began, may_end = asyncio.Event(), asyncio.Event()

    @romulus.step(transaction=True)
    async def slow(order: str) -> None:
        await romulus.current_attempt().connection.execute("INSERT INTO bookings VALUES ($1)", order)
        began.set()
        await may_end.wait()

    @romulus.workflow
    async def books(order: str) -> None:
        await slow(order)
        await romulus.wait_for_event("never")

    app = romulus.App(database.url, workflows=[books], steps=[slow])
    worker = Worker(store, host, app.registry)
    await worker.start()
    async with app.client() as client:
        handle = await client.start(books, "x")
        await began.wait()
        (driver,) = worker.memory.active.values()
        assert await handle.cancel() == "accepted"
        await until(lambda: driver.cancel_seen == 1)
        may_end.set()
        with pytest.raises(romulus.RunCancelled):
            await handle.result(timeout=20)
        history = await handle.history()
    await worker.stop(0)

    assert [entry.kind for entry in history] == ["step", "cancel"]
    assert len(set(database.execute("SELECT transition FROM romulus.journal"))) == 1
    assert bookings() == ["x"]


async def test_the_steps_own_statements_are_planned_as_everybodys_are(store: PostgresStore) -> None:
    transaction = await store.transaction()
    expectations = {
        "enable_seqscan": "on", "plan_cache_mode": "auto", "enable_mergejoin": "on", "enable_bitmapscan": "on",
        "idle_in_transaction_session_timeout": "6s", "statement_timeout": "6s", "lock_timeout": "0", "synchronous_commit": "on",
    }  # fmt: skip
    for setting, expected in expectations.items():
        assert await transaction.connection.fetchval(f"SHOW {setting}") == expected
    await transaction.rollback()
