"""What a worker keeps in memory: a bounded number of runs, and nothing of those that left it."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import romulus
from romulus.core.machine import Change
from romulus.core.transition import Transition, Verdict
from romulus.host import RealHost, heap
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


HELD: list[asyncio.Event] = []


@romulus.step
async def wait_for_the_test() -> None:
    await HELD[0].wait()


@romulus.workflow
async def held() -> None:
    await wait_for_the_test()


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


async def test_a_run_claimed_again_before_its_parking_was_answered_leaves_nothing_in_memory(
    tmp_path: Path, uncollected: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver has it when the answer comes: the first is dropped, and not kept as parked."""
    async with world(tmp_path, a_step_then_an_event) as here:
        worker = await here.worker()
        answer, apply = asyncio.Event(), worker.store.apply

        async def late(transitions: Sequence[Transition]) -> Sequence[Verdict]:
            verdicts = await apply(transitions)
            if any(t.change is Change.PARK for t in transitions):
                await answer.wait()
            return verdicts

        monkeypatch.setattr(worker.store, "apply", late)
        before = drivers()
        handle = await here.client.start(a_step_then_an_event)
        await here.until(handle.id, "waiting")
        first = [id(driver) for driver in worker.memory.active.values()]
        await handle.send_event("go", "on")
        await eventually(lambda: [id(driver) for driver in worker.memory.active.values()] not in ([], first))
        answer.set()
        assert await handle.result() == "on"
        await eventually(lambda: (len(worker.memory.active), worker.memory.cached) == (0, 0))
        ATTEMPTS.clear()
        await eventually(lambda: drivers() <= before + LAST)


@pytest.fixture
def given_back(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads in which freed memory was given back to the system."""
    threads: list[threading.Thread] = []
    monkeypatch.setattr(RealHost, "give_memory_back", lambda host: threads.append(threading.current_thread()))
    return threads


async def test_memory_is_given_back_beside_the_loop_each_time_so_many_runs_have_left(
    tmp_path: Path, given_back: list[threading.Thread]
) -> None:
    async with world(tmp_path, a_step_then_an_event) as here:
        worker = await here.worker(memory_back_after=5)
        await worker.maintenance.stop()

        async def park(runs: int) -> None:
            for handle in [await here.client.start(a_step_then_an_event) for _ in range(runs)]:
                await here.until(handle.id, "waiting")
            await eventually(lambda: not worker.memory.active)
            await worker.maintenance.give_memory_back()

        await park(4)
        assert given_back == []
        await park(3)
        assert len(given_back) == 1
        await park(4)
        assert len(given_back) == 1
        await park(1)
        assert len(given_back) == 2
        assert threading.main_thread() not in given_back


async def test_a_worker_gives_memory_back_by_itself(tmp_path: Path, given_back: list[threading.Thread]) -> None:
    async with world(tmp_path, a_step_then_an_event) as here:
        await here.worker(memory_back_after=1)
        await here.until((await here.client.start(a_step_then_an_event)).id, "waiting")
        await eventually(lambda: len(given_back) == 1)


async def test_memory_that_runs_in_progress_need_at_once_is_kept(tmp_path: Path, given_back: list[threading.Thread]) -> None:
    async with world(tmp_path, a_step_then_an_event, held) as here:
        worker = await here.worker(memory_back_after=1, memory_back_busy_max=0)
        await worker.maintenance.stop()
        HELD[:] = [asyncio.Event()]
        busy = await here.client.start(held)
        await here.until((await here.client.start(a_step_then_an_event)).id, "waiting")
        await eventually(lambda: len(worker.memory.active) == 1)
        await worker.maintenance.give_memory_back()
        assert given_back == []
        HELD[0].set()
        await busy.result()
        await eventually(lambda: not worker.memory.active)
        await worker.maintenance.give_memory_back()
        assert len(given_back) == 1


@pytest.mark.skipif(heap._malloc_trim() is None, reason="only glibc's heap can be told to give memory back")
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_what_was_freed_below_something_that_is_kept_goes_back_to_the_system() -> None:
    """In an interpreter of its own, whose heap has no room that others left."""
    grown, left = map(int, subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True).stdout.split())
    assert grown > 30_000
    assert left < grown / 2


FREED = """
from pathlib import Path
from romulus.host import heap

def resident_kb():
    (line,) = [line for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1])

before = resident_kb()
blocks = [bytes(range(256)) * 8 for _ in range(20_000)]  # too small for pages of their own, too large for the interpreter's
kept = blocks[::100]
grown = resident_kb() - before
del blocks
heap.trim()
print(grown, resident_kb() - before)
"""


async def test_a_heartbeat_of_an_attempt_that_is_over_is_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, a_step_then_an_event) as here:
        await here.worker(cache_max=0)
        ATTEMPTS.clear()
        handle = await here.client.start(a_step_then_an_event)
        await here.until(handle.id, "waiting")
        ATTEMPTS[0].heartbeat("late")
        await handle.send_event("go", "on")
        assert await handle.result() == "on"
