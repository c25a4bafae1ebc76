"""Events and timers as workflow code meets them: shared, late, given back, past their deadline."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import romulus
from romulus.client import AsyncClient
from romulus.host import RealHost
from tests.worker.rig import World, eventually, world


@romulus.workflow
async def one(shared: bool = False, include_late: bool = False) -> str:
    event = await romulus.wait_for_event("paid", correlation_id="o-1", type=str, shared=shared, include_late=include_late)
    return event.payload


@romulus.workflow
async def twice(include_late: bool) -> str:
    try:
        await romulus.wait_for_event("paid", correlation_id="o-1", type=str, timeout=0.001)
    except romulus.WaitTimeout:
        await romulus.wait_for_event("again")
    try:
        event = await romulus.wait_for_event("paid", correlation_id="o-1", type=str, timeout=0.05, include_late=include_late)
    except romulus.WaitTimeout:
        return "none"
    return event.payload


async def waiting(here: World, count: int) -> None:
    await eventually(lambda: here.rows("SELECT count(*) FROM waits")[0][0] == count)


async def states(client: AsyncClient) -> dict[str, str]:
    return {event.id: event.state for event in await client.events()}


async def test_an_event_is_consumed_by_the_oldest_open_wait_alone(tmp_path: Path) -> None:
    async with world(tmp_path, one) as here:
        await here.worker()
        first = await here.client.start(one)
        await waiting(here, 1)
        second = await here.client.start(one)
        await waiting(here, 2)
        await here.client.send_event("paid", "1", correlation_id="o-1")
        assert await first.result() == "1"
        await here.client.send_event("paid", "2", correlation_id="o-1")
        assert await second.result() == "2"


async def test_every_shared_wait_gets_the_event(tmp_path: Path) -> None:
    async with world(tmp_path, one) as here:
        await here.worker()
        handles = [await here.client.start(one, True) for _ in range(5)]
        await waiting(here, 5)
        await here.client.send_event("paid", "all", correlation_id="o-1")

        assert [await handle.result() for handle in handles] == ["all"] * 5


async def test_events_sent_one_after_anothers_receipt_are_taken_in_that_order(tmp_path: Path) -> None:
    @romulus.workflow
    async def ten() -> list[int]:
        return [(await romulus.wait_for_event("n", type=int)).payload for _ in range(10)]

    async with world(tmp_path, ten) as here:
        handle = await here.client.start(ten)
        for n in range(10):
            await handle.send_event("n", n)
        await here.worker()

        assert await handle.result() == list(range(10))


async def test_a_wait_that_the_code_gives_up_consumes_nothing(tmp_path: Path) -> None:
    @romulus.workflow
    async def gives_up() -> str:
        pending = asyncio.ensure_future(romulus.wait_for_event("paid", correlation_id="o-1"))
        await romulus.wait_for_event("stop")
        pending.cancel()
        await romulus.wait_for_event("end")
        return "ended"

    async with world(tmp_path, gives_up, one) as here:
        await here.worker()
        handle = await here.client.start(gives_up)
        await waiting(here, 2)
        await handle.send_event("stop")
        await eventually(lambda: here.rows("SELECT name FROM waits") == [("end",)])
        receipt = await here.client.send_event("paid", "kept", correlation_id="o-1")
        assert (await states(here.client))[receipt.id] == "unmatched"
        assert await (await here.client.start(one)).result() == "kept"
        await handle.send_event("end")
        assert await handle.result() == "ended"


async def test_an_unconsumed_event_is_given_back_when_the_run_continues_as_new(tmp_path: Path) -> None:
    async with world(tmp_path, begins_again) as here:
        handle = await here.client.start(begins_again, 1)
        await handle.send_event("go")
        await here.client.send_event("paid", "kept", correlation_id="o-1")
        await here.worker()

        assert await handle.result() == "kept"
        assert (await handle.describe()).generation == 2


@romulus.workflow
async def begins_again(left: int) -> str:
    paid = asyncio.ensure_future(romulus.wait_for_event("paid", correlation_id="o-1", type=str))
    if left:
        await romulus.wait_for_event("go")
        romulus.continue_as_new(begins_again, left - 1)
    return (await paid).payload


@pytest.mark.parametrize("workflow", ["deadline", "timeout"])
async def test_a_deadline_in_the_past_times_out_at_once_and_is_recorded(tmp_path: Path, workflow: str) -> None:
    @romulus.workflow
    async def past(how: str) -> str:
        try:
            if how == "deadline":
                await romulus.wait_for_event("paid", deadline=datetime(2020, 1, 1, tzinfo=UTC))
            else:
                await romulus.wait_for_event("paid", timeout=0)
        except romulus.WaitTimeout:
            return "timed out"
        return "came"

    async with world(tmp_path, past) as here:
        await here.worker()
        handle = await here.client.start(past, workflow)

        assert await handle.result() == "timed out"
        assert [(entry.kind, entry.error) for entry in await handle.history()] == [("wait", "deadline passed")]


async def test_a_negative_sleep_is_over_at_once_in_async_code_and_refused_in_def_code(tmp_path: Path) -> None:
    @romulus.workflow
    async def negative() -> str:
        await asyncio.sleep(-5)
        return "over"

    @romulus.workflow
    def negative_sync() -> str:
        try:
            romulus.blocking.sleep(-5)
        except ValueError as error:
            return str(error)
        return "over"

    async with world(tmp_path, negative, negative_sync) as here:
        await here.worker()

        assert await (await here.client.start(negative)).result() == "over"
        assert "duration" in await (await here.client.start(negative_sync)).result()


async def test_a_run_past_its_own_timeout_is_cancelled_and_ends_failed(tmp_path: Path) -> None:
    cleaned = []

    @romulus.step
    async def clean() -> None:
        cleaned.append(1)

    @romulus.workflow(timeout=0.05)
    async def slow() -> None:
        try:
            await romulus.wait_for_event("never")
        finally:
            await clean()

    async with world(tmp_path, slow, steps=[clean]) as here:
        await here.worker()
        with pytest.raises(romulus.RunFailed, match="went on past its timeout"):
            await (await here.client.start(slow)).result()
        assert cleaned == [1]
        assert (await here.client.runs())[0].deadline is not None


@pytest.mark.parametrize("option", ["delay", "start_at"])
async def test_a_run_that_is_to_start_later_does_not_start_before(tmp_path: Path, option: str) -> None:
    @romulus.workflow
    async def started() -> float:
        return romulus.now().timestamp()

    async with world(tmp_path, started) as here:
        await here.worker()
        due = datetime.now(UTC) + timedelta(seconds=0.3)
        later = started.options(delay=0.3) if option == "delay" else started.options(start_at=due)
        handle = await here.client.start(later)
        assert (await handle.describe()).status == "scheduled" or time.time() >= due.timestamp()

        assert await handle.result() >= due.timestamp() - 0.001
        assert time.time() >= due.timestamp()


async def test_a_run_cancelled_before_its_start_never_starts(tmp_path: Path) -> None:
    async with world(tmp_path, one) as here:
        await here.worker()
        handle = await here.client.start(one.options(delay=timedelta(days=400)))
        assert await handle.cancel() == "accepted"

        assert (await handle.describe()).status == "cancelled"
        assert (await handle.describe()).started_at is None


async def test_code_that_does_not_end_after_a_cancel_is_stopped_when_its_time_is_over(tmp_path: Path) -> None:
    @romulus.workflow
    async def stubborn() -> None:
        while True:
            try:
                await romulus.wait_for_event("never")
            except asyncio.CancelledError:
                continue

    async with world(tmp_path, stubborn) as here:
        first = await here.worker(cancel_grace=200_000)
        handle = await here.client.start(stubborn)
        await here.until(handle.id, "waiting")
        await handle.cancel("enough")
        await eventually(lambda: here.rows("SELECT position, status FROM runs") == [(1, "waiting")])
        await here.kill(first)  # its time counts from the cancel, whoever has the run
        await here.worker(cancel_grace=200_000)

        with pytest.raises(romulus.RunCancelled, match="enough"):
            await handle.result()
        assert "its clean-up is incomplete" in ((await handle.describe()).error or "")
        assert here.rows("SELECT count(*) FROM waits") == [(0,)]


async def test_a_second_cancel_does_not_interrupt_the_clean_up(tmp_path: Path) -> None:
    @romulus.workflow
    async def cleans() -> None:
        try:
            await romulus.wait_for_event("never")
        finally:
            await romulus.wait_for_event("cleaned")
            romulus.set_attributes(cleaned=True)

    async with world(tmp_path, cleans) as here:
        await here.worker()
        handle = await here.client.start(cleans)
        await here.until(handle.id, "waiting")
        await handle.cancel()
        await eventually(lambda: here.rows("SELECT name FROM waits") == [("cleaned",)])
        assert await handle.cancel() == "accepted"
        await handle.send_event("cleaned")

        with pytest.raises(romulus.RunCancelled):
            await handle.result()
        assert (await handle.describe()).attributes == {"cleaned": True}


@romulus.workflow
async def begins_anew(passes: int) -> str:
    if passes == 0:
        return "escaped"
    try:
        await romulus.wait_for_event("never")
    except asyncio.CancelledError:
        romulus.continue_as_new(begins_anew, passes - 1)
    return "went on"


async def test_a_cancelled_run_does_not_continue_as_new(tmp_path: Path) -> None:
    async with world(tmp_path, begins_anew) as here:
        await here.worker()
        handle = await here.client.start(begins_anew.options(id="r"), 1)
        await here.until("r", "waiting")
        assert await handle.cancel("no longer wanted") == "accepted"

        with pytest.raises(romulus.RunCancelled, match="no longer wanted"):
            await handle.result(timeout=20)
        assert (await handle.describe()).generation == 1


async def test_a_run_past_its_own_timeout_does_not_continue_as_new(tmp_path: Path) -> None:
    async with world(tmp_path, begins_anew) as here:
        await here.worker()
        handle = await here.client.start(begins_anew.options(timeout=0.1), 1)

        with pytest.raises(romulus.RunFailed, match="went on past its timeout"):
            await handle.result(timeout=20)


@romulus.workflow(timeout=0.3)
async def polls(left: int) -> str:
    await asyncio.sleep(0.01)
    if left > 0:
        romulus.continue_as_new(polls, left - 1)
    return str((await romulus.wait_for_event("go")).payload)


def deadline_and_timeouts(here: World) -> tuple[int, int, set[int]]:
    """Return when a run is to end, when it would by the start of its first generation, and the timeouts of its generations, in µs."""
    ((deadline,),) = here.rows("SELECT deadline FROM runs")
    generations = here.rows("SELECT started_at, timeout FROM generations ORDER BY number")
    started_at, timeout = generations[0]
    return deadline, started_at + timeout, {each for _, each in generations}


async def test_the_timeout_of_a_run_goes_on_over_its_generations_and_begins_anew_with_a_retry(tmp_path: Path) -> None:
    async with world(tmp_path, polls) as here:
        await here.worker()
        handle = await here.client.start(polls, 3)
        with pytest.raises(romulus.RunFailed, match="went on past its timeout"):
            await handle.result(timeout=20)
        deadline, first, timeouts = deadline_and_timeouts(here)
        assert (deadline, timeouts, (await handle.describe()).generation) == (first, {300_000}, 4)

        await handle.retry()
        with pytest.raises(romulus.RunFailed, match="went on past its timeout"):
            await handle.result(timeout=20)
        assert deadline_and_timeouts(here)[0] > deadline


@pytest.mark.parametrize("seconds", [0.2, 3600])
async def test_a_timeout_given_at_the_start_holds_for_every_generation_whatever_the_workflow_declares(
    tmp_path: Path, seconds: float
) -> None:
    async with world(tmp_path, polls) as here:
        await here.worker()
        handle = await here.client.start(polls.options(timeout=seconds), 3)
        if seconds < 1:
            with pytest.raises(romulus.RunFailed, match="went on past its timeout"):
                await handle.result(timeout=20)
        else:
            await handle.send_event("go", "in time")
            assert await handle.result() == "in time"
        deadline, first, timeouts = deadline_and_timeouts(here)
        assert (deadline, timeouts) == (first, {seconds * 1_000_000})


async def test_a_cancel_comes_before_events_that_wait_already(tmp_path: Path) -> None:
    @romulus.workflow
    async def either() -> str:
        try:
            await romulus.wait_for_event("go")
        except asyncio.CancelledError:
            romulus.set_attributes(seen="cancel")
            raise
        romulus.set_attributes(seen="event")
        return "event"

    async with world(tmp_path, either) as here:
        first = await here.worker()
        handle = await here.client.start(either)
        await here.until(handle.id, "waiting")
        await here.stop(first)
        await handle.send_event("go")
        await handle.cancel()
        await here.worker()

        with pytest.raises(romulus.RunCancelled):
            await handle.result()
        assert (await handle.describe()).attributes == {"seen": "cancel"}
        assert list((await states(here.client)).values()) == ["unmatched"]


async def test_a_held_run_is_cancelled_through_its_code(tmp_path: Path) -> None:
    @romulus.workflow
    async def stuck() -> None:
        await asyncio.get_running_loop().create_future()

    async with world(tmp_path, stuck) as here:
        await here.worker()
        handle = await here.client.start(stuck)
        await here.until(handle.id, "held")
        await handle.cancel()

        with pytest.raises(romulus.RunCancelled):
            await handle.result()


async def test_a_def_step_is_told_that_its_outcome_is_no_longer_wanted(tmp_path: Path) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    running = asyncio.Event()

    @romulus.step
    def works() -> None:
        attempt = romulus.current_attempt()
        loop.call_soon_threadsafe(running.set)
        while not attempt.cancelled:
            time.sleep(0.001)
        loop.call_soon_threadsafe(told.set)

    @romulus.workflow
    async def calls() -> None:
        await works.aio()

    async with world(tmp_path, calls, steps=[works]) as here:
        await here.worker()
        handle = await here.client.start(calls)
        await running.wait()
        await handle.cancel()
        await told.wait()

        with pytest.raises(romulus.RunCancelled):
            await handle.result()


async def test_the_timer_of_a_run_at_work_is_due_by_the_stores_clock_though_the_machine_slept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_store: str
) -> None:
    """While a machine is suspended its monotonic clock, and so the event loop's, stands still; the store's does not."""
    at_work = asyncio.Event()
    slept = [0]
    monkeypatch.setattr(RealHost, "wall", lambda _: time.time_ns() // 1_000 + slept[0])

    @romulus.step
    async def works() -> None:
        at_work.set()
        await asyncio.Event().wait()

    @romulus.workflow
    async def limited() -> str:
        try:
            async with asyncio.timeout(3_600):
                await works()
        except TimeoutError:
            return "out of time"
        return "done"

    async with world(tmp_path, limited, steps=[works]) as here:
        await here.worker()
        handle = await here.client.start(limited)
        await at_work.wait()
        if on_store == "sqlite":
            slept[0] = 7_200_000_000
        else:
            assert World.database_used is not None
            World.database_used.set_ahead(7_200_000_000)

        assert await handle.result() == "out of time"


async def test_many_timers_due_at_once_do_not_keep_other_work_waiting(tmp_path: Path) -> None:
    @romulus.workflow
    async def sleeps(until: float) -> None:
        await asyncio.sleep(until - romulus.now().timestamp())

    @romulus.workflow
    async def quick() -> str:
        return "done"

    async with world(tmp_path, sleeps, quick) as here:
        handles = [await here.client.start(sleeps, time.time() + 1.5) for _ in range(400)]
        await here.worker(runs_max=20, cache_max=0, claim_max=5)
        await eventually(lambda: here.rows("SELECT count(*) FROM runs WHERE finished_at IS NOT NULL")[0][0] > 0)
        assert await (await here.client.start(quick)).result() == "done"

        left = here.rows("SELECT count(*) FROM runs WHERE workflow = 'sleeps' AND finished_at IS NULL")[0][0]
        assert left > 100  # served between them, not behind them
        for handle in handles:
            await handle.result()
