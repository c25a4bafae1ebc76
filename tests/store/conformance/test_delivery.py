"""An event that is sent alone, beside a worker that would claim: given straight to its run where nobody else is concerned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from romulus.core.machine import Change
from romulus.core.record import HoldKind, Record
from romulus.core.requests import request_cancel
from romulus.core.transition import Closing, EventClash, Received, Verdict
from romulus.store.contract import Claims, Store
from romulus.store.sqlite.writer import Pace
from tests.store.kit import (
    HELD,
    RUNNING,
    MovableHost,
    Ready,
    advance,
    again,
    claim,
    claimed,
    close,
    deposits,
    event,
    new_run,
    park,
    parked,
    register,
    request,
    texts,
    wait,
)  # fmt: skip

SHORT = {"send.delivered", "deliver.give"}  # what is executed where an event is given straight to its run


@pytest.fixture(autouse=True)
def points(monkeypatch: pytest.MonkeyPatch, host: MovableHost) -> list[str]:
    """The statements that are executed, on a disk that is quick however busy this machine is."""
    monkeypatch.setattr(Pace, "in_place", lambda _: True)
    points: list[str] = []
    host.at_point = points.append
    return points


async def ready(store: Store, host: MovableHost, **changes: Any) -> Ready:
    """Return a worker that would claim, once all that was sent and opened before is matched."""
    while await store.match(100):
        pass
    (await register(store, host)).close()
    return Ready(store, request(match_max=100, **changes))


async def sent(store: Store, worker: Ready, points: list[str], event_id: str = "e1", **changes: Any) -> set[str]:
    """Send an event alone; return how it was given."""
    points.clear()
    assert await store.send([replace(event(event_id), **changes)]) == [Received(event_id, duplicate=False)]
    return SHORT & set(points)


async def found(store: Store, worker: Ready) -> list[Record]:
    """Return what the worker was given, or claims by itself now that it was told."""
    given = [record for claims in worker.claims for record in claims.records]
    assert worker.wanted is not None
    for _ in range(3):
        if not given:
            given = list((await store.claim(worker.wanted, RUNNING)).records)
    return given


async def at_waits(store: Store, run_id: str) -> list[str | None]:
    record = await store.record("default", run_id)
    assert record is not None
    return list(deposits(record))


async def test_the_run_is_claimed_with_its_event_and_as_it_is_in_the_store(store: Store, host: MovableHost, points: list[str]) -> None:
    await parked(store, host, "r1", wait(1, deadline=2**60), wait(2, name="other"))
    worker = await ready(store, host)

    assert await sent(store, worker, points, payload=b'{"paid":1}', digest=b"x")

    ((record,),) = (claims.records for claims in worker.claims)
    assert (record.run.owner, record.run.status, deposits(record)) == ("w1", RUNNING, ["e1", None])
    assert record.waits[0].deposit is not None
    assert record.waits[0].deposit.payload == b'{"paid":1}'
    assert record == await again(store, record)
    assert await texts(store) == {"e1": "matched"}
    assert (worker.pokes, await store.match(100), list((await claim(store)).records)) == (0, 0, [])  # nothing is left to be done


async def test_what_was_given_is_offered_to_nobody_else(store: Store, host: MovableHost, points: list[str]) -> None:
    await parked(store, host, "r1", wait())
    worker = await ready(store, host)
    assert await sent(store, worker, points)
    worker.wanted = None

    await parked(store, host, "r2", wait())
    await store.match(100)

    assert await at_waits(store, "r2") == [None]


async def test_what_is_given_is_consumed_as_any_other(store: Store, host: MovableHost, points: list[str]) -> None:
    await parked(store, host, "r1", wait())
    worker = await ready(store, host)
    assert await sent(store, worker, points)
    (record,) = await found(store, worker)
    assert record.waits[0].deposit is not None

    consumed = advance(record, closes=[close(1, Closing.CONSUMED, record.waits[0].deposit.event)])

    assert await store.apply([consumed]) == [Verdict.APPLIED]
    assert await texts(store) == {"e1": "consumed"}


async def test_a_worker_dead_before_it_took_the_run_up_leaves_the_event_at_its_wait(
    store: Store, host: MovableHost, points: list[str]
) -> None:  # fmt: skip
    await parked(store, host, "r1", wait())
    worker = await ready(store, host)
    assert await sent(store, worker, points)

    await store.mark_dead("w1")
    await store.sweep(100, RUNNING)
    (await register(store, host, "w2")).close()

    assert [deposits(record) for record in (await claim(store, "w2")).records] == [["e1"]]


async def test_the_claim_has_a_fence_that_no_earlier_claim_had(store: Store, host: MovableHost, points: list[str]) -> None:
    before = await parked(store, host, "r1", wait())
    worker = await ready(store, host)
    assert await sent(store, worker, points)

    (record,) = await found(store, worker)
    assert record.run.fence > before.run.fence
    assert await store.apply([advance(before)]) == [Verdict.REFUSED]


async def test_the_same_event_again_and_another_under_its_id_give_nothing(store: Store, host: MovableHost, points: list[str]) -> None:
    await store.send([event("e1", name="before")])
    await parked(store, host, "r1", wait())
    worker = await ready(store, host)

    assert await store.send([event("e1", name="before")]) == [Received("e1", duplicate=True)]
    assert await store.send([event("e1", payload=b"other")]) == [EventClash("e1")]

    assert worker.runs == []
    assert await at_waits(store, "r1") == [None]
    assert await texts(store) == {"e1": "unmatched"}


async def test_an_event_that_was_consumed_is_not_given_when_it_comes_again(store: Store, host: MovableHost, points: list[str]) -> None:
    first = await parked(store, host, "r1", wait())
    await store.send([event("e1")])
    await store.match(100)
    (record,) = (await claim(store, first.run.owner or "owner of r1")).records
    assert record.waits[0].deposit is not None
    again_ = park(record, closes=[close(1, Closing.CONSUMED, record.waits[0].deposit.event)], opens=[wait(2)])
    assert await store.apply([again_]) == [Verdict.APPLIED]
    worker = await ready(store, host)

    assert await store.send([event("e1")]) == [Received("e1", duplicate=True)]

    assert worker.runs == []
    assert await at_waits(store, "r1") == [None]


async def test_an_event_that_nobody_waits_for_is_kept_for_who_will(store: Store, host: MovableHost, points: list[str]) -> None:
    worker = await ready(store, host)
    await sent(store, worker, points)
    assert (worker.runs, await texts(store)) == ([], {"e1": "unmatched"})

    with worker.busy():
        await parked(store, host, "r1", wait())
    assert [deposits(record) for record in await found(store, worker)] == [["e1"]]


async def test_the_older_of_two_waits_gets_it_in_the_ordinary_way(store: Store, host: MovableHost, points: list[str]) -> None:
    await parked(store, host, "r1", wait())
    await parked(store, host, "r2", wait())
    worker = await ready(store, host)

    await sent(store, worker, points)

    assert "deliver.give" not in points
    assert [(record.run.id, deposits(record)) for record in await found(store, worker)] == [("r1", ["e1"])]
    assert await at_waits(store, "r2") == [None]


@pytest.mark.parametrize("oldest_is_shared", [False, True])
async def test_every_shared_wait_gets_it(store: Store, host: MovableHost, points: list[str], oldest_is_shared: bool) -> None:
    """And the oldest of the others."""
    for run_id, shared in (("r1", oldest_is_shared), ("r2", True)):
        await parked(store, host, run_id, wait(shared=shared))
    worker = await ready(store, host)

    await sent(store, worker, points)

    assert sorted((record.run.id, deposits(record)) for record in await found(store, worker)) == [("r1", ["e1"]), ("r2", ["e1"])]


async def test_an_older_event_comes_first(store: Store, host: MovableHost, points: list[str]) -> None:
    """It was stored while its wait was being opened, and has not been matched yet."""
    await parked(store, host, "r1", wait())
    worker = await ready(store, host)
    with worker.busy():
        await store.send([event("old")])

    await sent(store, worker, points, "new")

    assert [deposits(record) for record in await found(store, worker)] == [["old"]]


async def test_an_event_that_was_given_back_comes_first(store: Store, host: MovableHost, points: list[str]) -> None:
    first = await parked(store, host, "r1", wait())
    await store.send([event("old")])
    await store.match(100)
    (record,) = (await claim(store, first.run.owner or "owner of r1")).records
    await parked(store, host, "r2", wait())
    worker = await ready(store, host)
    await store.apply([advance(record, closes=[close(1, Closing.WITHDRAWN)])])

    await sent(store, worker, points, "new")

    records = await found(store, worker)
    assert [(record.run.id, deposits(record)) for record in records] == [("r2", ["old"])]


@pytest.mark.parametrize(
    "changes",
    [
        {"serves": [("another", "1", "3.11:here")]},
        {"serves": [("order", "2", "3.11:here")]},
        {"others": ["3.11:here"], "prefer": 60_000_000},
        {"alone_after": 0},
        {"namespace": "elsewhere"},
    ],
    ids=["another workflow", "another version", "code of another worker", "too many losses", "another namespace"],
)
async def test_a_run_that_this_worker_may_not_claim_is_another_s(
    store: Store, host: MovableHost, points: list[str], changes: dict[str, Any]
) -> None:
    await parked(store, host, "r1", wait())
    worker = await ready(store, host, **changes)

    await sent(store, worker, points)

    assert worker.runs == []
    (await register(store, host, "w2")).close()
    other = Ready(store, request("w2", match_max=100))
    assert [deposits(record) for record in await found(store, other)] == [["e1"]]


async def test_a_run_that_excludes_the_code_here_is_another_s(store: Store, host: MovableHost, points: list[str]) -> None:
    record = await claimed(store, host, "r1", "owner of r1")
    await store.apply([park(record, opens=[wait()], excluded="3.11:here")])
    worker = await ready(store, host)

    await sent(store, worker, points)

    assert worker.runs == []


async def test_a_run_that_is_held_stays_so_with_its_event(store: Store, host: MovableHost, points: list[str]) -> None:
    record = await claimed(store, host, "r1", "owner of r1")
    await store.apply([advance(record, change=Change.HOLD, status=HELD, hold=(HoldKind.HUNG, "why"), opens=[wait()])])
    worker = await ready(store, host)

    await sent(store, worker, points)
    await store.match(100)

    assert worker.runs == []
    assert await at_waits(store, "r1") == ["e1"]
    run = await store.run("default", "r1")
    assert run is not None
    assert run.status is HELD


async def test_a_wait_that_has_its_event_keeps_it(store: Store, host: MovableHost, points: list[str]) -> None:
    """Its run has not been claimed yet."""
    await parked(store, host, "r1", wait())
    worker = await ready(store, host)
    with worker.busy():
        await store.send([event("first")])
        await store.match(100)

    await sent(store, worker, points, "second")

    assert [deposits(record) for record in await found(store, worker)] == [["first"]]
    assert await texts(store) == {"first": "matched", "second": "unmatched"}


async def test_a_run_in_progress_is_woken_where_it_is(store: Store, host: MovableHost, points: list[str]) -> None:
    record = await claimed(store, host, "r1", "owner of r1")
    await store.apply([advance(record, opens=[wait()])])
    worker = await ready(store, host)

    await sent(store, worker, points)
    await store.match(100)

    assert worker.runs == []
    assert [deposits(r) for r in await store.pulse("owner of r1")] == [["e1"]]


async def test_a_worker_that_was_marked_dead_gets_nothing_and_the_event_waits(store: Store, host: MovableHost, points: list[str]) -> None:
    await parked(store, host, "r1", wait())
    worker = await ready(store, host)
    await store.mark_dead("w1")

    await sent(store, worker, points)

    assert worker.runs == []
    (await register(store, host, "w2")).close()
    assert [deposits(record) for record in await found(store, Ready(store, request("w2", match_max=100)))] == [["e1"]]


async def test_a_full_queue_refuses_it(store: Store, host: MovableHost, points: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sqlite.matching", "postgres.sending", "postgres.delivering"):
        monkeypatch.setattr(f"romulus.store.{name}.UNMATCHED_MAX", 1)
    worker = await ready(store, host)
    await store.send([event("e1")])
    while await store.match(100):
        pass

    (refused,) = await store.send([event("e2")])

    assert type(refused).__name__ == "EventRefused"
    assert (worker.runs, await texts(store)) == ([], {"e1": "unmatched"})


async def test_a_cancel_that_came_before_is_in_what_was_claimed(store: Store, host: MovableHost, points: list[str]) -> None:
    record = await parked(store, host, "r1", wait())
    worker = await ready(store, host)
    with worker.busy():
        await store.change("default", "r1", lambda run, _, now: request_cancel(run, "why", now))

    await sent(store, worker, points)

    (taken,) = await found(store, worker)
    assert (taken.run.cancel_seq, deposits(taken)) == (record.run.cancel_seq + 1, ["e1"])


async def test_events_sent_together_are_stored_together(store: Store, host: MovableHost, points: list[str]) -> None:
    await parked(store, host, "r1", wait())
    await parked(store, host, "r2", wait(correlation_id="o-2"))
    worker = await ready(store, host)
    points.clear()

    await store.send([event("e1"), event("e2", correlation_id="o-2")])

    assert not SHORT & set(points)
    assert sorted(record.run.id for record in await found(store, worker)) == ["r1", "r2"]


async def test_an_event_that_is_left_for_others_has_the_next_one_matched_in_the_ordinary_way(
    store: Store, host: MovableHost, points: list[str]
) -> None:
    """It came too late for the run that waits."""
    record = await claimed(store, host, "r1", "owner of r1")
    await store.apply([advance(record, opens=[wait()])])
    await store.send([event("late")])
    await store.match(100)
    record = await again(store, record)
    await store.apply([park(record, closes=[close(1, Closing.TIMED_OUT)], opens=[wait(2)])])
    worker = await ready(store, host)

    await sent(store, worker, points, "next")

    assert "deliver.give" not in points
    assert [deposits(record) for record in await found(store, worker)] == [["next"]]
    assert await texts(store) == {"late": "unmatched", "next": "matched"}


async def test_what_was_due_before_is_not_kept_waiting(store: Store, host: MovableHost, points: list[str]) -> None:
    """The event's run is claimed beside it, or after it, as there is room."""
    await parked(store, host, "r1", wait())
    worker = await ready(store, host)
    with worker.busy():
        await store.start([new_run("due")])

    await sent(store, worker, points)
    rest: Claims = await claim(store, match_max=100)

    assert sorted([*worker.runs, *(record.run.id for record in rest.records)]) == ["due", "r1"]


async def test_what_one_worker_matches_is_told_to_the_others_that_share_its_store(store: Store, host: MovableHost) -> None:
    """It may be theirs to claim: they do not wait for their next poll, which is all that would tell them."""
    await parked(store, host, "r1", wait(1), wait(2, name="other"))
    for worker_id in ("w2", "w3"):
        (await register(store, host, worker_id)).close()
    workers = [Ready(store, None), Ready(store, None)]

    await store.send([event("e1"), event("e2", name="third")])
    told = [worker.pokes for worker in workers]
    assert not (await claim(store, "w2", serves=[("refund", "1", "3.11:here")], match_max=100)).records
    assert (await texts(store))["e1"] == "matched"
    assert all(worker.pokes > before for worker, before in zip(workers, told, strict=True))

    await store.send([event("e3", name="other"), event("e4", name="third")])
    told = [worker.pokes for worker in workers]
    while await store.match(100):
        pass
    assert all(worker.pokes > before for worker, before in zip(workers, told, strict=True))


async def test_runs_that_a_sweep_frees_are_told_to_all_workers_that_share_the_store(store: Store, host: MovableHost) -> None:
    await claimed(store, host)
    beside = Ready(store, None)
    told = beside.pokes

    await store.mark_dead("w1")
    await store.sweep(100, RUNNING)

    assert beside.pokes > told
