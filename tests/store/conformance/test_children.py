"""Children: created by their parent's transition, told of in its inbox, closed with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from romulus.core.machine import Change, RunStatus
from romulus.core.operations import NewIntent
from romulus.core.record import Message, Record, Run, Taken
from romulus.core.requests import Prefix, ask_child, request_cancel, retry, terminate
from romulus.core.transition import Attach, CloseChild, NewChild, NewGeneration, Transition, Verdict
from romulus.store.contract import Store
from tests.store.conformance.test_operations import intent
from tests.store.kit import SECOND, MovableHost, advance, again, claim, claimed, entry, new_run, park, succeed

ASK = partial(ask_child, lambda: b"seed" * 4)
SERVES = [("order", "1", "3.11:here"), ("item", "1", "3.11:here")]


def child(seq: int, run_id: str | None = None, on_close: str = "cancel", *, tell: bool = False, **changes: Any) -> NewChild:
    run = new_run(run_id or f"r1~{seq}", workflow="item", depth=1, **changes)
    return NewChild(run, seq, on_close, tell)


async def parent_of(store: Store, host: MovableHost, *children: NewChild) -> Record:
    """A run that keeps its owner and has started *children*."""
    record = await claimed(store, host)
    await store.apply([advance(record, children=children, parent=True)])
    return await again(store, record)


async def two_families(store: Store, host: MovableHost) -> tuple[Record, Record]:
    """Two runs, each with an owner and two children."""
    parents = [await claimed(store, host, run_id, f"owner of {run_id}") for run_id in ("r1", "r2")]
    started = [advance(p, children=[child(n, f"{p.run.id}~{n}") for n in (1, 2)], parent=True) for p in parents]
    assert await store.apply(started) == [Verdict.APPLIED] * 2
    first, second = [await again(store, parent) for parent in parents]
    return first, second


async def claimed_child(store: Store, run_id: str = "r1~1") -> Record:
    claims = await claim(store, "w1", serves=SERVES[1:], limit=1000)
    return next(record for record in claims.records if record.run.id == run_id)


def ended(record: Record, *, parent: bool = False) -> Transition:
    return succeed(record, entry(record.run.position), child=record.run.depth > 0, parent=parent)


def continued(record: Record, begins: NewGeneration) -> Transition:
    return advance(record, change=Change.CONTINUE, status=RunStatus.PENDING, cancel_seq=0, wake_at=0, begins=begins, parent=True)


def told(messages: Sequence[Message]) -> list[tuple[str, int, bool, bytes, str]]:
    return [message[1:] for message in messages]


async def row(store: Store, run_id: str) -> Run:
    run = await store.run("default", run_id)
    assert run is not None
    return run


async def test_children_are_created_with_their_parents_transition(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    refused = advance(record, children=[child(1)], fence=record.run.fence - 1)
    delayed = child(2, delay=5 * SECOND, wake_at=0, status=RunStatus.SCHEDULED)

    assert await store.apply([refused]) == [Verdict.REFUSED]
    assert await store.run("default", "r1~1") is None
    assert not (await again(store, record)).parent
    await store.apply([advance(record, children=[child(1), delayed], parent=True)])
    assert (await row(store, "r1~1")).status == RunStatus.PENDING
    assert (await row(store, "r1~1")).depth == 1
    assert (await row(store, "r1~2")).wake_at is not None
    assert (await again(store, record)).parent
    listed = await store.children(record.generation.key)
    assert [tuple(each) for each in listed] == [(1, "r1~1", "pending", "cancel"), (2, "r1~2", "scheduled", "cancel")]


async def test_the_outcome_of_a_child_is_in_its_parents_inbox_and_wakes_it(store: Store, host: MovableHost) -> None:
    record = await parent_of(store, host, child(1), child(2))
    await store.apply([park(record)])
    await store.apply([ended(await claimed_child(store))])

    (woken,) = (await claim(store)).records
    assert told(woken.inbox) == [("child", 1, False, b'"done"', '["r1~1","succeeded"]')]


async def test_a_run_with_an_owner_is_told_by_its_pulse(store: Store, host: MovableHost) -> None:
    record = await parent_of(store, host, child(1))
    failed = ended(await claimed_child(store))
    failed.status, failed.change, failed.result, failed.failure = RunStatus.FAILED, Change.FAIL, None, b"why"
    await store.apply([failed])

    (woken,) = await store.pulse("w1")
    assert woken.run.key == record.run.key
    assert told(woken.inbox) == [("child", 1, True, b"why", '["r1~1","failed"]')]


async def test_a_message_is_taken_once_with_the_transition_that_records_it(store: Store, host: MovableHost) -> None:
    record = await parent_of(store, host, child(1))
    await store.apply([ended(await claimed_child(store))])
    record = await again(store, record)
    key = record.inbox[0].key

    assert await store.apply([advance(record, entry(0), taken=[key, key + 1])]) == [Verdict.REFUSED]
    assert (await again(store, record)).run.position == 0
    assert await store.apply([advance(record, entry(0), taken=[key])]) == [Verdict.APPLIED]
    record = await again(store, record)
    assert record.inbox == []
    assert await store.apply([advance(record, entry(1), taken=[key])]) == [Verdict.REFUSED]


async def test_a_run_that_parks_while_its_inbox_holds_something_is_due_at_once(store: Store, host: MovableHost) -> None:
    record = await parent_of(store, host, child(1))
    await store.apply([ended(await claimed_child(store))])
    await store.pulse("w1")
    await store.apply([park(record)])

    assert [each.run.id for each in (await claim(store)).records] == ["r1"]


async def test_messages_come_in_order_and_a_bounded_number_at_once(store: Store, host: MovableHost) -> None:
    record = await parent_of(store, host, *(child(n) for n in range(1, 521)))
    claims = await claim(store, "w1", serves=SERVES[1:], limit=1000)
    await store.apply([ended(each) for each in claims.records])

    inbox = (await again(store, record)).inbox
    assert len(inbox) == 500
    assert [message.key for message in inbox] == sorted(message.key for message in inbox)


async def test_a_taken_id_creates_nothing_and_tells_the_parent_who_has_it(store: Store, host: MovableHost) -> None:
    await store.start([new_run("taken", workflow="other", input_digest=b"\x01" * 16)])
    record = await parent_of(store, host, child(1, "taken"), child(2, "free", tell=True), child(3, "free"))

    (woken,) = await store.pulse("w1")
    conflicts = {m.seq: Taken(*json.loads(m.info)) for m in woken.inbox if m.about == "conflict"}
    assert [(m.about, m.seq, m.info) for m in woken.inbox if m.about == "started"] == [("started", 2, "free")]
    assert sorted(conflicts) == [1, 3]
    taken = await row(store, "taken")
    assert conflicts[1]._replace(input_digest=conflicts[1].input_digest.lower()) == Taken(
        "taken", taken.key, False, "other", '[[0,"aa"]]', "01" * 16, "pending"
    )
    assert not conflicts[3].own
    assert [each.seq for each in await store.children(record.generation.key)] == [2]


async def test_a_child_of_an_earlier_generation_is_attached_and_one_that_has_ended_told_of(store: Store, host: MovableHost) -> None:
    record = await parent_of(store, host, child(1, "kept", "abandon"), child(2, "over", "abandon"))
    begins = NewGeneration("order", "1", b"{}", b"i" * 16, '[[0,"bb"]]')
    await store.apply([continued(record, begins)])
    await store.apply([ended(await claimed_child(store, "over"))])
    (second,) = (await claim(store)).records
    assert (second.inbox, second.parent) == ([], False)
    await store.apply([advance(second, children=[child(1, "kept"), child(2, "over")], parent=True)])
    second = await again(store, second)
    taken = [Taken(*json.loads(message.info)) for message in second.inbox]
    assert [each.own for each in taken] == [True, True]

    await store.apply(
        [advance(second, taken=[m.key for m in second.inbox], attaches=[Attach(n, t.key, "cancel") for n, t in enumerate(taken, 5)])]
    )
    second = await again(store, second)
    assert told(second.inbox) == [("child", 6, False, b'"done"', '["over","succeeded"]')]
    assert [(each.seq, each.run_id, each.on_close) for each in await store.children(second.generation.key)] == [
        (5, "kept", "cancel"), (6, "over", "cancel"),
    ]  # fmt: skip


async def test_a_child_that_ends_in_the_commit_that_attaches_it_is_told_of_once_with_its_outcome(store: Store, host: MovableHost) -> None:
    record = await parent_of(store, host, child(1, "kept", "abandon"))
    begins = NewGeneration("order", "1", b"{}", b"i" * 16, '[[0,"bb"]]')
    await store.apply([continued(record, begins)])
    (second,) = (await claim(store)).records
    kept = await claimed_child(store, "kept")

    await store.apply([advance(second, attaches=[Attach(4, kept.run.key, "cancel")], parent=True), ended(kept)])
    assert told((await again(store, second)).inbox) == [("child", 4, False, b'"done"', '["kept","succeeded"]')]


async def test_a_child_that_ends_in_the_commit_its_parent_goes_on_with_is_not_told_to_the_next_generation(
    store: Store, host: MovableHost
) -> None:
    record = await parent_of(store, host, child(1))
    begins = NewGeneration("order", "1", b"{}", b"i" * 16, '[[0,"bb"]]')
    await store.apply([ended(await claimed_child(store)), continued(record, begins)])

    assert (await again(store, record)).inbox == []


async def test_a_child_that_goes_on_in_another_generation_has_not_ended(store: Store, host: MovableHost) -> None:
    record = await parent_of(store, host, child(1))
    begins = NewGeneration("item", "1", b"{}", b"i" * 16, '[[0,"bb"]]')
    assert await store.apply([replace(continued(await claimed_child(store), begins), child=True)]) == [Verdict.APPLIED]
    assert (await again(store, record)).inbox == []

    await store.apply([ended(await claimed_child(store))])
    assert told((await again(store, record)).inbox) == [("child", 1, False, b'"done"', '["r1~1","succeeded"]')]


async def test_a_parent_that_has_ended_or_gone_on_is_told_nothing(store: Store, host: MovableHost) -> None:
    record = await parent_of(store, host, child(1, on_close="abandon"))
    await store.apply([ended(record, parent=True)])
    await store.apply([ended(await claimed_child(store))])

    assert (await again(store, record)).inbox == []


async def test_a_child_that_a_person_ends_is_told_of_too(store: Store, host: MovableHost) -> None:
    record = await parent_of(store, host, child(1), child(2))
    await store.change("default", "r1~1", lambda run, _, now: terminate(run, "", now))
    await store.change("default", "r1~2", lambda run, _, now: request_cancel(run, "", now))

    assert told((await again(store, record)).inbox) == [
        ("child", 1, True, b"", '["r1~1","terminated"]'),
        ("child", 2, True, b"", '["r1~2","cancelled"]'),
    ]


async def test_the_end_of_a_generation_closes_its_children_as_each_was_started_to_be(store: Store, host: MovableHost) -> None:
    record = await parent_of(store, host, child(1), child(2, on_close="terminate"), child(3, on_close="abandon"))
    running = (await claim(store, "w1", serves=SERVES[1:])).records
    assert len(running) == 3
    assert await store.close_children(10, ASK) == 0
    await store.apply([ended(record, parent=True)])

    assert await store.close_children(10, ASK) == 2
    assert await store.close_children(10, ASK) == 0
    first, second, third = [await row(store, f"r1~{n}") for n in (1, 2, 3)]
    assert (first.status, first.cancel_seq, first.cancel_reason) == (RunStatus.RUNNING, 1, "its parent has ended")
    assert second.status == RunStatus.TERMINATED
    assert (third.status, third.cancel_seq) == (RunStatus.RUNNING, 0)


async def test_children_of_a_terminated_parent_are_closed_in_pieces_each_once(store: Store, host: MovableHost) -> None:
    record = await parent_of(store, host, *(child(n) for n in range(1, 8)))
    await claim(store, "w1", serves=SERVES[1:])
    await store.change("default", "r1", lambda run, _, now: terminate(run, "", now))
    asked: list[int] = []
    while (count := await store.close_children(3, ASK)) == 3:
        asked.append(count)

    assert (asked, count) == ([3, 3], 1)
    assert {(await row(store, f"r1~{n}")).cancel_seq for n in range(1, 8)} == {1}
    assert await store.close_children(3, ASK) == 0
    assert (await again(store, record)).run.status == RunStatus.TERMINATED


async def test_one_child_can_be_asked_to_end_before_its_parent_has(store: Store, host: MovableHost) -> None:
    record = await parent_of(store, host, child(1, on_close="terminate"), child(2))
    await claim(store, "w1", serves=SERVES[1:])
    await store.apply([advance(record, closing=[CloseChild(1, "cancel", "not needed"), CloseChild(9, "cancel")])])

    assert await store.close_children(10, ASK) == 1
    assert ((await row(store, "r1~1")).cancel_seq, (await row(store, "r1~1")).cancel_reason) == (1, "not needed")
    assert (await row(store, "r1~2")).cancel_seq == 0
    record = await again(store, record)
    await store.apply([ended(record, parent=True)])
    assert await store.close_children(10, ASK) == 2
    assert (await row(store, "r1~1")).status == RunStatus.TERMINATED


@pytest.mark.parametrize(("policy", "status"), [("cancel", RunStatus.CANCELLED), ("terminate", RunStatus.TERMINATED)])
async def test_a_child_that_was_closed_and_that_a_person_has_retried_is_closed_with_its_parent(
    store: Store, host: MovableHost, policy: str, status: RunStatus
) -> None:
    record = await parent_of(store, host, child(1, on_close=policy))
    await store.apply([advance(record, closing=[CloseChild(1, policy)])])
    assert await store.close_children(10, ASK) == 1
    found = await store.record("default", "r1~1")
    assert found is not None
    assert found.run.status is status
    await store.change("default", "r1~1", lambda run, _, now: retry(run, found.generation, Prefix(0), b"seed" * 4, now))
    assert [each.on_close for each in await store.children(record.generation.key)] == [{"cancel": "closed", "terminate": "stopped"}[policy]]
    await store.apply([ended(await again(store, record), parent=True)])

    assert await store.close_children(10, ASK) == 1
    assert await store.close_children(10, ASK) == 0
    assert (await row(store, "r1~1")).status is status


@pytest.mark.parametrize("closed_first", [True, False])
async def test_a_child_taken_over_while_it_lives_was_closed_with_its_generation_however_soon_that_is_carried_out(
    store: Store, host: MovableHost, *, closed_first: bool
) -> None:
    kinds = {1: "cancel", 2: "terminate", 3: "abandon"}
    record = await parent_of(store, host, *(child(seq, f"c{seq}", kind) for seq, kind in kinds.items()))
    running = [await claimed_child(store, "c1")]  # it has code that cleans up
    await store.apply([continued(record, NewGeneration("order", "1", b"{}", b"i" * 16, '[[0,"bb"]]'))])
    (second,) = (await claim(store)).records
    keys = [(await row(store, f"c{seq}")).key for seq in kinds]
    if closed_first:
        assert await store.close_children(10, ASK) == 2
    await store.apply([advance(second, attaches=[Attach(seq, key, "abandon") for seq, key in enumerate(keys, 5)], parent=True)])
    while await store.close_children(10, ASK):
        pass

    first, second_child, third = [await row(store, f"c{seq}") for seq in kinds]
    assert (first.key, first.status, first.cancel_seq, first.cancel_reason) == (
        running[0].run.key, RunStatus.RUNNING, 1, "its parent has ended",
    )  # fmt: skip
    assert second_child.status is RunStatus.TERMINATED
    assert (third.status, third.cancel_seq) == (RunStatus.RUNNING, 0)
    assert [(each.seq, each.run_id) for each in await store.children((await again(store, second)).generation.key)] == [
        (5, "c1"), (6, "c2"), (7, "c3"),
    ]  # fmt: skip


async def test_a_child_retried_after_its_generation_was_closed_lives_on_with_the_one_that_takes_it_over(
    store: Store, host: MovableHost
) -> None:
    record = await parent_of(store, host, child(1, "kept"))
    await store.apply([continued(record, NewGeneration("order", "1", b"{}", b"i" * 16, '[[0,"bb"]]'))])
    (second,) = (await claim(store)).records
    assert await store.close_children(10, ASK) == 1
    found = await store.record("default", "kept")
    assert found is not None
    await store.change("default", "kept", lambda run, _, now: retry(run, found.generation, Prefix(0), b"seed" * 4, now))
    await store.apply([advance(second, attaches=[Attach(4, found.run.key, "cancel")], parent=True)])

    assert await store.close_children(10, ASK) == 0
    assert (await row(store, "kept")).status is RunStatus.PENDING


async def failed_child(store: Store, host: MovableHost, operations: Sequence[NewIntent] = ()) -> tuple[Record, Run]:
    """A second generation that has started no child yet, and a child of the first that failed by its second entry."""
    record = await parent_of(store, host, child(1, "kept", "abandon"))
    kept = await claimed_child(store, "kept")
    if operations:
        await store.apply([advance(kept, intents=operations, operates=True)])
        kept = await again(store, kept)
    failure = replace(
        succeed(kept, entry(0), entry(1, failed=True, body=b"why"), child=True),
        change=Change.FAIL, status=RunStatus.FAILED, result=None, failure=b"why", ended_by=1,
    )  # fmt: skip
    await store.apply([failure, continued(record, NewGeneration("order", "1", b"{}", b"i" * 16, '[[0,"bb"]]'))])
    (second,) = (await claim(store)).records
    return second, await row(store, "kept")


async def test_a_child_that_ended_badly_is_retried_for_the_parent_that_takes_it_over(store: Store, host: MovableHost) -> None:
    second, kept = await failed_child(store, host)
    await store.apply(
        [advance(second, attaches=[Attach(4, kept.key, "cancel", again=True)], closing=[CloseChild(4, "retry")], parent=True)]
    )
    assert (await again(store, second)).inbox == []

    assert await store.close_children(10, ASK) == 1
    assert await store.close_children(10, ASK) == 0
    kept = await row(store, "kept")
    assert (kept.status, kept.generation, kept.position) == (RunStatus.PENDING, 2, 1)  # up to the outcome that ended it
    assert (await again(store, second)).inbox == []
    await store.apply([ended(await claimed_child(store, "kept"))])
    assert told((await again(store, second)).inbox) == [("child", 4, False, b'"done"', '["kept","succeeded"]')]


async def test_a_child_that_ended_with_an_open_operation_is_not_retried_and_told_of_as_it_ended(store: Store, host: MovableHost) -> None:
    second, kept = await failed_child(store, host, operations=[intent(5)])
    await store.apply(
        [advance(second, attaches=[Attach(4, kept.key, "cancel", again=True)], closing=[CloseChild(4, "retry")], parent=True)]
    )

    assert await store.close_children(10, ASK) == 1
    kept = await row(store, "kept")
    assert (kept.status, kept.generation) == (RunStatus.FAILED, 1)
    assert told((await again(store, second)).inbox) == [("child", 4, True, b"why", '["kept","failed"]')]


async def test_a_child_that_a_person_has_retried_first_is_told_of_as_it_ended(store: Store, host: MovableHost) -> None:
    second, kept = await failed_child(store, host)
    found = await store.record("default", "kept")
    assert found is not None
    await store.change("default", "kept", lambda run, _, now: retry(run, found.generation, Prefix(0), b"seed" * 4, now))
    await store.apply([ended(await claimed_child(store, "kept"))])
    await store.apply(
        [advance(second, attaches=[Attach(4, kept.key, "cancel", again=True)], closing=[CloseChild(4, "retry")], parent=True)]
    )

    await store.close_children(10, ASK)
    assert (await row(store, "kept")).status == RunStatus.SUCCEEDED
    assert told((await again(store, second)).inbox) == [("child", 4, False, b'"done"', '["kept","succeeded"]')]


async def test_no_child_is_retried_for_a_parent_that_has_ended(store: Store, host: MovableHost) -> None:
    second, kept = await failed_child(store, host)
    attached = advance(second, attaches=[Attach(4, kept.key, "abandon", again=True)], closing=[CloseChild(4, "retry")], parent=True)
    await store.apply([attached])
    await store.apply([ended(await again(store, second), parent=True)])

    assert await store.close_children(10, ASK) == 0
    assert (await row(store, "kept")).status == RunStatus.FAILED


async def test_the_end_of_a_child_and_of_its_parent_touch_no_other_family(store: Store, host: MovableHost) -> None:
    first, second = await two_families(store, host)
    children = {each.run.id: each for each in (await claim(store, "owner of r1", serves=SERVES[1:])).records}
    await store.apply([ended(children["r1~1"]), ended(children["r1~2"])])

    assert [[each.run.id for each in await store.pulse(f"owner of {run_id}")] for run_id in ("r1", "r2")] == [["r1"], []]
    first, second = await again(store, first), await again(store, second)
    assert ([message.seq for message in first.inbox], second.inbox) == ([1, 2], [])
    assert [each.run_id for each in await store.children(second.generation.key)] == ["r2~1", "r2~2"]
    await store.apply([ended(children["r2~1"])])
    await store.apply([ended(first, parent=True)])
    assert await store.close_children(10, ASK) == 0
    assert (await row(store, "r2~2")).cancel_seq == 0
    assert [message.seq for message in (await again(store, second)).inbox] == [1]


async def test_a_message_is_taken_by_the_run_that_was_told_and_the_others_stay(store: Store, host: MovableHost) -> None:
    first, second = await two_families(store, host)
    await store.apply([ended(each) for each in (await claim(store, "owner of r1", serves=SERVES[1:])).records])
    first, second = await again(store, first), await again(store, second)
    mine, theirs = first.inbox[0].key, second.inbox[0].key

    assert await store.apply([advance(first, entry(0), taken=[theirs])]) == [Verdict.REFUSED]
    assert await store.apply([advance(first, entry(0), taken=[mine])]) == [Verdict.APPLIED]

    assert [message.seq for message in (await again(store, first)).inbox] == [2]
    assert [message.seq for message in (await again(store, second)).inbox] == [1, 2]


async def test_a_parent_that_parks_is_due_for_its_own_messages_alone(store: Store, host: MovableHost) -> None:
    first, _ = await two_families(store, host)
    children = (await claim(store, "owner of r1", serves=SERVES[1:])).records
    await store.apply([ended(each) for each in children if each.run.id.startswith("r2")])
    await store.pulse("owner of r2")

    await store.apply([park(first)])

    assert list((await claim(store, "owner of r1")).records) == []
    assert ((await again(store, first)).run.wake_at, (await row(store, "r2")).owner) == (None, "owner of r2")


async def test_a_parent_learns_who_has_the_id_and_takes_over_no_child_of_another(store: Store, host: MovableHost) -> None:
    await store.start([new_run("r2~1", namespace="elsewhere", workflow="far", input_digest=b"\x01" * 16)])
    first, second = await two_families(store, host)
    await store.apply([continued(first, NewGeneration("order", "1", b"{}", b"i" * 16, '[[0,"bb"]]'))])
    (first,) = (await claim(store, "owner of r1")).records
    await store.apply([advance(first, children=[child(1, "r1~1"), child(2, "r2~1")], parent=True)])
    first = await again(store, first)
    found = {taken.run_id: taken for taken in (Taken(*json.loads(message.info)) for message in first.inbox)}
    theirs = await row(store, "r2~1")
    assert (found["r1~1"].own, found["r2~1"].own) == (True, False)
    assert (found["r2~1"].key, found["r2~1"].workflow, found["r2~1"].input_digest.lower()) == (theirs.key, "item", (b"i" * 16).hex())

    await store.apply([advance(first, attaches=[Attach(5, found["r1~1"].key, "cancel"), Attach(6, theirs.key, "cancel")])])

    assert [(each.seq, each.run_id) for each in await store.children(first.generation.key)] == [(5, "r1~1")]
    assert [(each.seq, each.run_id) for each in await store.children(second.generation.key)] == [(1, "r2~1"), (2, "r2~2")]


async def test_more_requests_than_are_carried_out_at_once_are_carried_out_in_turn_each_once(store: Store, host: MovableHost) -> None:
    record = await parent_of(store, host, *(child(n) for n in range(1, 6)))
    await claim(store, "w1", serves=SERVES[1:])
    await store.apply([advance(record, closing=[CloseChild(n, "cancel", f"{n}") for n in range(1, 6)])])

    assert [await store.close_children(limit, ASK) for limit in (2, 10, 10)] == [2, 3, 0]

    asked = [await row(store, f"r1~{n}") for n in range(1, 6)]
    assert [(each.cancel_seq, each.cancel_reason) for each in asked] == [(1, f"{n}") for n in range(1, 6)]


async def test_no_child_is_retried_for_a_generation_that_its_parent_has_left(store: Store, host: MovableHost) -> None:
    second, kept = await failed_child(store, host)
    attached = advance(second, attaches=[Attach(4, kept.key, "abandon", again=True)], closing=[CloseChild(4, "retry")], parent=True)
    await store.apply([attached])
    await store.apply([continued(await again(store, second), NewGeneration("order", "1", b"{}", b"i" * 16, '[[0,"cc"]]'))])

    assert await store.close_children(10, ASK) == 0
    assert (await row(store, "kept")).status == RunStatus.FAILED


async def test_attributes_are_written_with_the_transition(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    attributes = '{"large":9007199254740993,"stage":"packed"}'
    await store.apply([advance(record, attributes=attributes)])

    assert (await again(store, record)).run.attributes == attributes
    await store.apply([park(await again(store, record))])
    assert (await again(store, record)).run.attributes == attributes
