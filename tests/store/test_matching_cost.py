"""What storing and matching an event costs is the same beside 1,000 open waits and stored events as beside 100,000: counted in pages."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from romulus.core.transition import Closing
from romulus.store import open_store
from romulus.store.contract import Store
from romulus.store.postgres.session import OwnSession
from tests.postgres.server import Database, Server, without_a_past
from tests.store.kit import MovableHost, advance, again, claimed, close, deposits, event, wait

FEW = 1_000
MANY = int(os.environ.get("MATCHING_ROWS", "100000"))
DEEPER = 1.35  # a thousand times the rows is one more page for each look into an index

Count = Callable[[Callable[[], Awaitable[object]]], Awaitable[int]]


async def costs(store: Store, host: MovableHost, count: Count) -> dict[str, int]:
    """Return the pages that each request of an event's life touches, once all is warm: the fewest of several turns, some split a page."""
    record = await claimed(store, host, "mine")
    fewest: dict[str, int] = {}
    for turn in ("warm", "first", "second", "third", "fourth"):
        sent = event(turn, name="mine")
        opening = advance(record, opens=[wait(1, name="mine")])
        pages = {
            "send": await count(lambda sent=sent: store.send([sent])),  # type: ignore[misc]
            "match the event": await count(lambda: store.match(100)),
            "open": await count(lambda opening=opening: store.apply([opening])),  # type: ignore[misc]
            "match the wait": await count(lambda: store.match(100)),
        }
        record = await again(store, record)
        assert deposits(record) == [turn]
        (held,) = record.waits
        assert held.deposit is not None
        closing = advance(record, closes=[close(1, Closing.CONSUMED, held.deposit.event)])
        pages["consume"] = await count(lambda closing=closing: store.apply([closing]))  # type: ignore[misc]
        record = await again(store, record)
        if turn != "warm":
            fewest = {request: min(count, fewest.get(request, count)) for request, count in pages.items()}
    return fewest


def check(few: dict[str, int], many: dict[str, int]) -> None:
    assert min(few.values()) > 0
    for request, pages in many.items():
        assert pages <= few[request] * DEEPER + 4, f"{request}: {pages} pages beside {MANY} rows, {few[request]} beside {FEW}"


async def on_sqlite(path: Path, rows: int) -> dict[str, int]:
    host = MovableHost()
    store: Any = open_store(f"sqlite:///{path / f'{rows}.db'}", host)
    await store.open()
    connection = store._writer.session.connection
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
    connection.execute("BEGIN IMMEDIATE").fetchall()
    connection.execute(
        f"{numbers} INSERT INTO runs SELECT i, 'default', 'r' || i, 'other', '1', 'waiting', 1, i, 0, 0, NULL, 0, 0, '', 0, '', 0, "
        "NULL, 0, NULL, 0, '', '', '', '', NULL, '{}', 1, 1, 1, NULL, 0 FROM n", (rows,),
    ).fetchall()  # fmt: skip
    connection.execute(
        f"{numbers} INSERT INTO waits SELECT i, i, 1, 'default', 'paid', 'c' || i, NULL, 0, 0, 1, NULL FROM n", (rows,)
    ).fetchall()
    connection.execute(
        f"{numbers} INSERT INTO events SELECT i, 'default', 'e' || i, 'stored', 'c' || i, X'31', X'', 1, 'unmatched', NULL FROM n", (rows,)
    ).fetchall()
    connection.execute("COMMIT").fetchall()

    async def count(work: Callable[[], Awaitable[object]]) -> int:
        touched = (apsw.SQLITE_DBSTATUS_CACHE_HIT, apsw.SQLITE_DBSTATUS_CACHE_MISS)
        for status in touched:
            connection.status(status, True)
        await work()
        return sum(connection.status(status)[0] for status in touched)

    try:
        return await costs(store, host, count)
    finally:
        await store.close()
        host.close()


async def on_postgres(database: Database, rows: int, patch: pytest.MonkeyPatch) -> dict[str, int]:
    numbers = f"FROM generate_series(1, {rows}) i"
    database.execute(
        "INSERT INTO romulus.runs (key, revision, fence, last_transition, created_at, updated_at, generation, position, cancel_seq, "
        "losses, lane, priority, depth, namespace, id, workflow, version, status, "
        "cancel_reason, armed, digest, excluded, hold_kind, hold_reason, "
        f"attributes) SELECT i + 1000000000, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 'default', 'r' || i, 'other', '1', 'waiting', '', '', '', "
        f"'', '', '', '{{}}' {numbers}"
    )
    database.execute(
        "INSERT INTO romulus.waits (run, seq, namespace, name, correlation_id, shared, include_late, opened_at) "
        f"SELECT i + 1000000000, 1, 'default', 'paid', 'c' || i, false, false, 1 {numbers}"
    )
    database.execute(
        "INSERT INTO romulus.events (arrival, received_at, namespace, id, name, correlation_id, digest, payload) "
        f"SELECT nextval('romulus.arrivals'), 1, 'default', 'e' || i, 'stored', 'c' || i, '', '1' {numbers}"
    )
    database.execute("INSERT INTO romulus.unmatched SELECT namespace, name, correlation_id, arrival FROM romulus.events")
    database.execute("ANALYZE")
    touched = 0
    real = OwnSession.rows

    async def rows_of(self: OwnSession, name: Any, sql: Any, *args: Any) -> Any:
        """Explain the statement, undo it, and carry it out."""
        nonlocal touched
        if sql.lstrip().startswith(("WITH", "SELECT", "INSERT", "UPDATE", "DELETE")):
            inside = self.connection.is_in_transaction()
            await self.connection.execute("SAVEPOINT looked" if inside else "BEGIN")
            plan = await self.connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *args)
            await self.connection.execute("ROLLBACK TO looked" if inside else "ROLLBACK")
            top = json.loads(plan)[0]["Plan"]
            touched += top["Shared Hit Blocks"] + top["Shared Read Blocks"]
        return await real(self, name, sql, *args)

    async def count(work: Callable[[], Awaitable[object]]) -> int:
        nonlocal touched
        touched = 0
        with patch.context() as patched:
            patched.setattr(OwnSession, "rows", rows_of)
            await work()
        return touched

    host = MovableHost()
    store = open_store(database.url, host)
    await store.open()
    try:
        return await costs(store, host, count)
    finally:
        await store.close()
        host.close()


async def test_matching_on_sqlite_reads_as_many_pages_beside_many_waits_and_events_as_beside_few(tmp_path: Path) -> None:
    check(await on_sqlite(tmp_path, FEW), await on_sqlite(tmp_path, MANY))


async def test_matching_on_postgresql_reads_as_many_pages_beside_many_waits_and_events_as_beside_few(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for rows in (FEW, MANY):
        with without_a_past(postgres_server) as database:
            found.append(await on_postgres(database, rows, monkeypatch))
    check(*found)
