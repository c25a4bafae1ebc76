"""Several processes on one file: each run claimed once, no lock error for anybody, the file sound afterwards."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from romulus.core.machine import RunStatus
from romulus.core.transition import Verdict
from romulus.store import open_store
from romulus.store.contract import RunFilter, Store
from romulus.store.sqlite import watching
from tests.store.kit import PENDING, MovableHost, advance, again, claim, claimed, entry, event, new_run, register, start

pytestmark = pytest.mark.process

WORKER = """
import asyncio, sys
from romulus.core.transition import Verdict
from romulus.store import open_store
from tests.store.kit import MovableHost, advance, claim, entry, register, succeed

async def main(url, name):
    host = MovableHost()
    store = open_store(url, host)
    await store.open()
    lease = await register(store, host, name)
    print("ready", flush=True)
    sys.stdin.readline()
    done = 0
    while True:
        records = (await claim(store, name, limit=5)).records
        if not records:
            break
        assert lease.renew()
        assert set(await store.apply([advance(r, entry(0)) for r in records])) == {Verdict.APPLIED}
        for record in records:
            record.run.revision, record.run.position = 1, 1
        assert set(await store.apply([succeed(r, entry(1)) for r in records])) == {Verdict.APPLIED}
        done += len(records)
    print(done, flush=True)
    if sys.argv[3] == "stay":
        sys.stdin.readline()
    lease.close()
    await store.close()
    host.close()

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path, host: MovableHost) -> AsyncIterator[Store]:
    store = open_store(f"sqlite:///{path}", host)
    await store.open()
    yield store
    await store.close()


def launched(store: Store, name: str, ending: str = "go") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORKER, store.url, name, ending]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


async def test_each_run_is_claimed_and_finished_once_by_four_processes_while_others_write(store: Store, path: Path) -> None:
    """RB-42, small: writers in every process, a listing all the while."""
    await store.start([new_run(f"r{n}") for n in range(300)])
    processes = [launched(store, f"p{n}") for n in range(4)]
    assert [told(p) for p in processes] == ["ready"] * 4
    for process in processes:
        go(process)

    reading = [asyncio.get_running_loop().run_in_executor(None, told, p) for p in processes]
    sent = 0
    while not all(answer.done() for answer in reading):
        await store.send([event(f"e{sent}", correlation_id=f"o-{sent}")])
        await store.runs(RunFilter("default", status=RunStatus.SUCCEEDED), None, 50)
        sent += 1
    counts = [int(await answer) for answer in reading]

    assert [process.wait() for process in processes] == [0] * 4
    for process in processes:
        process.communicate()
    assert sum(counts) == 300
    runs = (await store.runs(RunFilter("default"), None, 1000)).items
    assert {(run.status, run.position, run.losses) for run in runs} == {(RunStatus.SUCCEEDED, 2, 0)}
    checking = apsw.Connection(str(path))
    assert checking.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    checking.close()


async def test_runs_of_a_killed_process_are_free_at_once_and_it_cannot_write_any_more(store: Store, host: MovableHost) -> None:
    process = launched(store, "victim", "stay")
    assert told(process) == "ready"
    go(process)
    assert told(process) == "0"
    await start(store, "r1")
    (record,) = (await claim(store, "victim")).records

    assert (await store.sweep(10, PENDING)).runs == 0
    process.kill()
    process.wait()
    process.communicate()

    freed = await store.sweep(10, PENDING)
    assert (list(freed.dead), freed.runs) == (["victim"], 1)
    assert await store.apply([advance(record, entry(0))]) == [Verdict.REFUSED]


async def test_commits_of_other_connections_are_noticed_and_our_own_are_not(
    store: Store, path: Path, host: MovableHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "MISSED_MAX", sys.maxsize)  # a busy writer that could not be looked at is another promise
    other = open_store(f"sqlite:///{path}", host)
    await other.open()
    changes = store.changes()
    first = asyncio.ensure_future(anext(changes))
    await asyncio.wait_for(first, 30)  # the opening of the other, or the first look

    noticed = asyncio.ensure_future(anext(changes))
    record = await claimed(store, host)
    looks = 0
    host.at_point = lambda name: None

    def count(name: str) -> None:
        nonlocal looks
        looks += name == "watch"

    host.at_point = count
    for _ in range(3):
        await store.apply([advance(await again(store, record))])
        before = looks
        while looks == before:
            await asyncio.sleep(0)
    host.at_point = None
    assert not noticed.done()

    await start(other, "r2")
    await asyncio.wait_for(noticed, 30)
    await changes.aclose()  # type: ignore[attr-defined]
    await other.close()


async def test_a_lease_is_renewed_while_another_process_writes(store: Store, host: MovableHost) -> None:
    lease = await register(store, host, "mine")
    await store.start([new_run(f"r{n}") for n in range(100)])
    process = launched(store, "busy")
    assert told(process) == "ready"
    go(process)
    answer = asyncio.get_running_loop().run_in_executor(None, told, process)

    renewals = 0
    while not answer.done() or not renewals:
        assert await asyncio.get_running_loop().run_in_executor(None, lease.renew)
        renewals += 1

    assert await answer == "100"
    process.communicate()
    lease.close()
