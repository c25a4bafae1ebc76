"""Listings: pages in creation order that show each thing once, whatever happens meanwhile (RB-54)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from romulus import AsyncClient, ConfigurationError, RunStatus
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


async def test_a_limit_out_of_bounds_is_refused(tmp_path: Path) -> None:
    async with app_at(tmp_path).client() as client:
        for limit in (0, 1_001):
            with pytest.raises(ConfigurationError, match="limit is"):
                await client.runs(limit=limit)


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
