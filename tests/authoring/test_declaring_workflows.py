"""What `@romulus.workflow` makes of a function, and the options a start takes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import romulus
from romulus.authoring.workflow import StartOptions


@romulus.workflow(version="3", timeout=60)
async def ship(order: str) -> str:
    return order


@romulus.workflow
def audit(order: str) -> str:
    return order


def test_a_workflow_has_its_functions_name_and_version_1_unless_it_says_otherwise() -> None:
    assert (audit.name, audit.version, ship.version, ship.spec.timeout) == ("audit", "1", "3", 60_000_000)


def test_the_colour_follows_the_function() -> None:
    assert (type(ship), type(audit)) == (romulus.Workflow, romulus.SyncWorkflow)


def test_options_add_up_on_copies() -> None:
    chosen = ship.options(id="ship-1", priority=5).options(
        delay=timedelta(seconds=2), attributes={"customer": "ada", "vip": True}, timeout=9
    )
    assert chosen.start_options == StartOptions(
        id="ship-1", priority=5, delay=2_000_000, attributes={"customer": "ada", "vip": True}, timeout=9_000_000
    )
    assert ship.start_options == StartOptions()


def test_options_may_name_another_version() -> None:
    other = ship.options(version="2")
    assert (other.version, other.spec.version) == ("2", "3")


def test_a_start_time_is_an_instant() -> None:
    assert ship.options(start_at=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)).start_options.start_at == 1_000_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": ""}, "run ID must not be empty"),
        ({"id": "a\x00"}, "run ID has a NUL"),
        ({"id": "x" * 201}, "run ID has 201 characters"),
        ({"id": 42}, "run ID must be a str"),
        ({"version": ""}, "workflow version must not be empty"),
        ({"priority": "high"}, "priority must be an int"),
        ({"priority": True}, "priority must be an int"),
        ({"priority": 2**31}, "priority must be between"),
        ({"delay": -1}, "delay must not be negative"),
        ({"start_at": datetime(2026, 1, 1)}, "start_at must have a time zone"),
        ({"delay": 1, "start_at": datetime(2026, 1, 1, tzinfo=UTC)}, "give delay or start_at, not both"),
        ({"timeout": 0}, "workflow timeout must be above 0"),
        ({"attributes": {"a": 1.5}}, "attribute 'a' must be a str, int or bool"),
        ({"attributes": {"a": 2**63}}, "attribute 'a' must be between"),
        ({"attributes": {"a": "\ud800"}}, "attribute 'a' has a lone surrogate"),
        ({"attributes": {"": 1}}, "attribute name must not be empty"),
        ({"attributes": {str(n): n for n in range(65)}}, "at most 64 attributes"),
    ],
)
def test_a_start_option_out_of_range_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ship.options(**options)


def test_an_unknown_start_option_is_answered_with_the_known_ones() -> None:
    with pytest.raises(TypeError, match="no option 'order'; it has id, version, priority, delay, start_at, attributes, timeout"):
        ship.options(order="42")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"@romulus\.workflow has no option 'retry'; it has name, version, timeout"):
        romulus.workflow(retry=romulus.Retry())  # type: ignore[call-overload]


def test_options_of_later_releases_are_absent() -> None:
    with pytest.raises(TypeError, match="no option 'principal'"):
        ship.options(principal=None)  # type: ignore[call-arg]


def test_what_becomes_of_a_child_is_one_of_three_words() -> None:
    assert ship.options(parent_close="abandon").start_options.parent_close == "abandon"
    assert ship.start_options.parent_close == "cancel"
    with pytest.raises(ValueError, match='parent_close is \'ignore\'; use "cancel", "terminate" or "abandon"'):
        ship.options(parent_close="ignore")  # type: ignore[arg-type]
