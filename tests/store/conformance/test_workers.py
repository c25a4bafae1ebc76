"""Workers: leases, dead marks, and taking over from the dead."""

from __future__ import annotations

from dataclasses import replace

from romulus.core.transition import Verdict
from romulus.store.contract import Store
from tests.store.kit import LEASE, PENDING, SECOND, MovableHost, advance, again, claim, claimed, entry, register, start, worker


async def test_a_lease_lasts_its_length_and_is_extended_by_renewal(store: Store, host: MovableHost) -> None:
    lease = await register(store, host)

    host.advance(10 * SECOND)
    assert lease.remaining() <= 5 * SECOND
    assert lease.renew()
    assert 14 * SECOND < lease.remaining() <= LEASE
    lease.close()


async def test_a_lease_may_be_renewed_late_while_nobody_marked_its_worker_dead(store: Store, host: MovableHost) -> None:
    lease = await register(store, host)
    host.advance(10 * LEASE)

    assert lease.remaining() < 0
    assert lease.renew()
    assert list((await store.sweep(10, PENDING)).dead) == []
    lease.close()


async def test_a_worker_marked_dead_cannot_renew(store: Store, host: MovableHost) -> None:
    lease = await register(store, host)
    host.advance(2 * LEASE)

    assert list((await store.sweep(10, PENDING)).dead) == ["w1"]
    assert not lease.renew()
    lease.close()


async def test_a_lease_that_runs_keeps_its_runs(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    host.advance(LEASE - SECOND)

    freed = await store.sweep(10, PENDING)

    assert (list(freed.dead), freed.runs) == ([], 0)
    assert await store.apply([advance(record, entry(0))]) == [Verdict.APPLIED]


async def test_runs_of_a_dead_worker_are_freed_under_a_higher_fence(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    await store.apply([advance(record, armed='[[0,1,"aa"]]')])
    host.advance(2 * LEASE)

    freed = await store.sweep(10, PENDING)

    run = (await again(store, record)).run
    assert (list(freed.dead), freed.runs) == (["w1"], 1)
    assert (run.owner, run.status, run.losses, run.armed) == (None, PENDING, 1, '[[0,1,"aa"]]')
    assert run.fence > record.run.fence
    (await register(store, host, "w2")).close()
    assert [r.run.id for r in (await claim(store, "w2")).records] == ["r1"]


async def test_freeing_raises_the_fence_above_the_one_before_and_the_store_clock(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    host.advance(2 * LEASE)
    before = await store.now()
    await store.sweep(10, PENDING)
    assert (await again(store, record)).run.fence >= before

    (await register(store, host, "w2")).close()
    (anew,) = (await claim(store, "w2")).records
    host.advance(-50 * 3600 * SECOND)  # by more than a day: it is believed
    await store.mark_dead("w2")
    await store.sweep(10, PENDING)
    assert (await again(store, record)).run.fence == anew.run.fence + 1


async def test_a_lease_of_a_process_that_is_gone_is_over_at_once(store: Store, host: MovableHost) -> None:
    await store.register(worker(host, "w1", pid_start="1"), LEASE)

    assert list((await store.sweep(10, PENDING)).dead) == ["w1"]


async def test_a_restarted_worker_of_the_same_name_does_not_keep_dead_claims_alive(store: Store, host: MovableHost) -> None:
    """RB-03: the name is for people; each start has an ID of its own."""
    old = await store.register(worker(host, "old incarnation", name="W", pid_start="1"), LEASE)
    await start(store, "r1")
    (record,) = (await claim(store, "old incarnation")).records
    await store.register(worker(host, "new incarnation", name="W"), LEASE)

    assert (await store.sweep(10, PENDING)).runs == 1
    assert [r.run.id for r in (await claim(store, "new incarnation")).records] == ["r1"]
    assert await store.apply([advance(record, entry(0))]) == [Verdict.REFUSED]
    assert not old.renew()
    old.close()


async def test_runs_whose_workers_row_was_pruned_are_freed(store: Store, host: MovableHost) -> None:
    """RB-03, the variant: recovery does not depend on the row of the dead worker."""
    record = await claimed(store, host)
    await store.deregister("w1")

    assert (await store.sweep(10, PENDING)).runs == 1
    assert (await again(store, record)).run.owner is None


async def test_a_sweep_frees_the_runs_of_all_that_are_dead_and_of_nobody_else(store: Store, host: MovableHost) -> None:
    records = [await claimed(store, host, f"r{n}", f"w{n}") for n in range(4)]
    await start(store, "pending")
    for n in (0, 1, 3):
        await store.mark_dead(f"w{n}")

    assert (await store.sweep(10, PENDING)).runs == 3

    assert [(await again(store, record)).run.owner for record in records] == [None, None, "w2", None]
    assert [(await again(store, record)).run.losses for record in records] == [1, 1, 0, 1]


async def test_a_run_of_any_priority_whose_worker_died_goes_on_at_once(store: Store, host: MovableHost) -> None:
    (await register(store, host)).close()
    for priority in (-3, 0, 3):
        await start(store, f"of {priority}", priority=priority)
    assert len((await claim(store)).records) == 3
    await store.mark_dead("w1")
    await store.sweep(10, PENDING)
    (await register(store, host, "w2")).close()

    assert [record.run.priority for record in (await claim(store, "w2")).records] == [3, 0, -3]


async def test_a_sweep_frees_no_more_than_its_limit(store: Store, host: MovableHost) -> None:
    (await register(store, host)).close()
    await start(store, *(f"r{n}" for n in range(5)))
    await claim(store)
    await store.mark_dead("w1")

    assert [(await store.sweep(2, PENDING)).runs for _ in range(4)] == [2, 2, 1, 0]


async def test_a_listing_says_who_is_live(store: Store, host: MovableHost) -> None:
    (await register(store, host, "live")).close()
    (await register(store, host, "stopping")).close()
    (await register(store, host, "gone", pid_start="1")).close()
    (await register(store, host, "marked")).close()
    (await register(store, host, "left")).close()
    await store.mark_stopping("stopping")
    await store.mark_dead("marked")
    await store.deregister("left")

    assert {w.id: w.status for w in await store.workers("default")} == {
        "live": "live", "stopping": "stopping", "gone": "dead", "marked": "dead",
    }  # fmt: skip
    assert await store.workers("other") == []


async def test_a_live_worker_stays_registered_however_long_it_has_not_renewed(store: Store, host: MovableHost) -> None:
    lease = await store.register(worker(host, "asleep"), 48 * 3600 * SECOND)
    (await register(store, host, "over")).close()
    host.advance(25 * 3600 * SECOND)

    assert list((await store.sweep(10, PENDING)).dead) == ["over"]
    assert [(w.id, w.status) for w in await store.workers("default")] == [("asleep", "live")]
    assert lease.renew()
    lease.close()


async def test_a_dead_worker_stays_in_the_listing_while_a_run_is_still_in_its_name(store: Store, host: MovableHost) -> None:
    (await register(store, host, "old")).close()
    await start(store, "r1", "r2")
    await claim(store, "old")
    host.advance(25 * 3600 * SECOND)

    assert (await store.sweep(1, PENDING)).runs == 1
    assert [w.id for w in await store.workers("default")] == ["old"]
    assert (await store.sweep(1, PENDING)).runs == 1
    assert await store.workers("default") == []


async def test_dead_workers_leave_the_listing_after_a_day(store: Store, host: MovableHost) -> None:
    (await register(store, host, "old")).close()
    await store.mark_dead("old")
    host.advance(25 * 3600 * SECOND)
    (await register(store, host, "due to be swept")).close()
    host.advance(2 * LEASE)

    await store.sweep(10, PENDING)

    assert [w.id for w in await store.workers("default")] == ["due to be swept"]


async def test_the_lease_thread_can_write_a_transition_under_the_same_guards(store: Store, host: MovableHost) -> None:
    lease = await register(store, host)
    await start(store, "r1")
    (record,) = (await claim(store)).records

    assert lease.apply(advance(record, entry(0))) is Verdict.APPLIED
    assert lease.apply(replace(advance(record, entry(1)), id=1)) is Verdict.REFUSED
    lease.close()


async def test_a_run_lost_again_and_again_waits_longer_before_each_further_claim(store: Store, host: MovableHost) -> None:
    await start(store, "r1")
    waits: list[int] = []
    for round_ in range(5):
        (await register(store, host, f"w{round_}")).close()
        assert len((await claim(store, f"w{round_}", alone=round_ >= 3)).records) == 1
        await store.mark_dead(f"w{round_}")
        await store.sweep(10, PENDING, alone_after=3, pause=1_000)
        run = await store.run("default", "r1")
        assert run is not None
        assert run.wake_at is not None
        waits.append(run.wake_at - run.updated_at)
        host.advance(10_000)

    assert waits == [0, 0, 1_000, 2_000, 4_000]
