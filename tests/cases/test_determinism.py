"""Code that changed under a parked run: matched to its own history or held with what differs, never run on by mistake."""

from __future__ import annotations

import re

import pytest

from tests.processes.stage import Stage

pytestmark = pytest.mark.process

CODE = """
import asyncio
import romulus
from tests.processes.effects import note

@romulus.step
async def first(number: int) -> int:
    note("first")
    return number + 1

@romulus.step(retry=romulus.Retry(max_attempts=None, initial=600, jitter=0))
async def second(number: int) -> int:
    note("second")
    if FAILS:
        raise LookupError("not now")
    return number * 10

@romulus.step
async def last(number: int) -> int:
    note("last")
    return number

FAILS = False

@romulus.workflow
async def flow() -> int:
    one = await first(1)
    two = await second(one)
    event = await romulus.wait_for_event("go", type=int)
    return await last(two + event.payload)

app = romulus.App(workflows=[flow])
"""

CHANGES = {
    "a recorded step is renamed": (("second", "renamed"), "step 'second'", "step 'renamed'"),
    "a step is inserted before": (("one = await first(1)", "await last(0)\n    one = await first(1)"), "step 'first'", "step 'last'"),
    "an argument differs": (("second(one)", "second(one + 1)"), "step 'second'", "step 'second'"),
    "two steps change places": (
        ("one = await first(1)\n    two = await second(one)", "two = await second(2)\n    one = await first(1)"),
        "step 'first'", "step 'second'",
    ),
    "a step becomes a timer": (("one = await first(1)", "one = 2\n    await asyncio.sleep(1)"), "step 'first'", "timer"),
    "a recorded step is gone": (("two = await second(one)", "two = 20"), "step 'second'", "wait for event 'go'"),
    "the open wait is renamed": (('wait_for_event("go"', 'wait_for_event("other"'), "wait for event 'go'", "wait for event 'other'"),
    "the open wait has another correlation": (
        ('wait_for_event("go"', 'wait_for_event("go", correlation_id="x"'), "wait for event 'go'", "with other arguments",
    ),
    "a step is inserted before the open wait": (("    event =", "    await last(0)\n    event ="), "wait for event 'go'", "step 'last'"),
    "the code returns before the open wait": (("    event =", "    return two\n    event ="), "wait for event 'go'", "nothing"),
}  # fmt: skip


def _of(number: int, text: str) -> str:
    """Return code whose names are those of one of several workflows of an App."""
    return re.sub(r"\b(first|second|last|renamed|flow)\b", rf"\1_{number}", text)


def _all_flows(changed: bool) -> str:
    """Return an App with a workflow for each change, as it was or as it became."""
    flows = [CODE.replace(old, new) if changed else CODE for (old, new), _, _ in CHANGES.values()]
    bodies = [_of(number, flow.partition("\napp = ")[0]) for number, flow in enumerate(flows)]
    names = ", ".join(f"flow_{number}" for number in range(len(flows)))
    return "\n".join([*bodies, f"app = romulus.App(workflows=[{names}])"])


async def test_code_that_does_not_fit_the_record_holds_the_run_which_goes_on_under_the_old_code(stage: Stage) -> None:
    """RB-23: every kind of change at once, each at a run of its own."""
    stage.deploy("flows", _all_flows(changed=False))
    worker = await stage.worker("flows:app")
    handles = [await stage.client.start_by_name(f"flow_{number}", id=change) for number, change in enumerate(CHANGES)]
    for handle in handles:
        await stage.status(handle.id, "waiting")
    await stage.stop(worker)
    before, effects = [await handle.history() for handle in handles], stage.effects()

    stage.deploy("flows", _all_flows(changed=True))
    worker = await stage.worker("flows:app")
    for handle in handles:
        await handle.send_event("go", 3)
    for number, handle in enumerate(handles):
        held = await stage.status(handle.id, "held", "failed", "succeeded")
        reason = held.hold_reason or str(held)
        for words in ("position", *(_of(number, words) for words in CHANGES[handle.id][1:])):
            assert words in reason, (handle.id, words, reason)
    assert ([await handle.history() for handle in handles], stage.effects()) == (before, effects)
    await stage.stop(worker)

    stage.deploy("flows", _all_flows(changed=False))
    await stage.worker("flows:app")
    assert [await handle.result(timeout=30) for handle in handles] == [23] * len(handles)
    for number, handle in enumerate(handles):
        assert [e["what"] for e in stage.effects(run=handle.id)] == [_of(number, what) for what in ("first", "second", "last")]
    stage.whole()


async def test_a_step_in_back_off_that_was_renamed_holds_the_run(stage: Stage) -> None:
    """RB-23: an attempt is in the record before its outcome is."""
    stage.deploy("flows", CODE.replace("FAILS = False", "FAILS = True"))
    worker = await stage.worker("flows:app")
    handle = await stage.client.start_by_name("flow", id="r")
    await stage.status("r", "waiting")
    await stage.stop(worker)

    stage.deploy("flows", CODE.replace("second", "renamed"))
    worker = await stage.worker("flows:app")
    with stage.database() as database:  # its back-off of ten minutes is over
        database.execute("UPDATE attempts SET due = 1")
        database.execute("UPDATE runs SET wake_at = 1, queue_at = 1")
    held = await stage.status("r", "held", "failed", "succeeded")
    assert "'renamed'" in (held.hold_reason or "")
    await stage.stop(worker)

    stage.deploy("flows", CODE)
    await stage.worker("flows:app")
    await handle.send_event("go", 3)
    assert await handle.result(timeout=30) == 23
    assert [e["what"] for e in stage.effects()] == ["first", "second", "second", "last"]


async def test_what_the_record_does_not_hold_yet_may_change(stage: Stage) -> None:
    """RB-23's other side: only recorded commands are compared."""
    stage.deploy("flows", CODE)
    worker = await stage.worker("flows:app")
    handle = await stage.client.start_by_name("flow", id="r")
    await stage.status("r", "waiting")
    await stage.stop(worker)
    stage.deploy("flows", CODE.replace("last(two + event.payload)", "first(event.payload)"))
    await stage.worker("flows:app")
    await handle.send_event("go", 3)
    assert await handle.result(timeout=30) == 4


async def test_a_run_waits_for_the_worker_that_still_has_its_code(stage: Stage) -> None:
    """A rolling deploy: the new code hands the run back, the old code goes on with it, nobody is asked."""
    stage.deploy("flows", CODE)
    old = await stage.worker("flows:app")
    handle = await stage.client.start_by_name("flow", id="r")
    await stage.status("r", "waiting")
    stage.deploy("flows", CODE.replace("second", "renamed"))
    await stage.worker("flows:app")
    await stage.freeze(old)
    await handle.send_event("go", 3)
    await stage.until(lambda: stage.rows("SELECT excluded FROM runs") != [("",)], "the new code has handed it back")
    old.thaw()
    assert await handle.result(timeout=30) == 23
    assert [e["what"] for e in stage.effects()] == ["first", "second", "last"]
