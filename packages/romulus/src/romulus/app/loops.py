"""Which event loop the process runs on: uvloop where it is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run *main* to its end on a new event loop.

    Raises:
        RuntimeError: this thread runs an event loop already; await the asyncio client there instead.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(main)
    main.close()
    raise RuntimeError("an event loop runs in this thread already: use `async with app.worker(), romulus.AsyncClient(app) as client` there")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the fastest loop there is here, None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
