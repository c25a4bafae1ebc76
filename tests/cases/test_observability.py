"""What operators see of a run comes once, however often the run is replayed."""

from __future__ import annotations

import pytest

from tests.cases.apps.python import talks
from tests.processes.stage import FULL, Stage

pytestmark = pytest.mark.process
APP = "tests.cases.apps.python:app"


async def test_log_lines_and_recorded_steps_come_once_with_the_run_over_many_restarts(stage: Stage) -> None:
    """RB-50: 5 steps; the worker is replaced at each, in turn killed and stopped."""
    steps, rounds = 5, 2 if FULL else 1
    worker = await stage.worker(APP, ROMULUS_GRACE="0.1")
    handle = await stage.client.start(talks.options(id="talking"), steps)
    for number in range(steps):
        for attempt in range(1, rounds + 1):
            await stage.seen("begin", number=number, attempt=attempt)
            worker.kill() if (number + attempt) % 2 else await stage.stop(worker)
            worker = await stage.worker(APP, ROMULUS_GRACE="0.1")
        await stage.seen("begin", number=number, attempt=rounds + 1)
        stage.open(f"stage-{number}-{rounds + 1}")
    assert await handle.result(timeout=30) == steps

    lines = [line for process in stage.processes for line in process.log.splitlines() if "romulus.workflow" in line]
    assert [line.partition("line ")[2] for line in lines] == [f"{n} before its step" for n in range(steps)] + [f"{steps} at the end"]
    assert all("talking" in line for line in lines)
    assert len(stage.effects("end")) == steps
    assert [(entry.kind, entry.value) for entry in await handle.history()] == [("step", n) for n in range(steps)]
    stage.whole()


async def test_every_one_of_several_processes_logs_its_lines_with_the_run(stage: Stage) -> None:
    """RB-50's neighbour: a process that is spawned knows nothing of its parent's logging."""
    supervisor = stage.starting_worker(APP, "--processes", "2", ROMULUS_GRACE="0.1")
    await stage.until(lambda: supervisor.log.count("worker ready") == 2, "both are ready")
    stage.open("stage-0-1")
    await (await stage.client.start(talks.options(id="talking"), 1)).result(timeout=30)
    await stage.stop(supervisor)
    lines = [line for line in supervisor.log.splitlines() if "romulus.workflow" in line]
    assert [line.partition("[")[2] for line in lines] == ["talking] line 0 before its step", "talking] line 1 at the end"]
