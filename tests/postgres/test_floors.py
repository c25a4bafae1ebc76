"""A look passes over what the look before found empty, and no due run and no wake is ever hidden by that, whoever commits what and when."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from romulus.core.transition import Next
from romulus.store.postgres import PostgresStore, children, looking, matching, place_of, workers
from romulus.store.postgres.floors import KEPT_MAX, TOP, WHOLE_EVERY, Lists, Queues, Remembered, Snapshot
from romulus.store.postgres.pool import Pool
from romulus.store.postgres.session import OwnSession
from tests.postgres.kit import counts_at_once, opened
from tests.postgres.server import Database
from tests.store.kit import (
    HELD,
    SECOND,
    WAITING,
    MovableHost,
    advance,
    claim,
    claimed,
    event,
    free,
    new_run,
    park,
    register,
    request,
    start,
)  # fmt: skip

DEAD = 20_000
# Runs that were due and are claimed now: as many dead entries at the head of the queue, while somebody's transaction stays open.
CLAIMED = f"""INSERT INTO romulus.runs (key, revision, fence, last_transition, wake_at, queue_at, created_at, updated_at, generation,
    position, cancel_seq, losses, lane, priority, depth, namespace, id, workflow, version, status, cancel_reason, armed, digest, excluded,
    hold_kind, hold_reason, attributes) SELECT 1000000 + n, 0, 0, 0, n, n, 1, 1, 1, 0, 0, 0, 0, 0, 0, 'default', 'dead' || n, 'order', '1',
    'pending', '', '[]', '', '', '', '', '{{}}' FROM generate_series(1, {DEAD}) n;
    UPDATE romulus.runs SET queue_at = NULL, wake_at = NULL, owner = 'w1' WHERE key > 1000000;
    INSERT INTO romulus.wakes (run) SELECT key FROM romulus.runs WHERE key > 1000000; DELETE FROM romulus.wakes;
    INSERT INTO romulus.to_match (namespace, name, correlation_id) SELECT 'default', 'e', n::text FROM generate_series(1, {DEAD}) n;
    INSERT INTO romulus.to_close (parent, generation) SELECT n, 1 FROM generate_series(1, {DEAD}) n;
    DELETE FROM romulus.to_match; DELETE FROM romulus.to_close"""
FLUSH = "SELECT pg_stat_force_next_flush()"  # what the connection that says it has read counts from then on
BY_HAND = "UPDATE romulus.runs SET wake_at = 1, queue_at = 1"  # and no stamp


class Pages(OwnSession):
    """A session that says how many pages its statements touched instead of executing them."""

    async def rows(self, name: Any, sql: Any, *args: Any) -> Any:
        ((plan,),) = await self.connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *args)
        top = json.loads(plan)[0]["Plan"]
        print("----", *_costly(top), sep="\n")  # shown where the test fails
        raise Touched(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


def _costly(node: Any, depth: int = 0) -> Iterator[str]:
    """Yield the parts of a plan that touch many pages."""
    touched = node["Shared Hit Blocks"] + node["Shared Read Blocks"]
    if touched > 50:
        yield f"{' ' * depth}{node['Node Type']} {node.get('Index Name', '')} {node.get('Index Cond', '')} {touched}"
    for below in node.get("Plans", []):
        yield from _costly(below, depth + 1)


class Touched(Exception):
    """So many pages."""


@pytest.fixture
def database(new_database: Database) -> Database:
    return new_database


@pytest.fixture
async def session(database: Database, host: MovableHost) -> AsyncIterator[OwnSession]:
    """A connection as the store opens them."""
    pool = Pool(place_of(database.url), host, 1)
    async with pool.taken() as session:
        yield session
    await pool.close()


@pytest.fixture
def elsewhere(database: Database) -> Iterator[psycopg.Connection[Any]]:
    """Somebody else's connection, whose transactions stay open as long as it pleases."""
    with psycopg.connect(database.url) as connection:
        yield connection
        connection.rollback()


async def pages(session: OwnSession, work: Any) -> int:
    with pytest.raises(Touched) as touched:
        await work(Pages(session.connection, session.host))
    return int(touched.value.args[0])


@pytest.mark.parametrize("statistics", ["none", "of an empty table", "of many claimed", "of many parked"])
async def test_under_an_old_open_transaction_a_look_reads_few_pages(
    session: OwnSession, store: PostgresStore, database: Database, elsewhere: psycopg.Connection[Any], statistics: str
) -> None:
    if statistics == "of an empty table":
        database.execute("VACUUM ANALYZE romulus.runs, romulus.wakes, romulus.to_match, romulus.to_close")
    await start(store, "r1")
    elsewhere.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").execute("SELECT count(*) FROM romulus.runs")
    database.execute(CLAIMED)
    if statistics == "of many parked":
        database.execute("UPDATE romulus.runs SET queue_at = 1::bigint << 60, wake_at = 1::bigint << 60 WHERE owner IS NOT NULL")
    if statistics.startswith("of many"):
        database.execute("ANALYZE romulus.runs, romulus.wakes, romulus.to_match, romulus.to_close")
    seen = await looking.look(session, request(), 10)
    await start(store, "r2")

    assert await pages(session, lambda s: looking.look(s, request(), 10)) > DEAD / 10
    assert await pages(session, lambda s: looking.look(s, request(), 10, seen.queues, seen.lists)) < 100
    assert await pages(session, lambda s: matching.head(s, 10)) > DEAD / 100
    assert await pages(session, lambda s: matching.head(s, 10, seen.lists)) < 100
    assert (await looking.look(session, request(), 10, seen.queues, seen.lists)).ready == (await looking.look(session, request())).ready


async def test_under_an_old_open_transaction_a_claim_reads_few_pages(
    store: PostgresStore, database: Database, host: MovableHost, elsewhere: psycopg.Connection[Any]
) -> None:
    """All of it, the locking and the waking too: measured at the server."""
    counts_at_once(database)
    (await register(store, host)).close()
    elsewhere.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").execute("SELECT count(*) FROM romulus.runs")
    database.execute(CLAIMED)
    await claim(store)
    await start(store, "r1", "r2")
    database.execute("INSERT INTO romulus.wakes (run) SELECT key FROM romulus.runs WHERE id = 'r1'")
    await store._pool.rows("test.flush", FLUSH)
    before = touched(database)

    assert [r.run.id for r in (await claim(store)).records] == ["r1", "r2"]
    await store._pool.rows("test.flush", FLUSH)
    assert touched(database) - before < 500


async def test_under_an_old_open_transaction_closing_children_reads_few_pages(
    session: OwnSession, store: PostgresStore, database: Database, elsewhere: psycopg.Connection[Any]
) -> None:
    elsewhere.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").execute("SELECT count(*) FROM romulus.runs")
    database.execute(CLAIMED)
    lists = (await looking.look(session, request(), 10)).lists
    database.execute("INSERT INTO romulus.to_close (parent, generation) VALUES (1, 1)")

    for limit in (1, children.REQUESTS_MAX):
        assert await pages(session, lambda s, limit=limit: children.requests(s, limit, Lists())) > DEAD / 1000
        assert await pages(session, lambda s, limit=limit: children.requests(s, limit, lists)) < 20
    assert len(await children.requests(session, 1, lists)) == 1


async def test_a_sweep_does_not_read_what_live_workers_have_finished(
    session: OwnSession, store: PostgresStore, host: MovableHost, database: Database, elsewhere: psycopg.Connection[Any]
) -> None:
    for owner in ("v", "w1", "x"):
        (await register(store, host, owner)).close()
    await store.mark_dead("v")
    elsewhere.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").execute("SELECT count(*) FROM romulus.runs")
    database.execute(CLAIMED)
    database.execute("UPDATE romulus.runs SET owner = NULL")
    for key, owner in enumerate(("a", "v", "v", "w1", "w2", "x", "y", "z"), 1_000_001):
        database.execute("UPDATE romulus.runs SET owner = %s WHERE key = %s", owner, key)

    assert sorted(await workers.lost(session)) == ["a", "v", "w2", "y", "z"]
    assert await pages(session, workers.lost) < 100


def touched(database: Database) -> int:
    """Return how many pages of the queues have been read so far."""
    sql = (
        "SELECT sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit) FROM pg_statio_user_tables "
        "WHERE relname IN ('runs', 'wakes')"
    )
    database.execute(FLUSH)
    ((count,),) = database.execute(sql)
    return int(count)


async def test_what_a_transaction_that_was_open_commits_later_is_found_below_the_floor(
    store: PostgresStore, host: MovableHost, elsewhere: psycopg.Connection[Any]
) -> None:
    """Its run is older than all that was seen since, and its number lower."""
    (await register(store, host)).close()
    elsewhere.execute("SELECT 1")
    await store.using(elsewhere).start([new_run("old")])
    await start(store, "young")
    assert [r.run.id for r in (await claim(store)).records] == ["young"]
    assert not (await claim(store)).records
    elsewhere.commit()

    assert [r.run.id for r in (await claim(store)).records] == ["old"]


async def test_what_is_started_for_the_past_is_found_below_the_floor(store: PostgresStore, host: MovableHost) -> None:
    (await register(store, host)).close()
    await start(store, "now")
    assert [r.run.id for r in (await claim(store)).records] == ["now"]
    assert not (await claim(store)).records
    await start(store, "past", wake_at=1)

    assert [r.run.id for r in (await claim(store)).records] == ["past"]


async def test_a_wake_that_a_transaction_open_before_commits_is_taken_by_the_owner(
    store: PostgresStore, host: MovableHost, elsewhere: psycopg.Connection[Any], database: Database
) -> None:
    record = await claimed(store, host)
    elsewhere.execute("INSERT INTO romulus.wakes (run) VALUES (%s)", [record.run.key])
    for _ in range(2):
        database.execute("INSERT INTO romulus.wakes (run) VALUES (%s)", record.run.key)
        assert [r.run.id for r in await store.pulse("w1")] == ["r1"]
        assert not await store.pulse("w1")
    elsewhere.commit()

    assert [r.run.id for r in await store.pulse("w1")] == ["r1"]


async def test_a_wake_that_stays_is_found_when_its_run_has_lost_its_owner(
    store: PostgresStore, host: MovableHost, database: Database
) -> None:
    """The wake is older than the look; what changed is the run."""
    record = await claimed(store, host)
    database.execute("INSERT INTO romulus.wakes (run) VALUES (%s)", record.run.key)
    assert not (await claim(store)).records
    await store.apply([park(record, wake_at=None)])

    assert [r.run.id for r in (await claim(store)).records] == ["r1"]


async def test_a_parked_run_is_woken_behind_more_wakes_than_a_look_reads(
    store: PostgresStore, host: MovableHost, database: Database
) -> None:
    record = await claimed(store, host)
    other = await claimed(store, host, "r2", "w2")
    await store.apply([park(other, wake_at=None)])
    many = "INSERT INTO romulus.wakes (run) SELECT %s FROM generate_series(1, %s)"
    database.execute(many, record.run.key, looking.WAKES_MAX)
    database.execute(many, other.run.key, 1)

    assert [r.run.id for r in (await claim(store, "w2")).records] == ["r2"]
    assert [r.run.id for r in await store.pulse("w1")] == ["r1"]


async def test_more_that_is_new_than_is_worth_looking_at_is_found_too(
    store: PostgresStore, host: MovableHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "FRESH_MAX", 3)
    (await register(store, host)).close()
    assert not (await claim(store)).records
    await start(store, *(f"r{n}" for n in range(9)), wake_at=1000)
    await start(store, "oldest", wake_at=1)

    assert [r.run.id for r in (await claim(store)).records] == ["oldest", *(f"r{n}" for n in range(9))]


async def test_what_was_seen_on_another_server_is_forgotten(session: OwnSession, store: PostgresStore) -> None:
    """A promoted replica may give transaction numbers again."""
    await start(store, "r1")
    await store.send([event("e1")])
    seen = await looking.look(session, request(), 10)
    elsewhere = Snapshot(seen.lists.snapshot.server - 1, seen.lists.snapshot.end + 1000)
    queues, lists = Queues(elsewhere, seen.now, [(TOP, TOP, TOP, TOP)]), Lists(elsewhere, TOP, TOP, TOP)

    for known in ((queues, None), (None, lists)):
        again = await looking.look(session, request(), 10, *known)
        assert (again.ready, again.queued) == (seen.ready, seen.queued)
    assert (await matching.head(session, 10, lists))[0] == seen.queued


async def test_what_a_transaction_that_was_open_queues_for_matching_or_closing_is_found(
    session: OwnSession, database: Database, elsewhere: psycopg.Connection[Any]
) -> None:
    elsewhere.execute("INSERT INTO romulus.to_match (namespace, name, correlation_id) VALUES ('default', 'e', 'old')")
    elsewhere.execute("INSERT INTO romulus.to_close (parent, generation) VALUES (1, 1)")
    database.execute("INSERT INTO romulus.to_match (namespace, name, correlation_id) VALUES ('default', 'e', 'young')")
    database.execute("INSERT INTO romulus.to_close (parent, generation) VALUES (2, 1)")
    seen = await looking.look(session, request(), 10)
    assert ([row.queue[2] for row in seen.queued], seen.closing) == (["young"], True)
    database.execute("DELETE FROM romulus.to_match")
    database.execute("DELETE FROM romulus.to_close")
    elsewhere.commit()

    again = await looking.look(session, request(), 10, seen.queues, seen.lists)
    assert ([row.queue[2] for row in again.queued], again.closing) == (["old"], True)
    assert [row.queue[2] for row in (await matching.head(session, 10, seen.lists))[0]] == ["old"]


async def test_what_was_seen_before_a_connection_was_lost_is_forgotten(store: PostgresStore, host: MovableHost, database: Database) -> None:
    """After a crash of the server, numbers that no commit was written under may be given again."""
    (await register(store, host)).close()
    await start(store, "r1", wake_at=1 << 60)
    assert not (await claim(store)).records
    database.execute(BY_HAND)
    database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'romulus'")

    assert [r.run.id for r in (await claim(store)).records] == ["r1"]


async def test_a_run_changed_by_hand_is_found_soon(store: PostgresStore, host: MovableHost, database: Database) -> None:
    (await register(store, host)).close()
    await start(store, "r1", wake_at=1 << 60)
    assert not (await claim(store)).records
    database.execute(BY_HAND)
    assert not (await claim(store)).records
    host.advance(WHOLE_EVERY)

    assert [r.run.id for r in (await claim(store)).records] == ["r1"]


def test_looks_are_remembered_for_as_long_as_they_are_of_use() -> None:
    remembered, known = Remembered(), Lists()
    remembered.keep("a", known, 0, 0, whole=True)
    remembered.keep("a", known, WHOLE_EVERY - 1, 0, whole=False)

    assert remembered.of("a", WHOLE_EVERY - 1, 0) is known
    assert remembered.of("a", WHOLE_EVERY, 0) is None  # the last look at everything is too old
    assert remembered.of("a", 1, 1) is None  # a connection was lost
    for n in range(KEPT_MAX):
        remembered.keep(n, known, 0, 0, whole=True)
    assert remembered.of("a", 1, 0) is None
    assert remembered.of(KEPT_MAX - 1, 1, 0) is known


@pytest.mark.parametrize("seed", range(6))
async def test_a_look_sees_the_same_with_floors_and_without_whatever_happens_in_between(
    seed: int, database: Database, host: MovableHost, session: OwnSession
) -> None:
    """Two workers that look now and then, while runs start, park, are woken, rise, change, are freed and held, some of it in transactions
    that stay open."""
    async with opened(database.url, host) as store:
        world = World(random.Random(seed), database, host, store)
        await world.begin()
        known: dict[int, looking.Look] = {}
        for _ in range(120):
            await world.something()
            asked = request("w1", limit=5, others=world.random.choice([(), ("elsewhere",)]))
            await session.connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            whole = await looking.look(session, asked, 10)
            for worker in range(2):
                seen = whole
                if worker in known:
                    seen = await looking.look(session, asked, 10, known[worker].queues, known[worker].lists)
                    assert not seen.whole
                    assert replace(seen, whole=True) == whole
                    assert (await matching.head(session, 10, known[worker].lists))[0] == whole.queued
                if world.random.random() < 0.3:
                    known[worker] = seen
            await session.connection.execute("ROLLBACK")
        await world.end()


class World:
    """Does one thing or another to a store."""

    def __init__(self, random_: random.Random, database: Database, host: MovableHost, store: PostgresStore) -> None:
        self.random, self.database, self.host, self.store = random_, database, host, store
        self.now, self.count = 1_000 * SECOND, 0
        self.open: list[psycopg.Connection[Any]] = []

    async def begin(self) -> None:
        self.database.freeze(self.now)
        (await register(self.store, self.host)).close()

    async def end(self) -> None:
        for connection in self.open:
            connection.close()
        self.database.set_ahead(0)

    async def something(self) -> None:
        what = self.random.choice(
            [self.starts, self.starts, self.starts_aside, self.commits, self.claims, self.claims, self.time, self.wakes, self.changes]
        )
        await what()

    async def starts(self) -> None:
        await start(self.store, self._name(), **self._run())

    async def starts_aside(self) -> None:
        """In a transaction that stays open."""
        if len(self.open) < 4:
            connection = psycopg.connect(self.database.url)
            connection.execute("SELECT 1")
            await self.store.using(connection).start([replace(new_run(self._name()), **self._run())])
            self.open.append(connection)

    async def commits(self) -> None:
        if self.open:
            connection = self.open.pop(self.random.randrange(len(self.open)))
            (connection.commit if self.random.random() < 0.8 else connection.rollback)()
            connection.close()

    async def claims(self) -> None:
        records = (await claim(self.store, limit=self.random.randint(1, 4), alone=self.random.random() < 0.2)).records
        for record in records:
            at = self.random.choice([None, self.now - SECOND, self.now, self.now + self.random.randint(1, 50) * SECOND])
            others = {"digest": self.random.choice(["3.11:here", "elsewhere"])}
            await self.store.apply([
                self.random.choice([
                    park(record, wake_at=at, **others), free(record), free(record, excluded="3.11:here"), advance(record, **others),
                ])
            ])  # fmt: skip

    async def time(self) -> None:
        """Goes by; now and then backwards."""
        self.now += self.random.choice([-3, 0, 1, 5, 30]) * SECOND
        self.database.freeze(self.now)

    async def wakes(self) -> None:
        self.database.execute("INSERT INTO romulus.wakes (run) SELECT key FROM romulus.runs ORDER BY random() LIMIT 1")

    async def changes(self) -> None:
        """An operator's resume, hold or change of priority; a worker that dies."""
        match self.random.randrange(3):
            case 0:
                await self.store.mark_dead("w1")
                await self.store.sweep(10, WAITING)
                self.database.execute("UPDATE romulus.workers SET dead = false")
            case 1:
                runs = self.database.execute("SELECT id FROM romulus.runs WHERE owner IS NULL ORDER BY id")
                if runs:
                    (run_id,) = self.random.choice(runs)
                    status, at = self.random.choice([(WAITING, self.now - 5 * SECOND), (WAITING, self.now + 9 * SECOND), (HELD, None)])
                    await self.store.change("default", run_id, lambda run, *_: Next(replace(run, status=status, wake_at=at, excluded="")))
            case _:
                await self.store.send([event(f"e{self.count}", correlation_id=str(self.count))])
                await self.store.match(self.random.choice([0, 1, 10]))

    def _name(self) -> str:
        self.count += 1
        return f"r{self.count}"

    def _run(self) -> dict[str, Any]:
        at = self.random.choice([0, 0, self.now - 9 * SECOND, self.now + 2 * SECOND, self.now + 40 * SECOND])
        return {"wake_at": at, "priority": self.random.choice([0, 0, 0, 2, 7])}
