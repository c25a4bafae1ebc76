"""Runs are created once, whatever calls twice."""

from __future__ import annotations

import asyncio

from romulus.core.machine import RunStatus
from romulus.core.transition import CopyFrom, Created, Existing
from romulus.store.contract import Store
from tests.store.kit import PENDING, SECOND, MovableHost, advance, again, claim, claimed, entry, new_run


async def test_a_new_run_is_stored_as_it_was_given(store: Store) -> None:
    (created,) = await store.start([new_run("r1", priority=2, attributes='{"customer":"ada"}')])

    run = await store.run("default", "r1")
    assert isinstance(created, Created)
    assert run is not None
    assert (run.key, run.workflow, run.status, run.priority, run.attributes) == (created.key, "order", PENDING, 2, '{"customer":"ada"}')


async def test_a_taken_id_changes_nothing_and_shows_the_first_generation(store: Store) -> None:
    await store.start([new_run("r1")])

    (second,) = await store.start([new_run("r1", workflow="other", input=b"other")])

    assert isinstance(second, Existing)
    assert (second.run.id, second.first.workflow, second.first.input, second.first.input_digest) == ("r1", "order", b'{"n":1}', b"i" * 16)


async def test_the_same_id_in_another_namespace_is_free(store: Store) -> None:
    created = await store.start([new_run("r1"), new_run("r1", namespace="other")])

    assert all(isinstance(c, Created) for c in created)


async def test_the_same_id_twice_in_one_call_is_created_once(store: Store) -> None:
    first, second = await store.start([new_run("r1"), new_run("r1", input=b"other")])

    assert isinstance(first, Created)
    assert isinstance(second, Existing)


async def test_calls_that_arrive_together_each_get_their_own_answer(store: Store) -> None:
    answers = await asyncio.gather(*(store.start([new_run(f"r{n % 50}")]) for n in range(100)))

    created = [a for (a,) in answers if isinstance(a, Created)]
    assert len(created) == len({c.key for c in created}) == 50


async def test_a_delay_counts_from_the_stores_clock(store: Store) -> None:
    before = await store.now()

    await store.start([new_run("r1", status=RunStatus.SCHEDULED, delay=60 * SECOND)])

    run = await store.run("default", "r1")
    assert run is not None
    assert run.wake_at is not None
    assert before + 60 * SECOND <= run.wake_at <= await store.now() + 60 * SECOND


async def test_a_fork_begins_with_the_entries_below_its_position(store: Store, host: MovableHost) -> None:
    source = await claimed(store, host)
    await store.apply([advance(source, entry(0), entry(1), entry(2))])

    await store.start([new_run("r1~1", copy=CopyFrom(source.generation.key, 2), started_at=77)])

    (fork,) = (await claim(store)).records
    assert (fork.run.id, fork.run.position, fork.run.started_at) == ("r1~1", 2, 77)
    assert [e.position for e in await store.history(fork.generation.key, 0, 10)] == [0, 1]
    assert (await again(store, source)).run.position == 3
