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


# `recorded`: the record tells of this very attempt now, or another claim has taken over since it was armed.
TRACE = """
    INSERT INTO bodies (run, number, token, attempt, fence, pid, recorded)
    SELECT r.id, $2, $3, $4, $5, $6, r.fence > $5 OR EXISTS (
        SELECT 1 FROM json_array_elements(nullif(r.armed, '')::json) a WHERE (a ->> 0)::bigint = $7 AND (a ->> 1)::bigint = $4)
    FROM romulus.runs r WHERE r.id = $1"""


@romulus.step(retry=romulus.Retry(max_attempts=50, initial=0.01))
async def work(number: int, token: str) -> int:
    """Leave a trace of this body, outside of Romulus's own transactions."""
    attempt = romulus.current_attempt()
    await traces().execute(TRACE, attempt.run_id, number, token, attempt.number, attempt.fence, os.getpid(), attempt.seq)
    await asyncio.sleep(0.02)
    return number + 1


@romulus.operation(timeout=2, lookup_retry=romulus.Retry(max_attempts=100, initial=0.05))
async def send(op: romulus.Operation, token: str) -> str:
    """Write to a provider that knows no idempotency keys."""
    await traces().execute("INSERT INTO sends (operation, pid) VALUES ($1, $2)", op.id, os.getpid())
    await asyncio.sleep(0.02)
    return token


@send.lookup
async def find(op: romulus.Operation, token: str) -> romulus.LookupResult[str]:
    found = await traces().fetchval("SELECT count(*) FROM sends WHERE operation = $1", op.id)
    return romulus.Applied(token) if found else romulus.NotApplied()


@romulus.workflow
async def chaotic(start: int) -> int:
    token, number = str(romulus.uuid4()), start
    for _ in range(STEPS):
        number = await work(number, token)
    assert await send(token) == token
    event = await romulus.wait_for_event("go", type=int, correlation_id=romulus.current_run().id)
    for _ in range(2):
        number = await work(number, token)
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
