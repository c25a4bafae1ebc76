"""External operations: what recording the intent costs, and unknown ones settled by lookup."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import romulus

from .engine import run, working
from .figure import Benchmark, Figure, Samples, at_least, at_most
from .measures import median
from .plan import Bench, Plan
from .workflows import in_a_row, lost_writes, writes_in_a_row

ROW_MIN = 0.7  # of the steps a second of the same run
SETTLED_MAX_S = 60
RUN = 100  # operations of one run


def writes(bench: Bench) -> Samples:
    """W4 with operations of an instant, idempotent provider, beside W4 with steps in turn with it."""
    return run(bench.plan, _writes(bench))


async def _writes(bench: Bench) -> Samples:
    plan = bench.plan
    steps: list[float] = []
    operations: list[float] = []
    async with working(bench.url(), plan.concurrency) as client:
        for _ in range(plan.batches):
            steps.append(await _took(client, in_a_row, plan.steps_in_a_row))
            operations.append(await _took(client, writes_in_a_row, plan.steps_in_a_row))
    return {"writes": plan.steps_in_a_row / median(operations), "writes.ratio": median(steps) / median(operations)}


def unknown(bench: Bench) -> Samples:
    """Many operations whose answers are lost, until each is settled by a lookup of 50 ms."""
    return run(bench.plan, _unknown(bench))


async def _unknown(bench: Bench) -> Samples:
    async with working(bench.url(), bench.plan.concurrency) as client:
        started = time.perf_counter()
        handles = [await client.start(lost_writes, RUN) for _ in range(max(bench.plan.unknown // RUN, 1))]
        await asyncio.gather(*(handle.result() for handle in handles))
        return {"unknown": time.perf_counter() - started}


async def _took(client: romulus.AsyncClient, workflow: romulus.Workflow[[int], Any], count: int) -> float:
    started = time.perf_counter()
    await (await client.start(workflow, count)).result()
    return time.perf_counter() - started


def _row(plan: Plan) -> tuple[Figure, ...]:
    what = f"one run, {plan.steps_in_a_row:,} operations in a row"
    return (
        Figure("writes", what, "operations/s", "L2.1"),
        Figure("writes.ratio", f"{what}: as a share of as many steps", "", targets=(at_least(ROW_MIN),)),
    )


def _settled(plan: Plan) -> tuple[Figure, ...]:
    what = f"{plan.unknown:,} operations sent, unknown and settled by lookup"
    return (Figure("unknown", what, "s", targets=(at_most(SETTLED_MAX_S, "s"),)),)


WRITES = Benchmark("writes", _row, writes)
UNKNOWN = Benchmark("unknown", _settled, unknown)
