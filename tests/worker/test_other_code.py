"""Code that asks for something else than what the record has under way holds the run, or leaves it to a worker whose code fits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import romulus
from romulus import Operation, Retry
from romulus.core.machine import RunStatus
from tests.worker.gates import CALLS, GATE, fresh, gated, noted
from tests.worker.rig import World, eventually, url_of, world

clear = fresh
Flow = Callable[[str], Awaitable[str]]


@romulus.step(pool="gpu")
async def trains() -> None:
    CALLS.append("trained")


@romulus.step(retry=Retry(max_attempts=2, initial=60, jitter=0))
async def fails() -> None:
    raise ValueError("not now")


@romulus.operation(timeout=60, pool="payments")
async def writes(op: Operation) -> str:
    return "written"


@romulus.workflow
async def sleeps() -> None:
    await romulus.wait_for_event("never")


def under_way(kind: str) -> Coroutine[Any, Any, Any]:
    match kind:
        case "armed":
            return gated("one")
        case "pool":
            return trains()
        case "back-off":
            return fails()
        case "wait":
            return romulus.wait_for_event("one")
        case "operation":
            return writes()
        case _:
            return sleeps()


async def until_enough(beside: Coroutine[Any, Any, Any]) -> str:
    task = asyncio.ensure_future(beside)
    await romulus.wait_for_event("look")
    await romulus.wait_for_event("enough")
    task.cancel()
    return "enough"


async def before(kind: str) -> str:
    return await until_enough(under_way(kind))


async def after(kind: str) -> str:
    return await until_enough(noted("another"))


def app_of(path: Path, flow: Flow, *others: Any) -> romulus.App:
    """Return an App whose workflow named "flow" is *flow*: one deploy."""
    return romulus.App(url_of(path / "romulus.db"), workflows=[romulus.workflow(name="flow")(flow), *others])


RECORDED = {  # kind: what shows that the record has it, and what the hold calls it
    "armed": ("SELECT 1 FROM runs WHERE armed LIKE '%gated%'", "an attempt at a step (command 2)"),
    "pool": ("SELECT 1 FROM pool_attempts", "an attempt at a step (command 2)"),
    "back-off": ("SELECT 1 FROM attempts", "an attempt at a step (command 2)"),
    "wait": ("SELECT 1 FROM waits WHERE name = 'one'", "a wait for event 'one' (command 2)"),
    "operation": ("SELECT 1 FROM operations", "operation 'writes'"),
    "child": ("SELECT 1 FROM runs WHERE workflow = 'sleeps'", "child"),
}


@pytest.mark.parametrize("kind", RECORDED)
async def test_code_that_asks_for_something_else_than_what_is_under_way_holds_the_run(tmp_path: Path, kind: str) -> None:
    query, words = RECORDED[kind]
    old = app_of(tmp_path, before, sleeps)
    async with world(tmp_path) as w:
        first = await w.worker(old, cache_max=0)
        handle = await w.client.start_by_name("flow", {"kind": kind}, id="r")
        await eventually(lambda: w.rows(query) != [] and (kind != "armed" or CALLS != []))  # one that has not begun would be un-armed
        await w.kill(first)
        second = await w.worker(app_of(tmp_path, after, sleeps))
        await handle.send_event("look")
        held = await w.until("r", RunStatus.HELD)
        assert words in (held.hold_reason or "")
        assert "'noted'" in (held.hold_reason or "")
        assert w.rows("SELECT count(*) FROM journal") == [(0,)]
        await w.stop(second)

        GATE.set()
        await w.worker(old)  # it goes on by itself
        await handle.send_event("enough")
        assert await handle.result(timeout=20) == "enough"
    assert "another" not in CALLS


@romulus.workflow
async def busy() -> None:
    await gated("busy")


async def goes(kind: str) -> str:
    await noted(kind)
    await romulus.wait_for_event("go", correlation_id=kind)
    return kind


async def goes_otherwise(kind: str) -> str:
    await gated(kind)
    await romulus.wait_for_event("go", correlation_id=kind)
    return kind


async def test_a_worker_whose_code_does_not_fit_leaves_the_run_to_a_busy_one_whose_code_fits(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        fits = await w.worker(app_of(tmp_path, goes, busy), concurrency=1, cache_max=0)
        handle = await w.client.start_by_name("flow", {"kind": "r"}, id="r")
        await w.until("r", RunStatus.WAITING)
        for _ in range(2):
            await w.client.start_by_name("busy", {})
        await eventually(lambda: len(fits.memory.active) == 2)  # it has room for no more
        other = await w.worker(app_of(tmp_path, goes_otherwise))
        await eventually(lambda: len(other.maintenance._others) == 1)
        await w.client.send_event("go", correlation_id="r")
        await eventually(lambda: w.rows("SELECT 1 FROM runs WHERE id = 'r' AND excluded <> ''") != [])
        assert await status(w, "r") is RunStatus.PENDING

        GATE.set()
        assert await handle.result(timeout=20) == "r"
    assert CALLS == ["r", "busy", "busy"]


HANGS: list[bool] = []


async def hangs_on_replay(kind: str) -> str:
    await romulus.wait_for_event("go", correlation_id=kind)
    while HANGS:
        pass
    await romulus.wait_for_event("never")
    return kind


async def test_a_replay_that_hangs_holds_the_run_although_another_worker_has_other_code(tmp_path: Path) -> None:
    old = app_of(tmp_path, hangs_on_replay)
    async with world(tmp_path) as w:
        first = await w.worker(old)
        handle = await w.client.start_by_name("flow", {"kind": "r"}, id="r")
        await w.client.send_event("go", correlation_id="r")
        await eventually(lambda: w.rows("SELECT status, position FROM runs") == [("waiting", 1)])
        await w.kill(first)
        other = await w.worker(app_of(tmp_path, goes))
        await other.claimer.stop()
        again = await w.worker(old, activation_limit=200_000)
        await eventually(lambda: len(again.maintenance._others) == 1)
        HANGS.append(True)
        await handle.cancel()
        held = await w.until("r", RunStatus.HELD)
        HANGS.clear()

        assert "did not give control back" in (held.hold_reason or "")


def trains_in(path: Path, pool: str | None) -> romulus.App:
    """Return an App with the step in that pool: the first attempt waits for the test, and fails."""

    @romulus.step(name="trains", pool=pool, retry=Retry(max_attempts=2, initial=0.01, jitter=0))
    async def step() -> str:
        CALLS.append(f"{romulus.current_attempt().number} in {pool}")
        if romulus.current_attempt().number == 1:
            await GATE.wait()
            raise ValueError("once")
        return "trained"

    async def flow() -> str:
        return await step()

    return app_of(path, flow)  # type: ignore[arg-type]


async def test_a_step_that_a_deploy_takes_out_of_its_pool_is_tried_again_by_the_runs_own_worker(tmp_path: Path) -> None:
    old = trains_in(tmp_path, "gpu")
    async with world(tmp_path) as w:
        first = await w.worker(old)
        await w.worker(old, pools=("gpu",))
        handle = await w.client.start_by_name("flow", {}, id="r")
        await eventually(lambda: CALLS == ["1 in gpu"])
        await w.stop(first)
        await w.worker(trains_in(tmp_path, None))
        GATE.set()

        assert await handle.result(timeout=40) == "trained"
    assert CALLS == ["1 in gpu", "2 in None"]


class Locked:
    """A codec without the key that opens what others wrote."""

    def encode(self, data: bytes) -> bytes:
        return data

    def decode(self, data: bytes) -> bytes:
        raise PermissionError("no key")


async def test_a_run_whose_arguments_a_worker_cannot_decode_is_held_and_one_that_can_goes_on_with_it(tmp_path: Path) -> None:
    flow = romulus.workflow(name="flow")(goes)
    locked = romulus.App(url_of(tmp_path / "romulus.db"), workflows=[flow], codec=Locked())
    async with world(tmp_path) as w:
        first = await w.worker(locked)
        handle = await w.client.start_by_name("flow", {"kind": "r"}, id="r")
        held = await w.until("r", RunStatus.HELD)
        assert "no key" in (held.hold_reason or "")
        await w.stop(first)
        await w.worker(app_of(tmp_path, goes))
        await handle.release()
        await w.client.send_event("go", correlation_id="r")

        assert await handle.result(timeout=20) == "r"


async def status(w: World, run_id: str) -> RunStatus:
    return RunStatus((await w.client.get(run_id).describe()).status)
