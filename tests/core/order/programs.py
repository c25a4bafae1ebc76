"""Programs whose order asyncio leaves to chance, run once each; prints a trace of every one as JSON.

Run by `test_order.py` on several Pythons, hash seeds and garbage collection thresholds.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from asyncio import as_completed  # before Romulus: it must be reached all the same
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import zip_longest
from random import Random
from typing import Any

from romulus.core.commands import Command
from romulus.core.seeds import Seeds
from tests.core.rig import Rig, replay, step, wait

PROGRAMS: list[Callable[[], Any]] = []


def program(fn: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS.append(fn)
    return fn


@step
def work(n: int) -> int:
    return n


@step
def fail(n: int) -> int:
    raise ValueError(f"no {n}")


async def worked(n: int, log: list[int]) -> int:
    """Two steps in a row; what was awaited is logged on the way out, cancelled or not."""
    try:
        await work(n)
        return await work(100 + n)
    finally:
        log.append(n)
        _garbage()


def _garbage() -> None:
    """Cycles, so that collections fall into the activations."""
    for _ in range(20):
        cycle: list[Any] = []
        cycle.append(cycle)


@program
async def gathers() -> list[int]:
    log: list[int] = []
    found = await asyncio.gather(*(worked(n, log) for n in range(12)), asyncio.wait_for(work(50), 30))
    return found + log


@program
async def aborts_a_task_group() -> list[int]:
    log: list[int] = []
    try:
        async with asyncio.TaskGroup() as group:
            for n in range(12):
                group.create_task(worked(n, log))
            group.create_task(fail(1))
    except* ValueError as errors:
        log.append(len(errors.exceptions))
    return log


@program
async def waits_for_the_first() -> list[int]:
    log: list[int] = []
    pending = {asyncio.create_task(worked(n, log)) for n in range(10)}
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED, timeout=5)
        log.extend(task.result() for task in done)
        for task in list(pending)[:2]:
            task.cancel()
        log.extend(len(pending) for _ in range(1))
        pending = {task for task in pending if not task.cancelling()}
    return log


@program
async def takes_as_completed() -> list[int]:
    log: list[int] = []
    tasks = {asyncio.ensure_future(work(n)) for n in range(8)}
    for each in as_completed(tasks):
        log.append(await each)
    for each in asyncio.as_completed([work(n) for n in range(3)], timeout=60):
        log.append(await each)
    try:
        for each in as_completed([asyncio.sleep(3, 1), asyncio.sleep(9, 2)], timeout=5):
            log.append(await each)
    except TimeoutError:
        log.append(-1)
    return log


@program
async def nests_timeouts() -> list[str]:
    log: list[str] = []
    for inner, outer in ((1, 2), (2, 1), (1, 1)):
        try:
            async with asyncio.timeout(outer):
                try:
                    async with asyncio.timeout(inner):
                        await asyncio.gather(asyncio.sleep(5), work(1), asyncio.sleep(7))
                except TimeoutError:
                    log.append("inner")
                await asyncio.sleep(5)
        except TimeoutError:
            log.append("outer")
    return log


@program
async def waits_with_a_limit() -> list[str]:
    async def late() -> str:
        try:
            await asyncio.sleep(10)
        finally:
            await work(9)
        return "late"

    found = await asyncio.gather(
        *(asyncio.wait_for(late(), n) for n in (3, 1, 20, 2)), asyncio.wait_for(asyncio.shield(late()), 4), return_exceptions=True
    )
    return [type(each).__name__ if isinstance(each, BaseException) else str(each) for each in found]


@program
async def shares_primitives() -> list[int]:
    log: list[int] = []
    queue: asyncio.Queue[int] = asyncio.Queue(2)
    lock, semaphore, event, condition = asyncio.Lock(), asyncio.Semaphore(3), asyncio.Event(), asyncio.Condition()

    async def produce(n: int) -> None:
        async with semaphore:
            await queue.put(await work(n))

    async def consume() -> None:
        await event.wait()
        for _ in range(3):
            async with lock:
                log.append(await queue.get())
            async with condition:
                condition.notify_all()

    async with asyncio.TaskGroup() as group:
        for n in range(9):
            group.create_task(produce(n))
        for _ in range(3):
            group.create_task(consume())
        await work(77)
        event.set()
        async with condition:
            await condition.wait_for(lambda: len(log) >= 5)
            log.append(-1)
    return log


@program
async def shields() -> list[str]:
    inner = asyncio.ensure_future(worked(1, []))
    outer = asyncio.shield(inner)
    await work(5)
    outer.cancel()
    return [str(each) for each in await asyncio.gather(inner, outer, return_exceptions=True)]


@program
async def generates() -> list[int]:
    log: list[int] = []

    async def numbers(start: int) -> AsyncIterator[int]:
        try:
            for n in range(start, start + 5):
                yield await work(n)
        finally:
            log.append(-start)
            await work(start)  # only where the generator is closed, never where it is abandoned

    async def some(start: int) -> None:
        async for n in numbers(start):
            log.append(n)
            if n == start + 2:
                break
        _garbage()
        await work(start)

    await asyncio.gather(*(some(10 * n) for n in range(1, 5)))
    async for n in numbers(100):
        log.append(n)
    return log


@program
async def groups_errors() -> list[str]:
    log: list[str] = []

    async def nested(n: int) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail(n))
            group.create_task(fail(n + 1))
            group.create_task(asyncio.sleep(5))

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(nested(10))
            group.create_task(nested(20))
    except* ValueError as errors:
        log.append(repr(errors))
    return log


@program
async def leaves_tasks_behind() -> str:
    async def stubborn(n: int) -> None:
        try:
            await work(n)
            await asyncio.sleep(50)
        finally:
            await work(1000 + n)

    tasks = [asyncio.create_task(stubborn(n)) for n in range(6)]
    await work(0)
    return str(len(tasks))


@program
async def collects_garbage() -> list[int]:
    """Coroutines, generators and tasks dropped in cycles: their `finally` asks for commands, which must not be chance."""
    log: list[int] = []

    async def asks_at_its_end(n: int) -> None:
        try:
            await loop.create_future()
        finally:
            await work(500 + n)

    loop = asyncio.get_running_loop()

    def yields_once(n: int) -> Any:
        try:
            yield n
        finally:
            loop.call_later(n + 1, log.append, n)

    for n in range(30):
        cycle: list[Any] = [asks_at_its_end(n), yields_once(n)]
        cycle[0].send(None)
        next(cycle[1])
        cycle.append(cycle)
        asyncio.create_task(asks_at_its_end(n + 100))  # noqa: RUF006 - nobody holds it but the loop
        del cycle
        _garbage()
        await work(n)
    return log


@program
async def waits_for_events() -> list[str]:
    async def one(name: str, limit: float) -> str:
        try:
            return str(await wait(name, timeout=limit))
        except TimeoutError as error:
            return type(error).__name__

    return list(await asyncio.gather(one("a", 5), one("b", 3), one("c", 9)))


@program
def runs_sync_code() -> list[int]:
    found = [work(n) for n in range(4)]
    try:
        fail(3)
    except ValueError:
        found.append(-1)
    return found


@program
async def looks_at_sets() -> list[str]:
    loop = asyncio.get_running_loop()
    futures = {loop.create_future() for _ in range(9)}
    tasks = {asyncio.create_task(work(n)): n for n in range(9)}
    outer = {asyncio.gather(task) for task in tasks}
    numbered = {id(future): n for n, future in enumerate(sorted(futures, key=hash))}
    await asyncio.wait(outer)
    parked = [asyncio.create_task(asyncio.Event().wait()) for _ in range(40)]
    await asyncio.sleep(1)
    parked[3].cancel()
    return [
        *(str(numbered[id(future)]) for future in futures),
        *(task.get_name() for task in set(tasks)),
        *(str(each.result()) for each in outer),
        *(task.get_name() for task in asyncio.all_tasks()),
    ]


def chance(seed: int) -> Callable[[Sequence[Command]], Command]:
    return Random(seed).choice


def traces() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for fn in PROGRAMS:
        for seed in range(3):
            rig = Rig(fn, choose=chance(seed))
            rig.events = {"a": 1}
            first = rig.run().trace
            again = replay(rig, fn).trace
            if again != first:
                differing = "\n".join(f"{a} | {b}" for a, b in zip_longest(first, again) if a != b)
                raise AssertionError(f"{fn.__name__}: the replay differs\n{differing}")
            rig.instance.close()
            found[f"{fn.__name__} {seed}"] = first
    return found


if __name__ == "__main__":
    gc.set_threshold(*(int(number) for number in sys.argv[1].split(",")))
    neighbours = [Rig(gathers, seeds=Seeds.first(f"{n + 1:032x}")).start() for n in range(int(sys.argv[2]))]  # in asyncio's set of tasks
    print(json.dumps(traces()))
