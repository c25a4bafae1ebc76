"""Workflows that a second interpreter imports: some deterministic, some not, each in one way."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import Any

import romulus

NAMES = [f"name-{n}" for n in range(40)]
PASSES: list[str] = []  # what a workflow keeps between passes
GATES: dict[str, asyncio.Event] = {}  # of this test: `slow` steps end once theirs is set


@romulus.step
async def send(name: str) -> str:
    return name


@romulus.step
async def other(name: str) -> str:
    return name


@romulus.step
async def slow(name: str) -> str:
    await GATES["slow"].wait()
    return name


@romulus.workflow
async def set_order() -> int:
    await asyncio.gather(*(slow(name) for name in set(NAMES)))  # one transition: 40 names that agree by chance never do
    return len(NAMES)


@romulus.workflow
async def hash_branch() -> None:
    await send("first")
    await asyncio.gather(*(slow(name) if hash(name) % 2 else other(name) for name in NAMES))
    await slow("last")


@romulus.workflow
async def remembers() -> None:
    await send("first")
    PASSES.append("one more")
    await slow(f"pass {len(PASSES)}")


async def when(name: str) -> None:
    await romulus.wait_for_event(name)
    await slow(name)


@romulus.workflow
async def parks_unsorted() -> None:
    await asyncio.gather(*(when(name) for name in set(NAMES)))


@romulus.workflow
async def patient(n: int) -> int:
    await slow("first")
    await send("second")
    return n


@romulus.workflow
async def plain(n: int) -> int:
    """Use what asyncio offers, and patches, draws and events, in the same order everywhere."""
    for name in sorted(set(NAMES[:5])):
        await send(name)
    await asyncio.gather(*(send(f"{romulus.rng().random()}") for _ in range(n)))
    try:
        async with asyncio.timeout(0.05):
            await asyncio.gather(asyncio.sleep(3600), send("early"))
    except TimeoutError:
        await other("timed out")
    if romulus.patched("since-tuesday"):
        await other(str(romulus.uuid4()))
    try:
        await romulus.wait_for_event("never", timeout=timedelta(milliseconds=20))
    except TimeoutError:
        await other("no event")
    event = await romulus.wait_for_event("go", type=str)
    async with asyncio.TaskGroup() as group:
        for name in NAMES[:n]:
            group.create_task(send(name + event.payload))
    return n


@romulus.workflow
async def long(n: int) -> int:
    for k in range(n):
        await send(str(k))
    return n


@romulus.workflow
async def naps(n: int) -> int:
    for _ in range(n):
        await asyncio.sleep(0.001)
    return n


@romulus.workflow
async def returns() -> int:
    return len(PASSES)


def is_second() -> bool:
    return "pytest" not in sys.modules


@romulus.workflow
async def spins_there() -> str:
    while is_second():
        pass
    return await send("here")


@romulus.workflow
async def spins() -> None:
    while True:
        pass


@romulus.operation(timeout=5)
async def write(op: romulus.Operation, name: str) -> str:
    if name == "lost":
        raise TimeoutError
    return f"{name} written"


@write.lookup
async def find(op: romulus.Operation, name: str) -> romulus.LookupResult[str]:
    return romulus.Applied(f"{name} found")


@romulus.workflow
async def writes() -> list[str]:
    return [await write("plain"), await write("lost"), await send("after")]


WORKFLOWS: list[Any] = [set_order, hash_branch, remembers, parks_unsorted, patient, plain, long, naps, returns, spins_there, spins, writes]
app = romulus.App(workflows=WORKFLOWS)
