"""The workflows and steps that are measured; as little code as each shape needs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeAlias

import romulus

Small: TypeAlias = dict[str, int | bool | str]  # the result of a trivial step, alike in every peer's driver

DAY_S = 86_400
LOOKUP_S = 0.05
EVENT = "go"
MARK = "STEP"  # what a process prints when the step that is waited for executes
stamps: list[float] = []  # perf_counter at the beginning of each stamped step


class Moments:
    """When workflow code came by. It may not read a clock: here one looks on from outside, and nothing is decided by it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.seen: list[float] = []

    def __call__(self) -> None:
        """Note that the code is here."""
        self.seen.append(self._clock())


goes_on = Moments(time.perf_counter)  # at the code after the wait of each `resumed`


@romulus.step
async def trivial(i: int) -> Small:
    return {"i": i, "ok": True, "name": "step"}


@romulus.step
async def clock() -> float:
    return time.perf_counter()


@romulus.step
async def stamped(i: int) -> Small:
    stamps.append(time.perf_counter())
    return {"i": i, "ok": True, "name": "step"}


@romulus.step
async def mark() -> None:
    """Say that it executes, and never end: its process is killed."""
    print(MARK, time.monotonic(), flush=True)
    await asyncio.sleep(DAY_S)


@romulus.workflow
async def in_a_row(steps: int) -> Small:
    last: Small = {}
    for i in range(steps):
        last = await trivial(i)
    return last


@romulus.operation(idempotent=True)
async def write(op: romulus.Operation, i: int) -> Small:
    return {"i": i, "ok": True, "name": "step"}


@romulus.operation(timeout=5)
async def lost(op: romulus.Operation, i: int) -> int:
    """Never learn what became of it."""
    raise TimeoutError


@lost.lookup
async def find_lost(op: romulus.Operation, i: int) -> romulus.LookupResult[int]:
    await asyncio.sleep(LOOKUP_S)
    return romulus.Applied(i)


@romulus.workflow
async def writes_in_a_row(writes: int) -> Small:
    last: Small = {}
    for i in range(writes):
        last = await write(i)
    return last


@romulus.workflow
async def lost_writes(writes: int) -> int:
    return len(await asyncio.gather(*(lost(i) for i in range(writes))))


@romulus.workflow
async def stamped_row(steps: int) -> int:
    for i in range(steps):
        await stamped(i)
    return steps


@romulus.workflow
async def fan_out(steps: int) -> int:
    return len(await asyncio.gather(*(trivial(i) for i in range(steps))))


@romulus.workflow
async def family(children: int) -> int:
    return len(await asyncio.gather(*(in_a_row(1) for _ in range(children))))


@romulus.workflow
async def marked(steps: int) -> int:
    for i in range(steps):
        await trivial(i)
    await mark()
    return steps


@romulus.workflow
async def parked() -> Small:
    event = await romulus.wait_for_event(EVENT, type=Small)
    return event.payload


@romulus.workflow
async def resumed() -> float:
    await romulus.wait_for_event(EVENT, type=Small)
    goes_on()
    return await clock()


@romulus.workflow
async def sleeping() -> None:
    await asyncio.sleep(DAY_S)


WORKFLOWS = (in_a_row, stamped_row, fan_out, family, marked, parked, resumed, sleeping, writes_in_a_row, lost_writes)
