"""Machines whose clocks are hours apart: leases, timers, retries, deadlines, takeovers and keys go by the server's clock alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

import romulus
from romulus.host import RealHost
from romulus.store import open_store
from romulus.worker import Worker
from tests.postgres.kit import until
from tests.postgres.server import Database
from tests.worker.rig import QUICK

HOUR = 3_600_000_000
FAST, SLOW = 5 * HOUR, -7 * HOUR
BODIES: Counter[str] = Counter()
LOOKED: list[str] = []


class SkewedHost(RealHost):
    """A machine whose clock is wrong."""

    ahead = 0  # µs

    def wall(self) -> int:
        return super().wall() + self.ahead


@romulus.step(retry=romulus.Retry(max_attempts=3, initial=0.2, jitter=0))
async def flaky(run: str) -> int:
    BODIES[run] += 1
    if BODIES[run] < 3:
        raise ConnectionError("not yet")
    return BODIES[run]


@romulus.workflow
async def journey(run: str) -> list[float]:
    """Back-off, a timer, a wait that must not time out, and one that must."""
    times = [romulus.now().timestamp()]
    await flaky(run)
    times.append(romulus.now().timestamp())
    await asyncio.sleep(0.3)
    times.append(romulus.now().timestamp())
    await romulus.wait_for_event("go", correlation_id=run, type=bool, timeout=3600)
    try:
        await romulus.wait_for_event("never", correlation_id=run, type=bool, timeout=0.2)
    except romulus.WaitTimeout:
        times.append(romulus.now().timestamp())
    return times


@romulus.workflow
async def patient(run: str) -> None:
    await asyncio.sleep(3600)


@romulus.operation(timeout=0.2, settle=0.1)
async def silent(op: romulus.Operation) -> str:
    raise TimeoutError("no answer")


@silent.lookup
async def find(op: romulus.Operation) -> romulus.LookupResult[str]:
    LOOKED.append(op.id)
    return romulus.Applied("found") if len(LOOKED) > 1 else romulus.NotApplied()


@romulus.operation(timeout=5, idempotent=True, key_lifetime=600)
async def keyed(op: romulus.Operation) -> str:
    BODIES[op.id] += 1
    if BODIES[op.id] == 1:
        raise TimeoutError("no answer")
    return "sent under the key"


@romulus.workflow
async def writes() -> list[str]:
    return [await silent(), await keyed()]


@romulus.step
async def grip(run: str) -> int:
    BODIES[run] += 1
    if BODIES[run] == 1:
        await asyncio.Event().wait()
    return romulus.current_attempt().number


@romulus.workflow
async def gripped(run: str) -> int:
    return await grip(run)


WORKFLOWS: list[Any] = [journey, patient, writes, gripped]
Begin = Callable[[int], Awaitable[Worker]]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    BODIES.clear()
    LOOKED.clear()


@pytest.fixture
async def begin(database: Database) -> AsyncIterator[Begin]:
    """Begin a worker on a machine whose clock is so many µs ahead of the server's."""
    async with AsyncExitStack() as stack:

        async def begun(ahead: int) -> Worker:
            host = SkewedHost()
            host.ahead = ahead
            stack.callback(host.close)
            store = open_store(database.url, host)
            await store.open()
            stack.push_async_callback(store.close)
            app = romulus.App(database.url, workflows=WORKFLOWS)
            worker = Worker(store, host, app.registry, concurrency=10, settings=QUICK)
            await worker.start()
            stack.push_async_callback(worker.stop, 0)
            return worker

        yield begun


def client_of(database: Database) -> romulus.AsyncClient:
    return romulus.AsyncClient(romulus.App(database.url, workflows=WORKFLOWS))


def server_now(database: Database) -> float:
    ((now,),) = database.execute("SELECT romulus.clock()")
    return float(now) / 1_000_000


async def test_timers_back_offs_and_deadlines_go_by_the_servers_clock(database: Database, begin: Begin) -> None:
    began = server_now(database)
    for ahead in (FAST, SLOW):
        await begin(ahead)
    async with client_of(database) as client:
        waiting = await client.start(patient.options(id="patient"), "patient")
        handles = [await client.start(journey.options(id=f"r{n}"), f"r{n}") for n in range(10)]
        for n in range(10):
            await client.send_event("go", True, correlation_id=f"r{n}")
        journeys = [await handle.result(timeout=60) for handle in handles]
        assert (await waiting.describe()).status == "waiting", "an hour has passed on the machine that is ahead, but not on the server"

    for times in journeys:
        assert began <= times[0] <= times[1] <= times[2] <= times[3] <= server_now(database)
        assert times[1] - times[0] >= 0.2 + 0.4
        assert times[2] - times[1] >= 0.3
    stamps = database.execute("SELECT min(at), max(at) FROM romulus.journal")
    assert began * 1_000_000 <= stamps[0][0] <= stamps[0][1] <= server_now(database) * 1_000_000
    assert database.execute("SELECT count(*) FROM romulus.journal WHERE kind = 'wait' AND failed") == [(10,)]


async def test_healthy_workers_hours_apart_take_nothing_from_each_other(database: Database, begin: Begin) -> None:
    workers = [await begin(ahead) for ahead in (FAST, SLOW)]
    async with client_of(database) as client:
        handles = [await client.start(journey.options(id=f"r{n}"), f"r{n}") for n in range(10)]
        for n in range(10):
            await client.send_event("go", True, correlation_id=f"r{n}")
        for handle in handles:
            await handle.result(timeout=60)
        listed = {worker.id: worker.status for worker in await client.workers()}

    assert listed == {worker.id: "live" for worker in workers}
    assert database.execute("SELECT sum(losses) FROM romulus.runs") == [(0,)]
    assert database.execute("SELECT count(*) FROM romulus.evidence") == [(0,)]
    assert set(BODIES.values()) == {3}


@pytest.mark.parametrize(("dead", "heir"), [(FAST, SLOW), (SLOW, FAST)])
async def test_the_runs_of_a_worker_that_died_are_taken_over_when_its_lease_ends_on_the_server(
    database: Database, begin: Begin, dead: int, heir: int
) -> None:
    """The process is still there, as one on another machine is for all that is known: only its lease tells."""
    first = await begin(dead)
    async with client_of(database) as client:
        handle = await client.start(gripped.options(id="r"), "r")
        await until(lambda: BODIES["r"] == 1)
        await first.crash()
        ((lease_until,),) = database.execute("SELECT lease_until FROM romulus.workers WHERE id = %s", first.id)
        await begin(heir)
        assert await handle.result(timeout=60) == 2

    ((fence, at),) = database.execute("SELECT fence, at FROM romulus.journal")
    assert fence >= lease_until, "taken over no earlier than the lease ended by the server's clock"
    assert at >= fence
    assert database.execute("SELECT dead FROM romulus.workers WHERE id = %s", first.id) == [(True,)]


async def test_lookups_and_keys_go_by_the_servers_clock(database: Database, begin: Begin) -> None:
    """On the machine that is ahead a key of ten minutes would be over, and "not found" be believed too early."""
    for ahead in (FAST, SLOW):
        await begin(ahead)
    async with client_of(database) as client:
        handle = await client.start(writes.options(id="w"))
        assert await handle.result(timeout=60) == ["found", "sent under the key"]

    assert set(BODIES.values()) == {2}
    rows = database.execute("SELECT name, first_sent_at, created_at, may_leave_until FROM romulus.operations ORDER BY key")
    assert all(created <= sent <= until for _, sent, created, until in rows)
    assert all(until - sent < HOUR for _, sent, _, until in rows)
