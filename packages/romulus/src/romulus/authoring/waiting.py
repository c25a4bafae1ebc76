"""`romulus.wait_for_event`: a durable wait for something that arrives from outside."""

# ruff: noqa: A002 - `type=` is a public name
from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypeVar, overload

from typing_extensions import TypeForm

from romulus.core.commands import WaitCall
from romulus.core.duration import Duration, InvalidSetting, instant, micros, to_datetime
from romulus.core.errors import WrongColour
from romulus.core.instance import Instance
from romulus.core.values import ValueCodec

from .checks import check_correlation_id, check_event_name, check_flag
from .place import workflow_code

T = TypeVar("T")
E = TypeVar("E")
T_co = TypeVar("T_co", covariant=True)
Co: TypeAlias = Coroutine[Any, Any, T]

codecs_max = 256
_codecs: dict[tuple[str, str], tuple[Any, ValueCodec[Any]]] = {}  # by event name and the type as text, with the type itself


@overload
def wait_for_event(
    name: str,
    *,
    correlation_id: str | None = None,
    timeout: Duration | None = None,
    deadline: datetime | None = None,
    shared: bool = False,
    include_late: bool = False,
) -> Co[Event[Any]]: ...
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
) -> Co[Event[E]]: ...
def wait_for_event(
    name: str,
    *,
    type: Any = Any,
    correlation_id: str | None = None,
    timeout: Duration | None = None,
    deadline: datetime | None = None,
    shared: bool = False,
    include_late: bool = False,
) -> Co[Event[Any]]:
    """Wait, durably, for an event of this name and correlation ID, from an async workflow.

    Args:
        name: of the event; names beginning with "romulus." or "remus." are reserved.
        type: the annotation its payload must fit; an event that does not fit is set aside and the wait goes on.
        correlation_id: which of the events of that name; the run's own ID unless given.
        timeout: seconds or timedelta from the run's now; not together with deadline.
        deadline: an aware datetime after which no event is waited for.
        shared: every shared wait gets the event, instead of the oldest wait alone.
        include_late: also take an event that came too late for an earlier wait of this run.

    Raises:
        WaitTimeout: none came in time.
        NotInRun: called outside workflow code.
        WrongColour: called in a `def` workflow.
        DefinitionError: no payload can be of that type.
    """
    instance = workflow_code("romulus.wait_for_event()", "elsewhere ask a client for events")
    if instance.in_bridge():
        raise WrongColour("this is a def workflow: write romulus.blocking.wait_for_event(…)")
    return wait_event(instance, wait_call(instance, name, type, correlation_id, timeout, deadline, shared, include_late))


@dataclass(frozen=True, slots=True)
class Event(Generic[T_co]):
    """An event that a wait has consumed."""

    payload: T_co
    id: str
    name: str
    correlation_id: str
    received_at: datetime  # store time, UTC


def wait_call(
    instance: Instance,
    name: str,
    type: Any,
    correlation_id: str | None,
    timeout: Duration | None,
    deadline: datetime | None,
    shared: bool,
    include_late: bool,
) -> WaitCall:
    """Return the wait that *instance*'s code asks for, checked."""
    return WaitCall(
        name=check_event_name(name),
        correlation_id=instance.info.id if correlation_id is None else check_correlation_id(correlation_id, "correlation_id"),
        deadline=_deadline(instance.now, timeout, deadline),
        value=_codec(type, name),
        shared=check_flag(shared, "shared"),
        include_late=check_flag(include_late, "include_late"),
    )


async def wait_event(instance: Instance, call: WaitCall) -> Event[Any]:
    """Issue *call* and return the event it consumed."""
    arrival = await instance.wait(call)
    return Event(arrival.payload, arrival.id, arrival.name, arrival.correlation_id, to_datetime(arrival.received_at))


def _deadline(now: int, timeout: Duration | None, deadline: datetime | None) -> int | None:
    if timeout is not None and deadline is not None:
        raise InvalidSetting("give timeout or deadline, not both")
    if timeout is not None:
        return now + micros(timeout, "timeout")
    return None if deadline is None else instant(deadline, "deadline")


def _codec(annotation: Any, name: str) -> ValueCodec[Any]:
    """Building one costs more than a wait. Known by text as well: `int | str` equals `str | int`, and `Field(…)` has no hash."""
    key = name, repr(annotation)
    known = _codecs.get(key)
    if known is not None and known[0] == annotation:
        return known[1]
    if isinstance(annotation, str):
        raise InvalidSetting(f"type={annotation!r} of event {name!r} is text: give the type itself")
    codec: ValueCodec[Any] = ValueCodec(annotation, f"event {name!r}")
    codec.plan()  # else what no event can fit would be awaited, and each one taken as bad
    if len(_codecs) >= codecs_max:
        _codecs.clear()
    _codecs[key] = annotation, codec
    return codec
