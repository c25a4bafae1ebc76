"""Context variables, threads, and a def step that does not end in time."""

from __future__ import annotations

import asyncio

import pytest

from tests.cases.apps.python import overruns, paints, paints_blocking
from tests.processes.stage import Stage

pytestmark = pytest.mark.process
APP = "tests.cases.apps.python:app"


async def test_a_step_sees_its_own_runs_context_and_leaves_nothing_for_another(stage: Stage) -> None:
    """RB-49: two attempts at once on threads that are used again, runs of both colours."""
    await stage.worker(APP, "--concurrency", "2")
    handles = {
        f"{workflow.name} {colour}": await stage.client.start(workflow.options(id=f"{workflow.name} {colour}"), colour, 50)
        for workflow in (paints, paints_blocking) for colour in ("red", "blue")
    }  # fmt: skip
    results = await asyncio.gather(*(handle.result(timeout=60) for handle in handles.values()))

    assert dict(zip(handles, results, strict=True)) == {run: {(run.split()[1], "nothing", run)} for run in handles}
    assert len({e["thread"] for e in stage.effects("looked", step="look")}) < 20  # of 200 calls: threads are used again


@pytest.mark.parametrize("stops", [False, True])
async def test_the_next_attempt_of_a_late_def_step_begins_when_its_thread_has_ended(stage: Stage, stops: bool) -> None:
    """RS-19: the late attempt's result is not taken, one completion is recorded; with *stops* attempt 2 is late as well."""
    await stage.worker(APP)
    handle = await stage.client.start(overruns.options(id="r"), stops)
    await stage.seen("told")
    assert len(stage.effects("begin")) == 1
    stage.open("deaf")
    assert await handle.result(timeout=30) == ("attempt 2 of step 'deaf' ran past its timeout of 0.3 s" if stops else "attempt 2")

    assert [(e["what"], e["attempt"]) for e in stage.effects()] == [("begin", 1), ("told", 1), ("end", 1), ("begin", 2), ("end", 2)]
    assert [(entry.kind, entry.attempt) for entry in await handle.history()] == [("step", 2)]
    stage.whole()
