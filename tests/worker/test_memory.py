"""What a worker keeps in memory: a bounded number of runs, and nothing of those that left it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

import romulus
from romulus.worker.driver import RunDriver
from tests.worker.rig import eventually, world

ATTEMPTS: list[romulus.Attempt] = []
LAST = 1  # the watchdog has the one whose code ran last


@romulus.step
async def note() -> None:
    ATTEMPTS.append(romulus.current_attempt())


@romulus.workflow
async def a_step_then_an_event() -> str:
    await note()
    return (await romulus.wait_for_event("go", type=str)).payload


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No cycle is ever collected; what earlier tests left is gone."""
    ATTEMPTS.clear()
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def drivers() -> int:
    return sum(isinstance(found, RunDriver) for found in gc.get_objects())


async def test_runs_that_leave_memory_wait_for_no_collector(tmp_path: Path, uncollected: None) -> None:
    before = drivers()
    async with world(tmp_path, a_step_then_an_event) as here:
        worker = await here.worker(cache_max=0)
        handles = [await here.client.start(a_step_then_an_event) for _ in range(10)]
        for handle in handles:
            await here.until(handle.id, "waiting")
        await eventually(lambda: not worker.memory.active and drivers() <= before + LAST)
        for handle in handles:
            await handle.send_event("go", "on")
        assert [await handle.result() for handle in handles] == ["on"] * 10
        await eventually(lambda: not worker.memory.active and drivers() <= before + LAST)


async def test_parked_runs_stay_in_memory_up_to_a_bound(tmp_path: Path) -> None:
    async with world(tmp_path, a_step_then_an_event) as here:
        worker = await here.worker(cache_max=3)
        handles = [await here.client.start(a_step_then_an_event) for _ in range(5)]
        for handle in handles:
            await here.until(handle.id, "waiting")
        await eventually(lambda: (len(worker.memory.active), worker.memory.cached) == (0, 3))
        for handle in handles:
            await handle.send_event("go", "on")
        assert [await handle.result() for handle in handles] == ["on"] * 5


async def test_a_heartbeat_of_an_attempt_that_is_over_is_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, a_step_then_an_event) as here:
        await here.worker(cache_max=0)
        ATTEMPTS.clear()
        handle = await here.client.start(a_step_then_an_event)
        await here.until(handle.id, "waiting")
        ATTEMPTS[0].heartbeat("late")
        await handle.send_event("go", "on")
        assert await handle.result() == "on"
