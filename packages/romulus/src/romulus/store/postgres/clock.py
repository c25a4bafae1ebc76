"""The store's clock: the server's, read now and then, estimated in between."""

from __future__ import annotations

from romulus.core.ports import Host

from .pool import Pool


class Clock:
    """Never ahead of the server's clock: an answer was read there before it arrived here."""

    def __init__(self, pool: Pool, host: Host) -> None:
        self._pool, self._host = pool, host
        self._ahead: int | None = None  # µs that the server's clock is ahead of this machine's monotonic clock, at least
        self._slack = 0  # µs the answer took that says so

    async def read(self) -> int:
        """Return the server's clock."""
        begun = self._host.monotonic()
        ((now,),) = await self._pool.rows("clock", "SELECT romulus.clock()")
        self.seen(now, begun)
        return int(now)

    def seen(self, now: int, begun: int) -> None:
        """Note that the server said *now* in an answer to what was asked at *begun* (monotonic)."""
        arrived = self._host.monotonic()
        self._ahead, self._slack = now - arrived, arrived - begun

    def estimate(self) -> int:
        """Return the server's clock as last read, plus the time gone by since."""
        return self._host.wall() if self._ahead is None else self._ahead + self._host.monotonic()
