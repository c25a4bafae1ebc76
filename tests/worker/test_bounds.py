"""Bounds of a worker: what is held at the history's limit, what one transition takes, and what keeps from claiming more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import romulus
from romulus.core.transition import Transition
from romulus.worker.committer import Committer
from tests.worker.gates import CALLS, GATE, fresh, gated, noted
from tests.worker.rig import eventually, world

__all__ = ["fresh"]


@romulus.workflow
async def goes_on(steps: int) -> int:
    for number in range(steps):
        await noted(str(number))
    return steps


@romulus.workflow
async def waits(name: str) -> str:
    return await gated(name)


@romulus.workflow
async def fans_out(steps: int) -> list[str]:
    return list(await asyncio.gather(*(gated(str(number)) for number in range(steps))))


@romulus.workflow
async def gives_up_what_is_queued() -> str:
    first, second = asyncio.create_task(gated("first")), asyncio.create_task(gated("second"))
    third = asyncio.create_task(noted("third"))
    await romulus.wait_for_event("go", correlation_id="c", type=str)
    second.cancel()
    return await first + await third


async def test_a_step_given_up_while_it_waits_for_a_slot_never_begins(tmp_path: Path) -> None:
    async with world(tmp_path, gives_up_what_is_queued) as w:
        worker = await w.worker(concurrency=1)
        handle = await w.client.start(gives_up_what_is_queued)
        await eventually(lambda: CALLS == ["first"])
        await w.client.send_event("go", "now", correlation_id="c")
        await eventually(lambda: bool(w.rows("SELECT 1 FROM journal WHERE kind = 'wait'")))
        GATE.set()
        assert await handle.result(timeout=20) == "firstthird"
        assert CALLS == ["first", "third"]
        await eventually(lambda: worker.engine.slots.used == 0)


async def test_a_run_that_waits_for_a_slot_is_told_when_one_is_given_back(tmp_path: Path) -> None:
    async with world(tmp_path, waits) as w:
        worker = await w.worker(concurrency=1, lease=3_600_000_000)  # it looks of its own accord after a quarter of that
        first = await w.client.start(waits, "a")
        await eventually(lambda: CALLS == ["a"])
        second = await w.client.start(waits, "b")
        await eventually(lambda: len(worker.memory.active) == 2)
        GATE.set()
        assert [await first.result(timeout=20), await second.result(timeout=20)] == ["a", "b"]
        await eventually(lambda: worker.engine.slots.used == 0)


@romulus.workflow
async def then_notes(name: str) -> str:
    return await noted(await gated(name) + "!")


async def test_a_worker_whose_lease_is_about_to_end_arms_nothing_until_it_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, then_notes) as w:
        worker = await w.worker()
        handle = await w.client.start(then_notes, "a")
        await eventually(lambda: CALLS == ["a"])
        with monkeypatch.context() as patched:
            patched.setattr(worker, "may_arm", lambda: False)
            GATE.set()
            await eventually(lambda: bool(w.rows("SELECT 1 FROM journal")))
            (driver,) = worker.memory.active.values()
            await eventually(lambda: driver.in_flight is None and driver.looks_again)
            assert (CALLS, list(driver.armed)) == (["a"], [])
        assert await handle.result(timeout=20) == "a!"


async def test_a_run_is_warned_of_once_and_held_at_the_historys_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with world(tmp_path, goes_on) as w:
        await w.worker(history_warn=3, history_max=5)
        await w.client.start(goes_on.options(id="r"), 10)
        held = await w.until("r", "held")
        assert "the history has reached 5 entries" in (held.hold_reason or "")
        assert [entry.value for entry in await w.client.get("r").history()] == ["0", "1", "2", "3", "4"]
        warned = [record.getMessage() for record in caplog.records if "journal entries" in record.getMessage()]
        assert warned == ["run 'r' has 3 journal entries and is held at 5: let its workflow continue_as_new()"]
        assert CALLS == ["0", "1", "2", "3", "4"]


async def test_a_run_that_ends_with_its_last_allowed_entry_is_not_held(tmp_path: Path) -> None:
    async with world(tmp_path, goes_on) as w:
        await w.worker(history_max=5)
        assert await (await w.client.start(goes_on, 5)).result(timeout=20) == 5


@pytest.mark.parametrize(("bound", "most"), [({"turn_entries_max": 2}, 2), ({"turn_bytes_max": 1}, 1)])
async def test_one_transition_takes_so_much_of_what_has_ended_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: dict[str, Any], most: int
) -> None:
    taken: list[int] = []
    submit = Committer.submit

    def counted(self: Committer, transition: Transition, answer: Any) -> None:
        taken.append(len(transition.entries))
        submit(self, transition, answer)

    async with world(tmp_path, fans_out) as w:
        await w.worker(**bound)
        handle = await w.client.start(fans_out, 7)
        await eventually(lambda: len(CALLS) == 7)
        monkeypatch.setattr(Committer, "submit", counted)
        GATE.set()
        assert await handle.result(timeout=20) == [str(number) for number in range(7)]
    assert max(taken) == most
    assert sum(taken) == 7


async def test_nothing_more_is_claimed_while_runs_in_memory_hold_many_bytes(tmp_path: Path) -> None:
    async with world(tmp_path, waits) as w:
        worker = await w.worker(record_bytes_max=100)
        first = await w.client.start(waits, "a" * 200)
        await eventually(lambda: len(CALLS) == 1)
        second = await w.client.start(waits, "b")
        for _ in range(3):
            await worker.claimer.look()
        assert w.rows("SELECT count(*) FROM runs WHERE owner IS NOT NULL") == [(1,)]
        GATE.set()
        assert [await first.result(timeout=20), await second.result(timeout=20)] == ["a" * 200, "b"]


async def test_nothing_more_is_claimed_while_many_transitions_wait_for_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backlog = [6]
    monkeypatch.setattr(Committer, "backlog", property(lambda _: backlog[0]))
    async with world(tmp_path, goes_on) as w:
        worker = await w.worker(backlog_max=5)
        handle = await w.client.start(goes_on, 1)
        for _ in range(3):
            await worker.claimer.look()
        assert w.rows("SELECT count(*) FROM runs WHERE owner IS NOT NULL") == [(0,)]
        backlog[0] = 5
        assert await handle.result(timeout=20) == 1
