"""Transactional steps and `using` on SQLite: the caller's writes and ours, together or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from romulus.core.errors import ConfigurationError, StoreUnavailable
from romulus.core.requests import request_cancel
from romulus.core.transition import Created, Verdict
from romulus.store import open_store
from romulus.store.contract import BatchRejected, Evidence, Store
from tests.store.kit import MovableHost, advance, again, claimed, entry, event, new_run, start, texts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path, host: MovableHost) -> AsyncIterator[Store]:
    store = open_store(f"sqlite:///{path}", host)
    await store.open()
    with_table(path)
    yield store
    await store.close()


def with_table(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER)")
    connection.close()


def rows(path: Path) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path))
    found = connection.execute("SELECT id, balance FROM accounts ORDER BY id").fetchall()
    connection.close()
    return found


async def test_a_steps_writes_and_its_transition_are_one_commit(store: Store, path: Path, host: MovableHost) -> None:
    record = await claimed(store, host)
    transaction = await store.transaction()
    transaction.connection.execute("INSERT INTO accounts VALUES (1, 100)")
    assert rows(path) == []

    assert await transaction.commit(advance(record, entry(0))) is Verdict.APPLIED

    assert rows(path) == [(1, 100)]
    assert (await again(store, record)).run.position == 1


async def test_a_refused_transition_undoes_the_steps_writes_and_is_kept_as_evidence(store: Store, path: Path, host: MovableHost) -> None:
    record = await claimed(store, host)
    await store.reclaim(record.run.key, "w1", record.run.fence)
    transaction = await store.transaction()
    transaction.connection.execute("INSERT INTO accounts VALUES (1, 100)")

    assert await transaction.commit(advance(record, entry(0))) is Verdict.REFUSED

    assert rows(path) == []
    assert [e.kind for e in await store.evidence(record.run.key)] == ["late_transition"]


async def test_a_rolled_back_step_leaves_nothing_and_gives_the_writer_free(store: Store, path: Path, host: MovableHost) -> None:
    transaction = await store.transaction()
    transaction.connection.execute("INSERT INTO accounts VALUES (1, 100)")

    await transaction.rollback()
    await transaction.rollback()

    assert rows(path) == []
    await start(store, "r1")


async def test_other_writes_wait_for_the_step_and_keep_their_order(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    transaction = await store.transaction()
    second = asyncio.ensure_future(store.transaction())
    evidence = asyncio.ensure_future(store.keep_evidence(record.run.key, Evidence(1, "late_attempt", "w1", 1, "{}")))
    for _ in range(5):
        await asyncio.sleep(0)
    assert [second.done(), evidence.done()] == [False, False]

    await transaction.commit(advance(record, entry(0)))
    following = await second
    assert not evidence.done()
    await following.rollback()
    await evidence


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
async def test_a_body_that_ends_the_transaction_itself_commits_nothing(store: Store, path: Path, host: MovableHost, ending: str) -> None:
    record = await claimed(store, host)
    transaction = await store.transaction()
    transaction.connection.execute("INSERT INTO accounts VALUES (1, 100)")
    if ending == "COMMIT":
        with pytest.raises(apsw.ConstraintError):
            transaction.connection.execute(ending)
    else:
        transaction.connection.execute(ending)

    with pytest.raises(BatchRejected, match="ended the transaction itself"):
        await transaction.commit(advance(record, entry(0)))

    assert rows(path) == []
    assert (await again(store, record)).run.position == 0
    await start(store, "r2")


async def test_the_next_step_is_not_hindered_by_the_last(store: Store, path: Path, host: MovableHost) -> None:
    record = await claimed(store, host)
    for n in range(3):
        transaction = await store.transaction()
        transaction.connection.execute("INSERT INTO accounts VALUES (?, 0)", (n,))
        assert await transaction.commit(advance(await again(store, record), entry(n))) is Verdict.APPLIED

    assert len(rows(path)) == 3


async def test_what_keeps_a_transaction_from_being_committed_is_told_and_keeps_no_later_one(
    store: Store, path: Path, host: MovableHost
) -> None:
    record = await claimed(store, host)
    transaction = await store.transaction()
    transaction.connection.execute("INSERT INTO accounts VALUES (1, 100)")
    transaction.connection.execute("PRAGMA query_only = 1")
    await transaction.ready()
    with pytest.raises((BatchRejected, StoreUnavailable), match="readonly") as refused:
        await transaction.commit(advance(record, entry(0)))

    assert isinstance(refused.value.__cause__, apsw.ReadOnlyError)
    following = await store.transaction()
    following.connection.execute("INSERT INTO accounts VALUES (2, 100)")
    assert await following.commit(advance(record, entry(0))) is Verdict.APPLIED
    assert rows(path) == [(2, 100)]


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
async def test_what_is_done_on_the_callers_connection_is_part_of_its_transaction(
    store: Store, path: Path, host: MovableHost, ending: str
) -> None:
    await claimed(store, host, "old")
    connection = apsw.Connection(str(path))
    view = store.using(connection)
    connection.execute("BEGIN IMMEDIATE; INSERT INTO accounts VALUES (1, 100)")
    await view.start([new_run("r1")])
    await view.send([event("e1")])
    await view.change("default", "old", lambda run, _, now: request_cancel(run, "", now))
    assert await store.run("default", "r1") is None

    connection.execute(ending)
    connection.close()

    kept = ending == "COMMIT"
    old = await store.run("default", "old")
    assert old is not None
    assert (await store.run("default", "r1") is not None, bool(await texts(store)), old.cancel_seq, len(rows(path))) == (
        kept, kept, int(kept), int(kept),
    )  # fmt: skip


@pytest.mark.parametrize("bad", [{"priority": 2**70}, {"timeout": 2**70}])  # refused by the first statement, and by a later one
async def test_a_failed_call_leaves_the_callers_transaction_open_and_nothing_of_itself_in_it(
    store: Store, path: Path, bad: dict[str, int]
) -> None:
    connection = apsw.Connection(str(path))
    view = store.using(connection)
    connection.execute("BEGIN IMMEDIATE; INSERT INTO accounts VALUES (1, 100)")
    with pytest.raises(OverflowError):
        await view.start([new_run("r1", **bad)])
    assert await view.start([new_run("r1")]) == [Created(1)]
    connection.execute("COMMIT")
    connection.close()

    assert rows(path) == [(1, 100)]
    assert await store.record("default", "r1") is not None


async def test_another_sqlite_library_is_refused_with_the_reason(store: Store, path: Path, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "other.db")  # never our file: closing it would drop the store's locks
    with pytest.raises(ConfigurationError, match=r"sqlite3\.Connection cannot be used.*drops the locks"):
        store.using(connection)
    connection.close()


async def test_a_connection_to_another_file_is_refused(store: Store, tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "other.db"))
    with pytest.raises(ConfigurationError, match="the store is"):
        store.using(connection)
    connection.close()


async def test_a_connection_to_no_file_or_to_one_that_is_gone_is_refused(store: Store, tmp_path: Path) -> None:
    private = apsw.Connection("")
    with pytest.raises(ConfigurationError, match="the connection is to a private database, the store is"):
        store.using(private)
    private.close()
    gone = apsw.Connection(str(tmp_path / "gone.db"))
    gone.execute("CREATE TABLE theirs (x)").fetchall()
    (tmp_path / "gone.db").unlink()
    with pytest.raises(ConfigurationError, match=r"the connection is to .*gone\.db, the store is"):
        store.using(gone)
    gone.close()


async def test_a_connection_to_memory_is_refused(host: MovableHost) -> None:
    store: Any = open_store("sqlite://", host)
    await store.open()
    connection = apsw.Connection(store._place.path, vfs="memdb")
    with pytest.raises(ConfigurationError, match="the store is the store in memory"):
        store.using(connection)
    connection.close()
    await store.close()


async def test_a_connection_without_a_transaction_is_refused(store: Store, path: Path) -> None:
    connection = apsw.Connection(str(path))
    with pytest.raises(ConfigurationError, match="BEGIN IMMEDIATE first"):
        await store.using(connection).start([new_run("r1")])
    connection.close()


async def test_the_view_reads_and_names_itself_as_the_store_does(store: Store, path: Path) -> None:
    await start(store, "r1")
    connection = apsw.Connection(str(path))
    view = store.using(connection)

    assert view.url == store.url
    assert await view.run("default", "r1") == await store.run("default", "r1")
    connection.close()
