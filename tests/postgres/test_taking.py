"""Claims that are one statement: what is written between the statement's snapshot and its lock of a row is never overlooked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from romulus.core.transition import Closing, NewChild
from romulus.store.contract import Claims
from romulus.store.postgres import PostgresStore, matching
from tests.postgres.kit import blocked, held, settled
from tests.postgres.server import Database
from tests.store.kit import (
    SECOND,
    MovableHost,
    advance,
    again,
    claim,
    claimed,
    close,
    deposits,
    event,
    free,
    new_run,
    park,
    register,
    start,
    succeed,
    wait,
)  # fmt: skip

GATE = 77
# The claim's statement is held where it writes to its first run: what it reads is of before, what it has not locked yet may still change.
GATED = f"""CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN IF NEW.owner = 'w1' THEN PERFORM pg_advisory_xact_lock({GATE}); END IF; RETURN NEW; END $$;
    CREATE TRIGGER gate BEFORE UPDATE ON romulus.runs FOR EACH ROW WHEN (NEW.id = 'first' AND OLD.owner IS NULL) EXECUTE FUNCTION gate()"""


@pytest.fixture
def database(new_database: Database) -> Database:
    new_database.execute(GATED)
    return new_database


@pytest.fixture
def points(host: MovableHost) -> Iterator[list[str]]:
    """The statements that are executed."""
    seen: list[str] = []
    host.at_point = lambda point: None if point.endswith(".done") else seen.append(point)
    yield seen
    host.at_point = None


@asynccontextmanager
async def in_the_middle(store: PostgresStore, database: Database) -> AsyncIterator[list[Claims]]:
    """Let w1 claim, and stop its statement where it writes to the first run; goes on when the block is left."""
    found: list[Claims] = []
    with held(database, f"SELECT pg_advisory_xact_lock({GATE})"):
        claiming = asyncio.ensure_future(claim(store, "w1"))
        await blocked(database, 1)
        yield found
    found.append(await claiming)


def ids(claims: Claims) -> list[str]:
    return [record.run.id for record in claims.records]


async def sleeping(store: PostgresStore, host: MovableHost, *run_ids: str) -> None:
    """Park runs on two waits each."""
    for run_id in run_ids:
        record = await claimed(store, host, run_id, f"owner of {run_id}")
        await store.apply([park(record, opens=[wait(n, correlation_id=f"{run_id}-{n}") for n in (1, 2)])])
    await settled(store)


async def deposit(store: PostgresStore, wait_: int, *run_ids: str) -> None:
    """Let a wait of each of these runs get its event."""
    await store.send([event(f"{run_id} e{wait_}", correlation_id=f"{run_id}-{wait_}") for run_id in run_ids])
    await settled(store)


async def ready(store: PostgresStore, host: MovableHost, how: str, *run_ids: str) -> None:
    """Let runs be *due*, or parked and *woken*."""
    if how == "due":
        await start(store, *run_ids, wake_at=1)
    else:
        await sleeping(store, host, *run_ids)
        await deposit(store, 1, *run_ids)


@pytest.mark.parametrize("how", ["due", "woken"])
async def test_a_run_that_another_has_worked_on_since_is_left_as_it_is(
    store: PostgresStore, other: PostgresStore, host: MovableHost, database: Database, how: str
) -> None:
    """It is free and due again when its row is locked, and what belongs to it is not what the statement reads."""
    await ready(store, host, how, "first", "second")
    for owner in ("w1", "w2"):
        (await register(store, host, owner)).close()
    async with in_the_middle(store, database) as found:
        (record,) = (await claim(other, "w2")).records
        assert record.run.id == "second"
        await other.apply([park(record, opens=[wait(9, correlation_id="new")], wake_at=1 if how == "due" else None)])
        if how == "woken":
            await other.send([event("later", correlation_id="new")])
            await settled(other)

    assert ids(found[0]) == ["first"]
    (record,) = (await claim(store, "w1")).records
    assert (record.run.id, record.waits[-1].seq) == ("second", 9)


async def test_a_run_whose_wake_another_has_taken_since_is_read_with_what_it_was_woken_for(
    store: PostgresStore, other: PostgresStore, host: MovableHost, database: Database
) -> None:
    """A wake of a run that is not parked goes with nothing to be seen of it but that the run was written to."""
    parent = await claimed(store, host, "second", "w0")
    child = NewChild(new_run("child", workflow="item", wake_at=1, depth=1), 1, "cancel")
    await store.apply([advance(parent, children=[child], parent=True)])
    await store.apply([free(await again(store, parent), wake_at=2)])
    await start(store, "first", wake_at=1)
    for owner in ("w1", "w2", "w3"):
        (await register(store, host, owner)).close()
    (record,) = (await claim(other, "w2", serves=[("item", "1", "")])).records
    async with in_the_middle(store, database) as found:
        await other.apply([succeed(record, child=True)])
        assert not (await claim(other, "w3", serves=[("item", "1", "")])).records
        assert database.execute("SELECT count(*) FROM romulus.wakes") == [(0,)]

    assert ids(found[0]) == ["first"]
    (record,) = (await claim(store, "w1")).records
    assert (record.run.id, len(record.inbox)) == ("second", 1)


async def test_a_run_that_is_woken_while_it_is_claimed_is_told_by_a_wake(
    store: PostgresStore, other: PostgresStore, host: MovableHost, database: Database
) -> None:
    await ready(store, host, "woken", "first")
    (await register(store, host, "w1")).close()
    async with in_the_middle(store, database) as found:
        await deposit(other, 2, "first")

    assert [deposits(record) for record in found[0].records] == [["first e1", None]]
    assert [deposits(record) for record in await store.pulse("w1")] == [["first e1", "first e2"]]


@pytest.mark.parametrize("how", ["due", "woken"])
async def test_a_run_that_another_has_locked_is_claimed_when_it_is_free(
    store: PostgresStore, host: MovableHost, database: Database, how: str
) -> None:
    """It is asked for at once what is left; where nothing can be had, at leisure."""
    await ready(store, host, how, "r1", "r2")
    (await register(store, host, "w1")).close()
    with held(database, "SELECT 1 FROM romulus.runs WHERE id = 'r1' FOR UPDATE"):
        first, second = await claim(store), await claim(store)
    third = await claim(store)

    assert [ids(each) for each in (first, second, third)] == [["r2"], [], ["r1"]]
    if how == "due":
        assert first.next_due is not None
        assert first.next_due <= await store.now()
        assert second.next_due is None


@pytest.mark.parametrize(("how", "point"), [("due", "claim.queue"), ("woken", "claim.woken"), ("both", "claim.take")])
async def test_a_worker_that_is_marked_dead_after_its_look_claims_nothing(
    store: PostgresStore, host: MovableHost, database: Database, how: str, point: str
) -> None:
    for each in ("woken", "due") if how == "both" else (how,):
        await ready(store, host, each, f"{each} run")
    (await register(store, host, "w1")).close()

    def die(at: str) -> None:
        if at == point:
            database.execute("UPDATE romulus.workers SET dead = true WHERE id = 'w1'")

    host.at_point = die
    assert not (await claim(store)).records
    host.at_point = None
    assert database.execute("SELECT count(*) FROM romulus.runs WHERE owner = 'w1'") == [(0,)]
    (await register(store, host, "w2")).close()
    assert len((await claim(store, "w2")).records) == (2 if how == "both" else 1)


async def test_runs_of_one_queue_come_oldest_first(store: PostgresStore, host: MovableHost, points: list[str]) -> None:
    await start(store, "late", wake_at=3)
    await start(store, "early", wake_at=1)
    await start(store, "between", wake_at=2)
    (await register(store, host, "w1")).close()

    assert ids(await claim(store)) == ["early", "between", "late"]
    assert "claim.queue" in points


async def test_woken_runs_are_claimed_without_becoming_due_with_what_is_due(
    store: PostgresStore, host: MovableHost, points: list[str]
) -> None:
    """One look, and what each of the two asks for."""
    await sleeping(store, host, "woken")
    await start(store, "due")
    await store.send([event("e", correlation_id="woken-1")])
    (await register(store, host, "w1")).close()
    points.clear()

    claims = await claim(store, match_max=10)

    assert (ids(claims), claims.next_due, claims.unmatched) == (["due", "woken"], None, False)
    told = ["claim.look", "postgres.begin", "match.pair", "claim.woken", "claim.lock", "claim.take", "postgres.commit"]
    assert [point for point in points if point != "notify"] == told
    assert await store.pulse("w1") == []


async def test_woken_runs_that_a_worker_may_not_take_are_due_though_it_always_finds_one_to_take(
    store: PostgresStore, host: MovableHost, database: Database
) -> None:
    """A run that lost its claims too often is taken alone, once it is due."""
    record = await claimed(store, host, "excludes")
    await store.apply([park(record, opens=[wait(1, correlation_id="excludes-1")], excluded="3.11:here")])
    names = ("one", "two")
    await sleeping(store, host, *names)
    await deposit(store, 1, "excludes")
    for name in names:
        await deposit(store, 1, name)
        assert ids(await claim(store)) == [name]

    assert database.execute("SELECT queue_at IS NOT NULL FROM romulus.runs WHERE id = 'excludes'") == [(True,)]


async def test_an_event_given_back_after_the_look_goes_before_a_younger_one(
    store: PostgresStore, host: MovableHost, database: Database
) -> None:
    """The matcher has seen the younger one, and waits for its queue's lock meanwhile."""
    record = await claimed(store, host)
    await store.apply([advance(record, opens=[wait(1)])])
    await store.send([event("older")])
    await settled(store)
    record = await again(store, record)
    await store.send([event("younger")])
    with held(database, matching.locks([(0, ("default", "paid", "o-1"))])):
        matcher = asyncio.ensure_future(store.match(100))
        await blocked(database, 1)
        await store.apply([advance(record, closes=[close(1, Closing.WITHDRAWN)], opens=[wait(2)])])
    await matcher

    assert deposits(await again(store, record)) == ["older"]
    await settled(store)
    assert database.execute("SELECT count(*) FROM romulus.unmatched") == [(1,)]


async def test_a_claim_that_does_not_get_a_queues_lock_in_time_is_made_again(
    store: PostgresStore, host: MovableHost, database: Database
) -> None:
    """The lock is asked for in the message that begins the transaction; the connection is as good as before."""
    await sleeping(store, host, "r1")
    (await register(store, host, "w1")).close()
    await store.send([event("e", correlation_id="r1-1")])
    store._pool.lock_ms = 50
    store._pool._forget_idle()
    with held(database, matching.locks([(0, ("default", "paid", "r1-1"))])):
        assert ids(await claim(store, match_max=10)) == []

    host.advance(SECOND)  # it was set aside
    assert ids(await claim(store, match_max=10)) == ["r1"]
    assert store._pool.losses == 0


def test_locks_are_taken_in_one_order_each_once() -> None:
    rows = [(n, ("default", "paid", f"o-{n % 100}")) for n in range(1_000)]
    numbers = matching.locks(rows).partition("[")[2].partition("]")[0].split(", ")

    assert [int(number) for number in numbers] == sorted({int(number) for number in numbers})
    assert 50 < len(numbers) <= 100
    assert matching.locks(rows) == matching.locks(list(reversed(rows)))
    assert matching.locks([]) == ""
