"""Writes in a pool by force: one process works the runs, another holds the provider's secret, and that one is killed, frozen and stopped.

The promises are those of `test_operations`: exactly one effect under each operation's ID, and what nobody can know is held first.
"""

from __future__ import annotations

import pytest

from tests.processes.apps.writes import DIE_AT, write_all
from tests.processes.crm import ABILITIES, Crm, Writes, crm, frozen, kinds
from tests.processes.stage import FULL, Process, Stage, on_both_stores
from tests.processes.test_operations import BEHAVIOURS, POINTS, all_come

__all__ = ["crm"]
pytestmark = [pytest.mark.process]
APP = "tests.processes.apps.writes:app"
POOL = ("--pool", "crm")
both_if_full = on_both_stores if FULL else pytest.mark.parametrize("stage", ["sqlite"], indirect=True)
postgres_if_quick = on_both_stores if FULL else pytest.mark.parametrize("stage", ["postgres"], indirect=True)


@pytest.fixture
async def runs(stage: Stage, crm: Crm) -> Process:
    """The worker of the runs, which cannot send."""
    stage.environment["WRITES_POOL"] = "crm"
    return await stage.worker(APP)


# By store, so that each is met: before, during and after the send, before and after the commit of the outcome.
QUICKLY = [
    ("postgres", "armed, before the send", "loses answers"), ("sqlite", "applied, not answered", "shows late"),
    ("postgres", "answered, not recorded", "answers"), ("sqlite", "recorded", "answers"),
]  # fmt: skip
CASES = [(store, point, behaviour) for store in ("sqlite", "postgres") for point in POINTS for behaviour in BEHAVIOURS] if FULL else QUICKLY


@pytest.mark.parametrize(("stage", "point", "behaviour"), CASES, indirect=["stage"])
async def test_a_holder_killed_at_any_point_of_a_write_leaves_one_effect(
    stage: Stage, crm: Crm, runs: Process, point: str, behaviour: str
) -> None:
    door, held, reached = POINTS[point]
    if door:
        stage.shut(door)
    await crm.behave(**held)
    holder, writes = await stage.worker(APP, *POOL), Writes(stage, crm)
    await writes.start()
    await reached(stage, crm, holder)
    holder.kill()
    if door:
        stage.unshut(door)
    await all_come(stage, crm, point)
    await crm.behave(**{**dict.fromkeys(held, 0), **BEHAVIOURS[behaviour]})
    again = await stage.worker(APP, *POOL)
    await writes.one_effect_each()
    assert writes.resolved >= (point != "recorded")  # the one that nobody can ask was held
    assert {line["pid"] for line in stage.effects("send")} <= {holder.pid, again.pid}
    assert {line["pid"] for line in stage.effects("after")} == {runs.pid}


# From the claim to the outcome: claimed, armed, sent, told.
STATEMENTS = (
    "operations.take.done", "operations.take>sqlite.commit.done", "operations.become", "operations.become>sqlite.commit.done",
    "operation.send", "operation.send>operations.become", "operation.send>operations.tell.done",
    "operation.send>operations.tell>sqlite.commit.done",
)  # fmt: skip


@pytest.mark.parametrize("at", STATEMENTS if FULL else STATEMENTS[6:7])
async def test_a_holder_killed_at_a_statement_of_a_write_leaves_one_effect(stage: Stage, crm: Crm, runs: Process, at: str) -> None:
    holder, writes = await stage.worker(APP, *POOL, **{DIE_AT: at}), Writes(stage, crm)
    await writes.start()
    await stage.exited(holder)
    await stage.worker(APP, *POOL)
    await writes.one_effect_each()


@both_if_full
async def test_a_holder_frozen_before_its_send_that_goes_on_in_time_leaves_one_effect(stage: Stage, crm: Crm, runs: Process) -> None:
    """Its send is waited for: "not found" is not believed while it may still come."""
    stage.environment["WRITES_SETTLE_S"] = "15"
    writes = Writes(stage, crm)
    holder = await frozen(stage, writes, APP, *POOL)
    await writes.until("unknown", of=["lookup"])
    asked = (await writes.operations())["lookup"].id
    await stage.until(lambda: crm.contacts("lookup")[asked] > 0, "the CRM is asked, and has nothing")
    holder.thaw()
    await stage.until(lambda: len(crm.effects()) == len(ABILITIES), "the sends of the process that goes on")
    await writes.one_effect_each()


@postgres_if_quick
async def test_a_deploy_of_the_holders_makes_nothing_unknown(stage: Stage, crm: Crm, runs: Process) -> None:
    """SIGTERM with writes under way and more in the pool: the ones end within the grace, the others go on elsewhere."""
    stage.environment["WRITES_TIMEOUT_S"] = "20"
    await crm.behave(answer_after_s=0.5)
    holder, writes = await stage.worker(APP, *POOL, "--concurrency", "2"), Writes(stage, crm)
    await writes.start()
    await stage.until(lambda: len(crm.effects()) == 2, "two are applied")
    await stage.stop(holder)
    states = sorted(each.state for each in (await writes.operations()).values())
    assert set(states) <= {"confirmed", "queued"}
    assert states.count("confirmed") == len(crm.effects())
    await stage.worker(APP, *POOL)
    await writes.one_effect_each()
    assert writes.resolved == 0
    assert set(crm.contacts("write").values()) == {1}
    assert crm.contacts("lookup") == {}


@both_if_full
async def test_after_kill_9_of_the_holder_only_what_was_armed_is_unknown(stage: Stage, crm: Crm, runs: Process) -> None:
    """10,000 in the pool where there is time for them; the claim is the same."""
    stage.shut("send")
    holder = await stage.worker(APP, *POOL, "--concurrency", "2")
    abilities = ["lookup", "key", "both"] * (3_334 if FULL else 20)
    handle = await stage.client.start(write_all.options(id="all"), abilities)
    await stage.seen("send", 2)
    await stage.until(lambda: stage.rows("SELECT count(*) FROM operations") == [(len(abilities),)], "every intent is recorded")
    holder.kill()
    armed = {each.id for each in await stage.client.operations(state="armed")}
    assert len(armed) == 2
    stage.unshut("send")
    await stage.worker(APP, *POOL)
    assert await handle.result(timeout=600 if FULL else 60) == abilities
    lost = {
        each for (each,) in stage.rows("SELECT o.id FROM operations o JOIN operation_notes n ON n.operation = o.key WHERE n.kind = 'lost'")
    }
    assert lost == armed
    effects = crm.effects()
    assert (len(effects), set(effects.values())) == (len(abilities), {1})


@both_if_full
async def test_a_killed_worker_of_the_runs_makes_nothing_unknown_that_the_holder_sends(stage: Stage, crm: Crm, runs: Process) -> None:
    stage.environment["WRITES_TIMEOUT_S"] = "20"
    stage.shut("send")
    await stage.worker(APP, *POOL)
    writes = Writes(stage, crm)
    await writes.start()
    await stage.seen("send", len(ABILITIES))
    runs.kill()
    stage.unshut("send")
    await writes.until("confirmed")
    await stage.worker(APP)
    await writes.one_effect_each()
    assert writes.resolved == 0
    assert set(crm.contacts("write").values()) == {1}
    for each in (await writes.operations()).values():
        assert "lost" not in await kinds(stage, each.id)
