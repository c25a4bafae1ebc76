"""Ownership and leases: who holds a run, for how long, and what the others may not do meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from tests.cases.apps.chains import barrier, chain
from tests.processes.stage import FULL, LEASE_S, Stage, on_both_stores

pytestmark = [pytest.mark.process, on_both_stores]
APP = "tests.cases.apps.chains:app"


async def _renewals(stage: Stage, seconds: float) -> None:
    """Wait until every worker has renewed its lease for that long."""
    begun = stage.rows("SELECT max(renewed_at) FROM workers")[0][0]
    await stage.until(
        lambda: stage.rows("SELECT min(renewed_at) FROM workers")[0][0] > begun + seconds * 1_000_000, f"renewals over {seconds} s"
    )


async def test_work_longer_than_the_lease_is_begun_once_while_renewed_and_a_delayed_run_never_before_it_is_due(stage: Stage) -> None:
    """RB-02."""
    await asyncio.gather(stage.worker(APP), stage.worker(APP))
    delayed = await stage.client.start(chain.options(id="delayed", delay=2.5 * LEASE_S), "delayed", "async")
    runs = {kind: await stage.client.start(chain.options(id=kind), kind, kind) for kind in ("async", "thread")}
    stage.open("delayed")
    await stage.seen("begin", run="async")
    await stage.seen("begin", run="thread")
    await _renewals(stage, 10 if FULL else 2.5 * LEASE_S)
    for kind, handle in runs.items():
        stage.open(kind)
        assert await handle.result(timeout=30) == [kind, "2", "3"]
    assert await delayed.result(timeout=30) == ["delayed", "2", "3"]

    assert [(e["run"], e["attempt"]) for e in sorted(stage.effects("begin"), key=lambda e: e["run"])] == [
        ("async", 1), ("delayed", 1), ("thread", 1),
    ]  # fmt: skip
    ((due, started),) = stage.rows("SELECT created_at + ?, started_at FROM runs WHERE id = 'delayed'", 2_500_000 * LEASE_S)
    assert started >= due
    assert stage.rows("SELECT count(*) FROM workers WHERE dead") == [(0,)]
    stage.whole()


@pytest.mark.parametrize("pruned", [False, True])
async def test_the_claims_of_a_killed_worker_are_taken_over_though_another_starts_at_once_or_its_row_is_gone(
    stage: Stage, pruned: bool
) -> None:
    """RB-03: a worker's identity is made anew at each start, and a claim whose worker is unknown is free."""
    first = await stage.worker(APP)
    handle = await stage.client.start(chain.options(id="r"), "r", "async")
    ((owner, fence),) = [(first, e["fence"]) for e in await stage.seen("begin")]
    first.kill()
    if pruned:
        with stage.database() as database:
            database.execute("DELETE FROM workers")
    await stage.worker(APP)
    stage.open("r")
    assert await handle.result(timeout=30) == ["r", "2", "3"]

    assert [(e["attempt"], e["pid"] == owner.pid) for e in stage.effects("begin")] == [(1, True), (2, False)]
    assert all(f > fence for (f,) in stage.rows("SELECT fence FROM journal"))
    stage.whole()


async def test_what_an_incarnation_whose_row_was_pruned_still_reports_is_refused_and_kept(stage: Stage) -> None:
    """RB-03: the old token."""
    first = await stage.worker(APP)
    handle = await stage.client.start(chain.options(id="r"), "r", "thread")
    (begun,) = await stage.seen("begin")
    await stage.freeze(first)
    with stage.database() as database:
        database.execute("DELETE FROM workers")
    second = await stage.worker(APP)
    await stage.seen("begin", attempt=2)
    stage.open("r")
    assert await handle.result(timeout=30) == ["r", "2", "3"]
    before = await handle.history()
    first.thaw()
    await stage.seen("end", attempt=1)
    await stage.until(lambda: len(stage.rows("SELECT 1 FROM workers")) == 2, "the old incarnation registers afresh")

    assert await handle.history() == before
    assert {e.fence for e in await handle.evidence()} <= {begun["fence"]}
    assert [e["pid"] for e in stage.effects("work")] == [second.pid] * 2
    stage.whole()


async def test_branches_that_end_together_join_once_and_no_ended_run_goes_back(stage: Stage) -> None:
    """RS-03: also where the first writer is frozen with its writes under way until the second has finished."""
    count, width = (500, 4) if FULL else (150, 4)
    first, _ = await asyncio.gather(stage.worker(APP), stage.worker(APP))
    handles = await asyncio.gather(*(stage.client.start(barrier.options(id=f"b{n}"), n, width) for n in range(count)))
    await stage.seen("branch", count)
    await stage.freeze(first)
    results = await asyncio.gather(*(handle.result(timeout=60) for handle in handles))
    ended = stage.rows("SELECT id, revision, fence, finished_at FROM runs ORDER BY id")
    first.thaw()
    last = await stage.client.start(barrier.options(id="last"), 0, width)
    await last.result(timeout=30)
    await stage.until(lambda: stage.rows("SELECT count(*) FROM workers WHERE NOT dead") == [(2,)], "both work again")

    assert results == [sum(n * 10 + b for b in range(width)) for n in range(count)]
    assert stage.rows("SELECT id, revision, fence, finished_at FROM runs WHERE id <> 'last' ORDER BY id") == ended
    assert stage.rows("SELECT count(*) FROM journal") == [((count + 1) * width,)]
    stage.whole()


async def test_code_that_blocks_the_event_loop_does_not_lose_the_lease(stage: Stage) -> None:
    """RB-04: a blocking call, and pure computing. At full length with the case's lease; else with one that a loaded machine bears."""
    lease_s = LEASE_S if FULL else 2 * LEASE_S
    await stage.worker(APP, ROMULUS_LEASE=str(lease_s))
    sleeping = await stage.client.start(chain.options(id="blocking"), "blocking", "blocking")
    await stage.seen("begin", run="blocking")
    await stage.worker(APP, ROMULUS_LEASE=str(lease_s))
    computing = await stage.client.start(chain.options(id="computing"), "computing", "computing")
    await stage.seen("begin", run="computing")
    await stage.worker(APP, ROMULUS_LEASE=str(lease_s))
    await _renewals(stage, 8 if FULL else 2 * lease_s)
    stage.open("blocking")
    stage.open("computing")
    assert await sleeping.result(timeout=30) == ["blocking", "2", "3"]
    assert await computing.result(timeout=30) == ["computing", "2", "3"]

    assert [e["attempt"] for e in stage.effects("begin")] == [1, 1]
    for run in ("blocking", "computing"):
        assert (
            len(
                {f for (f,) in stage.rows("SELECT j.fence FROM journal j JOIN runs r ON r.generation_key = j.generation WHERE id = ?", run)}
            )
            == 1
        )
    assert stage.rows("SELECT count(*) FROM workers WHERE NOT dead") == [(3,)]
    assert stage.rows("SELECT count(*) FROM evidence") == [(0,)]


async def test_a_worker_frozen_past_its_lease_wakes_up_changes_nothing_and_serves_on(stage: Stage) -> None:
    """RS-04: with a step of each kind under way."""
    kinds = ("async", "thread", "blocking")
    first = await stage.worker(APP)
    handles = []
    for kind in kinds:
        handles.append(await stage.client.start(chain.options(id=kind), "gate", kind))
        await stage.seen("begin", run=kind)
    await stage.freeze(first)
    fences = {e["run"]: e["fence"] for e in stage.effects("begin")}
    second = await stage.worker(APP)
    stage.open("gate")
    assert [await handle.result(timeout=30) for handle in handles] == [["gate", "2", "3"]] * 3
    before = [await handle.history() for handle in handles]
    first.thaw()
    fresh = "SELECT count(*) FROM workers WHERE NOT dead AND pid = ?"
    await stage.until(lambda: stage.rows(fresh, first.pid) == [(1,)], "registers afresh")
    await stage.stop(second)

    other = await stage.client.start(chain.options(id="other"), "gate", "async")
    assert await other.result(timeout=30) == ["gate", "2", "3"]
    assert [await handle.history() for handle in handles] == before
    assert all(entry.fence > fences[handle.id] for handle, history in zip(handles, before, strict=True) for entry in history)
    for kind, handle in zip(kinds, handles, strict=True):
        assert [e["attempt"] for e in stage.effects("begin", run=kind)] == [1, 2]
        assert {e["pid"] for e in stage.effects("work", run=kind)} == {second.pid}
        assert {e.fence for e in await handle.evidence()} <= {fences[kind]}
    assert {e["pid"] for e in stage.effects(run="other")} == {first.pid}
    assert "Traceback" not in first.log
    stage.whole()
