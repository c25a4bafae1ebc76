"""What a writer does in the lease benchmark: run as many steps as it can, while each renewal of its worker's lease is timed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import romulus
from romulus.app.settings import worker_settings
from romulus.core.record import WorkerRow
from romulus.store.contract import Lease
from romulus.worker import Worker

from .engine import batch
from .plan import Bench
from .workflows import WORKFLOWS

SLOWEST, COUNT, STEPS = "SLOWEST", "RENEWALS", "STEPS"  # what it prints at its end


class TimedLease:
    """A lease that notes how long each renewal took, waiting for the file included."""

    def __init__(self, lease: Lease, took: list[float]) -> None:
        self._lease, self._took = lease, took

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lease, name)

    def renew(self, attempts: Sequence[int] = ()) -> bool:
        """Renew it."""
        started = time.perf_counter()
        try:
            return self._lease.renew(attempts)
        finally:
            self._took.append(time.perf_counter() - started)


class TimedStore:
    """A store whose leases are timed; all else is the store's."""

    def __init__(self, store: Any, took: list[float]) -> None:
        self._store, self._took = store, took

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def register(self, worker: WorkerRow, lease: int) -> TimedLease:
        """Register the worker."""
        return TimedLease(await self._store.register(worker, lease), self._took)


async def write_and_renew(bench: Bench) -> None:
    """Start and work on runs for the plan's time, then print the slowest renewal, how many there were, and the steps done."""
    app, took, steps = romulus.App(bench.url(), workflows=WORKFLOWS), list[float](), 0
    opened = await app.source.acquire()
    store: Any = TimedStore(opened.store, took)
    worker = Worker(store, opened.host, app.registry, concurrency=bench.plan.concurrency, settings=worker_settings())
    await worker.start()
    end = time.monotonic() + bench.plan.writing_s
    async with app.client() as client:
        while time.monotonic() < end:
            await batch(client, bench.plan.runs, bench.plan.steps)
            steps += bench.plan.runs * bench.plan.steps
    await worker.stop()
    await app.source.release()
    for word, value in ((SLOWEST, max(took, default=0.0)), (COUNT, len(took)), (STEPS, steps)):
        print(word, value, flush=True)
