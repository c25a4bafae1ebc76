"""Starting runs: the same start is the same run, another one is refused and changes nothing (RB-52, RS-21)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import romulus
from romulus import AsyncClient, RunConflict, RunStatus, SerializationError

from .world import Parcel, app_at, other, reached, total, waits_for, working


async def test_the_same_start_fifty_times_at_once_is_one_run(tmp_path: Path) -> None:
    async with app_at(tmp_path).client() as client:
        handles = await asyncio.gather(*(client.start(total.options(id="k"), 1) for _ in range(50)))

        assert {handle.id for handle in handles} == {"k"}
        assert len(await client.runs()) == 1


async def test_an_id_with_other_arguments_or_another_workflow_is_a_conflict_and_changes_nothing(tmp_path: Path) -> None:
    async with app_at(tmp_path).client() as client:
        before = await (await client.start(total.options(id="k"), 1)).describe()

        with pytest.raises(RunConflict, match="with other arguments"):
            await client.start(total.options(id="k"), 2)
        with pytest.raises(RunConflict, match="as workflow 'total'"):
            await client.start(other.options(id="k"), 1)

        assert await client.get("k").describe() == before
        assert len(await client.runs()) == 1


async def test_starting_a_running_id_with_other_input_leaves_it_running_with_its_record(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handle = await client.start(waits_for.options(id="x"), "go")
        await reached(handle, RunStatus.WAITING)
        before = await handle.history()

        starts = [client.start(waits_for.options(id="x"), f"other-{n}") for n in range(50)]
        answers = await asyncio.gather(*starts, return_exceptions=True)

        assert all(isinstance(answer, RunConflict) for answer in answers)
        assert len(before) == 3
        assert await handle.history() == before
        await client.send_event("go", 7, correlation_id="x")
        assert await handle.result(timeout=30) == 7


async def test_a_finished_run_is_returned_not_run_again(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        assert await (await client.start(total.options(id="k"), 1)).result(timeout=30) == 3
        again = await client.start(total.options(id="k"), 1)

        assert await again.result(timeout=30) == 3
        assert (await again.describe()).generation == 1


async def test_a_start_by_name_equals_the_typed_one_with_and_without_the_code(tmp_path: Path) -> None:
    app = app_at(tmp_path)
    typed = {"a": 1, "b": 2, "parcel": {"weight": 5, "labels": ["x"]}}
    async with app.client() as client, AsyncClient(app.source.url) as blind:
        await client.start(total.options(id="k"), 1, parcel=Parcel(5, ["x"]))
        await client.start_by_name("total", {"a": 1, "parcel": {"weight": 5, "labels": ["x"]}}, id="k")
        await blind.start_by_name("total", typed, id="k")

        with pytest.raises(RunConflict):
            await blind.start_by_name("total", {**typed, "a": 9}, id="k")
        assert len(await client.runs()) == 1


async def test_arguments_in_order_need_the_code(tmp_path: Path) -> None:
    app = app_at(tmp_path)
    async with app.client() as client, AsyncClient(app.source.url) as blind:
        await client.start_by_name("total", [1, 3], id="k")
        await client.start(total.options(id="k"), 1, 3)

        with pytest.raises(SerializationError, match="give a mapping"):
            await blind.start_by_name("total", [1, 3])


async def test_wrong_arguments_are_refused_before_anything_is_stored(tmp_path: Path) -> None:
    async with app_at(tmp_path).client() as client:
        with pytest.raises(TypeError, match="missing a required argument: 'a'"):
            await client.start(total)  # type: ignore[call-arg]
        with pytest.raises(SerializationError):
            await client.start(total, "no number")  # type: ignore[arg-type]
        assert len(await client.runs()) == 0


@pytest.mark.parametrize("bad", ["a\x00b", "\ud800", "x" * 300, ""])
async def test_an_id_that_no_store_can_keep_is_refused_by_name(tmp_path: Path, bad: str) -> None:
    async with app_at(tmp_path).client() as client:
        with pytest.raises(romulus.RomulusError, match="run ID"):
            await client.start_by_name("total", {"a": 1}, id=bad)


async def test_options_reach_the_run(tmp_path: Path) -> None:
    at = datetime.now(UTC) + timedelta(days=2)
    async with app_at(tmp_path).client() as client:
        handle = await client.start(total.options(start_at=at, priority=4, attributes={"team": "a", "n": 3, "vip": True}, version="7"), 1)
        run = await handle.describe()

        assert (run.status, run.due, run.priority, run.version) == (RunStatus.SCHEDULED, at, 4, "7")
        assert run.attributes == {"team": "a", "n": 3, "vip": True}
        assert run.stranded


async def test_a_delayed_start_is_not_due_before_its_delay(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handle = await client.start(total.options(delay=3600), 1)
        run = await handle.describe()

        assert run.status is RunStatus.SCHEDULED
        assert run.due is not None
        assert run.due - run.created_at == timedelta(hours=1)


async def test_namespaces_keep_equal_ids_apart(tmp_path: Path) -> None:
    app = app_at(tmp_path)
    async with app.client() as client, AsyncClient(app, namespace="b") as elsewhere, AsyncClient(app, namespace="c") as empty:
        await client.start(total.options(id="k"), 1)
        await elsewhere.start(total.options(id="k"), 2)

        assert [run.id for run in await client.runs()] == ["k"]
        with pytest.raises(romulus.RunNotFound):
            await empty.get("k").describe()
