"""One worker process: works until it is told to stop, then stops gracefully."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Protocol

from romulus.core.errors import ConfigurationError

from . import loops

log = logging.getLogger("romulus.worker")
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Workable(Protocol):
    """What has a worker: an App."""

    def worker(self, *, concurrency: int | None = None, pools: Sequence[str] = ("default",)) -> AbstractAsyncContextManager[None]: ...


def serve(app: Workable, concurrency: int, pools: tuple[str, ...]) -> None:
    """Work until SIGTERM or SIGINT. A second signal leaves at once.

    Raises:
        ConfigurationError: not the main thread, which alone gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ConfigurationError("run_worker waits for signals, so call it in the main thread; elsewhere use `async with app.worker()`")
    loops.run(_serve(app, concurrency, pools))


async def _serve(app: Workable, concurrency: int, pools: tuple[str, ...]) -> None:
    stop = asyncio.Event()
    with _on_signals(stop.set):
        async with app.worker(concurrency=concurrency, pools=pools):
            log.info("worker ready, pid %s", os.getpid())
            await stop.wait()
            log.info("worker stopping, pid %s", os.getpid())


@contextmanager
def _on_signals(stop: Callable[[], object]) -> Generator[None]:
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def handle(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)  # the next one ends the process
        loop.call_soon_threadsafe(stop)

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: it was set outside Python
