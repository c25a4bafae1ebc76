"""Nobody is let in for a while, although a worker was before: whatever ends meanwhile is kept, and stored once the cause has ended."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

import romulus
from romulus.host import RealHost
from romulus.store.postgres import PostgresStore, place_of
from romulus.worker import Worker, committer, patience
from tests.postgres.kit import until
from tests.postgres.server import Database
from tests.worker.rig import QUICK

ROLE = "visitor"
SHUT = {"role": "the server does not let this user in", "name": "there is no such database: create it"}
LEASE = 15_000_000  # µs: longer than any of these outages


class Outage:
    """A role that may no longer log in, or a database whose name is another one for a while."""

    def __init__(self, database: Database, kind: str) -> None:
        self._database, self._kind, self.words = database, kind, SHUT[kind]
        self.lasts = False
        self.url = database.url.replace("postgres@", f"{ROLE}@")

    def begin(self, *, cut: bool = True) -> None:
        """Let nobody in; *cut*: nor keep those that are in."""
        self.lasts = True
        if self._kind == "role":
            self._database.execute(f"ALTER ROLE {ROLE} NOLOGIN")
            who = f"usename = '{ROLE}'"
        else:
            who = f"datname = '{self._database.name}'"
        with self._database.server.connect() as other:
            if cut:
                other.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {who}".encode())
            if self._kind == "name":
                other.execute(f"ALTER DATABASE {self._database.name} RENAME TO gone".encode())

    def end(self) -> None:
        """Let them in again."""
        self.lasts = False
        with self._database.server.connect() as other:
            if self._kind == "role":
                other.execute(f"ALTER ROLE {ROLE} LOGIN".encode())
            else:
                other.execute(f"ALTER DATABASE gone RENAME TO {self._database.name}".encode())


@pytest.fixture
def outage(new_database: Database, request: pytest.FixtureRequest) -> Iterator[Outage]:
    new_database.execute(f"CREATE ROLE {ROLE} SUPERUSER LOGIN")
    outage = Outage(new_database, getattr(request, "param", "role"))
    yield outage
    if outage.lasts:
        outage.end()
    new_database.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")


BOTH = pytest.mark.parametrize("outage", SHUT, indirect=True)


class Bodies:
    """What bodies began, and the gate that they wait at."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.gate = asyncio.Event()

    async def work(self, what: str) -> str:
        self.begun[what] += 1
        await self.gate.wait()
        return what


bodies = Bodies()


@pytest.fixture(autouse=True)
def fresh() -> None:
    global bodies
    bodies = Bodies()


@romulus.step
async def plain() -> str:
    return await bodies.work("plain")


@romulus.step(pool="gpu", retry=romulus.Retry(initial=0.01))
async def pooled() -> str:
    return await bodies.work("pooled")


@romulus.operation(timeout=60)
async def sent(op: romulus.Operation) -> str:
    return await bodies.work("sent")


@romulus.operation(pool="gpu", timeout=60)
async def sent_in_pool(op: romulus.Operation) -> str:
    return await bodies.work("sent in pool")


@romulus.step(transaction=True)
async def booked() -> int:
    await romulus.current_attempt().connection.execute("CREATE TABLE bookings AS SELECT 1 AS id")
    return 1


@romulus.workflow
async def everything() -> list[str]:
    return list(await asyncio.gather(plain(), pooled(), sent(), sent_in_pool()))


@romulus.workflow
async def books() -> int:
    return await booked()


@romulus.workflow
async def asks_pool() -> str:
    return await pooled()


@romulus.workflow
async def asks_operation() -> str:
    return await sent_in_pool()


APP = romulus.App("sqlite://", workflows=[everything, books, asks_pool, asks_operation])


@asynccontextmanager
async def working(url: str, **settings: Any) -> AsyncIterator[Worker]:
    """Give a worker of both pools."""
    host = RealHost()
    store = PostgresStore(place_of(url), host)
    await store.open()
    worker = Worker(store, host, APP.registry, pools=("default", "gpu"), settings=replace(QUICK, **{"lease": LEASE, **settings}))
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop(0)
        await store.close()
        host.close()


def said(caplog: pytest.LogCaptureFixture, words: str) -> int:
    """Return how often something was said."""
    return sum(words in record.getMessage() for record in caplog.records)


def fails(times: int, really: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of a store that raises what nobody expects of it, so many times."""
    left = [times]

    async def method(*args: Any, **kwargs: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise ZeroDivisionError("a surprise")
        return await really(*args, **kwargs)

    return method


@BOTH
async def test_what_ends_while_nobody_is_let_in_is_stored_once_they_are(
    outage: Outage, new_database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(committer, "TOLD_FROM", committer.RETRY_MIN)
    monkeypatch.setattr(committer, "RETRY_MAX", committer.RETRY_MIN)
    async with romulus.AsyncClient(new_database.url) as client, working(outage.url):
        handle = await client.start(everything)
        await until(lambda: len(bodies.begun) == 4)
        outage.begin()
        bodies.gate.set()
        await until(lambda: said(caplog, "nothing can be committed") == 1)  # the step, and the operation that the run sends
        await until(lambda: said(caplog, "the store cannot be reached") == 2)  # the pool's attempt, and its operation
        outage.end()

        assert await handle.result(timeout=20) == ["plain", "pooled", "sent", "sent in pool"]
        assert set(bodies.begun.values()) == {1}
        assert {operation.state for operation in await client.operations()} == {"confirmed"}
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert said(caplog, outage.words) > 2


@BOTH
async def test_a_worker_that_gives_its_name_up_while_nobody_is_let_in_has_another_one_after(
    outage: Outage, new_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    bodies.gate.set()
    async with working(outage.url) as worker:
        name = worker.id
        outage.begin()
        worker.doubt()
        await until(lambda: said(caplog, "the store cannot be reached") == 1)
        outage.end()
        async with romulus.AsyncClient(new_database.url) as client:
            assert await (await client.start(asks_pool)).result(timeout=20) == "pooled"
        assert worker.id != name
        assert new_database.execute("SELECT id FROM romulus.workers WHERE NOT dead") == [(worker.id,)]


async def test_a_transactional_step_that_gets_no_connection_waits_for_one(
    outage: Outage, new_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async with romulus.AsyncClient(new_database.url) as client, working(outage.url):
        outage.begin(cut=False)
        handle = await client.start(books)
        await until(lambda: said(caplog, "the store cannot be reached") == 1)
        outage.end()

        assert await handle.result(timeout=20) == 1
    assert new_database.execute("SELECT id FROM bookings") == [(1,)]


# ---- what nobody expects of a store ------------------------------------------------------------------


async def test_a_surprise_is_told_of_once_and_waited_out(
    outage: Outage, new_database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bodies.gate.set()
    async with romulus.AsyncClient(new_database.url) as client, working(outage.url) as worker:
        for name in ("transaction", "mark_dead", "register", "report_pool", "report"):
            monkeypatch.setattr(worker.store, name, fails(2, getattr(worker.store, name)))
        worker.doubt()
        runs = [await client.start(workflow) for workflow in (books, asks_pool, asks_operation)]

        assert [await run.result(timeout=20) for run in runs] == [1, "pooled", "sent in pool"]
        assert set(bodies.begun.values()) == {1}
    assert said(caplog, "the store raised what nobody expects of it") == 5


async def test_an_outcome_that_cannot_be_stored_leaves_nothing_claimed_for_good(
    outage: Outage, new_database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The attempt's claim runs out, and it is made again; the operation is unknown, and a person is asked."""
    bodies.gate.set()
    times = patience.SURPRISES_MAX + 1
    async with romulus.AsyncClient(new_database.url) as client, working(outage.url, lease=2_000_000, poll=20_000) as worker:
        monkeypatch.setattr(worker.store, "report_pool", fails(times, worker.store.report_pool))
        attempt = await client.start(asks_pool)
        assert await attempt.result(timeout=20) == "pooled"
        assert bodies.begun["pooled"] == 2
        assert said(caplog, "cannot be stored") == 1

        bodies.gate.clear()
        operation = await client.start(asks_operation)
        await until(lambda: bodies.begun["sent in pool"] == 1)
        monkeypatch.setattr(worker.store, "report", fails(times, worker.store.report))
        bodies.gate.set()
        with pytest.raises(romulus.RunHeld):
            await operation.result(timeout=20, raise_on_hold=True)
        assert {found.state for found in await client.operations()} == {"held"}
