"""Waiting for a run: its value as its type, its failure with the cause, told and not polled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from romulus import AsyncClient, RunCancelled, RunFailed, RunHeld, RunNotFound, RunStatus, RunTerminated
from romulus.core.errors import IllegalTransition

from .world import FIXED, app_at, breaks, raises_itself, reached, stuck, total, waits_for, working


@pytest.fixture(autouse=True)
def nothing_fixed() -> None:
    FIXED.clear()


async def test_a_failed_run_raises_what_its_step_raised_as_the_cause(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handle = await client.start(breaks, "pump")

        with pytest.raises(RunFailed, match="pump is broken") as caught:
            await handle.result(timeout=30)

        assert isinstance(caught.value.__cause__, LookupError)
        assert (await handle.describe()).error == caught.value.error
        assert [run.error for run in await client.runs(status=RunStatus.FAILED)] == [caught.value.error]


async def test_a_failed_run_shows_where_its_step_raised(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handle = await client.start(breaks, "nowhere")
        with pytest.raises(RunFailed) as failed:
            await handle.result(timeout=30)

        traceback = (await handle.describe()).traceback
        assert traceback is not None
        assert "in fragile" in traceback
        assert failed.value.__notes__ == [f"The run's own traceback:\n{traceback}"]


async def test_a_run_of_another_connection_is_waited_for(tmp_path: Path) -> None:
    app = app_at(tmp_path)
    async with AsyncClient(app.source.url) as elsewhere:
        handle = await elsewhere.start(total, 1)
        waiting = asyncio.ensure_future(handle.result(timeout=30))
        async with app.worker():
            assert await waiting == 3


async def test_a_thousand_waiters_are_all_told(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handles = await asyncio.gather(*(client.start(total, n) for n in range(1_000)))

        results = await asyncio.gather(*(handle.result(timeout=60) for handle in handles))

        assert results == [n + 2 for n in range(1_000)]


async def test_a_timeout_ends_the_waiting_not_the_run(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handle = await client.start(waits_for.options(id="w"), "go")

        with pytest.raises(TimeoutError, match="has not ended within 0.05 s"):
            await handle.result(timeout=0.05)

        await handle.send_event("go", 3)
        assert await handle.result(timeout=30) == 3


async def test_a_timeout_says_where_the_run_stands_by_then(tmp_path: Path) -> None:
    app = app_at(tmp_path)
    async with app.client() as client:
        waiting, held = await client.start(waits_for, "go"), await client.start(stuck)
        waiters = [asyncio.ensure_future(handle.result(timeout=3)) for handle in (waiting, held)]
        async with app.worker():
            await reached(waiting, RunStatus.WAITING)
            await reached(held, RunStatus.HELD)
            told = [str(error) for error in await asyncio.gather(*waiters, return_exceptions=True)]

        assert told[0] == f"run {waiting.id!r} has not ended within 3 s, it is waiting; it goes on"
        assert told[1].startswith(f"run {held.id!r} has not ended within 3 s, it is held: ")


async def test_cancelled_and_terminated_runs_raise_as_such_with_the_reason(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        cancelled, terminated = await client.start(waits_for, "a"), await client.start(waits_for, "b")
        await reached(cancelled, RunStatus.WAITING)
        await reached(terminated, RunStatus.WAITING)
        assert await cancelled.cancel("no longer wanted") == "accepted"
        await terminated.terminate("enough")

        with pytest.raises(RunCancelled, match="no longer wanted"):
            await cancelled.result(timeout=30)
        with pytest.raises(RunTerminated, match="enough"):
            await terminated.result(timeout=30)


async def test_a_held_run_raises_only_where_that_is_asked_for(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handle = await client.start(stuck)

        with pytest.raises(RunHeld) as caught:
            await handle.result(timeout=30, raise_on_hold=True)

        assert caught.value.hold_reason == (await handle.describe()).hold_reason
        with pytest.raises(TimeoutError, match="it is held"):
            await handle.result(timeout=0.05)


async def test_what_is_not_there_is_not_found_by_every_method(tmp_path: Path) -> None:
    async with app_at(tmp_path).client() as client:
        handle = client.get("nobody")
        calls = [
            handle.result,
            handle.describe,
            handle.history,
            handle.cancel,
            handle.terminate,
            handle.retry,
            handle.release,
            handle.evidence,
        ]
        for call in calls:
            with pytest.raises(RunNotFound, match="nobody"):
                await call()
        with pytest.raises(RunNotFound):
            await handle.fork(0)
        with pytest.raises(RunNotFound):
            async for _ in handle.watch():
                pass


async def test_watching_shows_the_run_to_its_end(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handle = await client.start(waits_for, "go")
        seen = []
        async for run in handle.watch():
            seen.append((run.status, run.position))
            if run.status is RunStatus.WAITING:
                await handle.send_event("go", 1)

        assert seen[-1] == (RunStatus.SUCCEEDED, 4)
        assert [position for _, position in seen] == sorted(position for _, position in seen)


async def test_the_history_shows_values_failures_and_events(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handle = await client.start(waits_for, "go")
        receipt = await handle.send_event("go", 10**30)
        await handle.result(timeout=30)
        failed = await client.start(breaks, "pump")
        with pytest.raises(RunFailed):
            await failed.result(timeout=30)

        entries = await handle.history()
        assert [(entry.kind, entry.name, entry.value) for entry in entries] == [
            ("step", "add", 1), ("step", "add", 2), ("step", "add", 3), ("wait", "go", 10**30),
        ]  # fmt: skip
        assert entries[-1].event_id == receipt.id
        assert [(entry.value, entry.error is not None) for entry in await failed.history()] == [(2, False), (None, True)]


async def test_retry_goes_on_before_the_failed_step_and_runs_no_step_before_it_again(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handle = await client.start(breaks, "valve")
        with pytest.raises(RunFailed):
            await handle.result(timeout=30)
        before = await handle.history()

        FIXED.add("valve")
        await handle.retry()

        assert await handle.result(timeout=30) == "2 valve works"
        assert (await handle.history())[0] == before[0]
        assert (await handle.describe()).generation == 2


async def test_retry_of_a_run_failed_by_its_own_code_keeps_every_outcome(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handle = await client.start(raises_itself)
        with pytest.raises(RunFailed):
            await handle.result(timeout=30)
        before = await handle.history()

        FIXED.add("code")
        await handle.retry()

        await handle.result(timeout=30)
        assert await handle.history() == before


async def test_retry_of_a_cancelled_run_goes_on_as_if_it_had_not_been_cancelled(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handle = await client.start(waits_for, "go")
        await reached(handle, RunStatus.WAITING)
        await handle.cancel()
        await reached(handle, RunStatus.CANCELLED)

        await handle.retry()
        await handle.send_event("go", 4)

        assert await handle.result(timeout=30) == 4
        assert [entry.kind for entry in await handle.history()] == ["step", "step", "step", "wait"]


async def test_retry_and_release_are_refused_where_they_make_no_sense(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handle = await client.start(total, 1)
        await handle.result(timeout=30)

        with pytest.raises(IllegalTransition, match="succeeded cannot be retried"):
            await handle.retry()
        with pytest.raises(IllegalTransition, match="succeeded cannot be released"):
            await handle.release()


async def test_a_fork_is_a_new_run_with_the_prefix_and_leaves_the_original(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handle = await client.start(waits_for.options(id="w"), "go")
        await handle.send_event("go", 1)
        assert await handle.result(timeout=30) == 1
        before = await handle.history()

        first, second = await handle.fork(3), await handle.fork(0)
        await first.send_event("go", 5)
        await second.send_event("go", 6)

        assert (first.id, second.id) == ("w~1", "w~2")
        assert (await first.result(timeout=30), await second.result(timeout=30)) == (5, 6)
        assert (await first.history())[:3] == before[:3]
        assert await handle.history() == before


async def test_no_start_can_choose_the_id_of_a_fork(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handle = await client.start(total.options(id="t"), 1)
        await handle.result(timeout=30)

        for position in (0, 1):
            fork = await handle.fork(position)
            assert await client.get(fork.id, total).result(timeout=30) == 3
            with pytest.raises(ValueError, match="are made for children and forks"):
                await client.start_by_name("total", {"a": 1}, id=fork.id)


async def test_a_fork_at_a_position_that_is_not_there_or_behind_a_cancel_is_refused(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handle = await client.start(waits_for.options(id="w"), "go")
        await reached(handle, RunStatus.WAITING)
        await handle.cancel()
        await reached(handle, RunStatus.CANCELLED)

        with pytest.raises(ValueError, match="can be forked at 0 to"):
            await handle.fork(99)
        with pytest.raises(ValueError, match="was cancelled at position 3"):
            await handle.fork(4)
        assert (await handle.fork(3)).id == "w~1"
