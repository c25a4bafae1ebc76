"""Claims: which runs, in which order, never early, under which fence."""

from __future__ import annotations

from typing import Any

import pytest

from romulus.core.machine import Change, RunStatus
from romulus.core.record import AttemptRow, HoldKind
from romulus.core.requests import request_cancel
from romulus.core.transition import Verdict
from romulus.store.contract import Store
from tests.store.kit import (
    HELD,
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
    free,
    new_run,
    park,
    parked,
    register,
    start,
    succeed,
    wait,
)  # fmt: skip

HOUR = 3600 * SECOND


@pytest.fixture
async def w1(store: Store, host: MovableHost) -> str:
    (await register(store, host, "w1")).close()
    return "w1"


async def ids(store: Store, **changes: Any) -> list[str]:
    return [record.run.id for record in (await claim(store, **changes)).records]


async def test_a_claim_takes_the_run_under_a_fence_of_the_stores_clock(store: Store, w1: str) -> None:
    await start(store, "r1", timeout=HOUR)
    before = await store.now()

    (record,) = (await claim(store)).records

    run = record.run
    assert (run.owner, run.status, run.wake_at, run.revision) == ("w1", RUNNING, None, 0)
    assert run.fence >= before
    assert run.started_at is not None
    assert run.deadline == run.started_at + HOUR
    assert record.generation.started_at == run.started_at


async def test_a_claimed_run_is_claimed_by_nobody_else(store: Store, w1: str) -> None:
    await start(store, "r1")
    await claim(store)

    assert await ids(store) == []


@pytest.mark.parametrize("priority", [0, 7, -7])
async def test_a_run_is_never_claimed_before_it_is_due(store: Store, host: MovableHost, w1: str, priority: int) -> None:
    await start(store, "r1", status=RunStatus.SCHEDULED, delay=HOUR, priority=priority)
    run = await store.run("default", "r1")
    assert run is not None

    claims = await claim(store)

    assert (list(claims.records), claims.next_due) == ([], run.wake_at)
    host.advance(HOUR - SECOND)
    assert await ids(store) == []
    host.advance(2 * SECOND)
    assert await ids(store) == ["r1"]


async def test_the_next_due_time_is_that_of_runs_it_serves(store: Store, w1: str) -> None:
    await start(store, "mine", delay=2 * HOUR)
    await start(store, "another version's", delay=HOUR, version="2")

    mine = await store.run("default", "mine")
    assert mine is not None
    assert (await claim(store)).next_due == mine.wake_at


async def test_due_runs_left_over_are_told_of(store: Store, w1: str) -> None:
    await start(store, "r1", "r2")

    claims = await claim(store, limit=1)

    assert claims.next_due is not None
    assert claims.next_due <= await store.now()


async def test_only_workflows_and_versions_that_are_served_are_claimed(store: Store, w1: str) -> None:
    await start(store, "r1", workflow="other")
    await start(store, "r2", version="2")
    await start(store, "r3", namespace="elsewhere")

    assert await ids(store) == []


async def test_the_oldest_due_run_goes_first(store: Store, host: MovableHost, w1: str) -> None:
    await start(store, "late", delay=20 * SECOND)
    await start(store, "early", delay=10 * SECOND)
    host.advance(HOUR)

    assert await ids(store, limit=1) == ["early"]
    assert await ids(store, limit=1) == ["late"]


async def test_workflows_are_claimed_in_turn(store: Store, w1: str) -> None:
    await start(store, *(f"a{n}" for n in range(50)), workflow="a")
    await start(store, *(f"b{n}" for n in range(2)), workflow="b")

    claimed = await ids(store, serves=[("a", "1", "d"), ("b", "1", "d")], limit=6)

    assert sorted(claimed) == ["a0", "a1", "a2", "a3", "b0", "b1"]


async def test_ten_thousand_runs_due_at_once_keep_no_other_workflow_waiting(store: Store, w1: str) -> None:
    await store.start([new_run(f"r{n}") for n in range(10_000)])
    await start(store, "other", workflow="invoice")
    serves = [("order", "1", "3.11:here"), ("invoice", "1", "3.11:here")]

    assert "other" in [record.run.id for record in (await claim(store, w1, serves=serves, limit=2)).records]
    assert len((await claim(store, w1, serves=serves, limit=500)).records) == 500


async def test_a_level_of_priority_is_worth_ten_seconds(store: Store, host: MovableHost, w1: str) -> None:
    await start(store, "plain")
    host.advance(5 * SECOND)
    await start(store, "urgent", priority=1)
    host.advance(6 * SECOND)
    await start(store, "urgent but later", priority=1)
    await start(store, "least", priority=-1)

    assert [await ids(store, limit=1) for _ in range(4)] == [["urgent"], ["plain"], ["urgent but later"], ["least"]]


async def test_priority_counts_for_a_run_that_became_due(store: Store, host: MovableHost, w1: str) -> None:
    await start(store, "plain", delay=10 * SECOND)
    await start(store, "urgent", delay=15 * SECOND, priority=1)
    host.advance(HOUR)

    assert await ids(store, limit=1) == ["urgent"]


async def test_a_run_of_low_priority_is_claimed_at_once_when_nothing_else_is_there(store: Store, w1: str) -> None:
    await start(store, "least", priority=-9)

    assert await ids(store) == ["least"]


async def test_a_parked_run_is_claimed_when_it_wakes(store: Store, host: MovableHost, w1: str) -> None:
    record = await claimed(store, host, owner="w2")
    await store.apply([park(record, wake_at=await store.now() + HOUR)])

    assert await ids(store) == []
    assert (await again(store, record)).run.status is WAITING
    host.advance(HOUR + SECOND)
    (woken,) = (await claim(store)).records
    assert woken.run.fence > record.run.fence
    assert woken.run.revision == 1


async def test_a_run_parked_on_waits_alone_is_not_due(store: Store, host: MovableHost, w1: str) -> None:
    record = await claimed(store, host, owner="w2")
    await store.apply([park(record)])
    host.advance(1000 * HOUR)
    (await register(store, host, "w3")).close()

    claims = await claim(store, "w3")
    assert (list(claims.records), claims.next_due) == ([], None)


async def test_a_freed_run_is_due_at_once_and_keeps_its_start(store: Store, host: MovableHost, w1: str) -> None:
    record = await claimed(store, host, owner="w2")
    await store.apply([free(record)])

    (anew,) = (await claim(store)).records
    assert anew.run.started_at == record.run.started_at
    assert anew.run.deadline == record.run.deadline


async def test_a_run_with_this_code_excluded_is_left_to_others_and_not_told_of(store: Store, host: MovableHost, w1: str) -> None:
    record = await claimed(store, host, owner="w2")
    await store.apply([free(record, excluded="3.11:old 3.11:here")])

    claims = await claim(store)
    assert (list(claims.records), claims.next_due) == ([], None)
    assert await ids(store, serves=[("order", "1", "3.11:her")]) == ["r1"]


async def test_a_run_advanced_by_code_that_others_have_waits_a_little_for_them(store: Store, host: MovableHost, w1: str) -> None:
    record = await claimed(store, host, owner="w2")
    await store.apply([advance(record, entry(0), digest="3.11:theirs")])
    await store.apply([free(await again(store, record), digest="3.11:theirs")])
    due = (await again(store, record)).run.wake_at
    assert due is not None

    claims = await claim(store, others=["3.11:theirs"], prefer=3 * SECOND)
    assert (list(claims.records), claims.next_due) == ([], due + 3 * SECOND)
    host.advance(4 * SECOND)
    assert await ids(store, others=["3.11:theirs"], prefer=3 * SECOND) == ["r1"]


# A claim that finds nothing due ends with its look. In the following ones it takes a run beside those it must leave.


async def test_a_claim_leaves_a_run_with_its_code_excluded_beside_one_that_it_takes(store: Store, host: MovableHost, w1: str) -> None:
    record = await claimed(store, host, "excludes", "w2")
    await store.apply([free(record, excluded="3.11:here")])
    await start(store, "fits")

    assert await ids(store) == ["fits"]


@pytest.mark.parametrize("priority", [0, 1])
async def test_a_claim_leaves_a_run_to_code_that_others_have_beside_one_that_it_takes(
    store: Store, host: MovableHost, w1: str, priority: int
) -> None:
    (await register(store, host, "w2")).close()
    await start(store, "theirs", priority=priority)
    (record,) = (await claim(store, "w2")).records
    await store.apply([free(record, digest="3.11:theirs")])
    await start(store, "fresh")

    assert await ids(store, others=["3.11:theirs"], prefer=3 * SECOND) == ["fresh"]
    host.advance(4 * SECOND)
    assert await ids(store, others=["3.11:theirs"], prefer=3 * SECOND) == ["theirs"]


async def test_a_claim_of_a_run_alone_takes_none_that_excludes_its_code_or_has_lost_less(store: Store, host: MovableHost) -> None:
    for losses, run_ids in ((3, ["bad", "excludes"]), (1, ["unlucky"])):
        await start(store, *run_ids)
        for n in range(losses):
            owner = f"victim {n} of {run_ids[-1]}"
            (await register(store, host, owner)).close()
            records = (await claim(store, owner, serves=[("order", "1", "3.11:any")])).records
            assert [record.run.id for record in records] == run_ids
            if run_ids[-1] == "excludes":
                await store.apply([advance(records[-1], excluded="3.11:here")])
            await store.mark_dead(owner)
            await store.sweep(10, PENDING)
    (await register(store, host)).close()
    host.advance(HOUR)

    assert await ids(store, alone=True) == ["bad"]


async def test_a_worker_is_told_of_wakes_of_its_own_runs_only(store: Store, host: MovableHost) -> None:
    await claimed(store, host, "mine", "w1")
    await claimed(store, host, "other", "w2")
    await store.change("default", "other", lambda run, _, now: request_cancel(run, "", now))

    assert not (await claim(store, "w1")).wakes
    assert (await claim(store, "w2")).wakes


async def test_a_claim_that_wakes_parked_runs_keeps_the_wakes_of_runs_that_others_own(store: Store, host: MovableHost, w1: str) -> None:
    await parked(store, host, "parked", wait())
    await claimed(store, host, "mine", "w2")
    await store.change("default", "mine", lambda run, _, now: request_cancel(run, "", now))
    await store.send([event("e1")])
    await store.match(100)

    assert await ids(store) == ["parked"]
    assert [record.run.id for record in await store.pulse("w2")] == ["mine"]
    assert (await store.pulse("w1"), await store.pulse("w2")) == ([], [])  # each is told once


async def test_a_run_parks_whatever_has_come_for_others(store: Store, host: MovableHost, w1: str) -> None:
    other = await claimed(store, host, "other", "w2")
    await store.apply([advance(other, opens=[wait()])])
    await store.send([event("e1")])
    await store.match(100)
    record = await claimed(store, host, "r1", "w3")

    await store.apply([park(record)])

    assert (await again(store, record)).run.wake_at is None
    assert await ids(store) == []


async def test_runs_that_lost_claims_too_often_are_claimed_alone_only(store: Store, host: MovableHost) -> None:
    await start(store, "bad")
    for n in range(3):
        (await register(store, host, f"victim {n}")).close()
        await claim(store, f"victim {n}")
        await store.mark_dead(f"victim {n}")
        await store.sweep(10, PENDING)
    await start(store, "good")
    (await register(store, host)).close()
    host.advance(HOUR)  # past the pause of a run that is lost so often

    assert await ids(store) == ["good"]
    (record,) = (await claim(store, alone=True, limit=1)).records
    assert (record.run.id, record.run.losses) == ("bad", 3)


async def test_a_worker_marked_dead_claims_nothing(store: Store, w1: str) -> None:
    await start(store, "r1")
    await store.mark_dead("w1")

    assert await ids(store) == []


async def test_a_held_or_ended_run_is_not_claimed(store: Store, host: MovableHost, w1: str) -> None:
    held, ended = await claimed(store, host, "r1", "w2"), await claimed(store, host, "r2", "w3")
    await store.apply([advance(held, change=Change.HOLD, status=HELD, hold=(HoldKind.CODE, "why")), succeed(ended)])
    host.advance(HOUR)
    (await register(store, host, "w4")).close()

    assert await ids(store, owner="w4") == []


async def test_runs_held_for_their_code_are_tried_again_by_code_they_have_not_excluded(store: Store, host: MovableHost, w1: str) -> None:
    for n, (kind, excluded) in enumerate([(HoldKind.CODE, "3.11:old"), (HoldKind.CODE, "3.11:new"), (HoldKind.DEADLOCK, "")]):
        record = await claimed(store, host, f"r{n}", f"owner {n}")
        await store.apply([advance(record, change=Change.HOLD, status=HELD, hold=(kind, "why"), excluded=excluded)])

    assert await store.reopen_held("default", [("order", "1", "3.11:new"), ("order", "2", "3.11:new")], PENDING) == 1

    (record,) = (await claim(store)).records
    assert (record.run.id, record.run.hold_kind, record.run.hold_reason) == ("r0", "", "")


async def test_a_run_of_any_priority_that_was_held_for_its_code_is_tried_at_once(store: Store, host: MovableHost, w1: str) -> None:
    for priority in (-3, 0, 3):
        await start(store, f"of {priority}", priority=priority)
    held = [advance(each, change=Change.HOLD, status=HELD, hold=(HoldKind.CODE, "why")) for each in (await claim(store)).records]
    assert await store.apply(held) == [Verdict.APPLIED] * 3

    assert await store.reopen_held("default", [("order", "1", "3.11:new")], PENDING) == 3

    assert [record.run.priority for record in (await claim(store)).records] == [3, 0, -3]


@pytest.mark.parametrize("other", [{"namespace": "elsewhere"}, {"workflow": "refund"}, {"version": "2"}])
async def test_runs_held_for_their_code_wait_for_their_own_workflow_version_and_namespace(
    store: Store, host: MovableHost, w1: str, other: dict[str, str]
) -> None:
    its = {"namespace": "default", "workflow": "order", "version": "1"} | other
    serves = [(its["workflow"], its["version"], "3.11:here")]
    await start(store, "theirs", **other)
    (await register(store, host, "w2", namespace=its["namespace"])).close()
    (theirs,) = (await claim(store, "w2", namespace=its["namespace"], serves=serves)).records
    ours = await claimed(store, host, "ours", "w3")
    for record in (theirs, ours):
        await store.apply([advance(record, change=Change.HOLD, status=HELD, hold=(HoldKind.CODE, "why"))])

    assert await store.reopen_held("default", [("order", "1", "3.11:new")], PENDING) == 1
    assert ((await again(store, theirs)).run.status, (await again(store, ours)).run.status) == (HELD, PENDING)


async def test_a_cancel_of_a_parked_run_makes_it_due(store: Store, host: MovableHost, w1: str) -> None:
    record = await claimed(store, host, owner="w2")
    await store.apply([park(record)])

    await store.change("default", "r1", lambda run, _, now: request_cancel(run, "", now))

    (anew,) = (await claim(store)).records
    assert anew.run.cancel_seq == 1


async def test_a_claim_comes_with_attempts_and_waits(store: Store, host: MovableHost, w1: str) -> None:
    row = AttemptRow(4, "aa", 2, 1, 1, 9, b"\x00boom", b"beat", "charge")
    record = await claimed(store, host, owner="w2")
    await store.apply([park(record, attempts=[row], opens=[wait(7)], wake_at=0)])

    (anew,) = (await claim(store)).records
    assert list(anew.attempts) == [row]
    assert [(w.seq, w.name, w.deposit) for w in anew.waits] == [(7, "paid", None)]
    assert await store.apply([advance(anew, entry(0), settled=[4])])
    assert (await again(store, anew)).attempts == []


async def test_an_attempt_comes_back_under_the_name_it_was_last_written_with(store: Store, host: MovableHost, w1: str) -> None:
    record = await claimed(store, host, owner="w2")
    rows = [AttemptRow(seq, "aa", 1, 1, 0, 9, b"boom", name=name) for seq, name in ((3, "pack"), (4, "ship"), (5, ""))]
    assert await store.apply([advance(record, attempts=rows)]) == [Verdict.APPLIED]
    record = await again(store, record)
    assert [(row.seq, row.name) for row in record.attempts] == [(3, "pack"), (4, "ship"), (5, "")]

    second = AttemptRow(5, "aa", 2, 2, 0, 9, b"boom", name="bill")
    assert await store.apply([park(record, entry(0), settled=[3], attempts=[second], wake_at=0)]) == [Verdict.APPLIED]

    (anew,) = (await claim(store)).records
    assert [(row.seq, row.number, row.name) for row in anew.attempts] == [(4, 1, "ship"), (5, 2, "bill")]


async def test_a_worker_is_told_what_it_owns_and_nothing_else(store: Store, host: MovableHost) -> None:
    mine, other = await claimed(store, host, "mine", "w1"), await claimed(store, host, "other", "w2")
    await start(store, "nobody's")

    assert await store.owned("w1") == [(mine.run.key, mine.run.fence, "default", "mine")]
    assert await store.owned("w2") == [(other.run.key, other.run.fence, "default", "other")]
    await store.apply([free(mine)])
    assert await store.owned("w1") == []
