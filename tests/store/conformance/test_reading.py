"""Reads and listings: exact values, stable pages."""

from __future__ import annotations

import pytest

from romulus.core.errors import ConfigurationError
from romulus.core.machine import RunStatus
from romulus.store.contract import RunFilter, Store
from tests.store.kit import MovableHost, advance, again, claim, claimed, entry, new_run, register, start, succeed, walk

ALL = RunFilter("default")


async def test_what_is_not_there_is_none(store: Store) -> None:
    assert await store.run("default", "r1") is None
    assert await store.record("default", "r1") is None


async def test_the_statuses_of_many_runs_are_one_read_and_who_is_not_there_is_left_out(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host, "ends")
    await store.apply([succeed(record)])
    await store.start([new_run("waits"), new_run("there", namespace="other")])

    asked = ["waits", "ends", "there", "missing", "waits"]

    assert await store.statuses("default", asked) == {"waits": RunStatus.PENDING, "ends": RunStatus.SUCCEEDED}
    assert await store.statuses("other", asked) == {"there": RunStatus.PENDING}
    assert await store.statuses("default", []) == {}


async def test_entries_come_back_as_they_were_written(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    odd = entry(0, body=bytes(range(256)), name='na"me\n\x7f é 😀', failed=True, info='["e1",5]', attempt=3, at=2**62, digest=b"\xff" * 8)

    await store.apply([advance(record, odd, entry(1, body=b""))])

    first, second = await store.history(record.generation.key, 0, 10)
    assert first._replace(fence=0, transition=0) == odd
    assert second.body == b""


async def test_history_is_read_in_chunks(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    await store.apply([advance(record, *(entry(n) for n in range(700)))])

    chunks = [await store.history(record.generation.key, first, 300) for first in (0, 300, 600, 900)]

    assert [e.position for chunk in chunks for e in chunk] == list(range(700))


async def test_a_walk_over_pages_sees_each_run_once_while_others_come_and_change(store: Store, host: MovableHost) -> None:
    """RB-54. The order is that of creation."""
    await store.start([new_run(f"r{n}") for n in range(1000)])
    (await register(store, host)).close()
    seen: list[str] = []
    after: str | None = None
    while True:
        page = await store.runs(ALL, after, 37)
        seen += [run.id for run in page.items]
        if page.next is None:
            break
        after = page.next
        await store.start([new_run(f"new {len(seen)} {n}") for n in range(7)])
        await store.apply([succeed(record) for record in (await claim(store, limit=7)).records])

    assert [run_id for run_id in seen if run_id.startswith("r")] == [f"r{n}" for n in range(1000)]
    assert len(seen) == len(set(seen))


async def test_a_listing_is_filtered(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host, "r1")
    await store.apply([succeed(record)])
    await start(store, "r2", workflow="other")
    await start(store, "r3", namespace="elsewhere")
    host.advance(1_000_000)
    middle = await store.now()
    await start(store, "r4")

    assert await walk(store, RunFilter("default", workflow="other"), 10) == ["r2"]
    assert await walk(store, RunFilter("default", status=RunStatus.SUCCEEDED), 10) == ["r1"]
    assert await walk(store, RunFilter("default", since=middle), 10) == ["r4"]
    assert await walk(store, RunFilter("default", until=middle), 10) == ["r1", "r2"]
    assert await walk(store, RunFilter("elsewhere"), 10) == ["r3"]


async def test_a_listing_by_attributes_tells_types_apart(store: Store) -> None:
    await start(store, "text", attributes='{"paid":"1"}')
    await start(store, "number", attributes='{"paid":1,"region":"eu"}')
    await start(store, "truth", attributes='{"paid":true}')
    await start(store, "none")

    found = [await walk(store, RunFilter("default", attributes={"paid": value}), 10) for value in ("1", 1, True)]
    assert found == [["text"], ["number"], ["truth"]]
    assert await walk(store, RunFilter("default", attributes={"paid": 1, "region": "eu"}), 10) == ["number"]
    assert await walk(store, RunFilter("default", attributes={"paid": 1, "region": "us"}), 10) == []


async def test_a_full_last_page_is_followed_by_an_empty_one(store: Store) -> None:
    await start(store, "r1", "r2")

    page = await store.runs(ALL, None, 2)
    assert page.next is not None
    rest = await store.runs(ALL, page.next, 2)
    assert (list(rest.items), rest.next) == ([], None)


async def test_a_cursor_of_something_else_is_refused(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="not a cursor"):
        await store.runs(ALL, "r1; drop", 10)


async def test_the_stores_clock_is_estimated_without_asking(store: Store) -> None:
    before = await store.now()

    assert before <= store.estimated_now() <= await store.now()


async def test_a_record_is_of_the_current_generation(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)

    assert await again(store, record) == record
    assert record.generation.started_at == record.run.started_at
