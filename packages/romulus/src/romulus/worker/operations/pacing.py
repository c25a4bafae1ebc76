"""The bound on lookups a second: for the day a provider was down and all of its operations are looked up at once."""

from __future__ import annotations

from romulus.core.ports import Host
from romulus.worker.pause import pause


class Pace:
    """Gives at most *per_second* turns a second, evenly."""

    def __init__(self, host: Host, per_second: int) -> None:
        self._host, self._interval = host, 1_000_000 // per_second
        self._next = 0  # monotonic µs

    async def turn(self) -> None:
        """Wait for a turn."""
        now = self._host.monotonic()
        mine = max(now, self._next)
        self._next = mine + self._interval
        if mine > now:
            await pause(self._host, mine - now)
