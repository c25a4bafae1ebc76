"""W3 and W7: how long one thing takes with nothing else going on: a run of one step, an event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import romulus

from .engine import one_run, run, working
from .figure import Benchmark, Figure, PeerField, Samples, Target
from .measures import percentile
from .observing import Observer
from .plan import REST_S, Bench, Plan
from .workflows import EVENT, goes_on, resumed


def start_to_result(bench: Bench) -> Samples:
    """W3: one run of one step at a time."""
    return _percentiles("W3", run(bench.plan, _one_at_a_time(bench)))


async def _one_at_a_time(bench: Bench) -> list[float]:
    async with working(bench.url(), bench.plan.concurrency) as client:
        return [await one_run(client, 1) for _ in range(bench.plan.single_runs)]


def event_to_resumed(bench: Bench) -> Samples:
    """W7: from sending an event to the parked run's code after its wait, as the peers' drivers have it; and to its next step executing."""
    resumed_after, step_after = zip(*run(bench.plan, _events(bench)), strict=True)
    return _percentiles("W7", resumed_after) | _percentiles("W7.step", step_after)


async def _events(bench: Bench) -> list[tuple[float, float]]:
    async with working(bench.url(), bench.plan.concurrency) as client:
        observer = Observer(bench.url())
        took = [await _event(client, observer) for _ in range(bench.plan.events)]
        observer.close()
        return took


async def _event(client: romulus.AsyncClient, observer: Observer) -> tuple[float, float]:
    handle = await client.start(resumed)
    await observer.until("waiting", 1)
    await asyncio.sleep(REST_S)  # whatever parking has left to do is not the event's
    goes_on.seen.clear()
    sent = time.perf_counter()
    await handle.send_event(EVENT, {"v": 1})
    step_at = await handle.result()
    return goes_on.seen[0] - sent, step_at - sent


def _percentiles(name: str, took: Sequence[float]) -> Samples:
    return {f"{name}.p50": percentile(took, 50) * 1e3, f"{name}.p99": percentile(took, 99) * 1e3}


def _w3(plan: Plan) -> tuple[Figure, ...]:
    target = Target("≤ 4 single commits + 1 ms", lambda medians: 4 * medians["L2.commit"] + 1, least=False)
    return (
        Figure("W3.p50", "one run of one step at a time, start to result, p50", "ms", "L2.commit", (target,), PeerField("W3", "p50_ms")),
        Figure("W3.p99", "the same, p99", "ms", "L2.commit", (), PeerField("W3", "p99_ms")),
    )


def _w7(plan: Plan) -> tuple[Figure, ...]:
    targets = (
        Target("≤ 3 single commits + 1 ms", lambda medians: 3 * medians["L2.commit"] + 1, least=False),
        Target("≤ 3 rested ones + 1 ms", lambda medians: 3 * medians["L2.rested"] + 1, least=False),
    )
    step = "event sent → the run's next step executing, what the event led to committed, p50"
    return (
        Figure("W7.p50", "event sent → the parked run's code goes on, p50", "ms", "L2.rested", targets, PeerField("W7", "p50_ms")),
        Figure("W7.p99", "the same, p99", "ms", "L2.rested", (), PeerField("W7", "p99_ms")),
        Figure("W7.step.p50", step, "ms", "L2.rested"),
        Figure("W7.step.p99", "the same, p99", "ms", "L2.rested"),
    )


W3 = Benchmark("W3", _w3, start_to_result)
W7 = Benchmark("W7", _w7, event_to_resumed)
