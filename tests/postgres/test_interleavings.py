"""Two connections at once, each statement of one held in the middle by a lock of a third: no event and no wake-up is lost.

A simulator with one writer cannot show what happens inside one statement of PostgreSQL: its snapshot is taken before it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest

from romulus.core.requests import request_cancel, terminate
from romulus.core.transition import Closing, Transition, Verdict
from romulus.store.postgres import PostgresStore, changing, matching
from romulus.store.postgres.apply import write_all
from romulus.store.postgres.session import OwnSession
from tests.postgres.kit import BLOCKED, Died, blocked, deadlocks, dies_at, opened, settled, until
from tests.postgres.server import Database
from tests.store.kit import (
    PENDING,
    RUNNING,
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
    park,
    register,
    request,
    start,
    succeed,
    wait,
)  # fmt: skip

RUN = "SELECT 1 FROM romulus.runs FOR UPDATE"


@pytest.fixture
def holding(database: Database) -> Any:
    """Hold what a statement locks, until the block is left."""

    @contextmanager
    def hold(sql: str) -> Iterator[psycopg.Connection[Any]]:
        with database.server.connect(database.name) as connection:
            connection.execute("BEGIN")
            connection.execute(sql)  # type: ignore[arg-type]
            yield connection
            connection.execute("COMMIT")

    return hold


async def waiting(store: PostgresStore, host: MovableHost, run_id: str = "r1") -> Any:
    record = await claimed(store, host, run_id, f"owner of {run_id}")
    await store.apply([advance(record, opens=[wait()])])
    await store.match(100)
    return await again(store, record)


@asynccontextmanager
async def uncommitted(store: PostgresStore, work: Callable[[OwnSession], Awaitable[Any]]) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Do *work* and leave it uncommitted until the returned function is called."""
    transaction = await store.transaction()
    session = transaction._session
    assert session is not None
    assert await work(session)
    yield lambda: store._steps.commit(session)
    await transaction.rollback()


def written(store: PostgresStore, transition: Transition) -> AbstractAsyncContextManager[Callable[[], Awaitable[None]]]:
    """Write a transition and leave it uncommitted until the returned function is called."""
    return uncommitted(store, lambda session: write_all(session, [transition]))


async def matched(session: OwnSession) -> set[int]:
    """Match what is queued; return the runs that got an event."""
    rows, _ = await matching.head(session, 100)
    await session.plain("test.locks", matching.locks(rows))
    return (await matching.match(session, rows, 100)).runs


async def test_an_event_matched_by_a_claim_while_its_run_is_written_to_is_claimed_by_the_next(
    store: PostgresStore, host: MovableHost, holding: Any
) -> None:
    """The run's row is locked, so that it cannot be made due in the commit that matched its event: it is told to look again."""
    await store.apply([park(await waiting(store, host))])
    (await register(store, host, "w2")).close()
    await store.send([event("e1")])

    with holding(RUN):
        claims = await claim(store, "w2", match_max=100)
        assert (list(claims.records), claims.unmatched) == ([], True)
    claims = await claim(store, "w2", match_max=100)
    assert [deposits(record) for record in claims.records] == [["e1"]]
    assert claims.unmatched is False


async def test_a_claim_that_looks_for_what_a_lost_commit_took_matches_in_a_commit_before(store: PostgresStore, host: MovableHost) -> None:
    """Runs are locked before queues of events: both in one transaction would be the other way round."""
    await store.apply([park(await waiting(store, host))])
    (await register(store, host, "w2")).close()
    await store.send([event("e1")])
    store._doubts["w2"] = [(host.monotonic() + 60_000_000, 1)]
    points: list[str] = []
    host.at_point = points.append

    claims = await claim(store, "w2", match_max=100)
    assert (list(claims.records), claims.unmatched, points.count("claim.doubtful")) == ([], True, 0)
    claims = await claim(store, "w2", match_max=100)
    assert [deposits(record) for record in claims.records] == [["e1"]]
    assert (points.count("claim.doubtful"), points.count("match.pair")) == (1, 1)


async def test_a_deposit_made_while_its_run_is_parking_wakes_it(
    store: PostgresStore, database: Database, host: MovableHost, holding: Any
) -> None:
    """The parking's snapshot is older than the deposit; the deposit's wake is still there after."""
    record = await waiting(store, host)
    with holding(RUN):
        parking = asyncio.ensure_future(store.apply([park(record)]))
        await blocked(database, 1)
        await store.send([event("e1")])
        await settled(store)
    assert await parking == [Verdict.APPLIED]
    (await register(store, host, "w2")).close()

    assert [deposits(r) for r in (await claim(store, "w2")).records] == [["e1"]]


async def test_a_run_whose_owner_took_the_wake_while_it_was_parking_is_due_at_once(
    store: PostgresStore, database: Database, host: MovableHost, holding: Any
) -> None:
    """The owner's pulse sees its run still owned and takes the wake; only the look after the commit can know."""
    record = await waiting(store, host)
    with holding(RUN):
        parking = asyncio.ensure_future(store.apply([park(record)]))
        await blocked(database, 1)
        await store.send([event("e1")])
        await settled(store)
        assert len(await store.pulse("owner of r1")) == 1
    assert await parking == [Verdict.APPLIED]
    (await register(store, host, "w2")).close()

    assert [deposits(r) for r in (await claim(store, "w2")).records] == [["e1"]]


async def test_a_process_that_dies_right_after_such_a_parking_is_made_up_for_by_the_sweep(
    store: PostgresStore, database: Database, host: MovableHost, holding: Any
) -> None:
    record = await waiting(store, host)
    dying = MovableHost()
    async with opened(database.url, dying) as its_store:
        dying.at_point = dies_at("wakes.dealt")
        with holding(RUN):
            parking = asyncio.ensure_future(its_store.apply([park(record)]))
            await blocked(database, 1)
            await store.send([event("e1")])
            await settled(store)
            await store.pulse("owner of r1")
        with pytest.raises(Died):
            await parking
    dying.close()
    (await register(store, host, "w2")).close()
    assert list((await claim(store, "w2")).records) == []

    await store.sweep(10, PENDING)

    assert [deposits(r) for r in (await claim(store, "w2")).records] == [["e1"]]


async def free_of(database: Database, work: Any) -> Any:
    """Return what *work* comes to; it must not wait for a lock."""
    task = asyncio.ensure_future(work)
    await until(lambda: database.execute(BLOCKED) == [(1,)], unless=task)
    assert task.done(), "it waits for a run that somebody else has locked"
    return await task


async def test_a_claim_passes_by_a_woken_run_that_is_locked_and_its_wake_stays(
    store: PostgresStore, database: Database, host: MovableHost, holding: Any
) -> None:
    """Who holds the run may be a caller's own transaction, for as long as that likes: others' work does not wait for it."""
    record = await waiting(store, host)
    await store.apply([park(record)])
    await store.send([event("e1")])
    await settled(store)
    await start(store, "r2")
    (await register(store, host, "w2")).close()
    with holding("SELECT 1 FROM romulus.runs WHERE id = 'r1' FOR UPDATE"):
        claims = await free_of(database, claim(store, "w2"))
        assert [r.run.id for r in claims.records] == ["r2"]

    assert [deposits(r) for r in (await claim(store, "w2")).records] == [["e1"]]


async def test_a_sweep_passes_by_a_forgotten_run_that_is_locked(
    store: PostgresStore, database: Database, host: MovableHost, holding: Any
) -> None:
    record = await waiting(store, host)
    await store.apply([park(record)])
    await store.send([event("e1")])
    await settled(store)
    database.execute("DELETE FROM romulus.wakes")
    (await register(store, host, "w2")).close()
    with holding("SELECT 1 FROM romulus.runs WHERE id = 'r1' FOR UPDATE"):
        await free_of(database, store.sweep(10, PENDING))
        assert list((await claim(store, "w2")).records) == []
    await store.sweep(10, PENDING)

    assert [deposits(r) for r in (await claim(store, "w2")).records] == [["e1"]]


async def matched_during(store: PostgresStore, database: Database, work: Callable[[OwnSession], Awaitable[Any]]) -> None:
    """Match while what *work* does is not committed yet: the match waits for nothing."""
    async with uncommitted(store, work) as commit:
        await free_of(database, store.match(100))
        await commit()


async def done_during_match(store: PostgresStore, database: Database, work: Awaitable[Any]) -> Any:
    """Return what *work* comes to, which waits for a match that is not committed yet."""
    async with uncommitted(store, matched) as commit:
        doing = asyncio.ensure_future(work)
        await blocked(database, 1)
        await commit()
    return await doing


@pytest.mark.parametrize("first", ["close", "match"])
@pytest.mark.parametrize("how", [Closing.WITHDRAWN, Closing.TIMED_OUT])
async def test_a_wait_that_closes_while_it_is_matched_gives_its_event_to_the_next(
    store: PostgresStore, database: Database, host: MovableHost, first: str, how: Closing
) -> None:
    record = await waiting(store, host)
    await store.send([event("e1")])
    closing = advance(record, entry(0, kind="wait"), closes=[close(1, how)])
    if first == "close":
        await matched_during(store, database, lambda session: write_all(session, [closing]))
    else:
        assert await done_during_match(store, database, store.apply([closing])) == [Verdict.APPLIED]

    host.advance(SECOND)
    other = await waiting(store, host, "r2")
    await settled(store)
    assert deposits(await again(store, other)) == ["e1"]
    assert [e.state for e in (await store.events("default", None, None, 10)).items] == ["matched"]


@pytest.mark.parametrize("first", ["end", "match"])
@pytest.mark.parametrize("how", ["succeed", "terminate"])
async def test_a_run_that_ends_while_it_is_matched_gives_its_event_to_the_next(
    store: PostgresStore, database: Database, host: MovableHost, how: str, first: str
) -> None:
    record = await waiting(store, host)
    await store.send([event("e1")])

    def end(session: OwnSession) -> Awaitable[Any]:
        if how == "succeed":
            return write_all(session, [succeed(record)])
        return changing.change(session, "default", "r1", lambda r, _, now: terminate(r, "", now))

    if first == "end":
        await matched_during(store, database, end)
    else:
        assert await done_during_match(store, database, store._pool.write(end))

    host.advance(SECOND)
    other = await waiting(store, host, "r2")
    await settled(store)
    assert deposits(await again(store, other)) == ["e1"]


async def test_shared_waits_that_close_together_give_their_event_back(store: PostgresStore, database: Database, host: MovableHost) -> None:
    """Neither of two transitions that are written at once may think that the other's wait still has the event."""
    records = []
    for name in ("r1", "r2"):
        record = await claimed(store, host, name, f"owner of {name}")
        await store.apply([advance(record, opens=[wait(shared=True)])])
        records.append(record)
    await store.send([event("e1")])
    await settled(store)
    first, second = [await again(store, record) for record in records]
    async with written(store, advance(first, closes=[close(1, Closing.WITHDRAWN)])) as commit:
        await store.apply([advance(second, closes=[close(1, Closing.WITHDRAWN)])])
        await commit()

    third = await waiting(store, host, "r3")
    await settled(store)
    assert deposits(await again(store, third)) == ["e1"]


@pytest.mark.parametrize("last", ["event", "wait"])
async def test_an_event_and_a_wait_committed_together_find_each_other(
    store: PostgresStore, database: Database, host: MovableHost, last: str
) -> None:
    """Each is stored without seeing the other; whichever commits last is matched after its own commit."""
    record = await claimed(store, host)
    opening = advance(record, opens=[wait()])
    if last == "event":
        with database.server.connect(database.name) as connection, connection.transaction():
            await store.using(connection).send([event("e1")])
            await store.apply([opening])
            await settled(store)
    else:
        transaction = await store.transaction()
        await store.send([event("e1")])
        await settled(store)
        assert await transaction.commit(opening) is Verdict.APPLIED
    await settled(store)

    assert deposits(await again(store, record)) == ["e1"]


async def test_two_matchers_give_an_event_to_one_wait(store: PostgresStore, database: Database, host: MovableHost, holding: Any) -> None:
    """A wait that is older and committed later is chosen by the second matcher, for the event the first has given away, uncommitted."""
    older, younger = await claimed(store, host, "r0", "w0"), await claimed(store, host, "r1", "w1")
    async with opened(database.url, host) as other, written(store, advance(older, opens=[wait()])) as commit:
        await store.apply([advance(younger, opens=[wait()])])
        await settled(store)
        await store.send([event("e1")])
        with holding("SELECT 1 FROM romulus.to_match FOR UPDATE"):
            one = asyncio.ensure_future(store.match(100))
            await blocked(database, 1)
            await commit()
            two = asyncio.ensure_future(other.match(100))
            await blocked(database, 2)
        await asyncio.gather(one, two)

    assert [deposits(await again(store, r)) for r in (older, younger)] == [[None], ["e1"]]


async def test_workers_that_claim_at_once_take_different_runs(store: PostgresStore, database: Database, host: MovableHost) -> None:
    await start(store, *(f"r{n}" for n in range(60)))
    async with opened(database.url, host) as other:
        for owner in ("w1", "w2"):
            (await register(store, host, owner)).close()
        claims = await asyncio.gather(*(s.claim(request(o, limit=5), RUNNING) for s, o in [(store, "w1"), (other, "w2")] * 5))

    ids = [record.run.id for c in claims for record in c.records]
    assert len(ids) == len(set(ids)) == 50


async def test_a_cancel_that_is_accepted_while_its_run_is_finishing_refuses_the_finish(
    store: PostgresStore, database: Database, host: MovableHost, holding: Any
) -> None:
    record = await claimed(store, host)
    with holding(RUN):
        cancelling = asyncio.ensure_future(store.change("default", "r1", lambda r, _, now: request_cancel(r, "", now)))
        await blocked(database, 1)
        finishing = asyncio.ensure_future(store.apply([succeed(record)]))
        await blocked(database, 2)
    await cancelling

    assert await finishing == [Verdict.REFUSED]
    assert [r.run.cancel_seq for r in await store.pulse("w1")] == [1]


async def test_a_run_taken_over_while_its_old_owner_writes_is_written_by_one(
    store: PostgresStore, database: Database, host: MovableHost, holding: Any
) -> None:
    record = await claimed(store, host)
    with holding("UPDATE romulus.runs SET owner = 'w2', fence = fence + 1"):
        writing = asyncio.ensure_future(store.apply([advance(record, entry(0))]))
        await blocked(database, 1)

    assert await writing == [Verdict.REFUSED]
    assert await store.history(record.generation.key, 0, 10) == []
    (kept,) = await store.evidence(record.run.key)
    assert kept.kind == "late_transition"


async def test_batches_about_the_same_waits_in_any_order_never_deadlock(
    store: PostgresStore, database: Database, host: MovableHost
) -> None:
    """Two workers' batches close waits while both match and terminate; errors would come as BatchRejected or StoreUnavailable."""
    before = deadlocks(database)
    records = [await waiting(store, host, f"r{n}") for n in range(12)]
    async with opened(database.url, host) as other:
        for n in range(12):
            await store.send([event(f"e{n}")])
        mine, theirs = records[:5], records[5:10]
        await asyncio.gather(
            store.apply([advance(await again(store, r), closes=[close(1, Closing.WITHDRAWN)]) for r in reversed(mine)]),
            other.apply([advance(await again(store, r), closes=[close(1, Closing.WITHDRAWN)]) for r in theirs]),
            store.match(100), other.match(100),
            store.change("default", "r10", lambda r, _, now: terminate(r, "", now)),
            other.change("default", "r11", lambda r, _, now: terminate(r, "", now)),
        )  # fmt: skip
    assert deadlocks(database) == before
