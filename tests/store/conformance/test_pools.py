"""Attempts in pools: queued and deleted with their run's transition, claimed under a lease and fence of their own, told of once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from romulus.core.machine import Change
from romulus.core.pools import NewPoolAttempt, PoolAttempt, PoolBeat, PoolEnd, PoolReport, PoolState, PoolTold
from romulus.core.record import About, Message, Record
from romulus.core.requests import terminate
from romulus.core.transition import NewGeneration, Verdict
from romulus.store.contract import Store
from tests.store.kit import LEASE, PENDING, SECOND, MovableHost, advance, again, claim, claimed, entry, park, register, succeed


def attempt(seq: int = 1, **changes: Any) -> NewPoolAttempt:
    made = NewPoolAttempt(seq, "gpu", "train", "d1", b'{"n":1}', 1, 0, 5 * SECOND, SECOND, b"", 7)
    return replace(made, **changes)


async def queued(store: Store, host: MovableHost, *attempts: NewPoolAttempt) -> Record:
    """Return a parked run with attempts in pools, and worker "g1" that serves them."""
    record = await claimed(store, host)
    await store.apply([park(record, pools=attempts or (attempt(),), pooled=True, armed="", parent=True)])
    (await register(store, host, "g1")).close()
    return await again(store, record)


async def two(store: Store, host: MovableHost) -> tuple[Record, Record]:
    """Return two parked runs with two attempts each, which worker "g1" serves."""
    records = [await claimed(store, host, run_id, f"owner of {run_id}") for run_id in ("r1", "r2")]
    await store.apply([park(record, pools=[attempt(1), attempt(2)], pooled=True) for record in records])
    (await register(store, host, "g1")).close()
    first, second = [await again(store, record) for record in records]
    return first, second


async def take(store: Store, owner: str = "g1", names: tuple[str, ...] = ("gpu",), limit: int = 10, **given: Any) -> list[PoolAttempt]:
    taken = await store.take_pool(owner, "default", names, given.get("steps", ("train",)), limit, LEASE)
    return list(taken.rows)


async def took(store: Store, **given: Any) -> PoolAttempt:
    (row,) = await take(store, **given)
    return row


def report(row: PoolAttempt, end: PoolEnd = PoolEnd.RETURNED, **changes: Any) -> PoolReport:
    made = PoolReport(row.key, row.fence, row.run, "g1", end, b'"done"', json.dumps({"attempt": row.number}))
    return replace(made, **changes)


async def inbox(store: Store, record: Record) -> list[Message]:
    return list((await again(store, record)).inbox)


async def states(store: Store, record: Record) -> list[tuple[int, str, str | None]]:
    return [(row.seq, row.state, row.owner) for row in await store.pooled(record.run.generation_key)]


async def test_an_attempt_is_queued_with_the_transition_and_claimed_with_all_that_its_body_may_ask_for(
    store: Store, host: MovableHost
) -> None:  # fmt: skip
    record = await claimed(store, host)
    assert not record.pooled
    await store.apply([park(record, entry(0), pools=[attempt(heartbeat=b"half")], pooled=True)])
    (await register(store, host, "g1")).close()
    record = await again(store, record)
    assert record.pooled
    assert await states(store, record) == [(1, PoolState.QUEUED, None)]

    row = await took(store)

    assert (row.run_id, row.workflow, row.version, row.number_of_generation) == ("r1", "order", "1", 1)
    assert (row.seq, row.pool, row.step, row.digest, row.arguments, row.number) == (1, "gpu", "train", "d1", b'{"n":1}', 1)
    assert (row.timeout, row.heartbeat_timeout, row.heartbeat, row.seeds) == (5 * SECOND, SECOND, b"half", '[[0,"aa"]]')
    assert row.generation == record.run.generation_key
    assert await states(store, record) == [(1, PoolState.CLAIMED, "g1")]


async def test_a_claim_raises_the_fence_above_the_one_before_and_the_store_clock(store: Store, host: MovableHost) -> None:
    now = await store.now()
    ahead = now + 3_600 * SECOND
    await queued(store, host, attempt(1), attempt(2, fence=ahead))
    first, second = sorted(await take(store), key=lambda row: row.seq)
    assert first.fence >= now
    assert second.fence == ahead + 1


async def test_a_refused_transition_queues_nothing(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    assert await store.apply([advance(record, pools=[attempt()], pooled=True, revision=99)]) == [Verdict.REFUSED]
    assert await states(store, record) == []


async def test_an_attempt_is_claimed_by_one_worker_of_its_pool_that_has_the_step(store: Store, host: MovableHost) -> None:
    await queued(store, host)
    (await register(store, host, "g2")).close()
    assert await take(store, names=("cpu",)) == []
    assert await take(store, steps=("other",)) == []
    assert len(await take(store)) == 1
    assert await take(store, owner="g2") == []


async def test_attempts_are_claimed_when_due_oldest_first_and_up_to_the_limit(store: Store, host: MovableHost) -> None:
    now = await store.now()
    await queued(store, host, attempt(1, due=now - 1), attempt(2, due=now - 2), attempt(3, due=now + 60 * SECOND))
    taken = await store.take_pool("g1", "default", ("gpu",), ("train",), 1, LEASE)
    assert [row.seq for row in taken.rows] == [2]
    assert taken.next_due == now - 1
    taken = await store.take_pool("g1", "default", ("gpu",), ("train",), 9, LEASE)
    assert ([row.seq for row in taken.rows], taken.next_due) == ([1], now + 60 * SECOND)
    taken = await store.take_pool("g1", "default", ("gpu",), ("train",), 9, LEASE)
    assert (list(taken.rows), taken.next_due) == ([], now + 60 * SECOND)
    host.advance(61 * SECOND)
    await store.lose_pool(10)
    (await register(store, host, "g2")).close()
    assert [row.seq for row in await take(store, owner="g2")] == [3]


async def test_a_worker_that_is_marked_dead_claims_nothing(store: Store, host: MovableHost) -> None:
    await queued(store, host)
    await store.mark_dead("g1")
    assert await take(store) == []


async def test_a_report_reaches_the_inbox_and_makes_the_parked_run_due(store: Store, host: MovableHost) -> None:
    record = await queued(store, host)
    row = await took(store)
    assert await store.report_pool([report(row, heartbeat=b"beat")]) == [True]

    (message,) = await inbox(store, record)
    assert (message.about, message.seq, message.failed, message.body) == (About.POOL, 1, False, b'"done"')
    assert PoolTold.of(message.info) == (record.run.generation_key, 1, "returned", row.fence, b"beat".hex())
    assert await states(store, record) == [(1, PoolState.REPORTED, None)]
    assert [found.run.id for found in (await claim(store)).records] == ["r1"]


async def test_a_report_whose_answer_was_lost_is_accepted_again_and_told_of_once(store: Store, host: MovableHost) -> None:
    record = await queued(store, host)
    row = await took(store)
    assert await store.report_pool([report(row)]) == [True]
    assert await store.report_pool([report(row)]) == [True]
    assert len(await inbox(store, record)) == 1
    assert await store.evidence(record.run.key) == []


async def test_a_run_takes_the_message_and_deletes_the_attempt_with_the_outcome(store: Store, host: MovableHost) -> None:
    await queued(store, host)
    await store.report_pool([report(await took(store), PoolEnd.RAISED, body=b"error")])
    (record,) = (await claim(store)).records
    (message,) = record.inbox
    assert message.failed

    again_queued = advance(record, entry(0), taken=[message.key], recalled=[1], pools=[attempt(1, number=2)], pooled=True)
    assert await store.apply([again_queued]) == [Verdict.APPLIED]

    assert [(row.seq, row.number, row.state) for row in await store.pooled(record.run.generation_key)] == [(1, 2, PoolState.QUEUED)]
    assert await inbox(store, record) == []


async def test_the_renewal_of_a_worker_extends_the_leases_of_the_attempts_it_names(store: Store, host: MovableHost) -> None:
    record = await queued(store, host, attempt(1), attempt(2))
    lease = await register(store, host, "g3")
    first, second = sorted(await take(store, owner="g3"), key=lambda row: row.seq)
    host.advance(LEASE - SECOND)
    assert lease.renew([first.key])
    host.advance(LEASE - SECOND)
    assert await store.lose_pool(10) == 1
    assert await states(store, record) == [(1, PoolState.CLAIMED, "g3"), (2, PoolState.REPORTED, None)]
    beats = [PoolBeat(row.key, row.fence) for row in (first, second)]
    assert await store.beat_pool(beats) == [True, False]
    lease.close()


async def test_an_expired_lease_is_told_to_the_run_as_lost_and_the_fence_raised(store: Store, host: MovableHost) -> None:
    record = await queued(store, host, attempt(heartbeat=b"old"))
    row = await took(store)
    await store.beat_pool([PoolBeat(row.key, row.fence, True, b"step 7")])
    host.advance(LEASE + SECOND)

    assert await store.lose_pool(10) == 1

    (message,) = await inbox(store, record)
    told = PoolTold.of(message.info)
    assert (message.failed, message.body, told.number, told.end, told.heartbeat) == (True, b"", 1, PoolEnd.LOST, b"step 7".hex())
    assert told.fence > row.fence
    assert await store.lose_pool(10) == 0


async def test_what_a_dead_workers_attempts_come_to_is_told_at_once(store: Store, host: MovableHost) -> None:
    record = await queued(store, host)
    await took(store)
    await store.mark_dead("g1")
    assert await store.lose_pool(10) == 1
    assert len(await inbox(store, record)) == 1


async def test_attempts_are_given_up_at_most_so_many_at_once(store: Store, host: MovableHost) -> None:
    await queued(store, host, attempt(1), attempt(2), attempt(3))
    await take(store)
    await store.deregister("g1")
    assert [await store.lose_pool(2) for _ in range(3)] == [2, 1, 0]


async def test_a_late_report_changes_nothing_and_is_kept_as_evidence(store: Store, host: MovableHost) -> None:
    record = await queued(store, host)
    row = await took(store)
    host.advance(LEASE + SECOND)
    await store.lose_pool(10)

    assert await store.report_pool([report(row)]) == [False]

    assert [PoolTold.of(message.info).end for message in await inbox(store, record)] == [PoolEnd.LOST]
    (kept,) = await store.evidence(record.run.key)
    assert (kept.kind, kept.owner, kept.fence, json.loads(kept.detail)) == ("late_attempt", "g1", row.fence, {"attempt": 1})


async def test_nobody_reports_under_another_workers_claim(store: Store, host: MovableHost) -> None:
    record = await queued(store, host)
    row = await took(store)
    assert await store.report_pool([report(row, owner="g2"), report(row, fence=row.fence - 1)]) == [False, False]
    assert await inbox(store, record) == []
    assert await states(store, record) == [(1, PoolState.CLAIMED, "g1")]


async def test_a_heartbeat_is_stored_and_kept_where_a_later_one_has_no_details(store: Store, host: MovableHost) -> None:
    record = await queued(store, host)
    row = await took(store)
    assert await store.beat_pool([PoolBeat(row.key, row.fence, True, b"step 7")]) == [True]
    assert await store.beat_pool([PoolBeat(row.key, row.fence, True)]) == [True]
    (standing,) = await store.pooled(record.run.generation_key)
    assert standing.beat_at is not None
    await store.report_pool([report(row)])
    (message,) = await inbox(store, record)
    assert PoolTold.of(message.info).heartbeat == b"step 7".hex()


async def test_the_holder_of_a_deleted_attempt_learns_it_with_its_heartbeat_and_its_report_is_late(store: Store, host: MovableHost) -> None:
    await queued(store, host, attempt(1), attempt(2))
    first, second = sorted(await take(store), key=lambda row: row.seq)
    await store.report_pool([report(second)])
    (record,) = (await claim(store)).records

    await store.apply([advance(record, recalled=[1], pooled=True)])

    assert await store.beat_pool([PoolBeat(first.key, first.fence, True, b"x")]) == [False]
    assert await store.beat_pool([PoolBeat(first.key, first.fence)]) == [False]
    assert await store.report_pool([report(first)]) == [False]
    assert [evidence.kind for evidence in await store.evidence(record.run.key)] == ["late_attempt"]


async def test_a_generation_that_ends_leaves_nothing_in_pools_and_no_messages(store: Store, host: MovableHost) -> None:
    await queued(store, host, attempt(1), attempt(2), attempt(3))
    first, second, _ = sorted(await take(store), key=lambda row: row.seq)
    await store.report_pool([report(first)])
    (record,) = (await claim(store)).records

    await store.apply([succeed(record, pooled=True, parent=True)])

    assert await states(store, record) == []
    assert await inbox(store, record) == []
    assert await store.report_pool([report(second)]) == [False]
    assert await inbox(store, record) == []


async def test_the_next_generation_has_none_of_the_attempts_before(store: Store, host: MovableHost) -> None:
    await queued(store, host, attempt(1), attempt(2))
    first, second = sorted(await take(store), key=lambda row: row.seq)
    await store.report_pool([report(first)])
    (record,) = (await claim(store)).records
    following = NewGeneration("order", "1", b"{}", b"i" * 16, '[[0,"bb"]]')
    continued = advance(record, change=Change.CONTINUE, status=PENDING, cancel_seq=0, wake_at=0, begins=following, pooled=True, parent=True)
    assert await store.apply([continued]) == [Verdict.APPLIED]
    found = await again(store, record)
    assert (found.run.generation, found.pooled, found.inbox) == (2, False, [])
    assert await store.report_pool([report(second)]) == [False]


async def test_terminating_a_run_deletes_its_attempts(store: Store, host: MovableHost) -> None:
    record = await queued(store, host)
    row = await took(store)
    await store.change("default", "r1", lambda run, _, now: terminate(run, "enough", now))
    assert await states(store, record) == []
    assert await store.beat_pool([PoolBeat(row.key, row.fence)]) == [False]


async def test_a_run_that_parks_while_a_report_waits_for_it_is_due_at_once(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    await store.apply([advance(record, pools=[attempt()], pooled=True)])
    (await register(store, host, "g1")).close()
    await store.report_pool([report(await took(store))])
    await store.pulse("w1")  # its owner took the wake, while the park was under way
    await store.apply([park(await again(store, record), pooled=True)])
    assert [found.run.id for found in (await claim(store)).records] == ["r1"]


async def test_a_transition_recalls_the_attempt_it_names_and_no_other(store: Store, host: MovableHost) -> None:
    await two(store, host)
    taken = await take(store)
    rows = {(row.run_id, row.seq): row for row in taken}
    assert sorted(rows) == [("r1", 1), ("r1", 2), ("r2", 1), ("r2", 2)] == sorted((row.run_id, row.seq) for row in taken)
    await store.report_pool([report(rows["r1", 1])])
    (first,) = (await claim(store, "owner of r1")).records

    await store.apply([advance(first, recalled=[1], pooled=True)])

    assert await states(store, first) == [(2, PoolState.CLAIMED, "g1")]
    kept = [rows[each] for each in (("r1", 2), ("r2", 1), ("r2", 2))]
    assert await store.beat_pool([PoolBeat(row.key, row.fence) for row in kept]) == [True] * 3


async def test_a_generation_that_ends_leaves_other_runs_their_attempts_and_messages(store: Store, host: MovableHost) -> None:
    first, second = await two(store, host)
    await store.report_pool([report(row) for row in await take(store) if row.seq == 1])
    (record, _) = sorted((await claim(store, "owner of r1")).records, key=lambda found: found.run.id)

    await store.apply([succeed(record, pooled=True)])

    assert (await states(store, first), await inbox(store, first)) == ([], [])
    assert [(seq, state) for seq, state, _ in await states(store, second)] == [(1, PoolState.REPORTED), (2, PoolState.CLAIMED)]
    assert [message.seq for message in await inbox(store, second)] == [1]


async def test_a_heartbeat_and_a_report_are_of_one_attempt(store: Store, host: MovableHost) -> None:
    first, second = await two(store, host)
    row, *others = sorted(await take(store), key=lambda each: (each.run_id, each.seq))

    beats = [PoolBeat(row.key, row.fence, True, b"step 7"), *(PoolBeat(other.key, other.fence) for other in others)]
    assert await store.beat_pool(beats) == [True] * 4
    standing = [*await store.pooled(first.run.generation_key), *await store.pooled(second.run.generation_key)]
    assert [each.beat_at is not None for each in standing] == [True, False, False, False]
    await store.report_pool([report(row)])

    assert [state for _, state, _ in await states(store, first)] == [PoolState.REPORTED, PoolState.CLAIMED]
    assert [state for _, state, _ in await states(store, second)] == [PoolState.CLAIMED, PoolState.CLAIMED]
    assert ([message.seq for message in await inbox(store, first)], await inbox(store, second)) == ([1], [])
    assert [found.run.id for found in (await claim(store, "owner of r1")).records] == ["r1"]


async def test_a_loss_is_of_one_attempt_and_raises_its_fence_above_every_other_and_the_store_clock(store: Store, host: MovableHost) -> None:
    ahead = await store.now() + 3_600 * SECOND
    record = await queued(store, host, attempt(1), attempt(2, fence=ahead), attempt(3))
    lease = await register(store, host, "g3")
    first, second, third = sorted(await take(store, owner="g3"), key=lambda row: row.seq)
    host.advance(LEASE - SECOND)
    lease.renew([third.key])
    host.advance(2 * SECOND)
    now = await store.now()

    assert await store.lose_pool(10) == 2

    lost = {message.seq: PoolTold.of(message.info).fence for message in await inbox(store, record)}
    assert sorted(lost) == [1, 2]
    assert (lost[1] >= now > first.fence, lost[2]) == (True, second.fence + 1)
    assert (await states(store, record))[2] == (3, PoolState.CLAIMED, "g3")
    lease.close()


async def test_a_claim_that_is_over_is_wanted_by_nobody_and_kept_alive_by_nobody_else(store: Store, host: MovableHost) -> None:
    record = await queued(store, host, attempt(1), attempt(2))
    other = await register(store, host, "g2")
    first, second = sorted(await take(store), key=lambda row: row.seq)
    before = [PoolBeat(first.key, first.fence - 1), PoolBeat(first.key, first.fence - 1, True, b"late")]
    assert [await store.beat_pool([beat]) for beat in before] == [[False], [False]]
    assert [(each.claimed_at is not None, each.beat_at) for each in await store.pooled(record.run.generation_key)] == [(True, None)] * 2
    await store.report_pool([report(first)])
    assert [await store.beat_pool([PoolBeat(first.key, first.fence, *beaten)]) for beaten in ((), (True, b"late"))] == [[False], [False]]

    host.advance(LEASE - SECOND)
    other.renew([second.key])
    host.advance(2 * SECOND)
    assert await store.lose_pool(10) == 1
    other.close()


async def test_an_attempt_is_lost_by_a_claim_alone_and_claimed_in_its_namespace(store: Store, host: MovableHost) -> None:
    record = await queued(store, host)
    assert list((await store.take_pool("g1", "elsewhere", ("gpu",), ("train",), 10, LEASE)).rows) == []
    await store.mark_dead("w1")
    await store.mark_dead("g1")

    assert await store.lose_pool(10) == 0
    assert await states(store, record) == [(1, PoolState.QUEUED, None)]


async def test_the_pools_in_which_attempts_wait_are_listed(store: Store, host: MovableHost) -> None:
    assert list(await store.queued_pools("default")) == []
    since = await store.now()
    waiting = [attempt(3, pool="printer", due=9_000_000_000_000_000), attempt(4, pool="printer", due=9_000_000_000_000_001)]
    await queued(store, host, attempt(1), attempt(2), *waiting)
    assert [(each.pool, each.attempts) for each in await store.queued_pools("default")] == [("gpu", 2), ("printer", 2)]
    assert list(await store.queued_pools("elsewhere")) == []
    (before, printer) = await store.queued_pools("default")
    assert (since <= before.due <= await store.now(), printer.due) == (True, 9_000_000_000_000_000)
    await take(store, limit=2)

    assert [(each.pool, each.attempts) for each in await store.queued_pools("default")] == [("printer", 2)]


async def test_an_attempt_that_its_worker_cannot_read_is_queued_again_as_it_was_and_its_run_hears_nothing(
    store: Store, host: MovableHost
) -> None:
    record = await queued(store, host, attempt(heartbeat=b"half"))
    row = await took(store)
    given = report(row, PoolEnd.UNREAD, heartbeat=b"of another", detail='{"seq":1}')
    now = await store.now()

    assert await store.report_pool([replace(given, owner="g2"), replace(given, fence=row.fence - 1)]) == [False, False]
    assert await states(store, record) == [(1, PoolState.CLAIMED, "g1")]
    assert await store.report_pool([given, given]) == [True, False]  # the second: its answer was lost

    assert (await inbox(store, record), (await again(store, record)).run.revision) == ([], record.run.revision)
    (standing,) = await store.pooled(record.run.generation_key)
    assert (standing.state, standing.owner, standing.number, standing.unread) == (PoolState.QUEUED, None, 1, True)
    assert standing.due is not None
    assert now <= standing.due <= await store.now()
    (kept,) = await store.evidence(record.run.key)
    assert (kept.kind, kept.owner, kept.fence, kept.detail) == ("unread_attempt", "g1", row.fence, '{"seq":1}')
    assert await store.lose_pool(10) == 0
    other = await took(store)
    assert other.fence > row.fence
    assert replace(other, fence=row.fence) == row
    assert not any(each.unread for each in await store.pooled(record.run.generation_key))


async def test_what_workers_cannot_read_is_noted_once_for_each_and_leaves_room_for_late_reports(store: Store, host: MovableHost) -> None:
    record = await queued(store, host)
    row = await took(store)
    await store.report_pool([report(row, PoolEnd.UNREAD, detail="{}")])
    for detail in ["{}", *(json.dumps({"n": n}) for n in range(30))]:
        row = await took(store)
        assert await store.report_pool([report(row, PoolEnd.UNREAD, detail=detail)]) == [True]
    assert len({kept.detail for kept in await store.evidence(record.run.key)}) == len(await store.evidence(record.run.key)) == 20
    assert await store.report_pool([report(row)]) == [False]
    assert [kept.kind for kept in await store.evidence(record.run.key)][20:] == ["late_attempt"]


async def test_attempts_set_aside_are_left_to_others_and_shown_among_those_that_wait(store: Store, host: MovableHost) -> None:
    record = await queued(store, host, attempt(1), attempt(2, due=9_000_000_000_000_000))
    row = await took(store)
    await store.report_pool([report(row, PoolEnd.UNREAD)])

    without = await store.take_pool("g1", "default", ("gpu",), ("train",), 10, LEASE, [row.key])
    assert (list(without.rows), without.next_due) == ([], 9_000_000_000_000_000)
    (waiting,) = await store.queued_pools("default")
    assert (waiting.attempts, waiting.unread, waiting.unread_run) == (2, 1, record.run.id)
    assert [each.key for each in await take(store)] == [row.key]
    (waiting,) = await store.queued_pools("default")
    assert (waiting.attempts, waiting.unread, waiting.unread_run) == (1, 0, None)
