"""Writes of every ability told up to each statement on PostgreSQL, where their worker dies: another one settles what is stored."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import romulus
from romulus import Applied, LookupResult, NotApplied, Operation, Retry
from romulus.core.machine import RunStatus
from romulus.host import RealHost
from romulus.store import open_store
from romulus.worker import Worker
from tests.postgres.kit import Died
from tests.postgres.server import Database
from tests.worker.rig import QUICK, World, url_of, world

FULL = bool(os.environ.get("CASES_FULL"))
STRIDE = 1 if FULL else 13
LEASE = 300_000  # µs
PATH = ("apply", "operations.", "operation.", "report.")  # names of the statements that write an operation, and of the send
SOON = Retry(max_attempts=5, initial=0.01, jitter=0)
begun: Counter[str] = Counter()  # bodies by operation ID
effects: Counter[str] = Counter()  # by operation ID


@pytest.fixture(autouse=True)
def _on_postgres(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "database_used", database)


def send(op: Operation, *, keyed: bool) -> str:
    """Apply it, under a key once; the first answer of each is lost."""
    begun[op.id] += 1
    if not (keyed and effects[op.id]):
        effects[op.id] += 1
    if begun[op.id] == 1:
        raise TimeoutError("no answer")
    return "done"


def find(op: Operation) -> LookupResult[str]:
    return Applied("done") if effects[op.id] else NotApplied()


@romulus.operation(timeout=0.3, retry=SOON, lookup_retry=SOON)
async def looked_up(op: Operation) -> str:
    await asyncio.sleep(0)
    return send(op, keyed=False)


@looked_up.lookup
async def find_looked_up(op: Operation) -> LookupResult[str]:
    return find(op)


@romulus.operation(timeout=0.3, retry=SOON, idempotent=True)
async def keyed(op: Operation) -> str:
    return send(op, keyed=True)


@romulus.operation(timeout=0.3, retry=SOON, lookup_retry=SOON, idempotent=True)
async def both(op: Operation) -> str:
    return send(op, keyed=True)


@both.lookup
def find_both(op: Operation) -> LookupResult[str]:
    return find(op)


@romulus.operation(timeout=0.3, retry=SOON)
def blind(op: Operation) -> str:
    return send(op, keyed=False)


@romulus.workflow
async def four() -> list[str]:
    return list(await asyncio.gather(looked_up(), keyed(), both(), blind.aio()))


class Mortal(RealHost):
    """The real host of a worker that dies at a crash point of its writes: whatever it still does, nothing of it reaches the store."""

    def __init__(self, points_left: int) -> None:
        super().__init__()
        self.points_left = points_left
        self.dead = asyncio.Event()
        self._writing = False

    def crash_point(self, name: str) -> None:
        if self._counts(name):
            self.points_left -= 1
        if self.points_left < 0:
            self.loop.call_soon_threadsafe(self.dead.set)
            raise Died(name)

    def _counts(self, name: str) -> bool:
        """Return whether it is a place before a statement of a write, or before or after its commit."""
        committing = self._writing and name.startswith("postgres.commit")
        self._writing = (self._writing or name.startswith(PATH)) and name != "postgres.commit.done"
        return committing or (name.startswith(PATH) and not name.endswith(".done"))


async def mortal(here: World, points: int) -> tuple[Worker, Mortal]:
    """Start a worker that dies at its write's crash point of that number, 0 the first."""
    host = Mortal(1 << 30)
    store = open_store(url_of(here.path), host)
    await store.open()
    worker = Worker(store, host, here.app.registry, concurrency=20, settings=replace(QUICK, lease=LEASE))
    await worker.start()
    here.workers.append(worker)
    host.points_left = points
    return worker, host


async def finish(here: World) -> None:
    """Say the truth of what is held until the run has ended."""
    while (await here.client.get("w").describe()).status is not RunStatus.SUCCEEDED:
        for held in await here.client.operations(state="held"):
            word = Applied("done") if effects[held.id] else NotApplied()
            await here.client.resolve_operation(held.id, word, reason="looked", reviewer="ada")
        await asyncio.sleep(0.01)


async def told_up_to(tmp_path: Path, points: int) -> bool:
    """Let the first worker die there, and another go on; return whether the story went on so far."""
    begun.clear()
    effects.clear()
    async with world(tmp_path, four) as here:
        worker, host = await mortal(here, points)
        await here.client.start(four.options(id="w"))
        ended = asyncio.ensure_future(finish(here))
        death = asyncio.ensure_future(host.dead.wait())
        await asyncio.wait([ended, death], return_when=asyncio.FIRST_COMPLETED)
        reached = host.dead.is_set()
        await here.kill(worker)
        await here.worker(lease=LEASE)
        await ended
        death.cancel()
        operations = await here.client.operations()
        assert {each.state for each in operations} == {"confirmed"}, points
        assert dict(effects) == {each.id: 1 for each in operations}, points
        assert await here.client.get("w").result(timeout=20) == ["done"] * 4
        return reached


@pytest.mark.timeout(3600 if FULL else 300)
async def test_a_worker_that_dies_before_any_statement_of_a_write_leaves_one_effect(tmp_path: Path, database: Database) -> None:
    point = 2
    while await told_up_to(tmp_path, point):
        database.empty()
        point += STRIDE
    assert point > 50
