"""Attributes set by workflows: part of the transition, found by listings, numbers exact."""

from __future__ import annotations

from pathlib import Path

import pytest

import romulus
from tests.worker.rig import world

LARGE = 2**53 + 1


@romulus.workflow
async def staged() -> None:
    romulus.set_attributes(stage="new", number=LARGE)
    await romulus.wait_for_event("go")
    romulus.set_attributes(stage="done", urgent=True)
    await romulus.wait_for_event("end")


async def test_attributes_are_found_by_listings_as_soon_as_the_run_has_parked(tmp_path: Path) -> None:
    async with world(tmp_path, staged) as here:
        await here.worker()
        handle = await here.client.start(staged.options(attributes={"tenant": "a", "stage": "none"}))
        await here.until(handle.id, "waiting")

        async def found(**attributes: str | int | bool) -> int:
            return len(await here.client.runs(attributes=attributes))

        assert (await handle.describe()).attributes == {"tenant": "a", "stage": "new", "number": LARGE}
        assert [await found(number=LARGE), await found(number=LARGE - 1), await found(stage="new", tenant="a")] == [1, 0, 1]
        await handle.send_event("go")
        await handle.send_event("end")
        await handle.result()
        assert [await found(stage="new"), await found(stage="done", urgent=True), await found(urgent=1)] == [0, 1, 0]


@romulus.workflow
async def counts_then_knows() -> None:
    romulus.set_attributes(paid=1)
    await romulus.wait_for_event("go")
    romulus.set_attributes(paid=True)
    await romulus.wait_for_event("end")


async def test_an_attribute_that_changes_its_type_alone_is_stored(tmp_path: Path) -> None:
    async with world(tmp_path, counts_then_knows) as here:
        await here.worker()
        handle = await here.client.start(counts_then_knows)
        await here.until(handle.id, "waiting")
        assert (await handle.describe()).attributes["paid"] is not True
        await handle.send_event("go")
        await handle.send_event("end")
        await handle.result(timeout=20)
        assert (await handle.describe()).attributes["paid"] is True


async def test_attributes_outlive_a_killed_worker_and_replays(tmp_path: Path) -> None:
    async with world(tmp_path, staged) as here:
        first = await here.worker()
        handle = await here.client.start(staged)
        await here.until(handle.id, "waiting")
        await here.kill(first)
        await here.worker(cache_max=0)
        await handle.send_event("go")
        await handle.send_event("end")
        await handle.result()

        assert (await handle.describe()).attributes == {"stage": "done", "number": LARGE, "urgent": True}


async def test_attributes_that_cannot_be_stored_are_refused_where_they_are_set(tmp_path: Path) -> None:
    @romulus.workflow
    async def refused() -> list[str]:
        said: list[str] = []
        for values in ({"weight": 1.5}, {"number": 2**63}, {"text": "x" * 1001}, {f"a{n}": n for n in range(65)}):
            try:
                romulus.set_attributes(**values)  # type: ignore[arg-type]
            except ValueError as error:
                said.append(str(error))
        return said

    async with world(tmp_path, refused) as here:
        await here.worker()
        handle = await here.client.start(refused)

        assert len(await handle.result()) == 4
        assert (await handle.describe()).attributes == {}


def test_attributes_are_for_workflow_code() -> None:
    with pytest.raises(romulus.NotInRun, match="give attributes when you start a run"):
        romulus.set_attributes(stage="new")
