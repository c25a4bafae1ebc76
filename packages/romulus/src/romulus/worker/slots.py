"""Slots for attempts: how many step bodies a worker runs at once, handed out fairly between runs."""

from __future__ import annotations

from collections import deque
from typing import Protocol


class Waiter(Protocol):
    """A run with commands queued for a slot."""

    def slot_granted(self) -> None:
        """Take note of one slot reserved for this run."""


class Slots:
    """A bounded number of slots; runs that found none are served in the order they asked, one slot a turn."""

    def __init__(self, limit: int) -> None:
        self.limit, self.free = limit, limit
        self._waiting: deque[Waiter] = deque()

    def take(self) -> bool:
        """Take a free slot if nobody waits for one."""
        if self.free and not self._waiting:
            self.free -= 1
            return True
        return False

    def give(self) -> None:
        """Give a slot back: to the run that waits longest, else to the free ones."""
        if self._waiting:
            self._waiting.popleft().slot_granted()
        else:
            self.free += 1

    def wait(self, waiter: Waiter) -> None:
        """Grant *waiter* one slot when one is given back."""
        self._waiting.append(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Take *waiter* off the list."""
        while waiter in self._waiting:
            self._waiting.remove(waiter)

    @property
    def used(self) -> int:
        """Return how many attempts hold a slot."""
        return self.limit - self.free
