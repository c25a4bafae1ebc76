"""A run that this worker has dropped, and one that it takes anew: nothing late touches either."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import romulus
from romulus.core.errors import CommitUnknown, StoreUnavailable
from romulus.core.record import HoldKind
from romulus.core.transition import Verdict
from romulus.worker.draft import Draft
from romulus.worker.driver import RunDriver
from romulus.worker.engine import CancelIn
from romulus.worker.takeup import parse_armed
from tests.worker.gates import CALLS, GATE, fresh, gated
from tests.worker.rig import World, eventually, world

__all__ = ["fresh"]


@romulus.workflow
async def waits(name: str) -> str:
    return await gated(name)


async def one_gated(w: World, worker: Any) -> RunDriver:
    """Start a run and return its driver once its step's body waits."""
    await w.client.start(waits.options(id="r"), "a")
    await eventually(lambda: len(CALLS) == 1)
    (driver,) = worker.memory.active.values()
    await eventually(lambda: driver.in_flight is None)
    return driver


LATE: dict[str, Callable[[RunDriver, Any], object]] = {
    "an arrival": lambda driver, record: driver.arrive(CancelIn(1, "", "")),
    "a wake": lambda driver, record: driver.woken(record),
    "a turn": lambda driver, record: driver.turn(),
    "a hold": lambda driver, record: driver.hold(HoldKind.COMMIT, "late"),
    "a return": lambda driver, record: driver.give_back(),
    "an answer": lambda driver, record: driver.answered(Draft(1), None, Verdict.REFUSED),  # type: ignore[arg-type]
    "a step's end": lambda driver, record: driver.undone(),
    "a slot given back": lambda driver, record: driver.unreserve(),
    "a due time": lambda driver, record: driver._due(),
}


@pytest.mark.parametrize("late", LATE)
async def test_what_comes_late_for_a_dropped_run_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str) -> None:
    async with world(tmp_path, waits) as w:
        worker = await w.worker()
        driver = await one_gated(w, worker)
        record = await worker.store.record("default", "r")
        assert record is not None
        record.run.cancel_seq = 1
        driver.drop()
        asked: list[str] = []
        queued = list(driver.queue)

        with monkeypatch.context() as patched:
            patched.setattr(driver.engine.committer, "submit", lambda *_: asked.append("submit"))
            patched.setattr(worker, "rebuild", lambda *_: asked.append("rebuild"))
            patched.setattr(RunDriver, "first_turn", lambda *_: asked.append("turn"))
            LATE[late](driver, record)

        assert (asked, list(driver.queue)) == ([], queued)
        worker.memory.leave(driver)


async def test_a_slot_granted_to_a_dropped_run_is_given_back_and_its_place_to_a_step(tmp_path: Path) -> None:
    async with world(tmp_path, waits) as w:
        worker = await w.worker(concurrency=2)
        driver = await one_gated(w, worker)
        driver.drop()
        await eventually(lambda: worker.engine.slots.used == 0)
        assert worker.engine.slots.take()

        driver.slot_granted()

        assert worker.engine.slots.used == 0
        granted: list[str] = []
        driver.reserve(lambda: granted.append("told"))  # a transactional step that waits must not wait for ever
        assert (granted, list(driver.reservations)) == (["told"], [])
        worker.memory.leave(driver)


@pytest.mark.parametrize("error", [StoreUnavailable, CommitUnknown, RuntimeError])
async def test_a_run_that_cannot_be_taken_anew_at_once_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    async with world(tmp_path, waits) as w:
        worker = await w.worker()
        driver = await one_gated(w, worker)
        before, reclaim, failed = worker.id, worker.store.reclaim, list[str]()

        async def fails(*given: Any) -> Any:
            if not failed:
                failed.append("once")
                raise error("broken")
            return await reclaim(*given)

        monkeypatch.setattr(worker.store, "reclaim", fails)
        GATE.set()
        driver.undone()
        assert await w.client.get("r").result(timeout=20) == "a"
        assert (worker.id == before) is (error is StoreUnavailable)  # else what the store holds under the name is not known
        told = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert len(told) == (error is RuntimeError)


async def test_what_was_armed_when_a_run_is_held_before_it_was_taken_up_counts_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, waits) as w:
        lost = await w.worker()
        await one_gated(w, lost)
        await w.kill(lost)

        def broken(*_: Any) -> Any:
            raise ZeroDivisionError("a defect")

        with monkeypatch.context() as patched:
            patched.setattr("romulus.worker.takeup.take_up", broken)
            await w.worker()
            await w.until("r", "held")
        assert numbers(w) == [1]
        await w.client.get("r").release()
        await eventually(lambda: len(CALLS) == 2)
        assert numbers(w) == [2]
        GATE.set()
        assert await w.client.get("r").result(timeout=20) == "a"


def numbers(w: World) -> list[int]:
    """Return the numbers of the attempts that the run's row lists as armed."""
    return [attempt.number for attempt in parse_armed(w.rows("SELECT armed FROM runs")[0][0])]
