"""A worker on the same store object claims in the very commit that brings it work, and nothing is lost by that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from romulus.core.errors import CommitUnknown, StoreUnavailable
from romulus.store import open_store
from romulus.store.contract import Store
from romulus.store.sqlite.writer import Pace
from tests.store.kit import RUNNING, MovableHost, Ready, deposits, event, new_run, parked, register, request, wait


@pytest.fixture
async def store(tmp_path: Path, host: MovableHost, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    """A store on a disk that is quick however busy this machine is."""
    monkeypatch.setattr(Pace, "in_place", lambda _: True)
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", host)
    await store.open()
    yield store
    host.at_point = None
    await store.close()


@pytest.fixture
async def ready(store: Store, host: MovableHost) -> Ready:
    (await register(store, host)).close()
    return Ready(store, request(match_max=100))


async def test_a_run_is_claimed_in_the_commit_that_starts_it(store: Store, host: MovableHost, ready: Ready) -> None:
    points: list[str] = []
    host.at_point = points.append

    await store.start([new_run("r1")])

    assert points.count("sqlite.commit") == 1
    (record,) = ready.claims[0].records
    assert (record.run.id, record.run.owner, record.run.status) == ("r1", "w1", RUNNING)
    assert await store.owned("w1") != []


async def test_an_event_is_matched_and_its_run_claimed_in_the_commit_that_stores_it(store: Store, host: MovableHost, ready: Ready) -> None:
    with ready.busy():
        await parked(store, host, "r1", wait())
        await store.match(100)
    points: list[str] = []
    host.at_point = points.append

    await store.send([event("e1")])

    assert points.count("sqlite.commit") == 1
    (record,) = ready.claims[0].records
    assert (record.run.id, deposits(record)) == ("r1", ["e1"])


async def test_a_run_that_has_an_owner_is_not_taken_whatever_else_its_row_says(
    store: Store, host: MovableHost, ready: Ready, tmp_path: Path
) -> None:  # fmt: skip
    with ready.busy():
        await parked(store, host, "r1", wait())
        await store.match(100)
        with apsw.Connection(str(tmp_path / "store.db")) as connection:
            connection.execute("UPDATE runs SET owner = 'somebody'")

    await store.send([event("e1")])

    assert ready.runs == []


async def test_what_is_due_longest_is_claimed_first_whoever_starts_what(store: Store, ready: Ready) -> None:
    wanted, ready.wanted = ready.wanted, None
    await store.start([new_run("old")])
    assert wanted is not None
    ready.wanted = request(limit=1)

    await store.start([new_run("new")])

    assert ready.runs == ["old"]
    assert ready.claims[0].next_due is not None  # the new one waits: the worker knows when to look


async def test_what_is_due_longest_is_claimed_first_whoever_sends_an_event(store: Store, host: MovableHost, ready: Ready) -> None:
    ready.wanted = None
    await parked(store, host, "r1", wait())
    await store.match(100)
    await store.start([new_run("old")])
    ready.wanted = request(limit=1, match_max=100)

    await store.send([event("e1")])

    assert ready.runs == ["old"]
    assert ready.claims[0].next_due is not None  # the event's run waits: the worker knows when to look


async def test_what_was_woken_before_is_claimed_beside_the_run_of_an_event(store: Store, host: MovableHost, ready: Ready) -> None:
    with ready.busy():
        await parked(store, host, "r1", wait())
        await parked(store, host, "r2", wait(correlation_id="o-2"))
        await store.send([event("e2", correlation_id="o-2")])
        await store.match(100)

    await store.send([event("e1")])

    assert sorted(ready.runs) == ["r1", "r2"]


async def test_the_worker_that_has_looked_is_not_told_to_and_the_others_are(store: Store, ready: Ready) -> None:
    other = Ready(store, request("w2"))

    await store.start([new_run("r1")])

    assert (ready.runs, ready.pokes) == (["r1"], 0)
    assert (other.runs, other.pokes) == ([], 1)


async def test_a_worker_that_would_claim_nothing_is_told_and_another_claims(store: Store, host: MovableHost, ready: Ready) -> None:
    ready.wanted = None
    (await register(store, host, "w2")).close()
    other = Ready(store, request("w2"))

    await store.start([new_run("r1")])

    assert (ready.runs, ready.pokes) == ([], 1)
    assert (other.runs, other.pokes) == (["r1"], 0)


async def test_a_worker_that_was_marked_dead_gets_nothing(store: Store, ready: Ready) -> None:
    await store.mark_dead("w1")

    await store.start([new_run("r1")])

    assert ready.runs == []
    run = await store.run("default", "r1")
    assert run is not None
    assert run.owner is None


async def test_a_claim_that_raises_takes_no_start_with_it_and_the_worker_is_told(store: Store, host: MovableHost, ready: Ready) -> None:
    def fail(name: str) -> None:
        if name == "claim.take":
            raise ValueError("no run could be read")

    host.at_point = fail

    await store.start([new_run("r1")])

    assert (ready.runs, ready.pokes) == ([], 1)
    run = await store.run("default", "r1")
    assert run is not None
    assert run.owner is None


async def test_a_start_that_cannot_be_written_claims_nothing(store: Store, host: MovableHost, ready: Ready) -> None:
    with ready.busy():
        await store.start([new_run("old")])

    def fail(name: str) -> None:
        if name == "start.generations":
            raise apsw.FullError("no space")

    host.at_point = fail
    with pytest.raises(StoreUnavailable):
        await store.start([new_run("r1")])

    assert (ready.runs, ready.doubts) == ([], 0)
    assert await store.owned("w1") == []


@pytest.mark.parametrize("point", ["sqlite.commit", "sqlite.commit.done"])
async def test_a_commit_without_an_answer_is_one_for_the_worker_too(store: Store, host: MovableHost, ready: Ready, point: str) -> None:
    def fail(name: str) -> None:
        if name == point:
            raise apsw.IOError("no answer")

    host.at_point = fail
    with pytest.raises(CommitUnknown):
        await store.start([new_run("r1")])

    assert (ready.runs, ready.doubts) == ([], 1)


async def test_a_file_that_another_process_writes_is_waited_for_and_the_claim_left_for_later(
    store: Store, tmp_path: Path, ready: Ready
) -> None:  # fmt: skip
    other = apsw.Connection(str(tmp_path / "store.db"))
    other.execute("BEGIN IMMEDIATE")
    starting = asyncio.ensure_future(store.start([new_run("r1")]))
    while not store._writer._busy:  # type: ignore[attr-defined]
        await asyncio.sleep(0)
    other.execute("COMMIT")
    await starting

    assert (ready.runs, ready.pokes, ready.doubts) == ([], 1, 0)
    assert await store.run("default", "r1") is not None
    other.close()
