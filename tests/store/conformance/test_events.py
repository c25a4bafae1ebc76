"""Events: stored first, matched after, consumed once, given back when a wait closes without them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from romulus.core.record import Record
from romulus.core.requests import terminate
from romulus.core.transition import Closing, EventClash, Received, Verdict
from romulus.store.contract import Store
from tests.store.kit import (
    MovableHost,
    advance,
    again,
    claim,
    claimed,
    close,
    deposits,
    entry,
    event,
    park,
    parked,
    register,
    start,
    succeed,
    texts,
    wait,
)  # fmt: skip


async def waiting(store: Store, host: MovableHost, *waits: object, run_id: str = "r1") -> Record:
    """A run that keeps its owner and has these waits open."""
    record = await claimed(store, host, run_id, f"owner of {run_id}")
    await store.apply([advance(record, opens=waits or [wait()])])
    return await again(store, record)


async def matched(store: Store, record: Record) -> Record:
    await store.match(100)
    return await again(store, record)


def arrival(record: Record) -> int:
    (open_wait,) = record.waits
    assert open_wait.deposit is not None
    return open_wait.deposit.event


async def test_an_event_is_deduplicated_by_its_id(store: Store) -> None:
    first = await store.send([event("e1")])
    second = await store.send([event("e1"), event("e1", payload=b"other"), event("e2")])

    assert list(first) == [Received("e1", duplicate=False)]
    assert list(second) == [Received("e1", duplicate=True), EventClash("e1"), Received("e2", duplicate=False)]
    assert await texts(store) == {"e1": "unmatched", "e2": "unmatched"}


async def test_an_event_that_came_first_is_matched_when_the_wait_opens(store: Store, host: MovableHost) -> None:
    await store.send([event("e1", payload=b"\x00paid")])
    await store.match(100)
    record = await matched(store, await waiting(store, host))

    (open_wait,) = record.waits
    assert open_wait.deposit is not None
    assert (open_wait.deposit.event_id, open_wait.deposit.payload) == ("e1", b"\x00paid")


async def test_a_wait_that_opened_first_is_matched_when_the_event_comes(store: Store, host: MovableHost) -> None:
    record = await waiting(store, host)
    await store.match(100)
    await store.send([event("e1")])

    assert deposits(await matched(store, record)) == ["e1"]


@pytest.mark.parametrize("stray", [event("e1", name="other"), event("e1", correlation_id="other")])
async def test_another_name_or_correlation_id_does_not_match(store: Store, host: MovableHost, stray: object) -> None:
    record = await waiting(store, host)
    await store.send([stray])  # type: ignore[list-item]

    assert deposits(await matched(store, record)) == [None]


async def test_events_go_to_the_oldest_waits_in_the_order_of_their_arrival(store: Store, host: MovableHost) -> None:
    records = [await waiting(store, host, run_id=f"r{n}") for n in range(3)]
    await store.send([event("e0")])
    await store.send([event("e1")])
    await store.match(100)

    assert [deposits(await again(store, record)) for record in records] == [["e0"], ["e1"], [None]]


async def test_matching_is_told_how_much_it_may_do(store: Store, host: MovableHost) -> None:
    for n in range(5):
        await store.send([event(f"e{n}", correlation_id=f"o-{n}")])

    assert [await store.match(2) for _ in range(4)] == [2, 2, 1, 0]


async def test_an_event_is_consumed_by_the_transition_that_closes_its_wait(store: Store, host: MovableHost) -> None:
    await store.send([event("e1"), event("e2")])
    record = await matched(store, await waiting(store, host))

    verdict = await store.apply([advance(record, entry(0, kind="wait"), closes=[close(1, Closing.CONSUMED, arrival(record))])])

    assert verdict == [Verdict.APPLIED]
    stored = (await store.events("default", None, None, 10)).items
    assert [(each.id, each.state, each.run_id) for each in stored] == [("e1", "consumed", "r1"), ("e2", "unmatched", None)]
    assert (await again(store, record)).waits == []


@pytest.mark.parametrize("how", [Closing.CONSUMED, Closing.BAD])
async def test_a_transition_that_closes_a_wait_with_an_event_it_does_not_hold_is_refused(
    store: Store, host: MovableHost, how: Closing
) -> None:
    await store.send([event("e1")])
    record = await matched(store, await waiting(store, host))
    other = await claimed(store, host, "r2", "w2")

    verdicts = await store.apply([advance(other, entry(0)), advance(record, entry(0), closes=[close(1, how, arrival(record) + 1)])])

    assert verdicts == [Verdict.APPLIED, Verdict.REFUSED]
    assert deposits(await again(store, record)) == ["e1"]
    assert await store.history(record.generation.key, 0, 10) == []


@pytest.mark.parametrize("how", [Closing.WITHDRAWN, Closing.TIMED_OUT])
async def test_an_event_found_when_the_wait_closes_goes_to_the_next_wait(store: Store, host: MovableHost, how: Closing) -> None:
    record = await waiting(store, host)
    await store.send([event("e1"), event("e2")])
    record = await matched(store, record)
    second = await waiting(store, host, run_id="r2")

    await store.apply([advance(record, entry(0), closes=[close(1, how)])])

    assert (await texts(store))["e1"] == "unmatched"
    assert deposits(await matched(store, second)) == ["e1"]
    assert await texts(store) == {"e1": "matched", "e2": "unmatched"}


async def test_an_event_that_goes_back_keeps_its_place_before_later_ones(store: Store, host: MovableHost) -> None:
    record = await waiting(store, host)
    await store.send([event("e1")])
    record = await matched(store, record)
    await store.send([event("e2")])
    await store.apply([advance(record, closes=[close(1, Closing.WITHDRAWN)])])
    await store.match(100)

    second = await waiting(store, host, run_id="r2")

    assert deposits(await matched(store, second)) == ["e1"]


async def test_an_event_that_lost_against_the_deadline_is_not_offered_to_that_run_again(store: Store, host: MovableHost) -> None:
    record = await waiting(store, host)
    await store.send([event("e1")])
    record = await matched(store, record)

    await store.apply([advance(record, closes=[close(1, Closing.TIMED_OUT)], opens=[wait(2)])])
    assert deposits(await matched(store, record)) == [None]

    (stored,) = (await store.events("default", None, None, 10)).items
    assert (stored.state, stored.late) == ("unmatched", True)
    other = await waiting(store, host, run_id="r2")
    assert deposits(await matched(store, other)) == ["e1"]


async def test_a_late_event_does_not_stand_in_the_way_of_the_next(store: Store, host: MovableHost) -> None:
    record = await waiting(store, host)
    await store.send([event("e1")])
    record = await matched(store, record)
    await store.apply([advance(record, closes=[close(1, Closing.TIMED_OUT)], opens=[wait(2)])])
    await store.match(100)

    await store.send([event("e2")])

    assert deposits(await matched(store, record)) == ["e2"]


async def test_a_wait_may_ask_for_late_events(store: Store, host: MovableHost) -> None:
    record = await waiting(store, host)
    await store.send([event("e1")])
    record = await matched(store, record)

    await store.apply([advance(record, closes=[close(1, Closing.TIMED_OUT)], opens=[wait(2, include_late=True)])])

    assert deposits(await matched(store, record)) == ["e1"]


async def test_a_bad_event_is_taken_off_and_its_wait_stays_open_for_the_next(store: Store, host: MovableHost) -> None:
    record = await waiting(store, host)
    await store.send([event("e1"), event("e2")])
    record = await matched(store, record)

    assert await store.apply([advance(record, closes=[close(1, Closing.BAD, arrival(record))])]) == [Verdict.APPLIED]

    assert deposits(await matched(store, record)) == ["e2"]
    stored = (await store.events("default", None, None, 10)).items
    assert [(each.id, each.state, each.run_id) for each in stored] == [("e1", "bad", "r1"), ("e2", "matched", "r1")]


async def test_every_shared_wait_gets_the_event(store: Store, host: MovableHost) -> None:
    records = [await waiting(store, host, wait(shared=True), run_id=f"r{n}") for n in range(3)]
    await store.send([event("e1")])
    await store.match(100)

    assert [deposits(await again(store, record)) for record in records] == [["e1"]] * 3


async def test_shared_waits_are_offered_what_they_wait_for_alone(store: Store, host: MovableHost) -> None:
    stray = [event("name", name="stray"), event("correlation ID", correlation_id="stray"), replace(event("far"), namespace="elsewhere")]
    await store.send(stray)
    waits = wait(1, shared=True), wait(2, name="other", shared=True), wait(3, correlation_id="o-2", shared=True)
    record = await waiting(store, host, *waits)
    await start(store, "r2", namespace="elsewhere")
    await register(store, host, "far", namespace="elsewhere")
    (far,) = (await claim(store, "far", namespace="elsewhere")).records

    await store.send([event("e1")])
    assert deposits(await matched(store, record)) == ["e1", None, None]
    await store.apply([advance(far, opens=[wait(1, shared=True)])])
    assert deposits(await matched(store, far)) == ["far"]
    await store.apply([advance(await again(store, far), opens=[wait(2, shared=True)])])
    third = await waiting(store, host, wait(1, shared=True), run_id="r3")
    await store.send([event("e2")])
    assert deposits(await matched(store, third)) == ["e2"]
    assert deposits(await again(store, far)) == ["far", None]


async def test_a_shared_wait_is_not_offered_what_was_consumed(store: Store, host: MovableHost) -> None:
    await store.send([event("e1")])
    record = await matched(store, await waiting(store, host))
    (stored,) = (await store.events("default", None, None, 10)).items
    assert (stored.state, stored.run_id) == ("matched", "r1")
    await store.apply([advance(record, entry(0), closes=[close(1, Closing.CONSUMED, arrival(record))])])

    second = await waiting(store, host, wait(shared=True), run_id="r2")
    await store.send([event("e2")])

    assert deposits(await matched(store, second)) == ["e2"]
    assert await texts(store) == {"e1": "consumed", "e2": "matched"}


async def test_an_event_that_came_too_late_for_one_run_goes_to_the_oldest_wait_of_others(store: Store, host: MovableHost) -> None:
    record = await waiting(store, host)
    await store.send([event("e1")])
    record = await matched(store, record)
    await store.apply([advance(record, closes=[close(1, Closing.TIMED_OUT)])])
    others = [await waiting(store, host, run_id=f"r{n}") for n in (2, 3, 4)]
    await store.match(100)

    assert [deposits(await again(store, other)) for other in others] == [["e1"], [None], [None]]


async def test_an_event_goes_to_every_shared_wait_and_to_the_oldest_of_the_others(store: Store, host: MovableHost) -> None:
    opened = [wait(shared=True), wait(), wait(shared=True), wait()]
    records = [await waiting(store, host, each, run_id=f"r{n}") for n, each in enumerate(opened)]
    await store.send([event("e1")])
    await store.match(100)

    assert [deposits(await again(store, record)) for record in records] == [["e1"], ["e1"], ["e1"], [None]]


@pytest.mark.parametrize("how", [Closing.TIMED_OUT, Closing.WITHDRAWN])
async def test_a_wait_that_closes_without_an_event_leaves_the_others_of_its_run_open(store: Store, host: MovableHost, how: Closing) -> None:
    record = await waiting(store, host, wait(1), wait(2, name="other"))

    assert await store.apply([advance(record, closes=[close(1, how)])]) == [Verdict.APPLIED]

    assert [w.seq for w in (await again(store, record)).waits] == [2]


@pytest.mark.parametrize("how", [Closing.CONSUMED, Closing.BAD])
async def test_what_one_wait_does_with_a_shared_event_touches_no_other_wait(store: Store, host: MovableHost, how: Closing) -> None:
    first = await waiting(store, host, wait(1, shared=True), wait(2, shared=True), run_id="r1")
    second = await waiting(store, host, wait(1, shared=True), run_id="r2")
    await store.send([event("e1")])
    first, second = await matched(store, first), await again(store, second)
    arrived = arrival(second)
    assert [w.deposit is not None and w.deposit.event == arrived for w in first.waits] == [True, True]

    assert await store.apply([advance(first, closes=[close(1, how, arrived)])]) == [Verdict.APPLIED]

    first, second = await again(store, first), await again(store, second)
    kept = {w.seq: w.deposit is not None for w in first.waits}
    assert kept == ({2: True} if how is Closing.CONSUMED else {1: False, 2: True})
    assert arrival(second) == arrived


async def test_a_shared_event_goes_back_only_when_no_other_wait_has_it(store: Store, host: MovableHost) -> None:
    first, second = [await waiting(store, host, wait(shared=True), run_id=f"r{n}") for n in range(2)]
    await store.send([event("e1")])
    first, second = await matched(store, first), await again(store, second)

    await store.apply([advance(first, closes=[close(1, Closing.WITHDRAWN)])])
    assert await texts(store) == {"e1": "matched"}
    await store.apply([advance(second, closes=[close(1, Closing.WITHDRAWN)])])
    assert await texts(store) == {"e1": "unmatched"}


@pytest.mark.parametrize("how", [Closing.TIMED_OUT, Closing.WITHDRAWN])
async def test_a_shared_event_that_one_run_consumed_does_not_go_back_when_another_lets_go_of_it(
    store: Store, host: MovableHost, how: Closing
) -> None:
    first, second = [await waiting(store, host, wait(shared=True), run_id=f"r{n}") for n in (1, 2)]
    await store.send([event("e1")])
    first, second = await matched(store, first), await again(store, second)
    await store.apply([advance(first, entry(0), closes=[close(1, Closing.CONSUMED, arrival(first))])])

    await store.apply([advance(second, closes=[close(1, how)])])

    (stored,) = (await store.events("default", None, None, 10)).items
    assert (stored.state, stored.run_id) == ("consumed", "r1")
    assert deposits(await matched(store, await waiting(store, host, run_id="r3"))) == [None]


@pytest.mark.parametrize("order", [[1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3]])
@pytest.mark.parametrize("together", [False, True])
async def test_a_shared_event_that_some_took_as_bad_and_some_consumed_is_consumed_by_the_first_of_these(
    store: Store, host: MovableHost, order: list[int], together: bool
) -> None:
    await start(store, *(f"r{n}" for n in range(1, 5)))
    await register(store, host)
    records = {record.run.id: record for record in (await claim(store, limit=4)).records}
    await store.apply([advance(record, opens=[wait(shared=True)]) for record in records.values()])
    await store.send([event("e1")])
    await store.match(100)
    held = [await again(store, records[f"r{n}"]) for n in order]

    how = {"r1": Closing.BAD, "r2": Closing.CONSUMED, "r3": Closing.BAD, "r4": Closing.CONSUMED}
    made = [advance(each, entry(0), closes=[close(1, how[each.run.id], arrival(each))]) for each in held]
    for batch in [made] if together else [[each] for each in made]:
        await store.apply(batch)

    (stored,) = (await store.events("default", None, None, 10)).items
    assert (stored.state, stored.run_id) == ("consumed", "r2")


async def test_an_event_that_a_withdrawn_wait_gave_back_is_nobodys_and_is_offered_to_the_same_run_again(
    store: Store, host: MovableHost
) -> None:
    record = await waiting(store, host)
    await store.send([event("e1")])
    record = await matched(store, record)

    await store.apply([advance(record, closes=[close(1, Closing.WITHDRAWN)])])

    (stored,) = (await store.events("default", None, None, 10)).items
    assert (stored.state, stored.late, stored.run_id) == ("unmatched", False, None)
    await store.apply([advance(await again(store, record), opens=[wait(2)])])
    assert deposits(await matched(store, record)) == ["e1"]


async def test_an_event_may_come_too_late_for_one_run_twice(store: Store, host: MovableHost) -> None:
    record = await waiting(store, host)
    await store.send([event("e1")])
    record = await matched(store, record)
    await store.apply([advance(record, closes=[close(1, Closing.TIMED_OUT)], opens=[wait(2, include_late=True)])])
    record = await matched(store, record)
    assert deposits(record) == ["e1"]

    assert await store.apply([advance(record, closes=[close(2, Closing.TIMED_OUT)], opens=[wait(3)])]) == [Verdict.APPLIED]

    assert deposits(await matched(store, record)) == [None]
    assert await texts(store) == {"e1": "unmatched"}


async def test_a_run_that_ends_gives_its_events_back(store: Store, host: MovableHost) -> None:
    await store.send([event("e1")])
    record = await matched(store, await waiting(store, host))

    await store.apply([succeed(record)])

    assert await texts(store) == {"e1": "unmatched"}
    assert list((await store.waits("default", None, 10)).items) == []
    assert deposits(await matched(store, await waiting(store, host, run_id="r2"))) == ["e1"]


async def test_a_terminated_run_gives_its_events_back(store: Store, host: MovableHost) -> None:
    await store.send([event("e1")])
    await matched(store, await waiting(store, host))

    await store.change("default", "r1", lambda run, _, now: terminate(run, "", now))

    assert await texts(store) == {"e1": "unmatched"}
    assert await store.match(100) == 1


async def test_a_deposit_wakes_a_parked_run(store: Store, host: MovableHost) -> None:
    await parked(store, host, "r1", wait())
    await store.send([event("e1")])
    await store.match(100)
    (await register(store, host)).close()

    (record,) = (await claim(store)).records

    assert (record.run.id, deposits(record)) == ("r1", ["e1"])


async def test_a_run_that_parks_while_its_event_is_being_matched_is_woken(store: Store, host: MovableHost) -> None:
    record = await waiting(store, host)
    await store.send([event("e1")])
    await store.match(100)
    await store.apply([park(record)])
    (await register(store, host)).close()

    (woken,) = (await claim(store)).records

    assert deposits(woken) == ["e1"]


async def test_a_run_that_parks_after_its_owner_took_the_wake_is_due_at_once(store: Store, host: MovableHost) -> None:
    record = await waiting(store, host)
    await store.send([event("e1")])
    await store.match(100)
    await store.pulse(record.run.owner or "")
    await store.apply([park(record, wake_at=await store.now() + 3600 * 1_000_000)])
    (await register(store, host)).close()

    (woken,) = (await claim(store)).records

    assert deposits(woken) == ["e1"]


@pytest.mark.parametrize("priority", [-3, 3])
async def test_a_run_of_any_priority_that_parks_on_an_event_that_has_come_is_due_at_once(
    store: Store, host: MovableHost, priority: int
) -> None:
    (await register(store, host)).close()
    await start(store, "r1", priority=priority)
    (record,) = (await claim(store)).records
    await store.apply([advance(record, opens=[wait()])])
    await store.send([event("e1")])
    record = await matched(store, record)
    await store.pulse("w1")
    await store.apply([park(record)])

    assert [deposits(found) for found in (await claim(store)).records] == [["e1"]]


async def test_a_run_that_parks_is_due_for_what_has_come_for_itself_alone(store: Store, host: MovableHost) -> None:
    first, second = await waiting(store, host, wait(correlation_id="never")), await waiting(store, host, run_id="r2")
    await store.send([event("e1")])
    second = await matched(store, second)
    await store.pulse(second.run.owner or "")
    await store.apply([advance(second)])
    second = await again(store, second)
    assert second.run.wake_at is None, "it keeps its owner"

    await store.apply([park(first)])

    assert await again(store, second) == second
    assert (await again(store, first)).run.wake_at is None
    (await register(store, host)).close()
    assert list((await claim(store)).records) == []


async def test_an_owner_takes_the_deposits_of_its_runs_once(store: Store, host: MovableHost) -> None:
    await waiting(store, host)
    await waiting(store, host, wait(correlation_id="o-2"), run_id="r2")
    await store.send([event("e1"), event("e2", correlation_id="o-2")])
    await store.match(100)

    (mine,) = await store.pulse("owner of r1")

    assert (mine.run.id, deposits(mine)) == ("r1", ["e1"])
    assert list(await store.pulse("owner of r1")) == []
    assert [r.run.id for r in await store.pulse("owner of r2")] == ["r2"]


async def test_a_wake_does_not_start_a_scheduled_run_early(store: Store, host: MovableHost) -> None:
    from romulus.core.machine import RunStatus
    from tests.store.kit import start

    await parked(store, host, "r1", wait())
    await start(store, "later", status=RunStatus.SCHEDULED, delay=3600_000_000)
    await store.send([event("e1")])
    await store.match(100)
    (await register(store, host)).close()

    assert [r.run.id for r in (await claim(store)).records] == ["r1"]


async def test_open_waits_are_listed_with_what_they_were_matched_with(store: Store, host: MovableHost) -> None:
    await waiting(store, host, wait(1, deadline=99), wait(2, name="sent"))
    await store.send([event("e1")])
    await store.match(100)

    page = await store.waits("default", None, 10)

    assert [(w.run_id, w.seq, w.name, w.deadline, w.event_id) for w in page.items] == [
        ("r1", 1, "paid", 99, "e1"),
        ("r1", 2, "sent", None, None),
    ]


async def test_events_are_listed_by_whether_they_are_matched(store: Store, host: MovableHost) -> None:
    await waiting(store, host)
    await store.send([event("e1"), event("e2"), event("e3", name="stray")])
    await store.match(100)

    listings = [await store.events("default", matched, None, 10) for matched in (True, False, None)]

    assert [[e.id for e in page.items] for page in listings] == [["e1"], ["e2", "e3"], ["e1", "e2", "e3"]]
