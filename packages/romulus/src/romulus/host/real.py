"""The real `Host`: this machine's clocks and threads, and the asyncio loop that is running."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import Context
from secrets import randbits
from time import monotonic_ns, time_ns  # by name: in the module, what workflow code calls is replaced by a check
from typing import Any, TypeVar

from romulus.core.ports import ProcessIdentity

from .heap import trim
from .identity import is_alive, this_process
from .pool import DaemonPool

T = TypeVar("T")


class RealHost:
    """Threads, clocks and timers of this process, bound to one event loop.

    Make it where the loop runs; `close()` ends its threads.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, *, pool_max: int = 64) -> None:
        self.loop = loop or asyncio.get_running_loop()
        self.identity = this_process()
        self._pool_max = pool_max
        self._lanes: dict[str, Executor] = {}

    def wall(self) -> int:
        """Return µs since the epoch."""
        return time_ns() // 1000

    def monotonic(self) -> int:
        """Return µs on the machine's monotonic clock."""
        return monotonic_ns() // 1000

    def random_bits(self, bits: int) -> int:
        """Return random bits from the operating system."""
        return randbits(bits)

    def call_later(self, delay: int, fn: Callable[..., object], *args: object) -> asyncio.Handle:
        """Call *fn* on the loop after *delay* µs."""
        return self.loop.call_later(max(delay, 0) / 1_000_000, fn, *args)

    def call_soon(self, fn: Callable[..., object], *args: object) -> None:
        """Call *fn* on the loop, in a plain callback."""
        self.loop.call_soon(fn, *args)

    def call_from_thread(self, fn: Callable[..., object], *args: object) -> None:
        """Call *fn* on the loop from any thread; silently nothing once the loop is closed."""
        try:
            self.loop.call_soon_threadsafe(fn, *args)
        except RuntimeError:
            if not self.loop.is_closed():
                raise

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, context: Context | None = None, name: str | None = None) -> asyncio.Task[T]:
        """Run *coroutine* as a task of the loop."""
        return self.loop.create_task(coroutine, name=name, context=context)

    def offload(self, lane: str, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Run *fn* on the lane's one thread."""
        return self.loop.run_in_executor(self._lane(lane), fn)

    def in_pool(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Run *fn* on a thread of the bounded pool."""
        lane = self._lanes.get("steps")
        if lane is None:
            lane = self._lanes["steps"] = DaemonPool(self._pool_max, "romulus-steps")
        return self.loop.run_in_executor(lane, fn)

    def every(self, name: str, interval: int, fn: Callable[[], object]) -> Periodic:
        """Call *fn* about every *interval* µs on a thread of its own."""
        return Periodic(name, interval, fn)

    def process_alive(self, identity: ProcessIdentity) -> bool | None:
        """Return whether that process still runs; None where it cannot be told."""
        return is_alive(identity)

    def give_memory_back(self) -> None:
        """Have the C library return free pages of its heap, where it can; without that it keeps them for good."""
        trim()

    def crash_point(self, name: str) -> None:
        """Mark a place where a crash must lose nothing; real processes crash without being asked."""

    def close(self) -> None:
        """End the lanes' threads; a step's thread that does not end is left to the end of the process."""
        for lane in self._lanes.values():
            lane.shutdown(wait=False, cancel_futures=True)
        self._lanes.clear()

    def _lane(self, name: str) -> Executor:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = ThreadPoolExecutor(1, thread_name_prefix=f"romulus-{name}")
        return lane


class Periodic:
    """A thread that calls a function again and again until it is stopped."""

    def __init__(self, name: str, interval: int, fn: Callable[[], object]) -> None:
        self._seconds, self._fn, self._stop = interval / 1_000_000, fn, threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"romulus-{name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop it and wait for the call in progress to end."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._fn()
            if self._stop.wait(self._seconds):
                return
