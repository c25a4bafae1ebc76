"""Steps of a pool on real processes: one works the runs, another the pool, and that one is killed or frozen."""

from __future__ import annotations

import pytest

import romulus
from tests.processes.apps.pools import trained, trained_once
from tests.processes.stage import Stage

pytestmark = pytest.mark.process
APP = "tests.processes.apps.pools:app"
POOL = ("--pool", "gpu")


async def test_an_attempt_whose_worker_is_killed_is_made_again_by_the_next_one_of_the_pool(stage: Stage) -> None:
    runs = await stage.worker(APP)
    gpu = await stage.worker(APP, *POOL)
    handle = await stage.client.start(trained.options(id="r"), 1)
    (first,) = await stage.seen("training")
    gpu.kill()
    again = await stage.worker(APP, *POOL)
    _, second = await stage.seen("training", 2)
    stage.open("training")

    assert await handle.result(timeout=60) == 21
    assert [(line["attempt"], line["pid"]) for line in (first, second)] == [(1, gpu.pid), (2, again.pid)]
    assert second["fence"] > first["fence"]
    assert {line["pid"] for line in stage.effects("prepared")} == {runs.pid}
    assert stage.rows("SELECT * FROM pool_attempts") == stage.rows("SELECT * FROM inbox") == []
    stage.whole()


async def test_a_run_whose_pool_nobody_serves_is_not_lost_and_shows_what_it_waits_for(stage: Stage) -> None:
    await stage.worker(APP)
    gpu = await stage.worker(APP, *POOL)
    handle = await stage.client.start(trained.options(id="r"), 1)
    await stage.seen("training")
    gpu.kill()
    await stage.until(lambda: stage.rows("SELECT number, state FROM pool_attempts") == [(2, "queued")], "the next attempt")
    (pending,) = (await handle.describe()).pending
    assert (pending.name, pending.pool, pending.state, pending.attempt, pending.unserved) == ("train", "gpu", "queued", 2, True)
    shown = stage.cli("runs", "show", "r")
    assert await stage.exited(shown) == 0
    assert "gpu (no live worker serves it)" in shown.out

    stage.open("training")
    await stage.worker(APP, *POOL)
    assert await handle.result(timeout=60) == 21
    stage.whole()


async def test_the_worker_of_the_runs_may_be_killed_while_the_pool_works(stage: Stage) -> None:
    runs = await stage.worker(APP)
    await stage.worker(APP, *POOL)
    handle = await stage.client.start(trained.options(id="r"), 1)
    await stage.seen("training")
    runs.kill()
    stage.open("training")
    await stage.seen("trained")
    await stage.worker(APP)
    assert await handle.result(timeout=60) == 21
    assert len(stage.effects("training")) == 1
    stage.whole()


async def test_the_attempt_of_a_frozen_worker_is_made_elsewhere_and_it_gives_its_own_up_when_it_wakes(stage: Stage) -> None:
    await stage.worker(APP)
    gpu = await stage.worker(APP, *POOL)
    handle = await stage.client.start(trained.options(id="r"), 1)
    await stage.seen("training")
    await stage.freeze(gpu)
    await stage.worker(APP, *POOL)
    await stage.seen("training", 2)
    stage.open("training")
    assert await handle.result(timeout=60) == 21
    gpu.thaw()
    await stage.until(lambda: "registering afresh" in gpu.log, "the frozen worker to find out")
    await stage.stop(gpu)
    assert [entry.attempt for entry in await handle.history()] == [1, 2, 1]
    stage.whole()


async def test_a_killed_worker_of_a_step_with_one_attempt_holds_the_run(stage: Stage) -> None:
    await stage.worker(APP)
    gpu = await stage.worker(APP, *POOL)
    handle = await stage.client.start(trained_once.options(id="r"), 1)
    await stage.seen("training")
    gpu.kill()
    await stage.worker(APP, *POOL)
    held = await stage.status("r", romulus.RunStatus.HELD)
    assert "may or may not have done its work" in (held.hold_reason or "")
    assert len(stage.effects("training")) == 1
    stage.open("training")
    await handle.release()
    assert await handle.result(timeout=60) == 10
