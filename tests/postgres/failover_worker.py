"""A worker process for the failover tests: it serves through whatever becomes of the servers, until it is killed."""

from __future__ import annotations

import asyncio
import os
import sys

import asyncpg

import romulus
from romulus.host import RealHost
from romulus.store import open_store
from romulus.worker import Worker, WorkerSettings

STEPS = 8
BODIES = "CREATE TABLE bodies (run text, number integer, attempt integer, fence bigint, pid integer)"
_traces: list[asyncpg.Pool] = []  # type: ignore[type-arg,unused-ignore]


@romulus.step(retry=romulus.Retry(max_attempts=50, initial=0.01))
async def work(number: int) -> int:
    """Leave a trace of this body, outside of Romulus's own transactions."""
    attempt = romulus.current_attempt()
    await _traces[0].execute(
        "INSERT INTO bodies (run, number, attempt, fence, pid) VALUES ($1, $2, $3, $4, $5)",
        attempt.run_id, number, attempt.number, attempt.fence, os.getpid(),
    )  # fmt: skip
    await asyncio.sleep(0.02)
    return number + 1


@romulus.workflow
async def travelling(start: int) -> int:
    number = start
    for _ in range(STEPS):
        number = await work(number)
    event = await romulus.wait_for_event("go", type=int, correlation_id=romulus.current_run().id)
    for _ in range(2):
        number = await work(number)
    return number + event.payload


async def serve(url: str) -> None:
    _traces.append(await asyncpg.create_pool(url, min_size=1, max_size=5, target_session_attrs="read-write"))
    host = RealHost()
    store = open_store(url, host)
    await store.open()
    app = romulus.App(url, workflows=[travelling])
    settings = WorkerSettings(lease=2_000_000, sweep=200_000, poll=200_000)
    await Worker(store, host, app.registry, concurrency=10, settings=settings).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
