"""How runs end: results, failures, retries, timeouts, holds, cancels."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta
from pathlib import Path

import pytest

import romulus
from romulus import Retry
from tests.worker.rig import eventually, world

CALLS: list[int] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    CALLS.clear()


class Refused(Exception):
    """The other side says no."""


@romulus.step(retry=Retry(max_attempts=3, initial=0.01))
async def flaky(fails: int) -> str:
    attempt = romulus.current_attempt()
    CALLS.append(attempt.number)
    if attempt.number <= fails:
        raise Refused(f"try {attempt.number}")
    return "done"


@romulus.step(retry=Retry(max_attempts=2, initial=0.01), timeout=0.05)
async def slow() -> None:
    CALLS.append(romulus.current_attempt().number)
    await asyncio.sleep(30)


@romulus.step(retry=Retry(max_attempts=2, initial=0.01), timeout=0.05)
def slow_thread() -> None:
    attempt = romulus.current_attempt()
    CALLS.append(attempt.number)
    while not attempt.cancelled:
        time.sleep(0.001)


@romulus.workflow
async def tries(fails: int) -> str:
    return await flaky(fails)


@romulus.workflow
async def times_out() -> str:
    try:
        await slow()
    except romulus.StepTimeout as error:
        return type(error).__name__
    return "no"


@romulus.workflow
async def thread_times_out() -> str:
    try:
        await slow_thread.aio()
    except TimeoutError as error:
        return type(error).__name__
    return "no"


@romulus.workflow
async def races() -> str:
    step = asyncio.ensure_future(slow.options(timeout=None)())
    await romulus.wait_for_event("begun")  # or the timeout may pass before the step has begun
    try:
        async with asyncio.timeout(0.01):
            await step
    except TimeoutError:
        return f"gave up after {len(CALLS)}"
    return "no"


@romulus.workflow
async def stuck() -> None:
    await asyncio.get_running_loop().create_future()


@romulus.workflow
async def sleeps() -> str:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        await flaky(0)
        raise
    return "no"


@romulus.workflow
async def spins() -> None:
    await flaky(0)
    while True:
        pass


@romulus.workflow
def sync_flow(n: int) -> int:
    romulus.blocking.sleep(timedelta(milliseconds=20))
    return len(flaky.blocking(0)) + n


@romulus.workflow
async def waits(order: str) -> str:
    try:
        event = await romulus.wait_for_event("packed", correlation_id=order, type=bool, timeout=60)
    except romulus.WaitTimeout:
        return "late"
    return f"packed {event.payload}"


@romulus.workflow
async def impatient() -> str:
    try:
        await romulus.wait_for_event("never", timeout=0.05)
    except romulus.WaitTimeout:
        return "late"
    return "no"


@romulus.workflow
async def counts(n: int) -> int:
    if n < 3:
        romulus.continue_as_new(counts, n + 1)
    return n


@romulus.workflow
async def gives_up() -> str:
    return await flaky(9)


async def test_a_run_that_failed_is_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "romulus.worker")
    async with world(tmp_path, gives_up) as here:
        await here.worker()
        run = await here.client.start(gives_up.options(id="g"))
        with pytest.raises(romulus.RunFailed):
            await run.result(timeout=30)
        await eventually(lambda: "run 'g' failed: Refused: try 3" in caplog.text)


async def test_a_failing_step_is_tried_again_with_growing_numbers(tmp_path: Path) -> None:
    async with world(tmp_path, tries) as w:
        await w.worker()
        assert await (await w.client.start(tries, 2)).result(timeout=20) == "done"
    assert CALLS == [1, 2, 3]


async def test_the_last_failure_is_raised_as_its_own_class(tmp_path: Path) -> None:
    async with world(tmp_path, tries) as w:
        await w.worker()
        handle = await w.client.start(tries, 5)
        with pytest.raises(romulus.RunFailed) as failed:
            await handle.result(timeout=20)
    assert isinstance(failed.value.__cause__, Refused)
    assert str(failed.value.__cause__) == "try 3"
    assert CALLS == [1, 2, 3]


@pytest.mark.parametrize("workflow", [times_out, thread_times_out])
async def test_an_attempt_past_its_timeout_ends_and_counts(tmp_path: Path, workflow: romulus.Workflow[[], str]) -> None:
    async with world(tmp_path, workflow) as w:
        await w.worker()
        assert await (await w.client.start(workflow)).result(timeout=20) == "StepTimeout"
    assert CALLS == [1, 2]


@romulus.step(timeout=60, retry=Retry(max_attempts=1))
async def gives_up_by_itself() -> None:
    await asyncio.sleep(0)
    raise TimeoutError("the other side is slow")


@romulus.workflow
async def told_which_timeout() -> str:
    try:
        await gives_up_by_itself()
    except TimeoutError as error:
        return f"{type(error).__name__}: {error}"
    return "in time"


async def test_a_timeout_that_a_body_raises_by_itself_is_not_taken_for_the_steps_own(tmp_path: Path) -> None:
    async with world(tmp_path, told_which_timeout) as w:
        await w.worker()
        assert await (await w.client.start(told_which_timeout)).result(timeout=20) == "TimeoutError: the other side is slow"


async def test_a_scope_that_times_out_withdraws_the_step_it_awaits(tmp_path: Path) -> None:
    async with world(tmp_path, races) as w:
        await w.worker()
        handle = await w.client.start(races)
        await eventually(lambda: len(CALLS) == 1)
        await w.client.send_event("begun", correlation_id=handle.id)
        assert await handle.result(timeout=20) == "gave up after 1"


async def test_a_run_that_nothing_can_wake_is_held_with_what_it_awaits(tmp_path: Path) -> None:
    async with world(tmp_path, stuck) as w:
        await w.worker()
        await w.client.start(stuck.options(id="r"))
        held = await w.until("r", "held")
    assert held.hold_reason is not None
    assert "nothing can wake this run" in held.hold_reason
    assert held.hold_reason.endswith("then `romulus runs release`, or cancel the run")


async def test_a_cancelled_run_cleans_up_durably_and_ends_cancelled(tmp_path: Path) -> None:
    async with world(tmp_path, sleeps) as w:
        await w.worker()
        handle = await w.client.start(sleeps.options(id="r"))
        await w.until("r", "waiting")
        assert await handle.cancel("enough") == "accepted"
        with pytest.raises(romulus.RunCancelled):
            await handle.result(timeout=20)
        assert [entry.kind for entry in await handle.history()] == ["cancel", "step"]
        assert await handle.cancel() == "already_terminal"
    assert CALLS == [1]


async def test_a_run_cancelled_before_it_starts_never_runs(tmp_path: Path) -> None:
    async with world(tmp_path, tries) as w:
        handle = await w.client.start(tries.options(delay=3600), 0)
        assert await handle.cancel() == "accepted"
        with pytest.raises(romulus.RunCancelled):
            await handle.result(timeout=20)
    assert CALLS == []


async def test_code_that_keeps_control_is_interrupted_and_its_outcome_saved(tmp_path: Path) -> None:
    async with world(tmp_path, spins) as w:
        await w.worker(activation_limit=200_000)
        handle = await w.client.start(spins.options(id="r"))
        held = await w.until("r", "held")
        assert held.hold_reason is not None
        assert "did not give control back" in held.hold_reason
        assert [entry.value for entry in await handle.history()] == ["done"]
    assert CALLS == [1]


async def test_a_def_workflow_runs_on_the_same_loop(tmp_path: Path) -> None:
    async with world(tmp_path, sync_flow) as w:
        await w.worker()
        assert await (await w.client.start(sync_flow, 5)).result(timeout=20) == 9


async def test_an_event_wakes_the_run_that_waits_for_it(tmp_path: Path) -> None:
    async with world(tmp_path, waits) as w:
        await w.worker()
        await w.client.send_event("packed", True, correlation_id="early")
        early = await w.client.start(waits, "early")
        late = await w.client.start(waits.options(id="late"), "late")
        await w.until("late", "waiting")
        await w.client.send_event("packed", False, correlation_id="late")
        assert await early.result(timeout=20) == "packed True"
        assert await late.result(timeout=20) == "packed False"


async def test_an_event_of_the_wrong_type_is_taken_as_bad_and_the_wait_goes_on(tmp_path: Path) -> None:
    async with world(tmp_path, waits) as w:
        await w.worker()
        handle = await w.client.start(waits.options(id="r"), "x")
        await w.client.send_event("packed", "not a bool at all", correlation_id="x")
        await eventually(lambda: w.rows("SELECT state FROM events") == [("bad",)])
        await w.client.send_event("packed", True, correlation_id="x")
        assert await handle.result(timeout=20) == "packed True"


async def test_a_wait_past_its_deadline_times_out(tmp_path: Path) -> None:
    async with world(tmp_path, impatient) as w:
        await w.worker()
        assert await (await w.client.start(impatient)).result(timeout=20) == "late"
        assert w.rows("SELECT count(*) FROM waits") == [(0,)]


async def test_a_run_continues_as_new_with_an_empty_journal(tmp_path: Path) -> None:
    async with world(tmp_path, counts) as w:
        await w.worker()
        handle = await w.client.start(counts.options(id="r"), 0)
        assert await handle.result(timeout=20) == 3
        assert (await handle.describe()).generation == 4
