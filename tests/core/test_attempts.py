"""Attempts are counted once and never again from the start, whatever is lost or fails in between."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from romulus.core.attempts import LOSSES_MAX, LossHold, after_cut, after_failure, after_loss
from romulus.core.errors import DefinitionError, SerializationError, ValueTooLarge
from romulus.core.record import AttemptRow, HoldKind
from romulus.core.retry import Retry

NOON = 1_000_000_000
ERROR = b"{}"


def fail(retry: Retry, row: AttemptRow | None, exception: BaseException | None = None) -> AttemptRow | None:
    number = row.number + 1 if row else 1
    return after_failure(retry, row, 4, "ab", number, ERROR, exception or ValueError(), NOON, 0.5, name="charge")


def lose(retry: Retry, row: AttemptRow | None, *, alone: bool = False) -> AttemptRow | LossHold:
    number = row.number + 1 if row else 1
    return after_loss(retry, row, 4, "ab", number, alone, NOON, 0.5, name="charge")


def test_a_failed_attempt_is_tried_again_after_its_wait() -> None:
    assert fail(Retry(jitter=0), None) == AttemptRow(4, "ab", 1, 1, 0, NOON + 1_000_000, ERROR, name="charge")


def test_the_last_allowed_failure_is_the_outcome() -> None:
    first = fail(Retry(max_attempts=3), None)
    second = fail(Retry(max_attempts=3), first)

    assert second is not None
    assert (second.number, second.failures) == (2, 2)
    assert fail(Retry(max_attempts=3), second) is None
    assert fail(Retry(max_attempts=1), None) is None


def test_without_a_maximum_it_is_tried_for_ever() -> None:
    assert fail(Retry(max_attempts=None), AttemptRow(4, "ab", 10**6, 10**6, 0, 0, ERROR)) is not None


@pytest.mark.parametrize("exception", [KeyError("x"), SerializationError("x"), ValueTooLarge("x"), DefinitionError("x")])
def test_what_cannot_succeed_next_time_is_not_tried_again(exception: Exception) -> None:
    assert fail(Retry(max_attempts=None, non_retryable=(LookupError,)), None, exception) is None


def test_a_lost_attempt_is_due_at_once_and_spends_nothing() -> None:
    row = lose(Retry(max_attempts=2), None)

    assert row == AttemptRow(4, "ab", 1, 0, 1, NOON, b"", name="charge")


def test_an_attempt_lost_alone_spends_one_and_waits() -> None:
    row = lose(Retry(max_attempts=3, jitter=0), None, alone=True)

    assert row == AttemptRow(4, "ab", 1, 1, 0, NOON + 1_000_000, b"", name="charge")


def test_a_step_with_one_attempt_always_holds_when_it_is_lost() -> None:
    for alone in (False, True):
        held = lose(Retry(max_attempts=1), None, alone=alone)
        assert isinstance(held, LossHold)
        assert held.kind is HoldKind.POISON
        assert "attempt 1 of step 'charge' was lost" in held.reason
        assert "one attempt only" in held.reason
        assert held.row.number == 1


def test_the_last_allowed_attempt_lost_alone_holds() -> None:
    held = lose(Retry(max_attempts=2), AttemptRow(4, "ab", 1, 1, 0, 0, ERROR), alone=True)

    assert isinstance(held, LossHold)
    assert "attempt 2 of step 'charge'" in held.reason


def test_the_fifth_loss_holds_whatever_the_maximum_and_a_release_starts_the_losses_again() -> None:
    row: AttemptRow | LossHold | None = None
    for _ in range(LOSSES_MAX - 1):
        row = lose(Retry(max_attempts=None), row)  # type: ignore[arg-type]
        assert isinstance(row, AttemptRow)
    held = lose(Retry(max_attempts=None), row)  # type: ignore[arg-type]

    assert isinstance(held, LossHold)
    assert "attempt 5 of step 'charge'" in held.reason
    assert (held.row.number, held.row.losses) == (5, 0)
    assert isinstance(lose(Retry(max_attempts=None), held.row), AttemptRow)


def test_heartbeat_details_reach_the_next_attempt() -> None:
    row = AttemptRow(4, "ab", 1, 0, 1, 0, b"", b"at 5")

    for after in (fail(Retry(), row), lose(Retry(), row), lose(Retry(), row, alone=True)):
        assert isinstance(after, AttemptRow)
        assert after.heartbeat == b"at 5"


def test_an_attempt_row_of_before_the_schema_had_names_gets_the_name_with_the_next_attempt() -> None:
    row = AttemptRow(4, "ab", 1, 1, 0, 0, ERROR)

    cut = after_cut(Retry(), row, 4, "ab", 2, NOON, name="charge")
    for after in (fail(Retry(), row), lose(Retry(), row), cut):
        assert isinstance(after, AttemptRow)
        assert after.name == "charge"


EVENTS = st.lists(st.sampled_from(["fail", "lost", "lost alone"]), max_size=40)


@given(st.none() | st.integers(1, 10), EVENTS)
def test_numbers_only_grow_and_limits_hold_in_any_order(max_attempts: int | None, events: Sequence[str]) -> None:
    retry, row = Retry(max_attempts=max_attempts), None
    for bodies, event in enumerate(events, start=1):
        before = row
        after = fail(retry, row) if event == "fail" else lose(retry, row, alone=event == "lost alone")
        if not isinstance(after, AttemptRow):
            if isinstance(after, LossHold):
                assert after.row.number == bodies
            break
        row = after
        assert row.number == bodies
        assert row.due >= NOON
        assert row.failures + row.losses == bodies
        assert row.failures >= (before.failures if before else 0)
        assert row.losses < LOSSES_MAX
        assert max_attempts is None or row.failures < max_attempts
        assert max_attempts != 1
