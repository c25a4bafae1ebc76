"""Walking the list of runs while others come and change."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.cases.apps.chains import barrier
from tests.processes.stage import Stage

pytestmark = pytest.mark.process
APP = "tests.cases.apps.chains:app"
COUNT, MORE, PAGE = 1_000, 200, 37


async def test_a_walk_in_pages_sees_each_of_a_thousand_runs_once_while_a_worker_works_and_more_arrive(stage: Stage) -> None:
    """RB-54: a thousand with one creation instant; the order is that of creation, made total by the row's key."""
    with stage.database() as database:
        database.execute("BEGIN IMMEDIATE")
        client = stage.client.using(database)
        for n in range(COUNT):
            await client.start(barrier.options(id=f"r{n}"), n, 1)
        database.execute("UPDATE runs SET created_at = (SELECT min(created_at) FROM runs)")
        database.execute("COMMIT")

    async def arrive() -> None:
        for n in range(MORE):
            await stage.client.start(barrier.options(id=f"more{n}"), n, 1)

    stage.starting_worker(APP)
    arriving = asyncio.create_task(arrive())
    seen: list[str] = []
    page = await stage.client.runs(limit=PAGE)
    pages = 1
    while page:
        seen += [run.id for run in page]
        if pages == 2:
            await stage.seen("branch", 200)  # two hundred have changed state between two pages
        if page.next is None:
            break
        page, pages = await stage.client.runs(limit=PAGE, after=page.next), pages + 1
    await arriving

    assert seen[:COUNT] == [f"r{n}" for n in range(COUNT)]
    assert len(seen) == len(set(seen))
    await asyncio.gather(*(stage.client.get(f"r{n}").result(timeout=60) for n in range(COUNT)))
    cli = stage.cli("runs", "list", "--limit", "1000", "--status", "succeeded", "--json")
    assert await stage.exited(cli) == 0
    assert [run["id"] for run in json.loads(cli.out)["items"]] == [f"r{n}" for n in range(COUNT)]
