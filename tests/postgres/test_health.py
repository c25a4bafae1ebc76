"""`romulus doctor` on PostgreSQL: what a person should look at, in words."""

from __future__ import annotations

import pytest

from romulus.store.postgres import PostgresStore, health
from tests.postgres.kit import until
from tests.postgres.server import Database


async def test_a_healthy_database_says_nothing_but_that_the_tests_run_without_fsync(store: PostgresStore) -> None:
    assert await store.warnings() == [health.REMEDIES["fsync"]]


async def test_a_transaction_that_stays_open_is_named(store: PostgresStore, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "OPEN_S", 0)
    with database.server.connect(database.name) as connection:
        connection.execute("SET application_name = 'forgotten'")
        connection.execute("BEGIN")
        connection.execute("SELECT 1")
        found = await store.warnings()
        connection.execute("COMMIT")

    assert any("(forgotten, idle in transaction) has had a transaction open for" in text for text in found)


async def test_commits_that_are_asynchronous_by_default_are_named(store: PostgresStore, database: Database) -> None:
    from tests.postgres.kit import opened

    with database.server.connect() as connection:
        connection.execute(f"ALTER DATABASE {database.name} SET synchronous_commit = off")  # type: ignore[arg-type]
        async with opened(database.url) as other:
            found = await other.warnings()
        connection.execute(f"ALTER DATABASE {database.name} RESET ALL")  # type: ignore[arg-type]
    assert health.REMEDIES["synchronous_commit"] in found


async def test_a_table_of_dead_rows_is_named(store: PostgresStore, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "DEAD_MIN", 100)
    database.execute("INSERT INTO romulus.wakes (run) SELECT n FROM generate_series(1, 500) n")
    database.execute("DELETE FROM romulus.wakes")  # its end tells the server's statistics

    await until(lambda: database.execute("SELECT n_dead_tup >= 500 FROM pg_stat_user_tables WHERE relname = 'wakes'") == [(True,)])
    assert any(text.startswith("table romulus.wakes has ") for text in await store.warnings())
