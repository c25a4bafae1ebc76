"""Which event loop the process runs on: uvloop where it is installed."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

log = logging.getLogger("romulus")
T = TypeVar("T")
LEAVE_S: Final = 1.0  # that tasks which are left may take to end once they are cancelled
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
        return runner.run(_leaving(main))


async def _leaving(main: Coroutine[Any, Any, T]) -> T:
    try:
        return await main
    finally:
        await _leave()


async def _leave() -> None:
    """Cancel what is left on the loop and forget what goes on all the same: a runner waits for that for ever, and the process with it."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    for deaf in (await asyncio.wait(left, timeout=LEAVE_S))[1] if left else ():
        log.warning("%s goes on although it was cancelled: the process ends without it", deaf.get_name())
        asyncio.tasks._unregister_task(deaf)  # documented, for those who bring tasks of their own
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(deaf))  # never taken down: its code would be told to end once more, and go on


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
