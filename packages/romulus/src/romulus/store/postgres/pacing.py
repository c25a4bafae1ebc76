"""Looks that read what died since somebody's old transaction began: each takes a small share of the time at most, however much that is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from romulus.core.ports import Host

T = TypeVar("T")

SHARE: Final = 200  # a look that took so long is made again after so many times as long


class Paced(Generic[T]):
    """One such look; while it finds something it is made whenever it is asked for."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._next = 0  # host's monotonic µs

    @property
    def due(self) -> bool:
        """Return whether its time has come."""
        return self._host.monotonic() >= self._next

    def soon(self) -> None:
        """Let the next look be made whenever it is asked for: there may be something."""
        self._next = 0

    async def look(self, work: Callable[[], Awaitable[list[T]]], *, at_once: bool = False) -> list[T]:
        """Return what *work* finds; nothing, without asking it, before its time has come, unless *at_once*."""
        if not self.due and not at_once:
            return []
        begun = self._host.monotonic()
        found = await work()
        ended = self._host.monotonic()
        self._next = ended if found else ended + SHARE * (ended - begun)
        return found
