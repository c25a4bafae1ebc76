"""How many round trips an event takes to its parked run, and a run from start to result: what is added here is felt by everybody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import romulus
from romulus.host import RealHost
from romulus.store.postgres import listening
from tests.postgres.kit import until
from tests.postgres.server import Database

# What a worker does at its leisure, others are told by, or the client looks at meanwhile.
BESIDE = (
    "notify", "listen", "lease", "clock", "read.statuses", "sweep", "worker", "wakes.forgotten", "inbox", "pools", "pool.", "held",
    "operations.next", "operations.lost", "operations.unserved", "operation.send", "expire", "owned",
)  # fmt: skip
statements: list[str] = []
stores: list[Any] = []


@romulus.step
async def noted() -> list[str]:
    return list(statements)


@romulus.workflow
async def event_then_step() -> list[str]:
    await romulus.wait_for_event("go")
    return await noted()


@romulus.workflow
async def one_step() -> None:
    await noted()


@romulus.operation(idempotent=True, timeout=30)
async def write(op: romulus.Operation) -> list[str]:
    return list(statements)


@romulus.workflow
async def three_writes() -> list[str]:
    await write()
    before = await write()
    return (await write())[len(before) :]


def note(_: RealHost, point: str) -> None:
    if not point.endswith(".done") and not point.startswith(BESIDE):
        statements.append(point)


@pytest.fixture
async def here(database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[romulus.AsyncClient]:
    """A client and a worker on one store object, whose statements are noted; nothing else goes on, no looks from time to time either."""
    monkeypatch.setattr(RealHost, "crash_point", note)
    monkeypatch.setenv("ROMULUS_POLL", "3600")
    monkeypatch.setattr(listening, "POLL", 3600_000_000)
    app = romulus.App(database.url, workflows=[event_then_step, one_step, three_writes])
    async with app.worker(), app.client() as client:
        stores[:] = [(await app.source.acquire()).store]
        yield client
        await app.source.release()


async def parked(client: romulus.AsyncClient, database: Database) -> romulus.AsyncHandle[list[str]]:
    """Return a run that waits for its event, with nothing left to be done about it."""
    handle = await client.start(event_then_step)
    quiet = "SELECT count(*) FROM romulus.runs WHERE status = 'waiting' AND NOT EXISTS (SELECT 1 FROM romulus.to_match)"
    await until(lambda: database.execute(quiet) == [(1,)])
    await until(lambda: "wakes.dealt" in statements)
    (store,) = stores
    await until(lambda: store.listening and all(c.begun == c.ended and not c._poked.is_set() for c in store.hub.ready))
    return handle


def without_looks(seen: list[str]) -> list[str]:
    """Return *seen* without the looks: the worker looks now and then of itself."""
    assert "claim.look" in seen
    return [point for point in seen if point != "claim.look"]


async def test_a_parked_run_executes_its_next_step_two_round_trips_after_its_event_was_sent_here(
    here: romulus.AsyncClient, database: Database
) -> None:
    """Both are commits: the event is stored, matched and its run claimed in the first."""
    handle = await parked(here, database)
    statements.clear()
    await handle.send_event("go")

    assert [point for point in await handle.result() if point != "claim.look"] == ["send.delivered", "apply"]


async def test_a_parked_run_executes_its_next_step_seven_round_trips_after_its_event_was_sent_elsewhere(
    here: romulus.AsyncClient, database: Database
) -> None:
    """Three of them are commits. What came in between is one look, the locks, the match, and the claim."""
    handle = await parked(here, database)
    async with romulus.AsyncClient(database.url) as elsewhere:
        statements.clear()
        await elsewhere.get(handle.id).send_event("go")

        assert without_looks(await handle.result()) == [
            "send.events", "postgres.begin", "match.pair", "claim.woken", "postgres.commit", "apply",
        ]  # fmt: skip


async def test_a_run_of_one_step_ends_five_round_trips_after_its_start_was_asked_for(here: romulus.AsyncClient) -> None:
    """Four of them are commits. What came in between is one look; what comes after, the client's reading the result."""
    statements.clear()
    handle = await here.start(one_step)
    await handle.result()

    assert without_looks(statements) == ["start.runs", "claim.queue", "apply", "apply", "read.record"]


async def test_the_outcome_of_an_operation_and_the_intent_of_the_next_are_one_round_trip(here: romulus.AsyncClient) -> None:
    handle = await here.start(three_writes)

    assert [point for point in await handle.result() if point != "claim.look"] == ["apply"]
