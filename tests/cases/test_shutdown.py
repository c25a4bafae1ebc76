"""SIGTERM: what is under way may end, what is not begun is left to others, nothing stays locked."""

from __future__ import annotations

import pytest

from tests.cases.apps.chains import chain
from tests.processes.stage import Stage

pytestmark = pytest.mark.process
APP = "tests.cases.apps.chains:app"
LONG = {"ROMULUS_LEASE": "60"}
KINDS = ("async", "thread")


async def test_steps_end_within_the_grace_period_and_nothing_is_claimed_after_the_signal(stage: Stage) -> None:
    """RB-46, grace 10 s."""
    first = await stage.worker(APP, ROMULUS_GRACE="10", **LONG)
    handles = [await stage.client.start(chain.options(id=kind), kind, kind) for kind in KINDS]
    await stage.seen("begin", 2)
    first.terminate()
    await stage.until(lambda: "worker stopping" in first.log, "the signal is taken")
    late = await stage.client.start(chain.options(id="late"), "late", "async")
    await stage.until(lambda: stage.rows("SELECT stopping FROM workers") == [(1,)], "the worker is shown as stopping")
    for kind in KINDS:
        stage.open(kind)
    assert await stage.exited(first) == 0

    assert [(e["run"], e["attempt"]) for e in sorted(stage.effects("end"), key=lambda e: e["run"])] == [("async", 1), ("thread", 1)]
    assert (await late.describe()).fence == 0
    assert stage.rows("SELECT count(*) FROM workers") == [(0,)]
    assert {(await handle.describe()).status for handle in handles} == {"pending"}
    stage.open("late")
    await stage.worker(APP)
    assert [await handle.result(timeout=30) for handle in (*handles, late)] == [[kind, "2", "3"] for kind in (*KINDS, "late")]
    assert [e["attempt"] for e in stage.effects("begin")] == [1, 1, 1]
    stage.whole()


async def test_past_the_grace_period_claims_are_released_at_once_whatever_the_lease(stage: Stage) -> None:
    """RB-46, grace 1 s, lease 60 s: an async step goes on elsewhere as soon as the process has ended."""
    first = await stage.worker(APP, ROMULUS_GRACE="1", **LONG)
    handle = await stage.client.start(chain.options(id="async"), "async", "async")
    await stage.seen("begin")
    first.terminate()
    assert await stage.exited(first) == 0
    described = await handle.describe()
    assert (described.status, described.owner) == ("pending", None)
    stage.open("async")
    await stage.worker(APP, **LONG)
    assert await handle.result(timeout=30) == ["async", "2", "3"]
    assert [e["attempt"] for e in stage.effects("begin")] == [1, 2]
    stage.whole()


async def test_a_thread_that_does_not_end_keeps_neither_the_run_nor_the_process(stage: Stage) -> None:
    """RB-46's sync half: the run is free at the end of the grace period, and the process ends although the body does not."""
    first = await stage.worker(APP, ROMULUS_GRACE="0.5", **LONG)
    handle = await stage.client.start(chain.options(id="thread"), "thread", "thread")
    await stage.seen("begin")
    first.terminate()
    await stage.status("thread", "pending")
    assert await stage.exited(first) == 0
    stage.open("thread")
    await stage.worker(APP, **LONG)
    assert await handle.result(timeout=30) == ["thread", "2", "3"]
    assert [e["attempt"] for e in stage.effects("begin")] == [1, 2]
    assert [e["attempt"] for e in stage.effects("end")] == [2]


async def test_a_second_signal_ends_the_process_at_once_and_loses_nothing(stage: Stage) -> None:
    first = await stage.worker(APP, ROMULUS_GRACE="60", **LONG)
    handle = await stage.client.start(chain.options(id="async"), "async", "async")
    await stage.seen("begin")
    first.terminate()
    await stage.until(lambda: "worker stopping" in first.log, "the signal is taken")
    first.terminate()
    assert await stage.exited(first) == -15
    stage.open("async")
    await stage.worker(APP, **LONG)
    assert await handle.result(timeout=30) == ["async", "2", "3"]
    stage.whole()
