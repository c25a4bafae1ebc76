"""What two threads, or two calls of the loop, do in an unlucky order: nothing is lost, nothing stops for good."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

import romulus
from romulus.core.errors import ActivationTimeout, CommitUnknown, StoreUnavailable
from romulus.core.instance import Instance
from romulus.core.ports import Host
from romulus.core.record import Record
from romulus.store.contract import Lease
from romulus.worker import Worker, WorkerSettings
from romulus.worker.lease import LeaseKeeper
from romulus.worker.watchdog import Watchdog
from tests.worker.gates import CALLS, GATE, fresh, noted
from tests.worker.rig import World, eventually, world

__all__ = ["fresh"]


@romulus.step
async def long() -> None:
    CALLS.append("long")
    await GATE.wait()


@romulus.workflow
async def waits_beside_a_step() -> None:
    await noted("before")
    async with asyncio.TaskGroup() as group:
        group.create_task(long())
        event = await romulus.wait_for_event("go", correlation_id="c", type=str)
        await noted(event.payload)


@romulus.workflow
async def sleeps_beside_a_step() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(long())
        await asyncio.sleep(0.05)
        await noted("after")


class Clock:
    """A host of which only the clock is asked."""

    def __init__(self) -> None:
        self.at = 1

    def monotonic(self) -> int:
        return self.at

    def call_from_thread(self, fn: Any, *args: object) -> None:
        fn(*args)


class Stubborn:
    """An instance that does not take the throw."""

    def interrupt(self) -> None:
        CALLS.append("interrupted")


class Failing:
    """A lease whose renewals fail in turn."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.left = list(errors), 0

    def renew(self, attempts: Sequence[int] = ()) -> bool:
        if self.errors:
            raise self.errors.pop(0)
        self.left = 1
        return True

    def remaining(self) -> int:
        return self.left


def keeper_of(lease: Failing) -> LeaseKeeper:
    return LeaseKeeper(cast("Host", Clock()), cast("Lease", lease), WorkerSettings(), lambda: None)


def test_a_lease_is_renewed_again_after_a_renewal_that_failed_in_whatever_way() -> None:
    lease = Failing(CommitUnknown("was it?"), StoreUnavailable("away"), RuntimeError("a defect"))
    keeper = keeper_of(lease)
    for _ in range(4):
        keeper.tick()
    assert lease.left == 1


def test_a_run_that_could_not_be_held_is_held_at_the_next_look() -> None:
    host = Clock()
    asked: list[int] = []

    def hung() -> None:
        asked.append(host.at)
        if len(asked) == 1:
            raise StoreUnavailable("locked")

    watchdog = Watchdog(cast("Host", host), limit=10, landing=10)
    watchdog.enter(cast("Instance", Stubborn()), hung)
    for _ in range(6):
        watchdog.tick()
        host.at += 11
    assert CALLS == ["interrupted"]
    assert len(asked) == 2


def test_a_throw_that_lands_while_the_activation_ends_comes_too_late() -> None:
    watchdog = Watchdog(cast("Host", Clock()), limit=10, landing=10)
    watchdog.enter(cast("Instance", Stubborn()), lambda: None)
    lock = watchdog._lock  # pyright: ignore[reportPrivateUsage]

    class Unlucky:
        landed = False

        def __enter__(self) -> None:
            lock.acquire()
            if not self.landed:
                self.landed = True
                lock.release()
                raise ActivationTimeout

        def __exit__(self, *exception: object) -> None:
            lock.release()

    watchdog._lock = cast("Any", Unlucky())  # pyright: ignore[reportPrivateUsage]
    watchdog.leave()
    assert watchdog._instance is None  # pyright: ignore[reportPrivateUsage]


async def test_a_throw_that_lands_behind_an_advance_saves_its_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, waits_beside_a_step) as w:
        worker = await w.worker()
        leave = worker.engine.watchdog.leave
        landed: list[int] = []

        def unlucky() -> None:
            leave()
            if CALLS == ["before"] and not landed:
                landed.append(1)
                raise ActivationTimeout

        monkeypatch.setattr(worker.engine.watchdog, "leave", unlucky)
        handle = await w.client.start(waits_beside_a_step.options(id="r"))
        await w.until("r", "held")
        assert [entry.kind for entry in await handle.history()] == ["step"]


async def test_a_wake_that_comes_while_its_run_is_brought_into_memory_is_not_lost(tmp_path: Path) -> None:
    async with world(tmp_path, waits_beside_a_step) as w:
        lost = await w.worker()
        await w.client.start(waits_beside_a_step.options(id="r"))
        await eventually(lambda: "long" in CALLS)
        await w.kill(lost)

        worker = await _worker_that_is_told_early(w)
        await eventually(lambda: "now" in CALLS)
        assert worker.memory.active
        GATE.set()


async def _worker_that_is_told_early(w: World) -> Worker:
    """Start a worker that takes the wake of an event between a run's claim and its replay."""
    worker = await w.worker(poll=60_000_000)
    rebuild = worker.loader.rebuild
    early: list[asyncio.Future[None]] = []

    async def tell(record: Record) -> None:
        await w.client.send_event("go", "now", correlation_id="c")
        await worker.store.match(10)
        (newer,) = await worker.store.pulse(worker.id)

        def take() -> None:
            rebuild(record)
            worker.claimer._wake(newer)  # pyright: ignore[reportPrivateUsage]

        worker.host.call_soon(take)

    def told(record: Record) -> None:
        early.append(asyncio.ensure_future(tell(record)))

    worker.loader.rebuild = told  # type: ignore[method-assign]
    return worker


async def test_a_step_that_could_not_be_armed_is_armed_once_the_lease_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, sleeps_beside_a_step) as w:
        worker = await w.worker()
        handle = await w.client.start(sleeps_beside_a_step.options(id="r"))
        await eventually(lambda: "long" in CALLS)
        monkeypatch.setattr(worker, "may_arm", lambda: False)
        while len(await handle.history()) < 1:
            await asyncio.sleep(0.01)
        ((armed,),) = w.rows("SELECT armed FROM runs")
        assert len(json.loads(armed)) == 1  # the lease may be over before the body begins
        monkeypatch.undo()
        await eventually(lambda: "after" in CALLS)
        GATE.set()


async def test_a_worker_that_doubts_its_name_twice_registers_once_and_leaves_no_row(tmp_path: Path) -> None:
    async with world(tmp_path, sleeps_beside_a_step) as w:
        worker = await w.worker()
        first = worker.id
        worker.doubt()
        worker.doubt()
        worker._lost(worker.id)  # pyright: ignore[reportPrivateUsage]
        await eventually(lambda: worker.id != first and worker.may_arm() and not worker._tasks)  # pyright: ignore[reportPrivateUsage]
        assert w.rows("SELECT id FROM workers WHERE NOT dead") == [(worker.id,)]
        await w.stop(worker)
        assert w.rows("SELECT id FROM workers WHERE NOT dead") == []


async def test_a_worker_that_stops_while_it_registers_afresh_leaves_no_row(tmp_path: Path) -> None:
    async with world(tmp_path, sleeps_beside_a_step) as w:
        worker = await w.worker()
        away, register = True, worker.store.register

        async def unreachable(*given: Any) -> Any:
            CALLS.append("tried")
            if away:
                raise StoreUnavailable("away")
            return await register(*given)

        worker.store.register = unreachable  # type: ignore[method-assign,assignment]
        worker._lost(worker.id)  # pyright: ignore[reportPrivateUsage]
        await eventually(lambda: len(CALLS) > 1)
        stopping = asyncio.ensure_future(worker.stop(0))
        away = False
        await stopping
        for _ in range(20):
            await asyncio.sleep(0)
        assert w.rows("SELECT id FROM workers WHERE NOT dead AND id = ?", worker.id) == []
        assert not worker._tasks  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("call", ["claim", "sweep", "apply"])
async def test_a_worker_stops_although_a_cancellation_gets_lost(tmp_path: Path, call: str) -> None:
    async with world(tmp_path, sleeps_beside_a_step) as w:
        worker = await w.worker(poll=20_000, sweep=20_000)
        real = getattr(worker.store, call)

        async def deaf(*given: Any, **named: Any) -> Any:
            CALLS.append(call)
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                setattr(worker.store, call, real)
            return await real(*given, **named)

        setattr(worker.store, call, deaf)
        await w.client.start(sleeps_beside_a_step)
        await eventually(lambda: call in CALLS)
        await asyncio.wait_for(worker.crash(), 20)
        await worker.store.close()
        w.workers.remove(worker)


async def test_a_run_claimed_alone_is_alone_before_it_is_in_memory(tmp_path: Path) -> None:
    async with world(tmp_path, waits_beside_a_step, sleeps_beside_a_step) as w:
        lost = await w.worker()
        await w.client.start(waits_beside_a_step.options(id="lossy"))
        await eventually(lambda: "long" in CALLS)
        await w.kill(lost)
        await w.client.start(sleeps_beside_a_step.options(id="other", delay=3600))
        with w.database() as database:
            database.execute("UPDATE runs SET losses = 2 WHERE id = 'lossy'")  # the next sweep counts the third
        worker = await w.worker()
        replay = worker.loader._replay  # pyright: ignore[reportPrivateUsage]

        async def slow(record: Record) -> None:
            with w.database() as database:
                database.execute("UPDATE runs SET wake_at = 1, queue_at = 1 WHERE id = 'other'")
            await worker.claimer.look()
            CALLS.append(f"other: {w.rows('SELECT owner FROM runs WHERE id = ?', 'other')[0][0]}")
            await replay(record)

        worker.loader._replay = slow  # type: ignore[method-assign]  # pyright: ignore[reportPrivateUsage]
        await eventually(lambda: len(CALLS) > 3)
        assert CALLS == ["before", "long", "other: None", "long"]
        GATE.set()


async def test_a_run_claimed_under_a_name_given_up_since_is_not_taken_up(tmp_path: Path) -> None:
    async with world(tmp_path, waits_beside_a_step) as w:
        worker = await w.worker()
        await w.client.start(waits_beside_a_step.options(id="r"))
        await eventually(lambda: "long" in CALLS)
        (driver,) = worker.memory.active.values()
        record = await worker.store.record("default", "r")
        assert record is not None
        worker.id = "another-name"
        worker.loader.take(record)
        assert list(worker.memory.active.values()) == [driver]
        assert not worker.loader.loading
        worker.id = record.run.owner or ""
        GATE.set()


OTHER = asyncio.Event()


@romulus.step
async def keeps_busy() -> None:
    CALLS.append("busy")
    await OTHER.wait()


@romulus.workflow
async def busy() -> None:
    await keeps_busy()


@romulus.workflow
async def loses_workers() -> str:
    await long()
    return "done"


async def test_a_run_that_workers_keep_losing_is_tried_by_a_worker_that_is_never_idle(tmp_path: Path) -> None:
    global OTHER
    OTHER = asyncio.Event()
    async with world(tmp_path, busy, loses_workers) as w:
        lossy = await w.client.start(loses_workers)
        for lost in range(1, 4):
            worker = await w.worker()
            await eventually(lambda lost=lost: CALLS.count("long") == lost)  # type: ignore[misc]
            await w.kill(worker)
        occupied = await w.client.start(busy)
        await w.worker(alone_patience=100_000)
        await eventually(lambda: CALLS.count("busy") == 1)
        GATE.set()
        assert await lossy.result(timeout=20) == "done"
        assert (await occupied.describe()).status == "running"
        OTHER.set()
        await occupied.result(timeout=20)


async def test_a_wake_of_an_earlier_claim_is_not_taken_up(tmp_path: Path) -> None:
    async with world(tmp_path, waits_beside_a_step) as w:
        worker = await w.worker()
        await w.client.start(waits_beside_a_step.options(id="r"))
        await eventually(lambda: "long" in CALLS)
        (driver,) = worker.memory.active.values()
        record = await worker.store.record("default", "r")
        assert record is not None
        record.run.cancel_seq = 7
        record.run.fence -= 1
        worker.claimer._wake(record)  # pyright: ignore[reportPrivateUsage]
        assert driver.cancel_seen == 0
        record.run.fence += 1
        worker.claimer._wake(record)  # pyright: ignore[reportPrivateUsage]
        assert driver.cancel_seen == 7
        GATE.set()
