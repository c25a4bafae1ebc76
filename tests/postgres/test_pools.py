"""Attempts in pools on two connections: a worker's word on one meets the transition that deletes it, and other workers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from romulus.core.pools import NewPoolAttempt, PoolAttempt, PoolBeat, PoolEnd, PoolReport
from romulus.core.record import Record
from romulus.core.transition import Verdict
from romulus.store.postgres import PostgresStore
from tests.postgres.kit import blocked, deadlocks, opened
from tests.postgres.server import Database
from tests.postgres.test_interleavings import holding
from tests.store.kit import LEASE, MovableHost, advance, again, claimed, register, succeed

__all__ = ["holding"]
ATTEMPTS = "SELECT 1 FROM romulus.pool_attempts FOR UPDATE"


def attempt(seq: int) -> NewPoolAttempt:
    return NewPoolAttempt(seq, "gpu", "train", "d1", b"{}", 1, 0, None, None)


async def working(store: PostgresStore, host: MovableHost, count: int = 1) -> tuple[Record, list[PoolAttempt]]:
    """Return an owned run whose attempts are claimed by "g1"."""
    record = await claimed(store, host)
    await store.apply([advance(record, pools=[attempt(n + 1) for n in range(count)], pooled=True)])
    (await register(store, host, "g1")).close()
    taken = await store.take_pool("g1", "default", ["gpu"], ["train"], count, LEASE)
    return await again(store, record), sorted(taken.rows, key=lambda row: row.seq)


def report(row: PoolAttempt) -> PoolReport:
    return PoolReport(row.key, row.fence, row.run, "g1", PoolEnd.RETURNED, b'"done"', "{}")


@pytest.mark.parametrize("first", ["recall", "report"])
async def test_an_attempt_is_reported_or_deleted_whoever_comes_first(
    store: PostgresStore, database: Database, host: MovableHost, holding: Any, first: str
) -> None:
    record, (row,) = await working(store, host)
    t = advance(record, recalled=[1], pooled=True)
    with holding(ATTEMPTS):
        calls = [lambda: asyncio.ensure_future(store.apply([t])), lambda: asyncio.ensure_future(store.report_pool([report(row)]))]
        one: Any = calls[0 if first == "recall" else 1]()
        await blocked(database, 1)
        two: Any = calls[1 if first == "recall" else 0]()
        await blocked(database, 2)
    applied, reported = await asyncio.gather(*((one, two) if first == "recall" else (two, one)))

    assert applied == [Verdict.APPLIED]
    assert reported == [first == "report"]
    assert len((await again(store, record)).inbox) == (first == "report")
    assert len(await store.evidence(record.run.key)) == (first == "recall")
    assert await store.pooled(record.run.generation_key) == []


async def test_what_is_reported_while_the_generation_ends_leaves_no_message(
    store: PostgresStore, database: Database, host: MovableHost, holding: Any
) -> None:
    record, (row,) = await working(store, host)
    with holding(ATTEMPTS):
        reporting = asyncio.ensure_future(store.report_pool([report(row)]))
        await blocked(database, 1)
        ending = asyncio.ensure_future(store.apply([succeed(record, pooled=True, parent=True)]))
        await blocked(database, 2)
    assert await reporting == [True]
    assert await ending == [Verdict.APPLIED]
    assert database.execute("SELECT count(*) FROM romulus.inbox") == [(0,)]


async def test_workers_that_claim_at_once_share_the_attempts(store: PostgresStore, database: Database, host: MovableHost) -> None:
    record = await claimed(store, host)
    await store.apply([advance(record, pools=[attempt(n) for n in range(40)], pooled=True)])
    names = ["g1", "g2", "g3", "g4"]
    for name in names:
        (await register(store, host, name)).close()
    taken = await asyncio.gather(*(store.take_pool(name, "default", ["gpu"], ["train"], 10, LEASE) for name in names))
    rest = await store.take_pool("g1", "default", ["gpu"], ["train"], 40, LEASE)
    seqs = [row.seq for part in (*taken, rest) for row in part.rows]
    assert sorted(seqs) == list(range(40))


async def test_a_claim_does_not_wait_for_attempts_that_another_has_locked(store: PostgresStore, host: MovableHost, holding: Any) -> None:
    record = await claimed(store, host)
    await store.apply([advance(record, pools=[attempt(1), attempt(2)], pooled=True)])
    (await register(store, host, "g1")).close()
    with holding("SELECT 1 FROM romulus.pool_attempts WHERE seq = 1 FOR UPDATE"):
        taken = await store.take_pool("g1", "default", ["gpu"], ["train"], 10, LEASE)
    assert [row.seq for row in taken.rows] == [2]


async def test_a_renewal_that_comes_after_an_attempt_was_given_up_does_not_bring_it_back(
    store: PostgresStore, database: Database, host: MovableHost, holding: Any
) -> None:
    record, (row,) = await working(store, host)
    lease = await register(store, host, "g2")
    database.execute("UPDATE romulus.pool_attempts SET owner = 'g2', lease_until = 0")
    with holding(ATTEMPTS):
        assert await asyncio.to_thread(lease.renew, [row.key])  # it waits for nobody
        assert await store.lose_pool(10) == 0  # the row is locked: whoever has the lock may be renewing
    assert await store.lose_pool(10) == 1
    assert await asyncio.to_thread(lease.renew, [row.key])
    assert [standing.owner for standing in await store.pooled(record.run.generation_key)] == [None]
    lease.close()


async def test_batches_reports_heartbeats_and_renewals_of_many_attempts_never_deadlock(
    store: PostgresStore, database: Database, host: MovableHost
) -> None:
    """Every one of them locks attempts by their keys."""
    before = deadlocks(database)
    record, rows = await working(store, host, 200)
    lease = await register(store, host, "g2")
    database.execute("UPDATE romulus.pool_attempts SET owner = 'g2' WHERE seq > 100")
    async with opened(store.url) as other:
        backwards = list(reversed(rows))
        await asyncio.gather(
            store.apply([advance(record, recalled=[row.seq for row in backwards[::2]], pooled=True)]),
            other.report_pool([report(row) for row in backwards[:100]]),
            other.beat_pool([PoolBeat(row.key, row.fence, True, b"x") for row in backwards]),
            asyncio.get_running_loop().run_in_executor(None, lease.renew, [row.key for row in rows]),
        )
    assert deadlocks(database) == before
    assert len(await store.pooled(record.run.generation_key)) == 100
    lease.close()
