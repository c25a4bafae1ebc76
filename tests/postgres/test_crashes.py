"""One run's story told up to each statement, where its process dies: another one goes on from what is stored."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from romulus.core.transition import Closing, Verdict
from romulus.store.postgres import PostgresStore
from tests.postgres.kit import Died, opened, settled
from tests.postgres.server import Database
from tests.store.kit import (
    PENDING,
    MovableHost,
    advance,
    again,
    claim,
    close,
    entry,
    event,
    new_run,
    park,
    register,
    start,
    succeed,
    wait,
)  # fmt: skip


async def story(store: PostgresStore, host: MovableHost, *, parks_first: bool = False) -> None:
    """A run opens a wait, parks, is woken by its event, takes it and ends. *parks_first*: a claim matches its event."""
    (await register(store, host, "w1")).close()
    await start(store, "r1")
    (record,) = (await claim(store)).records
    await store.apply([advance(record, entry(0), opens=[wait()], armed="[]")])
    await store.match(100)
    if parks_first:
        await store.apply([park(await again(store, record))])
    await store.send([event("e1")])
    if not parks_first:
        await store.match(100)
        await store.pulse("w1")
        await store.apply([park(await again(store, record))])
    (record,) = (await claim(store, match_max=100)).records
    await finish(store, record)


async def finish(store: PostgresStore, record: Any) -> None:
    """Take the event and end."""
    (open_wait,) = record.waits
    taking = advance(record, entry(record.run.position, kind="wait"), closes=[close(1, Closing.CONSUMED, open_wait.deposit.event)])
    assert await store.apply([taking]) == [Verdict.APPLIED]
    assert await store.apply([succeed(await again(store, record))]) == [Verdict.APPLIED]


async def points_of(database: Database, parks_first: bool) -> list[str]:
    """Return every crash point that the story passes, in order."""
    seen: list[str] = []
    host = MovableHost()
    async with opened(database.url, host) as store:
        host.at_point = seen.append
        await story(store, host, parks_first=parks_first)
        host.at_point = None
    host.close()
    return seen


@pytest.mark.parametrize("parks_first", [False, True])
async def test_a_crash_before_or_after_any_statement_loses_no_event(database: Database, parks_first: bool) -> None:
    """The story is told up to each point, the process dies there, and another one goes on from what is stored."""
    points = await points_of(database, parks_first)
    points = [point for point in points if counts(point)]
    assert len(points) > 20
    for number in range(len(points) + 1):
        database.empty()
        await die_at(database, number, parks_first)
        await go_on(database)


def counts(point: str) -> bool:
    """Return whether to die at *point*: after a statement is before the next one."""
    return not point.startswith(("notify", "schema", "clock")) and not point.endswith(".done")


async def die_at(database: Database, number: int, parks_first: bool) -> None:
    host = MovableHost()
    left = [number]

    def at_point(point: str) -> None:
        if not counts(point):
            return
        left[0] -= 1
        if left[0] < 0:
            raise Died(point)

    async with opened(database.url, host) as store:
        host.at_point = at_point
        with suppress(Died):
            await story(store, host, parks_first=parks_first)
        host.at_point = None
    host.close()


async def go_on(database: Database) -> None:
    """Another process does what is left: whatever was acknowledged is there, and the event is taken exactly once."""
    host = MovableHost()
    async with opened(database.url, host) as store:
        await store.mark_dead("w1")
        (await register(store, host, "w2")).close()
        await store.start([new_run("r1")])
        await store.send([event("e1")])
        await settled(store)
        await store.sweep(10, PENDING)
        run = await store.run("default", "r1")
        assert run is not None
        if run.status != "succeeded":
            await work_on(store)
        (stored,) = (await store.events("default", None, None, 10)).items
        assert (stored.state, stored.run_id) == ("consumed", "r1")
        run = await store.run("default", "r1")
        assert run is not None
        assert run.status == "succeeded"
        kinds = [e.kind for e in await store.history(run.generation_key, 0, 10)]
        assert kinds == ["step", "wait"]
    host.close()


async def work_on(store: PostgresStore) -> None:
    (record,) = (await claim(store, "w2")).records
    if record.run.position == 0:
        await store.apply([advance(record, entry(0), opens=[wait()])])
        await settled(store)
        record = await again(store, record)
    if record.run.position == 1:
        await finish(store, record)
    else:
        assert await store.apply([succeed(record)]) == [Verdict.APPLIED]
