"""Resources: opened in order, closed in reverse, found inside a step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime
from typing import Any

import pytest

import romulus
from romulus.authoring.current import Attempt, attempt_var
from romulus.authoring.resource import ResourceSet
from romulus.core.instance import RunInfo

RUN = RunInfo("run-1", "sell", "1", datetime(2026, 1, 1, tzinfo=UTC), "default", 1)
happened: list[str] = []


@pytest.fixture(autouse=True)
def nothing_happened() -> None:
    happened.clear()


def made(name: str, *, opening: Exception | None = None, closing: Exception | None = None) -> romulus.Resource[str]:
    async def opened() -> AsyncIterator[str]:
        if opening is not None:
            raise opening
        happened.append(f"open {name}")
        yield f"{name} value"
        happened.append(f"close {name}")
        if closing is not None:
            raise closing

    opened.__name__ = name
    return romulus.resource(opened)


def in_a_step(resources: ResourceSet | None, call: Callable[[], Any]) -> Any:
    """Call as the worker calls a body."""
    context = copy_context()
    context.run(attempt_var.set, Attempt(RUN, "charge", 0, 1, 1, b"seed", resources=resources))
    return context.run(call)


async def test_resources_open_in_order_and_close_in_reverse() -> None:
    resources = ResourceSet([made("a"), made("b")])
    await resources.open()
    await resources.close()
    assert happened == ["open a", "open b", "close b", "close a"]


async def test_a_step_gets_what_the_worker_opened() -> None:
    a = made("a")
    resources = ResourceSet([a])
    await resources.open()
    assert in_a_step(resources, a.get) == "a value"
    await resources.close()


async def test_an_override_is_given_instead_and_the_resource_stays_shut() -> None:
    a = made("a")
    resources = ResourceSet([a])
    resources.override(a, "fake")
    await resources.open()
    assert in_a_step(resources, a.get) == "fake"
    await resources.close()
    assert happened == []


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (lambda a: None, "resource 'a' is open only inside a step that a worker runs: call a.get() there"),
        (lambda a: ResourceSet([a]), "resource 'a' is not open: its worker has not started, or has stopped"),
        (lambda a: ResourceSet([]), "resource 'a' is not among the App's: add it to App(resources=[…])"),
    ],
)
def test_a_resource_that_is_not_open_says_why(resources: Callable[[Any], ResourceSet | None], message: str) -> None:
    a = made("a")
    with pytest.raises(romulus.NotInRun) as caught:
        in_a_step(resources(a), a.get)
    assert str(caught.value) == message


def test_outside_a_step_a_resource_says_where_it_is_open() -> None:
    with pytest.raises(romulus.NotInRun, match=r"call a\.get\(\) there"):
        made("a").get()


async def test_one_that_cannot_be_opened_is_named_and_those_before_it_are_closed() -> None:
    resources = ResourceSet([made("a"), made("b", opening=OSError("no route")), made("c")])
    with pytest.raises(romulus.ConfigurationError, match="resource 'b' could not be opened: OSError: no route") as caught:
        await resources.open()
    assert isinstance(caught.value.__cause__, OSError)
    assert happened == ["open a", "close a"]


async def test_one_that_cannot_be_closed_is_named_and_the_others_are_closed() -> None:
    resources = ResourceSet([made("a"), made("b", closing=OSError("gone"))])
    await resources.open()
    with pytest.raises(romulus.RomulusError, match="resource 'b' could not be closed: OSError: gone"):
        await resources.close()
    assert happened == ["open a", "open b", "close b", "close a"]
    await resources.close()


async def test_several_that_cannot_be_closed_are_all_named() -> None:
    resources = ResourceSet([made("a", closing=OSError("gone")), made("b", closing=OSError("gone"))])
    await resources.open()
    with pytest.raises(ExceptionGroup) as caught:
        await resources.close()
    assert [str(error) for error in caught.value.exceptions] == [
        "resource 'b' could not be closed: OSError: gone",
        "resource 'a' could not be closed: OSError: gone",
    ]


async def test_a_set_can_be_opened_again() -> None:
    resources = ResourceSet([made("a")])
    for _ in range(2):
        await resources.open()
        await resources.close()
    assert happened == ["open a", "close a"] * 2


async def test_a_resource_is_opened_and_closed_by_one_task() -> None:
    tasks: list[Any] = []
    mark: ContextVar[str] = ContextVar("mark", default="lost")

    @romulus.resource
    async def scoped() -> AsyncIterator[None]:
        mark.set("kept")
        async with asyncio.timeout(60):  # insists on the task that entered it
            tasks.append(asyncio.current_task())
            yield
            tasks.append(asyncio.current_task())
        assert mark.get() == "kept"

    resources = ResourceSet([scoped])
    await asyncio.create_task(resources.open())
    await resources.close()
    assert tasks[0] is tasks[1]


async def test_a_cancelled_opening_closes_what_it_opened() -> None:
    stuck = asyncio.Event()

    @romulus.resource
    async def slow() -> AsyncIterator[None]:
        stuck.set()
        await asyncio.Event().wait()
        yield

    resources = ResourceSet([made("a"), slow])
    opening = asyncio.create_task(resources.open())
    await stuck.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert happened == ["open a", "close a"]


async def test_a_resource_yields_exactly_once() -> None:
    @romulus.resource
    async def never() -> AsyncIterator[None]:
        if happened:
            yield

    @romulus.resource
    async def twice() -> AsyncIterator[int]:
        yield 1
        yield 2

    with pytest.raises(romulus.ConfigurationError, match="resource 'never' ended without yielding a value"):
        await ResourceSet([never]).open()
    resources = ResourceSet([twice])
    await resources.open()
    with pytest.raises(romulus.RomulusError, match="resource 'twice' yielded a second time"):
        await resources.close()


async def coroutine() -> int:
    return 1


def sync() -> Any:
    yield 1


async def with_parameter(url: str) -> AsyncIterator[str]:
    yield url


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (coroutine, "coroutine cannot be a resource: write async def with one yield"),
        (sync, "sync cannot be a resource: write async def with one yield"),
        (7, "7 cannot be a resource"),
        (with_parameter, "resource with_parameter takes parameters"),
    ],
)
def test_what_cannot_be_a_resource_is_refused_with_the_remedy(given: Any, message: str) -> None:
    with pytest.raises(romulus.DefinitionError, match=message):
        romulus.resource(given)
