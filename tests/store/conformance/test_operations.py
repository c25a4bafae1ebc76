"""Operations: recorded and marked with their run's transition, claimed once, settled by one guarded change, told to their run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from romulus.core.errors import OperationConflict
from romulus.core.machine import Change, RunStatus
from romulus.core.operations import NewIntent, OperationMark, OperationRow, OperationState, Protocol, Report, ReportKind, decide
from romulus.core.record import About, HoldKind, Record
from romulus.core.transition import Verdict
from romulus.store.contract import OperationsServed, Store
from tests.store.kit import (
    HELD,
    LEASE,
    PENDING,
    SECOND,
    MovableHost,
    advance,
    again,
    claim,
    claimed,
    entry,
    free,
    park,
    register,
    start,
    succeed,
)

S, K = OperationState, ReportKind
LOOKED = Protocol(idempotent=False, key_lifetime=None, settle=0, timeout=SECOND, has_lookup=True)
SERVED = OperationsServed(("default",), ("write",), ("write",))


def intent(seq: int = 1, state: OperationState = S.ARMED, **changes: Any) -> NewIntent:
    made = NewIntent(seq, f"op-{seq}", "write", "d1", b'{"n":1}', LOOKED, state, 5_000 if state is S.ARMED else 0)
    return replace(made, **changes)


def lost(seq: int = 1) -> OperationMark:
    return OperationMark(seq, S.ARMED, S.UNKNOWN, due=seq, error=b"boom")


def report(kind: ReportKind, **changes: Any) -> Report:
    return replace(Report("default", "op-1", kind, "w1", body=b'"v"'), **changes)


async def tell(store: Store, kind: ReportKind, **changes: Any) -> OperationRow:
    (decided,) = await store.report([report(kind, **changes)], decide, PENDING)
    assert decided is not None
    assert await store.operation(decided.row.namespace, decided.row.id) == decided.row
    return decided.row


async def row(store: Store, seq: int = 1) -> OperationRow:
    found = await store.operation("default", f"op-{seq}")
    assert found is not None
    return found


async def recorded(store: Store, host: MovableHost, *intents: NewIntent, marks: tuple[OperationMark, ...] = ()) -> Record:
    """Return a claimed run that has recorded *intents*, then *marks*."""
    record = await claimed(store, host)
    assert await store.apply([advance(record, intents=intents or (intent(),), operates=True)]) == [Verdict.APPLIED]
    if marks:
        assert await store.apply([advance(await again(store, record), marks=marks, operates=True)]) == [Verdict.APPLIED]
    return await again(store, record)


async def pair(store: Store, host: MovableHost, state: OperationState = S.ARMED, **changes: Any) -> tuple[Record, Record]:
    """Return two runs, claimed by one worker under equal fences, with an operation each: "op-1" and "op-2"."""
    (await register(store, host)).close()
    await start(store, "r1", "r2")
    records = sorted((await claim(store)).records, key=lambda record: record.run.id)
    assert records[0].run.fence == records[1].run.fence
    intents = [intent(1, state, id=f"op-{n}", **changes) for n in (1, 2)]
    made = [advance(record, intents=[each], operates=True, parent=True) for record, each in zip(records, intents, strict=True)]
    assert await store.apply(made) == [Verdict.APPLIED] * 2
    first, second = [await again(store, record) for record in records]
    return first, second


async def take(store: Store, owner: str = "w1", limit: int = 10, names: tuple[str, ...] = ("write",)) -> list[OperationRow]:
    return list((await store.take_operations(owner, "default", OperationsServed(("default",), names, names), limit, S.UNKNOWN)).rows)


async def test_an_intent_is_stored_with_the_transition_that_records_the_step_before(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    assert not record.operates
    await store.apply([advance(record, entry(0), intents=[intent()])])
    found = await row(store)
    assert (found.state, found.sends, found.owner, found.fence, found.by_run) == (S.ARMED, 1, "w1", record.run.fence, True)
    assert (found.run_id, found.workflow, found.protocol, found.arguments) == ("r1", "order", LOOKED, b'{"n":1}')
    assert found.may_leave_until == 5_000
    assert found.first_sent_at is not None
    assert (await again(store, record)).operates


async def test_a_refused_transition_records_no_intent(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    assert await store.apply([advance(record, intents=[intent()], fence=1)]) == [Verdict.REFUSED]
    assert await store.operation("default", "op-1") is None


async def test_a_queued_intent_is_armed_later_and_an_armed_one_is_never_armed_again(store: Store, host: MovableHost) -> None:
    record = await recorded(store, host, intent(state=S.QUEUED))
    queued = await row(store)
    assert (queued.state, queued.sends, queued.owner, queued.first_sent_at) == (S.QUEUED, 0, None, None)
    taken = await store.reclaim(record.run.key, "w1", record.run.fence)
    assert taken is not None
    record, before = taken, await store.now()
    assert await store.apply([advance(record, intents=[intent()])]) == [Verdict.APPLIED]
    armed = await row(store)
    assert (armed.sends, armed.owner, armed.fence, armed.by_run, armed.may_leave_until) == (1, "w1", record.run.fence, True, 5_000)
    assert (armed.first_sent_at or 0) >= before
    assert await store.apply([advance(await again(store, record), intents=[intent()])]) == [Verdict.REFUSED]
    assert (await row(store)).sends == 1


async def test_one_operation_that_does_not_hold_refuses_its_transition_alone(store: Store, host: MovableHost) -> None:
    first = await recorded(store, host)
    await start(store, "r2")
    (second,) = (await claim(store)).records
    bad = advance(first, entry(0), marks=[OperationMark(1, S.QUEUED, S.WITHDRAWN)])
    good = advance(second, entry(0), intents=[intent(id="op-9")])
    assert await store.apply([bad, good]) == [Verdict.REFUSED, Verdict.APPLIED]
    assert (await again(store, first)).run.position == 0


async def test_un_arming_takes_the_send_back(store: Store, host: MovableHost) -> None:
    await recorded(store, host, marks=(OperationMark(1, S.ARMED, S.QUEUED),))
    found = await row(store)
    assert (found.state, found.sends, found.first_sent_at, found.owner) == (S.QUEUED, 0, None, None)


async def test_what_is_un_armed_and_given_up_at_once_was_never_sent(store: Store, host: MovableHost) -> None:
    await recorded(store, host, marks=(OperationMark(1, S.ARMED, S.WITHDRAWN, awaited=False),))
    found = await row(store)
    assert (found.state, found.sends, found.first_sent_at, found.awaited, found.ended_at is None) == (S.WITHDRAWN, 0, None, False, False)


async def test_what_is_un_armed_can_be_armed_again_by_the_same_transition(store: Store, host: MovableHost) -> None:
    record = await recorded(store, host)
    twice = advance(record, marks=[OperationMark(1, S.ARMED, S.QUEUED)], intents=[intent(may_leave_until=9_000)])
    assert await store.apply([twice]) == [Verdict.APPLIED]
    found = await row(store)
    assert (found.state, found.sends, found.owner, found.may_leave_until, found.awaited) == (S.ARMED, 1, "w1", 9_000, True)


async def test_what_is_lost_and_given_up_by_the_same_transition_is_settled_for_nobody(store: Store, host: MovableHost) -> None:
    record = await recorded(store, host, intent(1), intent(2))
    assert await store.apply([advance(record, marks=[lost()], forsaken=[1])]) == [Verdict.APPLIED]
    found = await row(store)
    assert (found.state, found.due, found.awaited) == (S.UNKNOWN, 1, False)
    assert [each.seq for each in await store.operations_of(record.generation.key)] == [2]


async def test_a_settled_operation_is_no_longer_awaited_and_says_when_it_ended(store: Store, host: MovableHost) -> None:
    record = await recorded(store, host, marks=(OperationMark(1, S.ARMED, S.CONFIRMED, awaited=False),))
    found = await row(store)
    assert (found.state, found.awaited, found.ended_at is not None) == (S.CONFIRMED, False, True)
    assert list(await store.operation_notes(found.key)) == [], "a plain success leaves no line of history"
    assert await store.operations_of(record.generation.key) == []


async def test_a_mark_needs_the_claim_that_armed_the_operation(store: Store, host: MovableHost) -> None:
    record = await recorded(store, host)
    taken = await store.reclaim(record.run.key, "w1", record.run.fence)
    assert taken is not None
    confirm = OperationMark(1, S.ARMED, S.CONFIRMED, awaited=False)
    assert await store.apply([advance(taken, entry(0), marks=[confirm])]) == [Verdict.REFUSED]


async def test_that_the_provider_took_it_is_marked_and_stays(store: Store, host: MovableHost) -> None:
    record = await recorded(store, host, marks=(replace(lost(), seen_applied=True),))
    assert (await row(store)).seen_applied
    await store.apply([advance(record, marks=[OperationMark(1, S.UNKNOWN, S.HELD)])])
    assert (await row(store)).seen_applied


async def test_what_a_run_marks_and_a_listing_of_one_run_are_its_own(store: Store, host: MovableHost) -> None:
    first, second = await pair(store, host)
    assert await store.apply([advance(first, marks=[lost()])]) == [Verdict.APPLIED]

    mine, theirs = await row(store, 1), await row(store, 2)
    assert (mine.state, mine.ended_at, theirs.state, theirs.run_id) == (S.UNKNOWN, None, S.ARMED, "r2")
    assert [[note.kind for note in await store.operation_notes(each.key)] for each in (mine, theirs)] == [["no answer"], []]
    assert [each.id for each in await store.open_operations(second.generation.key)] == ["op-2"]
    assert [each.id for each in (await store.operations("default", None, None, None, 9)).items] == ["op-1", "op-2"]
    assert [each.id for each in (await store.operations("default", None, second.run.key, None, 9)).items] == ["op-2"]
    assert list((await store.operations("elsewhere", None, None, None, 9)).items) == []


async def test_an_operation_recorded_in_doubt_is_the_one_that_is_doubted(store: Store, host: MovableHost) -> None:
    first, second = await pair(store, host)
    doubted, sure = intent(5, S.UNKNOWN, since=77), intent(6)
    await store.apply([advance(first, intents=[doubted, sure]), advance(second, intents=[intent(5, id="op-7"), intent(6, id="op-8")])])
    assert [(await row(store, n)).doubted for n in (1, 2, 5, 6, 7, 8)] == [False, False, True, False, False, False]


async def test_an_operation_that_is_queued_again_can_be_doubted_again(store: Store, host: MovableHost) -> None:
    doubted = intent(1, S.UNKNOWN, since=77)
    record = await recorded(store, host, doubted, marks=(OperationMark(1, S.UNKNOWN, S.QUEUED),))
    assert await store.apply([advance(record, intents=[doubted], operates=True)]) == [Verdict.APPLIED]
    assert ((await row(store)).state, (await row(store)).doubted) == (S.UNKNOWN, True)


async def test_what_one_run_forsakes_or_leaves_is_another_runs_no_less(store: Store, host: MovableHost) -> None:
    first, second = await pair(store, host, S.QUEUED)
    await store.apply([advance(first, forsaken=[1])])
    assert await store.operations_of(first.generation.key) == []
    await store.apply([succeed(await again(store, first), operates=True)])

    (found,) = await store.operations_of(second.generation.key)
    assert (found.id, found.state, found.ended_at) == ("op-2", S.QUEUED, None)
    await store.apply([succeed(second, operates=True)])
    left = await row(store, 2)
    assert (left.state, left.ended_at is not None, left.awaited) == (S.WITHDRAWN, True, False)


async def test_an_operation_awaited_by_its_generation_is_listed_for_it(store: Store, host: MovableHost) -> None:
    record = await recorded(store, host, intent(1), intent(2, S.QUEUED), intent(3))
    await store.apply([advance(record, forsaken=[3])])
    assert [each.seq for each in await store.operations_of(record.generation.key)] == [1, 2]


# ---- claims -----------------------------------------------------------------------------------------


async def test_what_its_run_still_claims_is_not_taken(store: Store, host: MovableHost) -> None:
    await recorded(store, host)
    assert await take(store) == []
    assert (await row(store)).state is S.ARMED


@pytest.mark.parametrize("how", ["freed", "reclaimed", "ended", "terminated", "worker dead"])
async def test_an_armed_operation_whose_claim_is_over_is_unknown_and_due(store: Store, host: MovableHost, how: str) -> None:
    record = await recorded(store, host)
    if how == "freed":
        await store.apply([free(record)])
    elif how == "reclaimed":
        await store.reclaim(record.run.key, "w1", record.run.fence)
    elif how == "ended":
        await store.apply([succeed(record, operates=True)])
    elif how == "terminated":
        from romulus.core import requests

        await store.change("default", "r1", lambda run, _, now: requests.terminate(run, "", now))
    else:
        host.advance(LEASE + 1)
        await store.sweep(10, PENDING)
    (await register(store, host, "w2")).close()
    (found,) = await take(store, "w2")
    assert (found.state, found.owner, found.by_run, found.due) == (S.UNKNOWN, "w2", False, None)
    assert found.fence > record.run.fence
    assert [note.kind for note in await store.operation_notes(found.key)] == ["lost"]


async def test_a_claim_that_is_over_is_lost_to_its_own_run_alone(store: Store, host: MovableHost) -> None:
    first, second = await pair(store, host)
    await store.reclaim(first.run.key, "w1", first.run.fence)
    (await register(store, host, "w2")).close()
    since = await store.now()

    (taken,) = await take(store, "w2")

    assert (taken.id, taken.fence >= since) == ("op-1", True)
    kept = await row(store, 2)
    assert (kept.state, kept.owner, kept.fence) == (S.ARMED, "w1", second.run.fence)
    assert list(await store.operation_notes(kept.key)) == []
    await store.apply([free(second)])
    assert [each.id for each in await take(store)] == ["op-2"]
    assert (await row(store)).owner == "w2"


async def test_a_settlers_fence_is_above_one_that_is_ahead_of_the_clock(store: Store, host: MovableHost) -> None:
    await recorded(store, host)
    await store.restore()
    before = (await row(store)).fence
    assert before > await store.now()
    (await register(store, host, "w2")).close()

    (taken,) = await take(store, "w2")

    assert taken.fence == before + 1


async def test_what_has_a_lookup_is_taken_by_a_worker_that_has_it(store: Store, host: MovableHost) -> None:
    await recorded(store, host, intent(1), intent(2, protocol=replace(LOOKED, has_lookup=False)), marks=(lost(1), lost(2)))
    served = OperationsServed(("default",), ("write",), ())
    assert [each.seq for each in (await store.take_operations("w1", "default", served, 10, S.UNKNOWN)).rows] == [2]
    assert list((await store.take_operations("w1", "elsewhere", SERVED, 10, S.UNKNOWN)).rows) == []
    assert [each.seq for each in await take(store)] == [1]


async def test_what_is_due_later_waits_beside_what_is_due(store: Store, host: MovableHost) -> None:
    now = await store.now()
    later = [replace(lost(seq), due=now + seq * 60 * SECOND) for seq in (3, 2)]
    await recorded(store, host, intent(1), intent(2), intent(3), marks=(lost(1), *later))
    taken = await store.take_operations("w1", "default", SERVED, 10, S.UNKNOWN)
    assert ([each.seq for each in taken.rows], taken.next_due) == ([1], now + 120 * SECOND)


async def test_a_due_operation_is_taken_once_by_whoever_knows_its_name(store: Store, host: MovableHost) -> None:
    await recorded(store, host, intent(1), intent(2), marks=(lost(1), lost(2)))
    assert await take(store, names=("other",)) == []
    assert [each.seq for each in await take(store, limit=1)] == [1]
    assert [each.seq for each in await take(store)] == [2]
    assert await take(store) == []


async def test_nothing_is_taken_before_it_is_due_and_the_next_due_time_is_told(store: Store, host: MovableHost) -> None:
    due = await store.now() + 10 * SECOND
    await recorded(store, host, marks=(replace(lost(), due=due),))
    taken = await store.take_operations("w1", "default", SERVED, 10, S.UNKNOWN)
    assert (list(taken.rows), taken.next_due) == ([], due)
    host.advance(10 * SECOND)
    assert len(await take(store)) == 1


async def test_a_dead_settler_is_relieved_and_what_it_had_armed_is_unknown(store: Store, host: MovableHost) -> None:
    await recorded(store, host, intent(1), intent(2), marks=(lost(1), lost(2)))
    (await register(store, host, "w2")).close()
    first, _ = sorted(await take(store, "w2"), key=lambda each: each.seq)
    host.advance(2 * SECOND)  # the send has left by now
    await tell(store, K.LOOKED_ABSENT, fence=first.fence, retry_at=1)
    (again_,) = await take(store, "w2")
    armed = await tell(store, K.ARMED, fence=again_.fence, who="w2")
    assert armed.state is S.ARMED
    await store.mark_dead("w2")
    relieved = sorted(await take(store), key=lambda each: each.seq)
    assert [(each.seq, each.state) for each in relieved] == [(1, S.UNKNOWN), (2, S.UNKNOWN)]
    lost_claims = [[note.kind for note in await store.operation_notes(each.key)].count("lost") for each in relieved]
    assert lost_claims == [1, 0], "nothing was being sent under the other claim"


async def test_claims_that_are_over_are_given_up_where_they_are_asked_for(store: Store, host: MovableHost) -> None:
    await recorded(store, host, marks=(lost(),))
    (await register(store, host, "w2")).close()
    assert len(await take(store, "w2")) == 1
    await store.mark_dead("w2")
    assert list((await store.take_operations("w1", "default", SERVED, 10, None)).rows) == []
    assert len(await take(store)) == 1


async def test_a_worker_marked_dead_takes_nothing(store: Store, host: MovableHost) -> None:
    await recorded(store, host, marks=(lost(),))
    (await register(store, host, "w2")).close()
    await store.mark_dead("w2")
    assert await take(store, "w2") == []


# ---- reports ----------------------------------------------------------------------------------------


async def test_a_settled_operation_is_told_to_the_run_that_awaits_it(store: Store, host: MovableHost) -> None:
    record = await recorded(store, host, marks=(lost(),))
    await store.apply([park(record)])
    (found,) = await take(store)
    await tell(store, K.LOOKED_APPLIED, fence=found.fence)
    (woken,) = (await claim(store)).records
    (message,) = woken.inbox
    assert (message.about, message.seq, message.failed, message.body) == (About.OPERATION, 1, False, b'"v"')
    assert message.info == '["op-1", "confirmed", 1, ""]'


async def test_an_operation_that_nobody_awaits_is_settled_and_told_to_nobody(store: Store, host: MovableHost) -> None:
    record = await recorded(store, host, marks=(lost(),))
    await store.apply([succeed(record, operates=True)])
    (found,) = await take(store)
    assert (await tell(store, K.LOOKED_APPLIED, fence=found.fence)).state is S.CONFIRMED
    assert (await again(store, record)).inbox == []


async def test_an_operation_that_was_forsaken_is_told_to_nobody(store: Store, host: MovableHost) -> None:
    record = await recorded(store, host, marks=(lost(),))
    await store.apply([advance(record, forsaken=[1])])
    (found,) = await take(store)
    assert (await tell(store, K.LOOKED_APPLIED, fence=found.fence)).state is S.CONFIRMED
    assert (await again(store, record)).inbox == []


async def test_the_history_keeps_what_a_report_carries_its_note_before_its_body(store: Store, host: MovableHost) -> None:
    await recorded(store, host, marks=(lost(),))
    await tell(store, K.EXCHANGE, body=b"body")
    found = await tell(store, K.CALLED_APPLIED, body=b"body", note=b"note")
    assert [note.body for note in await store.operation_notes(found.key)] == [b"boom", b"body", b"note"]


async def test_a_refusal_of_the_provider_is_told_as_a_failure(store: Store, host: MovableHost) -> None:
    record = await recorded(store, host)
    assert (await tell(store, K.REJECTED, fence=record.run.fence)).failed
    (message,) = (await again(store, record)).inbox
    assert (message.failed, message.body) == (True, b'"v"')


async def test_what_the_provider_took_stays_so_whatever_is_learned_later(store: Store, host: MovableHost) -> None:
    record = await recorded(store, host)
    assert (await tell(store, K.NO_ANSWER, fence=record.run.fence, retry_at=1, applied=True)).seen_applied


async def test_the_first_of_two_racing_reports_wins_and_the_second_is_kept(store: Store, host: MovableHost) -> None:
    await recorded(store, host, marks=(lost(),))
    await tell(store, K.RESOLVED_APPLIED, who="ada")
    found = await tell(store, K.CALLED_ABSENT, who="source crm")
    assert (found.state, found.body) == (S.CONFIRMED, b'"v"')
    kinds = [note.kind for note in await store.operation_notes(found.key)]
    assert kinds == ["no answer", "resolved: applied", "conflict callback: not applied"]


async def test_a_person_who_comes_too_late_is_refused_and_nothing_is_written(store: Store, host: MovableHost) -> None:
    await recorded(store, host, marks=(lost(),))
    found = await tell(store, K.CALLED_APPLIED)
    with pytest.raises(OperationConflict, match="is confirmed"):
        await tell(store, K.RESOLVED_ABSENT, who="ada")
    assert len(await store.operation_notes(found.key)) == 2


async def test_a_report_on_an_unknown_id_is_answered_with_none(store: Store, host: MovableHost) -> None:
    assert await store.report([report(K.SENT)], decide, PENDING) == [None]


async def test_reports_of_one_group_meet_an_operation_in_turn_and_its_run_is_told_in_turn(store: Store, host: MovableHost) -> None:
    record = await recorded(store, host, intent(1), intent(2), marks=(lost(1), lost(2)))
    first, second = sorted(await take(store), key=lambda each: each.seq)
    group = [
        report(K.STUCK, fence=first.fence, why="nobody knows"), report(K.LOOKED_APPLIED, id="op-2", fence=second.fence),
        report(K.SENT, id="op-9"), report(K.CALLED_APPLIED), report(K.CALLED_ABSENT),
    ]  # fmt: skip
    decided = await store.report(group, decide, PENDING)

    assert [None if each is None else each.row.state for each in decided] == [S.HELD, S.CONFIRMED, None, S.CONFIRMED, S.CONFIRMED]
    assert [(await row(store, seq)).state for seq in (1, 2)] == [S.CONFIRMED, S.CONFIRMED]
    notes = [note.kind for note in await store.operation_notes(first.key)]
    assert notes == ["no answer", "nothing to ask", "callback: applied", "conflict callback: not applied"]
    inbox = (await again(store, record)).inbox
    assert [(message.about, message.seq) for message in inbox] == [(About.REVIEW, 1), (About.OPERATION, 2), (About.OPERATION, 1)]


async def test_a_person_who_comes_too_late_spoils_nobody_elses_report(store: Store, host: MovableHost) -> None:
    await recorded(store, host, intent(1), intent(2), marks=(lost(1), lost(2)))
    await tell(store, K.CALLED_APPLIED)
    late, good = await asyncio.gather(
        store.report([report(K.RESOLVED_ABSENT, who="ada")], decide, PENDING),
        store.report([report(K.CALLED_APPLIED, id="op-2")], decide, PENDING), return_exceptions=True,
    )  # fmt: skip
    assert isinstance(late, OperationConflict)
    assert not isinstance(good, BaseException)
    assert (await row(store, 2)).state is S.CONFIRMED


async def test_what_changes_nothing_is_kept_a_thousand_times_and_what_does_always(store: Store, host: MovableHost) -> None:
    await recorded(store, host, intent(1), intent(2), marks=(lost(1), lost(2)))
    exchange = report(K.EXCHANGE, body=b"")
    await store.report([exchange] * 998, decide, PENDING)
    await store.report([exchange] * 3, decide, PENDING)
    found = await tell(store, K.CALLED_APPLIED)
    notes = [note.kind for note in await store.operation_notes(found.key)]
    assert (len(notes), notes[0], notes[-1]) == (1_001, "no answer", "callback: applied")
    other = await tell(store, K.EXCHANGE, id="op-2", body=b"")
    assert len(await store.operation_notes(other.key)) == 2


async def test_operations_of_another_namespace_are_not_found(store: Store, host: MovableHost) -> None:
    await recorded(store, host)
    assert await store.operation("other", "op-1") is None
    assert await store.report([report(K.SENT, namespace="other")], decide, PENDING) == [None]


# ---- review -----------------------------------------------------------------------------------------


async def in_review(store: Store, host: MovableHost) -> Record:
    """Return a run that is held because its one operation waits for a person."""
    record = await recorded(store, host, marks=(lost(),))
    (found,) = await take(store)
    await tell(store, K.STUCK, fence=found.fence, why="nobody knows")
    record = await again(store, record)
    assert [message.about for message in record.inbox] == [About.REVIEW]
    keys = [message.key for message in record.inbox]
    hold = advance(record, taken=keys, change=Change.HOLD, status=HELD, hold=(HoldKind.REVIEW, record.inbox[0].info))
    assert await store.apply([hold]) == [Verdict.APPLIED]
    return await again(store, record)


async def test_a_resolution_makes_the_run_that_is_held_for_it_claimable(store: Store, host: MovableHost) -> None:
    record = await in_review(store, host)
    assert (record.run.status, "nobody knows" in record.run.hold_reason) == (RunStatus.HELD, True)
    await tell(store, K.RESOLVED_APPLIED, who="ada")
    (woken,) = (await claim(store)).records
    assert [message.about for message in woken.inbox] == [About.OPERATION]
    assert woken.run.hold_reason == ""


async def test_each_run_in_review_is_held_and_woken_for_its_own_operation(store: Store, host: MovableHost) -> None:
    records = await pair(store, host)
    await store.apply([advance(record, marks=[lost()]) for record in records])
    for taken in await take(store):
        await tell(store, K.STUCK, id=taken.id, fence=taken.fence, why="nobody knows")
    for record in [await again(store, record) for record in records]:
        (told,) = record.inbox
        hold = advance(record, taken=[told.key], change=Change.HOLD, status=HELD, hold=(HoldKind.REVIEW, told.info))
        assert await store.apply([hold]) == [Verdict.APPLIED], "another run's mail is no reason to refuse it"
    await tell(store, K.RESOLVED_APPLIED, who="ada")

    (woken,) = (await claim(store)).records

    assert (woken.run.id, woken.run.hold_kind, woken.run.hold_reason) == ("r1", "", "")
    assert (await again(store, records[1])).run.status is HELD


async def test_a_run_of_low_priority_that_was_held_for_review_goes_on_at_once(store: Store, host: MovableHost) -> None:
    (await register(store, host)).close()
    await start(store, "r1", priority=-3)
    (record,) = (await claim(store)).records
    await store.apply([advance(record, intents=[intent()], operates=True)])
    hold = {"change": Change.HOLD, "status": HELD, "hold": (HoldKind.REVIEW, "nobody knows")}
    assert await store.apply([advance(await again(store, record), marks=[lost()], **hold)]) == [Verdict.APPLIED]
    await tell(store, K.RESOLVED_APPLIED, who="ada")

    assert [found.run.id for found in (await claim(store)).records] == ["r1"]


async def test_a_run_held_for_something_else_stays_held(store: Store, host: MovableHost) -> None:
    record = await recorded(store, host, marks=(lost(),))
    await store.apply([advance(record, change=Change.HOLD, status=HELD, hold=(HoldKind.CODE, "mismatch"))])
    await tell(store, K.RESOLVED_APPLIED, who="ada")
    assert (await again(store, record)).run.status is RunStatus.HELD


async def test_a_hold_for_review_is_refused_while_the_inbox_holds_something(store: Store, host: MovableHost) -> None:
    record = await recorded(store, host, marks=(lost(),))
    await tell(store, K.RESOLVED_APPLIED, who="ada")
    hold = advance(record, change=Change.HOLD, status=HELD, hold=(HoldKind.REVIEW, "stale"))
    assert await store.apply([hold]) == [Verdict.REFUSED]
    assert await store.apply([replace(hold, hold=(HoldKind.CODE, "mismatch"))]) == [Verdict.APPLIED]


async def test_a_generation_that_ends_withdraws_its_queued_operations_and_awaits_no_other(store: Store, host: MovableHost) -> None:
    record = await recorded(store, host, intent(1), intent(2, S.QUEUED))
    await store.apply([succeed(record, operates=True)])
    assert [((await row(store, seq)).state, (await row(store, seq)).awaited) for seq in (1, 2)] == [(S.ARMED, False), (S.WITHDRAWN, False)]


async def test_what_the_last_transition_of_a_generation_says_of_operations_is_left_with_the_rest(store: Store, host: MovableHost) -> None:
    """Confirmed, lost, un-armed, recorded, armed: nothing is awaited any more, and of what is queued nothing will be sent."""
    record = await recorded(store, host, intent(1), intent(2), intent(3), intent(4, S.QUEUED), intent(6, S.QUEUED))
    marks = [OperationMark(1, S.ARMED, S.CONFIRMED, awaited=False), lost(2), OperationMark(3, S.ARMED, S.QUEUED)]
    last = succeed(record, entry(0), marks=marks, intents=[intent(4), intent(5, S.QUEUED), intent(6, S.QUEUED)], operates=True)
    assert await store.apply([last]) == [Verdict.APPLIED]

    found = [await row(store, seq) for seq in range(1, 7)]
    assert [each.state for each in found] == [S.CONFIRMED, S.UNKNOWN, S.WITHDRAWN, S.ARMED, S.WITHDRAWN, S.WITHDRAWN]
    assert [each.sends for each in found] == [1, 1, 0, 1, 0, 0]
    assert [each.due for each in found] == [None, 2, None, None, None, None]
    assert [each.ended_at is not None for each in found] == [True, False, True, False, True, True]
    assert not any(each.awaited for each in found)


async def test_operations_are_listed_in_the_order_they_were_recorded(store: Store, host: MovableHost) -> None:
    record = await recorded(store, host, intent(1))
    for each in (intent(2, S.QUEUED), intent(3)):
        await store.apply([advance(await again(store, record), intents=[each])])
    page = await store.operations("default", None, None, None, 2)
    rest = await store.operations("default", None, record.run.key, page.next, 2)
    assert [each.seq for each in [*page.items, *rest.items]] == [1, 2, 3]
    assert [each.seq for each in (await store.operations("default", S.QUEUED, None, None, 9)).items] == [2]


# ---- pools -----------------------------------------------------------------------------------------------

SIDE = OperationsServed(("side",), ("write",), ("write",))


async def queued(store: Store, host: MovableHost, *seqs: int) -> Record:
    """Return a run with operations queued in the pool "side", and worker "w2", which serves it."""
    record = await recorded(store, host, *(intent(seq, S.QUEUED, pool="side") for seq in seqs or (1,)))
    (await register(store, host, "w2")).close()
    return record


async def take_queued(store: Store, owner: str = "w2", serves: OperationsServed = SIDE, limit: int = 10) -> list[OperationRow]:
    return list((await store.take_queued(owner, "default", serves, limit)).rows)


async def test_what_is_queued_in_a_pool_is_due_at_once_and_claimed_once_by_a_worker_of_the_pool(store: Store, host: MovableHost) -> None:
    record = await queued(store, host, 1, 2)
    found = await row(store)
    assert (found.state, found.pool, found.by_run, found.owner, found.due is not None) == (S.QUEUED, "side", False, None, True)
    assert await take_queued(store, serves=SERVED) == []
    assert await take_queued(store, serves=replace(SIDE, names=("other",))) == []
    assert await take(store, "w2") == []
    (first,) = await take_queued(store, limit=1)
    (second,) = await take_queued(store)
    assert sorted((each.seq, each.state, each.owner, each.due) for each in (first, second)) == [
        (1, S.QUEUED, "w2", None), (2, S.QUEUED, "w2", None),
    ]  # fmt: skip
    assert min(first.fence, second.fence) > record.run.fence
    assert await take_queued(store) == []


async def test_an_operation_without_a_pool_is_queued_for_its_runs_worker_alone(store: Store, host: MovableHost) -> None:
    await recorded(store, host, intent(state=S.QUEUED))
    found = await row(store)
    assert (found.pool, found.by_run, found.due) == ("default", True, None)
    assert await take_queued(store, "w1", replace(SIDE, pools=("default", "side"))) == []


async def test_what_was_queued_in_a_pool_is_its_runs_own_once_that_arms_it(store: Store, host: MovableHost) -> None:
    """A worker of the pool has not claimed it, and none does now."""
    record = await recorded(store, host, intent(1, S.QUEUED, pool="far"))
    assert not (await row(store)).by_run
    await store.apply([advance(record, intents=[intent(1, pool="far")], operates=True)])
    assert ((await row(store)).state, (await row(store)).by_run, (await row(store)).owner) == (S.ARMED, True, "w1")


async def test_what_a_worker_of_the_pool_armed_is_told_of_like_any_other(store: Store, host: MovableHost) -> None:
    record = await queued(store, host)
    (taken,) = await take_queued(store)
    armed = await tell(store, K.ARMED, who="w2", fence=taken.fence, may_leave_until=9)
    assert (armed.state, armed.sends, armed.owner) == (S.ARMED, 1, "w2")
    await tell(store, K.SENT, who="w2", fence=taken.fence)
    assert (await row(store)).state is S.CONFIRMED
    assert [(m.about, m.seq, m.body) for m in (await again(store, record)).inbox] == [(About.OPERATION, 1, b'"v"')]


async def test_what_a_pool_is_to_send_later_is_told_of_and_taken_then(store: Store, host: MovableHost) -> None:
    await queued(store, host)
    (taken,) = await take_queued(store)
    await tell(store, K.ARMED, who="w2", fence=taken.fence)
    due = await store.now() + 60 * SECOND
    assert (await tell(store, K.UNBEGUN, who="w2", fence=taken.fence, retry_at=due)).state is S.QUEUED

    left = await store.take_queued("w2", "default", SIDE, 10)

    assert (list(left.rows), left.next_due) == ([], due)
    host.advance(60 * SECOND)
    (await register(store, host, "w3")).close()
    assert len(await take_queued(store, "w3")) == 1


async def test_a_dead_worker_of_a_pool_leaves_what_it_armed_unknown_and_what_it_claimed_queued(store: Store, host: MovableHost) -> None:
    await queued(store, host, 1, 2)
    first, _ = sorted(await take_queued(store), key=lambda each: each.seq)
    await tell(store, K.ARMED, who="w2", fence=first.fence, may_leave_until=9)
    await store.mark_dead("w2")
    assert await take_queued(store, "w2") == []
    assert await take(store) == []  # gives them up, and serves their pool not
    assert [(each.state, each.owner, each.due is not None) for each in (await row(store, 1), await row(store, 2))] == [
        (S.UNKNOWN, None, True), (S.QUEUED, None, True),
    ]  # fmt: skip
    settled = await store.take_operations("w1", "default", SIDE, 10, S.UNKNOWN)
    assert [each.seq for each in settled.rows] == [1]
    assert [each.seq for each in await take_queued(store, "w1")] == [2]


@pytest.mark.parametrize("claimed_first", [False, True])
async def test_what_its_run_withdraws_nobody_sends(store: Store, host: MovableHost, claimed_first: bool) -> None:
    record = await queued(store, host)
    taken = await take_queued(store) if claimed_first else []
    mark = OperationMark(1, S.QUEUED, S.WITHDRAWN, awaited=False)
    assert await store.apply([advance(record, marks=[mark])]) == [Verdict.APPLIED]
    found = await row(store)
    assert (found.state, found.owner, found.due) == (S.WITHDRAWN, None, None)
    assert await take_queued(store) == []
    if taken:
        assert (await tell(store, K.ARMED, who="w2", fence=taken[0].fence)).state is S.WITHDRAWN


async def test_what_was_armed_meanwhile_is_not_withdrawn(store: Store, host: MovableHost) -> None:
    record = await queued(store, host)
    (taken,) = await take_queued(store)
    await tell(store, K.ARMED, who="w2", fence=taken.fence)
    mark = OperationMark(1, S.QUEUED, S.WITHDRAWN, awaited=False)
    assert await store.apply([advance(record, marks=[mark])]) == [Verdict.REFUSED]
    assert (await row(store)).state is S.ARMED


async def test_what_an_ended_run_left_queued_in_a_pool_is_due_to_nobody(store: Store, host: MovableHost) -> None:
    record = await queued(store, host, 1, 2)
    (taken,) = await take_queued(store, limit=1)
    await store.apply([succeed(record, operates=True, parent=True)])
    assert [(each.state, each.owner, each.due) for each in (await row(store, 1), await row(store, 2))] == [(S.WITHDRAWN, None, None)] * 2
    assert (await tell(store, K.ARMED, id=taken.id, who="w2", fence=taken.fence)).state is S.WITHDRAWN


# ---- without their code ----------------------------------------------------------------------------------


async def unserved(store: Store, *served: tuple[str, str, bool], overdue: int = 0) -> list[str]:
    return [each.id for each in await store.unserved_operations("default", served, overdue, 10)]


async def test_what_no_worker_can_settle_is_found_once_it_is_overdue(store: Store, host: MovableHost) -> None:
    await recorded(store, host, intent(1), intent(2), marks=(lost(1), lost(2)))
    await tell(store, K.LOOKED_UNKNOWN, id="op-2", fence=(await row(store, 2)).fence, retry_at=host.wall() + 10 * SECOND)
    assert await unserved(store) == ["op-1"]  # the other one is not due
    assert await unserved(store, ("default", "other", True)) == ["op-1"]
    assert await unserved(store, ("side", "write", True)) == ["op-1"]
    assert await unserved(store, ("default", "write", False)) == ["op-1"]  # it was recorded with a lookup
    assert await unserved(store, ("default", "write", True)) == []
    assert await unserved(store, overdue=host.wall() + SECOND) == []
    assert list(await store.unserved_operations("elsewhere", (), 0, 10)) == []


async def test_of_what_no_worker_can_settle_the_longest_overdue_comes_first(store: Store, host: MovableHost) -> None:
    first, second = await pair(store, host)
    await store.apply([advance(first, marks=[replace(lost(), due=2)]), advance(second, marks=[replace(lost(), due=1)])])
    assert [each.id for each in await store.unserved_operations("default", (), 0, 1)] == ["op-2"]
    assert await unserved(store) == ["op-2", "op-1"]


async def test_a_claimed_a_queued_and_a_held_operation_are_not_found_without_their_code(store: Store, host: MovableHost) -> None:
    await recorded(store, host, intent(1), intent(2), intent(3, S.QUEUED, pool="side"), marks=(lost(1), lost(2)))
    (held,) = await take(store, limit=1)
    await tell(store, K.STUCK, id=held.id, fence=held.fence)
    assert len(await take(store)) == 1
    assert await unserved(store) == []


async def test_what_is_held_for_its_code_is_taken_by_the_first_worker_that_has_it(store: Store, host: MovableHost) -> None:
    await recorded(store, host, marks=(lost(),))
    await tell(store, K.NO_CODE, fence=(await row(store)).fence, why="its function is gone")
    assert (await row(store)).state is S.HELD
    assert await unserved(store) == []
    assert await take(store, names=("other",)) == []
    (taken,) = await take(store)
    assert (taken.state, taken.owner) == (S.HELD, "w1")
    assert (await tell(store, K.CODE_BACK, fence=taken.fence)).state is S.UNKNOWN


async def test_what_may_have_been_sent_and_is_not_settled_is_found_after_its_generation_too(store: Store, host: MovableHost) -> None:
    intents = (intent(1, position=4), intent(2), intent(3, S.QUEUED), intent(4))
    record = await recorded(store, host, *intents, marks=(OperationMark(2, S.ARMED, S.CONFIRMED, awaited=False), lost(4)))
    await store.apply([succeed(record, operates=True, parent=True)])
    found = await store.open_operations(record.run.generation_key)
    assert [(each.id, each.state, each.position, each.awaited) for each in found] == [
        ("op-1", S.ARMED, 4, False), ("op-4", S.UNKNOWN, 0, False),
    ]  # fmt: skip


async def test_operations_set_aside_are_left_to_others_queued_and_unknown_ones(store: Store, host: MovableHost) -> None:
    await queued(store, host, 1)
    (found,) = await take_queued(store)
    serves = replace(SIDE, aside=[found.key])
    back = Report("default", found.id, K.UNBEGUN, "w2", found.fence, retry_at=await store.now())
    await store.report([replace(back, kind=K.ARMED, may_leave_until=1)], decide, RunStatus.PENDING)
    await store.report([back], decide, RunStatus.PENDING)

    others = await store.take_queued("w2", "default", serves, 10)
    assert (list(others.rows), others.next_due) == ([], None)
    (found,) = await take_queued(store)
    given = Report("default", found.id, K.ARMED, "w2", found.fence, may_leave_until=1)
    await store.report([given, replace(given, kind=K.NO_ANSWER, retry_at=await store.now())], decide, RunStatus.PENDING)

    others = await store.take_operations("w2", "default", serves, 10, None)
    assert (list(others.rows), others.next_due) == ([], None)
    assert [each.id for each in (await store.take_operations("w2", "default", SIDE, 10, None)).rows] == [found.id]
