"""Connections cut at COMMIT, swallowed, or closed by the server: nothing acknowledged is lost, nothing is written twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from romulus.core.errors import CommitUnknown, StoreUnavailable
from romulus.core.transition import Created, Received, Verdict
from romulus.store.postgres import PostgresStore, driver, pool
from tests.postgres.kit import blocked, opened, settled
from tests.postgres.proxy import Proxy, proxied
from tests.postgres.server import Database
from tests.store.kit import MovableHost, advance, again, claim, claimed, deposits, entry, event, new_run, parked, register, start, wait

TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@pytest.fixture
async def proxy(database: Database) -> AsyncIterator[Proxy]:
    async with proxied(database.server.port) as proxy:
        yield proxy


@pytest.fixture
async def far(database: Database, proxy: Proxy, host: MovableHost) -> AsyncIterator[PostgresStore]:
    """A store behind the proxy."""
    async with opened(f"{database.server.url(database.name, proxy.port)}?pooler=none", host) as store:
        yield store


@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_transition_whose_answer_was_cut_off_is_written_once_when_resubmitted(
    store: PostgresStore, far: PostgresStore, proxy: Proxy, host: MovableHost, how: str
) -> None:
    record = await claimed(store, host)
    t = advance(record, entry(0, body=b"the paid outcome"))
    proxy.cut_at(b"the paid outcome", how)

    with pytest.raises(CommitUnknown):
        await far.apply([t])
    assert await far.apply([t]) == [Verdict.APPLIED]

    assert len(await store.history(record.generation.key, 0, 10)) == 1
    assert (await again(store, record)).run.revision == 1
    assert await store.evidence(record.run.key) == []


async def test_a_transition_is_written_once_though_the_old_backend_is_still_at_it(
    store: PostgresStore, far: PostgresStore, proxy: Proxy, database: Database, host: MovableHost
) -> None:
    record = await claimed(store, host)
    t = advance(record, entry(0, body=b"the paid outcome"))
    with database.server.connect(database.name) as other:
        other.execute("BEGIN")
        other.execute("SELECT 1 FROM romulus.runs FOR UPDATE")
        proxy.cut_at(b"the paid outcome", "during")
        with pytest.raises(CommitUnknown):
            await far.apply([t])
        await blocked(database, 1)
        resubmitted = asyncio.ensure_future(far.apply([t]))
        await blocked(database, 2)
        other.execute("COMMIT")

    assert await resubmitted == [Verdict.APPLIED]
    assert len(await store.history(record.generation.key, 0, 10)) == 1
    assert await store.evidence(record.run.key) == []


@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_start_and_a_send_whose_answer_was_cut_off_are_done_once_and_answered(
    store: PostgresStore, far: PostgresStore, proxy: Proxy, host: MovableHost, how: str
) -> None:
    proxy.cut_at(b"COMMIT\x00", how)
    (created,) = await far.start([new_run("r1")])
    proxy.cut_at(b"COMMIT\x00", how)
    (received,) = await far.send([event("e1")])

    assert isinstance(created, Created)
    assert isinstance(received, Received)
    assert len((await store.events("default", None, None, 10)).items) == 1


async def test_runs_claimed_in_a_commit_without_an_answer_are_worked_at(
    store: PostgresStore, far: PostgresStore, proxy: Proxy, host: MovableHost
) -> None:
    (await register(store, host)).close()
    await start(store, "r1", "r2")
    proxy.cut_at(b"COMMIT\x00", "after")
    with pytest.raises(StoreUnavailable):
        await claim(far, limit=1)
    assert [run.owner for run in [await store.run("default", r) for r in ("r1", "r2")] if run is not None] == ["w1", None]

    records = (await claim(far)).records

    assert sorted(record.run.id for record in records) == ["r1", "r2"]
    assert await far.apply([advance(record, entry(0)) for record in records]) == [Verdict.APPLIED] * 2


@pytest.mark.parametrize("how", ["due", "woken"])
async def test_runs_claimed_by_one_statement_without_an_answer_are_worked_at(
    store: PostgresStore, far: PostgresStore, proxy: Proxy, host: MovableHost, how: str
) -> None:
    (await register(store, host)).close()
    if how == "due":
        await start(store, "r1")
    else:
        await parked(store, host, "r1", wait())
        await store.send([event("e1")])
        await settled(store)
    proxy.cut_at(b"running", "after")
    with pytest.raises(StoreUnavailable):
        await claim(far)
    run = await store.run("default", "r1")
    assert run is not None
    assert run.owner == "w1"

    (record,) = (await claim(far)).records

    assert (record.run.id, list(deposits(record))) == ("r1", [] if how == "due" else ["e1"])
    assert await far.apply([advance(record, entry(0))]) == [Verdict.APPLIED]


async def test_wakes_taken_in_a_commit_without_an_answer_are_told_again(
    store: PostgresStore, far: PostgresStore, proxy: Proxy, database: Database, host: MovableHost
) -> None:
    record = await claimed(store, host, owner="the unlucky owner")
    database.execute("INSERT INTO romulus.wakes (run) VALUES (%s)", record.run.key)
    proxy.cut_at(b"the unlucky owner", "after")
    with pytest.raises(StoreUnavailable):
        await far.pulse("the unlucky owner")

    assert [r.run.id for r in await far.pulse("the unlucky owner")] == ["r1"]


async def test_a_connection_that_goes_silent_is_given_up(
    store: PostgresStore, far: PostgresStore, proxy: Proxy, host: MovableHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await claimed(store, host)
    proxy.drop_all()
    monkeypatch.setattr(pool, "COMMAND_S", 0.3)
    await far.now()
    proxy.open.clear()
    t = advance(record, entry(0))

    with pytest.raises(CommitUnknown):
        await far.apply([t])
    proxy.open.set()
    assert await far.apply([t]) == [Verdict.APPLIED]
    assert len(await store.history(record.generation.key, 0, 10)) == 1


async def test_a_process_that_falls_silent_inside_a_transaction_keeps_no_run_from_the_others(
    store: PostgresStore, proxy: Proxy, database: Database, host: MovableHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen process, or a machine that is gone: the server hears of neither."""
    for owner in ("w1", "w2"):
        (await register(store, host, owner)).close()
    await start(store, "r1")
    await start(store, "r2", workflow="other")  # two queues at once are more than one statement
    serves = [("order", "1", "3.11:here"), ("other", "1", "3.11:here")]
    monkeypatch.setattr(driver, "IDLE_S", 0.5)
    async with opened(f"{database.server.url(database.name, proxy.port)}?pooler=none", host) as silent:
        proxy.cut_at(b"COMMIT\x00", "silent")
        claiming = asyncio.ensure_future(claim(silent, serves=serves))
        await proxy.cut.wait()
        assert list((await claim(store, "w2")).records) == []
        while not (found := (await claim(store, "w2")).records):
            await asyncio.sleep(0.01)
        proxy.drop_all()
        await asyncio.gather(claiming, return_exceptions=True)

    assert [(record.run.id, record.run.owner) for record in found] == [("r1", "w2")]


async def test_silent_connections_are_given_up_together(
    store: PostgresStore, far: PostgresStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by itself would cost a call its time."""
    proxy.drop_all()
    monkeypatch.setattr(pool, "COMMAND_S", 0.3)
    await asyncio.gather(*(far.history(n, 0, 1) for n in range(6)))
    proxy.swallow_all()

    with pytest.raises(StoreUnavailable):
        await far.history(1, 0, 1)
    assert await far.history(1, 0, 1) == []


async def test_a_batch_that_was_undone_by_a_deadlock_is_written_again(store: PostgresStore, database: Database, host: MovableHost) -> None:
    """With somebody else's transaction: ours take their locks in one order."""
    (await register(store, host)).close()
    await start(store, "r1", "r2")
    batch = [advance(record, entry(0)) for record in (await claim(store)).records]
    with database.server.connect(database.name) as other, quick_to_see_deadlocks(database):
        async with opened(database.url, host) as ours:
            other.execute("SET deadlock_timeout = '1min'; BEGIN; SELECT 1 FROM romulus.runs WHERE id = 'r2' FOR UPDATE")
            applying = asyncio.ensure_future(ours.apply(batch))
            await blocked(database, 1)
            await asyncio.to_thread(other.execute, "SELECT 1 FROM romulus.runs WHERE id = 'r1' FOR UPDATE")
            other.execute("COMMIT")

            assert await applying == [Verdict.APPLIED] * 2


@contextmanager
def quick_to_see_deadlocks(database: Database) -> Iterator[None]:
    """Let sessions that begin now look for a deadlock soon after they have begun to wait: theirs is the transaction that is undone."""
    database.execute(f"ALTER DATABASE {database.name} SET deadlock_timeout = '500ms'")
    yield
    database.execute(f"ALTER DATABASE {database.name} RESET ALL")


async def test_closed_backends_are_replaced(store: PostgresStore, database: Database, host: MovableHost) -> None:
    record = await claimed(store, host)
    database.execute(TERMINATE)

    for n in range(20):
        try:
            assert await store.apply([advance(record, entry(0), id=77)]) == [Verdict.APPLIED]
            break
        except (StoreUnavailable, CommitUnknown):
            assert n < 10
    assert len(await store.history(record.generation.key, 0, 10)) == 1


async def test_a_lease_survives_the_loss_of_its_connection(store: PostgresStore, database: Database, host: MovableHost) -> None:
    lease = await register(store, host)
    assert lease.renew()
    database.execute(TERMINATE)

    for n in range(20):
        try:
            assert lease.renew()
            break
        except StoreUnavailable:
            assert n < 10
    lease.close()
