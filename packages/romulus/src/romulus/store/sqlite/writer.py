"""The writer: one connection, one piece of work at a time, first come first served, in place where that is quick.

A hop to the writer's thread costs more than a whole commit where flushes are fast, and against a busy loop each statement there
waits for the interpreter lock. So work runs where it was asked for while the file is free and recent work was quick; a slow disk
or another process's lock sends it to the thread, and from time to time one piece tries in place again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from romulus.core.ports import Host

from .faults import FileBusy
from .session import Session

T = TypeVar("T")

QUICK_MAX: Final = 4_000  # µs that work in place may take, on the average of recent work
COUNTED_MAX: Final = 2 * QUICK_MAX  # of one piece: a disk that pauses now and then is no slow disk
AWAY: Final = 32  # pieces of work done on the thread before one tries in place again


class Pace:
    """Whether work is quick enough to be done in place."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._mean = 0
        self._away = 0

    def in_place(self) -> bool:
        """Return whether the next piece of work should be tried in place."""
        if self._away:
            self._away -= 1
            return False
        return True

    def took(self, since: int) -> None:
        """Note that work in place began at *since* (monotonic) and has just ended."""
        self._mean += (min(self._host.monotonic() - since, COUNTED_MAX) - self._mean) // 4
        if self._mean > QUICK_MAX:
            self.leave()

    def leave(self) -> None:
        """Do the next work on the thread, and more of it if what then tries in place is not quick at once."""
        self._mean, self._away = QUICK_MAX, AWAY


class Writer:
    """Serialises all writes of one store object."""

    def __init__(self, session: Session, host: Host, patience: int) -> None:
        self.session = session
        self.patience = patience  # µs that work on the thread waits for the file's lock
        self._host = host
        self._pace = Pace(host)
        self._waiting: deque[tuple[Callable[[Session], Any] | None, asyncio.Future[Any]]] = deque()
        self._busy = False

    async def run(self, work: Callable[[Session], T], here: Callable[[Session], T] | None = None) -> T:
        """Run *work* on the writer's connection in its turn. It must be one transaction that may be begun again.

        *here* is what runs instead if that is in place.
        """
        if not self._busy and self._pace.in_place():
            self._busy = True
            try:
                return self._in_place(here or work)
            except FileBusy:
                self._pace.leave()
            finally:
                self._next()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._enter(work, future)
        return await future

    def glance(self, look: Callable[[Session], T]) -> T | None:
        """Return what *look*, a short read, says; None while the connection is in use."""
        if self._busy:
            return None
        self.session.patience.limit = 0
        return self.session.read(look)

    async def hold(self) -> Callable[[], None]:
        """Wait for the writer and keep everybody else out until the returned function is called."""
        future: asyncio.Future[Callable[[], None]] = asyncio.get_running_loop().create_future()
        self._enter(None, future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                future.result()()  # it was granted in the moment the caller was cancelled
            raise

    def _enter(self, work: Callable[[Session], Any] | None, future: asyncio.Future[Any]) -> None:
        self._waiting.append((work, future))
        if not self._busy:
            self._next()

    def _next(self) -> None:
        """Begin what waits longest; nothing of a cancelled call has begun."""
        self._busy = False
        while self._waiting and not self._busy:
            work, future = self._waiting.popleft()
            if future.cancelled():
                continue
            self._busy = True
            if work is None:
                future.set_result(self._release_once())
            else:
                self._on_thread(work, future)

    def _in_place(self, work: Callable[[Session], T]) -> T:
        began, self.session.patience.limit = self._host.monotonic(), 0
        result = work(self.session)
        self._pace.took(began)
        return result

    def _on_thread(self, work: Callable[[Session], Any], future: asyncio.Future[Any]) -> None:
        self.session.patience.limit = self.patience
        self._host.offload("writer", partial(work, self.session)).add_done_callback(partial(self._done, future))

    def _done(self, future: asyncio.Future[Any], done: asyncio.Future[Any]) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if not future.cancelled():
            if isinstance(error, asyncio.CancelledError):
                future.cancel()
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(done.result())
        self._next()

    def _release_once(self) -> Callable[[], None]:
        held = [True]

        def release() -> None:
            if held:
                held.clear()
                self._next()

        return release
