"""The engine as the benchmarks use it: an App, its worker and a client on one loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import romulus
from romulus.app.loops import loop_factory, rare_collection

from .plan import Plan
from .workflows import WORKFLOWS, in_a_row

T = TypeVar("T")
WARM_UPS = 3


def run(plan: Plan, main: Coroutine[Any, Any, T]) -> T:
    """Run *main* on the event loop that the plan names, otherwise as `app.run` and `romulus worker` do."""
    with rare_collection(), asyncio.Runner(loop_factory=loop_factory() if plan.loop == "auto" else None) as runner:
        return runner.run(main)


@asynccontextmanager
async def working(url: str, concurrency: int) -> AsyncGenerator[romulus.AsyncClient, None]:
    """Work on the store's runs here, warmed up, while entered."""
    app = romulus.App(url, workflows=WORKFLOWS)
    async with app.worker(concurrency=concurrency), app.client() as client:
        for _ in range(WARM_UPS):
            await one_run(client, 1)
        yield client


async def one_run(client: romulus.AsyncClient, steps: int) -> float:
    """Return the seconds from the start of a run to its result."""
    return await batch(client, 1, steps)


async def batch(client: romulus.AsyncClient, runs: int, steps: int) -> float:
    """Return the seconds from the first start to the last result of *runs* runs at once."""
    started = time.perf_counter()
    handles = await asyncio.gather(*(client.start(in_a_row, steps) for _ in range(runs)))
    await asyncio.gather(*(handle.result() for handle in handles))
    return time.perf_counter() - started


async def start_many(client: romulus.AsyncClient, workflow: Any, runs: int, at_once: int) -> list[romulus.AsyncHandle[Any]]:
    """Start *runs* runs, *at_once* of them at a time."""
    handles: list[romulus.AsyncHandle[Any]] = []
    while len(handles) < runs:
        size = min(at_once, runs - len(handles))
        handles += await asyncio.gather(*(client.start(workflow) for _ in range(size)))
    return handles


async def each_at_once(calls: Sequence[Callable[[], Coroutine[Any, Any, object]]], at_once: int) -> None:
    """Make every call, *at_once* of them at a time."""
    for first in range(0, len(calls), at_once):
        await asyncio.gather(*(call() for call in calls[first : first + at_once]))
