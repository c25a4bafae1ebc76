"""Looking for work: one statement says what there is to do, and an event is matched in the commit that claims its run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from romulus.store.contract import Store
from tests.store.kit import (
    PENDING,
    RUNNING,
    SECOND,
    MovableHost,
    advance,
    again,
    claim,
    claimed,
    deposits,
    event,
    park,
    parked,
    register,
    request,
    start,
    wait,
)  # fmt: skip


def commits(points: list[str]) -> int:
    return sum(point.endswith(".commit") for point in points)


async def waiting_for_nothing_more(store: Store, host: MovableHost, run_id: str, correlation_id: str = "o-1") -> None:
    """Park a run on an event; its own row in `to_match` is consumed."""
    await parked(store, host, run_id, wait(correlation_id=correlation_id))
    await store.match(100)


async def test_an_event_is_matched_and_its_run_claimed_in_one_commit(store: Store, host: MovableHost) -> None:
    await waiting_for_nothing_more(store, host, "r1")
    (await register(store, host)).close()
    await store.send([event("e1")])
    points: list[str] = []

    host.at_point = points.append
    claims = await claim(store, match_max=100)

    assert [deposits(record) for record in claims.records] == [["e1"]]
    assert (commits(points), claims.unmatched) == (1, False)


async def test_of_runs_woken_by_a_claim_those_that_it_has_no_room_for_are_due(store: Store, host: MovableHost) -> None:
    for n in range(3):
        await waiting_for_nothing_more(store, host, f"r{n}", f"o-{n}")
    (await register(store, host)).close()
    await store.send([event(f"e{n}", correlation_id=f"o-{n}") for n in range(3)])

    claims = await claim(store, match_max=100, limit=2)

    assert (len(claims.records), claims.unmatched) == (2, False)
    assert claims.next_due is not None
    assert claims.next_due <= await store.now()
    left = (await claim(store, match_max=100, limit=2)).records
    assert sorted(deposits(record)[0] or "" for record in (*claims.records, *left)) == ["e0", "e1", "e2"]


async def test_a_claim_that_wakes_a_run_takes_what_is_due_before_it(store: Store, host: MovableHost) -> None:
    await waiting_for_nothing_more(store, host, "woken")
    await start(store, "first", "second")
    (await register(store, host)).close()
    await store.send([event("e1")])

    claims = [await claim(store, match_max=100, limit=1) for _ in range(3)]

    assert [[record.run.id for record in each.records] for each in claims] == [["first"], ["second"], ["woken"]]


@pytest.mark.parametrize(
    ("its", "asks"),
    [
        ({"excluded": "3.11:here"}, {"serves": [("order", "1", "3.11:there")]}),
        ({"digest": "3.11:theirs"}, {"owner": "w2"}),
        ({"version": "2"}, {"serves": [("order", "2", "3.11:here")]}),
        ({"workflow": "refund"}, {"serves": [("refund", "1", "3.11:here")]}),
        ({"namespace": "elsewhere"}, {"namespace": "elsewhere"}),
    ],
)
async def test_a_run_woken_by_a_claim_that_may_not_take_it_is_due_for_the_one_that_may(
    store: Store, host: MovableHost, its: dict[str, str], asks: dict[str, Any]
) -> None:
    asked = request(**{"owner": "w2", **asks})
    for owner in ("w1", "w2"):
        (await register(store, host, owner, namespace=asked.namespace if owner == "w2" else "default")).close()
    created = {key: its[key] for key in ("version", "workflow", "namespace") if key in its}
    await start(store, "its", **created)
    (record,) = (await store.claim(asked, RUNNING)).records
    left = {key: its[key] for key in ("excluded", "digest") if key in its}
    await store.apply([park(record, opens=[wait(correlation_id="its")], **left)])
    await waiting_for_nothing_more(store, host, "mine", "mine")
    await store.send([event("e1", correlation_id="mine"), replace(event("e2", correlation_id="its"), namespace=asked.namespace)])

    claims = await claim(store, match_max=100, others=["3.11:theirs"], prefer=3 * SECOND)

    assert [record.run.id for record in claims.records] == ["mine"]
    assert (claims.next_due is not None) == ("digest" in its)  # after a while it is anybody's
    assert [deposits(record) for record in (await store.claim(asked, RUNNING)).records] == [["e2"]]


async def test_a_claim_that_was_not_asked_to_matches_nothing(store: Store, host: MovableHost) -> None:
    await waiting_for_nothing_more(store, host, "r1")
    (await register(store, host)).close()
    await store.send([event("e1")])

    assert not (await claim(store)).records
    assert await store.match(100) == 1
    assert len((await claim(store)).records) == 1


async def test_a_claim_matches_for_runs_that_others_have(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host, "r1", "w2")
    await store.apply([advance(record, opens=[wait()])])
    await store.match(100)
    (await register(store, host)).close()
    await store.send([event("e1")])

    assert not (await claim(store, match_max=100)).records
    assert deposits(await again(store, record)) == ["e1"]
    assert [woken.run.id for woken in await store.pulse("w2")] == ["r1"]


async def test_a_claim_says_that_more_was_left_to_match(store: Store, host: MovableHost) -> None:
    for n in range(3):
        await waiting_for_nothing_more(store, host, f"r{n}", f"o-{n}")
    (await register(store, host)).close()
    await store.send([event(f"e{n}", correlation_id=f"o-{n}") for n in range(3)])

    taken = [await claim(store, match_max=2)]
    while taken[-1].unmatched:
        taken.append(await claim(store, match_max=2))

    assert [[record.run.id for record in claims.records] for claims in taken[:2]] == [["r0", "r1"], ["r2"]]


async def test_a_look_at_nothing_is_one_statement(store: Store, host: MovableHost) -> None:
    (await register(store, host)).close()
    await waiting_for_nothing_more(store, host, "r1")
    points: list[str] = []

    host.at_point = points.append
    claims = await claim(store, match_max=100)

    assert len([point for point in points if not point.endswith(".done") and point != "notify"]) == 1  # that is of the parking
    assert (claims.unmatched, claims.wakes, claims.closing, claims.alone) == (False, False, False, False)


async def test_a_claim_says_which_of_the_owners_runs_have_wakes(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    await store.apply([advance(record, opens=[wait()])])
    await store.send([event("e1")])
    await store.match(100)

    assert (await claim(store, "w2")).wakes is False
    assert (await claim(store, "w1")).wakes is True
    await store.pulse("w1")
    assert (await claim(store, "w1")).wakes is False


async def test_what_a_claim_matches_for_a_run_of_the_owner_is_told_with_it(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    await store.apply([advance(record, opens=[wait()])])
    await store.match(100)
    await store.send([event("e1")])

    assert (await claim(store, match_max=100)).wakes is True
    assert [deposits(woken) for woken in await store.pulse("w1")] == [["e1"]]


async def test_a_claim_says_that_a_run_is_to_be_claimed_alone(store: Store, host: MovableHost) -> None:
    await start(store, "bad")
    for n in range(3):
        (await register(store, host, f"dead-{n}")).close()
        assert (await claim(store, f"dead-{n}")).records
        await store.mark_dead(f"dead-{n}")
        await store.sweep(10, PENDING, pause=1)
        host.advance(1_000)
    (await register(store, host)).close()

    claims = await claim(store)
    assert (list(claims.records), claims.alone) == ([], True)
    (record,) = (await claim(store, alone=True)).records
    assert record.run.id == "bad"
    assert (await claim(store)).alone is False
    await store.apply([park(record, opens=[wait()])])
    await store.send([event("e1")])

    claims = await claim(store, match_max=100)  # that wakes it
    assert (list(claims.records), claims.alone) == ([], True)
    assert [deposits(record) for record in (await claim(store, alone=True)).records] == [["e1"]]
