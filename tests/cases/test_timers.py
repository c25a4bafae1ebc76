"""Durable sleeps of many days, on a clock that the test moves, with a new worker at each move."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import romulus
from romulus.host import RealHost
from romulus.worker import Worker
from tests.worker import rig
from tests.worker.rig import World, world

DAY = 86_400_000_000  # µs
FIRED: list[float] = []


class Shifted(RealHost):
    """The real machine, whose wall clock runs ahead by what the test says."""

    ahead = 0

    def wall(self) -> int:
        return super().wall() + Shifted.ahead


@romulus.step
async def fire(days: float) -> float:
    FIRED.append(days)
    return days


@romulus.workflow
async def sleeps(days: float) -> float:
    await asyncio.sleep(days * 86_400)
    return await fire(days)


async def _woken(w: World) -> Worker:
    """Return a new worker that has looked for due work on the clock as it now is."""
    worker = await w.worker()
    await worker.claimer.look()
    return worker


def _ahead(us: int) -> None:
    """Set the store's clock ahead: this machine's is SQLite's, PostgreSQL has its own."""
    Shifted.ahead = us
    if World.database_used is not None:
        World.database_used.set_ahead(us)


@pytest.fixture(params=["sqlite", "postgres"])
def on_store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `world` open that store."""
    if request.param == "postgres":
        monkeypatch.setattr(World, "database_used", request.getfixturevalue("database"))


@pytest.mark.usefixtures("on_store")
@pytest.mark.parametrize("days", [7, 25, 30, 60, 400])
async def test_a_sleep_of_many_days_parks_and_fires_once_when_it_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: float
) -> None:
    """RS-05: also beyond 2**31 ms and 2**32 ms."""
    monkeypatch.setattr(rig, "RealHost", Shifted)
    monkeypatch.setattr(Shifted, "ahead", 0)
    FIRED.clear()
    async with world(tmp_path, sleeps) as w:
        first = await w.worker()
        handle = await w.client.start(sleeps.options(id="r"), days)
        await w.until("r", "waiting")
        ((wake_at, owner, started),) = w.rows("SELECT wake_at, owner, started_at FROM runs")
        assert (wake_at - started, owner) == (days * DAY, None)
        await w.stop(first)
        for ahead in (days * DAY // 2, days * DAY - 30_000_000):  # half-way, and well short of the second before it is due
            _ahead(int(ahead))
            worker = await _woken(w)
            assert w.rows("SELECT status, owner FROM runs") == [("waiting", None)]
            assert FIRED == []
            await w.stop(worker)
        _ahead(int(days * DAY))
        await _woken(w)
        assert await handle.result(timeout=30) == days
        assert [entry.kind for entry in await handle.history()] == ["timer", "step"]
    assert len(FIRED) == 1


async def test_a_sleep_longer_than_calendars_is_refused_by_name(tmp_path: Path) -> None:
    """RS-05's end of the range."""
    async with world(tmp_path, sleeps) as w:
        await w.worker()
        handle = await w.client.start(sleeps.options(id="r"), 1e12)
        ended = await w.until("r", "failed", "held", "waiting", "succeeded")
    assert ended.status == "failed", ended
    assert handle.id == "r"
    assert "years" in (ended.error or "")
