"""Which event loop the process runs on: uvloop where it is installed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
COLLECT_AFTER = (20_000, 20, 100)  # objects made beyond those freed, young collections, middle collections


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run *main* to its end on a new event loop.

    Raises:
        RuntimeError: this thread runs an event loop already; await the asyncio client there instead.
    """
    if _running():
        main.close()
        raise RuntimeError(
            "an event loop runs in this thread already: use `async with app.worker(), romulus.AsyncClient(app) as client` there"
        )
    with rare_collection(), asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)


def _running() -> bool:
    """Return whether this thread runs an event loop. Apart, so that no failure of *main* has "no running event loop" as its context."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@contextmanager
def rare_collection() -> Generator[None, None, None]:
    """Let the garbage collector run less often while this process works: runs make many objects that reference counts free."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the fastest loop there is here, None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
