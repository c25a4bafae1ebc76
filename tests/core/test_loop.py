"""The deterministic loop: alone with its run, inside another loop, and with nothing outside within reach."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest
import uvloop

from romulus.core.commands import Failed, Returned
from romulus.core.errors import ActivationTimeout, NondeterminismRefused
from romulus.core.failures import load_failure
from romulus.core.instance import current
from tests.core.rig import Rig, step


@step
def work(n: int) -> int:
    return n


# ---- inside another loop ----------------------------------------------------------------------------


def outside_state() -> tuple[Any, ...]:
    return asyncio._get_running_loop(), sys.get_asyncgen_hooks(), asyncio.current_task(), current()


async def several() -> list[int]:
    async def numbers() -> AsyncIterator[int]:
        for n in range(3):
            yield await work(n)

    found = [n async for n in numbers()]
    async with asyncio.timeout(5):
        return found + list(await asyncio.gather(work(1), work(2)))


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_activation_inside_a_running_loop_leaves_everything_as_it_was(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    loop = new_loop()
    seen: list[bool] = []

    def in_a_callback(done: asyncio.Future[None]) -> None:
        before = outside_state()
        rig = Rig(several).start()
        while rig.instance.outcome is None:
            seen.append(outside_state() == before)
            rig.settle(rig.ready()[0])
        rig.instance.close()
        seen.append(outside_state() == before)
        seen.append(isinstance(rig.instance.outcome, Returned))
        done.set_result(None)

    async def main() -> None:
        done = asyncio.get_running_loop().create_future()
        task = asyncio.current_task()
        asyncio.get_running_loop().call_soon(in_a_callback, done)
        await done
        seen.append(asyncio.current_task() is task)

        async def still_works() -> AsyncIterator[int]:
            yield 1

        async for _ in still_works():
            await asyncio.sleep(0)

    try:
        loop.run_until_complete(main())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    assert len(seen) > 5
    assert all(seen)


async def test_an_activation_inside_a_task_leaves_the_task_current() -> None:
    before = outside_state()

    rig = Rig(several).run()

    assert outside_state() == before
    assert isinstance(rig.instance.outcome, Returned)


def test_an_activation_that_is_broken_off_restores_what_ran_before() -> None:
    async def hangs() -> None:
        raise ActivationTimeout

    rig = Rig(hangs)
    with pytest.raises(ActivationTimeout):
        rig.start()

    assert asyncio._get_running_loop() is None
    assert sys.get_asyncgen_hooks() == (None, None)
    assert rig.instance.outcome is None


def test_an_activation_timeout_that_the_code_swallows_ends_the_activation_all_the_same() -> None:
    rigs: list[Rig] = []

    async def swallows() -> int:
        await work(1)
        try:
            rigs[0].instance.interrupt()  # as the watchdog does, from its thread
            raise ActivationTimeout
        except BaseException:
            asyncio.current_task()
        await asyncio.sleep(0)
        return await work(2)

    rigs.append(Rig(swallows).start())
    with pytest.raises(ActivationTimeout):
        rigs[0].settle(rigs[0].seq(1))

    assert rigs[0].instance.outcome is None
    rigs[0].instance.close()


def test_as_completed_on_other_loops_is_asyncios_own() -> None:
    async def plain() -> list[int]:
        async def value(n: int) -> int:
            return n

        return sorted([await each for each in asyncio.as_completed([value(n) for n in range(3)], timeout=1)])

    assert asyncio.run(plain()) == [0, 1, 2]
    with pytest.raises(TypeError):
        asyncio.run(one_future_only())


async def one_future_only() -> None:
    for each in asyncio.as_completed(asyncio.get_running_loop().create_future()):  # type: ignore[arg-type]
        await each


def test_gathered_futures_of_other_loops_keep_their_hash() -> None:
    async def plain() -> bool:
        outer = asyncio.gather(asyncio.sleep(0))
        try:
            return hash(outer) == object.__hash__(outer)
        finally:
            await outer

    assert asyncio.run(plain())


def test_all_tasks_are_the_runs_own() -> None:
    async def counts() -> int:
        asyncio.create_task(work(1))  # noqa: RUF006
        return len(asyncio.all_tasks())

    async def main() -> tuple[int, Any]:
        return len(asyncio.all_tasks()), Rig(counts).start().instance.outcome

    outside, outcome = asyncio.run(main())
    assert outside == 1
    assert outcome == Returned(b"2")


# ---- nothing outside is within reach -------------------------------------------------------------------


def loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


REACHES: list[tuple[str, Callable[[], Any]]] = [
    ("run_in_executor", lambda: asyncio.to_thread(os.getpid)),
    ("run_in_executor", lambda: loop().run_in_executor(None, os.getpid)),
    ("create_connection", lambda: asyncio.open_connection("localhost", 1)),
    ("create_server", lambda: asyncio.start_server(lambda r, w: None, "localhost", 0)),
    ("subprocess_exec", lambda: asyncio.create_subprocess_exec("true")),
    ("subprocess_shell", lambda: asyncio.create_subprocess_shell("true")),
    ("getaddrinfo", lambda: loop().getaddrinfo("localhost", 1)),
    ("sock_recv", lambda: loop().sock_recv(cast("Any", None), 1)),
    ("add_reader", lambda: loop().add_reader(0, print)),
    ("add_signal_handler", lambda: loop().add_signal_handler(signal.SIGTERM, print)),
    ("call_soon_threadsafe", lambda: loop().call_soon_threadsafe(print)),
    ("set_task_factory", lambda: loop().set_task_factory(None)),
    ("run_until_complete", lambda: loop().run_until_complete(loop().create_future())),
    ("stop", lambda: loop().stop()),
]


@pytest.mark.parametrize(("name", "reach"), REACHES, ids=[str(n) for n in range(len(REACHES))])
def test_reaching_outside_is_refused_with_what_to_do(name: str, reach: Callable[[], Any]) -> None:
    async def reaching() -> None:
        found = reach()
        if isinstance(found, Awaitable):
            await found

    rig = Rig(reaching).run()

    assert isinstance(rig.instance.outcome, Failed)
    error = load_failure(rig.instance.outcome.body)
    assert isinstance(error, NondeterminismRefused)
    assert f"loop.{name}()" in str(error)
    assert "put it in a step" in str(error)
    assert str(rig.instance.refusal) == str(error)


def test_every_method_of_an_event_loop_is_either_its_own_or_refused() -> None:
    from romulus.core.loop import WorkflowLoop

    inherited = {
        name
        for name, method in vars(asyncio.AbstractEventLoop).items()
        if callable(method) and not name.startswith("_") and getattr(WorkflowLoop, name) is method
    }

    assert inherited == set()


# ---- garbage -------------------------------------------------------------------------------------------


def test_a_finaliser_run_by_the_collector_asks_for_nothing_and_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    async def at_its_end() -> None:
        try:
            await loop().create_future()
        finally:
            await work(99)

    async def drops() -> int:
        cycle: list[Any] = [at_its_end()]
        cycle[0].send(None)
        cycle.append(cycle)
        del cycle
        gc.collect()
        return await work(1)

    rig = Rig(drops).run()

    assert [entry.seq for entry in rig.journal] == [1]
    assert rig.instance.outcome == Returned(b"1")
    assert capfd.readouterr().err == ""


def test_a_finaliser_run_between_activations_neither_asks_nor_acts(capfd: pytest.CaptureFixture[str]) -> None:
    acted: list[int] = []

    @step
    def act(n: int) -> None:
        acted.append(n)

    async def at_its_end() -> None:
        try:
            await loop().create_future()
        finally:
            await act(99)

    async def drops() -> int:
        cycle: list[Any] = [at_its_end()]
        cycle[0].send(None)
        cycle.append(cycle)
        del cycle
        return await work(1)

    gc.disable()
    try:
        rig = Rig(drops).start()
        gc.collect()
        rig.settle(rig.seq(1))
    finally:
        gc.enable()

    assert acted == []
    assert [entry.seq for entry in rig.journal] == [1]
    assert capfd.readouterr().err == ""


def test_a_task_that_nobody_holds_is_not_collected() -> None:
    async def drops() -> str:
        asyncio.create_task(asyncio.Event().wait())  # noqa: RUF006
        await work(1)
        gc.collect()
        return ",".join(sorted(task.get_name() for task in asyncio.all_tasks()))

    assert Rig(drops).run().instance.outcome == Returned(b'"Task-1,Task-2"')


def test_an_abandoned_generator_is_ended_with_the_run_and_not_before() -> None:
    ended: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            ended.append("generator")

    async def leaves() -> None:
        async for _ in numbers():
            break
        gc.collect()
        await work(1)
        ended.append("code")

    Rig(leaves).run()

    assert ended == ["code", "generator"]


def test_finished_tasks_and_generators_are_let_go() -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 1

    async def many() -> int:
        for _ in range(500):
            await asyncio.create_task(asyncio.sleep(0))
            async for _ in numbers():
                pass
        instance = current()
        assert instance is not None
        return max(len(instance.loop.tasks), len(instance.loop.generators))

    outcome = Rig(many).run().instance.outcome
    assert isinstance(outcome, Returned)
    assert int(outcome.body) <= 130


# ---- the watchdog's throw ----------------------------------------------------------------------------------


def test_a_throw_from_another_thread_ends_code_that_swallows_it() -> None:
    """As the worker's watchdog does it: the stop flag first, then the exception into the thread."""
    spinning, thread, rigs = threading.Event(), threading.get_ident(), list[Rig]()

    async def spins() -> int:
        while True:
            try:
                spinning.set()
                while True:
                    pass
            except BaseException:
                await asyncio.sleep(0)

    def throw() -> None:
        spinning.wait()
        rigs[0].instance.interrupt()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(ActivationTimeout))

    rigs.append(Rig(spins))
    watchdog = threading.Thread(target=throw)
    watchdog.start()
    with pytest.raises(ActivationTimeout):
        rigs[0].start()
    watchdog.join()

    assert asyncio._get_running_loop() is None
    assert sys.get_asyncgen_hooks() == (None, None)
    assert rigs[0].instance.outcome is None
    rigs[0].instance.close()


async def test_runs_side_by_side_in_one_process_do_not_meet() -> None:
    """Their activations alternate inside a task of another loop, each with its own time, tasks and names."""

    async def named(n: int) -> list[Any]:
        tasks = [asyncio.create_task(work(each)) for each in range(n)]
        await asyncio.wait(tasks)
        return [asyncio.get_running_loop().time(), *(task.get_name() for task in tasks)]

    rigs = [Rig(named, n).start() for n in range(1, 6)]
    while any(rig.instance.outcome is None for rig in rigs):
        for rig in rigs:
            if rig.instance.outcome is None:
                rig.settle(rig.ready()[0])
        await asyncio.sleep(0)

    for n, rig in enumerate(rigs, start=1):
        outcome = rig.instance.outcome
        assert isinstance(outcome, Returned)
        assert json.loads(outcome.body) == [n / 1000, *(f"Task-{each + 2}" for each in range(n))]
