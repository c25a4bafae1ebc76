"""Keeps the worker's lease from a thread of its own, however long user code blocks the event loop."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Sequence

from romulus.core.ports import Host, Stoppable
from romulus.host.switching import BLOCKED_S, ask
from romulus.store.contract import Lease

from .settings import SECOND, WorkerSettings

log = logging.getLogger("romulus.worker")


class LeaseKeeper:
    """Renews the lease while the event loop lives, reports a blocked loop with its stack, and tells when the lease is lost."""

    def __init__(
        self, host: Host, lease: Lease, settings: WorkerSettings, lost: Callable[[], object], attempts: Callable[[], Sequence[int]] = tuple
    ) -> None:
        """*attempts*: those of pools that are worked here, from any thread."""
        self._host, self._lease, self._settings, self._lost, self._attempts = host, lease, settings, lost, attempts
        self._beat = host.monotonic()  # last time the loop ran our callback
        self._loop_thread = threading.get_ident()
        self._reported = False
        self._over = False
        self._warned = set[str]()  # what was said since the last renewal
        self._unhurry: Callable[[], None] | None = None  # while the interpreter is asked for sooner
        self._ticker: Stoppable | None = None

    def start(self) -> None:
        """Begin to renew, three times a lease and more."""
        self._ticker = self._host.every("lease", self._settings.lease // 4, self.tick)

    def stop(self) -> None:
        """End the renewals and close the lease's connection."""
        self._over = True
        if self._ticker is not None:
            self._ticker.stop()
        self._hurry(False)
        self._lease.close()

    def safe(self) -> bool:
        """Return whether something new may be armed: the lease lasts beyond the margin."""
        return not self._over and self._lease.remaining() > self._settings.margin

    def tick(self) -> None:
        """Renew once, unless the loop has been blocked past the stall limit."""
        if self._over:
            return
        self._host.call_from_thread(self._on_loop)
        blocked = self._host.monotonic() - self._beat
        self._hurry(blocked > self._settings.lease // 4)
        if blocked <= self._settings.stall_limit:
            self._renew()
        if blocked > self._settings.stall_report + self._settings.lease // 4:
            self._report(blocked)

    def _hurry(self, blocked: bool) -> None:
        """Ask for the interpreter sooner while the loop is blocked: code that lets go of it every moment has it back before we wake up."""
        if blocked and self._unhurry is None:
            self._unhurry = ask(BLOCKED_S)
        elif not blocked and self._unhurry is not None:
            self._unhurry()
            self._unhurry = None

    def _renew(self) -> None:
        try:
            alive = self._lease.renew(self._attempts())
        except Exception as error:  # noqa: BLE001  a commit whose outcome is unknown too: this thread must outlive whatever it is
            self._warn(error)
            return
        self._warned.clear()
        if not alive and not self._over:
            self._over = True
            self._host.call_from_thread(self._lost)

    def _on_loop(self) -> None:
        self._beat, self._reported = self._host.monotonic(), False

    def _warn(self, error: Exception) -> None:
        if str(error) not in self._warned:
            self._warned.add(str(error))
            log.warning("lease not renewed, %.1f s left: %s", self._lease.remaining() / SECOND, error)

    def _report(self, blocked: int) -> None:
        """Log once what blocks the event loop."""
        if self._reported:
            return
        self._reported = True
        frame = sys._current_frames().get(self._loop_thread)
        stack = "".join(traceback.format_stack(frame)) if frame else "(no stack)"
        log.warning(
            "the event loop has been blocked for %.1f s: blocking code belongs in a def step, unless the whole process was stopped:\n%s",
            blocked / SECOND, stack,
        )  # fmt: skip
