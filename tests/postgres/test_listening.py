"""Others' commits are heard of at once; a listening connection that dies or falls silent is rebuilt, and polled for meanwhile (RB-44)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from romulus.core.machine import Change
from romulus.core.record import HoldKind
from romulus.core.transition import Verdict
from romulus.store.postgres import PostgresStore, listening
from tests.postgres.kit import opened, until
from tests.postgres.proxy import proxied
from tests.postgres.server import Database
from tests.store.kit import HELD, MovableHost, advance, claimed, new_run, register, start, succeed

LISTENER = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'romulus listen' AND datname = current_database()"
)


class Hearer:
    """Counts what `changes` yields."""

    def __init__(self, store: PostgresStore) -> None:
        self.heard = 0
        self._task = asyncio.ensure_future(self._listen(store))

    async def _listen(self, store: PostgresStore) -> None:
        async for _ in store.changes():
            self.heard += 1

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def hearing(store: PostgresStore) -> AsyncIterator[Hearer]:
    hearer = Hearer(store)
    try:
        yield hearer
    finally:
        await hearer.stop()


async def test_a_commit_of_another_process_is_heard(store: PostgresStore, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "POLL", 3600_000_000)
    async with opened(database.url) as other, hearing(other) as hearer:
        await until(lambda: other.listening and hearer.heard > 0)
        before = hearer.heard
        await start(store, "r1")
        await until(lambda: hearer.heard > before)


async def test_the_commit_of_a_transactional_step_is_heard_if_others_wait_for_it(
    store: PostgresStore, database: Database, host: MovableHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "POLL", 3600_000_000)
    record = await claimed(store, host)
    async with opened(database.url) as other, hearing(other) as hearer:
        await until(lambda: other.listening and hearer.heard > 0)
        before = hearer.heard
        transaction = await store.transaction()
        assert await transaction.commit(succeed(record)) is Verdict.APPLIED
        await until(lambda: hearer.heard > before)


async def test_what_the_watchdog_writes_is_heard(
    store: PostgresStore, database: Database, host: MovableHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "POLL", 3600_000_000)
    record = await claimed(store, host)
    lease = await register(store, host, "w2")
    async with opened(database.url) as other, hearing(other) as hearer:
        await until(lambda: other.listening and hearer.heard > 0)
        before = hearer.heard
        held = advance(record, change=Change.HOLD, status=HELD, hold=(HoldKind.HUNG, "stuck"))
        assert await asyncio.to_thread(lease.apply, held) is Verdict.APPLIED
        await until(lambda: hearer.heard > before)
    await asyncio.to_thread(lease.close)


async def test_what_a_caller_commits_in_a_transaction_of_its_own_is_heard(
    store: PostgresStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "POLL", 3600_000_000)
    async with opened(database.url) as other, hearing(other) as hearer:
        await until(lambda: other.listening and hearer.heard > 0)
        before = hearer.heard
        async with await psycopg.AsyncConnection.connect(database.url) as connection:
            await store.using(connection).start([new_run("r1")])
            await connection.commit()
            await until(lambda: hearer.heard > before)


async def test_everybody_looks_once_when_listening_has_begun(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was committed between a look before and LISTEN is found by that look."""
    monkeypatch.setattr(listening, "POLL", 3600_000_000)
    async with hearing(store) as hearer:
        await until(lambda: hearer.heard == 1)


async def test_a_listening_connection_that_is_closed_is_rebuilt(
    store: PostgresStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "POLL", 3600_000_000)
    async with opened(database.url) as other, hearing(other) as hearer:
        await until(lambda: other.listening)
        database.execute(LISTENER)
        await until(lambda: not other.listening)
        await start(store, "missed meanwhile")
        await until(lambda: other.listening)
        before = hearer.heard
        await start(store, "r2")
        await until(lambda: hearer.heard > before)


async def test_a_listening_connection_that_falls_silent_is_rebuilt_and_polled_for_meanwhile(
    store: PostgresStore, database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in {"POLL": 50_000, "KEEP_ALIVE_S": 0.1, "ANSWER_S": 0.3, "RETRY_MAX": 300_000}.items():
        monkeypatch.setattr(listening, name, value)
    monkeypatch.setattr("romulus.store.postgres.driver.CONNECT_S", 0.5)
    caplog.set_level(logging.INFO, "romulus.store")
    host = MovableHost()
    async with proxied(database.server.port) as proxy:
        url = f"{database.server.url(database.name, proxy.port)}?pooler=none"
        async with opened(url, host) as other, hearing(other) as hearer:
            await until(lambda: other.listening)
            proxy.open.clear()
            await until(lambda: not other.listening)
            before = hearer.heard
            await until(lambda: hearer.heard > before + 3)
            proxy.open.set()
            await until(lambda: other.listening)
    host.close()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
