"""W6 and sleepers: what a parked run costs in memory, and how fast many are woken."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import romulus

from .child import LAUNCH
from .children import Child
from .engine import WARM_UPS, each_at_once, one_run, run, start_many, working
from .figure import Benchmark, Figure, PeerField, Samples, at_most
from .measures import resident_kb
from .observing import Observer
from .plan import POSTGRES, Bench, Plan
from .workflows import EVENT, WORKFLOWS, parked, sleeping

START_AT_ONCE = 1_000
SEND_AT_ONCE = 100  # as the drivers of the peers that send at once do
PARKED_MAX_KB = 1
WAKE_MAX_S, WAKE_MAX_POSTGRES_S = 5, 8
SLEEPING_MAX_MB = 300
SETTLED_S = 3.0  # a worker gives freed memory back within its next sweep, a second later at the most


def events(bench: Bench) -> Samples:
    """W6: many runs wait for an event of their own; then each is sent its event. Again with the worker in a process of its own."""
    return run(bench.plan, _events(bench)) | {"W6.kb": _apart(bench)}


async def _events(bench: Bench) -> Samples:
    count = bench.plan.parked_runs
    async with working(bench.url(), bench.plan.concurrency) as client:
        observer, before = Observer(bench.url()), resident_kb()
        started = time.perf_counter()
        handles = await start_many(client, parked, count, START_AT_ONCE)
        await observer.until("waiting", count)
        park_s, grown = time.perf_counter() - started, resident_kb() - before
        sent = time.perf_counter()
        await each_at_once([partial(handle.send_event, EVENT, {"v": 1}) for handle in handles], SEND_AT_ONCE)
        send_s = time.perf_counter() - sent
        await each_at_once([handle.result for handle in handles], START_AT_ONCE)
        observer.close()
        return {"W6.both_kb": grown / count, "W6.park": park_s, "W6.send": send_s, "W6.wake": time.perf_counter() - sent}


def _apart(bench: Bench) -> float:
    """Return what one parked run costs the worker alone: whoever starts the runs keeps their handles elsewhere."""
    with Child(bench, "work") as worker:
        worker.wait_for(LAUNCH)
        return run(bench.plan, _parked_kb(bench, worker.pid))


async def _parked_kb(bench: Bench, worker: int) -> float:
    count = bench.plan.parked_runs
    async with romulus.App(bench.url(), workflows=WORKFLOWS).client() as client:
        for _ in range(WARM_UPS):
            await one_run(client, 1)
        before = resident_kb(worker)
        await start_many(client, parked, count, START_AT_ONCE)
    observer = Observer(bench.url())
    await observer.until("waiting", count)
    observer.close()
    await asyncio.sleep(SETTLED_S)
    return (resident_kb(worker) - before) / count


def sleepers(bench: Bench) -> Samples:
    """Start very many runs that sleep; the worker is a process of its own, whose memory is read."""
    with Child(bench, "work") as worker:
        worker.wait_for(LAUNCH)
        park_s = run(bench.plan, _put_to_sleep(bench))
        return {
            "sleeping.mb": resident_kb(worker.pid) / 1024,
            "sleeping.peak_mb": resident_kb(worker.pid, peak=True) / 1024,
            "sleeping.park": park_s,
        }


async def _put_to_sleep(bench: Bench) -> float:
    started = time.perf_counter()
    async with romulus.App(bench.url(), workflows=WORKFLOWS).client() as client:
        await start_many(client, sleeping, bench.plan.sleeping_runs, START_AT_ONCE)
    observer = Observer(bench.url())
    await observer.until("waiting", bench.plan.sleeping_runs)
    observer.close()
    return time.perf_counter() - started


def _w6(plan: Plan) -> tuple[Figure, ...]:
    runs, size = f"{plan.parked_runs:,} runs", ("n", plan.parked_runs)
    wake = at_most(WAKE_MAX_POSTGRES_S if plan.store == POSTGRES else WAKE_MAX_S, "s")
    return (
        Figure("W6.kb", f"{runs} parked on an event: memory of one in its worker", "kB", None, (at_most(PARKED_MAX_KB, "kB"),)),
        Figure("W6.both_kb", "the same where the worker's process starts them too", "kB", None, (), PeerField("W6", "kb_per_wf", size)),
        Figure("W6.park", f"{runs}: start and park all", "s", None, (), PeerField("W6", "park_s", size)),
        Figure("W6.send", f"{runs}: send each its event", "s", None, (), PeerField("W6", "send_s", size)),
        Figure("W6.wake", f"{runs}: send and finish all", "s", None, (wake,), PeerField("W6", "wake_all_s", size)),
    )


def _sleeping(plan: Plan) -> tuple[Figure, ...]:
    runs = f"{plan.sleeping_runs:,} sleeping runs"
    return (
        Figure("sleeping.mb", f"{runs}: memory of their worker", "MB", None, (at_most(SLEEPING_MAX_MB, "MB"),)),
        Figure("sleeping.peak_mb", f"{runs}: its highest", "MB"),
        Figure("sleeping.park", f"{runs}: start and park all", "s"),
    )


W6 = Benchmark("W6", _w6, events)
SLEEPING = Benchmark("sleeping", _sleeping, sleepers)
