"""Listings: pages in creation order that show each thing once, whatever happens meanwhile (RB-54)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from romulus import AsyncClient, ConfigurationError, GiveUp, RomulusError, RunStatus
from romulus.client.starting import StartRequest
from romulus.core.arguments import dump_untyped
from romulus.core.values import Vault

from .world import app_at, breaks, reached, total, waits_for, working


async def _bulk(client: AsyncClient, prefix: str, count: int) -> None:
    """Create runs in one transaction."""
    store = await client._link.store()
    requests = [StartRequest(f"{prefix}{n:04}", "total", "1", dump_untyped({"a": n, "b": 2})) for n in range(count)]
    await store.start([request.new_run("default", n + 1, Vault(None, 1_000)) for n, request in enumerate(requests)])


async def _walk(client: AsyncClient) -> list[str]:
    """Walk pages of 37 while runs arrive and change state at every page."""
    seen: list[str] = []
    after, turn = None, 0
    while True:
        page = await client.runs(limit=37, after=after)
        seen += [run.id for run in page]
        if page.next is None:
            return seen
        after = page.next
        if turn < 20:
            await _bulk(client, f"new{turn}-", 10)
            for number in range(turn * 10, turn * 10 + 10):
                await client.get(f"old{(number * 97) % 1000:04}").cancel()
        turn += 1


async def test_a_walk_shows_each_of_a_thousand_runs_of_one_transaction_once(tmp_path: Path) -> None:
    async with app_at(tmp_path).client() as client:
        await _bulk(client, "old", 1_000)

        seen = await _walk(client)

        old = [run for run in seen if run.startswith("old")]
        assert old == [f"old{n:04}" for n in range(1_000)]
        assert len(set(seen)) == len(seen) == 1_200


async def test_filters_choose_by_workflow_status_attributes_and_time(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        first = await client.start(total.options(id="a", attributes={"team": "x", "n": 1}), 1)
        await first.result(timeout=30)
        second = await client.start(waits_for.options(id="b", attributes={"team": "x", "n": 2}), "go")
        run = await reached(second, RunStatus.WAITING)

        async def ids(**where: object) -> list[str]:
            return [run.id for run in await client.runs(**where)]  # type: ignore[arg-type]

        assert await ids(workflow="total") == ["a"]
        assert await ids(status=RunStatus.WAITING) == ["b"]
        assert await ids(attributes={"team": "x"}) == ["a", "b"]
        assert await ids(attributes={"team": "x", "n": 2}) == ["b"]
        assert await ids(since=run.created_at) == ["b"]
        assert await ids(until=run.created_at) == ["a"]
        assert await ids(since=run.created_at + timedelta(seconds=1)) == []


async def test_events_are_chosen_by_true_false_or_none(tmp_path: Path) -> None:
    async with app_at(tmp_path).client() as client:
        with pytest.raises(ConfigurationError, match="matched is 'no'; use True, False or None"):
            await client.events(matched="no")  # type: ignore[arg-type]


async def test_a_limit_out_of_bounds_is_refused(tmp_path: Path) -> None:
    async with app_at(tmp_path).client() as client:
        for limit in (0, 1_001, 1.5, "5"):
            with pytest.raises(ConfigurationError, match="limit is"):
                await client.runs(limit=limit)  # type: ignore[arg-type]


UNSTORABLE = ("a\x00b", "\ud800", "x" * 300, b"x", 5, ["x"])  # no text that a store could hold
NO_CURSOR = ("x", "-1", "1e3", "1\x00", "\u0663", "1 OR 1=1", "9" * 19, "9" * 5_000, "", 5, b"1")


@pytest.mark.parametrize("wrong", UNSTORABLE, ids=[ascii(wrong)[:12] for wrong in UNSTORABLE])
async def test_what_no_store_holds_is_refused_before_the_store_is_asked(tmp_path: Path, wrong: Any) -> None:
    async with app_at(tmp_path).client() as client:
        asked: list[Callable[[], Awaitable[object]]] = [
            lambda: client.operation(wrong),
            lambda: client.resolve_operation(wrong, GiveUp(), reason="r", reviewer="r"),
            lambda: client.runs(workflow=wrong),
        ]
        if not isinstance(wrong, list):
            asked += [lambda: client.runs(attributes={wrong: 1}), lambda: client.get(wrong).describe()]
        for ask in asked:
            with pytest.raises(RomulusError):
                await ask()
        with pytest.raises(RomulusError):
            AsyncClient("sqlite://", namespace=wrong)


@pytest.mark.parametrize("wrong", NO_CURSOR, ids=[ascii(wrong)[:12] for wrong in NO_CURSOR])
async def test_what_is_no_cursor_of_a_listing_is_refused(tmp_path: Path, wrong: Any) -> None:
    async with app_at(tmp_path).client() as client:
        for listing in (client.runs, client.events, client.waits, client.operations):
            with pytest.raises(ConfigurationError, match="is not a cursor"):
                await listing(after=wrong)


@pytest.mark.parametrize("wrong", [float("nan"), 1.5, 2**70, "x" * 2_000, "\x00", None, b"x", ["x"]], ids=repr)
async def test_runs_are_not_sought_by_what_no_attribute_can_be(tmp_path: Path, wrong: Any) -> None:
    async with app_at(tmp_path).client() as client:
        with pytest.raises(RomulusError, match="attribute 'team'"):
            await client.runs(attributes={"team": wrong})


async def test_an_unknown_status_names_those_there_are(tmp_path: Path) -> None:
    async with app_at(tmp_path).client() as client:
        with pytest.raises(ConfigurationError, match="there are scheduled, pending"):
            await client.runs(status="asleep")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [None, 5, "a\x00b", "\ud800", " "])
async def test_a_resolution_needs_a_reason_and_a_reviewer_in_words(tmp_path: Path, wrong: Any) -> None:
    async with app_at(tmp_path).client() as client:
        for given in ({"reason": wrong, "reviewer": "r"}, {"reason": "r", "reviewer": wrong}):
            with pytest.raises(RomulusError, match="reason|reviewer"):
                await client.resolve_operation("op", GiveUp(), **given)


async def test_a_run_that_no_live_worker_serves_is_shown_as_stranded(tmp_path: Path) -> None:
    app = app_at(tmp_path, [total])
    async with working(app) as client:
        stranded = await client.start(breaks, "x")

        assert (await stranded.describe()).stranded
        assert [run.stranded for run in await client.runs()] == [True]
        done = await client.start(total, 1)
        await done.result(timeout=30)
        assert not (await done.describe()).stranded


async def test_workers_show_what_they_serve(tmp_path: Path) -> None:
    async with working(app_at(tmp_path, [total])) as client:
        (worker,) = await client.workers()

        assert (worker.status, worker.workflows, worker.pools, worker.concurrency) == ("live", ("total 1",), ("default",), 100)
