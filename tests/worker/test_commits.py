"""How many commits a run waits for: what is counted here is what the latency figures are made of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import romulus
from romulus.host import RealHost
from tests.worker.rig import World, eventually, url_of

COMMITS = {
    "sqlite": ("sqlite.commit",),
    "postgres": ("postgres.commit", "send.events", "start.runs", "claim.queue", "apply"),
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
    """A worker and a client on one store object, whose statements are noted; nothing else goes on."""
    monkeypatch.setattr(RealHost, "crash_point", lambda _, name: points.append(name))
    path = tmp_path / "romulus.db"
    app = romulus.App(url_of(path), workflows=[event_then_step, one_step])
    async with app.worker(), app.client() as client:
        yield World(app, client, path)


def counted(seen: list[str], on_store: str) -> int:
    return sum(point in COMMITS[on_store] for point in seen)


async def test_a_parked_run_executes_its_next_step_three_commits_after_the_event_was_sent(here: World, on_store: str) -> None:
    """Stored; matched and claimed; consumed, with the step armed."""
    handle = await here.client.start(event_then_step)
    await here.until(handle.id, "waiting")
    await eventually(lambda: here.rows("SELECT count(*) FROM to_match")[0][0] == 0)
    points.clear()
    await handle.send_event("go")
    assert counted(await handle.result(), on_store) == 3


async def test_a_run_executes_its_first_step_three_commits_after_its_start_was_asked_for(here: World, on_store: str) -> None:
    """Created; claimed; the step armed."""
    points.clear()
    handle = await here.client.start(one_step)
    assert counted(await handle.result(), on_store) == 3
