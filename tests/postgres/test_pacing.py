"""What sweeps look for costs what has died since the oldest open transaction began, and a sweep comes often: it is paced by its cost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest

from romulus.core.errors import StoreUnavailable
from romulus.store.postgres import PostgresStore, apply, children, waking
from romulus.store.postgres.pacing import SHARE, Paced
from tests.postgres.kit import counts_at_once, settled
from tests.postgres.server import Database
from tests.store.kit import PENDING, SECOND, MovableHost, claim, claimed, event, park, register, wait

DEAD = 20_000
CLAIMED = """INSERT INTO romulus.pool_attempts (run, fence, generation, seq, number, namespace, pool, step, digest, state, owner, arguments,
    heartbeat, lease_until) SELECT n, 1, 1, 1, 1, 'default', 'gpu', 'train', '', 'claimed', %s, '', '', 1::bigint << 60
    FROM generate_series(1, %s) n"""
READ = "SELECT heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit FROM pg_statio_user_tables WHERE relname = 'pool_attempts'"
STEP = 5_000  # µs that every question for the time takes


class Ticking(MovableHost):
    """A host on which each look takes as long as any other."""

    time = 0

    def monotonic(self) -> int:
        self.time += STEP
        return self.time


@pytest.fixture
async def host() -> AsyncIterator[Ticking]:
    host = Ticking()
    yield host
    host.close()


@pytest.fixture
def elsewhere(database: Database) -> Iterator[psycopg.Connection[Any]]:
    """Somebody else's transaction, open from before."""
    with psycopg.connect(database.url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").execute("SELECT count(*) FROM romulus.runs")
        yield connection
        connection.rollback()


def read(database: Database) -> int:
    """Return how many pages of the attempts have been read so far."""
    database.execute("SELECT pg_stat_force_next_flush()")
    ((count,),) = database.execute(READ)
    return int(count)


async def flushed(store: PostgresStore) -> None:
    """Have the store's connections tell what they have read."""
    await store._pool.rows("test.flush", "SELECT pg_stat_force_next_flush()")


async def forget(store: PostgresStore, host: MovableHost, database: Database) -> None:
    """Leave a parked run whose event nobody has told it of, as a process does that dies right after it has parked it."""
    record = await claimed(store, host)
    await store.apply([park(record, opens=[wait()])])
    await store.send([event("e1")])
    await settled(store)
    database.execute("DELETE FROM romulus.wakes")


async def woken(store: PostgresStore) -> list[str]:
    return [record.run.id for record in (await claim(store)).records]


async def test_sweeps_look_through_waits_and_messages_once_in_a_while(
    store: PostgresStore, host: Ticking, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    async def forgotten(*_: Any) -> list[int]:
        looks.append("forgotten")
        return []

    async def unread(*_: Any) -> list[int]:
        looks.append("unread")
        return []

    monkeypatch.setattr(waking, "forgotten", forgotten)
    monkeypatch.setattr(children, "unread", unread)
    for _ in range(10):
        await store.sweep(10, PENDING)
    assert looks == ["forgotten", "unread"]
    host.time += SHARE * SECOND
    for _ in range(10):
        await store.sweep(10, PENDING)
    assert looks == ["forgotten", "unread"] * 2


async def test_under_an_old_open_transaction_claimed_attempts_are_looked_through_once_in_a_while(
    store: PostgresStore, host: Ticking, database: Database, elsewhere: psycopg.Connection[Any]
) -> None:
    counts_at_once(database)
    for owner in ("v", "w1", "x"):
        (await register(store, host, owner)).close()
    database.execute(CLAIMED, "w1", DEAD)
    database.execute("DELETE FROM romulus.pool_attempts")
    database.execute(CLAIMED, "v", 1)
    begun = read(database)
    await store.lose_pool(10)
    await flushed(store)
    first = read(database)
    for _ in range(10):
        assert await store.lose_pool(10) == 0
    await flushed(store)
    assert read(database) - first < 2 * (first - begun), "ten look through less than two did"

    await store.mark_dead("v")
    assert await store.lose_pool(10) == 1, "a worker that is gone is seen at once all the same"
    database.execute("UPDATE romulus.pool_attempts SET state = 'claimed', owner = 'w1', lease_until = 0")
    host.time += SHARE * SECOND
    assert await store.lose_pool(10) == 1


async def test_a_run_that_was_forgotten_between_two_looks_is_woken_by_the_next_one(
    store: PostgresStore, host: Ticking, database: Database
) -> None:
    await store.sweep(10, PENDING)
    await forget(store, host, database)
    await store.sweep(10, PENDING)
    assert await woken(store) == []
    host.time += SHARE * SECOND
    await store.sweep(10, PENDING)

    assert await woken(store) == ["r1"]


async def test_a_run_that_was_forgotten_with_a_message_is_woken_too(store: PostgresStore, host: Ticking, database: Database) -> None:
    record = await claimed(store, host)
    await store.apply([park(record)])
    database.execute(
        "INSERT INTO romulus.inbox (run, about, seq, failed, body, info) VALUES (%s, 'review', 1, false, '', '')", record.run.key
    )
    await store.sweep(10, PENDING)

    assert await woken(store) == ["r1"]


async def test_the_sweep_that_finds_a_dead_worker_looks_at_once_for_what_it_has_forgotten(
    store: PostgresStore, host: Ticking, database: Database
) -> None:
    (await register(store, host, "dead")).close()
    await store.sweep(10, PENDING)
    await forget(store, host, database)
    database.execute("UPDATE romulus.workers SET lease_until = 0 WHERE id = 'dead'")
    await store.sweep(10, PENDING)

    assert await woken(store) == ["r1"]


async def test_a_worker_that_could_not_look_at_what_it_parked_has_its_next_sweep_look(
    store: PostgresStore, host: Ticking, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> None:
        raise StoreUnavailable("gone")

    await store.sweep(10, PENDING)
    monkeypatch.setattr(apply, "wake_dealt", fails)
    await forget(store, host, database)
    await store.sweep(10, PENDING)

    assert await woken(store) == ["r1"]


async def test_a_look_that_found_something_is_made_again_whenever_it_is_asked_for() -> None:
    host, found = Ticking(), [[1], [2], [], [3]]

    async def work() -> list[int]:
        return found.pop(0)

    paced = Paced[int](host)
    assert [await paced.look(work) for _ in range(4)] == [[1], [2], [], []]
    assert await paced.look(work, at_once=True) == [3]
    host.close()
