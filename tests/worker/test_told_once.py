"""What a run is told twice, too late, or more of than it can read at once: each is taken once, and none keeps it waiting."""

from __future__ import annotations

import asyncio
from pathlib import Path

import romulus
from romulus.core.machine import RunStatus
from tests.worker.gates import CALLS, GATE, fresh, gated, noted
from tests.worker.rig import eventually, world

clear = fresh


@romulus.workflow
async def cleans_up() -> None:
    try:
        await romulus.wait_for_event("never")
    finally:
        await gated("clean-up")
        await noted("cleaned")


@romulus.workflow
async def item(name: str) -> str:
    return f"item {name}"


@romulus.workflow
async def other(name: str) -> str:
    return f"other {name}"


@romulus.workflow
async def lets_go_of_a_taken_id() -> str:
    child = asyncio.ensure_future(item.options(id="taken")("one"))
    await noted("meanwhile")
    child.cancel()
    await gated("goes on")
    return "done"


@romulus.workflow
async def another_under_the_same_id(first: bool) -> str:
    if first:
        await item.options(id="child")("one")
        romulus.continue_as_new(another_under_the_same_id, False)
    try:
        return await other.options(id="child")("one")
    except romulus.RunConflict as error:
        return str(error)


@romulus.workflow
async def late() -> str:
    await romulus.wait_for_event("go", correlation_id="late")
    return "late"


@romulus.workflow
async def waits_for_a_child_beside_a_step() -> str:
    return " ".join(await asyncio.gather(late(), gated("step")))


STRAY = "INSERT INTO inbox (run, about, seq, failed, body, info) SELECT key, 'asked', 99, false, ?, '' FROM runs WHERE id = 'r'"


async def test_a_second_cancel_does_not_interrupt_a_clean_up_under_way(tmp_path: Path) -> None:
    async with world(tmp_path, cleans_up) as w:
        worker = await w.worker()
        handle = await w.client.start(cleans_up)
        await w.until(handle.id, RunStatus.WAITING)
        await handle.cancel("enough")
        await eventually(lambda: CALLS == ["clean-up"])
        await handle.cancel("really")
        await eventually(lambda: [driver.cancel_seen for driver in worker.memory.active.values()] == [2])
        GATE.set()

        await w.until(handle.id, RunStatus.CANCELLED, RunStatus.FAILED, RunStatus.HELD)
        assert [(e.kind, e.name) for e in await handle.history()] == [("cancel", ""), ("step", "gated"), ("step", "noted")]


async def test_a_conflict_about_a_child_that_was_given_up_is_left_at_that(tmp_path: Path) -> None:
    async with world(tmp_path, lets_go_of_a_taken_id, item) as w:
        await w.worker()
        await (await w.client.start(item.options(id="taken"), "another")).result(timeout=20)
        handle = await w.client.start(lets_go_of_a_taken_id)
        await eventually(lambda: "goes on" in CALLS)
        await eventually(lambda: w.rows("SELECT count(*) FROM inbox") == [(0,)])
        GATE.set()

        await w.until(handle.id, RunStatus.SUCCEEDED, RunStatus.HELD)
        assert await handle.result(timeout=20) == "done"


async def test_an_earlier_generations_child_of_another_workflow_is_a_conflict(tmp_path: Path) -> None:
    async with world(tmp_path, another_under_the_same_id, item, other) as w:
        await w.worker()
        result = await (await w.client.start(another_under_the_same_id, True)).result(timeout=20)

        assert "'child' already exists as workflow 'item'" in result


async def test_a_message_behind_more_than_are_read_at_once_is_delivered_while_a_step_runs(tmp_path: Path) -> None:
    async with world(tmp_path, waits_for_a_child_beside_a_step, late) as w:
        await w.worker()
        handle = await w.client.start(waits_for_a_child_beside_a_step.options(id="r"))
        await eventually(lambda: CALLS == ["step"] and w.rows("SELECT 1 FROM runs WHERE status = 'waiting'") != [])
        with w.database() as database:
            for _ in range(500):  # of what the code gave up long ago
                database.execute(STRAY, (b"",))
        await w.client.send_event("go", correlation_id="late")
        await eventually(lambda: w.rows("SELECT 1 FROM journal WHERE kind = 'child'") != [])
        GATE.set()

        assert await handle.result(timeout=20) == "late step"
