"""The server restarted under load, and a second worker beside a healthy one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

import romulus
from tests.postgres.kit import until
from tests.postgres.server import Database, Server, running

RUNS = 100


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@romulus.step(retry=romulus.Retry(max_attempts=10, initial=0.01))
async def slow(n: int) -> int:
    await asyncio.sleep(0.02)
    return n + 1


@romulus.workflow
async def several(n: int) -> int:
    for _ in range(5):
        n = await slow(n)
    return n


@pytest.mark.process
async def test_every_run_ends_after_the_server_was_killed_and_started_again(server: Server) -> None:
    """RB-37."""
    database = Database(server, server.create(server.template()))
    app = romulus.App(database.url, workflows=[several])
    async with app.client() as client, app.worker(concurrency=20):
        handles = await asyncio.gather(*(client.start(several, n) for n in range(RUNS)))
        await until(lambda: database.execute("SELECT count(*) > 20 FROM romulus.journal") == [(True,)])
        await asyncio.to_thread(server.stop, signal.SIGQUIT)
        await asyncio.to_thread(server.start)
        results = await asyncio.gather(*(handle.result(timeout=60) for handle in handles))
    assert results == [n + 5 for n in range(RUNS)]
    assert database.execute("SELECT count(*), count(DISTINCT (run, position)) FROM romulus.journal") == [(RUNS * 5, RUNS * 5)]


async def test_a_second_worker_takes_nothing_from_a_healthy_one(database: Database) -> None:
    app, second = (romulus.App(database.url, workflows=[several]) for _ in range(2))
    async with app.client() as client, app.worker(concurrency=5):
        handles = await asyncio.gather(*(client.start(several, n) for n in range(30)))
        await until(lambda: database.execute("SELECT count(*) > 5 FROM romulus.journal") == [(True,)])
        async with second.worker(concurrency=5):
            await asyncio.gather(*(handle.result(timeout=60) for handle in handles))
    assert database.execute("SELECT sum(losses) FROM romulus.runs") == [(0,)]
    assert database.execute("SELECT count(*) FROM romulus.evidence") == [(0,)]
    assert database.execute("SELECT max(attempt) FROM romulus.journal") == [(1,)]
