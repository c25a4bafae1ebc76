"""A worker's lease: a connection on an event loop and a thread of its own, so that a blocked worker still renews."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError as FutureCancelled
from typing import Any, Final, TypeVar, cast

from romulus.core.errors import StoreUnavailable
from romulus.core.ports import Host
from romulus.core.transition import Transition, Verdict
from romulus.store.contract import RowsLocked

from . import workers
from .apply import apply
from .place import Place
from .pool import Pool

T = TypeVar("T")

CONNECTIONS: Final = 2  # a renewal does not wait for what the watchdog writes; the second is opened when that happens


class PostgresLease:
    """Renews one worker's row; its calls block, and come from the lease thread and the watchdog's."""

    def __init__(
        self, place: Place, host: Host, pooled: bool | None, worker_id: str, length: int, begun: int, told: Callable[[], object]
    ) -> None:
        """*told*: called on the store's loop when something was written that others may wait for."""
        self._told = told
        self._host, self._worker_id, self._length, self._until = host, worker_id, length, begun + length
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="romulus-lease-connection", daemon=True)
        self._thread.start()
        own = cast("Host", _LeaseHost(host, self._loop))
        self._pool = self._call(_pool(place, own, pooled))
        self._patience = length / 4 / 1_000_000  # seconds

    def renew(self, attempts: Sequence[int] = ()) -> bool:
        """Extend the lease by its length from now; False: the worker was marked dead."""
        begun = self._host.monotonic()
        renewed = self._call(self._pool.read(lambda s: workers.renew(s, self._worker_id, self._length, attempts)), self._patience)
        if not renewed:
            return False
        self._until = begun + self._length
        return True

    def remaining(self) -> int:
        """Return µs left by the last successful renewal."""
        return self._until - self._host.monotonic()

    def apply(self, transition: Transition) -> Verdict:
        """Write one transition from the lease's thread."""
        verdict = self._call(apply(self._pool, [transition]))[0]
        if verdict is Verdict.LOCKED:
            raise RowsLocked("another transaction holds the run's row: the transition was not written")
        self._host.call_from_thread(self._told)
        return verdict

    def close(self) -> None:
        """Close the lease's connection."""
        if self._loop.is_closed():
            return
        self._call(self._pool.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Run *work* on the lease's loop and wait for it.

        Raises:
            StoreUnavailable: also when it takes longer than *seconds*.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds)
        except (TimeoutError, FutureCancelled) as error:
            future.cancel()
            raise StoreUnavailable(f"the lease was not renewed within {seconds} s") from error


async def _pool(place: Place, host: Host, pooled: bool | None) -> Pool:
    pool = Pool(place, host, CONNECTIONS)
    pool.pooled = pooled
    return pool


class _LeaseHost:
    """The store's host, with the timers of the lease's own loop."""

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        self._host, self._loop = host, loop

    def call_later(self, delay: int, fn: Any, *args: object) -> asyncio.Handle:
        """Call *fn* on the lease's loop after *delay* µs."""
        return self._loop.call_later(max(delay, 0) / 1_000_000, fn, *args)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the host's own."""
        return getattr(self._host, name)
