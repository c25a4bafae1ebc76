"""Files of every schema are migrated and go on; a worker of a released one goes on with its file open meanwhile (RB-58)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from romulus.core.transition import Verdict
from romulus.store.sqlite import SQLiteStore, migrate, place_of
from romulus.store.sqlite.schema import APPLICATION_ID, VERSION
from tests.store.kit import LEASE, PENDING, RUNNING, advance, claim, entry, request, worker
from tests.store.life import OLD, SERVES, StillHost, end, look, take_over
from tests.store.sqlite.released.life import file_of, record, restore
from tests.store.sqlite.released.tape import Player, SQLiteTape, tape_of

RELEASED = range(4, VERSION + 1)  # a schema without its tape fails here: see released/life.py
NEW, LAST = "new", "last"
TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name"


@pytest.fixture
async def host() -> AsyncIterator[StillHost]:
    host = StillHost()
    yield host
    host.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.mark.parametrize("schema", range(1, VERSION + 1))
async def test_a_file_of_every_schema_is_migrated_with_all_it_has_and_its_runs_go_on_to_their_end(
    path: Path, host: StillHost, schema: int
) -> None:
    restore(file_of(schema).read_text(encoding="utf-8"), path)
    columns = columns_of(path)
    before = rows_of(path, columns)
    async with opened(path, host) as store:
        assert rows_of(path, columns) == before
        await register(store, host, NEW)
        await store.mark_dead(OLD)
        await store.sweep(10, PENDING)
        await end(store, {r.run.id: r for r in (await claim(store, NEW, serves=SERVES)).records}, NEW)
        await look(store)
        await register(store, host, LAST)
        assert await take_over(store, NEW, LAST) == {"left", "untouched", "held"}

    require_ended(path)


@pytest.mark.parametrize("schema", [*RELEASED, None])
async def test_a_worker_of_a_released_schema_and_of_this_release_goes_on_while_it_is_migrated_and_beside_a_new_one(
    path: Path, tmp_path: Path, host: StillHost, monkeypatch: pytest.MonkeyPatch, schema: int | None
) -> None:
    tape = (await record(tmp_path / "recorded.db"))[0] if schema is None else SQLiteTape.load(tape_of(schema))
    make(path, schema or VERSION)
    with Player(path, stranger=NEW) as old:
        old.play(tape.until("half"))
        async with opened(path, host):
            become_the_next_release(path, monkeypatch)
        async with opened(path, host) as store:
            await register(store, host, NEW, namespace="other")
            (mine,) = (await store.claim(replace(request(NEW), namespace="other"), RUNNING)).records
            assert await store.apply([advance(mine, entry(0))]) == [Verdict.APPLIED]
            old.play(tape)
            assert await take_over(store, OLD, NEW) == {"left", "untouched", "held"}

    require_ended(path)


async def test_the_tape_is_played_to_its_end_and_a_wrong_answer_stops_it(path: Path, tmp_path: Path) -> None:
    tape, _ = await record(tmp_path / "recorded.db")
    assert len(tape.entries) > 250
    first = SQLiteTape(tape.entries[:3])
    make(path, VERSION)
    with Player(path) as old:
        old.play(first)

    first.entries[2][3] = [1, [["another"]]]
    make(path, VERSION)
    with Player(path) as old, pytest.raises(AssertionError):
        old.play(first)


async def register(store: SQLiteStore, host: StillHost, name: str, **changes: Any) -> None:
    (await store.register(worker(host, name, **changes), LEASE)).close()


def make(path: Path, schema: int) -> None:
    """Make an empty file as the release of a schema did."""
    path.unlink(missing_ok=True)
    made = [statement for migration in migrate.MIGRATIONS[:schema] for statement in migration]
    marks = [f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {schema}"]
    restore("".join(f"{line};" for line in (*made, "INSERT INTO meta VALUES ('incarnation', 'x')", *marks)), path)


def become_the_next_release(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be one schema version on, with a column more in every table, in the file and in this process."""
    adds = [f"ALTER TABLE {table} ADD COLUMN added_later TEXT NOT NULL DEFAULT ''" for table in columns_of(path)]
    adds += ["CREATE TABLE more (run INTEGER PRIMARY KEY) STRICT", "CREATE INDEX runs_more ON runs (added_later) WHERE added_later <> ''"]
    connection = apsw.Connection(str(path))
    connection.execute("; ".join(("BEGIN IMMEDIATE", *adds, f"PRAGMA user_version = {VERSION + 1}", "COMMIT"))).fetchall()
    connection.close()
    monkeypatch.setattr(migrate, "MIGRATIONS", (*migrate.MIGRATIONS, adds))
    monkeypatch.setattr(migrate, "VERSION", VERSION + 1)


def columns_of(path: Path) -> dict[str, list[str]]:
    """Return the columns of every table."""
    tables = rows(path, TABLES)
    return {table: [column for _, column, *_ in rows(path, f"PRAGMA table_info({table})")] for (table,) in tables}


def rows_of(path: Path, columns: dict[str, list[str]]) -> dict[str, list[Any]]:
    """Return the rows of every table."""
    return {table: rows(path, f"SELECT {', '.join(names)} FROM {table}") for table, names in columns.items()}


def require_ended(path: Path) -> None:
    """Require that every run has ended, with all its entries, and that nothing it had begun is left."""
    assert rows(path, "SELECT DISTINCT status FROM runs WHERE namespace = 'default' ORDER BY 1") == [("cancelled",), ("succeeded",)]
    assert rows(path, "SELECT generation FROM journal GROUP BY generation HAVING max(position) + 1 <> count(*)") == []
    assert rows(path, "SELECT state FROM operations") == [("confirmed",)]
    assert rows(path, "SELECT id, state FROM events") == [("e1", "consumed")]
    for table in ("attempts", "attempt_names", "waits", "pool_attempts", "inbox"):
        assert rows(path, f"SELECT * FROM {table}") == []


def rows(path: Path, sql: str) -> list[Any]:
    connection = apsw.Connection(str(path))
    found = connection.execute(sql).fetchall()
    connection.close()
    return found


@asynccontextmanager
async def opened(path: Path, host: StillHost) -> AsyncIterator[SQLiteStore]:
    """Give an open store; opening migrates the file and verifies what is there."""
    store = SQLiteStore(place_of(str(path)), host)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
