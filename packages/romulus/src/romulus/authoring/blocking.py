"""The calls of `def` workflows: `romulus.blocking`."""

# ruff: noqa: A001, A002 - `map` and `type=` are public names
from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from datetime import datetime
from typing import Any, TypeVar, overload

from typing_extensions import TypeForm

from romulus.core.duration import Duration, micros
from romulus.core.errors import WrongColour
from romulus.core.instance import Instance

from .place import workflow_code
from .step import Step, SyncStep
from .waiting import Event, wait_call, wait_event

T = TypeVar("T")
E = TypeVar("E")


def sleep(duration: Duration) -> None:
    """Sleep, durably, for that many seconds or that timedelta.

    Raises:
        NotInRun: called outside workflow code.
        WrongColour: called in an async workflow.
    """
    instance = _bridge("sleep", "await asyncio.sleep(…)")
    instance.blocking(asyncio.sleep(micros(duration, "duration") / 1e6))


@overload
def wait_for_event(
    name: str,
    *,
    correlation_id: str | None = None,
    timeout: Duration | None = None,
    deadline: datetime | None = None,
    shared: bool = False,
    include_late: bool = False,
) -> Event[Any]: ...
@overload
def wait_for_event(
    name: str,
    *,
    type: TypeForm[E],
    correlation_id: str | None = None,
    timeout: Duration | None = None,
    deadline: datetime | None = None,
    shared: bool = False,
    include_late: bool = False,
) -> Event[E]: ...
def wait_for_event(
    name: str,
    *,
    type: Any = Any,
    correlation_id: str | None = None,
    timeout: Duration | None = None,
    deadline: datetime | None = None,
    shared: bool = False,
    include_late: bool = False,
) -> Event[Any]:
    """Wait, durably, for an event: `romulus.wait_for_event` for `def` workflows, with the same arguments.

    Raises:
        WaitTimeout: none came in time.
        NotInRun: called outside workflow code.
        WrongColour: called in an async workflow.
    """
    instance = _bridge("wait_for_event", "await romulus.wait_for_event(…)")
    call = wait_call(instance, name, type, correlation_id, timeout, deadline, shared, include_late)
    event: Event[Any] = instance.blocking(wait_event(instance, call))
    return event


def map(step: Step[[E], T] | SyncStep[[E], T], items: Iterable[E], /) -> list[T]:
    """Call *step* with each of *items* at once and return the outcomes in order.

    The first failure is raised, and calls without an outcome are withdrawn.

    Raises:
        NotInRun: called outside workflow code.
        WrongColour: called in an async workflow.
    """
    instance = _bridge("map", "await asyncio.gather(*(step(item) for item in items))")
    outcomes: list[T] = instance.blocking(_all([instance.step(step.spec, (item,), {}) for item in items]))
    return outcomes


async def _all(calls: list[Coroutine[Any, Any, T]]) -> list[T]:
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        raise


def _bridge(name: str, spelling: str) -> Instance:
    instance = workflow_code(f"romulus.blocking.{name}()", "it suspends a def workflow")
    if not instance.in_bridge():
        raise WrongColour(f"romulus.blocking.{name}() was called in an async workflow: write {spelling}")
    return instance
