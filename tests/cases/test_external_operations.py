"""Crashes between an effect outside and its record: the provider logs the ID of every contact."""

from __future__ import annotations

import pytest

from tests.processes.crm import Crm, Writes, crm, kinds
from tests.processes.stage import FULL, Stage, on_both_stores, on_postgres

__all__ = ["crm"]
pytestmark = [pytest.mark.process, on_both_stores if FULL else on_postgres]  # SQLite: tests/processes/test_operations.py
APP = "tests.processes.apps.writes:app"


async def _killed_after_the_effect(stage: Stage, crm: Crm) -> Writes:
    """Return a write that the provider has applied, whose worker was killed before it could record that."""
    await crm.behave(answer_after_s=1.2)
    writes, worker = Writes(stage, crm, ["lookup"]), await stage.worker(APP)
    await writes.start()
    await stage.until(lambda: len(crm.effects()) == 1, "it is applied")
    worker.kill()
    await stage.worker(APP)
    return writes


async def test_a_crash_between_the_effect_and_its_record_does_not_repeat_the_effect(stage: Stage, crm: Crm) -> None:
    """RB-71: the provider can be asked."""
    writes = await _killed_after_the_effect(stage, crm)
    await writes.one_effect_each()
    (operation,) = (await writes.operations()).values()
    assert crm.contacts("write") == {operation.id: 1}
    assert set(crm.contacts("lookup")) == {operation.id}
    assert writes.resolved == 0


async def test_while_the_provider_cannot_be_asked_the_effect_is_parked_as_unknown_and_not_sent_again(stage: Stage, crm: Crm) -> None:
    """RB-71: its lookup is down; a person says what is true."""
    await crm.behave(lookups_down=True)
    writes = await _killed_after_the_effect(stage, crm)
    await writes.until("held")
    (operation,) = (await writes.operations()).values()
    assert "its lookup raised" in (operation.hold_reason or "")
    assert "lost" in await kinds(stage, operation.id)
    assert crm.contacts("write") == {operation.id: 1}
    await writes.one_effect_each()
    assert writes.resolved == 1


async def test_what_the_provider_never_got_is_sent_again_under_the_same_id(stage: Stage, crm: Crm) -> None:
    """RB-71: the worker is killed before the send, and the provider says that it knows no such ID."""
    stage.shut("send")
    writes, worker = Writes(stage, crm, ["lookup"]), await stage.worker(APP)
    await writes.start()
    (began,) = await stage.seen("send")
    worker.kill()
    stage.unshut("send")
    await stage.worker(APP)
    await writes.one_effect_each()
    assert crm.contacts("write") == {began["operation"]: 1}
    assert set(crm.contacts("lookup")) == {began["operation"]}
