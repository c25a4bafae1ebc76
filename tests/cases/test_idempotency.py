"""One ID, one run: the same start again is the same run, any other is a conflict that changes nothing."""

from __future__ import annotations

import asyncio
import json

import pytest

import romulus
from tests.cases.apps.chains import barrier, chain, patient
from tests.processes.stage import Stage

pytestmark = pytest.mark.process
APP = "tests.cases.apps.chains:app"


async def _started(stage: Stage, *arguments: str) -> tuple[int, str, str]:
    process = stage.cli("runs", "start", *arguments)
    return await stage.exited(process), process.out.strip(), process.log


async def test_a_key_names_one_start_whichever_process_makes_it(stage: Stage) -> None:
    """RB-52 through the command line and the library at once, against a working worker."""
    await stage.worker(APP)
    same = ("barrier", json.dumps({"run": 1, "width": 2}), "--id", "k")
    answers, handles = await asyncio.gather(
        asyncio.gather(*(_started(stage, *same) for _ in range(3))),
        asyncio.gather(*(stage.client.start(barrier.options(id="k"), 1, 2) for _ in range(50))),
    )
    assert {answer[:2] for answer in answers} == {(0, "k")}
    assert {handle.id for handle in handles} == {"k"}
    assert await handles[0].result(timeout=30) == 21
    first = stage.rows("SELECT * FROM runs"), stage.rows("SELECT * FROM generations"), stage.rows("SELECT * FROM journal")

    for wrong in (("barrier", json.dumps({"run": 2, "width": 2})), ("patient", json.dumps({"until": 1}))):
        code, out, log = await _started(stage, *wrong, "--id", "k")
        assert (code, out) == (4, "")
        assert "'k'" in log
        assert "Traceback" not in log
    for workflow, args in ((barrier, (1, 3)), (patient, (1,))):
        with pytest.raises(romulus.RunConflict):
            await stage.client.start(workflow.options(id="k"), *args)
    assert (await _started(stage, *same))[:2] == (0, "k")
    assert (stage.rows("SELECT * FROM runs"), stage.rows("SELECT * FROM generations"), stage.rows("SELECT * FROM journal")) == first
    assert len(stage.effects("branch")) == 2


async def test_starting_the_id_of_a_running_run_with_other_input_leaves_it_as_it_is(stage: Stage) -> None:
    """RS-21: fifty at once while the run is in its first step, and again over a takeover."""
    worker = await stage.worker(APP)
    handle = await stage.client.start(chain.options(id="x"), "gate", "async")
    await stage.seen("begin")

    async def other(n: int) -> str:
        try:
            await stage.client.start(chain.options(id="x"), f"other {n}", "async")
        except romulus.RunConflict:
            return "conflict"
        return "started"

    assert set(await asyncio.gather(*(other(n) for n in range(50)))) == {"conflict"}
    worker.kill()
    assert set(await asyncio.gather(*(other(n) for n in range(50)))) == {"conflict"}
    await stage.worker(APP)
    await stage.seen("begin", attempt=2)
    assert await other(0) == "conflict"
    stage.open("gate")
    assert await handle.result(timeout=30) == ["gate", "2", "3"]
    assert stage.rows("SELECT count(*) FROM runs") == [(1,)]
    assert len(await handle.history()) == 3
    stage.whole()
