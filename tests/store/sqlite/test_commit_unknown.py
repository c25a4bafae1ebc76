"""Commits whose outcome is not known: never lost, never twice, whichever way they went."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from romulus.core.errors import CommitUnknown, StoreUnavailable
from romulus.core.transition import Created, Existing, Verdict
from romulus.store import open_store
from romulus.store.contract import BatchRejected, Store
from tests.store.kit import MovableHost, advance, again, claimed, entry, new_run


class FailingFile(apsw.VFSFile):
    """A file whose flushes fail while the test says so."""

    failing = False

    def __init__(self, base: str, name: Any, flags: list[int]) -> None:
        super().__init__(base, name, flags)

    def xSync(self, flags: int) -> None:
        if FailingFile.failing:
            raise apsw.IOError("the disk did not take it")
        super().xSync(flags)


class FailingVFS(apsw.VFS):
    def __init__(self, base: str) -> None:
        self.base = base
        super().__init__("failing", base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> FailingFile:
        return FailingFile(self.base, name, flags)


@pytest.fixture
def disk() -> Iterator[type[FailingFile]]:
    vfs = FailingVFS(apsw.vfs_names()[0])
    FailingFile.failing = False
    yield FailingFile
    FailingFile.failing = False
    vfs.unregister()


@pytest.fixture
async def store(disk: object, tmp_path: Path, host: MovableHost) -> AsyncIterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", host)
    await store.open()
    yield store
    host.at_point = None
    await store.close()


def failing_at(point: str) -> Callable[[str], None]:
    """Return a crash point listener that answers *point* with an I/O error."""

    def fail(name: str) -> None:
        if name == point:
            raise apsw.IOError("no answer")

    return fail


async def test_a_commit_that_was_applied_without_an_answer_is_recognised(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    t = advance(record, entry(0))
    host.at_point = failing_at("sqlite.commit.done")
    with pytest.raises(CommitUnknown):
        await store.apply([t])
    host.at_point = None

    assert await store.apply([t]) == [Verdict.APPLIED]
    assert len(await store.history(record.generation.key, 0, 10)) == 1
    assert (await again(store, record)).run.revision == 1


async def test_a_commit_that_was_not_applied_is_applied_when_resubmitted(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    t = advance(record, entry(0))
    host.at_point = failing_at("sqlite.commit")
    with pytest.raises(CommitUnknown):
        await store.apply([t])
    host.at_point = None

    assert await store.history(record.generation.key, 0, 10) == []
    assert await store.apply([t]) == [Verdict.APPLIED]
    assert (await again(store, record)).run.revision == 1


async def test_a_flush_that_fails_is_an_unknown_commit(store: Store, host: MovableHost, disk: type[FailingFile]) -> None:
    record = await claimed(store, host)
    t = advance(record, entry(0))
    disk.failing = True
    with pytest.raises(CommitUnknown, match=r"store\.db"):
        await store.apply([t])
    disk.failing = False

    assert await store.apply([t]) == [Verdict.APPLIED]
    assert len(await store.history(record.generation.key, 0, 10)) == 1


async def test_a_batch_of_unknown_outcome_is_resubmitted_whole(store: Store, host: MovableHost) -> None:
    records = [await claimed(store, host, f"r{n}", f"w{n}") for n in range(5)]
    batch = [advance(record, entry(0)) for record in records]
    host.at_point = failing_at("sqlite.commit.done")
    with pytest.raises(CommitUnknown):
        await store.apply(batch)
    host.at_point = None

    assert await store.apply(batch) == [Verdict.APPLIED] * 5


async def test_a_start_of_unknown_outcome_can_be_made_again(store: Store, host: MovableHost) -> None:
    for point in ("sqlite.commit", "sqlite.commit.done"):
        host.at_point = failing_at(point)
        with pytest.raises(CommitUnknown):
            await store.start([new_run(point)])
        host.at_point = None

    assert isinstance((await store.start([new_run("sqlite.commit")]))[0], Created)
    assert isinstance((await store.start([new_run("sqlite.commit.done")]))[0], Existing)


@pytest.mark.parametrize(("point", "applied"), [("sqlite.commit", False), ("sqlite.commit.done", True)])
async def test_a_transactional_steps_unknown_commit_leaves_all_or_nothing(
    store: Store, host: MovableHost, point: str, applied: bool
) -> None:
    record = await claimed(store, host)
    transaction = await store.transaction()
    transaction.connection.execute("CREATE TABLE mine (x)")
    host.at_point = failing_at(point)
    with pytest.raises(CommitUnknown):
        await transaction.commit(advance(record, entry(0)))
    host.at_point = None

    assert (await again(store, record)).run.position == int(applied)
    following = await store.transaction()
    found = following.connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'mine'").fetchall()
    await following.rollback()
    assert found == [(int(applied),)]


BETWEEN = ["sqlite.begin", "apply.advance", "apply.advance.done", "apply.journal", "apply.journal.done"]


@pytest.mark.parametrize("point", BETWEEN)
async def test_an_io_error_before_the_commit_writes_nothing(store: Store, host: MovableHost, point: str) -> None:
    record = await claimed(store, host)
    t = advance(record, entry(0))
    host.at_point = failing_at(point)
    with pytest.raises(StoreUnavailable):
        await store.apply([t])
    host.at_point = None

    assert (await again(store, record)).run == record.run
    assert await store.apply([t]) == [Verdict.APPLIED]


@pytest.mark.parametrize("point", ["sqlite.begin", "start.taken", "start.runs", "start.generations.done"])
async def test_an_io_error_while_starting_creates_nothing_and_the_next_call_goes_on(store: Store, host: MovableHost, point: str) -> None:
    host.at_point = failing_at(point)
    with pytest.raises(StoreUnavailable):
        await store.start([new_run("r1")])
    host.at_point = None

    assert isinstance((await store.start([new_run("r1")]))[0], Created)


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("point", [*BETWEEN, "sqlite.commit"])
async def test_a_crash_before_the_commit_leaves_the_record_as_it_was(store: Store, host: MovableHost, point: str) -> None:
    record = await claimed(store, host)

    def crash(name: str) -> None:
        if name == point:
            raise Crash

    host.at_point = crash
    with pytest.raises(Crash):
        await store.apply([advance(record, entry(0))])
    host.at_point = None

    assert await again(store, record) == record
    assert await store.history(record.generation.key, 0, 10) == []


@pytest.mark.parametrize("fault", [{"name": "\ud800"}, {"seq": 2**63}, {"position": 0}])
async def test_a_statement_at_fault_rejects_the_batch_and_the_neighbours_can_be_written_apart(
    store: Store, host: MovableHost, fault: dict[str, Any]
) -> None:
    good, bad = await claimed(store, host, "good", "w1"), await claimed(store, host, "bad", "w2")
    batch = [advance(good, entry(0)), advance(bad, entry(0), entry(1)._replace(**fault))]

    with pytest.raises(BatchRejected):
        await store.apply(batch)

    assert (await again(store, good)).run == good.run
    assert await store.apply(batch[:1]) == [Verdict.APPLIED]
    with pytest.raises(BatchRejected):
        await store.apply(batch[1:])
