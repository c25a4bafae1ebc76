"""What a worker that is lost as if killed leaves in the process that tests share with it: nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import romulus
from tests.worker.rig import eventually, world

OPEN: list[str] = []  # what the resource and the bodies have under way


@romulus.resource
async def connection() -> AsyncIterator[str]:
    OPEN.append("resource")
    yield "connected"
    assert OPEN == ["resource"], "closed under the bodies that use it"
    OPEN.clear()


@romulus.step
async def long_step() -> str:
    OPEN.append(connection.get())
    try:
        await asyncio.sleep(3600)
    finally:
        OPEN.remove("connected")
    return "never"


@romulus.operation(timeout=3600)
async def long_send(op: romulus.Operation) -> str:
    OPEN.append(op.id)
    try:
        await asyncio.sleep(3600)
    finally:
        OPEN.remove(op.id)
    return "never"


@romulus.workflow
async def both() -> None:
    await asyncio.gather(long_step(), long_send())


async def test_a_worker_lost_as_if_killed_leaves_no_task_and_no_resource_behind(tmp_path: Path) -> None:
    async with world(tmp_path, both, resources=[connection]) as here:
        before = asyncio.all_tasks()
        worker = await here.worker()
        await here.client.start(both.options(id="b"))
        await eventually(lambda: len(OPEN) == 3)
        await here.kill(worker)
        await eventually(lambda: OPEN == [])
        left = {task for task in asyncio.all_tasks() - before if not task.done()}
        assert {task.get_name() for task in left} == set()
        assert here.rows("SELECT state FROM operations") == [("armed",)]
