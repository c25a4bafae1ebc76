"""The claimer's passes: what was claimed is known before it is taken up, and taken up before the next look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import romulus
from romulus.store.contract import Claims
from tests.worker.rig import World, eventually, world


@romulus.workflow
async def waits() -> str:
    return (await romulus.wait_for_event("go", type=str)).payload


async def finish(here: World, handle: Any) -> None:
    await handle.send_event("go", "on")
    assert await handle.result() == "on"


async def test_wakes_of_a_run_that_was_just_claimed_are_taken_in_the_same_pass(tmp_path: Path) -> None:
    async with world(tmp_path, waits) as here:
        worker = await here.worker()
        claim, pulse = worker.store.claim, worker.store.pulse
        active: list[int] = []

        async def told(*given: Any) -> Claims:
            claims = await claim(*given)
            claims.wakes = bool(claims.records)
            return claims

        async def pulsed(owner: str) -> Any:
            active.append(len(worker.memory.active))
            return await pulse(owner)

        worker.store.claim, worker.store.pulse = told, pulsed  # type: ignore[method-assign, assignment]
        handle = await here.client.start(waits)
        await eventually(lambda: bool(active))
        assert active[0] == 0
        await finish(here, handle)


async def test_what_was_claimed_is_taken_up_before_the_next_look(tmp_path: Path) -> None:
    async with world(tmp_path, waits) as here:
        worker = await here.worker()
        claim = worker.store.claim
        entered: list[int] = []
        taken_up: list[int] = []
        enter = worker.memory.enter

        def enters(driver: Any) -> None:
            entered.append(driver.run.key)
            enter(driver)

        async def looked(*given: Any) -> Claims:
            taken_up.append(len(entered))
            claims = await claim(*given)
            if claims.records and not entered:
                taken_up.clear()
                worker.claimer.poke()
            return claims

        worker.memory.enter, worker.store.claim = enters, looked  # type: ignore[method-assign, assignment]
        handle = await here.client.start(waits)
        await eventually(lambda: bool(entered and taken_up))
        assert taken_up[0] == 1
        await finish(here, handle)
