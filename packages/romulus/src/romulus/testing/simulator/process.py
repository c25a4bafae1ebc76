"""A simulated operating-system process: alive, stalled or gone, with everything that runs in its name."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any


class SimCrash(BaseException):
    """Unwinds out of the code of a simulated process that has just died: nothing it does on the way counts."""


class ProcessDied(Exception):
    """The simulated process that was to answer a call is gone; whether it had done it is unknown."""


class SimProcess:
    """What a SIGKILL ends and a SIGSTOP holds up: queues of callbacks, tasks, database connections."""

    def __init__(self, name: str, pid: int) -> None:
        self.name, self.pid = name, pid
        self.alive = True
        self.stalled_until = 0  # virtual µs: nothing of it runs before (SIGSTOP)
        self.blocked_until = 0  # virtual µs: its event loop is blocked, its threads run on
        self.stops: list[tuple[int, int]] = []  # virtual µs: from when until when it stood still, in either way
        self.checked_at = 0  # virtual µs: when it looked at its lease last, right before the body of an operation
        self.declared_dead_at: int | None = None  # virtual µs: somebody said so, and it lives
        self.loop_queue: deque[Any] = deque()
        self.thread_queue: deque[Any] = deque()
        self.tasks: list[asyncio.Task[Any]] = []  # strong: nothing of a dead process may be collected while the world runs
        self.connections: list[Any] = []
        self.last_words: list[Callable[[], object]] = []  # what others in the simulation do when it dies

    def stop(self, now: int, until: int) -> None:
        """Run nothing of it before *until*, as after SIGSTOP."""
        self.stalled_until = max(until, self.stalled_until)
        self.stops.append((now, until))

    def block(self, now: int, until: int) -> None:
        """Run nothing but its threads before *until*."""
        self.blocked_until = max(until, self.blocked_until)
        self.stops.append((now, until))

    def stood_still(self, since: int, until: int) -> bool:
        """Return whether it stood still at some time between the two."""
        return any(begin <= until and end >= since for begin, end in self.stops)

    def runnable(self, now: int) -> deque[Any] | None:
        """Return the queue that runs next, None if nothing of the process can run now."""
        if not self.alive or self.stalled_until > now:
            return None
        if self.thread_queue:
            return self.thread_queue
        return self.loop_queue if self.loop_queue and self.blocked_until <= now else None

    def held_until(self, now: int) -> int | None:
        """Return when callbacks that are ready can run again, None if none are held up."""
        if not self.alive or not (self.loop_queue or self.thread_queue):
            return None
        until = max(self.stalled_until, self.blocked_until if not self.thread_queue else 0)
        return until if until > now else None

    def kill(self) -> None:
        """End it: no more of its code runs, its open transactions are undone."""
        if not self.alive:
            return
        self.alive = False
        self.loop_queue.clear()
        self.thread_queue.clear()
        for connection in self.connections:
            connection.close(True)
        self.connections.clear()
        for tell in self.last_words:
            tell()
        self.last_words.clear()

    def __repr__(self) -> str:
        return f"<process {self.name}>"
