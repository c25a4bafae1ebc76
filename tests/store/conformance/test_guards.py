"""Each guard of a transition, and what becomes of one that is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from romulus.core.record import AttemptRow
from romulus.core.requests import request_cancel
from romulus.core.transition import Transition, Verdict
from romulus.store.contract import Evidence, Store
from tests.store.kit import PENDING, SECOND, MovableHost, advance, again, claim, claimed, entry, free, park, register, start, succeed

REFUSED, APPLIED = Verdict.REFUSED, Verdict.APPLIED
STALE: dict[str, Callable[[Transition], Transition]] = {
    "owner": lambda t: replace(t, owner="w2"),
    "fence": lambda t: replace(t, fence=t.fence - 1),
    "newer fence": lambda t: replace(t, fence=t.fence + 1),
    "revision": lambda t: replace(t, revision=t.revision + 1),
    "cancel_seq": lambda t: replace(t, cancel_seq=1),
    "generation": lambda t: replace(t, generation=t.generation + 1),
    "run": lambda t: replace(t, run=t.run + 1),
}


@pytest.mark.parametrize("stale", STALE)
async def test_a_transition_with_a_stale_guard_writes_nothing(store: Store, host: MovableHost, stale: str) -> None:
    record = await claimed(store, host)

    verdicts = await store.apply([STALE[stale](advance(record, entry(0)))])

    assert verdicts == [REFUSED]
    assert (await again(store, record)).run == record.run
    assert await store.history(record.generation.key, 0, 10) == []


async def test_a_transition_whose_guards_hold_is_written_whole(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)

    assert await store.apply([advance(record, entry(0), armed='[[1,1,"aa"]]', cancel_seq=0)]) == [APPLIED]

    run = (await again(store, record)).run
    assert (run.position, run.revision, run.armed, run.digest, run.owner) == (1, 1, '[[1,1,"aa"]]', "3.11:here", "w1")
    (stored,) = await store.history(record.generation.key, 0, 10)
    assert stored == entry(0, fence=record.run.fence, transition=run.last_transition)


async def test_a_finish_that_overlooks_a_cancel_is_refused(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    await store.change("default", "r1", lambda run, _, now: request_cancel(run, "no longer wanted", now))

    assert await store.apply([succeed(record)]) == [REFUSED]
    assert await store.apply([advance(record, entry(0))]) == [APPLIED]


async def test_a_timer_does_not_fire_before_the_stores_clock_says_so(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    due = await store.now() + 60 * SECOND
    fire = advance(record, entry(0), not_before=due)

    assert await store.apply([fire]) == [REFUSED]
    host.advance(61 * SECOND)
    assert await store.apply([fire]) == [APPLIED]


async def test_a_refused_transition_does_not_fail_its_neighbours(store: Store, host: MovableHost) -> None:
    (await register(store, host)).close()
    await start(store, *(f"r{n}" for n in range(20)))
    records = (await claim(store)).records
    batch = [advance(record, entry(0)) for record in records]
    batch[3] = replace(batch[3], fence=1)
    batch[11] = replace(batch[11], revision=9)
    batch[12] = replace(batch[12], not_before=await store.now() + 60 * SECOND)

    verdicts = await store.apply(batch)

    assert [n for n, verdict in enumerate(verdicts) if verdict is REFUSED] == [3, 11, 12]
    positions = [(await again(store, record)).run.position for record in records]
    assert positions == [0 if n in (3, 11, 12) else 1 for n in range(20)]


async def test_two_transitions_of_one_run_in_a_batch_are_each_guarded(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    first = advance(record, entry(0))
    second = replace(advance(record, entry(1)), revision=1, position=2)

    assert await store.apply([first, second]) == [APPLIED, APPLIED]
    assert (await again(store, record)).run.revision == 2


async def test_a_late_transition_is_kept_as_evidence(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    late = replace(advance(record, entry(0)), fence=5)

    await store.apply([late])

    (kept,) = await store.evidence(record.run.key)
    assert (kept.kind, kept.owner, kept.fence, json.loads(kept.detail)["transition"]) == ("late_transition", "w1", 5, late.id)


async def test_evidence_is_kept_up_to_a_limit(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    for n in range(130):
        await store.keep_evidence(record.run.key, Evidence(n, "late_attempt", "w1", 1, "{}"))

    assert [e.at for e in await store.evidence(record.run.key)] == list(range(100))


async def test_the_same_transition_again_counts_as_applied_and_writes_nothing(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    t = advance(record, entry(0))
    await store.apply([t])
    before = await again(store, record)

    assert await store.apply([t]) == [APPLIED]
    assert await again(store, record) == before
    assert await store.evidence(record.run.key) == []


async def test_an_arming_without_entries_is_recognised_while_it_is_the_last(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    t = advance(record, armed='[[0,1,"aa"]]')
    await store.apply([t])

    assert await store.apply([t]) == [APPLIED]
    assert (await again(store, record)).run.revision == 1


async def test_a_transition_is_recognised_in_the_journal_after_others_followed(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    t = advance(record, entry(0))
    await store.apply([t])
    await store.apply([free(await again(store, record))])
    await claim(store)

    assert await store.apply([t]) == [APPLIED]


async def test_an_old_arming_without_entries_is_not_taken_for_applied(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    t = advance(record)
    await store.apply([t])
    await store.apply([advance(await again(store, record), entry(0))])

    assert await store.apply([t]) == [REFUSED]


@pytest.mark.parametrize("make", [advance, park, succeed, free])
async def test_a_claim_that_was_taken_over_cannot_write(store: Store, host: MovableHost, make: Callable[..., Any]) -> None:
    record = await claimed(store, host)
    await store.mark_dead("w1")
    await store.sweep(10, record.run.status)
    stale = make(record)

    assert await store.apply([stale]) == [REFUSED]


async def test_evidence_of_one_run_takes_no_room_from_another(store: Store, host: MovableHost) -> None:
    full, other = await start(store, "r1", "r2")
    for _ in range(101):
        await store.keep_evidence(full, Evidence(1, "late_transition", "w1", 1, "{}"))
    await store.keep_evidence(other, Evidence(1, "late_transition", "w1", 1, "{}"))
    assert [len(await store.evidence(run)) for run in (full, other)] == [100, 1]


async def test_what_a_transition_settles_and_sets_is_its_own_runs(store: Store, host: MovableHost) -> None:
    one, two = await claimed(store, host, "r1", "w1"), await claimed(store, host, "r2", "w2")
    rows = [AttemptRow(seq, "aa", 1, 1, 0, 9, b"boom", b"") for seq in (4, 5)]
    for record in (one, two):
        await store.apply([advance(record, attempts=rows, attributes='{"run":"its"}')])
    one, two = await again(store, one), await again(store, two)

    assert await store.apply([advance(one, entry(0), settled=[4], attributes='{"run":"one"}')]) == [APPLIED]

    after = await again(store, one), await again(store, two)
    assert [[row.seq for row in record.attempts] for record in after] == [[5], [4, 5]]
    assert [record.run.attributes for record in after] == ['{"run":"one"}', '{"run":"its"}']


async def test_reclaiming_takes_a_new_fence_and_voids_the_old_one(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)

    anew = await store.reclaim(record.run.key, "w1", record.run.fence)

    assert anew is not None
    assert anew.run.fence > record.run.fence
    assert await store.apply([advance(record, entry(0))]) == [REFUSED]
    assert await store.apply([advance(anew, entry(0))]) == [APPLIED]


async def test_reclaiming_a_run_touches_no_other_of_the_same_claim(store: Store, host: MovableHost) -> None:
    (await register(store, host)).close()
    await start(store, "r1", "r2")
    first, second = (await claim(store)).records
    assert first.run.fence == second.run.fence
    anew = await store.reclaim(first.run.key, "w1", first.run.fence)
    assert anew is not None
    assert anew.run.id == "r1"
    assert await store.apply([advance(second, entry(0))]) == [APPLIED]


async def test_reclaiming_raises_the_fence_above_the_one_before_and_the_store_clock(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    host.advance(SECOND)
    before = await store.now()
    later = await store.reclaim(record.run.key, "w1", record.run.fence)
    assert later is not None
    assert later.run.fence >= before
    host.advance(-50 * 3600 * SECOND)  # by more than a day: it is believed
    earlier = await store.reclaim(record.run.key, "w1", later.run.fence)
    assert earlier is not None
    assert earlier.run.fence == later.run.fence + 1


async def test_only_the_owner_can_reclaim(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)

    assert await store.reclaim(record.run.key, "w2", record.run.fence) is None
    assert (await again(store, record)).run.fence == record.run.fence


async def test_an_earlier_claim_of_the_same_owner_cannot_be_reclaimed(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    anew = await store.reclaim(record.run.key, "w1", record.run.fence)
    assert anew is not None

    assert await store.reclaim(record.run.key, "w1", record.run.fence) is None
    assert (await again(store, record)).run.fence == anew.run.fence


async def test_progress_forgets_lost_claims_and_an_arming_alone_does_not(store: Store, host: MovableHost) -> None:
    await claimed(store, host)
    await store.mark_dead("w1")
    await store.sweep(10, PENDING)
    (await register(store, host, "w2")).close()
    (record,) = (await claim(store, "w2")).records

    await store.apply([advance(record)])
    assert (await again(store, record)).run.losses == 1
    await store.apply([advance(await again(store, record), entry(0))])
    assert (await again(store, record)).run.losses == 0
