"""New code meets old records: mismatches hold and release by themselves, patches keep both sides, nothing runs twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import romulus
from tests.worker.rig import url_of, world

CALLS: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    CALLS.clear()


@romulus.step
async def a(n: int) -> int:
    CALLS.append("a")
    return n + 1


@romulus.step
async def b(n: int) -> int:
    CALLS.append("b")
    return n * 10


@romulus.step
async def c(n: int) -> int:
    CALLS.append("c")
    return n * 100


def app_of(path: Path, function: Any) -> romulus.App:
    """Return an App whose workflow named "flow" is *function*: one deploy."""
    return romulus.App(url_of(path / "romulus.db"), workflows=[romulus.workflow(name="flow")(function)])


async def old(n: int) -> int:
    x = await a(n)
    await asyncio.sleep(0.3)
    return await b(x)


async def renamed(n: int) -> int:
    x = await c(n)
    await asyncio.sleep(0.3)
    return await b(x)


async def inserted(n: int) -> int:
    await c(n)
    x = await a(n)
    await asyncio.sleep(0.3)
    return await b(x)


async def patched(n: int) -> int:
    x = await a(n)
    await asyncio.sleep(0.3)
    if romulus.patched("times-hundred"):
        return await c(x)
    return await b(x)


async def patched_early(n: int) -> int:
    x = await c(n) if romulus.patched("c-first") else await a(n)
    await asyncio.sleep(0.3)
    return await b(x)


@pytest.mark.parametrize("changed", [renamed, inserted])
async def test_changed_code_holds_the_run_readably_and_the_old_code_finishes_it(tmp_path: Path, changed: Any) -> None:
    before = app_of(tmp_path, old)
    flow = next(iter(before.registry.workflows.values()))
    async with world(tmp_path) as w:
        first = await w.worker(before, cache_max=0)
        await w.client.start_by_name(flow.name, {"n": 1}, id="r")
        await w.until("r", "waiting")
        await w.stop(first)
        second = await w.worker(app_of(tmp_path, changed))
        held = await w.until("r", "held")
        assert held.hold_reason is not None
        assert "position 0" in held.hold_reason
        assert "'a'" in held.hold_reason
        assert "'c'" in held.hold_reason
        await w.stop(second)
        await w.worker(before)
        assert await w.client.get("r").result(timeout=20) == 20
    assert CALLS == ["a", "b"]


async def test_a_worker_with_other_code_hands_the_run_to_one_whose_code_fits(tmp_path: Path) -> None:
    before = app_of(tmp_path, old)
    async with world(tmp_path) as w:
        first = await w.worker(before)
        await w.client.start_by_name("flow", {"n": 1}, id="r")
        await w.until("r", "waiting")
        await w.kill(first)
        await w.worker(app_of(tmp_path, renamed))
        await w.worker(before)
        assert await w.client.get("r").result(timeout=20) == 20
    assert CALLS == ["a", "b"]


async def test_a_patch_is_false_for_runs_that_passed_it_and_true_for_new_ones(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        first = await w.worker(app_of(tmp_path, old))
        await w.client.start_by_name("flow", {"n": 1}, id="before")
        await w.until("before", "waiting")
        await w.stop(first)
        second = await w.worker(app_of(tmp_path, patched_early))
        await w.client.start_by_name("flow", {"n": 1}, id="after")
        await w.until("after", "waiting")
        await w.kill(second)
        await w.worker(app_of(tmp_path, patched_early))
        assert await w.client.get("before").result(timeout=20) == 20
        assert await w.client.get("after").result(timeout=20) == 1000
    assert CALLS == ["a", "c", "b", "b"]


async def test_a_patch_first_asked_beyond_the_record_is_true(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        first = await w.worker(app_of(tmp_path, old))
        await w.client.start_by_name("flow", {"n": 1}, id="r")
        await w.until("r", "waiting")
        await w.stop(first)
        await w.worker(app_of(tmp_path, patched))
        assert await w.client.get("r").result(timeout=20) == 200
        assert [e.kind for e in await w.client.get("r").history()] == ["step", "timer", "patch", "step"]


@dataclass
class Parcel:
    """A value whose class a deploy renames."""

    weight: int


@romulus.step
async def pack(n: int) -> Parcel:
    CALLS.append("pack")
    return Parcel(n)


async def ships(n: int) -> int:
    parcel = await pack(n)
    await asyncio.sleep(0.3)
    return parcel.weight


async def test_a_value_that_cannot_be_decoded_holds_the_run_until_its_class_is_back(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        before = app_of(tmp_path, ships)
        first = await w.worker(before, cache_max=0)
        await w.client.start_by_name("flow", {"n": 7}, id="r")
        await w.until("r", "waiting")
        await w.stop(first)

        broken = app_of(tmp_path, ships)
        spec = broken.registry.steps["pack"]
        from romulus.core.values import ValueCodec

        kept, spec.value = spec.value, ValueCodec(list[int], "the result of step 'pack'")
        second = await w.worker(broken)
        held = await w.until("r", "held")
        assert "pack" in (held.hold_reason or "")
        await w.stop(second)
        spec.value = kept
        await w.client.get("r").release()
        await w.worker(before)
        assert await w.client.get("r").result(timeout=20) == 7
    assert CALLS == ["pack"]


async def test_a_step_unknown_to_the_app_fails_the_run_with_the_remedy(tmp_path: Path) -> None:
    found_later: list[Any] = []

    @romulus.step(name="hidden")
    async def hidden() -> None: ...

    async def dynamic(n: int) -> None:
        await found_later[0]()

    async with world(tmp_path) as w:
        await w.worker(app_of(tmp_path, dynamic))
        found_later.append(hidden)
        handle = await w.client.start_by_name("flow", {"n": 1}, id="r")
        with pytest.raises(romulus.RunFailed, match=r"App\(steps=\[…\]\)"):
            await handle.result(timeout=20)
