"""Whatever the database's default isolation and commit mode, ours are pinned (RB-39)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import romulus
from tests.postgres.kit import opened
from tests.postgres.server import Database
from tests.postgres.test_crashes import story
from tests.store.kit import MovableHost

RUNS, WORKERS = 200, 4
PINNED = {
    "transaction_isolation": "read committed", "transaction_read_only": "off", "synchronous_commit": "on", "lock_timeout": "1500ms",
    "tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
}  # fmt: skip


@pytest.fixture(params=["repeatable read", "serializable"])
def strict(request: pytest.FixtureRequest, database: Database) -> Iterator[Database]:
    """A database whose defaults would make everybody else's transactions fail."""
    settings = {"default_transaction_isolation": request.param, "synchronous_commit": "off", "default_transaction_read_only": "on"}
    with database.server.connect() as connection:
        for setting, value in settings.items():
            connection.execute(f"ALTER DATABASE {database.name} SET {setting} = '{value}'")  # type: ignore[arg-type]
        yield database
        connection.execute(f"ALTER DATABASE {database.name} RESET ALL")  # type: ignore[arg-type]


@romulus.step
async def double(n: int) -> int:
    return n * 2


@romulus.workflow
async def chain(n: int) -> int:
    for _ in range(3):
        n = await double(n)
    return n


async def test_the_settings_are_pinned_on_every_connection(strict: Database) -> None:
    host = MovableHost()
    async with opened(strict.url, host) as store:
        transaction = await store.transaction()
        for setting, expected in PINNED.items():
            in_its_body = "0" if setting == "lock_timeout" else expected  # which waits for locks as the database says
            assert await transaction.connection.fetchval(f"SHOW {setting}") == in_its_body
            assert await store._pool.rows("show", "SELECT current_setting($1)", setting) == [(expected,)]
        await transaction.ready()
        assert [await transaction.connection.fetchval(f"SHOW {setting}") for setting in PINNED] == list(PINNED.values())
        await transaction.rollback()
        await story(store, host)
    host.close()


async def test_runs_and_cancels_of_many_workers_all_end(strict: Database) -> None:
    apps = [romulus.App(strict.url, workflows=[chain]) for _ in range(WORKERS)]
    async with romulus.AsyncClient(apps[0]) as client:
        workers = [app.worker(concurrency=5) for app in apps]
        for worker in workers:
            await worker.__aenter__()
        handles = await asyncio.gather(*(client.start(chain.options(id=f"r{n}"), n) for n in range(RUNS)))
        await asyncio.gather(*(handle.cancel() for handle in handles[::7]))
        ends = await asyncio.gather(*(handle.result(timeout=60) for handle in handles), return_exceptions=True)
        for worker in workers:
            await worker.__aexit__(None, None, None)

    odd = [end for n, end in enumerate(ends) if end != n * 8 and not isinstance(end, romulus.RunCancelled)]
    assert odd == []
    assert strict.execute("SELECT count(*) FROM romulus.runs WHERE owner IS NOT NULL OR armed NOT IN ('', '[]')") == [(0,)]
