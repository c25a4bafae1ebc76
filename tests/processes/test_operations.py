"""RB-71 and promise 6 by force: workers killed, frozen and stopped at each point of a write, the example CRM a process of its own.

There is one run for each ability that a provider can have. Whatever happens to the workers, in the end there is exactly one effect under
each operation's ID in the CRM's own file, and what nobody can know was held for a person first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from tests.processes.apps.writes import DIE_AT, write_all
from tests.processes.crm import ABILITIES, Crm, Writes, crm, frozen, kinds
from tests.processes.stage import FULL, Process, Stage, on_both_stores

__all__ = ["crm"]
pytestmark = [pytest.mark.process]
APP = "tests.processes.apps.writes:app"
both_if_full = on_both_stores if FULL else pytest.mark.parametrize("stage", ["sqlite"], indirect=True)

# How the CRM treats those who come after the disturbance.
BEHAVIOURS: Mapping[str, dict[str, Any]] = {
    "answers": {},
    "loses answers": {"drop_answers": 3},
    "loses requests": {"drop_requests": 3},
    "shows late": {"show_after_s": 0.2},
    "answers twice": {"answer_twice": 4},
    "applies late": {"delay_s": 0.4},
}


Point = Callable[[Stage, Crm, Process], Awaitable[None]]


async def _before_the_send(stage: Stage, crm: Crm, worker: Process) -> None:
    await stage.seen("send", len(ABILITIES))


async def _under_way(stage: Stage, crm: Crm, worker: Process) -> None:
    await stage.until(lambda: len(crm.contacts("write")) == len(ABILITIES), "every write has come")


async def _applied(stage: Stage, crm: Crm, worker: Process) -> None:
    await stage.until(lambda: len(crm.effects()) == len(ABILITIES), "every write is applied")


async def _after_the_reply(stage: Stage, crm: Crm, worker: Process) -> None:
    await stage.seen("reply", len(ABILITIES))


async def _recorded(stage: Stage, crm: Crm, worker: Process) -> None:
    await stage.seen("after", len(ABILITIES))


# By point: what holds the writes there, the door that is shut or what the CRM does, and how it is known that they have come there.
POINTS: Mapping[str, tuple[str, dict[str, Any], Point]] = {
    "armed, before the send": ("send", {}, _before_the_send),
    "under way, not applied": ("", {"delay_s": 0.8}, _under_way),
    "applied, not answered": ("", {"answer_after_s": 1.2}, _applied),
    "answered, not recorded": ("reply", {}, _after_the_reply),
    "recorded": ("after", {}, _recorded),
}
QUICKLY = [
    ("armed, before the send", "loses answers"), ("under way, not applied", "answers"), ("applied, not answered", "shows late"),
    ("answered, not recorded", "answers"),
]  # fmt: skip
CASES = [(point, behaviour) for point in POINTS for behaviour in BEHAVIOURS] if FULL else QUICKLY


@both_if_full
@pytest.mark.parametrize(("point", "behaviour"), CASES)
async def test_a_worker_killed_at_any_point_of_a_write_leaves_one_effect(stage: Stage, crm: Crm, point: str, behaviour: str) -> None:
    door, held, reached = POINTS[point]
    if door:
        stage.shut(door)
    await crm.behave(**held)
    first, writes = await stage.worker(APP), Writes(stage, crm)
    await writes.start()
    await reached(stage, crm, first)
    first.kill()
    if door:
        stage.unshut(door)
    await all_come(stage, crm, point)
    await crm.behave(**{**dict.fromkeys(held, 0), **BEHAVIOURS[behaviour]})
    await stage.worker(APP)
    await writes.one_effect_each()
    assert writes.resolved >= (point != "recorded")  # the one that nobody can ask was held


async def all_come(stage: Stage, crm: Crm, point: str) -> None:
    """Let the CRM end what it has begun: the person who looks must not look too early."""
    if point == "under way, not applied":
        await stage.until(lambda: len(crm.effects()) == len(ABILITIES), "every write is applied after its sender's death")


# Named crash points of the engine on SQLite, from the intent to the outcome: each is a kill of its own.
STATEMENTS = (
    "apply.intents", "apply.intents.done", "apply.intents>sqlite.commit", "apply.intents>sqlite.commit.done", "operation.send",
    "operation.send>apply.marks", "operation.send>apply.marks.done", "operation.send>apply.marks>sqlite.commit",
    "operation.send>apply.marks>sqlite.commit.done",
)  # fmt: skip
SETTLEMENTS = (
    "operations.note_lost", "operations.give_up", "operations.take", "operations.take.done", "operations.take>sqlite.commit.done",
    "operations.note", "operations.note.done", "operations.note>sqlite.commit", "operations.note>sqlite.commit.done",
    "operations.note>operations.note", "operations.note>operations.note>sqlite.commit.done",
)  # fmt: skip


@pytest.mark.parametrize("at", STATEMENTS if FULL else STATEMENTS[2:3])
async def test_a_worker_killed_at_a_statement_of_a_write_leaves_one_effect(stage: Stage, crm: Crm, at: str) -> None:
    await stage.exited(await _doomed(stage, crm, at))
    await stage.worker(APP)
    await Writes(stage, crm).one_effect_each()


@pytest.mark.parametrize("at", SETTLEMENTS if FULL else SETTLEMENTS[8:9])
async def test_a_worker_killed_at_a_statement_of_a_settlement_leaves_one_effect(stage: Stage, crm: Crm, at: str) -> None:
    await crm.behave(drop_answers=2, drop_requests=2)
    await stage.exited(await _doomed(stage, crm, at))
    await stage.worker(APP)
    await Writes(stage, crm).one_effect_each()


async def _doomed(stage: Stage, crm: Crm, at: str) -> Process:
    """Return a worker that has all the writes to do, and kills itself at that crash point."""
    worker = await stage.worker(APP, **{DIE_AT: at})
    await Writes(stage, crm).start()
    return worker


# ---- stopped ----------------------------------------------------------------------------------------


@both_if_full
async def test_a_process_frozen_before_its_send_that_goes_on_in_time_leaves_one_effect(stage: Stage, crm: Crm) -> None:
    """Its send is waited for: "not found" is not believed while it may still come."""
    stage.environment["WRITES_SETTLE_S"] = "15"
    writes = Writes(stage, crm)
    first = await frozen(stage, writes, APP)
    await writes.until("unknown", of=["lookup"])
    asked = (await writes.operations())["lookup"].id
    await stage.until(lambda: crm.contacts("lookup")[asked] > 0, "the CRM is asked, and has nothing")
    first.thaw()
    await stage.until(lambda: len(crm.effects()) == len(ABILITIES), "the sends of the process that goes on")
    await writes.one_effect_each()


@both_if_full
async def test_a_deploy_makes_nothing_unknown(stage: Stage, crm: Crm) -> None:
    """SIGTERM with writes under way and more in the queue: the ones end within the grace, the others go on elsewhere."""
    stage.environment["WRITES_TIMEOUT_S"] = "20"
    await crm.behave(answer_after_s=0.5)
    first, writes = await stage.worker(APP, "--concurrency", "2"), Writes(stage, crm)
    await writes.start()
    await stage.until(lambda: len(crm.effects()) == 2, "two are applied")
    await stage.stop(first)
    states = sorted(each.state for each in (await writes.operations()).values())
    assert set(states) <= {"confirmed", "queued"}
    assert states.count("confirmed") == len(crm.effects())
    await stage.worker(APP)
    await writes.one_effect_each()
    assert writes.resolved == 0
    assert set(crm.contacts("write").values()) == {1}
    assert crm.contacts("lookup") == {}


@both_if_full
async def test_after_kill_9_only_what_was_armed_is_unknown(stage: Stage, crm: Crm) -> None:
    stage.shut("send")
    first = await stage.worker(APP, "--concurrency", "2")
    abilities = ["lookup", "key", "both"] * 4
    handle = await stage.client.start(write_all.options(id="all"), abilities)
    await stage.seen("send", 2)
    await stage.until(lambda: stage.rows("SELECT count(*) FROM operations") == [(len(abilities),)], "every intent is recorded")
    first.kill()
    armed = {each.id for each in await stage.client.operations(state="armed")}
    assert len(armed) == 2
    stage.unshut("send")
    await stage.worker(APP)
    assert await handle.result(timeout=60) == abilities
    operations = {each.id for each in await stage.client.operations()}
    assert crm.effects() == dict.fromkeys(operations, 1)
    assert {each for each in operations if "lost" in await kinds(stage, each)} == armed
