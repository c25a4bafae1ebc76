"""The activation watchdog: ends workflow code that does not give control back."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable

from romulus.core.errors import ActivationTimeout
from romulus.core.instance import Instance
from romulus.core.ports import Host, Stoppable

log = logging.getLogger("romulus.worker")
Hung = Callable[[], object]


class Watchdog:
    """Watches one activation at a time, from a thread of its own.

    Past the limit it throws `ActivationTimeout` into the loop's thread. If that has not landed in time (the code is
    inside a C call), it calls the activation's *hung* function itself, from its own thread, once.
    """

    def __init__(self, host: Host, limit: int, landing: int) -> None:
        self._host, self._limit, self._landing = host, limit, landing
        self._lock = threading.Lock()
        self._thread = 0  # ident of the loop's thread
        self._instance: Instance | None = None
        self._hung: Hung | None = None
        self._activation = 0  # counts activations, so that a tick can tell a new one
        self._seen = 0  # activation of the last tick
        self._since = 0  # monotonic µs of the first tick that saw it
        self._thrown_at: int | None = None
        self._ticker: Stoppable | None = None

    def start(self) -> None:
        """Begin to watch the calling thread."""
        self._thread = threading.get_ident()
        self._ticker = self._host.every("watchdog", max(self._limit // 8, 10_000), self.tick)

    def stop(self) -> None:
        """End the watch."""
        if self._ticker is not None:
            self._ticker.stop()

    def enter(self, instance: Instance, hung: Hung) -> None:
        """Say that an activation of *instance* begins."""
        self._activation += 1
        self._hung = hung
        self._instance = instance

    def leave(self) -> None:
        """Say that it ended. After this no throw of the watchdog can land any more; one that lands in here comes too late."""
        while True:
            try:
                self._disarm()
            except ActivationTimeout:
                continue
            return

    def _disarm(self) -> None:
        with self._lock:
            self._instance = None
            if self._thrown_at is not None:
                self._thrown_at = None
                _throw(self._thread, None)

    def tick(self) -> None:
        """Look once."""
        hung = None
        with self._lock:
            if self._instance is None or self._activation != self._seen:
                self._seen, self._since = self._activation, self._host.monotonic()
            else:
                hung = self._act(self._instance, self._host.monotonic())
        if hung is not None:
            self._tell(hung)

    def _tell(self, hung: Hung) -> None:
        """Call *hung*; where it fails this thread goes on, and calls it again at the next look."""
        activation = self._activation
        try:
            hung()
        except Exception as error:  # noqa: BLE001  the store cannot be reached, or whatever it is
            log.warning("a run that does not give control back could not be held yet: %s", error)
            with self._lock:
                if self._activation == activation and self._instance is not None:
                    self._hung = hung

    def _act(self, instance: Instance, now: int) -> Hung | None:
        """Throw into an activation that is over its limit; return what to call when the throw did not land."""
        if self._thrown_at is None:
            if now - self._since > self._limit:
                self._thrown_at = now
                instance.interrupt()
                _throw(self._thread, ActivationTimeout)
        elif self._hung is not None and now - self._thrown_at > self._landing:
            hung, self._hung = self._hung, None
            return hung
        return None


def _throw(thread: int, exception: type[BaseException] | None) -> None:
    """Raise *exception* in the thread at its next bytecode; None takes back one that has not landed."""
    target = ctypes.py_object(exception) if exception is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), target)
