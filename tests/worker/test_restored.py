"""Runs of before a restore or a failover that lost commits: what is in memory is not believed, what may be sent not sent again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import romulus
from tests.worker.rig import World, world

SENT: Counter[str] = Counter()  # by operation ID
ANSWERS: dict[str, romulus.LookupResult[str]] = {}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    SENT.clear()
    ANSWERS.clear()


@romulus.step
async def draw() -> int:
    return 1


@romulus.workflow
async def remembering() -> int:
    number = await draw()
    event = await romulus.wait_for_event("go", type=int)
    return number + event.payload


@romulus.operation(timeout=0.1)
async def looked(op: romulus.Operation) -> str:
    SENT["looked"] += 1
    return "sent"


@looked.lookup
async def find(op: romulus.Operation) -> romulus.LookupResult[str]:
    return ANSWERS["looked"]


@romulus.operation(timeout=5)
async def blind(op: romulus.Operation) -> str:
    SENT["blind"] += 1
    return "sent"


@romulus.workflow
async def looking() -> str:
    await romulus.wait_for_event("go", type=int)
    return await looked()


@romulus.workflow
async def sending() -> str:
    await romulus.wait_for_event("go", type=int)
    return await blind()


@romulus.workflow
async def at_once() -> str:
    return await blind()


@romulus.workflow
async def parent() -> str:
    await romulus.wait_for_event("go", type=int)
    return await at_once()


@romulus.workflow
async def first_pass() -> str:
    await romulus.wait_for_event("go", type=int)
    romulus.continue_as_new(at_once)


async def parked_and_restored(here: World, run_id: str, workflow: romulus.Workflow[..., str]) -> None:
    """Let a run wait, and restore the store under the worker that has it in memory."""
    worker = await here.worker()
    await here.client.start(workflow.options(id=run_id))
    await here.until(run_id, "waiting")
    await worker.store.restore()
    await here.until(run_id, "held")
    await here.client.get(run_id).release()
    await here.client.send_event("go", 1, correlation_id=run_id)


async def test_a_run_in_memory_is_not_believed_where_the_store_has_come_as_far_in_another_way(tmp_path: Path) -> None:
    """A promoted standby lacks the last commits, and another worker has made others in their place: the same revision, not the same."""
    async with world(tmp_path, remembering) as here:
        await here.worker()
        await here.client.start(remembering.options(id="r"))
        await here.until("r", "waiting")
        schema = "romulus." if here.database_used else ""
        with here.database() as database:
            database.execute(f"UPDATE {schema}journal SET body = CAST('41' AS {'bytea' if schema else 'BLOB'}) WHERE kind = 'step'")
            database.execute(f"UPDATE {schema}runs SET last_transition = last_transition - 1")
        await here.client.send_event("go", 1, correlation_id="r")
        assert await here.client.get("r", remembering).result(timeout=30) == 42


async def test_an_operation_that_a_restored_run_comes_to_is_looked_up_before_it_is_sent(tmp_path: Path) -> None:
    ANSWERS["looked"] = romulus.Applied("seen")
    async with world(tmp_path, looking) as here:
        await parked_and_restored(here, "r", looking)
        assert await here.client.get("r").result(timeout=30) == "seen"
    assert not SENT


async def test_one_that_nobody_can_be_asked_about_waits_for_a_person(tmp_path: Path) -> None:
    async with world(tmp_path, sending) as here:
        await parked_and_restored(here, "r", sending)
        held = await here.until("r", "held")
        (row,) = await here.client.operations(state="held")
        assert "may have been sent" in (held.hold_reason or "")
        assert not SENT
        await here.client.resolve_operation(row.id, romulus.NotApplied(), reason="looked", reviewer="ada")
        assert await here.client.get("r").result(timeout=30) == "sent"
    assert SENT == {"blind": 1}


@pytest.mark.parametrize("workflow", [parent, first_pass], ids=["child", "pass"])
async def test_neither_a_child_nor_a_later_pass_of_a_restored_run_sends_without_a_look(
    tmp_path: Path, workflow: romulus.Workflow[..., str]
) -> None:
    async with world(tmp_path, workflow, at_once) as here:
        worker = await here.worker()
        await here.client.start(workflow.options(id="r"))
        await here.until("r", "waiting")
        await worker.store.restore()
        await here.client.send_event("go", 1, correlation_id="r")
        held: list[romulus.OperationRecord] = []
        while not held and not SENT:
            held = list(await here.client.operations(state="held"))
        assert not SENT
        await here.client.resolve_operation(held[0].id, romulus.Applied("seen"), reason="looked", reviewer="ada")
        assert await here.client.get("r").result(timeout=30) == "seen"
    assert not SENT


async def test_a_run_started_after_the_restore_sends_at_once(tmp_path: Path) -> None:
    async with world(tmp_path, sending) as here:
        worker = await here.worker()
        await worker.store.restore()
        await here.client.start(sending.options(id="r"))
        await here.client.send_event("go", 1, correlation_id="r")
        assert await here.client.get("r").result(timeout=30) == "sent"
    assert SENT == {"blind": 1}
