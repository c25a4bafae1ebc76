"""Events: stored once, receipts that tell duplicates, refusals that store nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

import romulus
from romulus import EventConflict, RunStatus, SerializationError

from .world import app_at, reached, waits_for, working


@dataclass
class Packed:
    by: str
    at: list[int]


async def test_the_same_event_id_is_stored_once_and_another_body_is_a_conflict(tmp_path: Path) -> None:
    async with app_at(tmp_path).client() as client:
        first = await client.send_event("paid", {"a": 1, "b": 2}, correlation_id="o", event_id="e")
        again = await client.send_event("paid", {"b": 2, "a": 1}, correlation_id="o", event_id="e")

        assert (first.duplicate, again.duplicate, again.id) == (False, True, "e")
        for name, payload, correlation in (
            ("paid", {"a": 1, "b": 3}, "o"),
            ("paid", {"a": 1, "b": 2}, "p"),
            ("due", {"a": 1, "b": 2}, "o"),
        ):
            with pytest.raises(EventConflict, match="'e'"):
                await client.send_event(name, payload, correlation_id=correlation, event_id="e")
        assert [event.payload for event in await client.events()] == [{"a": 1, "b": 2}]


async def test_an_event_sent_before_anyone_waits_is_consumed_later(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        await client.send_event("go", 11, correlation_id="early")
        assert [event.state for event in await client.events(matched=False)] == ["unmatched"]

        handle = await client.start(waits_for.options(id="early"), "go")

        assert await handle.result(timeout=30) == 11
        (event,) = await client.events(matched=True)
        assert (event.state, event.run_id) == ("consumed", "early")


async def test_the_waits_of_a_fork_of_a_run_with_the_longest_id_can_be_answered(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        longest = await client.start(waits_for.options(id="r" * 200), "go")
        await reached(longest, RunStatus.WAITING)

        fork = await longest.fork(0)
        await fork.send_event("go", 7)

        assert fork.id == "r" * 200 + "~1"
        assert await fork.result(timeout=30) == 7


async def test_open_waits_are_listed_until_their_event_comes(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handle = await client.start(waits_for.options(id="w"), "go")
        await reached(handle, RunStatus.WAITING)

        (wait,) = await client.waits()
        assert (wait.run_id, wait.name, wait.correlation_id, wait.event_id) == ("w", "go", "w", None)
        assert [(c.kind, c.name, c.state) for c in (await handle.describe()).pending] == [("wait", "go", "open")]
        await handle.send_event("go", 1)
        await handle.result(timeout=30)
        assert len(await client.waits()) == 0


async def test_values_with_a_class_of_their_own_are_sent_as_it_says(tmp_path: Path) -> None:
    async with app_at(tmp_path).client() as client:
        await client.send_event("a", Packed("bo", [1, 2]), correlation_id="o")
        await client.send_event("b", UUID(int=7), correlation_id="o")
        await client.send_event("c", correlation_id="o")

        payloads = [event.payload for event in await client.events()]
        assert payloads == [{"by": "bo", "at": [1, 2]}, "00000000-0000-0000-0000-000000000007", None]


@pytest.mark.parametrize("name", ["romulus.x", "remus.approved", "", "a\x00", "\udc00"])
async def test_reserved_and_unusable_names_are_refused(tmp_path: Path, name: str) -> None:
    async with app_at(tmp_path).client() as client:
        with pytest.raises(romulus.RomulusError, match="event name"):
            await client.send_event(name, correlation_id="o")
        assert len(await client.events()) == 0


async def test_what_is_no_json_is_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    async with app_at(tmp_path).client() as client:
        for payload in (object(), {1: 2}, {"a": {1, 2}}, ["\ud800"], print, ValueError("x")):
            with pytest.raises(SerializationError, match="payload of event 'e'"):
                await client.send_event("e", payload, correlation_id="o")
        assert len(await client.events()) == 0
