"""The store's connections: taken for one piece of work, given back sound or thrown away."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, LiteralString, TypeVar

import asyncpg

from romulus.core.errors import CommitUnknown, StoreUnavailable
from romulus.core.ports import Host

from .driver import COMMAND_S, LOCK_MS, Link, begin_sql, connect, reconnect
from .faults import is_clash, is_lost, text_of, unavailable
from .place import Place
from .rows import Row
from .session import OwnSession

T = TypeVar("T")

# A record in the log, without any other effect: its commit waits until everything before it is where commits have to be.
FLUSH: Final[LiteralString] = "SELECT pg_logical_emit_message(true, 'romulus', '')"
# With BEGIN, in a transaction that tries what has found rows locked before.
HASTE: Final[LiteralString] = "SET LOCAL lock_timeout = '50ms'"
CLASHES_MAX: Final = 20  # times a transaction is tried again that was undone for another's sake
DRIVER_ERRORS: Final = (OSError, EOFError, asyncio.TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class Pool:
    """At most *size* connections to one place, opened as they are needed."""

    def __init__(self, place: Place, host: Host, size: int, kind: Any = asyncpg.Connection) -> None:
        """*kind*: the class of its connections."""
        self.place, self.host, self._kind = place, host, kind
        self.pooled: bool | None = None  # found out by the first connection
        self.losses = 0  # connections that were lost: what was remembered of the server may no longer hold
        self.lock_ms = LOCK_MS  # how long a statement waits for a lock
        self.command_s = COMMAND_S  # how long one waits for its answer
        self._idle: deque[Link] = deque()
        self._free = asyncio.Semaphore(size)
        self._closed = False
        self._size = size

    # ---- life ------------------------------------------------------------------------------
    async def open(self) -> None:
        """Open the first connection, so that a place that cannot be used is known now.

        Raises:
            StoreUnavailable, ConfigurationError: with what to do. What goes wrong with a place later is waited for: StoreUnavailable.
        """
        self._closed = False
        link = await connect(self.place, pooled=self.pooled, command_s=self.command_s, lock_ms=self.lock_ms, kind=self._kind)
        self.pooled = link.pooled
        self._idle.append(link)

    async def close(self) -> None:
        """Wait for work in progress, then disconnect. Idempotent."""
        self._closed = True
        for _ in range(self._size):
            await self._free.acquire()
        while self._idle:
            await _goodbye(self._idle.pop())
        for _ in range(self._size):
            self._free.release()

    @asynccontextmanager
    async def taken(self) -> AsyncGenerator[OwnSession]:
        """Lend a connection; what it is given back after is a whole transaction, or it is thrown away."""
        async with self._free:
            link = await self._sound()
            try:
                await link.wait_for_locks(self.lock_ms)
                yield OwnSession(link.connection, self.host)
            except BaseException as error:
                await self._back(link, error)
                raise
            self._idle.append(link)

    # ---- work ------------------------------------------------------------------------------
    async def rows(self, name: LiteralString, sql: LiteralString, *args: Any) -> list[Row]:
        """Execute one reading statement.

        Raises:
            StoreUnavailable: it cannot be read now.
        """
        return await self.read(lambda s: s.rows(name, sql, *args))

    async def read(self, work: Callable[[OwnSession], Awaitable[T]]) -> T:
        """Run *work*: statements that each stand for themselves and may be executed again."""
        return await self._again(work, alone=True)

    async def statement(self, work: Callable[[OwnSession], Awaitable[T]]) -> T:
        """Run *work*, which is one writing statement: its own commit.

        Raises:
            StoreUnavailable: nothing was written. CommitUnknown: it was sent and no answer came.
        """
        return await self._again(work, alone=True, writes=True)

    async def write(self, work: Callable[[OwnSession], Awaitable[T]], first: LiteralString = "") -> T:
        """Run *work* in one transaction; whatever it raises undoes it. It is begun again after a deadlock.

        *first*: a statement without an answer that is sent with BEGIN, in one message: one that waits for locks.

        Raises:
            StoreUnavailable: nothing was written. CommitUnknown: COMMIT was sent and no answer came.
        """
        return await self._again(work, alone=False, first=first)

    async def _again(
        self, work: Callable[[OwnSession], Awaitable[T]], *, alone: bool, writes: bool = False, first: LiteralString = ""
    ) -> T:  # fmt: skip
        losses = 0
        for tried in range(CLASHES_MAX):
            try:
                return await self._once(work, alone, writes, first)
            except DRIVER_ERRORS as error:
                losses += is_lost(error)
                again = is_clash(error) or (is_lost(error) and losses == 1 and not isinstance(error, TimeoutError))
                if not again or tried + 1 == CLASHES_MAX:
                    raise unavailable(error, self.place.shown) or error from error
            await self._pause(tried)
        raise AssertionError

    async def _once(self, work: Callable[[OwnSession], Awaitable[T]], alone: bool, writes: bool, first: LiteralString) -> T:
        async with self.taken() as session:
            if alone and not self.pooled:
                try:
                    return await work(session)
                except DRIVER_ERRORS as error:
                    if writes and is_lost(error):
                        raise self.unknown(error) from error
                    raise
            await self.begin(session, first)
            result = await work(session)
            await self.commit(session)
            return result

    async def begin(self, session: OwnSession, first: LiteralString = "") -> None:
        """Begin a transaction, with its *first* statement."""
        begin = begin_sql(bool(self.pooled), self.lock_ms)
        await session.plain("postgres.begin", f"{begin}; {first}" if first else begin)

    async def commit(self, session: OwnSession) -> None:
        """Commit; an error tells whether it may have been applied."""
        try:
            await session.plain("postgres.commit", "COMMIT")
        except DRIVER_ERRORS as error:
            if is_lost(error):
                raise self.unknown(error) from error
            raise

    async def flush(self) -> None:
        """Return when all that can be seen of commits is as durable as commits are: also on the standbys that they wait for.

        A commit whose session ended while it waited for a standby is there for everybody to see, and may be lost with this server.

        Raises:
            StoreUnavailable: that is not known now.
        """
        try:
            await self.write(lambda s: s.rows("postgres.flush", FLUSH))
        except CommitUnknown as error:
            raise StoreUnavailable(str(error)) from error

    def unknown(self, error: BaseException) -> CommitUnknown:
        """Return what to raise when no answer came to a commit."""
        return CommitUnknown(f"{self.place.shown}: the commit may or may not have been applied ({text_of(error)})")

    # ---- inside ----------------------------------------------------------------------------
    async def _sound(self) -> Link:
        while self._idle:
            link = self._idle.pop()
            if not link.connection.is_closed():
                return link
            self.losses += 1
        if self._closed:
            raise StoreUnavailable(f"{self.place.shown}: the store is closed")
        return await reconnect(self.place, pooled=self.pooled, command_s=self.command_s, lock_ms=self.lock_ms, kind=self._kind)

    async def _back(self, link: Link, error: BaseException) -> None:
        """Give a connection back after an error, with its transaction undone; throw it away if that is not certain."""
        connection = link.connection
        if is_lost(error) or isinstance(error, CommitUnknown) or connection.is_closed():
            connection.terminate()
            self.losses += 1
            self._forget_idle()  # what ended this one has most likely ended them as well
            return
        if isinstance(error, asyncio.CancelledError):  # its statement may still be under way, and whoever came next would wait for that
            connection.terminate()
            return
        try:
            if connection.is_in_transaction():
                await asyncio.shield(connection.execute("ROLLBACK"))
        except BaseException as second:
            connection.terminate()
            if not isinstance(second, DRIVER_ERRORS):
                raise
            return
        self._idle.append(link)

    def _forget_idle(self) -> None:
        while self._idle:
            self._idle.pop().connection.terminate()

    async def _pause(self, tried: int) -> None:
        waited = asyncio.get_running_loop().create_future()
        most = min(1_000 << tried, 100_000)
        handle = self.host.call_later(self.host.random_bits(20) % most, waited.set_result, None)
        try:
            await waited
        finally:
            handle.cancel()


async def _goodbye(link: Link) -> None:
    try:
        await link.connection.close(timeout=2)
    except DRIVER_ERRORS:
        link.connection.terminate()
