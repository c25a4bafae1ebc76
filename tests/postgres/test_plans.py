"""A look reads few pages whatever the server's statistics say, in a database that has no past: plans depend on what others left in one."""

from __future__ import annotations

import json
import re
from itertools import count
from typing import Any, LiteralString

import pytest

from romulus.core.transition import Closing
from romulus.store.postgres import PostgresStore, looking
from romulus.store.postgres import store as store_module
from romulus.store.postgres.session import OwnSession
from tests.postgres.kit import counts_at_once, opened, settled
from tests.postgres.server import Database
from tests.postgres.test_floors import CLAIMED, FLUSH, pages, session
from tests.postgres.test_growth import day
from tests.store.kit import MovableHost, Ready, advance, again, claim, claimed, close, event, park, register, request, start, succeed, wait

__all__ = ["session"]


@pytest.fixture
def database(new_database: Database) -> Database:
    return new_database


async def test_runs_that_came_with_a_dump_of_another_server_are_not_looked_at_each_time(
    session: OwnSession, store: PostgresStore, database: Database
) -> None:
    """They bear numbers that this server will give one day."""
    database.execute("VACUUM ANALYZE romulus.runs")  # statistics of an empty table, as a new one has
    database.execute(CLAIMED)
    database.execute(
        "UPDATE romulus.runs SET queue_at = 1::bigint << 60, wake_at = 1::bigint << 60, queued_by = 1::bigint << 40, "
        "updated_at = created_at"
    )
    database.execute("VACUUM romulus.runs")  # of what the update left, which a dump does not have
    await start(store, "r1")
    seen = await looking.look(session, request(), 10)

    assert await pages(session, lambda s: looking.look(s, request(), 10, seen.queues, seen.lists)) < 100
    again = await looking.look(session, request(), 10, seen.queues, seen.lists)
    assert (again.ready, again.later, again.whole) == (seen.ready, seen.later, False)


async def test_runs_that_were_queued_since_the_statistics_were_made_are_not_looked_at_each_time(
    session: OwnSession, store: PostgresStore, database: Database
) -> None:
    """The planner takes the queues to be empty, and a bitmap of all of one to be as good as its first entry."""
    if int(database.execute("SHOW server_version_num")[0][0]) < 180_000:
        pytest.skip("older servers take runs_due for runs that lost claims, whatever a statement says: that needs indexes of another shape")
    database.execute(CLAIMED)
    database.execute("ANALYZE romulus.runs")
    database.execute("UPDATE romulus.runs SET queue_at = 1::bigint << 60, wake_at = 1::bigint << 60, owner = NULL, queued_by = 1")
    database.execute("VACUUM romulus.runs")
    await start(store, "r1")
    seen = await looking.look(session, request(), 10)

    assert await pages(session, lambda s: looking.look(s, request(), 10, seen.queues, seen.lists)) < 100
    assert await pages(session, lambda s: looking.look(s, request(alone=True), 10, None, seen.lists)) < 100


# Few rows there are, or few that the index has: of workers, of what is claimed, held or unread; events are read from the oldest on.
READ_WHOLE = {
    "workers", "workers_pkey", "runs_owner", "operations_owner", "pool_attempts_owner", "runs_held", "inbox_pkey", "waits_event", "meta",
    "events_pkey",
}  # fmt: skip


@pytest.mark.parametrize("lived", [False, True])
async def test_no_statement_of_a_day_reads_a_whole_table_or_namespace_where_nobody_has_made_statistics(
    new_database: Database, host: MovableHost, monkeypatch: pytest.MonkeyPatch, lived: bool
) -> None:
    """The planner takes every index for as good as any other then, and what it has chosen is kept: the first minutes are what one sees."""
    said: dict[LiteralString, tuple[Any, ...]] = {}
    rows = OwnSession.rows

    async def noted(self: OwnSession, name: LiteralString, sql: LiteralString, *args: Any) -> Any:
        said.setdefault(sql, args)
        return await rows(self, name, sql, *args)

    monkeypatch.setattr(OwnSession, "rows", noted)
    new_database.execute(UNTOUCHED)
    async with opened(new_database.url, host) as store:
        await day(store, host, (f"n{number}" for number in count()))
    other = new_database if lived else Database(new_database.server, new_database.server.create(new_database.server.template()))
    async with opened(other.url, host) as store, store._pool.taken() as planning:
        planned = {sql: args for sql, args in said.items() if sql.lstrip().startswith(PLANNED) and "pg_class" not in sql}
        plans = {sql: await planning.connection.fetch(f"EXPLAIN (FORMAT JSON) {sql}", *args) for sql, args in planned.items()}
    whole = {sql: found for sql, ((plan,),) in plans.items() if (found := sorted(_read_whole(json.loads(plan)[0]["Plan"]) - READ_WHOLE))}

    assert whole == {}
    assert len(plans) > 50


PLANNED = ("SELECT", "WITH", "INSERT", "UPDATE", "DELETE")
NAMESPACE_ALONE = re.compile(r"\(*namespace = [^)]*\)*")


def _read_whole(plan: dict[str, Any]) -> set[str]:
    """Return which tables or indexes a plan reads from end to end, or all of a namespace of."""
    found: set[str] = set()
    condition = plan.get("Index Cond", "")
    if plan["Node Type"] == "Seq Scan":
        found.add(plan["Relation Name"])
    elif "Relation Name" in plan and "Index Name" in plan and (not condition or NAMESPACE_ALONE.fullmatch(condition)):
        found.add(plan["Index Name"])
    return found.union(*map(_read_whole, plan.get("Plans", [])))


MANY = 20_000
PARKED = f"""INSERT INTO romulus.runs (key, revision, fence, last_transition, created_at, updated_at, generation, position, cancel_seq,
    losses, lane, priority, depth, namespace, id, workflow, version, status, cancel_reason, armed, digest, excluded, hold_kind, hold_reason,
    attributes) SELECT 1000000 + n, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 'default', 'p' || n, 'order', '1', 'waiting', '', '[]', '', '', '',
    '', '{{}}' FROM generate_series(1, {MANY}) n;
    INSERT INTO romulus.waits (run, seq, namespace, name, correlation_id, shared, include_late, opened_at, event) SELECT 1000000 + n, 1,
    'default', 'paid', 'c' || n, false, false, 1, CASE WHEN n % 2 = 0 THEN n + 1000000 END FROM generate_series(1, {MANY}) n;
    INSERT INTO romulus.events (arrival, received_at, namespace, id, name, correlation_id, digest, payload) SELECT n + 1000000, 1,
    'default', 'p' || n, 'paid', 'c' || n, '', '1' FROM generate_series(1, {MANY}) n;
    INSERT INTO romulus.children (child, parent, generation, seq, on_close) SELECT n, n, 1, 1, 'cancel' FROM generate_series(1, {MANY}) n"""
UNTOUCHED = """DO $$ DECLARE name text; BEGIN FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'romulus'::regnamespace
    AND relkind = 'r' LOOP EXECUTE format('ALTER TABLE romulus.%I SET (autovacuum_enabled = false)', name); END LOOP; END $$"""
READ = (
    "SELECT sum(coalesce(heap_blks_read + heap_blks_hit, 0) + coalesce(idx_blks_read + idx_blks_hit, 0)) FROM pg_statio_user_tables "
    "WHERE schemaname = 'romulus'"
)


async def test_an_events_path_that_was_planned_in_a_new_database_reads_few_pages_beside_many_parked_runs(
    database: Database, host: MovableHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plans are kept for as long as nobody makes statistics: on the day of an outage that is long enough."""
    counts_at_once(database)
    monkeypatch.setattr(store_module, "CONNECTIONS", 1)
    database.execute(UNTOUCHED)
    async with opened(database.url, host) as store:
        (await register(store, host)).close()
        for name in ("first", "second"):
            await event_to_its_run(store, host, name)
        before = await pages_read(store, database)
        await event_to_its_run(store, host, "third")
        few = await pages_read(store, database) - before
        database.execute(PARKED)
        before = await pages_read(store, database)
        await event_to_its_run(store, host, "fourth")
        many = await pages_read(store, database) - before

    assert many < few + MANY / 20


async def event_to_its_run(store: PostgresStore, host: MovableHost, name: str) -> None:
    """Let a run get an event while it is claimed, one by which it is claimed, and one that is given to it, claimed."""
    record = await claimed(store, host, name, name)
    await store.apply([advance(record, opens=[wait(1, correlation_id=name), wait(2, correlation_id=f"{name} parked")])])
    await settled(store)
    await store.send([event(name, correlation_id=name)])
    await settled(store)
    (record,) = await store.pulse(name)
    (taken, _) = record.waits
    assert taken.deposit is not None
    await store.apply([park(record, closes=[close(1, Closing.CONSUMED, taken.deposit.event)])])
    await store.send([event(f"{name} parked", correlation_id=f"{name} parked")])
    (record,) = (await claim(store, match_max=10)).records
    await store.apply([park(record, opens=[wait(3, correlation_id=f"{name} given")])])
    await settled(store)
    worker = Ready(store, request())
    await store.send([event(f"{name} given", correlation_id=f"{name} given")])
    worker.end()
    assert worker.runs == [name]
    await store.apply([succeed(await again(store, record))])


async def pages_read(store: PostgresStore, database: Database) -> int:
    """Return how many pages have been touched so far, as the server counts them."""
    await store._pool.rows("test.flush", FLUSH)
    ((count,),) = database.execute(READ)
    return int(count)
