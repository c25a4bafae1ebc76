"""The calls of `def` workflows: `romulus.blocking`."""

# ruff: noqa: A001, A002 - `map` and `type=` are public names
from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from datetime import datetime
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from typing_extensions import TypeForm

from romulus.core.duration import Duration, micros
from romulus.core.errors import WrongColour
from romulus.core.instance import Instance

from .children import ChildHandle, child_call, started
from .place import workflow_code
from .step import Step, SyncStep
from .waiting import Event, wait_call, wait_event
from .workflow import AnyWorkflow

P = ParamSpec("P")
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


def start(workflow: AnyWorkflow[P, T], /, *args: P.args, **kwargs: P.kwargs) -> BlockingChild[T]:
    """Start *workflow* as a child of this run and go on: `romulus.start` for `def` workflows.

    Raises:
        RunConflict, UnknownWorkflow, TooDeep: as `romulus.start`.
        NotInRun: called outside workflow code.
        WrongColour: called in an async workflow.
    """
    instance = _bridge("start", "await romulus.start(…)")
    handle: ChildHandle[T] = instance.blocking(started(instance, child_call(instance, workflow, args, kwargs)))
    return BlockingChild(instance, handle)


def call(workflow: AnyWorkflow[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the outcome of a child of this run, from a `def` workflow, whatever colour *workflow* is.

    Raises:
        ChildFailed: it ended failed, cancelled or terminated.
        RunConflict, UnknownWorkflow, TooDeep, NotInRun, WrongColour: as `start`.
    """
    instance = _bridge("call", "await workflow(…)")
    outcome: T = instance.blocking(instance.child(child_call(instance, workflow, args, kwargs)))
    return outcome


class BlockingChild(Generic[T]):
    """A child that a `def` workflow has started."""

    def __init__(self, instance: Instance, handle: ChildHandle[T]) -> None:
        self.id = handle.id
        self._instance, self._handle = instance, handle

    def result(self) -> T:
        """Return what the child returned, once it has ended.

        Raises:
            ChildFailed: it ended failed, cancelled or terminated.
        """
        outcome: T = self._instance.blocking(self._handle.result())
        return outcome

    def cancel(self, reason: str = "") -> None:
        """Ask the child to end, as a client's cancel does; returns once the request is stored."""
        self._instance.blocking(self._handle.cancel(reason))

    def __repr__(self) -> str:
        return repr(self._handle)


def map(step: Step[[E], T] | SyncStep[[E], T] | AnyWorkflow[[E], T], items: Iterable[E], /) -> list[T]:
    """Call *step*, which may be a workflow too, with each of *items* at once and return the outcomes in order.

    The first failure is raised, and calls without an outcome are withdrawn.

    Raises:
        NotInRun: called outside workflow code.
        WrongColour: called in an async workflow.
    """
    instance = _bridge("map", "await asyncio.gather(*(step(item) for item in items))")
    outcomes: list[T] = instance.blocking(_all([_called(instance, step, item) for item in items]))
    return outcomes


def _called(instance: Instance, step: Any, item: Any) -> Coroutine[Any, Any, Any]:
    if isinstance(step, AnyWorkflow):
        return instance.child(child_call(instance, cast("AnyWorkflow[..., Any]", step), (item,), {}))
    return instance.step(step.spec, (item,), {})


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
