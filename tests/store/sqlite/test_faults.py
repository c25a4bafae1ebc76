"""A locked file, a full disk, a file that cannot be written: one clear error, nothing lost, and on again afterwards."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from romulus.core.errors import ConfigurationError, StoreUnavailable
from romulus.core.transition import Verdict
from romulus.store import open_store
from romulus.store.contract import Store
from romulus.store.sqlite import SQLiteStore, place_of
from tests.store.kit import SECOND, MovableHost, advance, again, claimed, entry, new_run, register, start

HOLDER = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


@contextmanager
def locked_by_another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Hold the file's write lock in another process until it is told to let go."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        yield holder
        holder.communicate("\n")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path, host: MovableHost) -> AsyncIterator[Store]:
    store = SQLiteStore(place_of(str(path)), host, lock_wait=50_000)
    await store.open()
    yield store
    await store.close()


@pytest.mark.process
async def test_a_locked_file_is_told_of_once_waiting_is_over_and_the_transition_can_be_made_again(
    store: Store, path: Path, host: MovableHost
) -> None:
    record = await claimed(store, host)
    t = advance(record, entry(0))
    with locked_by_another_process(path):
        with pytest.raises(StoreUnavailable, match=r"store\.db is locked by another process"):
            await store.apply([t])
        with pytest.raises(StoreUnavailable):
            await store.start([new_run("r2")])
        assert (await again(store, record)).run == record.run

    assert await store.apply([t]) == [Verdict.APPLIED]
    await start(store, "r2")


@pytest.mark.process
async def test_the_loop_runs_on_while_a_write_waits_for_the_lock(path: Path, host: MovableHost) -> None:
    store = SQLiteStore(place_of(str(path)), host, lock_wait=30 * SECOND)
    await store.open()
    with locked_by_another_process(path) as holder:
        starting = asyncio.ensure_future(store.start([new_run("r1")]))
        stepping = asyncio.ensure_future(store.transaction())
        for _ in range(100):
            await asyncio.sleep(0)
        assert [starting.done(), stepping.done()] == [False, False]
        assert holder.stdin is not None
        holder.stdin.write("\n")
        holder.stdin.flush()
        await (await stepping).rollback()
        await starting
    await store.close()


@pytest.mark.process
async def test_a_cancelled_call_gives_its_place_in_the_queue_up(path: Path, host: MovableHost) -> None:
    store = SQLiteStore(place_of(str(path)), host, lock_wait=30 * SECOND)
    await store.open()
    with locked_by_another_process(path):
        running = asyncio.ensure_future(store.mark_dead("a"))
        waiting = asyncio.ensure_future(store.mark_dead("b"))
        await asyncio.sleep(0)
        running.cancel()
        waiting.cancel()
        await asyncio.wait([running, waiting])
    await start(store, "r1")
    await store.close()


async def test_a_full_disk_is_told_of_and_nothing_is_lost(store: Store, path: Path, host: MovableHost) -> None:
    record = await claimed(store, host)
    writer = store._writer.session.connection  # type: ignore[attr-defined]
    pages = writer.execute("PRAGMA page_count").fetchall()[0][0]
    writer.execute(f"PRAGMA max_page_count = {pages}").fetchall()
    big = advance(record, entry(0, body=b"x" * 1_000_000))

    with pytest.raises(StoreUnavailable, match="the disk is full: free some space"):
        await store.apply([big])
    assert (await again(store, record)).run == record.run

    writer.execute("PRAGMA max_page_count = 1000000").fetchall()
    assert await store.apply([big]) == [Verdict.APPLIED]


class ReadOnlyVFS(apsw.VFS):
    """The operating system of a user who may read our files and nothing else."""

    def __init__(self, base: str, whole_disk: bool) -> None:
        self.base, self.whole_disk = base, whole_disk
        super().__init__("read-only", base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name)
        if not path.exists():
            raise apsw.CantOpenError(f"unable to open {path}")
        if not self.whole_disk and not flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            return apsw.VFSFile(self.base, name, flags)
        flags[0] = flags[0] & ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE) | apsw.SQLITE_OPEN_READONLY
        return apsw.VFSFile(self.base, name, flags)


@pytest.fixture
def read_only() -> Iterator[Callable[[bool], None]]:
    """Return what makes the file system read-only for connections opened from then on: its main files, or all."""
    made: list[ReadOnlyVFS] = []
    yield lambda whole_disk: made.append(ReadOnlyVFS(apsw.vfs_names()[0], whole_disk))
    for vfs in made:
        vfs.unregister()


@pytest.mark.parametrize("whole_disk", [False, True])
async def test_a_file_that_cannot_be_written_is_told_of(
    path: Path, host: MovableHost, read_only: Callable[[bool], None], whole_disk: bool
) -> None:
    store = open_store(f"sqlite:///{path}", host)
    await store.open()
    await store.close()
    before = path.read_bytes()
    read_only(whole_disk)

    again = open_store(f"sqlite:///{path}", host)
    with pytest.raises(StoreUnavailable, match=r"store\.db.*(be written|writable)"):
        await again.open()

    await again.close()
    assert path.read_bytes() == before


async def test_a_directory_that_takes_no_file_is_told_of(path: Path, host: MovableHost, read_only: Callable[[bool], None]) -> None:
    read_only(True)
    store = open_store(f"sqlite:///{path}", host)

    with pytest.raises(StoreUnavailable, match="check that its directory exists and may be written"):
        await store.open()
    await store.close()


async def test_a_directory_that_is_not_there_is_told_of(tmp_path: Path, host: MovableHost) -> None:
    with pytest.raises(StoreUnavailable, match="check that its directory exists"):
        await open_store(f"sqlite:///{tmp_path / 'none' / 'store.db'}", host).open()


async def test_a_directory_in_place_of_the_file_is_told_of(tmp_path: Path, host: MovableHost) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await open_store(f"sqlite:///{tmp_path}", host).open()


async def test_a_store_that_became_read_only_is_told_of(store: Store, host: MovableHost) -> None:
    record = await claimed(store, host)
    writer = store._writer.session.connection  # type: ignore[attr-defined]
    writer.execute("PRAGMA query_only = 1").fetchall()

    with pytest.raises(StoreUnavailable, match="make the file and its directory writable"):
        await store.apply([advance(record, entry(0))])

    writer.execute("PRAGMA query_only = 0").fetchall()
    assert await store.apply([advance(record, entry(0))]) == [Verdict.APPLIED]


@pytest.mark.process
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_forked_child_is_refused(store: Store, path: Path) -> None:
    child = os.fork()
    if not child:
        try:
            store._near.run("test", "SELECT 1")  # type: ignore[attr-defined]
        except ConfigurationError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


async def test_the_write_ahead_log_stays_bounded(store: Store, path: Path, host: MovableHost) -> None:
    record = await claimed(store, host)
    for n in range(300):
        await store.apply([advance(await again(store, record), entry(n, body=b"x" * 50_000))])

    assert Path(f"{path}-wal").stat().st_size < 10_000_000
    assert path.stat().st_size > 10_000_000


async def test_every_connection_flushes_each_commit(store: Store, host: MovableHost) -> None:
    lease = await register(store, host)
    for session in (store._writer.session, store._step, lease._session):  # type: ignore[attr-defined]
        assert session.value("test", "PRAGMA synchronous") == 2
        assert session.value("test", "PRAGMA journal_mode") == "wal"
    lease.close()


async def test_closing_twice_does_no_harm(store: Store) -> None:
    await store.close()
    await store.close()


def test_apsw_carries_a_sqlite_without_the_wal_reset_bug() -> None:
    assert tuple(map(int, apsw.sqlite_lib_version().split("."))) > (3, 51, 2)
