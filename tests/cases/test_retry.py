"""Attempts: their numbers, their limits, and what a crash in the middle of one does to both."""

from __future__ import annotations

import pytest

import romulus
from tests.cases.apps.chains import barrier, books, careful, patient, poison, survives
from tests.processes.stage import Stage

pytestmark = pytest.mark.process
APP = "tests.cases.apps.chains:app"


@pytest.mark.parametrize("where", ["at the start", "during", "thread"])
async def test_attempt_numbers_go_on_over_a_crash_and_a_lost_attempt_does_not_use_the_limit_up(stage: Stage, where: str) -> None:
    """RB-16: max_attempts=3, attempt 1 fails, attempt 2 is killed in its body, attempt 3 is the last that may fail but one."""
    first = await stage.worker(APP)
    handle = await stage.client.start(survives.options(id="r"), where)
    await stage.seen("begin", attempt=2)
    if where == "during":
        first.kill()
    assert await stage.exited(first) == -9
    await stage.worker(APP)

    assert await handle.result(timeout=30) == "attempt 3"
    assert [e["attempt"] for e in stage.effects("begin")] == [1, 2, 3]
    assert [(entry.attempt, entry.error) for entry in await handle.history()] == [(3, None)]
    stage.whole()


async def test_three_failures_end_a_step_of_three_attempts_whatever_was_lost_between_them(stage: Stage) -> None:
    """RB-16 as DESIGN 6 refines it: the lost attempt has a number and counts to the loss limit, not to `max_attempts`."""
    first = await stage.worker(APP)
    handle = await stage.client.start(survives.options(id="r"), "fails")
    await stage.seen("begin", attempt=2)
    await stage.exited(first)
    await stage.worker(APP)
    with pytest.raises(romulus.RunFailed) as failed:
        await handle.result(timeout=30)

    assert str(failed.value.__cause__) == "failure of attempt 4"
    assert [e["attempt"] for e in stage.effects("begin")] == [1, 2, 3, 4]
    stage.whole()


async def test_one_attempt_is_one_body_and_a_lost_one_waits_for_a_person(stage: Stage) -> None:
    """RB-16: max_attempts=1."""
    first = await stage.worker(APP)
    failing = await stage.client.start(careful.options(id="fails"), "fails")
    with pytest.raises(romulus.RunFailed):
        await failing.result(timeout=30)
    killed = await stage.client.start(careful.options(id="killed"), "killed")
    await stage.exited(first)
    await stage.worker(APP)
    held = await stage.status("killed", "held")
    assert "attempt 1 of step 'only_once'" in (held.hold_reason or "")
    assert [(e["run"], e["attempt"]) for e in stage.effects("begin")] == [("fails", 1), ("killed", 1)]

    await killed.release()
    assert await killed.result(timeout=30) == "done"
    assert [e["attempt"] for e in stage.effects("begin", run="killed")] == [1, 2]


async def test_no_limit_is_for_ever_and_numbers_never_begin_anew(stage: Stage) -> None:
    """RB-16: max_attempts=None, the worker is replaced in the middle."""
    first = await stage.worker(APP)
    handle = await stage.client.start(patient.options(id="r"), 40)
    await stage.seen("begin", 10)
    first.kill()
    await stage.worker(APP)

    assert await handle.result(timeout=30) == 40
    assert [e["attempt"] for e in stage.effects("begin")] == list(range(1, 41))
    stage.whole()


async def test_a_run_that_ends_every_process_is_held_with_the_reason_and_the_others_go_on(stage: Stage) -> None:
    """RB-16's limit of losses (DESIGN 6, poison), under a supervisor that starts new processes all the while."""
    supervisor = stage.starting_worker(APP, "--processes", "2")
    handle = await stage.client.start(poison.options(id="poison"))
    others = [await stage.client.start(barrier.options(id=f"b{n}"), n, 3) for n in range(20)]
    held = await stage.status("poison", "held", "failed", "succeeded")
    assert held.status == "held", held
    assert "romulus runs release" in (held.hold_reason or "")
    bodies = [e["attempt"] for e in stage.effects("deadly")]
    assert bodies == list(range(1, len(bodies) + 1))
    assert len(bodies) <= 5
    assert [await other.result(timeout=60) for other in others] == [n * 30 + 3 for n in range(20)]
    assert [entry.name for entry in await handle.history()] == ["work"]
    await handle.terminate("enough")
    await stage.stop(supervisor)
    stage.whole()


async def test_a_transactional_step_killed_after_its_write_leaves_nothing_and_is_done_once(stage: Stage) -> None:
    """RB-16 with the effect inside the store: attempt 1 is killed before its commit, attempt 2 writes and is recorded in one."""
    await stage.client.runs()
    with stage.database() as database:
        database.execute("CREATE TABLE bookings (id TEXT)")
    first = await stage.worker(APP)
    handle = await stage.client.start(books.options(id="r"), "o", "killed")
    await stage.exited(first)
    assert stage.rows("SELECT * FROM bookings") == []
    second = await stage.worker(APP)
    await stage.seen("begin", step="gated")
    second.kill()
    stage.open("o")
    await stage.worker(APP)
    assert await handle.result(timeout=30) == ["o", "o", "o again"]
    assert stage.rows("SELECT * FROM bookings") == [("o",), ("o again",)]
    assert [e["attempt"] for e in stage.effects("book")] == [1, 2, 1]
    assert stage.rows("PRAGMA integrity_check") == [("ok",)]
