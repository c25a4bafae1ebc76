"""The protocol of operations: the table, every ending, and what each report makes of each state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from romulus.core.errors import OperationConflict
from romulus.core.operations import (
    ENDINGS,
    SETTLED,
    TABLE,
    Ending,
    OperationEvent,
    OperationRow,
    OperationState,
    Protocol,
    Report,
    ReportKind,
    Step,
    after,
    after_silence,
    believable_at,
    decide,
    key_has_room,
    next_step,
)

S, E, R = OperationState, OperationEvent, ReportKind
SECOND = 1_000_000
NOW = 1_000 * SECOND
PEOPLE = (R.RESOLVED_APPLIED, R.RESOLVED_ABSENT, R.GIVEN_UP)
LATE = Protocol(idempotent=False, key_lifetime=None, settle=5 * SECOND, timeout=30 * SECOND, has_lookup=True)


def row(state: OperationState = S.UNKNOWN, **changes: Any) -> OperationRow:
    made = OperationRow(
        1, "op", "default", 1, "r", "w", "1", 1, 1, "write", "d", b"{}", "default", LATE, state, 1, "w1", 7, False, NOW - 100 * SECOND,
        NOW - 60 * SECOND, None, 0, False, False, True, "", False, b"", 0, 0, None,
    )  # fmt: skip
    return replace(made, **changes)


def report(kind: ReportKind, **changes: Any) -> Report:
    return replace(Report("default", "op", kind, "w1", 7, b"body"), **changes)


def test_every_ending_has_one_event_and_it_starts_from_armed() -> None:
    assert set(ENDINGS) == set(Ending)
    assert {ending: after(S.ARMED, event) for ending, event in ENDINGS.items()} == {
        Ending.RETURNED: S.CONFIRMED,
        Ending.REJECTED: S.REJECTED,
        Ending.NOT_SENT: S.QUEUED,
        Ending.NOT_SENT_LAST: S.NOT_SENT,
        Ending.RAISED: S.UNKNOWN,
        Ending.TIMEOUT: S.UNKNOWN,
        Ending.CANCELLED: S.UNKNOWN,
        Ending.KILLED: S.UNKNOWN,
        Ending.UNBEGUN: S.QUEUED,
    }


def test_nothing_leaves_a_settled_state_and_only_queued_and_resend_can_be_armed() -> None:
    assert not any(state in SETTLED for sources in TABLE.values() for state in sources)
    assert set(TABLE[E.ARM]) == {S.QUEUED, S.RESEND}
    assert {state for state, to in TABLE[E.SEND_AGAIN].items() if to is S.RESEND} == {S.UNKNOWN, S.HELD}


@pytest.mark.parametrize("event", OperationEvent)
@pytest.mark.parametrize("state", OperationState)
def test_what_the_table_does_not_name_is_refused(event: OperationEvent, state: OperationState) -> None:
    if state in TABLE[event]:
        assert after(state, event) is TABLE[event][state]
    else:
        with pytest.raises(OperationConflict, match=f"is {state} and cannot"):
            after(state, event, "op")


@pytest.mark.parametrize("kind", [kind for kind in ReportKind if kind not in PEOPLE])
@pytest.mark.parametrize("state", OperationState)
def test_a_report_never_raises_whatever_the_state(kind: ReportKind, state: OperationState) -> None:
    for fence in (7, 6):
        decided = decide(row(state), report(kind, fence=fence, retry_at=NOW), NOW)
        assert decided.changed or decided.row == row(state)


@pytest.mark.parametrize("kind", ReportKind)
@pytest.mark.parametrize("state", sorted(SETTLED))
def test_a_settled_operation_never_changes(kind: ReportKind, state: OperationState) -> None:
    if kind in PEOPLE:
        with pytest.raises(OperationConflict):
            decide(row(state), report(kind), NOW)
    else:
        assert not decide(row(state), report(kind), NOW).changed


@pytest.mark.parametrize("kind", [R.SENT, R.LOOKED_APPLIED, R.CALLED_APPLIED])
@pytest.mark.parametrize("state", [S.ARMED, S.UNKNOWN, S.RESEND, S.HELD])
def test_positive_evidence_settles_whoever_gives_it(kind: ReportKind, state: OperationState) -> None:
    decided = decide(row(state), report(kind, fence=1), NOW)
    assert (decided.row.state, decided.row.body, decided.row.owner) == (S.CONFIRMED, b"body", None)


@pytest.mark.parametrize("kind", [R.REJECTED, R.LOOKED_ABSENT, R.CALLED_ABSENT])
@pytest.mark.parametrize("state", [S.ARMED, S.UNKNOWN, S.RESEND, S.HELD])
def test_negative_evidence_of_another_claim_changes_nothing(kind: ReportKind, state: OperationState) -> None:
    assert not decide(row(state), report(kind, fence=6, retry_at=NOW), NOW).changed


def test_a_callback_that_says_not_applied_never_causes_a_send() -> None:
    assert not decide(row(), report(R.CALLED_ABSENT, retry_at=NOW), NOW).changed


def test_not_found_is_believed_after_the_last_send_has_left_and_settled_and_not_before() -> None:
    young = row(may_leave_until=NOW + 10 * SECOND)
    wait = decide(young, report(R.LOOKED_ABSENT, retry_at=NOW), NOW)
    assert (wait.row.state, wait.row.due) == (S.UNKNOWN, NOW + 15 * SECOND)
    assert decide(young, report(R.LOOKED_ABSENT, retry_at=NOW), NOW + 15 * SECOND - 1).row.state is S.UNKNOWN
    assert decide(young, report(R.LOOKED_ABSENT, retry_at=NOW), NOW + 15 * SECOND).row.state is S.RESEND


def test_a_send_that_began_late_in_its_claim_is_waited_for_as_well() -> None:
    assert believable_at(row(first_sent_at=NOW, may_leave_until=NOW)) == NOW + 35 * SECOND


def test_not_found_after_the_provider_had_taken_it_waits_for_a_person() -> None:
    held = decide(row(seen_applied=True), report(R.LOOKED_ABSENT, retry_at=NOW), NOW).row
    assert held.state is S.HELD
    assert "had taken it" in held.hold_reason


def test_contradicting_reports_on_a_settled_operation_are_flagged() -> None:
    assert decide(row(S.CONFIRMED), report(R.LOOKED_ABSENT), NOW).kind.startswith("conflict")
    assert decide(row(S.REJECTED), report(R.CALLED_APPLIED), NOW).kind.startswith("conflict")
    assert not decide(row(S.ABANDONED), report(R.CALLED_APPLIED), NOW).kind.startswith("conflict")


def test_a_key_has_room_while_a_whole_send_fits_its_lifetime() -> None:
    keyed = replace(LATE, idempotent=True, key_lifetime=100 * SECOND, has_lookup=False)
    begun = row(protocol=keyed, first_sent_at=NOW)
    assert key_has_room(begun, NOW + 70 * SECOND)
    assert not key_has_room(begun, NOW + 70 * SECOND + 1)
    assert key_has_room(row(protocol=replace(keyed, key_lifetime=None)), NOW)
    assert not key_has_room(row(), NOW)


def test_the_order_of_settling_is_lookup_key_person() -> None:
    keyed = replace(LATE, idempotent=True)
    assert next_step(row(protocol=keyed), NOW, 3) is Step.LOOK
    assert after_silence(row(protocol=keyed), NOW, 3) is Step.KEY
    assert after_silence(row(protocol=keyed, sends=3), NOW, 3) is Step.HOLD
    assert next_step(row(protocol=replace(LATE, has_lookup=False)), NOW, 3) is Step.HOLD


def test_a_resend_without_a_key_needs_that_it_is_known_not_to_have_been_applied() -> None:
    assert next_step(row(S.RESEND, cleared=True), NOW, 3) is Step.SEND
    assert next_step(row(S.RESEND), NOW, 3) is Step.HOLD
    assert next_step(row(S.RESEND, protocol=replace(LATE, idempotent=True)), NOW, 3) is Step.SEND


def test_what_was_not_sent_again_stays_cleared_and_what_was_is_not() -> None:
    armed = decide(row(S.RESEND, cleared=True), report(R.ARMED, may_leave_until=NOW), NOW).row
    assert (armed.state, armed.sends) == (S.ARMED, 2)
    unbegun = decide(armed, report(R.UNBEGUN), NOW).row
    assert (unbegun.state, unbegun.cleared, unbegun.sends) == (S.RESEND, True, 1)
    lost = decide(armed, report(R.NO_ANSWER), NOW).row
    assert (lost.state, lost.cleared) == (S.UNKNOWN, False)


def test_a_claim_given_up_by_a_person_can_arm_nothing() -> None:
    resolved = decide(row(S.HELD, owner=None), report(R.RESOLVED_ABSENT, fence=0), NOW).row
    assert resolved.state is S.RESEND
    assert not decide(resolved, report(R.ARMED), NOW).changed


def test_an_armed_operation_cannot_be_resolved_by_hand() -> None:
    for kind in PEOPLE:
        with pytest.raises(OperationConflict, match="is armed"):
            decide(row(S.ARMED), report(kind), NOW)


def test_a_hold_says_what_was_sent_and_when_what_is_known_and_what_the_choices_do() -> None:
    reason = decide(row(), report(R.STUCK, why="nobody can be asked"), NOW).row.hold_reason
    for part in ("'write'", "op", "sent once", "1970-01-01", "nobody can be asked", "not-applied", "give-up"):
        assert part in reason


# ---- queued in a pool ------------------------------------------------------------------------------------


def pooled(state: OperationState = S.QUEUED, **changes: Any) -> OperationRow:
    sent = int(state is S.ARMED)
    given: dict[str, Any] = {"pool": "side", "sends": sent, "first_sent_at": NOW if sent else None, "may_leave_until": 0}
    return row(state, **given | changes)


def test_a_pools_worker_arms_what_it_has_claimed_and_nobody_else_does() -> None:
    asked = report(R.ARMED, may_leave_until=NOW + SECOND)
    armed = decide(pooled(), asked, NOW).row
    assert (armed.state, armed.sends, armed.owner, armed.first_sent_at, armed.may_leave_until) == (S.ARMED, 1, "w1", NOW, NOW + SECOND)
    assert decide(armed, asked, NOW).row == armed
    for refused in (replace(asked, fence=6), replace(asked, who="w2")):
        assert not decide(pooled(), refused, NOW).changed
    for claim in ({"by_run": True}, {"owner": None}):
        assert not decide(pooled(**claim), asked, NOW).changed
        assert not decide(row(S.RESEND, cleared=True, **claim), asked, NOW).changed


def test_what_a_pools_worker_did_not_send_is_queued_again_and_still_counts_its_tries() -> None:
    unbegun = decide(pooled(S.ARMED), report(R.UNBEGUN), NOW).row
    assert (unbegun.state, unbegun.sends, unbegun.first_sent_at, unbegun.due, unbegun.looks) == (S.QUEUED, 0, None, NOW, 0)
    tried = decide(pooled(S.ARMED, looks=1), report(R.NOT_SENT, retry_at=NOW + 9), NOW).row
    assert (tried.state, tried.due, tried.looks) == (S.QUEUED, NOW + 9, 2)
    last = decide(pooled(S.ARMED), report(R.NOT_SENT, retry_at=NOW + 9, last=True), NOW).row
    assert (last.state, last.failed, last.body, last.due) == (S.NOT_SENT, True, b"body", None)


@pytest.mark.parametrize(("kind", "state"), [(R.UNBEGUN, S.WITHDRAWN), (R.NOT_SENT, S.NOT_SENT)])
def test_what_was_never_sent_and_nobody_awaits_is_over(kind: ReportKind, state: OperationState) -> None:
    over = decide(pooled(S.ARMED, awaited=False), report(kind, retry_at=NOW), NOW).row
    assert (over.state, over.due, over.owner) == (state, None, None)


def test_the_last_try_of_a_send_after_an_earlier_one_is_not_the_end() -> None:
    """The earlier send was found not to have been applied; that this one did not leave settles nothing."""
    again = decide(row(S.ARMED, sends=2, cleared=True), report(R.NOT_SENT, retry_at=NOW + 9, last=True), NOW).row
    assert (again.state, again.sends, again.cleared, again.due) == (S.RESEND, 1, True, NOW + 9)


@pytest.mark.parametrize("kind", [kind for kind in ReportKind if kind not in {*PEOPLE, R.ARMED}])
def test_nothing_but_its_arming_is_heard_of_a_queued_operation(kind: ReportKind) -> None:
    assert not decide(pooled(), report(kind, retry_at=NOW), NOW).changed


# ---- without its code --------------------------------------------------------------------------------------


def test_what_no_worker_can_settle_is_held_and_stays_due_for_one_that_can() -> None:
    held = decide(row(owner=None, due=NOW), report(R.NO_CODE, why="its function is gone"), NOW).row
    assert (held.state, held.due) == (S.HELD, NOW)
    assert "its function is gone" in held.hold_reason
    assert next_step(held, NOW, 3) is Step.TAKE_UP
    taken = replace(held, owner="w1", fence=8, due=None)
    back = decide(taken, report(R.CODE_BACK, fence=8), NOW).row
    assert (back.state, back.due, back.owner, back.hold_reason) == (S.UNKNOWN, NOW, None, "")


@pytest.mark.parametrize("changes", [{"owner": "w2", "due": NOW}, {"owner": None, "due": NOW + 1}, {"owner": None, "due": None}])
def test_what_is_being_settled_or_not_due_yet_is_not_held_for_its_code(changes: dict[str, Any]) -> None:
    assert not decide(row(**changes), report(R.NO_CODE), NOW).changed


def test_what_was_to_be_sent_again_when_its_code_was_gone_is_sent_again_when_it_is_back() -> None:
    held = decide(row(S.RESEND, cleared=True, owner=None, due=NOW), report(R.NO_CODE), NOW).row
    back = decide(held, report(R.CODE_BACK), NOW).row
    assert (back.state, back.cleared) == (S.RESEND, True)


def test_what_waits_for_a_person_is_due_to_nobody() -> None:
    assert decide(row(due=NOW), report(R.STUCK), NOW).row.due is None
