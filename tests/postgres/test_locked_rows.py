"""A transaction that stays open, of a caller or of a process that is frozen, holds up what needs its rows and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from romulus.core.machine import Change
from romulus.core.record import HoldKind
from romulus.core.requests import terminate
from romulus.core.transition import Closing, Created, Received, Verdict
from romulus.store.contract import RowsLocked, Store
from romulus.store.postgres import PostgresStore
from tests.postgres.kit import held
from tests.postgres.server import Database
from tests.store.conformance.test_children import ASK, SERVES, child, ended, parent_of, row
from tests.store.conformance.test_pools import attempt as pool_attempt
from tests.store.conformance.test_pools import inbox, queued, report, states, take
from tests.store.kit import (
    HELD,
    LEASE,
    SECOND,
    MovableHost,
    advance,
    again,
    claim,
    claimed,
    close,
    deposits,
    entry,
    event,
    new_run,
    parked,
    register,
    start,
    texts,
    wait,
)  # fmt: skip

ALL_QUEUES = "SELECT pg_advisory_xact_lock(1383034229, n) FROM generate_series(0, 255) n"


@asynccontextmanager
async def begun(store: PostgresStore, database: Database, work: Callable[[Store], Awaitable[Any]]) -> AsyncIterator[None]:
    """Keep a caller's transaction open in which *work* was done, and undo it at the end."""
    async with await psycopg.AsyncConnection.connect(database.url) as connection:
        await work(store.using(connection))
        yield
        await connection.rollback()


def held_wait(run_id: str, seq: int = 1) -> str:
    return f"SELECT FROM romulus.waits WHERE seq = {seq} AND run = (SELECT key FROM romulus.runs WHERE id = '{run_id}') FOR UPDATE"


async def claimed_now(store: Store, host: MovableHost) -> list[str]:
    """Return what is claimed by looks after a second: what was set aside is tried again."""
    host.advance(SECOND)
    claims = [await claim(store, match_max=100) for _ in range(3)]
    return [record.run.id for each in claims for record in each.records]


# ---- matching and claiming ------------------------------------------------------------------------
async def test_a_wait_that_is_locked_stops_neither_claims_nor_the_matching_of_others(
    store: PostgresStore, database: Database, host: MovableHost
) -> None:
    await parked(store, host, "r1", wait())
    await parked(store, host, "r2", wait(name="other"))
    (await register(store, host)).close()
    await start(store, "r3")
    with held(database, held_wait("r1")):
        await store.send([event("e1"), event("e2", name="other")])
        claims = await claim(store, match_max=100)
        assert {record.run.id for record in claims.records} | {r.run.id for r in (await claim(store, match_max=100)).records} == {
            "r2",
            "r3",
        }
        assert await texts(store) == {"e1": "unmatched", "e2": "matched"}
        assert await claimed_now(store, host) == []

    assert await claimed_now(store, host) == ["r1"]
    assert await texts(store) == {"e1": "matched", "e2": "matched"}


async def test_a_blocked_queue_is_left_alone_for_a_moment_and_looked_at_in_time(
    store: PostgresStore, database: Database, host: MovableHost
) -> None:
    await parked(store, host, "r1", wait())
    (await register(store, host)).close()
    points: list[str] = []
    host.at_point = points.append
    with held(database, held_wait("r1")):
        await store.send([event("e1"), event("e2", name="other")])
        await claim(store, match_max=100)
        points.clear()
        claims = await claim(store, match_max=100)

    assert not {point for point in points if point.startswith("match.")}
    assert claims.next_due is not None
    assert store.estimated_now() - SECOND < claims.next_due <= store.estimated_now() + SECOND


async def test_an_event_that_is_offered_to_many_goes_to_all_of_them_or_waits(
    store: PostgresStore, database: Database, host: MovableHost
) -> None:
    first = await parked(store, host, "r1", wait(shared=True))
    second = await parked(store, host, "r2", wait(shared=True))
    while await store.match(100):
        pass
    await store.send([event("e1"), event("e2", name="other")])
    with held(database, held_wait("r2")):
        await store.match(100)
        assert (await texts(store))["e1"] == "unmatched"

    host.advance(SECOND)
    await store.match(100)
    assert [deposits(await again(store, record)) for record in (first, second)] == [["e1"], ["e1"]]


async def test_an_event_passes_a_locked_wait_over_only_once_that_is_closed(
    store: PostgresStore, database: Database, host: MovableHost
) -> None:
    first = await parked(store, host, "r1", wait())
    while await store.match(100):
        pass
    second = await parked(store, host, "r2", wait())
    await store.send([event("e1"), event("e2", name="other")])
    (await register(store, host)).close()
    with held(database, held_wait("r1")):
        await store.match(100)
        assert deposits(await again(store, second)) == [None]

    await store.change("default", "r1", lambda run, _, now: terminate(run, "", now))
    host.advance(SECOND)
    await store.match(100)
    assert deposits(await again(store, second)) == ["e1"]
    assert (await again(store, first)).waits == []


async def test_a_matcher_that_is_stuck_with_its_queues_does_not_keep_others_from_claiming(
    store: PostgresStore, database: Database, host: MovableHost
) -> None:
    await parked(store, host, "r1", wait())
    (await register(store, host)).close()
    await store.send([event("e1"), event("e2", name="other")])
    await start(store, "r2")
    with held(database, ALL_QUEUES):
        assert [record.run.id for record in (await claim(store, match_max=100)).records] == ["r2"]
        assert await store.match(100) == 0  # set aside

    assert await claimed_now(store, host) == ["r1"]


# ---- transitions ----------------------------------------------------------------------------------
async def test_a_batch_is_written_but_for_the_runs_that_are_locked(store: PostgresStore, database: Database, host: MovableHost) -> None:
    records = [await claimed(store, host, f"r{n}") for n in range(1, 6)]
    batch = [advance(record, entry(0)) for record in records]
    with held(database, "SELECT FROM romulus.runs WHERE id IN ('r2', 'r5') ORDER BY key FOR UPDATE"):
        verdicts = await store.apply(batch)
        assert verdicts == [Verdict.APPLIED, Verdict.LOCKED, Verdict.APPLIED, Verdict.APPLIED, Verdict.LOCKED]
        assert await store.evidence(records[1].run.key) == []

    assert await store.apply(batch) == [Verdict.APPLIED] * 5
    assert [(await again(store, record)).run.position for record in records] == [1] * 5


async def test_transitions_of_one_run_stay_in_their_order(store: PostgresStore, database: Database, host: MovableHost) -> None:
    record, other = [await claimed(store, host, run_id) for run_id in ("r1", "r2")]
    first = advance(record, opens=[wait()])
    second = advance(record, closes=[close(1, Closing.WITHDRAWN)], revision=first.revision + 1)
    with held(database, "SELECT FROM romulus.runs WHERE id = 'r1' FOR UPDATE"):
        assert await store.apply([first, advance(other, entry(0)), second]) == [Verdict.LOCKED, Verdict.APPLIED, Verdict.LOCKED]

    assert await store.apply([first, second]) == [Verdict.APPLIED] * 2


async def test_a_child_whose_id_is_about_to_be_taken_holds_up_its_parent_alone(
    store: PostgresStore, database: Database, host: MovableHost
) -> None:
    parent, other = [await claimed(store, host, run_id) for run_id in ("r1", "r2")]
    wants = advance(parent, children=[child(1, "x")], parent=True)
    async with begun(store, database, lambda mine: mine.start([new_run("x")])):
        assert await store.apply([wants, advance(other, entry(0))]) == [Verdict.LOCKED, Verdict.APPLIED]

    assert await store.apply([wants]) == [Verdict.APPLIED]
    assert (await row(store, "x")).depth == 1


async def test_the_watchdog_is_told_that_a_run_is_locked(store: PostgresStore, database: Database, host: MovableHost) -> None:
    record = await claimed(store, host)
    lease = await register(store, host, "w2")
    hung = advance(record, change=Change.HOLD, status=HELD, hold=(HoldKind.HUNG, "stuck"))
    with held(database, "SELECT FROM romulus.runs FOR UPDATE"), pytest.raises(RowsLocked):
        await asyncio.to_thread(lease.apply, hung)

    assert await asyncio.to_thread(lease.apply, hung) is Verdict.APPLIED
    await asyncio.to_thread(lease.close)


# ---- clients --------------------------------------------------------------------------------------
async def test_calls_gathered_with_one_whose_id_is_about_to_be_taken_do_not_fail(
    store: PostgresStore, database: Database, host: MovableHost
) -> None:
    async with begun(store, database, lambda mine: mine.start([new_run("x")])):
        calls = [store.start([new_run(run_id)]) for run_id in ("a", "x", "b")]
        first, taken, second = await asyncio.gather(*calls, return_exceptions=True)

    assert [[type(created) for created in each] for each in (first, second)] == [[Created], [Created]]  # type: ignore[union-attr]
    assert isinstance(taken, RowsLocked)
    assert "another transaction holds the rows" in str(taken)


async def test_events_gathered_with_one_whose_id_is_about_to_be_taken_do_not_fail(
    store: PostgresStore, database: Database, host: MovableHost
) -> None:
    async with begun(store, database, lambda mine: mine.send([event("x")])):
        first, taken, second = await asyncio.gather(*(store.send([event(e)]) for e in ("a", "x", "b")), return_exceptions=True)

    assert [first, second] == [[Received("a", duplicate=False)], [Received("b", duplicate=False)]]
    assert isinstance(taken, RowsLocked)
    assert await store.send([event("x")]) == [Received("x", duplicate=False)]


# ---- pools and children ---------------------------------------------------------------------------
async def test_an_attempt_that_is_locked_costs_its_worker_no_other(store: PostgresStore, database: Database, host: MovableHost) -> None:
    record = await queued(store, host, pool_attempt(1), pool_attempt(2))
    lease = await register(store, host, "g2")
    first, second = await take(store, owner="g2")
    with held(database, f"SELECT FROM romulus.pool_attempts WHERE key = {first.key} FOR UPDATE"):
        host.advance(LEASE * 3 // 4)
        assert await asyncio.to_thread(lease.renew, [first.key, second.key])
        host.advance(LEASE * 3 // 4)
        assert await store.lose_pool(10) == 0

        reports = [report(each, owner="g2") for each in (first, second)]
        assert await store.report_pool(reports) == [None, True]
        assert len(await inbox(store, record)) == 1

    assert await store.report_pool(reports) == [True, True]
    assert len(await inbox(store, record)) == 2
    assert await store.evidence(record.run.key) == []
    await asyncio.to_thread(lease.close)


async def test_a_report_on_an_attempt_that_is_gone_is_late_whatever_is_locked(
    store: PostgresStore, database: Database, host: MovableHost
) -> None:
    record = await queued(store, host, pool_attempt(1), pool_attempt(2))
    first, second = await take(store)
    database.execute(f"DELETE FROM romulus.pool_attempts WHERE key = {first.key}")
    with held(database, f"SELECT FROM romulus.pool_attempts WHERE key = {second.key} FOR UPDATE"):
        assert await store.report_pool([report(first), report(second)]) == [False, None]
    assert [e.kind for e in await store.evidence(record.run.key)] == ["late_attempt"]
    assert await states(store, record) == [(2, "claimed", "g1")]


async def test_a_child_that_is_locked_is_asked_later_and_the_others_now(
    store: PostgresStore, database: Database, host: MovableHost
) -> None:
    record = await parent_of(store, host, child(1), child(2), child(3))
    await claim(store, "w1", serves=SERVES[1:])
    await store.apply([ended(record, parent=True)])
    with held(database, "SELECT FROM romulus.runs WHERE id = 'r1~2' FOR UPDATE"):
        assert await store.close_children(10, ASK) == 2
        assert await store.close_children(10, ASK) == 0
    assert [(await row(store, f"r1~{n}")).cancel_seq for n in (1, 2, 3)] == [1, 0, 1]

    assert await store.close_children(10, ASK) == 1
    assert (await row(store, "r1~2")).cancel_seq == 1
    assert await store.close_children(10, ASK) == 0
