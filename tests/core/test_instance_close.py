"""The end of an instance: what code leaves behind at its return, and code that is dropped in the middle."""

# ruff: noqa: SIM105 - code that swallows is the point
from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from romulus.core.commands import Returned
from romulus.core.errors import Dropped
from romulus.core.instance import current
from tests.core.rig import Rig, step


@step
def work(n: int) -> int:
    return n


@pytest.fixture(autouse=True)
def quiet(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Any:
    """Whatever is dropped is dropped without a word, now and when its garbage is collected."""
    yield
    gc.collect()
    assert capfd.readouterr().err == ""
    assert not caplog.records


# ---- at return ----------------------------------------------------------------------------------------


def test_tasks_left_at_return_are_cancelled_in_creation_order_and_their_commands_refused() -> None:
    ends: list[str] = []

    async def left(n: int) -> None:
        try:
            await work(n)
        except asyncio.CancelledError:
            ends.append(f"cancelled {n}")
            try:
                await work(100 + n)
            except Dropped:
                ends.append(f"refused {n}")
            raise

    async def returns() -> str:
        for n in range(5):
            asyncio.create_task(left(n))  # noqa: RUF006
        await work(50)
        return "done"

    rig = Rig(returns).start()
    rig.settle(rig.seq(1))

    assert rig.instance.outcome == Returned(b'"done"')
    assert ends == [f"{what} {n}" for n in range(5) for what in ("cancelled", "refused")]
    assert [line for line in rig.trace if line.startswith("withdraw")] == [f"withdraw {n}" for n in range(2, 7)]
    assert not rig.instance.open


def test_what_was_asked_for_in_the_activation_of_the_return_is_never_issued() -> None:
    async def returns() -> None:
        asyncio.create_task(work(1))  # noqa: RUF006
        asyncio.get_running_loop().call_later(5, print)
        await asyncio.sleep(0)

    rig = Rig(returns).start()

    assert rig.trace == []
    assert isinstance(rig.instance.outcome, Returned)


def test_a_timer_left_at_return_is_withdrawn() -> None:
    async def returns() -> None:
        asyncio.get_running_loop().call_later(5, print)
        await work(1)

    rig = Rig(returns).start()
    rig.settle(rig.seq(2))

    assert "withdraw 1" in rig.trace


def test_clean_up_after_the_return_cannot_change_the_outcome() -> None:
    async def left() -> None:
        try:
            await work(1)
        finally:
            instance = current()
            assert instance is not None
            instance.continue_as_new("other", "1", b"{}")

    async def returns() -> int:
        task = asyncio.create_task(left())
        await work(2)
        return 1 if task else 0

    rig = Rig(returns).start()
    rig.settle(rig.seq(1))

    assert rig.instance.outcome == Returned(b"1")


def test_a_failure_that_nobody_looked_at_is_noted_at_the_return() -> None:
    async def fails() -> None:
        await work(1)
        raise ValueError("lost")

    async def returns() -> int:
        task = asyncio.create_task(fails())
        await work(2)
        return 1 if task else 0

    rig = Rig(returns).start()
    rig.settle(rig.seq(2))
    rig.settle(rig.seq(1))

    assert [line for line in rig.trace if line.startswith("note")] == [
        "note Unhandled(message='Task exception was never retrieved', exception=ValueError('lost'))"
    ]


# ---- dropped -------------------------------------------------------------------------------------------


def test_a_dropped_instance_ends_its_code_in_creation_order_with_every_command_refused() -> None:
    ends: list[str] = []

    async def branch(n: int) -> None:
        try:
            await work(n)
        finally:
            for ask in (lambda: work(100 + n), lambda: asyncio.sleep(9)):
                try:
                    await ask()
                except Dropped:
                    ends.append(f"refused {n}")

    async def many() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for n in range(3):
                    group.create_task(branch(n))
        finally:
            ends.append("main")

    rig = Rig(many).start()
    rig.instance.close()

    assert ends == ["refused 0", "refused 0", "refused 1", "refused 1", "refused 2", "refused 2", "main"]
    assert rig.instance.take_issued() == rig.instance.take_withdrawn() == rig.instance.take_notes() == []
    assert rig.instance.outcome is None


def test_closing_again_does_nothing() -> None:
    async def waits() -> None:
        await work(1)

    rig = Rig(waits).start()
    rig.instance.close()
    rig.instance.close()
    Rig(waits).instance.close()  # never started


def test_a_dropped_instance_is_free_of_cycles() -> None:
    async def waits() -> None:
        await asyncio.gather(work(1), asyncio.sleep(3), work(2))

    gc.collect()
    gc.disable()
    try:
        rig = Rig(waits).start()
        gone = weakref.ref(rig.instance)
        rig.instance.close()
        del rig
        assert gone() is None
    finally:
        gc.enable()


def test_generators_and_context_managers_of_a_dropped_instance_are_closed() -> None:
    ends: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            try:
                await work(2)
            finally:
                ends.append("generator")

    async def waits() -> None:
        async for _ in numbers():
            await work(1)

    rig = Rig(waits).start()
    rig.instance.close()

    assert ends == ["generator"]


def test_tasks_begun_while_closing_are_ended_too() -> None:
    ends: list[str] = []

    async def waits() -> None:
        try:
            await work(1)
        finally:
            try:
                await asyncio.gather(asyncio.Event().wait(), asyncio.sleep(5))
            finally:
                ends.append("gathered")

    Rig(waits).start().instance.close()

    assert ends == ["gathered"]


async def swallows_steps() -> None:
    while True:
        try:
            await work(1)
        except BaseException:
            pass


async def swallows_sleeps() -> None:
    while True:
        try:
            await asyncio.sleep(1)
        except BaseException:
            pass


async def swallows_waiting() -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()
    while True:
        try:
            await queue.get()
        except BaseException:
            pass


async def swallows_in_tasks() -> None:
    while True:
        try:
            await asyncio.create_task(swallows_steps())
        except BaseException:
            pass


def swallows_sync() -> None:
    while True:
        try:
            work(1)
        except BaseException:
            pass


async def swallows_in_a_generator() -> None:
    async def numbers() -> AsyncIterator[int]:
        while True:
            try:
                yield 1
                await work(1)
            except BaseException:
                pass

    async for _ in numbers():
        await work(2)


@pytest.mark.parametrize(
    "fn",
    [swallows_steps, swallows_sleeps, swallows_waiting, swallows_in_tasks, swallows_sync, swallows_in_a_generator],
    ids=lambda fn: fn.__name__,
)
def test_code_that_swallows_everything_still_ends(fn: Callable[[], Any]) -> None:
    rig = Rig(fn).start()

    rig.instance.close()

    assert rig.instance.outcome is None
    assert rig.instance.take_issued() == []


def test_code_that_swallows_everything_ends_after_a_return_too() -> None:
    async def returns() -> int:
        asyncio.create_task(swallows_steps())  # noqa: RUF006
        asyncio.create_task(swallows_sleeps())  # noqa: RUF006
        await work(9)
        return 3

    rig = Rig(returns).start()
    rig.settle(rig.seq(1))

    assert rig.instance.outcome == Returned(b"3")


def test_an_instance_broken_off_by_the_watchdog_can_be_closed() -> None:
    from romulus.core.errors import ActivationTimeout

    rigs: list[Rig] = []

    async def hangs() -> None:
        try:
            rigs[0].instance.interrupt()
            raise ActivationTimeout
        finally:
            await work(1)

    rig = Rig(hangs)
    rigs.append(rig)
    with pytest.raises(ActivationTimeout):
        rig.start()
    rig.instance.close()


def test_calls_never_awaited_because_the_instance_was_dropped_make_no_noise() -> None:
    async def one_by_one() -> int:
        return sum([await call for call in [work(n) for n in range(10)]])

    rig = Rig(one_by_one).start()
    rig.settle(rig.seq(1))
    rig.instance.close()
