"""Calls in a run: the plain call for the same colour, `.aio` and `.blocking` across, and what the wrong one is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import romulus
from romulus import blocking
from romulus.core.commands import StepCall, TimerCall
from tests.authoring.runs import begin, deliver, ended, finish


@romulus.step
async def double(n: int) -> int:
    return n * 2


@romulus.step
def triple(n: int) -> int:
    return n * 3


def test_in_an_async_workflow_steps_of_both_colours_are_recorded_commands() -> None:
    @romulus.workflow
    async def calls(n: int) -> list[int]:
        return [await double(n), await triple.aio(n), await double.options(name="again")(n)]

    names: list[str] = []
    instance = begin(calls, 2)
    while instance.outcome is None:
        [command] = instance.open.values()
        names.append(command.name)
        deliver(instance, command, b"7")
    assert names == ["double", "triple", "again"]
    assert ended(instance) == [7, 7, 7]


def test_in_a_def_workflow_steps_of_both_colours_are_recorded_commands() -> None:
    @romulus.workflow
    def calls(n: int) -> list[int]:
        return [double.blocking(n), triple(n)]

    assert finish(begin(calls, 2)) == [4, 6]


def test_an_unawaited_call_does_nothing() -> None:
    @romulus.workflow
    async def forgets(n: int) -> int:
        double(n).close()
        return n

    instance = begin(forgets, 2)
    assert ended(instance) == 2
    assert instance.take_issued() == []


@pytest.mark.parametrize(
    ("call", "spelling"),
    [
        (lambda: triple(1), "await triple.aio(…)"),
        (lambda: double.blocking(1), "await double(…)"),
        (lambda: blocking.sleep(1), "await asyncio.sleep(…)"),
        (lambda: blocking.wait_for_event("paid"), "await romulus.wait_for_event(…)"),
        (lambda: blocking.map(double, [1]), "await asyncio.gather(*(step(item) for item in items))"),
    ],
)
def test_an_async_workflow_is_told_the_spelling_of_its_colour(call: Callable[[], Any], spelling: str) -> None:
    @romulus.workflow
    async def wrong() -> str:
        try:
            call()
        except romulus.WrongColour as error:
            return str(error)
        return "not refused"

    assert ended(begin(wrong)).endswith(f"write {spelling}")


@pytest.mark.parametrize(
    ("call", "spelling"),
    [
        (lambda: double(1), "double.blocking(…)"),
        (lambda: triple.aio(1), "triple(…)"),
        (lambda: romulus.wait_for_event("paid"), "romulus.blocking.wait_for_event(…)"),
    ],
)
def test_a_def_workflow_is_told_the_spelling_of_its_colour(call: Callable[[], Awaitable[Any]], spelling: str) -> None:
    @romulus.workflow
    def wrong() -> str:
        try:
            call()
        except romulus.WrongColour as error:
            return str(error)
        return "not refused"

    assert ended(begin(wrong)).endswith(f"write {spelling}")


@pytest.mark.parametrize("call", [lambda: blocking.sleep(1), lambda: blocking.map(double, []), lambda: blocking.wait_for_event("paid")])
def test_outside_a_run_there_is_nothing_to_block_on(call: Callable[[], Any]) -> None:
    with pytest.raises(romulus.NotInRun, match=r"romulus\.blocking\.\w+\(\) is for workflow code"):
        call()


def test_a_blocking_sleep_is_a_durable_timer() -> None:
    @romulus.workflow
    def sleeps() -> str:
        blocking.sleep(3600)
        return "rested"

    instance = begin(sleeps)
    [command] = instance.open.values()
    assert isinstance(command.detail, TimerCall)
    deliver(instance, command, at=3_600_000_000)
    assert ended(instance) == "rested"


@pytest.mark.parametrize("step", [double, triple])
def test_a_blocking_map_calls_at_once_and_returns_in_order(step: romulus.Step[[int], int] | romulus.SyncStep[[int], int]) -> None:
    @romulus.workflow
    def maps() -> list[int]:
        return blocking.map(step, [1, 2, 3])

    instance = begin(maps)
    commands = list(instance.open.values())
    assert len(commands) == 3
    for command, body in zip(reversed(commands), [b"30", b"20", b"10"], strict=True):
        deliver(instance, command, body)
    assert ended(instance) == [10, 20, 30]


def test_a_blocking_map_of_nothing_is_empty() -> None:
    @romulus.workflow
    def maps() -> list[int]:
        return blocking.map(double, [])

    assert ended(begin(maps)) == []


def test_the_first_failure_of_a_blocking_map_is_raised_and_the_rest_withdrawn() -> None:
    from romulus.core.failures import dump_failure

    @romulus.workflow
    def maps() -> str:
        try:
            blocking.map(double, [1, 2, 3])
        except ValueError as error:
            blocking.sleep(1)
            return str(error)
        return "not raised"

    instance = begin(maps)
    instance.take_issued()
    first, second, third = instance.open.values()
    deliver(instance, second, dump_failure(ValueError("second")), failed=True)
    assert {command.seq for command in instance.take_withdrawn()} == {first.seq, third.seq}
    [timer] = instance.open.values()
    deliver(instance, timer, at=1_000_000)
    assert ended(instance) == "second"


def test_wrong_arguments_raise_in_the_workflow_as_python_would() -> None:
    @romulus.workflow
    async def wrong() -> str:
        try:
            await double("x", 2, m=3)  # type: ignore[call-arg, arg-type]
        except TypeError as error:
            return str(error)
        return "not refused"

    assert "too many positional arguments" in ended(begin(wrong)) or "unexpected" in ended(begin(wrong))


def test_a_step_gets_a_copy_of_its_arguments() -> None:
    seen: list[list[int]] = []

    @romulus.step
    async def grows(items: list[int]) -> int:
        items.append(99)
        seen.append(items)
        return len(items)

    @romulus.workflow
    async def gives() -> list[int]:
        items = [1]
        await grows(items)
        return items

    instance = begin(gives)
    [command] = instance.open.values()
    assert isinstance(command.detail, StepCall)
    assert finish(instance) == [1]
    assert seen == [[1, 99]]


def test_a_step_called_inside_a_step_is_the_plain_function() -> None:
    @romulus.step
    async def outer(n: int) -> int:
        return await double(n) + 1

    @romulus.workflow
    async def calls() -> int:
        return await outer(4)

    assert finish(begin(calls)) == 9


def test_gather_in_an_async_workflow_calls_at_once() -> None:
    @romulus.workflow
    async def gathers() -> list[int]:
        return list(await asyncio.gather(double(1), triple.aio(1)))

    assert len(begin(gathers).open) == 2


def test_the_clean_up_of_a_dropped_instance_runs_no_step_as_a_plain_function() -> None:
    ran: list[str] = []

    @romulus.step
    async def note(what: str) -> None:
        ran.append(what)

    @romulus.step
    def note_sync(what: str) -> None:
        ran.append(what)

    @romulus.workflow
    async def cleans() -> None:
        try:
            await double(1)
        finally:
            await note("async")

    @romulus.workflow
    def cleans_blocking() -> None:
        try:
            double.blocking(1)
        finally:
            try:
                note.blocking("blocking")
            finally:
                note_sync("sync")

    for workflow in (cleans, cleans_blocking):
        begin(workflow).close()
    assert ran == []
