"""The look at the file for commits of others goes on whatever one look meets."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import apsw
import pytest

from romulus.core.errors import NotOurFile, StoreUnavailable
from romulus.store.sqlite.watching import MISSED_MAX, Watch
from romulus.store.sqlite.writer import Writer
from tests.store.kit import MovableHost


class Failing:
    """A writer on which every look fails."""

    def __init__(self, error: Exception) -> None:
        self.error, self.looks = error, 0

    def glance(self, look: Any) -> int | None:
        self.looks += 1
        raise self.error


@pytest.mark.parametrize("error", [StoreUnavailable("away"), NotOurFile("another"), apsw.SchemaChangeError("changed")])
async def test_looks_go_on_after_one_that_failed_and_give_a_hint_now_and_then(host: MovableHost, error: Exception) -> None:
    writer = Failing(error)
    watch = Watch(cast("Writer", writer), host)
    changes = watch.changes()
    await anext(changes)
    assert writer.looks == MISSED_MAX
    await anext(changes)
    assert writer.looks == 2 * MISSED_MAX
    watch.close()


class Timers:
    """A host whose timers fire when they are told to."""

    def __init__(self) -> None:
        self.handles: list[asyncio.Handle] = []

    def call_later(self, delay: int, callback: Any, *args: Any) -> asyncio.Handle:
        self.handles.append(asyncio.Handle(callback, args, asyncio.get_running_loop()))
        return self.handles[-1]

    def fire(self) -> None:
        (handle,), self.handles = self.handles, []
        handle._run()


class Seeing:
    """A writer's connection to a file with this version of its data."""

    version = 1

    def glance(self, look: Any) -> int | None:
        return self.version


def listening(watch: Watch, count: int) -> list[Any]:
    """Return who listens: an iterator with what waits for its next change."""
    listeners: list[Any] = [watch.changes() for _ in range(count)]
    return [(listener, asyncio.ensure_future(anext(listener))) for listener in listeners]


async def test_one_look_at_a_time_is_for_all_that_listen_and_there_is_none_for_nobody() -> None:
    timers, writer = Timers(), Seeing()
    watch = Watch(cast("Writer", writer), cast("Any", timers))
    listeners = listening(watch, 3)
    await asyncio.sleep(0)

    timers.fire()
    await asyncio.gather(*(told for _, told in listeners))  # the first look tells: it has seen nothing before
    told = [asyncio.ensure_future(anext(listener)) for listener, _ in listeners]
    await asyncio.sleep(0)
    timers.fire()
    await asyncio.sleep(0)
    assert not any(each.done() for each in told)
    writer.version = 2
    timers.fire()
    await asyncio.gather(*told)

    for listener, _ in listeners:
        await listener.aclose()
    timers.fire()
    assert timers.handles == []


async def test_a_watch_that_is_closed_looks_no_more() -> None:
    timers = Timers()
    watch = Watch(cast("Writer", Seeing()), cast("Any", timers))
    ((listener, told),) = listening(watch, 1)
    await asyncio.sleep(0)

    watch.close()

    assert [handle.cancelled() for handle in timers.handles] == [True]
    told.cancel()
    await asyncio.gather(told, return_exceptions=True)
    await listener.aclose()
