"""Cancelling: what the reply says is what becomes of the run."""

from __future__ import annotations

import asyncio

import pytest

import romulus
from tests.cases.apps.chains import chain
from tests.cases.apps.waits import backs_off, finishes
from tests.processes.stage import FULL, Stage, on_both_stores

pytestmark = [pytest.mark.process, on_both_stores]
APP = "tests.cases.apps.waits:app"


async def test_a_cancel_at_the_instant_of_completion_is_accepted_or_too_late_and_both_are_true(stage: Stage) -> None:
    """RB-14."""
    trials = 500 if FULL else 120
    await asyncio.gather(stage.worker(APP), stage.worker(APP))

    async def trial(n: int) -> tuple[str, str]:
        handle = await stage.client.start(finishes.options(id=f"c{n}"), f"c{n}")
        if n % 4:
            await stage.seen("finishing", run=handle.id)
        replies = await asyncio.gather(*(handle.cancel("now") for _ in range(1 + n % 2)))
        try:
            outcome = await handle.result(timeout=60)
        except romulus.RunCancelled:
            outcome = "cancelled"
        assert (await handle.cancel()) == "already_terminal"
        return ("accepted" if "accepted" in replies else replies[0]), outcome

    outcomes = []
    for begin in range(0, trials, 20):
        outcomes += await asyncio.gather(*(trial(n) for n in range(begin, begin + 20)))
    for n, outcome in enumerate(outcomes):
        assert outcome in {("accepted", "cancelled"), ("already_terminal", f"c{n}")}
    assert stage.rows("SELECT count(*) FROM runs WHERE status NOT IN ('cancelled', 'succeeded')") == [(0,)]
    stage.whole()


@pytest.mark.parametrize("worker_alive", [True, False])
async def test_a_cancel_in_a_back_off_leaves_no_retry(stage: Stage, worker_alive: bool) -> None:
    """RS-10: through the command line; also while no worker runs."""
    worker = await stage.worker(APP)
    handle = await stage.client.start(backs_off.options(id="r"))
    await stage.status("r", "waiting")
    if not worker_alive:
        worker.kill()
    asked = stage.cli("runs", "cancel", "r", "--reason", "enough")
    assert await stage.exited(asked) == 0
    assert asked.out == "accepted\n"
    if not worker_alive:
        await stage.worker(APP)
    with pytest.raises(romulus.RunCancelled, match="enough"):
        await handle.result(timeout=30)
    assert stage.rows("SELECT count(*) FROM attempts") == [(0,)]
    assert stage.rows("SELECT wake_at, queue_at, owner FROM runs") == [(None, None, None)]
    assert len(stage.effects("attempt")) == 1
    again = stage.cli("runs", "cancel", "r")
    assert await stage.exited(again) == 4
    stage.whole()


@pytest.mark.parametrize("lost", ["killed", "frozen"])
async def test_a_cancel_of_a_run_whose_worker_is_lost_is_delivered_by_the_next_and_the_step_is_not_tried_again(
    stage: Stage, lost: str
) -> None:
    """RB-14's neighbour: accepted means cancelled, whoever gets to deliver it."""
    app = "tests.cases.apps.chains:app"
    worker = await stage.worker(app)
    handle = await stage.client.start(chain.options(id="r"), "gate", "async")
    await stage.seen("begin")
    if lost == "killed":
        worker.kill()
    else:
        await stage.freeze(worker)
    assert await handle.cancel("enough") == "accepted"
    await stage.worker(app)
    with pytest.raises(romulus.RunCancelled, match="enough"):
        await handle.result(timeout=30)
    ended = await handle.describe(), await handle.history()
    stage.open("gate")
    if lost == "frozen":
        worker.thaw()
        await stage.until(lambda: "registering afresh" in worker.log, "the frozen worker finds out")
    assert (await handle.describe(), await handle.history()) == ended
    assert [entry.kind for entry in ended[1]] == ["cancel"]
    assert len(stage.effects("begin")) == 1
    stage.whole()
