"""`romulus.wait_for_event`: the wait it opens, the event it returns, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import GenericAlias
from typing import Annotated, Any

import pytest
from pydantic import Field

import romulus
from romulus import blocking
from romulus.core.commands import WaitCall
from romulus.core.errors import Undecodable
from romulus.core.instance import Instance
from tests.authoring.runs import NOON, begin, deliver, ended

INFO = json.dumps(["evt-1", NOON + 5_000_000, "42", "paid"])


def opened(**options: Any) -> WaitCall:
    """Return the wait that a run with these options opens."""
    wait, _ = waiting(**options)
    return wait


def waiting(**options: Any) -> tuple[WaitCall, Instance]:
    @romulus.workflow
    async def waits() -> Any:
        event = await romulus.wait_for_event("paid", **options)
        return [event.payload, event.id, event.name, event.correlation_id, str(event.received_at)]

    instance = begin(waits)
    [command] = instance.open.values()
    assert isinstance(command.detail, WaitCall)
    return command.detail, instance


def refusal(*args: Any, **options: Any) -> str:
    """Return what a run that waits so is told."""

    @romulus.workflow
    async def waits() -> str:
        try:
            await romulus.wait_for_event(*args, **options)
        except (ValueError, romulus.RomulusError) as error:
            return str(error)
        return "not refused"

    told: str = ended(begin(waits))
    return told


def test_a_wait_without_a_correlation_id_is_for_the_runs_own() -> None:
    assert (opened().name, opened().correlation_id, opened().deadline) == ("paid", "run-1", None)


def test_a_timeout_counts_from_the_runs_now() -> None:
    assert opened(timeout=timedelta(seconds=3)).deadline == NOON + 3_000_000


def test_a_deadline_is_an_instant() -> None:
    assert opened(deadline=datetime(2026, 1, 1, 12, 0, 9, tzinfo=UTC)).deadline == NOON + 9_000_000


def test_a_wait_may_share_its_event_and_take_late_ones() -> None:
    wait = opened(shared=True, include_late=True, correlation_id="42")
    assert (wait.shared, wait.include_late, wait.correlation_id) == (True, True, "42")
    assert (opened().shared, opened().include_late) == (False, False)


def test_the_event_has_its_payload_and_where_it_came_from() -> None:
    _, instance = waiting(type=dict[str, int], correlation_id="42")
    [command] = instance.open.values()
    deliver(instance, command, b'{"cents":5}', info=INFO)
    assert ended(instance) == [{"cents": 5}, "evt-1", "paid", "42", "2026-01-01 12:00:05+00:00"]


def test_a_def_workflow_waits_with_the_same_arguments() -> None:
    @romulus.workflow
    def waits() -> bool:
        return blocking.wait_for_event("paid", type=bool, correlation_id="42", timeout=3).payload

    instance = begin(waits)
    [command] = instance.open.values()
    assert isinstance(command.detail, WaitCall)
    assert (command.detail.correlation_id, command.detail.deadline) == ("42", NOON + 3_000_000)
    deliver(instance, command, b"true", info=INFO)
    assert ended(instance) is True


@pytest.mark.parametrize("workflow_is_async", [True, False])
def test_a_wait_that_runs_out_raises_wait_timeout(workflow_is_async: bool) -> None:
    @romulus.workflow
    async def waits() -> str:
        try:
            await romulus.wait_for_event("paid", timeout=3)
        except TimeoutError as error:
            return type(error).__name__
        return "not raised"

    @romulus.workflow
    def waits_blocking() -> str:
        try:
            blocking.wait_for_event("paid", timeout=3)
        except TimeoutError as error:
            return type(error).__name__
        return "not raised"

    instance = begin(waits if workflow_is_async else waits_blocking)
    [command] = instance.open.values()
    deliver(instance, command, failed=True, at=3_000_000)
    assert ended(instance) == "WaitTimeout"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("romulus.timer", {}, "event name 'romulus.timer' is reserved"),
        ("remus.approval", {}, "event name 'remus.approval' is reserved"),
        ("", {}, "event name must not be empty"),
        ("a\x00", {}, "event name has a NUL"),
        (7, {}, "event name must be a str"),
        ("paid", {"correlation_id": ""}, "correlation_id must not be empty"),
        ("paid", {"correlation_id": "\ud800"}, "correlation_id has a lone surrogate"),
        ("paid", {"timeout": -1}, "timeout must not be negative"),
        ("paid", {"timeout": 1, "deadline": datetime(2026, 1, 1, tzinfo=UTC)}, "give timeout or deadline, not both"),
        ("paid", {"deadline": datetime(2026, 1, 1)}, "deadline must have a time zone"),
        ("paid", {"type": object()}, "event 'paid': the annotation cannot be used"),
        ("paid", {"correlation_id": "k" * 251}, "correlation_id has 251 characters, at most 250 are allowed"),
        ("paid", {"type": "Order"}, "type='Order' of event 'paid' is text: give the type itself"),
        ("paid", {"type": opened}, "event 'paid': the annotation cannot be used: <function opened"),
        ("paid", {"type": lambda paid: paid}, "event 'paid': the annotation cannot be used: <function <lambda>"),  # pyright: ignore[reportUnknownLambdaType]
        ("paid", {"type": GenericAlias(list, (json.loads,))}, "event 'paid': the annotation cannot be used: <function loads"),
        ("paid", {"type": json.JSONDecoder().decode}, "event 'paid': the annotation cannot be used: <bound method JSONDecoder.decode"),
        ("paid", {"shared": "yes"}, "shared must be True or False, not 'yes'"),
        ("paid", {"shared": 1}, "shared must be True or False, not 1"),
        ("paid", {"include_late": 2}, "include_late must be True or False, not 2"),
        ("paid", {"include_late": None}, "include_late must be True or False, not None"),
    ],
)
def test_a_wait_that_cannot_be_is_refused(name: Any, options: dict[str, Any], message: str) -> None:
    assert refusal(name, **options).startswith(message)


def test_a_type_without_a_hash_can_be_waited_for() -> None:
    positive = Annotated[int, Field(gt=0)]
    assert opened(type=positive).value is opened(type=positive).value
    _, instance = waiting(type=positive)
    [command] = instance.open.values()
    with pytest.raises(Undecodable, match="event 'paid'"):
        deliver(instance, command, b"-1", info=INFO)


def test_types_that_read_alike_are_not_taken_for_each_other() -> None:
    def local() -> type:
        @dataclass
        class Order:
            id: int

        return Order

    first, second = local(), local()
    assert repr(first) == repr(second)
    assert opened(type=first).value is not opened(type=second).value


def test_the_order_of_a_union_is_kept_although_unions_compare_equal() -> None:
    assert opened(type=int | str).value is not opened(type=str | int).value
    assert opened(type=int | str).value is opened(type=int | str).value
