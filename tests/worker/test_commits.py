"""How many commits a run waits for: what is counted here is what the latency figures are made of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import romulus
from romulus.host import RealHost
from romulus.store.sqlite.writer import Pace
from tests.worker.rig import World, eventually, url_of

TRIES = 5  # the fewest commits of so many runs: now and then the lease's own commit is in the way of the writer
COMMITS = {
    "sqlite": ("sqlite.commit",),
    "postgres": ("postgres.commit", "send.events", "send.delivered", "start.runs", "claim.queue", "apply"),
}  # or one statement
points: list[str] = []


@romulus.step
async def mark() -> list[str]:
    return list(points)


@romulus.workflow
async def event_then_step() -> list[str]:
    await romulus.wait_for_event("go")
    return await mark()


@romulus.workflow
async def one_step() -> list[str]:
    return await mark()


@pytest.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A worker and a client on one store object, whose statements are noted; nothing else goes on, and the disk is a quick one."""
    monkeypatch.setattr(Pace, "in_place", lambda _: True)
    monkeypatch.setattr(RealHost, "crash_point", lambda _, name: points.append(name))
    path = tmp_path / "romulus.db"
    app = romulus.App(url_of(path), workflows=[event_then_step, one_step])
    async with app.worker(), app.client() as client:
        yield World(app, client, path)


def counted(seen: list[str], on_store: str) -> int:
    return sum(point in COMMITS[on_store] for point in seen)


async def test_an_event_is_few_commits_away_from_the_next_step_of_its_parked_run(here: World, on_store: str) -> None:
    """Stored, and with it matched and claimed; consumed, with the step armed."""
    commits: list[int] = []
    for _ in range(TRIES):
        handle = await here.client.start(event_then_step)
        await here.until(handle.id, "waiting")
        await eventually(lambda: here.rows("SELECT count(*) FROM to_match")[0][0] == 0)
        points.clear()
        await handle.send_event("go")
        commits.append(counted(await handle.result(), on_store))
    assert min(commits) == 2


async def test_a_start_is_few_commits_away_from_the_first_step(here: World, on_store: str) -> None:
    """Created, and with it, on SQLite, claimed; the step armed."""
    commits: list[int] = []
    for _ in range(TRIES):
        points.clear()
        handle = await here.client.start(one_step)
        commits.append(counted(await handle.result(), on_store))
    assert min(commits) == {"sqlite": 2, "postgres": 3}[on_store]
