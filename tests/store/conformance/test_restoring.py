"""A restore: nothing of before writes to the store any more, and nothing that may have been sent is sent again blindly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from romulus.core.machine import Change, RunStatus
from romulus.core.operations import OperationRow, OperationState, ReportKind, Step, decide, next_step
from romulus.core.pools import NewPoolAttempt, PoolEnd, PoolReport
from romulus.core.record import Doubt, HoldKind, Record
from romulus.core.requests import release
from romulus.core.restoring import FENCE_GAP, Restored
from romulus.core.transition import NewChild, Verdict
from romulus.store.contract import Lease, Store
from tests.store.conformance.test_operations import LOOKED, SERVED, intent, report
from tests.store.kit import (
    HELD,
    LEASE,
    PENDING,
    RUNNING,
    SECOND,
    WAITING,
    MovableHost,
    advance,
    again,
    claim,
    claimed,
    entry,
    event,
    new_run,
    park,
    parked,
    register,
    start,
    succeed,
    wait,
)

S, K = OperationState, ReportKind
KEYED = replace(LOOKED, has_lookup=False, idempotent=True)
BLIND = replace(LOOKED, has_lookup=False)


async def with_operation(store: Store, host: MovableHost, state: OperationState = S.ARMED, **changes: Any) -> Record:
    record = await claimed(store, host)
    assert await store.apply([advance(record, intents=[intent(state=state, **changes)], parent=True, operates=True)]) == [Verdict.APPLIED]
    return await again(store, record)


async def operation(store: Store, operation_id: str = "op-1") -> OperationRow:
    row = await store.operation("default", operation_id)
    assert row is not None
    return row


def held_ids(restored: Restored) -> list[str]:
    return [run.id for run in restored.held]


# ---- nothing of before writes ------------------------------------------------------------------------


async def test_a_worker_of_before_cannot_renew_claim_or_settle(store: Store, host: MovableHost) -> None:
    lease = await register(store, host)
    await start(store, "r1")
    await store.restore()

    assert not lease.renew()
    assert (await claim(store)).records == ()
    assert (await store.take_operations("w1", "default", SERVED, 10, S.UNKNOWN)).rows in ((), [])
    lease.close()


async def test_a_claim_of_before_writes_nothing(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    restored = await store.restore()

    assert restored.freed == 1
    assert await store.apply([advance(record, entry(0))]) == [Verdict.REFUSED]
    assert await store.reclaim(record.run.key, "w1", record.run.fence) is None
    now = (await again(store, record)).run
    assert (now.status, now.owner, now.position, now.losses) == (PENDING, None, 0, 0)


async def test_a_run_that_was_claimed_goes_on_at_once_under_a_fence_beyond_all_of_before(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    restored = await store.restore()
    (await register(store, host, "new")).close()

    (taken,) = (await claim(store, "new")).records

    assert taken.run.fence > restored.doubt.restored_at + FENCE_GAP
    assert taken.run.fence > record.run.fence + FENCE_GAP
    assert await store.apply([advance(taken, entry(0))]) == [Verdict.APPLIED]


async def test_a_run_that_nobody_had_gets_no_fence_that_was_given_out_since_the_backup(store: Store, host: MovableHost) -> None:
    """The new server's clock is half an hour behind: by it alone, the fence of a lost claim would come again."""
    record = await parked(store, host, "r1", wait())
    lost_fence = record.run.fence + FENCE_GAP // 2
    await store.restore()
    await store.change("default", "r1", lambda run, _, now: None)

    assert (await again(store, record)).run.fence > lost_fence
    assert await store.apply([advance(replace(record, run=replace(record.run, owner="w1", fence=lost_fence)), entry(0))]) == [
        Verdict.REFUSED
    ]


async def test_a_parked_run_stays_parked_and_a_finished_one_is_left_alone(store: Store, host: MovableHost) -> None:
    waiting = await parked(store, host, "r1", wait())
    ended = await claimed(store, host, "r2", "w2")
    await store.apply([succeed(ended)])
    before = (await again(store, ended)).run

    restored = await store.restore()

    assert (await again(store, waiting)).run.status is WAITING
    assert (await again(store, waiting)).run.revision > waiting.run.revision, "an instance of it in memory is not current any more"
    assert (await again(store, ended)).run == before
    assert (held_ids(restored), restored.freed) == ([], 0)


async def test_a_holder_of_a_pools_attempt_reports_in_vain_and_the_run_is_told_that_it_is_lost(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    attempt = NewPoolAttempt(1, "gpu", "render", "d1", b"{}", 1, 0, None, None)
    await store.apply([advance(record, pools=[attempt], parent=True, pooled=True)])
    (taken,) = (await store.take_pool("w1", "default", ["gpu"], ["render"], 10, LEASE)).rows
    await store.restore()

    ended = PoolReport(taken.key, taken.fence, taken.run, "w1", PoolEnd.RETURNED, b'"v"', "{}")
    assert await store.report_pool([ended]) == [False]
    (message,) = (await again(store, record)).inbox
    assert '"lost"' in message.info


async def test_a_queued_attempt_of_a_pool_gets_no_fence_that_was_given_out_since_the_backup(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    attempt = NewPoolAttempt(1, "gpu", "render", "d1", b"{}", 1, 0, None, None)
    await store.apply([advance(record, pools=[attempt], parent=True, pooled=True)])
    restored = await store.restore()
    (await register(store, host, "new")).close()

    (taken,) = (await store.take_pool("new", "default", ["gpu"], ["render"], 10, LEASE)).rows

    assert taken.fence > restored.doubt.restored_at + FENCE_GAP


async def test_each_restore_begins_an_incarnation_of_its_own(store: Store, host: MovableHost) -> None:
    first, second = await store.restore(), await store.restore()

    assert len(first.incarnation) == 32
    assert first.incarnation != second.incarnation


# ---- what may have been sent -------------------------------------------------------------------------


@pytest.mark.parametrize("state", [S.QUEUED, S.ARMED])
async def test_an_operation_that_may_have_been_sent_is_looked_up_and_its_run_held_until_then(
    store: Store, host: MovableHost, state: OperationState
) -> None:
    record = await with_operation(store, host, state)
    restored = await store.restore()

    row = await operation(store)
    run = (await again(store, record)).run
    assert (row.state, row.sends, row.owner, row.cleared) == (S.UNKNOWN, 1, None, False)
    assert row.doubted == (state is S.QUEUED), "the send that the row knows of may be the first; there was one that it does not know of"
    assert [note.kind for note in await store.operation_notes(row.key)] == ["restored"]
    assert next_step(row, restored.doubt.restored_at, None) is Step.LOOK
    assert row.may_leave_until > restored.doubt.restored_at, "a worker of before may still emit a send"
    assert (held_ids(restored), run.status, run.hold_kind) == (["r1"], HELD, HoldKind.REVIEW)
    assert "put back from a backup" in run.hold_reason
    assert "op-1" in run.hold_reason
    (await register(store, host, "new")).close()
    assert (list((await claim(store, "new")).records), run.wake_at) == ([], None)
    await store.report([report(K.CALLED_APPLIED)], decide, PENDING)
    assert (await again(store, record)).run.status is PENDING


async def test_an_operation_found_not_applied_before_the_backup_is_not_sent_again_without_another_look(
    store: Store, host: MovableHost
) -> None:
    record = await with_operation(store, host)
    await store.report([report(K.NO_ANSWER, fence=record.run.fence, retry_at=1)], decide, PENDING)
    (await register(store, host, "w2")).close()
    host.advance(10 * SECOND)
    (taken,) = (await store.take_operations("w2", "default", SERVED, 1, S.UNKNOWN)).rows
    await store.report([report(K.LOOKED_ABSENT, who="w2", fence=taken.fence, retry_at=1)], decide, PENDING)
    assert ((await operation(store)).state, (await operation(store)).cleared) == (S.RESEND, True)

    restored = await store.restore()

    row = await operation(store)
    assert (row.state, row.cleared) == (S.UNKNOWN, False)
    assert next_step(row, restored.doubt.restored_at, None) is Step.LOOK


async def test_one_that_nobody_can_be_asked_about_is_held_with_its_run(store: Store, host: MovableHost) -> None:
    record = await with_operation(store, host, S.QUEUED, protocol=BLIND)
    await store.restore()

    row, run = await operation(store), (await again(store, record)).run
    assert (row.state, row.due, row.doubted) == (S.HELD, None, True)
    assert "may have been sent" in row.hold_reason
    assert "was sent once" not in row.hold_reason
    assert row.hold_reason in run.hold_reason
    await store.report([report(K.RESOLVED_APPLIED)], decide, PENDING)
    assert (await again(store, record)).run.status is PENDING


async def test_one_under_a_key_with_room_is_sent_again_under_it(store: Store, host: MovableHost) -> None:
    await with_operation(store, host, protocol=KEYED)
    restored = await store.restore()

    row = await operation(store)
    assert (row.state, row.id) == (S.UNKNOWN, "op-1")
    assert next_step(row, restored.doubt.restored_at, None) is Step.KEY


async def test_a_sender_of_before_may_say_that_it_succeeded_and_nothing_else(store: Store, host: MovableHost) -> None:
    record = await with_operation(store, host)
    await store.restore()

    for kind in (K.NOT_SENT, K.UNBEGUN, K.REJECTED):
        (answer,) = await store.report([report(kind, fence=record.run.fence, retry_at=1)], decide, PENDING)
        assert answer is not None
        assert not answer.changed
    (answer,) = await store.report([report(K.SENT, fence=record.run.fence)], decide, PENDING)
    assert answer is not None
    assert answer.row.state is S.CONFIRMED


async def test_one_that_a_person_had_to_settle_still_waits_and_says_that_it_may_have_been_settled(store: Store, host: MovableHost) -> None:
    record = await with_operation(store, host)
    await store.report([report(K.NO_ANSWER, fence=record.run.fence, retry_at=1)], decide, PENDING)
    (await register(store, host, "w2")).close()
    (taken,) = (await store.take_operations("w2", "default", SERVED, 1, S.UNKNOWN)).rows
    await store.report([report(K.STUCK, who="w2", fence=taken.fence, why="nobody knows")], decide, PENDING)
    await store.restore()

    row = await operation(store)
    assert row.state is S.HELD
    assert "may have been resolved then" in row.hold_reason


async def test_a_restore_after_a_restore_finds_the_same_operations_each_once(store: Store, host: MovableHost) -> None:
    first = await with_operation(store, host, S.QUEUED)
    second = await claimed(store, host, "r2", "w2")
    await store.apply([advance(second, intents=[intent(id="op-2")], operates=True)])
    for _ in range(2):
        restored = await store.restore()
        found = [(row.id, row.run_id, row.state, row.doubted) for row in restored.operations]
        assert sorted(found) == [("op-1", "r1", S.UNKNOWN, True), ("op-2", "r2", S.UNKNOWN, False)]

    await store.report([report(K.CALLED_APPLIED)], decide, PENDING)
    assert [(await again(store, record)).run.status for record in (first, second)] == [PENDING, HELD]


async def test_a_run_that_was_held_before_with_an_open_operation_is_listed_and_keeps_its_reason(store: Store, host: MovableHost) -> None:
    record = await with_operation(store, host)
    await store.apply([advance(record, change=Change.HOLD, status=HELD, hold=(HoldKind.DEADLOCK, "stuck"))])

    assert held_ids(await store.restore()) == ["r1"]

    run = (await again(store, record)).run
    assert (run.status, run.hold_kind, run.hold_reason) == (HELD, HoldKind.DEADLOCK, "stuck")


async def test_settled_operations_are_left_alone(store: Store, host: MovableHost) -> None:
    record = await with_operation(store, host)
    await store.report([report(K.SENT, fence=record.run.fence)], decide, PENDING)
    before = await operation(store)

    restored = await store.restore()

    assert await operation(store) == before
    assert restored.operations == []


async def test_open_operations_of_ended_runs_are_listed(store: Store, host: MovableHost) -> None:
    record = await with_operation(store, host)
    await store.apply([succeed(record, parent=True, operates=True)])

    restored = await store.restore()

    assert held_ids(restored) == []
    assert [(row.id, row.state, row.awaited) for row in restored.operations] == [("op-1", S.UNKNOWN, False)]


# ---- what the backup does not have -------------------------------------------------------------------


async def test_runs_of_a_workflow_that_may_call_operations_are_held_for_a_person(store: Store, host: MovableHost) -> None:
    """It is known of the workflow since a worker has served it, whether or not it is still there."""
    for name in ("w1", "w2"):
        (await register(store, host, name, operating=[("order", "1")])).close()
        await store.deregister(name)
    record = await parked(store, host, "r1", wait())
    await start(store, "plain", workflow="other")

    restored = await store.restore()

    run = (await again(store, record)).run
    assert held_ids(restored) == ["r1"]
    assert (run.status, run.hold_kind, run.wake_at) == (HELD, HoldKind.RESTORE, None)
    assert "romulus runs release" in run.hold_reason
    assert await store.change("default", "r1", lambda run, _, now: release(run, now)) is not None
    assert (await again(store, record)).run.status is PENDING


async def test_runs_of_a_workflow_that_has_called_operations_are_held_for_a_person(store: Store, host: MovableHost) -> None:
    record = await with_operation(store, host)
    await store.report([report(K.SENT, fence=record.run.fence)], decide, PENDING)
    other = await parked(store, host, "r2", wait())
    await start(store, "plain", workflow="other")

    assert held_ids(await store.restore()) == ["r1", "r2"]
    assert (await again(store, other)).run.hold_kind == HoldKind.RESTORE
    (await register(store, host, "new")).close()
    serves = [("order", "1", "3.11:here"), ("other", "1", "3.11:here")]
    assert [found.run.id for found in (await claim(store, "new", serves=serves)).records] == ["plain"]


async def test_a_run_that_starts_later_than_the_restore_is_not_held_and_not_in_doubt(store: Store, host: MovableHost) -> None:
    (await register(store, host, operating=[("order", "1")])).close()
    await start(store, "later", status=RunStatus.SCHEDULED, delay=LEASE)

    assert held_ids(await store.restore()) == []
    record = await store.record("default", "later")
    assert record is not None
    assert (record.run.status, record.doubt) == (RunStatus.SCHEDULED, None)


async def test_a_run_held_before_keeps_its_reason(store: Store, host: MovableHost) -> None:
    (await register(store, host, operating=[("order", "1")])).close()
    record = await claimed(store, host, owner="w2")
    await store.apply([advance(record, change=Change.HOLD, status=HELD, hold=(HoldKind.DEADLOCK, "stuck"))])
    assert held_ids(await store.restore()) == []

    run = (await again(store, record)).run
    assert (run.status, run.hold_kind, run.hold_reason) == (HELD, HoldKind.DEADLOCK, "stuck")


WRITES: dict[str, Callable[[Store, Lease], Awaitable[object]]] = {
    "run": lambda store, _: start(store, "newest"),
    "event": lambda store, _: store.send([event("e1")]),
    "operation": lambda store, _: store.report([report(K.CALLED_APPLIED)], decide, PENDING),
    "lease": lambda _, lease: asyncio.to_thread(lease.renew),
}


@pytest.mark.parametrize("write", WRITES)
async def test_the_doubt_begins_with_the_newest_write_of_any_kind(store: Store, host: MovableHost, write: str) -> None:
    lease = await register(store, host, "w2")
    await store.send([event("older")])
    await with_operation(store, host)
    host.advance(LEASE // 2)
    before = await store.now()
    await WRITES[write](store, lease)
    after = await store.now()
    host.advance(SECOND)

    assert before <= (await store.restore()).doubt.since <= after
    lease.close()


async def test_a_run_that_may_have_been_started_since_the_backup_is_in_doubt(store: Store, host: MovableHost) -> None:
    await start(store, "due")
    restored = await store.restore()

    record = await store.record("default", "due")
    assert record is not None
    assert record.doubt == restored.doubt


async def test_a_run_of_any_priority_that_was_claimed_goes_on_at_once(store: Store, host: MovableHost) -> None:
    (await register(store, host)).close()
    for priority in (-3, 0, 3):
        await start(store, f"of {priority}", priority=priority)
    assert len((await claim(store)).records) == 3
    await store.restore()
    (await register(store, host, "new")).close()

    assert [found.run.priority for found in (await claim(store, "new")).records] == [3, 0, -3]


async def test_every_live_run_is_in_doubt_from_the_newest_write_on_and_its_children_are_too(store: Store, host: MovableHost) -> None:
    record = await parked(store, host, "r1", wait())
    newest = (await again(store, record)).run.updated_at
    host.advance(SECOND)
    restored = await store.restore()

    assert restored.doubt.since >= newest
    assert restored.doubt.restored_at >= newest + SECOND
    assert (await again(store, record)).doubt == restored.doubt
    (await register(store, host, "new")).close()
    await store.change("default", "r1", lambda run, _, now: release(replace(run, status=HELD), now))
    (taken,) = (await claim(store, "new")).records
    child = NewChild(new_run("child", depth=1, doubt=taken.doubt), 5, "cancel")
    assert await store.apply([advance(taken, children=[child], parent=True)]) == [Verdict.APPLIED]
    of_child = await store.record("default", "child")
    assert of_child is not None
    assert of_child.doubt == restored.doubt


async def test_an_operation_recorded_in_doubt_is_unknown_at_once_and_due(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    recorded = intent(state=S.UNKNOWN, since=77, may_leave_until=99)
    await store.apply([advance(record, intents=[recorded], parent=True, operates=True)])

    row = await operation(store)
    assert (row.state, row.sends, row.owner, row.first_sent_at, row.may_leave_until) == (S.UNKNOWN, 1, None, 77, 99)
    assert row.doubted
    assert row.due is not None
    assert row.due <= await store.now()


async def test_a_second_restore_keeps_the_earliest_time_of_a_doubt(store: Store, host: MovableHost) -> None:
    record = await parked(store, host, "r1", wait())
    await store.restore(since=1_000)
    second = await store.restore(since=2_000)

    assert (await again(store, record)).doubt == Doubt(1_000, second.doubt.restored_at)
    third = await store.restore(since=500)
    assert (await again(store, record)).doubt == Doubt(500, third.doubt.restored_at)


async def test_doubt_ends_when_a_person_says_that_all_is_settled(store: Store, host: MovableHost) -> None:
    record = await parked(store, host, "r1", wait())
    await store.restore()

    assert await store.trust() == 1
    assert (await again(store, record)).doubt is None
    assert await store.trust() == 0


async def test_runs_started_after_the_restore_are_as_ever(store: Store, host: MovableHost) -> None:
    await store.restore()
    record = await claimed(store, host)

    assert (record.doubt, record.run.status) == (None, RUNNING)


async def test_a_lease_of_before_writes_no_held_transition_either(store: Store, host: MovableHost) -> None:
    lease: Lease = await register(store, host)
    await start(store, "r1")
    (record,) = (await claim(store)).records
    await store.restore()

    assert lease.apply(park(record)) is Verdict.REFUSED
    lease.close()


async def test_one_that_was_held_for_its_code_on_the_way_to_another_send_is_looked_up_first(store: Store, host: MovableHost) -> None:
    record = await with_operation(store, host)
    await store.report([report(K.NO_ANSWER, fence=record.run.fence, retry_at=1)], decide, PENDING)
    (await register(store, host, "w2")).close()
    host.advance(10 * SECOND)
    (taken,) = (await store.take_operations("w2", "default", SERVED, 1, S.UNKNOWN)).rows
    await store.report([report(K.LOOKED_ABSENT, who="w2", fence=taken.fence, retry_at=1)], decide, PENDING)
    await store.report([report(K.NO_CODE, who="w2", fence=taken.fence, why="its function is gone")], decide, PENDING)
    assert ((await operation(store)).state, (await operation(store)).cleared) == (S.HELD, True)

    await store.restore()

    (await register(store, host, "w3")).close()
    (back,) = (await store.take_operations("w3", "default", SERVED, 1, S.UNKNOWN)).rows
    await store.report([report(K.CODE_BACK, who="w3", fence=back.fence)], decide, PENDING)
    row = await operation(store)
    assert (row.state, row.cleared) == (S.UNKNOWN, False)
