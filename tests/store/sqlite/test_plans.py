"""What each statement of the hot paths costs does not grow with the rows that stand by: every one of them goes by an index."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from romulus.store import open_store
from romulus.store.sqlite import children, claiming, delivering, giveback, matching, place_of, pools, retention, starting, workers
from romulus.store.sqlite.advance import ADVANCE, HOLDING, LEAVE
from romulus.store.sqlite.beside import ENDED, SETTLED, WAITS
from romulus.store.sqlite.bulk import ROWS_MAX, STEP, chunks
from romulus.store.sqlite.migrate import prepare
from romulus.store.sqlite.session import Session
from tests.store.kit import MovableHost, advance, claim, entry, new_run, register

PARKED = 100_000


@pytest.fixture(scope="module", params=["no statistics", "statistics while none was owned", "statistics while some were owned"])
def plan(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], list[str]]]:
    """Return the query plan of a statement, over 100,000 parked runs that each wait for an event."""
    import asyncio

    host = MovableHost(asyncio.new_event_loop())
    session = Session(place_of(str(tmp_path_factory.mktemp("plans") / "store.db")), host, 1_000_000)
    prepare(session)
    _fill(session)
    if request.param == "statistics while some were owned":
        session.run("test", "UPDATE runs SET owner = 'w' || (key % 3), queue_at = NULL WHERE key % 1000 = 0")
    if request.param != "no statistics":
        session.run("test", "ANALYZE")

    def explain(sql: str) -> list[str]:
        count = max((int(n) for n in _numbers(sql)), default=sql.count("?"))
        return [str(row[3]) for row in session.connection.execute(f"EXPLAIN QUERY PLAN {sql}", [None] * count).fetchall()]

    yield explain
    session.close()
    host.loop.close()


def _numbers(sql: str) -> Iterator[str]:
    import re

    yield from re.findall(r"\?(\d+)", sql)


def _fill(session: Session) -> None:
    numbers = (PARKED,)
    session.run("test", "BEGIN")
    session.run(
        "test",
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO runs SELECT i, 'default', 'r' || i, "
        "'order', '1', 'waiting', 1, i, 0, 0, NULL, 0, 0, '', 0, '[]', 0, 9000000000000000 + i, 0, 9000000000000000 + i, 0, '', '', '', "
        "'', NULL, '{}', 1, 1, 1, NULL, 0 FROM n",
        numbers,
    )
    session.run("test", "INSERT INTO waits SELECT key, key, 1, 'default', 'paid', id, NULL, 0, 0, 1, NULL FROM runs")
    session.run("test", "COMMIT")


def only_json_is_scanned(steps: list[str]) -> bool:
    """Everything but the given list, a subquery's few rows and a queue's head is looked up."""
    small = (
        "SCAN json_each",
        "SCAN t",
        "SCAN k",
        "SCAN (",
        "SCAN 2-ROW",
        "SCAN 3-ROW",
        "SCAN o",
        "SCAN workers",
        "SCAN wakes",
        "SCAN w ",
        "SCAN q",
        "SCAN s ",
        "SCAN to_match",
        "SCAN to_close",
    )
    return all(not step.startswith("SCAN") or step == "SCAN w" or step.startswith(small) or "CONSTANT ROW" in step for step in steps)


STATEMENTS: dict[str, tuple[str, str]] = {
    "claim": (claiming.TAKE, "USING INDEX runs_due"),
    "claim alone": (claiming.TAKE_ALONE, "USING INDEX runs_lossy"),
    "look": (claiming.LOOK, "USING INDEX runs_due"),
    "look alone": (claiming.LOOK, "USING INDEX runs_lossy"),
    "rise": (claiming.RISE, "INDEX runs_due"),
    "take": (claiming.CLAIM, "runs USING INTEGER PRIMARY KEY"),
    "waken": (claiming.WAKEN, "runs USING INTEGER PRIMARY KEY"),
    "advance": (ADVANCE.sql(3), "runs USING INTEGER PRIMARY KEY"),
    "leave": (LEAVE.sql(3), "runs USING INTEGER PRIMARY KEY"),
    "holding": (HOLDING.sql(3), "runs USING INTEGER PRIMARY KEY"),
    "end": (ENDED.sql(3), "generations USING INTEGER PRIMARY KEY"),
    "open waits": (WAITS.sql(3), "r USING INTEGER PRIMARY KEY"),
    "close waits": (
        f"DELETE FROM waits WHERE {giveback.OF_SEQS} RETURNING event, run",
        "w USING COVERING INDEX waits_run (run=? AND seq=?)",
    ),
    "close a run's waits": (f"DELETE FROM waits WHERE {giveback.OF_RUNS} RETURNING event, run", "waits USING COVERING INDEX waits_run"),
    "give events back": (giveback.UNMATCHED, "events USING INTEGER PRIMARY KEY"),
    "match": (matching.HEADS, "INDEX waits_open"),
    "match odd ones": (matching.OFFERED, "w USING INDEX waits_open"),
    "unmatched events": (matching.UNMATCHED, "events USING COVERING INDEX events_unmatched"),
    "write a match": (matching.MATCH, "waits USING INTEGER PRIMARY KEY"),
    "taker of an event": (delivering.TAKER, "waits USING INDEX waits_open (namespace=? AND name=? AND correlation_id=?)"),
    "give an event": (delivering.GIVE, "waits USING INTEGER PRIMARY KEY"),
    "known events": (matching.KNOWN, "e USING INDEX events_id (namespace=? AND id=?)"),
    "taken IDs": (starting.TAKEN, "r USING COVERING INDEX runs_id (namespace=? AND id=?)"),
    "settle attempts": (SETTLED, "a USING PRIMARY KEY (generation=? AND seq=?)"),
    "tell parents": (children.TELL.sql(3), "c USING INTEGER PRIMARY KEY"),
    "wake parents": (children.WAKE_PARENTS, "p USING INTEGER PRIMARY KEY"),
    "close children": (children.CLOSE_ALL, "c EXISTS USING INDEX children_generation"),
    "children asked": (children.ASKED, "c USING INDEX children_generation"),
    "children started": (children.LISTED, "children USING INDEX children_generation"),
    "forget the inbox": (children.FORGET_INBOX, "inbox USING COVERING INDEX inbox_run"),
    "events that wait": (retention.BACKLOG, "e USING COVERING INDEX events_unmatched"),
    "claim from a pool": (pools.TAKE, "pool_attempts USING INDEX pool_attempts_due"),
    "next due in a pool": (pools.NEXT, "pool_attempts USING INDEX pool_attempts_due"),
    "queue in pools": (pools.QUEUED.sql(3), "r USING INTEGER PRIMARY KEY"),
    "recall from pools": (pools.RECALL, "a USING COVERING INDEX pool_attempts_generation (generation=? AND seq=?)"),
    "leave pools": (pools.LEAVE, "pool_attempts USING COVERING INDEX pool_attempts_generation"),
    "forget pools' messages": (pools.FORGET, "inbox USING INDEX inbox_run"),
    "renew attempts": (pools.RENEW, "pool_attempts USING COVERING INDEX pool_attempts_owner (owner=? AND rowid=?)"),
    "lost attempts": (pools.OVER, "pool_attempts USING INDEX pool_attempts_owner"),
    "free": (workers.FREE, "runs USING COVERING INDEX runs_owner"),
    "lost owners": (workers.LOST, "runs USING COVERING INDEX runs_owner"),
    "reopen held": (workers.REOPEN, "runs USING INDEX runs_held"),
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_no_statement_of_a_hot_path_scans_runs_waits_or_events(plan: Callable[[str], list[str]], statement: str) -> None:
    sql, index = STATEMENTS[statement]

    steps = plan(sql)

    assert any(index in step for step in steps), steps
    assert only_json_is_scanned(steps), steps


def test_an_advance_touches_no_index_of_runs(plan: Callable[[str], list[str]]) -> None:
    """The bytecode of the update opens the table alone for writing."""
    del plan
    indexed = {"namespace", "id", "workflow", "version", "lane", "queue_at", "owner", "hold_kind"}
    written = {part.split("=")[0].strip() for part in ADVANCE.sql(1).split("SET")[1].split("FROM")[0].split(", ")}

    assert not written & indexed
    assert {"status", "position", "revision"} <= written


async def test_claiming_reads_no_row_that_is_not_due(tmp_path: Path, host: MovableHost) -> None:
    session = Session(place_of(str(tmp_path / "store.db")), host, 1_000_000)
    prepare(session)
    _fill(session)
    given = ("default", json.dumps([["order", "1", "d"]]), host.wall(), 3, json.dumps([]), 0, 100)

    cursor = session.connection.cursor()
    counted = 0

    def progress() -> bool:
        nonlocal counted
        counted += 1
        return False

    session.connection.set_progress_handler(progress, 100)
    cursor.execute(claiming.TAKE, given).fetchall()
    cursor.execute(claiming.LOOK, (*given[:6], 1, "w1")).fetchall()
    session.connection.set_progress_handler(None)
    session.close()

    assert counted < 20  # hundreds of instructions: fewer than a thousandth of one a parked run


async def test_a_batch_is_at_most_six_statements_whatever_its_size(tmp_path: Path, host: MovableHost) -> None:
    """Each statement gives the interpreter lock away; a busy loop gives it back 5 ms later."""
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", host)
    await store.open()
    (await register(store, host)).close()
    await store.start([new_run(f"r{n}") for n in range(200)])
    records = (await claim(store, limit=200)).records
    names: list[str] = []
    host.at_point = names.append
    await store.apply([advance(record, entry(0)) for record in records])
    host.at_point = None
    await store.close()

    both = ["apply.advance", "apply.advance", "apply.journal", "apply.journal"]  # 192 and 8
    assert [name for name in names if not name.endswith(".done")] == ["sqlite.begin", *both, "sqlite.commit"]


async def test_a_claim_of_many_runs_reads_them_in_one_step(tmp_path: Path, host: MovableHost) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", host)
    await store.open()
    (await register(store, host)).close()
    await store.start([new_run(f"r{n}") for n in range(200)])
    names: list[str] = []
    host.at_point = names.append
    assert len((await claim(store, limit=200)).records) == 200
    host.at_point = None
    await store.close()

    assert len([name for name in names if not name.endswith(".done")]) < 15


def test_the_sizes_of_statements_are_few_and_leave_no_row_out() -> None:
    """Each size is a prepared statement of its own, which is kept: 200 kB for 200 rows."""
    sizes: set[int] = set()
    for count in range(1_000):
        rows = [(n,) for n in range(count)]
        pieces = list(chunks(rows))
        assert [row for piece in pieces for row in piece] == rows
        sizes.update(map(len, pieces))
    assert len(sizes) == STEP - 1 + ROWS_MAX // STEP
