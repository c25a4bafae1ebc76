"""IDs that code makes for its children of its own run's ID: they work wherever the code runs, and meet none that the engine makes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import romulus
from tests.worker.rig import world


@romulus.workflow
async def load(table: str) -> str:
    return romulus.current_run().id


@romulus.workflow
async def nightly(tables: list[str]) -> list[str]:
    async def one(table: str) -> str:
        return await load.options(id=f"{romulus.current_run().id}-{table}")(table)

    loaded = await asyncio.gather(*map(one, tables))
    last = await romulus.start(load.options(id=f"{romulus.current_run().id}-last"), "last")
    return [*loaded, await last]


@romulus.workflow
async def weekly() -> list[str]:
    return await nightly(["a", "b"])


@romulus.workflow
def monthly() -> list[str]:
    return [romulus.current_run().id, load.options(id=f"{romulus.current_run().id}.a").blocking("a")]


@romulus.workflow
async def yearly() -> list[str]:
    return await monthly.aio()


async def test_children_named_after_their_run_can_be_started_by_a_run_a_child_and_a_fork_alike(tmp_path: Path) -> None:
    async with world(tmp_path, nightly, load, weekly, monthly, yearly) as here:
        await here.worker()
        run = await here.client.start(nightly.options(id="n"), ["a", "b"])
        assert await run.result() == ["n-a", "n-b", "n-last"]

        below = await (await here.client.start(weekly.options(id="w"))).result()
        parent = below[0].removesuffix("-a")
        assert parent.startswith("w~")
        assert below == [f"{parent}-a", f"{parent}-b", f"{parent}-last"]
        parent, child = await (await here.client.start(yearly.options(id="y"))).result()
        assert child == f"{parent}.a"

        anew = await run.fork(0)
        assert await anew.result() == ["n~1-a", "n~1-b", "n~1-last"]
        after_two = await run.fork(2)
        assert await after_two.result() == ["n-a", "n-b", "n~2-last"]
        again = await after_two.fork(4)
        assert await again.result() == ["n-a", "n-b", "n~2-last"]


@romulus.workflow
async def names(ids: list[str]) -> list[str]:
    said = list[str]()
    for each in ids:
        try:
            said.append(await load.options(id=each)("t"))
        except ValueError as error:
            said.append(str(error))
    return said


kept = load


@romulus.workflow
async def keeps() -> None:
    global kept  # an ID given in one run, used in another
    kept = load.options(id=f"{romulus.current_run().id}-a")


@romulus.workflow
async def uses_kept() -> str:
    return await kept("t")


async def test_a_child_may_have_no_id_that_the_engine_makes_or_that_another_runs_children_have(tmp_path: Path) -> None:
    async with world(tmp_path, names, load, keeps, uses_kept) as here:
        await here.worker()
        refused = ["p~1", "p~12", "p~1a", "p~1~a", "p~1-a~1", "p~2-a", "~-a", "p~-a"]
        run = await here.client.start(names.options(id="p"), refused)
        fork = await run.fork(0)
        assert fork.id == "p~1"
        for said in await run.result() + await fork.result():
            assert "made for children and forks" in said
            assert 'f"{romulus.current_run().id}-…"' in said
        with pytest.raises(ValueError, match="made for children and forks; use another character$"):
            load.options(id="p~1-a")

        await (await here.client.start(keeps)).result()
        parent = await (await here.client.start(keeps.options(id="k"))).fork(0)
        await parent.result()
        with pytest.raises(ValueError, match="made for children and forks"):
            await here.client.start(kept, "t")
        with pytest.raises(romulus.RunFailed, match="made for children and forks"):
            await (await here.client.start(uses_kept)).result()
