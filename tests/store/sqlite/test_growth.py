"""What is over leaves no rows behind: a file grows with what is kept, not with what has been."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from romulus.core.transition import Closing
from romulus.store import open_store
from tests.store.kit import SECOND, MovableHost, advance, again, claimed, close, event, wait


@pytest.fixture
def count(tmp_path: Path) -> Callable[[str], int]:
    def counted(table: str) -> int:
        connection: Any = apsw.Connection(str(tmp_path / "store.db"))
        ((rows,),) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
        connection.close()
        return int(rows)

    return counted


async def test_an_event_that_is_deleted_is_not_remembered_as_late(tmp_path: Path, host: MovableHost, count: Callable[[str], int]) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", host)
    await store.open()
    record = await claimed(store, host)
    await store.send([event("e1")])
    await store.apply([advance(record, opens=[wait(1)])])
    await store.match(100)
    await store.apply([advance(await again(store, record), closes=[close(1, Closing.TIMED_OUT)])])
    assert count("late") == 1
    host.advance(2 * SECOND)

    assert await store.expire_events(SECOND, 100) == 1

    assert (count("late"), count("events")) == (0, 0)
    await store.close()
