"""What a person may ask of a run, decided from its row alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from romulus.core.errors import IllegalTransition
from romulus.core.machine import TERMINAL, RunStatus
from romulus.core.record import Entry, Generation, Kind, Run
from romulus.core.requests import Prefix, fork_of, release, request_cancel, retry, retry_prefix, terminate
from romulus.core.seeds import Seeds

NOW = 1_700_000_000_000_000
FIRST, SECOND = bytes(16), bytes(range(16))


def run(status: RunStatus, **fields: object) -> Run:
    row = Run(
        key=1, namespace="default", id="r", workflow="w", version="1", status=status, generation=1, generation_key=7, position=4,
        revision=9, owner=None, fence=50, cancel_seq=0, cancel_reason="", last_transition=3, armed="[]", losses=0, wake_at=None,
        priority=0, digest="3.11:d", excluded="", hold_kind="", hold_reason="", deadline=None, attributes="{}",
        created_at=NOW - 100, started_at=NOW - 90, updated_at=NOW - 10, finished_at=None,
    )  # fmt: skip
    return replace(row, **fields)  # type: ignore[arg-type]


def generation(**fields: object) -> Generation:
    row = Generation(7, 1, "w", "1", b"{}", b"d" * 16, Seeds.first(FIRST.hex()).dump(), NOW - 90, timeout=60)
    return replace(row, **fields)  # type: ignore[arg-type]


def entry(position: int, kind: Kind = Kind.STEP, *, seq: int = 0, failed: bool = False) -> Entry:
    return Entry(position, kind, seq, "s", 1, NOW, failed, b"", b"")


def test_a_run_no_code_has_run_for_is_cancelled_at_once() -> None:
    for status in (RunStatus.SCHEDULED, RunStatus.PENDING):
        decided = request_cancel(run(status, started_at=None, wake_at=NOW), "why", NOW)
        assert decided is not None
        assert (decided.run.status, decided.run.finished_at, decided.run.wake_at) == (RunStatus.CANCELLED, NOW, None)
        assert decided.run.cancel_reason == "why"


def test_a_running_run_keeps_its_owner_and_revision_when_it_is_asked_to_cancel() -> None:
    decided = request_cancel(run(RunStatus.RUNNING, owner="w1", wake_at=None), "", NOW)

    assert decided is not None
    after = decided.run
    assert (after.status, after.owner, after.revision, after.fence, after.cancel_seq) == (RunStatus.RUNNING, "w1", 9, 50, 1)


def test_a_parked_run_is_due_at_once_when_it_is_asked_to_cancel() -> None:
    decided = request_cancel(run(RunStatus.WAITING, wake_at=NOW + 600_000_000), "", NOW)

    assert decided is not None
    assert (decided.run.status, decided.run.wake_at, decided.run.cancel_seq) == (RunStatus.WAITING, NOW, 1)


def test_a_held_run_becomes_claimable_to_have_its_cancel_delivered() -> None:
    decided = request_cancel(run(RunStatus.HELD, hold_kind="poison", hold_reason="x", losses=5, excluded="a b"), "", NOW)

    assert decided is not None
    after = decided.run
    assert (after.status, after.hold_kind, after.losses, after.excluded) == (RunStatus.PENDING, "", 0, "")
    assert after.hold_reason == "x"  # why it ends, should its code be unable to clean up
    assert after.revision == 10  # a cached instance of it is no longer current


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_an_ended_run_has_nothing_to_cancel(status: RunStatus) -> None:
    assert request_cancel(run(status), "late", NOW) is None


def test_termination_voids_the_claim_by_a_higher_fence() -> None:
    decided = terminate(run(RunStatus.RUNNING, owner="w1"), "enough", NOW)

    assert decided is not None
    after = decided.run
    assert (after.status, after.owner, after.fence, after.cancel_reason) == (RunStatus.TERMINATED, None, NOW, "enough")


def test_termination_is_refused_where_the_run_ended_in_another_way_and_nothing_where_it_was_terminated() -> None:
    assert terminate(run(RunStatus.TERMINATED), "again", NOW) is None
    with pytest.raises(IllegalTransition, match="succeeded cannot be terminated"):
        terminate(run(RunStatus.SUCCEEDED), "", NOW)


def test_release_forgets_losses_and_exclusions_in_the_same_generation() -> None:
    after = release(run(RunStatus.HELD, losses=5, excluded="a", hold_kind="code", hold_reason="why"), NOW).run

    assert (after.status, after.generation, after.losses, after.excluded, after.hold_kind, after.wake_at) == (
        RunStatus.PENDING, 1, 0, "", "", NOW,
    )  # fmt: skip


def test_only_a_held_run_is_released() -> None:
    with pytest.raises(IllegalTransition, match="waiting cannot be released"):
        release(run(RunStatus.WAITING), NOW)


def test_retry_begins_a_generation_with_the_prefix_a_new_seed_and_the_old_start() -> None:
    decided = retry(run(RunStatus.FAILED, finished_at=NOW, cancel_seq=2), generation(), Prefix(3, 1), SECOND, NOW)

    assert decided.begins is not None
    assert decided.begins.copy is not None
    assert (decided.begins.copy.generation_key, decided.begins.copy.below, decided.begins.started_at) == (7, 3, NOW - 90)
    seeds = Seeds.parse(decided.begins.seeds)
    assert (seeds.in_force(2), seeds.in_force(3), seeds.newest) == (FIRST, SECOND, SECOND)
    after = decided.run
    assert (after.status, after.generation, after.position, after.cancel_seq, after.finished_at) == (RunStatus.PENDING, 2, 3, 1, None)
    assert after.revision == 10


def test_retry_that_keeps_nothing_begins_with_the_time_of_its_own_claim() -> None:
    decided = retry(run(RunStatus.FAILED), generation(), Prefix(0), SECOND, NOW)

    assert decided.begins is not None
    assert decided.begins.started_at is None
    assert Seeds.parse(decided.begins.seeds).in_force(0) == SECOND


def test_live_and_succeeded_runs_are_not_retried() -> None:
    for status in (RunStatus.RUNNING, RunStatus.HELD, RunStatus.WAITING, RunStatus.SUCCEEDED):
        with pytest.raises(IllegalTransition, match="cannot be retried"):
            retry(run(status), generation(), Prefix(0), SECOND, NOW)


def test_a_retry_decided_on_an_older_generation_is_refused() -> None:
    with pytest.raises(IllegalTransition, match="no longer its last"):
        retry(run(RunStatus.FAILED, generation_key=8), generation(), Prefix(0), SECOND, NOW)


def test_a_failed_run_keeps_what_came_before_the_outcome_that_failed_it() -> None:
    journal = [entry(0), entry(1), entry(2, failed=True), entry(3)]

    assert retry_prefix(RunStatus.FAILED, 2, journal, 4) == Prefix(2)


def test_a_run_failed_by_its_own_code_keeps_everything() -> None:
    journal = [entry(0), entry(1), entry(2), entry(3)]

    assert retry_prefix(RunStatus.FAILED, 3, journal, 4) == Prefix(4)
    assert retry_prefix(RunStatus.FAILED, None, journal, 4) == Prefix(4)


def test_a_cancelled_run_keeps_what_came_before_its_first_cancel() -> None:
    journal = [entry(0), entry(1, Kind.CANCEL, seq=1), entry(2), entry(3, Kind.CANCEL, seq=2)]

    assert retry_prefix(RunStatus.CANCELLED, None, journal, 4) == Prefix(1)


def test_a_terminated_run_keeps_everything_and_numbers_later_cancels_after_those_delivered() -> None:
    journal = [entry(0), entry(1, Kind.CANCEL, seq=1), entry(2), entry(3)]

    assert retry_prefix(RunStatus.TERMINATED, None, journal, 4) == Prefix(4, 1)


def test_a_fork_copies_the_prefix_into_a_new_run_and_leaves_the_original() -> None:
    original = run(RunStatus.SUCCEEDED, attributes='{"a":1}', priority=3)

    fork = fork_of(original, generation(), 2, "r~1", "2", SECOND)

    assert (fork.id, fork.version, fork.status, fork.attributes, fork.priority) == ("r~1", "2", RunStatus.PENDING, '{"a":1}', 3)
    assert fork.copy is not None
    assert (fork.copy.generation_key, fork.copy.below, fork.started_at, fork.timeout) == (7, 2, NOW - 90, 60)
    assert Seeds.parse(fork.seeds).newest == SECOND
    assert original == run(RunStatus.SUCCEEDED, attributes='{"a":1}', priority=3)
