"""An event given straight to its run by one statement: nothing written between its snapshot and its locks is overlooked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from romulus.core.errors import CommitUnknown
from romulus.core.transition import Closing, Received, Verdict
from romulus.store.postgres import PostgresStore
from romulus.store.postgres.schema import VERSION
from tests.postgres.kit import Died, blocked, deadlocks, dies_at, held, opened
from tests.postgres.server import Database
from tests.store.kit import (
    RUNNING,
    MovableHost,
    Ready,
    advance,
    claim,
    close,
    deposits,
    event,
    park,
    parked,
    register,
    request,
    texts,
    wait,
)  # fmt: skip

# Whoever writes an event of the same ID is waited for, before anything is locked: the snapshot is of before.
SAME_ID = (
    "INSERT INTO romulus.events (arrival, namespace, id, name, correlation_id, payload, digest, received_at) "
    "VALUES (0, 'default', 'e1', 'x', 'x', '', '', 0)"
)

SENDING = ("send.delivered", "send.events", "send.known", "postgres.flush")  # the last: what was seen is durable, too
DUE = "UPDATE romulus.runs SET wake_at = 0, queue_at = 0, queued_by = romulus.xid()"


@pytest.fixture
def points(host: MovableHost) -> Iterator[list[str]]:
    """The statements that are executed to send."""
    seen: list[str] = []
    host.at_point = lambda point: seen.append(point) if point.startswith("send.") and not point.endswith(".done") else None
    yield seen
    host.at_point = None


async def ready(store: PostgresStore, host: MovableHost) -> Ready:
    """Return a worker that would claim the run r1, which is parked on its event."""
    await parked(store, host, "r1", wait())
    await store.match(100)
    (await register(store, host)).close()
    return Ready(store, request(match_max=100))


@asynccontextmanager
async def in_the_middle(store: PostgresStore, database: Database) -> AsyncIterator[None]:
    """Send the event, and stop the statement between its snapshot and its locks; goes on when the block is left."""
    with held(database, SAME_ID):
        sending = asyncio.ensure_future(store.send([event("e1")]))
        await blocked(database, 1)
        yield
    assert await sending == [Received("e1", duplicate=False)]


async def claimed_later(store: PostgresStore, owner: str = "w1") -> list[tuple[str, list[str | None]]]:
    """Return what is claimed by looks, with the events at the waits."""
    found = [record for _ in range(2) for record in (await claim(store, owner, match_max=100)).records]
    return [(record.run.id, list(deposits(record))) for record in found]


async def test_an_event_is_given_though_its_statement_had_to_wait_for_another_of_its_id(
    store: PostgresStore, database: Database, host: MovableHost
) -> None:
    worker = await ready(store, host)
    async with in_the_middle(store, database):
        database.execute("SELECT 1 FROM romulus.runs, romulus.waits FOR UPDATE NOWAIT")  # nothing is locked while it waits
    assert worker.runs == ["r1"]
    assert await texts(store) == {"e1": "matched"}


async def test_an_event_whose_id_was_taken_meanwhile_is_given_to_nobody(
    store: PostgresStore, database: Database, host: MovableHost
) -> None:
    worker = await ready(store, host)
    with database.server.connect(database.name) as connection:
        connection.execute("BEGIN")
        connection.execute(SAME_ID.encode())
        sending = asyncio.ensure_future(store.send([event("e1")]))
        await blocked(database, 1)
        connection.execute("COMMIT")
    (answer,) = await sending

    assert type(answer).__name__ == "EventClash"
    assert (worker.runs, await claimed_later(store)) == ([], [])


async def test_a_wait_that_was_closed_meanwhile_gets_nothing(
    store: PostgresStore, other: PostgresStore, database: Database, host: MovableHost
) -> None:
    """The run waits again, for something else, when its row is locked."""
    worker = await ready(store, host)
    (await register(other, host, "w2")).close()
    async with in_the_middle(store, database):
        database.execute(DUE)
        (record,) = (await claim(other, "w2")).records
        parking = park(record, closes=[close(1, Closing.WITHDRAWN)], opens=[wait(2, name="another")])
        assert await other.apply([parking]) == [Verdict.APPLIED]

    assert (worker.runs, await claimed_later(store)) == ([], [])
    assert await texts(store) == {"e1": "unmatched"}


async def test_a_run_that_was_written_to_meanwhile_is_not_taken_as_it_was(
    store: PostgresStore, other: PostgresStore, database: Database, host: MovableHost
) -> None:
    """It has its wait still open and is parked again: what the statement has read of it is of before."""
    worker = await ready(store, host)
    (await register(other, host, "w2")).close()
    async with in_the_middle(store, database):
        database.execute(DUE)
        (record,) = (await claim(other, "w2")).records
        assert await other.apply([park(record, opens=[wait(2, name="another")])]) == [Verdict.APPLIED]

    assert worker.runs == []
    assert await claimed_later(store) == [("r1", ["e1", None])]


async def test_a_wait_that_has_got_another_event_meanwhile_keeps_that(
    store: PostgresStore, other: PostgresStore, database: Database, host: MovableHost
) -> None:
    worker = await ready(store, host)
    async with in_the_middle(store, database):
        await other.send([event("sooner")])
        await other.match(100)

    assert worker.runs == []
    assert await claimed_later(store) == [("r1", ["sooner"])]
    assert await texts(store) == {"sooner": "matched", "e1": "unmatched"}


async def test_a_worker_that_was_marked_dead_before_the_statement_began_gets_nothing(store: PostgresStore, host: MovableHost) -> None:
    worker = await ready(store, host)
    await store.mark_dead("w1")
    await store.send([event("e1")])
    assert worker.runs == []


@pytest.mark.parametrize("table", ["runs", "waits"])
async def test_a_row_that_somebody_holds_is_not_waited_for(
    store: PostgresStore, database: Database, host: MovableHost, table: str
) -> None:  # fmt: skip
    worker = await ready(store, host)
    with held(database, f"SELECT 1 FROM romulus.{table} FOR UPDATE"):
        await store.send([event("e1")])
    assert (worker.runs, worker.pokes) == ([], 1)
    assert await claimed_later(store) == [("r1", ["e1"])]


async def test_a_run_that_has_an_owner_is_not_taken_whatever_else_its_row_says(
    store: PostgresStore, database: Database, host: MovableHost
) -> None:  # fmt: skip
    worker = await ready(store, host)
    database.execute("UPDATE romulus.runs SET owner = 'somebody'")
    await store.send([event("e1")])
    assert worker.runs == []


async def test_a_run_parking_meanwhile_gets_its_event_by_a_look(store: PostgresStore, database: Database, host: MovableHost) -> None:
    """The wait is there for the statement's snapshot; that its run is parked is not committed yet."""
    worker = await ready(store, host)
    with worker.busy():
        database.execute(DUE)
        (record,) = (await claim(store)).records
    with held(database, "SELECT 1 FROM romulus.runs FOR UPDATE"):
        parking = asyncio.ensure_future(store.apply([park(record)]))
        await blocked(database, 1)
        await store.send([event("e1")])
    assert await parking == [Verdict.APPLIED]
    assert worker.runs == []
    assert await claimed_later(store) == [("r1", ["e1"])]


async def test_two_events_at_once_are_given_to_one_wait_one_after_the_other(
    store: PostgresStore, other: PostgresStore, database: Database, host: MovableHost
) -> None:
    """Each statement finds the wait open; one locks it, and the other's event waits."""
    workers = Ready(store, None), Ready(other, None)
    for n in range(20):
        await parked(store, host, f"r{n}", wait(correlation_id=f"o-{n}"))
    await store.match(100)
    for name, worker in zip(("w1", "w2"), workers, strict=True):
        (await register(store, host, name)).close()
        worker.wanted = request(name, match_max=100)
    before = deadlocks(database)

    for n in range(20):
        await asyncio.gather(*(s.send([event(f"{n} of {s is other}", correlation_id=f"o-{n}")]) for s in (store, other)))

    assert sorted(workers[0].runs + workers[1].runs) == sorted(f"r{n}" for n in range(20))
    assert sorted((await texts(store)).values()) == ["matched"] * 20 + ["unmatched"] * 20
    assert deadlocks(database) == before


async def test_a_run_that_a_sender_took_and_nobody_was_told_of_is_found_by_the_next_claim(store: PostgresStore, host: MovableHost) -> None:
    """The answer to the commit is lost: the event is sent once more, and known again by its ID."""
    worker = await ready(store, host)
    points: list[str] = []

    def lose(point: str) -> None:
        points.append(point)
        if point == "send.delivered.done":
            raise ConnectionResetError("no answer")

    host.at_point = lose
    (answer,) = await store.send([event("e1")])
    host.at_point = None

    assert answer == Received("e1", duplicate=True)
    assert (worker.runs, worker.pokes > 0) == ([], True)
    assert [p for p in points if p in SENDING] == ["send.delivered", "send.events", "send.known", "postgres.flush"]
    assert await claimed_later(store) == [("r1", ["e1"])]


@pytest.mark.parametrize("then", [ConnectionResetError("no answer"), asyncpg.LockNotAvailableError("held by the backend that was lost")])
async def test_an_event_that_may_be_stored_is_not_said_to_be_lost(store: PostgresStore, host: MovableHost, then: Exception) -> None:
    """Nor is its sender told that nothing was written, whatever became of the next try; the worker looks for what it may have got."""
    worker = await ready(store, host)

    def lose(point: str) -> None:
        if point == "send.delivered.done":
            raise ConnectionResetError("no answer")
        if point == "send.events.done":
            raise then

    host.at_point = lose
    with pytest.raises(CommitUnknown):
        await store.send([event("e1")])
    host.at_point = None
    assert worker.pokes == 1
    assert await store.send([event("e1")]) == [Received("e1", duplicate=True)]


async def test_an_event_of_a_sender_that_died_before_or_after_the_statement_is_whole_or_not_there(
    store: PostgresStore, other: PostgresStore, host: MovableHost
) -> None:
    worker = await ready(store, host)
    for point, stored in (("send.delivered", {}), ("send.delivered.done", {"e1": "matched"})):
        host.at_point = dies_at(point)
        with pytest.raises(Died):
            await store.send([event("e1")])
        host.at_point = None
        assert await texts(other) == stored
    assert worker.runs == []
    await other.mark_dead("w1")
    await other.sweep(100, RUNNING)
    (await register(other, host, "w2")).close()
    assert await claimed_later(other, "w2") == [("r1", ["e1"])]


async def test_a_schema_beyond_this_release_has_nothing_claimed_by_it(new_database: Database, host: MovableHost) -> None:
    async with opened(new_database.url, host) as store:
        worker = await ready(store, host)
        new_database.execute(f"UPDATE romulus.meta SET value = '{VERSION + 1}' WHERE name = 'compatible'")
        await store.send([event("e1")])
        assert worker.runs == []
        assert await texts(store) == {"e1": "unmatched"}


async def test_nobody_is_told_where_nothing_is_left_to_do(store: PostgresStore, host: MovableHost, points: list[str]) -> None:
    worker = await ready(store, host)
    store._notifier.soon = lambda: points.append("told")  # type: ignore[method-assign]
    points.clear()
    await store.send([event("e1")])
    assert (points, worker.runs, worker.pokes) == (["send.delivered"], ["r1"], 0)


async def test_an_event_kept_for_a_run_to_come_is_one_statement_too_and_others_are_told(
    store: PostgresStore, host: MovableHost, points: list[str]
) -> None:
    worker = await ready(store, host)
    store._notifier.soon = lambda: points.append("told")  # type: ignore[method-assign]
    points.clear()
    await store.send([event("e1", name="another")])
    assert (points, worker.runs, worker.pokes) == (["send.delivered", "told"], [], 1)


async def test_what_the_run_was_told_before_is_not_forgotten(store: PostgresStore, database: Database, host: MovableHost) -> None:
    """A wake of another deposit stays for the owner, who takes it at its next look."""
    worker = await ready(store, host)
    database.execute("INSERT INTO romulus.wakes (run) SELECT key FROM romulus.runs")
    await store.send([event("e1")])
    assert worker.runs == ["r1"]
    (record,) = await store.pulse("w1")
    assert await store.apply([advance(record)]) == [Verdict.APPLIED]
