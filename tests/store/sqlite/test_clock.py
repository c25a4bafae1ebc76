"""The store's clock on SQLite: it follows the machine's forward, never goes back within a process, and is stuck nowhere."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from romulus.store.sqlite.clock import AHEAD_MAX, Clock
from romulus.store.sqlite.store import SQLiteStore, place_of
from tests.store.kit import SECOND, MovableHost, advance, claim, claimed, entry, register, start

HOUR = 3600 * SECOND


class Machine(MovableHost):
    """A machine whose clocks stand still but for what a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.up = 1_800_000_000 * SECOND, 50 * SECOND

    def wall(self) -> int:
        return self.time

    def monotonic(self) -> int:
        return self.up

    def passes(self, by: int) -> None:
        self.time += by
        self.up += by


@asynccontextmanager
async def opened(path: Path, machine: Machine) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(place_of(str(path)), machine)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def test_time_passes_as_the_machines_does() -> None:
    machine = Machine()
    clock = Clock(machine)
    before = clock.now()
    machine.passes(7)
    assert clock.now() == before + 7 == machine.time


async def test_a_sleep_of_the_machine_and_a_clock_set_forward_are_followed_at_once() -> None:
    machine = Machine()
    clock = Clock(machine)
    machine.time += 8 * HOUR  # the monotonic clock stood still
    assert clock.now() == machine.time
    machine.passes(SECOND)
    assert clock.now() == machine.time


async def test_a_clock_set_back_holds_up_nothing_and_is_caught_up_with() -> None:
    machine = Machine()
    clock = Clock(machine)
    before = clock.now()
    machine.time -= HOUR
    assert clock.now() == before
    machine.passes(10 * SECOND)
    assert clock.now() == before + 9 * SECOND

    seen = [clock.now()]
    for _ in range(10 * 60):
        machine.passes(60 * SECOND)
        seen.append(clock.now())
    assert seen == sorted(set(seen))
    machine.passes(SECOND)
    assert clock.now() == machine.time


async def test_a_clock_set_back_a_second_time_goes_on_from_where_it_was() -> None:
    machine = Machine()
    clock = Clock(machine)
    machine.time -= SECOND
    clock.now()
    machine.passes(60 * SECOND)
    before = clock.now()
    assert before == machine.time
    machine.passes(HOUR)
    before = clock.now()
    machine.time -= SECOND
    assert clock.now() == before


async def test_a_clock_that_was_far_in_the_future_is_not_followed_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    clock = Clock(machine)
    machine.time += 400 * 24 * HOUR
    clock.now()
    machine.time -= 400 * 24 * HOUR
    with caplog.at_level(logging.WARNING):
        assert clock.now() == machine.time
    assert "the clock was set back by 34560000 s, more than a day" in caplog.text


async def test_a_monotonic_clock_that_starts_again_takes_nothing_back() -> None:
    machine = Machine()
    clock = Clock(machine)
    before = clock.now()
    machine.time -= SECOND
    assert clock.now() == before
    machine.up = 0
    assert clock.now() == before


async def test_a_process_that_opens_the_file_goes_on_from_the_latest_time_in_it(tmp_path: Path) -> None:
    def started(store: SQLiteStore, _: Machine) -> Awaitable[object]:
        return start(store, "r1")

    def registered(store: SQLiteStore, machine: Machine) -> Awaitable[object]:
        return register(store, machine)

    async def recorded(store: SQLiteStore, machine: Machine) -> None:
        record = await claimed(store, machine)
        machine.passes(HOUR)
        await store.apply([advance(record, entry(0, at=await store.now()))])

    written: list[Callable[[SQLiteStore, Machine], Awaitable[object]]] = [started, registered, recorded]
    for write in written:
        machine, path = Machine(), tmp_path / f"{write.__name__}.db"
        async with opened(path, machine) as store:
            await write(store, machine)
            latest = await store.now()
        machine.time -= HOUR
        async with opened(path, machine) as store:
            assert store.estimated_now() == latest, write.__name__


async def test_a_time_that_others_have_seen_takes_nothing_back() -> None:
    machine = Machine()
    clock = Clock(machine)
    before = clock.now()
    machine.time -= SECOND
    clock.seen(before - SECOND)
    assert clock.now() == before


async def test_a_time_in_the_file_that_is_a_day_ahead_is_not_believed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.time += AHEAD_MAX + SECOND
    async with opened(tmp_path / "s.db", machine) as store:
        await start(store, "r1")
    machine.time -= AHEAD_MAX + SECOND
    async with opened(tmp_path / "s.db", machine) as store:
        assert await store.now() == machine.time
    assert "set back" not in caplog.text


async def test_due_work_goes_on_and_its_times_grow_when_the_clock_is_set_back(tmp_path: Path) -> None:
    machine = Machine()
    async with opened(tmp_path / "s.db", machine) as store:
        lease = await register(store, machine)
        await start(store, "r1")
        machine.time -= HOUR
        (record,) = (await claim(store)).records
        assert record.run.started_at is not None
        assert record.run.started_at >= record.run.created_at
        assert record.run.fence >= record.run.created_at
        machine.passes(SECOND)
        lease.renew()
        (row,) = await store.workers("default")
        assert row.renewed_at > row.started_at
        lease.close()
