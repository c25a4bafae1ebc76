"""Scopes that end in the same moment: a run's code gets what asyncio itself gives on the same Python, its oddities too."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable

import pytest

from romulus.core.commands import Returned
from tests.core.rig import Rig, replay


class Boom(Exception): ...


async def boom() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    raise Boom


async def what(scope: Awaitable[object]) -> list[str]:
    """Return what a scope ends with, and how many requests to cancel are left of it."""
    try:
        await scope
        came = "nothing"
    except BaseException as error:
        came = type(error).__name__
    task = asyncio.current_task()
    assert task is not None
    left = task.cancelling()
    while task.cancelling():
        task.uncancel()
    return [came, str(left)]


async def expires_after_a_broken_group(*, body_waits: bool) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(boom())
                if body_waits:
                    await loop.create_future()
        except* Boom:
            pass
        limit.reschedule(loop.time())
        await loop.create_future()


async def a_group_breaks_while_it_is_waited_for() -> list[str]:
    return await what(expires_after_a_broken_group(body_waits=False))


async def a_group_breaks_while_its_body_waits() -> list[str]:
    return await what(expires_after_a_broken_group(body_waits=True))


async def a_task_is_cancelled_after_its_scope_expired_and_before_it_runs() -> list[str]:
    expires = asyncio.get_running_loop().create_future()

    async def scope() -> None:
        async with asyncio.timeout(None) as limit:
            expires.set_result(limit)
            await asyncio.get_running_loop().create_future()

    task = asyncio.get_running_loop().create_task(scope())
    limit = await expires
    limit.reschedule(asyncio.get_running_loop().time())
    asyncio.get_running_loop().call_soon(task.cancel)
    return await what(task)


SCOPES: list[Callable[[], Awaitable[list[str]]]] = [
    a_group_breaks_while_it_is_waited_for,
    a_group_breaks_while_its_body_waits,
    a_task_is_cancelled_after_its_scope_expired_and_before_it_runs,
]


@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: scope.__name__)
def test_a_run_gets_what_asyncio_gives_and_again_on_replay(scope: Callable[[], Awaitable[list[str]]]) -> None:
    rig = Rig(scope).run()
    again = replay(rig, scope)

    for outcome in (rig.instance.outcome, again.instance.outcome):
        assert isinstance(outcome, Returned)
        assert json.loads(outcome.body) == asyncio.run(scope())  # type: ignore[arg-type]


def test_python_before_3_13_forgets_a_request_to_cancel_when_a_group_breaks_while_it_is_waited_for() -> None:
    """CPython's own (gh-116720): the scope around it does not know its own time-out again. docs/how-to/deadlines.md says what to do."""
    oddity = ["TimeoutError", "0"] if sys.version_info >= (3, 13) else ["CancelledError", "1"]

    assert asyncio.run(a_group_breaks_while_it_is_waited_for()) == oddity
    assert asyncio.run(a_group_breaks_while_its_body_waits()) == ["TimeoutError", "0"]
