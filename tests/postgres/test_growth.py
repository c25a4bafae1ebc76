"""What each statement costs does not grow with the rows that stand by: the pages it touches are counted beside few and beside many."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import TypeAlias

import pytest

from benchmarks.copying import server_copies
from romulus.core.operations import OperationState, Report, ReportKind, decide
from romulus.core.requests import request_cancel
from romulus.core.transition import NewChild
from romulus.store.contract import RunFilter
from romulus.store.postgres import PostgresStore
from romulus.store.postgres import store as store_module
from tests.postgres.kit import opened, settled
from tests.postgres.server import Database, running
from tests.store.conformance.test_operations import SERVED, intent, lost
from tests.store.conformance.test_pools import attempt
from tests.store.kit import (
    PENDING,
    SECOND,
    MovableHost,
    Ready,
    advance,
    again,
    claim,
    entry,
    event,
    new_run,
    park,
    register,
    request,
    start,
    succeed,
    wait,
)  # fmt: skip

FEW, MANY = 3_000, 30_000  # both have B-trees of as many levels
GROWN = 30  # pages more: not a tenth of what stands by
COUNTED = (
    "SELECT queryid, query, (shared_blks_hit + shared_blks_read) / calls FROM pg_stat_statements WHERE query ILIKE '%romulus.%' "
    "AND query NOT ILIKE '%pg_stat_statements%' AND query NOT ILIKE '%pg_attribute%' AND query NOT ILIKE '%pg_class%' "
    "AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@pytest.fixture(scope="module")
def counting() -> Iterator[Database]:
    """A database of a server that counts what statements touch."""
    with running(shared_preload_libraries="pg_stat_statements", shared_buffers="256MB", autovacuum="off") as server:
        made = Database(server, server.create(server.template()))
        made.execute("CREATE EXTENSION pg_stat_statements SCHEMA public")
        yield made


@pytest.fixture(autouse=True)
def _one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend reads dozens of catalog pages for a statement that it has not executed yet."""
    monkeypatch.setattr(store_module, "CONNECTIONS", 1)


async def day(store: PostgresStore, host: MovableHost, names: Iterator[str]) -> None:
    """Let everything happen once that happens to runs every day."""
    owner, many = next(names), [next(names) for _ in range(5)]
    lease = await register(store, host, owner)
    await start(store, *many, priority=1)
    first, second, third, fourth, fifth = sorted((await claim(store, owner)).records, key=lambda record: record.run.key)
    await store.apply([advance(record, entry(0)) for record in (first, second, third, fourth, fifth)])
    first, second, third, fourth, fifth = [await again(store, record) for record in (first, second, third, fourth, fifth)]
    child = NewChild(new_run(next(names), workflow="other"), 9, "cancel")
    await store.apply([
        park(first, opens=[wait(correlation_id=first.run.id)]),
        park(second, wake_at=await store.now() + 60 * SECOND),
        park(third, pools=[attempt()], pooled=True),
        advance(fourth, children=[child], parent=True),
        succeed(fifth, entry(1)),
    ])  # fmt: skip
    sent = event(next(names), correlation_id=first.run.id)
    await store.send([sent, sent])
    await settled(store)
    assert len((await claim(store, owner, match_max=10)).records) == 1
    assert not (await claim(store, owner, alone=True)).records
    await store.apply([succeed(await again(store, first), closes=[])])
    taken = await store.take_pool(owner, "default", ["gpu"], ["train"], 1, SECOND)
    assert len(taken.rows) == 1
    await store.pulse(owner)
    await store.lose_pool(10)
    await write(store, owner, next(names))
    await give(store, owner, next(names))
    await store.reopen_held("default", request().serves, PENDING)
    await store.expire_events(SECOND * 1_000_000, 10)
    await store.history(first.run.generation_key, 0, 100)
    await store.generations(first.run.key)
    await store.send([sent])
    assert await store.run("default", second.run.id)
    assert await store.statuses("default", [second.run.id, third.run.id])
    assert await store.change("default", second.run.id, lambda run, _, now: request_cancel(run, "enough", now))
    await store.start([new_run(second.run.id)])
    await store.runs(RunFilter("default"), None, 20)
    await store.events("default", None, None, 2)
    await store.waits("default", None, 20)
    await store.workers("default")
    await store.mark_dead(owner)
    await store.sweep(10, PENDING)
    lease.close()
    other = next(names)
    (await register(store, host, other)).close()
    for record in (await claim(store, other)).records:  # the fourth, freed by the sweep
        await store.apply([succeed(record)])
    await store.deregister(other)


async def give(store: PostgresStore, owner: str, name: str) -> None:
    """Let a parked run be given its event by whoever sends it."""
    await start(store, name)
    record = next(each for each in (await claim(store, owner)).records if each.run.id == name)
    await store.apply([park(record, opens=[wait(correlation_id=name)])])
    await settled(store)
    worker = Ready(store, request(owner))
    await store.send([event(name, correlation_id=name)])
    worker.end()
    assert worker.runs == [name]
    await store.apply([succeed(worker.claims[0].records[0])])


async def write(store: PostgresStore, owner: str, name: str) -> None:
    """Let two operations of a run be under way, one of them be taken up by a settler, and that one be settled."""
    await start(store, name)
    record = next(each for each in (await claim(store, owner)).records if each.run.id == name)
    intents = [intent(seq, id=f"{name}-{seq}") for seq in (1, 2)]
    await store.apply([advance(record, intents=intents, operates=True)])
    await store.apply([advance(await again(store, record), marks=[lost(1)], operates=True)])
    for _ in range(2):
        taken = await store.take_operations(owner, "default", SERVED, 10, OperationState.UNKNOWN)
        for row in taken.rows:
            await store.report([Report("default", row.id, ReportKind.LOOKED_APPLIED, owner, row.fence, b"1")], decide, PENDING)
    await store.unserved_operations("default", [("default", "write", True)], 0, 10)
    await store.apply([succeed(await again(store, record), operates=True)])


Pages: TypeAlias = dict[int, tuple[str, int]]  # by the statement's number: its text, the pages that a call touches


async def pages(database: Database, a_day: Callable[[], Awaitable[None]]) -> Pages:
    database.execute("SELECT pg_stat_statements_reset()")
    await a_day()
    return counted(database)


async def beside(database: Database, rows: int, a_day: Callable[[], Awaitable[None]], *, analysed: bool = True) -> Pages:
    """Return what a day touches beside so many more parked runs, and as many more finished ones."""
    with server_copies(database.url) as copied:
        copied.parked(rows)
        copied.finished(rows)
        if analysed:
            copied.tidy()
    await a_day()  # what is looked at once is looked at
    return await pages(database, a_day)


def counted(database: Database) -> Pages:
    return {number: (query, int(touched)) for number, query, touched in database.execute(COUNTED)}


def grown(before: Pages, after: Pages) -> dict[str, tuple[int, int]]:
    """Return which statements touch more pages than before."""
    both = ((before[number], after[number]) for number in before.keys() & after.keys())
    return {text: (few, many) for (text, few), (_, many) in both if many > few + GROWN}


async def test_no_statement_touches_more_pages_beside_many_parked_and_finished_runs(counting: Database) -> None:
    host, names = MovableHost(), (f"n{number}" for number in count())
    async with opened(counting.url, host) as store:
        await day(store, host, names)
        before, after = [await beside(counting, rows, lambda: day(store, host, names)) for rows in (FEW, MANY)]
        counting.execute("SELECT count(*) FROM romulus.runs WHERE status = 'held'")
        scanned = counted(counting)
    host.close()

    assert len(before.keys() & after.keys()) > 40
    assert grown(before, after) == {}
    assert [number for number in scanned.keys() - after.keys() if scanned[number][1] > GROWN]  # as a scan would show


async def test_no_statement_planned_in_a_new_database_touches_more_pages_beside_many_runs(counting: Database) -> None:
    """Until somebody analyses the tables, statistics say that they are nearly empty: the first minutes are the ones people measure."""
    host, names = MovableHost(), (f"o{number}" for number in count())
    new = Database(counting.server, counting.server.create(counting.server.template()))
    new.execute("CREATE EXTENSION pg_stat_statements SCHEMA public")
    async with opened(new.url, host) as store:
        await day(store, host, names)
        before, after = [await beside(new, rows, lambda: day(store, host, names), analysed=False) for rows in (FEW, MANY)]
    host.close()

    assert len(before.keys() & after.keys()) > 40
    assert grown(before, after) == {}
