"""How long events are kept, and how many may wait."""

from __future__ import annotations

import pytest

from romulus.core.transition import Closing, EventClash, EventRefused, Received
from romulus.store import contract
from romulus.store.contract import Store
from tests.store.kit import SECOND, MovableHost, advance, again, claimed, close, deposits, entry, event, texts, wait

KEPT = 60 * SECOND


async def test_events_are_deleted_once_they_were_kept_long_enough(store: Store, host: MovableHost) -> None:
    assert await store.expire_events(KEPT, 100) == 0
    await store.send([event("e1"), event("e2")])
    host.advance(KEPT - SECOND)
    await store.send([event("e3")])
    assert await store.expire_events(KEPT, 100) == 0
    host.advance(2 * SECOND)

    assert await store.expire_events(KEPT, 1) == 1
    assert await texts(store) == {"e2": "unmatched", "e3": "unmatched"}
    assert await store.expire_events(KEPT, 100) == 1
    assert await texts(store) == {"e3": "unmatched"}


async def test_an_expired_id_may_be_sent_again_with_another_body(store: Store, host: MovableHost) -> None:
    await store.send([event("e1")])
    assert await store.send([event("e1", payload=b"other")]) == [EventClash("e1")]
    host.advance(KEPT + SECOND)
    await store.expire_events(KEPT, 100)

    assert await store.send([event("e1", payload=b"other")]) == [Received("e1", duplicate=False)]


async def test_a_consumed_event_goes_a_matched_one_stays(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    await store.apply([advance(record, opens=[wait(1), wait(2)])])
    await store.send([event("consumed"), event("matched"), event("late")])
    await store.match(100)
    record = await again(store, record)
    first = record.waits[0].deposit
    assert first is not None
    await store.apply([advance(record, entry(0), closes=[close(1, Closing.CONSUMED, first.event)])])
    host.advance(KEPT + SECOND)

    assert await store.expire_events(KEPT, 100) == 2
    assert await texts(store) == {"matched": "matched"}
    assert deposits(await again(store, record)) == ["matched"]


@pytest.mark.parametrize("how", [Closing.CONSUMED, Closing.BAD])
async def test_a_shared_event_stays_while_any_wait_holds_it_whatever_others_did_with_it(
    store: Store, host: MovableHost, how: Closing
) -> None:
    first, second = [await claimed(store, host, f"r{n}", f"w{n}") for n in (1, 2)]
    await store.apply([advance(first, opens=[wait(1, shared=True)]), advance(second, opens=[wait(1, shared=True)])])
    await store.send([event("shared")])
    await store.match(100)
    first, second = await again(store, first), await again(store, second)
    held = second.waits[0].deposit
    assert held is not None
    await store.apply([advance(first, entry(0), closes=[close(1, how, held.event)])])
    host.advance(KEPT + SECOND)

    assert await store.expire_events(KEPT, 100) == 0
    assert deposits(await again(store, second)) == ["shared"]
    await store.apply([advance(second, entry(0), closes=[close(1, Closing.CONSUMED, held.event)])])
    assert await store.expire_events(KEPT, 100) == 1


async def test_an_event_that_came_too_late_stays_too_late_while_others_are_deleted(store: Store, host: MovableHost) -> None:
    await store.send([event("e1", name="other")])
    host.advance(KEPT)
    record = await claimed(store, host)
    await store.send([event("late")])
    await store.apply([advance(record, opens=[wait(1)])])
    await store.match(100)
    await store.apply([advance(await again(store, record), closes=[close(1, Closing.TIMED_OUT)])])
    host.advance(SECOND)

    assert await store.expire_events(KEPT, 100) == 1

    await store.apply([advance(await again(store, record), opens=[wait(2)])])
    await store.match(100)
    assert deposits(await again(store, record)) == [None]
    (stored,) = (await store.events("default", None, None, 10)).items
    assert (stored.id, stored.late) == ("late", True)


async def test_more_events_than_may_wait_are_refused_and_nothing_stored_is_dropped(
    store: Store, host: MovableHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("sqlite.matching", "postgres.sending"):
        monkeypatch.setattr(f"romulus.store.{place}.UNMATCHED_MAX", 3)
    assert contract.UNMATCHED_MAX == 10_000
    await store.send([event("e1"), event("e2")])

    answers = await store.send([event("e2"), event("e3"), event("e4"), event("other", correlation_id="o-2")])
    assert answers == [
        Received("e2", duplicate=True), Received("e3", duplicate=False), EventRefused("e4", 3), Received("other", duplicate=False),
    ]  # fmt: skip
    record = await claimed(store, host)
    await store.apply([advance(record, opens=[wait(1)])])
    await store.match(100)
    assert await store.send([event("e4")]) == [Received("e4", duplicate=False)]
    assert list(await texts(store)) == ["e1", "e2", "e3", "other", "e4"]
