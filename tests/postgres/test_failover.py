"""A standby promoted: with synchronous replication nothing acknowledged is lost, with asynchronous no stale owner writes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

import romulus
from romulus.core.errors import StoreUnavailable
from romulus.core.transition import Created, Verdict
from romulus.store.postgres import PostgresStore, driver
from tests.postgres import failover_worker
from tests.postgres.failover_worker import BODIES, STEPS, travelling
from tests.postgres.kit import opened, until
from tests.postgres.proxy import Proxy
from tests.postgres.replication import Standby, replicated, url
from tests.postgres.server import Database, Server, free_port
from tests.repo.files import ROOT
from tests.store.kit import PENDING, MovableHost, advance, again, claim, entry, new_run, register, start

RUNS = 60
CAUGHT_UP = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
WAITS_FOR_STANDBY = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'romulus' AND wait_event = 'SyncRep' AND query LIKE %s"
END_WAITING = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'romulus'"

pytestmark = pytest.mark.process


@pytest.fixture
def synchronous() -> Iterator[tuple[Server, Standby]]:
    with replicated(synchronous=True) as servers:
        yield servers


@pytest.fixture
def asynchronous() -> Iterator[tuple[Server, Standby]]:
    with replicated(synchronous=False) as servers:
        yield servers


async def killed_and_promoted(primary: Server, standby: Standby) -> None:
    await asyncio.to_thread(primary.stop, signal.SIGKILL)
    await asyncio.to_thread(standby.promote)


async def caught_up(primary: Server, standby: Standby) -> None:
    with primary.connect() as connection:
        row = connection.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
    assert row is not None
    with standby.connect() as connection:
        await until(lambda: connection.execute(CAUGHT_UP, row).fetchone() == (True,))


# ---- synchronous -------------------------------------------------------------------------------------


@pytest.mark.timeout(240)
async def test_nothing_acknowledged_is_lost_when_the_primary_is_killed_under_load(synchronous: tuple[Server, Standby]) -> None:
    primary, standby = synchronous
    database = Database(primary, primary.create(primary.template()))
    database.execute(BODIES)
    there = url(database.name, primary, standby)
    acknowledged: set[str] = set()
    workers = [worker_process(there) for _ in range(2)]
    try:
        async with romulus.AsyncClient(romulus.App(there, workflows=[travelling])) as client:
            starting = asyncio.ensure_future(start_all(client, acknowledged))
            await until(lambda: database.execute("SELECT count(*) > 100 FROM romulus.journal") == [(True,)])
            before = set(acknowledged)
            await killed_and_promoted(primary, standby)
            promoted = Database(standby, database.name)
            assert before <= {run for (run,) in promoted.execute("SELECT id FROM romulus.runs")}
            await starting
            results = await asyncio.gather(*(client.get(f"r{n}", travelling).result(timeout=200) for n in range(RUNS)))
    finally:
        for worker in workers:
            worker.kill()
            worker.wait(10)
    assert results == [n + STEPS + 2 + n for n in range(RUNS)]
    check(promoted)


def worker_process(there: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, failover_worker.__file__, there], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def check(database: Database) -> None:
    """Each line is a promise, asked of the database."""
    rows = database.execute
    assert rows("SELECT DISTINCT status FROM romulus.runs") == [("succeeded",)]
    # 1, 2: every body ran under an attempt of its own, and none after the attempt whose outcome is recorded.
    assert rows("SELECT count(*) - count(DISTINCT (run, number, attempt)) FROM bodies") == [(0,)]
    late = """SELECT b.run, b.number FROM bodies b JOIN romulus.runs r ON r.id = b.run
        JOIN romulus.journal j ON j.run = r.key AND j.kind = 'step' AND convert_from(j.body, 'utf8')::integer = b.number + 1
        WHERE b.attempt > j.attempt"""
    assert rows(late) == []
    # 3: the journal has no gap, and no entry of an older claim after one of a newer.
    assert rows("SELECT run FROM romulus.journal GROUP BY run HAVING max(position) + 1 <> count(*)") == []
    order = """SELECT run FROM (SELECT run, fence, lag(fence) OVER (PARTITION BY run ORDER BY position) AS before FROM romulus.journal) x
        WHERE fence < before"""
    assert rows(order) == []
    assert rows("SELECT DISTINCT count(*) FROM romulus.journal WHERE kind = 'step' GROUP BY run") == [(STEPS + 2,)]
    # 5: each event, sent until it was acknowledged, is in exactly one entry.
    assert rows("SELECT count(*) FROM romulus.dealt WHERE how = 'consumed'") == [(RUNS,)]
    assert rows("SELECT count(*) FROM romulus.journal WHERE kind = 'wait'") == [(RUNS,)]
    # Nothing is left of claims, waits and queues.
    assert rows("SELECT count(*) FROM romulus.runs WHERE owner IS NOT NULL") == [(0,)]
    assert rows("SELECT (SELECT count(*) FROM romulus.waits) + (SELECT count(*) FROM romulus.attempts)") == [(0,)]


async def start_all(client: romulus.AsyncClient, acknowledged: set[str]) -> None:
    """Start runs and send their events, one after another, whatever happens to the servers; note what was acknowledged."""
    for n in range(RUNS):
        await repeated(lambda n=n: client.start(travelling.options(id=f"r{n}"), n))
        acknowledged.add(f"r{n}")
        await repeated(lambda n=n: client.send_event("go", n, correlation_id=f"r{n}", event_id=f"go-{n}"))


async def repeated(ask: Any) -> None:
    while True:
        try:
            await ask()
        except StoreUnavailable:
            await asyncio.sleep(0.05)
        else:
            return


async def test_a_commit_that_was_seen_but_not_acknowledged_is_not_taken_for_one_that_was(synchronous: tuple[Server, Standby]) -> None:
    """The session that waited for the standby is ended: its commit is there for all to see, and on no standby."""
    primary, standby = synchronous
    database = Database(primary, primary.create(primary.template()))
    async with opened(url(database.name, primary, standby)) as store:
        standby.cut_off()
        starting = asyncio.ensure_future(store.start([new_run("r1")]))
        await until(lambda: primary_says(primary, WAITS_FOR_STANDBY, "%") == [(1,)])
        assert database.execute("SELECT count(*) FROM romulus.runs") == [(0,)]
        primary_says(
            primary,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = %s",
            "romulus",
        )
        await until(lambda: primary_says(primary, WAITS_FOR_STANDBY, "COMMIT%") == [(1,)] and starting_is_visible(database))
        assert not starting.done()
        standby.follow()
        (answer,) = await starting
    assert isinstance(answer, Created)
    await killed_and_promoted(primary, standby)
    assert Database(standby, database.name).execute("SELECT id FROM romulus.runs") == [("r1",)]


async def test_a_transition_that_was_seen_but_not_acknowledged_is_not_taken_for_one_that_was(synchronous: tuple[Server, Standby]) -> None:
    primary, standby = synchronous
    database = Database(primary, primary.create(primary.template()))
    host = MovableHost()
    async with opened(url(database.name, primary, standby), host) as store:
        (await register(store, host)).close()
        await start(store, "r1")
        (record,) = (await claim(store)).records
        await store.apply([transition := advance(record, entry(0))])
        await caught_up(primary, standby)
        standby.cut_off()
        applying = asyncio.ensure_future(store.apply([transition]))
        await until(lambda: primary_says(primary, WAITS_FOR_STANDBY, "COMMIT%") == [(1,)])
        assert not applying.done()
        standby.follow()
        assert await applying == [Verdict.APPLIED]
    host.close()


def primary_says(primary: Server, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    return Database(primary, "postgres").execute(sql, *values)


def starting_is_visible(database: Database) -> bool:
    return database.execute("SELECT count(*) FROM romulus.runs") == [(1,)]


# ---- asynchronous ------------------------------------------------------------------------------------


@asynccontextmanager
async def lagging(asynchronous: tuple[Server, Standby]) -> AsyncIterator[tuple[PostgresStore, MovableHost]]:
    """Give a store on both; the workers w1 and w2 are registered on both."""
    primary, standby = asynchronous
    database = Database(primary, primary.create(primary.template()))
    host = MovableHost()
    async with opened(url(database.name, primary, standby), host) as store:
        for worker in ("w1", "w2"):
            (await register(store, host, worker)).close()
        yield store, host
    host.close()


async def test_an_owner_whose_claim_was_lost_with_the_last_commits_writes_nothing(asynchronous: tuple[Server, Standby]) -> None:
    async with lagging(asynchronous) as (store, _):
        await start(store, "r1")
        (first,) = (await claim(store, "w1")).records
        assert await store.apply([advance(first, entry(0))]) == [Verdict.APPLIED]
        await caught_up(*asynchronous)
        asynchronous[1].cut_off()
        await store.mark_dead("w1")
        await store.sweep(10, PENDING)
        (second,) = (await claim(store, "w2")).records
        assert await store.apply([advance(second, entry(1))]) == [Verdict.APPLIED], "acknowledged, and lost"

        await killed_and_promoted(*asynchronous)

        second.run.revision, second.run.position = 2, 2
        assert await store.apply([advance(second, entry(2))]) == [Verdict.REFUSED]
        assert await store.reclaim(second.run.key, "w2", second.run.fence) is None
        await store.mark_dead("w1")
        await store.sweep(10, PENDING)
        (third,) = (await claim(store, "w2")).records
        assert third.run.fence > second.run.fence
        assert third.run.position == 1
        assert await store.apply([advance(second, entry(1))]) == [Verdict.REFUSED]
        assert await store.apply([advance(third, entry(1))]) == [Verdict.APPLIED]
        fences = [e.fence for e in await store.history(third.run.generation_key, 0, 10)]
        assert fences == [first.run.fence, third.run.fence]
        assert {e.fence for e in await store.evidence(third.run.key)} == {second.run.fence}


async def test_a_claim_on_a_lost_run_writes_nothing_to_the_run_that_has_its_key_now(asynchronous: tuple[Server, Standby]) -> None:
    """Numbers of a sequence come again after a failover that lost them; the same worker may have both runs."""
    async with lagging(asynchronous) as (store, _):
        await caught_up(*asynchronous)
        asynchronous[1].cut_off()
        await start(store, *(f"lost-{n}" for n in range(100)))
        lost = (await claim(store, "w2")).records

        await killed_and_promoted(*asynchronous)

        await start(store, *(f"new-{n}" for n in range(100)))
        new = (await claim(store, "w2")).records
        assert {r.run.key for r in lost} & {r.run.key for r in new}, "no key came again: this shows nothing"
        assert set(await store.apply([advance(r, entry(0)) for r in lost])) == {Verdict.REFUSED}
        assert [await store.reclaim(r.run.key, "w2", r.run.fence) for r in lost] == [None] * len(lost)
        assert not {r.run.fence for r in lost} & {r.run.fence for r in new}
        assert [(await again(store, r)).run.position for r in new] == [0] * len(new)


@romulus.step
async def one(n: int) -> int:
    return n + 1


@romulus.workflow
async def going(n: int) -> int:
    n = await one(n)
    event = await romulus.wait_for_event("go", correlation_id=romulus.current_run().id, type=int)
    return await one(n * event.payload)


@pytest.mark.timeout(240)
async def test_workers_go_on_from_what_the_promoted_standby_has(asynchronous: tuple[Server, Standby]) -> None:
    """What they have in memory of runs that are lost, or had come further, is not believed: keys come again, and stand for other runs."""
    primary, standby = asynchronous
    database = Database(primary, primary.create(primary.template()))
    app, second = (romulus.App(url(database.name, primary, standby), workflows=[going]) for _ in range(2))
    kept, lost = [f"kept-{n}" for n in range(10)], [f"lost-{n}" for n in range(100)]
    async with app.client() as client, app.worker(), second.worker():
        await waiting(client, kept, range(10))
        await caught_up(primary, standby)
        standby.cut_off()
        await waiting(client, lost, range(1_000, 1_100))
        assert await ended(client, kept, 3) == [(n + 1) * 3 + 1 for n in range(10)]

        await killed_and_promoted(primary, standby)

        promoted = Database(standby, database.name)
        assert promoted.execute("SELECT DISTINCT status FROM romulus.runs") == [("waiting",)]
        assert promoted.execute("SELECT count(*) FROM romulus.runs") == [(len(kept),)]
        await waiting(client, lost[::-1], range(2_000, 2_100))
        assert await ended(client, kept, 5) == [(n + 1) * 5 + 1 for n in range(10)]
        assert await ended(client, lost[::-1], 7) == [(n + 1) * 7 + 1 for n in range(2_000, 2_100)]
    assert promoted.execute("SELECT count(*) FROM romulus.journal") == [(3 * (len(kept) + len(lost)),)]


async def waiting(client: romulus.AsyncClient, runs: Sequence[str], numbers: Iterable[int]) -> None:
    """Start runs and let them wait."""
    for run, number in zip(runs, numbers, strict=True):
        await repeated(lambda run=run, number=number: client.start(going.options(id=run), number))
    for run in runs:
        async for seen in client.get(run).watch():
            if seen.status == "waiting":
                break


async def ended(client: romulus.AsyncClient, runs: Sequence[str], payload: int) -> list[int]:
    """Send runs their events and return their results."""
    for run in runs:
        await repeated(lambda run=run: client.send_event("go", payload, correlation_id=run))
    return [await client.get(run, going).result(timeout=100) for run in runs]


# ---- several hosts in one URL ------------------------------------------------------------------------


async def test_of_several_hosts_the_one_that_takes_writes_is_used(asynchronous: tuple[Server, Standby]) -> None:
    primary, standby = asynchronous
    database = Database(primary, primary.create(primary.template()))
    await caught_up(primary, standby)
    for servers in ((primary, standby), (standby, primary)):
        async with opened(url(database.name, *servers)) as store:
            await start(store, f"through {servers[0].port}")
    assert database.execute("SELECT count(*) FROM romulus.runs") == [(2,)]


async def test_hosts_that_all_take_no_writes_are_named_as_standbys(asynchronous: tuple[Server, Standby]) -> None:
    primary, standby = asynchronous
    database = Database(primary, primary.create(primary.template()))
    await caught_up(primary, standby)
    with pytest.raises(StoreUnavailable, match="each that answers is a standby or read-only"):
        async with opened(url(database.name, standby, standby)):
            pass


async def test_a_host_that_refuses_or_says_nothing_keeps_nobody_from_the_next(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "CONNECT_S", 3_600.0)
    silent = Proxy(database.server.port)
    await silent.start()
    silent.open.clear()
    hosts = f"127.0.0.1:{silent.port},127.0.0.1:{free_port()},127.0.0.1:{database.server.port}"
    try:
        async with opened(f"postgresql://postgres@{hosts}/{database.name}?pooler=none") as store:
            await start(store, "r1")
    finally:
        await silent.stop()
    assert database.execute("SELECT id FROM romulus.runs") == [("r1",)]
