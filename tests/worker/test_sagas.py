"""Sagas: undone in reverse order, durably, whatever ends the block."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import romulus
from tests.worker.rig import eventually, world

done: list[str] = []


class Broke(Exception): ...


@romulus.step
async def book(what: str) -> str:
    done.append(f"book {what}")
    return what


@romulus.step
async def unbook(what: str) -> None:
    done.append(f"unbook {what}")


@romulus.step
def unbook_sync(what: str) -> None:
    done.append(f"unbook {what} in a thread")


@romulus.step(retry=romulus.Retry(max_attempts=1))
async def fails(what: str) -> None:
    done.append(f"fail {what}")
    raise Broke(what)


@romulus.workflow
async def unbook_all(what: str) -> None:
    await unbook(f"{what} as a child")


@romulus.workflow
async def trip(ends: str) -> str:
    async with romulus.saga() as saga:
        saga.add(unbook, await book("hotel"))
        saga.add(unbook_sync, await book("car"))
        saga.add(unbook_all, await book("flight"))
        if ends == "broken undo":
            saga.add(fails, "undo")
        await romulus.wait_for_event("go")
        if ends != "well":
            raise Broke(ends)
    return "booked"


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


BOOKED = ["book hotel", "book car", "book flight"]
UNDONE = ["unbook flight as a child", "unbook car in a thread", "unbook hotel"]


async def test_a_block_that_ends_well_undoes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, trip) as here:
        await here.worker()
        handle = await here.client.start(trip, "well")
        await handle.send_event("go")

        assert await handle.result() == "booked"
    assert done == BOOKED


async def test_what_was_done_is_undone_in_reverse_order_and_the_error_goes_on(tmp_path: Path) -> None:
    async with world(tmp_path, trip) as here:
        await here.worker()
        handle = await here.client.start(trip, "badly")
        await handle.send_event("go")

        with pytest.raises(romulus.RunFailed) as failed:
            await handle.result()
        assert isinstance(failed.value.__cause__, Broke)
    assert done == BOOKED + UNDONE


async def test_a_cancelled_run_undoes_and_ends_cancelled(tmp_path: Path) -> None:
    async with world(tmp_path, trip) as here:
        await here.worker()
        handle = await here.client.start(trip, "cancelled")
        await here.until(handle.id, "waiting")
        await handle.cancel()

        with pytest.raises(romulus.RunCancelled):
            await handle.result()
    assert done == BOOKED + UNDONE


async def test_an_undo_that_fails_stops_no_other_and_each_is_reported(tmp_path: Path) -> None:
    async with world(tmp_path, trip) as here:
        await here.worker()
        handle = await here.client.start(trip, "broken undo")
        await handle.send_event("go")

        with pytest.raises(romulus.RunFailed, match="1 of 4 undo actions failed") as failed:
            await handle.result()
        group = failed.value.__cause__
        assert isinstance(group, ExceptionGroup)
        assert [str(error) for error in group.exceptions] == ["undo"]
        assert group.exceptions[0].__notes__ == ["raised while undoing with fails"]
        assert str(group.__cause__) == "broken undo"
    assert done == [*BOOKED, "fail undo", *UNDONE]


@romulus.operation(timeout=5, idempotent=True)
async def refund(op: romulus.Operation, what: str) -> None:
    done.append(f"refund {what}")


@romulus.operation(timeout=5, idempotent=True)
def refund_sync(op: romulus.Operation, what: str) -> None:
    done.append(f"refund {what} in a thread")


def leaves_python() -> None:
    raise SystemExit(3)


@romulus.workflow
async def paid_trip(ends: str) -> None:
    async with romulus.saga() as saga:
        saga.add(refund, "hotel")
        saga.add(refund_sync, "car")
        if ends == "undo exits":
            saga.add(leaves_python)
        raise {"exit": SystemExit(2), "group": BaseExceptionGroup("both", [SystemExit(2), Broke()])}.get(ends, Broke(ends))


@pytest.mark.parametrize("ends", ["error", "exit", "group", "undo exits"])
async def test_operations_undo_and_whatever_makes_the_run_fail_has_it_undone(tmp_path: Path, ends: str) -> None:
    async with world(tmp_path, paid_trip) as here:
        await here.worker()
        with pytest.raises(romulus.RunFailed):
            await (await here.client.start(paid_trip, ends)).result(timeout=20)
    assert done == ["refund car in a thread", "refund hotel"]


async def test_undoing_goes_on_after_the_worker_is_killed(tmp_path: Path) -> None:
    @romulus.workflow
    async def slow_undo() -> None:
        async with romulus.saga() as saga:
            saga.add(unbook, await book("hotel"))
            saga.add(pause)
            raise Broke

    async def pause() -> None:
        await romulus.wait_for_event("undo")

    async with world(tmp_path, slow_undo) as here:
        first = await here.worker()
        handle = await here.client.start(slow_undo)
        await here.until(handle.id, "waiting")
        await here.kill(first)
        assert done == ["book hotel"]
        await here.worker()
        await handle.send_event("undo")

        with pytest.raises(romulus.RunFailed):
            await handle.result()
    assert done == ["book hotel", "unbook hotel"]


async def test_a_further_cancel_within_the_code_does_not_interrupt_the_undoing(tmp_path: Path) -> None:
    async def undo_later() -> None:
        await asyncio.sleep(0.05)
        await unbook("late")

    @romulus.workflow
    async def impatient() -> str:
        async def inner() -> None:
            async with romulus.saga() as saga:
                saga.add(undo_later)
                await asyncio.sleep(3600)

        task = asyncio.ensure_future(inner())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        return "cancelled" if task.cancelled() else "not"

    async with world(tmp_path, impatient) as here:
        await here.worker()

        assert await (await here.client.start(impatient)).result() == "cancelled"
    assert done == ["unbook late"]


async def test_a_dropped_instance_undoes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, trip) as here:
        worker = await here.worker()
        handle = await here.client.start(trip, "dropped")
        await here.until(handle.id, "waiting")
        await here.kill(worker)

        assert done == BOOKED
        await handle.terminate()
        await here.worker()
        await eventually(lambda: here.rows("SELECT status FROM runs") == [("terminated",)])
    assert done == BOOKED


async def test_a_saga_outside_a_run_says_what_to_write() -> None:
    with pytest.raises(romulus.NotInRun, match="for workflow code"):
        romulus.saga()
