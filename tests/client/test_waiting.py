"""Waiting for a run: told by a worker here that it is over, its record is read and nothing before it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest

from romulus.client.changes import Changes, RunWatch
from romulus.host import RealHost
from romulus.store import open_store
from romulus.store.contract import Store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    host = RealHost()
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", host)
    await store.open()
    yield store
    await store.close()
    host.close()


class Hints:
    """Commits of other processes, told when the test says so."""

    def __init__(self) -> None:
        self.tell: Callable[[], object] = lambda: None

    def watch(self, notice: Callable[[], object]) -> Callable[[], object]:
        self.tell = notice
        return lambda: None


async def test_a_waiter_knows_whether_a_worker_here_has_told_it(store: Store) -> None:
    hints = Hints()
    with RunWatch(store, cast("Changes", hints), "default", "r1") as watch:
        hints.tell()
        assert await watch.changed() is False
        store.hub.changed("default", "r1")
        assert await watch.changed() is True
        hints.tell()
        assert await watch.changed() is False
