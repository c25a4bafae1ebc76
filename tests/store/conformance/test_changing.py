"""Changes of a run row by a person, continue-as-new, and how a generation ends."""

from __future__ import annotations

import pytest

from romulus.core.errors import IllegalTransition
from romulus.core.machine import Change, RunStatus
from romulus.core.record import AttemptRow
from romulus.core.requests import Prefix, release, request_cancel, retry, terminate
from romulus.core.transition import NewGeneration, Verdict
from romulus.store.contract import Store
from tests.store.kit import (
    HELD,
    PENDING,
    SECOND,
    MovableHost,
    advance,
    again,
    claim,
    claimed,
    entry,
    event,
    park,
    register,
    start,
    succeed,
    wait,
)  # fmt: skip

FAILED_ROW = AttemptRow(0, "aa", 1, 1, 0, 5, b"boom")


async def test_a_change_of_no_run_is_none(store: Store) -> None:
    assert await store.change("default", "r1", lambda run, _, now: request_cancel(run, "", now)) is None


async def test_a_change_shows_the_row_before_and_after(store: Store, host: MovableHost) -> None:
    await claimed(store, host)

    changed = await store.change("default", "r1", lambda run, _, now: request_cancel(run, "why", now))

    assert changed is not None
    before, after = changed
    assert (before.cancel_seq, after.cancel_seq, after.cancel_reason) == (0, 1, "why")
    assert await store.run("default", "r1") == after


async def test_a_decision_that_changes_nothing_writes_nothing(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)

    changed = await store.change("default", "r1", lambda run, generation, now: None)

    assert changed == (record.run, record.run)
    assert list(await store.pulse("w1")) == []


async def test_a_decision_that_raises_changes_nothing(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)

    with pytest.raises(IllegalTransition):
        await store.change("default", "r1", lambda run, _, now: release(run, now))

    assert await again(store, record) == record


async def test_a_change_of_an_owned_run_wakes_its_owner(store: Store, host: MovableHost) -> None:
    await claimed(store, host)

    await store.change("default", "r1", lambda run, _, now: request_cancel(run, "", now))

    assert [r.run.cancel_seq for r in await store.pulse("w1")] == [1]


async def test_terminating_ends_the_generation_and_voids_the_claim(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    await store.apply([advance(record, attempts=[FAILED_ROW], opens=[wait()])])
    record = await again(store, record)

    await store.change("default", "r1", lambda run, _, now: terminate(run, "enough", now))

    ended = await again(store, record)
    assert (ended.run.status, ended.run.owner) == (RunStatus.TERMINATED, None)
    assert ended.run.fence > record.run.fence
    assert ended.run.finished_at is not None
    assert ended.generation.ended_at is not None
    assert ended.generation.started_at == record.run.started_at
    assert (list(ended.attempts), list(ended.waits)) == ([], [])
    assert await store.apply([advance(record, entry(0))]) == [Verdict.REFUSED]


async def test_a_finished_generation_keeps_its_result(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    await store.apply([succeed(record, entry(0), attempts=[FAILED_ROW])])

    ended = await again(store, record)
    assert (ended.run.status, ended.run.owner, ended.run.finished_at) == (RunStatus.SUCCEEDED, None, ended.generation.ended_at)
    assert (ended.generation.result, ended.generation.failure, ended.generation.started_at) == (b'"done"', None, record.run.started_at)
    assert list(ended.attempts) == []


async def test_a_failed_generation_keeps_what_ended_it(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    t = advance(record, entry(0), change=Change.FAIL, status=RunStatus.FAILED, cancel_seq=0, failure=b"boom", ended_by=0)
    await store.apply([t])

    generation = (await again(store, record)).generation
    assert (generation.result, generation.failure, generation.ended_by) == (None, b"boom", 0)


async def test_a_held_run_says_why_and_keeps_its_waits(store: Store, host: MovableHost) -> None:
    from romulus.core.record import HoldKind

    record = await claimed(store, host)
    await store.apply([advance(record, change=Change.HOLD, status=HELD, hold=(HoldKind.HUNG, "in a loop"), opens=[wait()])])

    held = await again(store, record)
    assert (held.run.status, held.run.owner, held.run.hold_kind, held.run.hold_reason) == (HELD, None, "hung", "in a loop")
    assert len(held.waits) == 1


async def test_a_released_run_is_due_again(store: Store, host: MovableHost) -> None:
    from romulus.core.record import HoldKind

    record = await claimed(store, host)
    await store.apply([advance(record, change=Change.HOLD, status=HELD, hold=(HoldKind.HUNG, "x"), excluded="3.11:here")])

    await store.change("default", "r1", lambda run, _, now: release(run, now))

    (anew,) = (await claim(store)).records
    assert (anew.run.excluded, anew.run.hold_kind, anew.generation.number) == ("", "", 1)


async def test_continue_as_new_begins_the_next_generation(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    await store.apply([advance(record, entry(0), attempts=[FAILED_ROW], opens=[wait()])])
    await store.change("default", "r1", lambda run, _, now: request_cancel(run, "swallowed", now))
    await store.pulse("w1")
    record = await again(store, record)
    host.advance(SECOND)
    new = NewGeneration("order", "2", b'{"n":2}', b"j" * 16, '[[0,"bb"]]', timeout=60 * SECOND)

    verdicts = await store.apply([advance(record, change=Change.CONTINUE, status=PENDING, cancel_seq=1, position=0, wake_at=0, begins=new)])

    assert verdicts == [Verdict.APPLIED]
    assert [r.run.id for r in (await claim(store)).records] == []
    (anew,) = (await claim(store, serves=[("order", "2", "d")])).records
    assert (anew.run.generation, anew.run.position, anew.run.version) == (2, 0, "2")
    assert (anew.run.cancel_seq, anew.run.cancel_reason) == (0, "")
    assert (anew.generation.input, anew.generation.seeds) == (b'{"n":2}', '[[0,"bb"]]')
    assert anew.run.started_at != record.run.started_at
    assert anew.run.deadline == (anew.run.started_at or 0) + 60 * SECOND
    assert (list(anew.attempts), list(anew.waits)) == ([], [])
    assert await store.history(anew.generation.key, 0, 10) == []
    first, second = await store.generations(record.run.key)
    assert (first.number, first.ended_at is None, second.number, second.ended_at) == (1, False, 2, None)
    assert first.started_at == record.run.started_at
    assert len(await store.history(first.key, 0, 10)) == 1


async def test_a_generation_of_another_workflow_has_nothing_of_the_one_before_but_the_runs_deadline(
    store: Store, host: MovableHost
) -> None:
    (await register(store, host)).close()
    await start(store, "r1", timeout=60 * SECOND)
    (record,) = (await claim(store)).records
    await store.apply([advance(record, entry(0))])
    record = await again(store, record)
    assert (record.run.position, record.run.deadline is None, record.run.digest) == (1, False, "3.11:here")
    begins = NewGeneration("item", "7", b"{}", b"i" * 16, '[[0,"bb"]]')

    await store.apply([advance(record, entry(1), change=Change.CONTINUE, status=PENDING, cancel_seq=0, wake_at=0, begins=begins)])

    run = (await again(store, record)).run
    assert (run.workflow, run.version, run.position, run.deadline, run.digest) == ("item", "7", 0, record.run.deadline, "")
    host.advance(SECOND)
    (anew,) = (await claim(store, serves=[("item", "7", "d")])).records
    assert anew.run.deadline == record.run.deadline
    assert len(await store.history(record.generation.key, 0, 10)) == 2


@pytest.mark.parametrize("how", ["continues", "succeeds", "is terminated"])
async def test_a_generation_that_ends_touches_nothing_of_another_run(store: Store, host: MovableHost, how: str) -> None:
    records = [await claimed(store, host, run_id, f"owner of {run_id}") for run_id in ("r1", "r2")]
    await store.apply([advance(record, entry(0), attempts=[FAILED_ROW], opens=[wait()], attributes='{"n":1}') for record in records])
    await store.send([event("e1"), event("e2")])
    await store.match(10)
    for record in records:
        await store.change("default", record.run.id, lambda run, _, now: request_cancel(run, "why", now))
    record, other = [await again(store, record) for record in records]

    if how == "continues":
        begins = NewGeneration("order", "1", b"{}", b"j" * 16, '[[0,"bb"]]')
        assert await store.apply([advance(record, change=Change.CONTINUE, status=PENDING, cancel_seq=1, wake_at=0, begins=begins)])
    elif how == "succeeds":
        assert await store.apply([succeed(record, entry(1))]) == [Verdict.APPLIED]
    else:
        await store.change("default", "r1", lambda run, _, now: terminate(run, "", now))

    ended = await again(store, record)
    assert (list(ended.attempts), list(ended.waits)) == ([], [])
    assert await again(store, other) == other
    assert len(await store.history(other.generation.key, 0, 10)) == 1


async def test_a_retry_begins_with_the_journal_up_to_the_outcome_that_ended_it(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    other = await claimed(store, host, "r2", "w2")
    await store.apply([advance(other, entry(0), entry(1))])
    failed = entry(2, failed=True)
    t = advance(record, entry(0), entry(1), failed, change=Change.FAIL, status=RunStatus.FAILED, cancel_seq=0, failure=b"x", ended_by=2)
    await store.apply([t])

    await store.change("default", "r1", lambda run, generation, now: retry(run, generation, Prefix(2), b"s" * 16, now))

    (anew,) = (await claim(store)).records
    assert (anew.run.generation, anew.run.position, anew.run.finished_at) == (2, 2, None)
    copied = await store.history(anew.generation.key, 0, 10)
    assert copied == list(await store.history(record.generation.key, 0, 2))
    assert (await store.generations(record.run.key))[0].failure == b"x"


async def test_a_cancelled_run_that_never_started_is_ended(store: Store, host: MovableHost) -> None:
    await start(store, "r1")
    (await register(store, host)).close()

    await store.change("default", "r1", lambda run, _, now: request_cancel(run, "", now))

    run = await store.run("default", "r1")
    assert run is not None
    assert run.status is RunStatus.CANCELLED
    assert list((await claim(store)).records) == []


async def test_a_parked_run_keeps_its_due_time_through_a_change(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    due = await store.now() + 60 * SECOND
    await store.apply([park(record, wake_at=due)])

    await store.change("default", "r1", lambda run, _, now: None)

    assert (await again(store, record)).run.wake_at == due
