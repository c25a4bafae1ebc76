"""Children: a child that was asked for runs, whatever becomes of its parent."""

from __future__ import annotations

import asyncio

import pytest

import romulus
from tests.cases.apps.families import awaits, family, starts_last
from tests.processes.stage import FULL, Stage, on_both_stores

pytestmark = [pytest.mark.process, on_both_stores]
APP = "tests.cases.apps.families:app"


async def test_a_detached_child_started_as_its_parents_last_act_always_runs_to_its_end(stage: Stage) -> None:
    """RB-26: workers are killed while parents start their children and end."""
    trials, kills = (1000, 100) if FULL else (120, 6)
    worker = await stage.worker(APP)
    handles = []
    for kill in range(kills):
        begin = kill * trials // kills
        handles += await asyncio.gather(*(stage.client.start(starts_last, f"t{n}") for n in range(begin, begin + trials // kills)))
        await stage.seen("worked", count=begin // 2 + 1)
        worker.kill()
        worker = await stage.worker(APP)
    children = await asyncio.gather(*(handle.result(timeout=60) for handle in handles))
    outcomes = await asyncio.gather(*(stage.client.get(child).result(timeout=60) for child in children))

    assert list(outcomes) == [f"t{n}" for n in range(len(handles))]
    assert len(set(children)) == len(handles)
    assert stage.rows("SELECT workflow, status, count(*) FROM runs GROUP BY 1, 2 ORDER BY 1") == [
        ("detached", "succeeded", len(handles)), ("starts_last", "succeeded", len(handles)),
    ]  # fmt: skip
    stage.whole()


async def test_parents_that_await_their_children_leave_them_the_slots(stage: Stage) -> None:
    """RS-14."""
    await stage.worker(APP, "--concurrency", "2")
    handles = [await stage.client.start(awaits, str(n)) for n in range(20)]

    assert [await handle.result(timeout=30) for handle in handles] == [str(n) for n in range(20)]
    stage.whole()


async def test_no_child_lives_on_after_its_parent_was_cancelled_though_its_worker_is_killed(stage: Stage) -> None:
    worker = await stage.worker(APP)
    handle = await stage.client.start(family, 50)
    await stage.until(lambda: stage.rows("SELECT count(*) FROM waits") == [(50,)])
    asked = asyncio.ensure_future(handle.cancel("enough"))
    await stage.until(lambda: stage.rows("SELECT cancel_seq FROM runs WHERE workflow = 'family'") == [(1,)])
    worker.kill()
    assert await asked == "accepted"
    await stage.worker(APP)
    with pytest.raises(romulus.RunCancelled):
        await handle.result(timeout=30)
    await stage.until(lambda: stage.rows("SELECT count(*) FROM runs WHERE finished_at IS NULL") == [(0,)])

    assert stage.rows("SELECT DISTINCT status FROM runs") == [("cancelled",)]
    assert stage.rows("SELECT count(*) FROM to_close") == [(0,)]
    stage.whole()
