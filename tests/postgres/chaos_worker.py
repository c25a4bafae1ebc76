"""A worker process for the chaos test: it serves until it is stopped, killed or frozen."""

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
URL = sys.argv[1] if __name__ == "__main__" else ""


@romulus.step(retry=romulus.Retry(max_attempts=50, initial=0.01))
async def work(number: int) -> int:
    """Leave a trace of this body, outside of Romulus's own transactions."""
    attempt, run = romulus.current_attempt(), romulus.current_run()
    await traces().execute(
        "INSERT INTO bodies (run, number, attempt, fence, pid) VALUES ($1, $2, $3, $4, $5)",
        run.id, number, attempt.number, attempt.fence, os.getpid(),
    )  # fmt: skip
    await asyncio.sleep(0.02)
    return number + 1


@romulus.workflow
async def chaotic(start: int) -> int:
    number = start
    for _ in range(STEPS):
        number = await work(number)
    event = await romulus.wait_for_event("go", type=int, correlation_id=romulus.current_run().id)
    for _ in range(2):
        number = await work(number)
    return number + event.payload


_traces: list[asyncpg.Pool] = []  # type: ignore[type-arg,unused-ignore]


def traces() -> asyncpg.Pool:  # type: ignore[type-arg,unused-ignore]
    return _traces[0]


async def serve(url: str) -> None:
    pool = await asyncpg.create_pool(url, min_size=1, max_size=5)
    assert pool is not None
    _traces.append(pool)
    host = RealHost()
    store = open_store(url, host)
    await store.open()
    app = romulus.App(url, workflows=[chaotic])
    settings = WorkerSettings(lease=2_000_000, sweep=200_000, poll=200_000)
    await Worker(store, host, app.registry, concurrency=10, settings=settings).start()
    print("serving", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(URL))
