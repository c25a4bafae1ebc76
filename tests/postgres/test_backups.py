"""A whole server put back from pg_basebackup, as it was then or at a point in time: what `romulus restore` promises holds there."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import romulus
from romulus.core.record import Record
from romulus.core.transition import Verdict
from romulus.store.postgres import PostgresStore
from tests.postgres import backup_worker
from tests.postgres.backup_worker import WORKFLOWS, done
from tests.postgres.backups import BackedUp, archiving
from tests.postgres.kit import opened, until
from tests.postgres.server import Database
from tests.repo.files import ROOT
from tests.store.kit import MovableHost, advance, claim, claimed, entry

pytestmark = pytest.mark.process

WORKERS = "SELECT id FROM romulus.workers WHERE NOT dead AND id <> 'w1' ORDER BY id"


@contextmanager
def worker_process(url: str, provider: Path) -> Generator[subprocess.Popen[bytes]]:
    worker = subprocess.Popen(
        [sys.executable, backup_worker.__file__, url, str(provider)], env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait(10)


def app_of(database: Database) -> romulus.App:
    return romulus.App(database.url, workflows=[*WORKFLOWS.values()])


def restore(url: str) -> Any:
    command = [sys.executable, "-m", "romulus.cli", "restore", "--yes", "--json", "--store", url]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize("point", ["the base backup", "a restore point", "a time"])
async def test_a_server_put_back_from_a_backup_keeps_what_was_acknowledged_and_lets_nothing_of_before_write(
    point: str, tmp_path: Path
) -> None:
    with archiving() as backed_up:
        database = Database(backed_up.server, backed_up.server.create(backed_up.server.template()))
        host = MovableHost()
        async with opened(database.url, host) as store, romulus.AsyncClient(app_of(database)) as client:
            with worker_process(database.url, tmp_path) as worker:
                if point != "the base backup":
                    await asyncio.to_thread(backed_up.back_up)
                record = await everything_before(database, client, store, host, tmp_path)
                before = database.execute("SELECT id, status, position FROM romulus.runs ORDER BY id")
                target = await reached(backed_up, point)
                await everything_after(database, client, tmp_path)
                fences = database.execute("SELECT max(fence) FROM romulus.runs")[0][0]
                old = database.execute(WORKERS)
                worker.send_signal(signal.SIGSTOP)  # in the middle of a step and of an operation, both claimed
                await backed_up.archive_all()
                with backed_up.put_back(**target) as server:
                    there = Database(server, database.name)
                    assert there.execute("SELECT id, status, position FROM romulus.runs ORDER BY id") == before
                    told = await asyncio.to_thread(restore, there.url)
                    holds(there, told, fences)
                    (tmp_path / "gate").touch()
                    worker.send_signal(signal.SIGCONT)
                    await refused(there, store, record)
                    await goes_on(there, client, tmp_path, old, fences)
        host.close()


async def everything_before(
    database: Database, client: romulus.AsyncClient, store: PostgresStore, host: MovableHost, provider: Path
) -> Record:
    """Have every kind of run stand where the backup is to find it; return one that a worker of this process has claimed."""
    for name, workflow in WORKFLOWS.items():
        await client.start(workflow.options(id=name))
    assert await client.get("plain").result(timeout=60) == "plain packed"
    record = await claimed(store, host)
    await until(lambda: done(provider, "claimed") == done(provider, "sending") == 1)
    parked = "SELECT count(*) FROM romulus.runs WHERE id IN ('waiting', 'charging') AND status = 'waiting' AND position = 1"
    await until(lambda: database.execute(parked) == [(2,)])
    return record


async def reached(backed_up: BackedUp, point: str) -> dict[str, str]:
    """Let *point* be now, and return the settings that lead back to it."""
    if point == "the base backup":
        await asyncio.to_thread(backed_up.back_up)
        return {}
    with backed_up.server.connect() as connection:
        if point == "a restore point":
            connection.execute("SELECT pg_create_restore_point('before')")
            return {"recovery_target_name": "before"}
        ((now,),) = connection.execute("SELECT clock_timestamp()::text").fetchall()
        return {"recovery_target_time": now}


async def everything_after(database: Database, client: romulus.AsyncClient, provider: Path) -> None:
    """What the world knows, and the backup does not."""
    await client.start(WORKFLOWS["plain"].options(id="later"))
    assert await client.get("later").result(timeout=60) == "plain packed"
    for name in ("waiting", "charging"):
        await client.send_event("go", True, correlation_id=name)
    assert await client.get("waiting").result(timeout=60) == "waiting packed"
    assert await client.get("charging").result(timeout=60) == "charging charged"
    assert done(provider, "charging") == 1


def holds(there: Database, told: Any, fences: int) -> None:
    """What `romulus restore` has done, before any worker is there."""
    assert {run["id"]: run["hold_kind"] for run in told["runs"]} == {"charging": "restore", "sending": "review"}
    assert there.execute("SELECT id FROM romulus.runs WHERE status = 'held' ORDER BY id") == [("charging",), ("sending",)]
    assert there.execute("SELECT count(*) FROM romulus.runs WHERE owner IS NOT NULL") == [(0,)]
    assert there.execute("SELECT count(*) FROM romulus.operations WHERE owner IS NOT NULL") == [(0,)]
    assert there.execute("SELECT count(*) FROM romulus.workers WHERE NOT dead") == [(0,)]
    assert there.execute("SELECT count(*) FROM romulus.runs WHERE finished_at IS NULL AND fence <= %s", fences) == [(0,)]


async def refused(there: Database, store: PostgresStore, record: Record) -> None:
    """A claim of before, from a process that has seen nothing of it all."""
    assert await store.apply([advance(record, entry(0))]) == [Verdict.REFUSED]
    assert await store.reclaim(record.run.key, "w1", record.run.fence) is None
    assert not (await claim(store, "w1")).records, "a dead worker claims nothing"
    assert there.execute("SELECT count(*) FROM romulus.journal j JOIN romulus.runs r ON r.key = j.run WHERE r.id = 'r1'") == [(0,)]


async def goes_on(
    there: Database, client: romulus.AsyncClient, provider: Path, old: list[tuple[Any, ...]], fences: int
) -> None:  # fmt: skip
    """The worker that lived on has come back as another, and works at what may go on by itself."""
    assert await client.get("claimed").result(timeout=60) == "claimed ended"
    await client.send_event("go", True, correlation_id="waiting")
    assert await client.get("waiting").result(timeout=60) == "waiting packed"
    new = there.execute(WORKERS)
    assert len(new) == 1
    assert new != old
    claims = "SELECT j.fence > %s FROM romulus.journal j JOIN romulus.runs r ON r.key = j.run WHERE r.id = 'claimed' ORDER BY j.position"
    assert there.execute(claims, fences) == [(False,), (True,)], "the step's outcome was written under a claim of after the restore"
    assert (done(provider, "claimed"), done(provider, "charging"), done(provider, "sending")) == (2, 1, 1)
    assert there.execute("SELECT id FROM romulus.runs WHERE status = 'held' ORDER BY id") == [("charging",), ("sending",)]
    assert there.execute("SELECT count(*) FROM romulus.runs WHERE id = 'later'") == [(0,)]
