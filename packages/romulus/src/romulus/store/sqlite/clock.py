"""The store's clock: this machine's, but it never goes back within a process, nor behind what the file says as it is opened."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from romulus.core.ports import Host

if TYPE_CHECKING:
    from .session import Session

log = logging.getLogger("romulus.store")

AHEAD_MAX: Final = 86_400 * 1_000_000  # µs: a wall clock further behind than this is believed, and the store's clock goes back
CATCH_UP: Final = 10  # while it is ahead, the store's clock goes slower by the tenth part until the wall clock has caught up
# Times that the file holds: what workers last wrote, and the newest entry, event and run.
SEEN: Final = (
    "SELECT max(coalesce((SELECT max(renewed_at) FROM workers), 0), coalesce((SELECT at FROM journal ORDER BY rowid DESC LIMIT 1), 0), "
    "coalesce((SELECT received_at FROM events ORDER BY arrival DESC LIMIT 1), 0), "
    "coalesce((SELECT created_at FROM runs ORDER BY key DESC LIMIT 1), 0))"
)


class Clock:
    """µs since the epoch, from any thread.

    It follows the wall clock wherever that goes forward: after a sleep of the machine, or when it is set. Set back, by an hour say, the
    wall clock would leave due work waiting for that hour and make times go back: the store's clock goes on from where it was, a tenth
    slower until the two agree again. One set back by more than a day had been wrong before: it is followed, with a warning.
    """

    def __init__(self, host: Host) -> None:
        self._wall: Callable[[], int] = host.wall
        self._monotonic: Callable[[], int] = host.monotonic
        self._lock = threading.Lock()
        self._now = self._wall()  # what it said last
        self._at: int | None = None  # monotonic µs of then, while the wall clock is behind: reading that clock as well takes a system call

    def now(self) -> int:
        """Return the store's time."""
        wall = self._wall()
        if wall >= self._now:
            self._now, self._at = wall, None  # of two threads either may be the last to write: both read it just now
            return wall
        with self._lock:
            self._now = self._ahead(wall)
            return self._now

    def seen(self, time: int) -> None:
        """Go on from *time* if that is later: another process has seen it. One more than a day ahead of this machine's is not believed."""
        with self._lock:
            if self._now < time <= self._wall() + AHEAD_MAX:
                self._now = time

    def _ahead(self, wall: int) -> int:
        """Return what the clock says now that the wall clock is behind what it said last."""
        if self._now - wall > AHEAD_MAX:
            log.warning(
                "the clock was set back by %.0f s, more than a day: the store's times go back with it", (self._now - wall) / 1_000_000
            )
            return wall
        at = self._monotonic()
        elapsed = max(at - self._at, 0) if self._at is not None else 0
        self._at = at
        return self._now + elapsed - elapsed // CATCH_UP


def catch_up(session: Session) -> None:
    """Take the file's latest time over, so that what this process writes is not before what others wrote."""
    session.clock.seen(session.value("clock.seen", SEEN))
