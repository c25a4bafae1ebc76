"""Waiting for a run: told by a worker here, or by one look for many, that it is over; its record is read and nothing before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from romulus.client.changes import Changes, RunWatch
from romulus.core.machine import TERMINAL, RunStatus
from romulus.core.requests import terminate
from romulus.host import RealHost
from romulus.store import open_store
from romulus.store.contract import Store
from tests.store.kit import new_run


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    host = RealHost()
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", host)
    await store.open()
    yield store
    await store.close()
    host.close()


class Hints:
    """Commits of other processes, told when the test says so, and what is looked at after each."""

    def __init__(self, store: Store) -> None:
        self.hub, self._store = store.hub, store
        self._commits: asyncio.Queue[None] = asyncio.Queue()
        self.looks: asyncio.Queue[set[str]] = asyncio.Queue()

    def commit(self) -> None:
        self._commits.put_nowait(None)

    async def changes(self) -> AsyncIterator[None]:
        while True:
            yield await self._commits.get()

    async def statuses(self, namespace: str, run_ids: Sequence[str]) -> Mapping[str, RunStatus]:
        found = await self._store.statuses(namespace, run_ids)
        self.looks.put_nowait(set(run_ids))
        return found


async def test_one_look_serves_all_who_wait_for_an_end_and_wakes_only_those_whose_run_is_over(store: Store) -> None:
    await store.start([new_run("goes on"), new_run("also"), new_run("cancelled")])
    hints = Hints(store)
    changes = Changes(cast("Store", hints))
    watches = {name: RunWatch(store, changes, "default", name, TERMINAL) for name in ("goes on", "also", "cancelled", "missing")}
    hints.commit()
    assert await hints.looks.get() == watches.keys()
    assert await watches["missing"].changed() is True  # its reader says so
    await store.change("default", "cancelled", lambda run, _, now: terminate(run, "", now))
    hints.commit()
    assert await watches["cancelled"].changed() is True
    assert not any(watches[name]._told.is_set() for name in ("goes on", "also"))
    await changes.close()


async def test_who_watches_a_run_hears_of_every_commit(store: Store) -> None:
    await store.start([new_run("goes on")])
    hints = Hints(store)
    changes = Changes(cast("Store", hints))
    watch = RunWatch(store, changes, "default", "goes on")
    hints.commit()
    assert await watch.changed() is False
    assert hints.looks.empty()  # nobody waits for an end
    await changes.close()


async def test_a_waiter_knows_whether_a_worker_here_has_told_it(store: Store) -> None:
    changes = Changes(cast("Store", Hints(store)))
    with RunWatch(store, changes, "default", "r1", TERMINAL) as watch:
        watch.tell(over=False)
        assert await watch.changed() is False
        store.hub.changed("default", "r1")
        assert await watch.changed() is True
        watch.tell(over=False)
        assert await watch.changed() is False
    await changes.close()
