"""Sagas: undone in reverse order, durably, whatever ends the block."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

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


async def undo_for_long() -> None:
    await asyncio.sleep(0.05)
    await unbook("late")


async def broken_for_long() -> None:
    await asyncio.sleep(0.05)
    raise Broke("undo")


async def tries(*, broken: bool = False) -> str:
    """As code that goes on after an attempt that failed."""
    try:
        async with romulus.saga() as saga:
            saga.add(unbook, "first")
            saga.add(broken_for_long if broken else undo_for_long)
            raise Broke("attempt")
    except Exception as error:
        return repr(error)


@romulus.workflow
async def timed(broken: bool) -> str:
    outer = asyncio.current_task()
    assert outer is not None
    try:
        async with asyncio.timeout(3600), asyncio.timeout(0.01):
            return await tries(broken=broken)
    except TimeoutError as late:
        assert late.__cause__ is not None
        return f"{late!r} while {late.__cause__.__cause__!r}; {outer.cancelling()} cancels left"
    except BaseExceptionGroup as group:
        return f"{group.message}: {[repr(each) for each in group.exceptions]} while {group.__cause__!r}; {outer.cancelling()} cancels left"


@romulus.workflow
async def grouped() -> str:
    went_on: list[str] = []

    async def one() -> None:
        went_on.append(await tries())

    async def other() -> None:
        await asyncio.sleep(0.01)
        raise Broke("other")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(one())
            group.create_task(other())
    except* Broke as broke:
        went_on.append(repr(broke.exceptions))
    return str(went_on)


async def test_a_cancel_that_comes_while_an_error_is_undone_is_delivered_after_it(tmp_path: Path) -> None:
    async with world(tmp_path, timed, grouped) as here:
        await here.worker()

        assert await (await here.client.start(timed, False)).result() == "TimeoutError() while Broke('attempt'); 0 cancels left"
        assert await (await here.client.start(timed, True)).result() == (
            "1 of 2 undo actions failed, cancelled meanwhile: [\"Broke('undo')\", 'CancelledError()'] "
            "while Broke('attempt'); 0 cancels left"
        )
        assert await (await here.client.start(grouped)).result() == "[\"(Broke('other'),)\"]"
    assert done == ["unbook late", "unbook first", "unbook first", "unbook late", "unbook first"]


async def attempts(broken: bool) -> str:
    async def undo() -> None:
        await romulus.wait_for_event("undo")
        if broken:
            raise Broke("undo")

    for _ in range(3):
        try:
            async with romulus.saga() as saga:
                saga.add(unbook, await book("shop"))
                saga.add(undo)
                raise Broke("sold out")
        except Exception:
            pass
    return "none"


@romulus.workflow
async def shops(broken: bool) -> str:
    return await attempts(broken)


@romulus.workflow
async def shops_split(broken: bool) -> None:
    try:
        await attempts(broken)
    except* Broke:
        done.append("undo failed")


@pytest.mark.parametrize(("workflow", "broken"), [(shops, False), (shops, True), (shops_split, True)])
async def test_the_only_cancel_of_a_run_is_not_lost_if_it_comes_while_an_error_is_undone(
    tmp_path: Path, workflow: Any, broken: bool
) -> None:
    failed = broken and workflow is shops
    async with world(tmp_path, workflow) as here:
        first = await here.worker()
        handle = await here.client.start(workflow, broken)
        await here.until(handle.id, "waiting")
        await handle.cancel()
        await eventually(lambda: here.rows("SELECT count(*) FROM journal WHERE kind = 'cancel'") == [(1,)])
        await here.kill(first)
        await here.worker()
        await handle.send_event("undo")

        with pytest.raises(romulus.RunFailed if failed else romulus.RunCancelled) as ended:
            await handle.result()
        if failed:
            group = ended.value.__cause__
            assert isinstance(group, BaseExceptionGroup)
            assert str(group.exceptions[0]) == "undo"
            assert str(group.__cause__) == "sold out"
    assert done == ["book shop", "unbook shop", *(["undo failed"] if broken and not failed else [])]


class Rude(BaseException): ...


@romulus.workflow
async def rude(ends: str) -> None:
    async def reminder() -> None:
        await romulus.wait_for_event("remind")

    async def stop_reminder() -> None:
        reminders.cancel()
        await reminders

    async def cancels_all() -> None:
        for task in asyncio.all_tasks():
            task.cancel()
        await asyncio.sleep(0)

    async def raises() -> None:
        raise Rude("undo")

    async with romulus.saga() as saga:
        saga.add(unbook, "hotel")
        reminders = asyncio.ensure_future(reminder())
        await asyncio.sleep(0)
        saga.add({"cancelled": stop_reminder, "all cancelled": cancels_all, "rude": raises}[ends])
        raise Broke("trip")


@pytest.mark.parametrize(("ends", "reported"), [("cancelled", "CancelledError"), ("all cancelled", "CancelledError"), ("rude", "Rude")])
async def test_an_undo_that_raises_what_is_no_exception_stops_no_other(tmp_path: Path, ends: str, reported: str) -> None:
    async with world(tmp_path, rude) as here:
        await here.worker()
        with pytest.raises(romulus.RunFailed, match="1 of 2 undo actions failed") as failed:
            await (await here.client.start(rude, ends)).result()
        group = failed.value.__cause__
        assert isinstance(group, BaseExceptionGroup)
        assert isinstance(group.__cause__, Broke)
        first = group.exceptions[0]
        assert isinstance(first, romulus.StepFailed)
        assert first.type_name == reported
    assert done == ["unbook hotel"]


@romulus.workflow
async def used_again() -> str:
    scope, undone = romulus.saga(), list[str]()
    async with scope as saga:
        saga.add(undone.append, "of a block that ended well")
    try:
        async with scope as saga:
            saga.add(undone.append, "of the block that failed")
            raise Broke
    except Broke:
        pass
    try:
        async with scope, scope:
            return "two at once"
    except romulus.DefinitionError as error:
        return f"{undone}: {error}"


async def test_a_saga_used_again_has_forgotten_the_blocks_that_ended_and_is_one_block_at_a_time(tmp_path: Path) -> None:
    async with world(tmp_path, used_again) as here:
        await here.worker()

        said = await (await here.client.start(used_again)).result()
        assert said.startswith("['of the block that failed']: the block of this saga has not ended")
