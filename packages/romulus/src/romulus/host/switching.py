"""How soon a thread that waits for the interpreter demands it: as soon as the most urgent of those who ask.

A thread waits for the switch interval, 5 ms, before it demands the interpreter; code that lets go of it every moment starts that wait
anew each time, and may keep it for seconds. A writer of SQLite waits between two statements of a transaction, with the
file locked: every other process waits with it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Final

BODIES_S: Final = 0.000_2  # while `def` bodies run in threads: costs them a few percent, and nothing while none runs
BLOCKED_S: Final = 0.000_05  # while the loop is blocked: the lease's thread has to get through

_lock = threading.Lock()
_asked: list[float] = []
_own: list[float] = []  # the interpreter's own interval, while somebody asks for another


def ask(seconds: float) -> Callable[[], None]:
    """Have waiting threads demand the interpreter after *seconds*, until the returned function is called. From any thread."""
    with _lock:
        if not _asked:
            _own[:] = [sys.getswitchinterval()]
        _asked.append(seconds)
        _set()
    return _once(seconds)


def _once(seconds: float) -> Callable[[], None]:
    left = [seconds]

    def end() -> None:
        with _lock:
            if left:
                _asked.remove(left.pop())
                _set()

    return end


def _set() -> None:
    interval = min((*_asked, *_own))
    if interval != sys.getswitchinterval():
        sys.setswitchinterval(interval)
