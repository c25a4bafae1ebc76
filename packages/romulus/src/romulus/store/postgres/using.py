"""`Store.using`: starts, sends and changes inside the caller's own open transaction, on the driver the caller has."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, LiteralString, TypeVar, cast

from romulus.core.errors import ConfigurationError
from romulus.core.ports import Host
from romulus.core.record import Run
from romulus.core.transition import Created, EventClash, EventRefused, Existing, NewEvent, NewRun, Received

from .changing import Decide, change
from .rows import Row
from .sending import send
from .session import Session
from .starting import start

T = TypeVar("T")

KNOWN: Final = "an asyncpg or psycopg 3 connection, or a SQLAlchemy connection or session on one of these"
NOTIFY: Final[LiteralString] = "SELECT pg_notify('romulus', 'using')"  # goes out with the caller's commit
NO_TRANSACTION: Final = "no transaction is open on this connection: begin one first, commit it after"


class Using:
    """What a client may do on a connection that is the caller's: nothing here begins or commits."""

    def __init__(self, store: Any, host: Host, connection: Any) -> None:
        self._store, self._host = store, host
        self._given = connection
        _kind(connection)  # refuses what is not known

    def __getattr__(self, name: str) -> Any:
        """Everything else (reads, listings) is the store's own."""
        return getattr(self._store, name)

    async def start(self, runs: Sequence[NewRun]) -> Sequence[Created | Existing]:
        """Create runs in the caller's transaction."""
        return await self._inside(lambda s: start(s, runs))

    async def send(self, events: Sequence[NewEvent]) -> Sequence[Received | EventClash | EventRefused]:
        """Store events in the caller's transaction."""
        return await self._inside(lambda s: send(s, events))

    async def change(self, namespace: str, run_id: str, decide: Decide) -> tuple[Run, Run] | None:
        """Change a run's row in the caller's transaction."""
        return await self._inside(lambda s: change(s, namespace, run_id, decide))

    async def _inside(self, work: Callable[[Session], Awaitable[T]]) -> T:
        session = await _session(self._given, self._host)
        await session.rows("using.savepoint", "SAVEPOINT romulus")
        try:
            result = await work(session)
            await session.rows("using.notify", NOTIFY)
        except BaseException:
            await session.rows("using.undo", "ROLLBACK TO SAVEPOINT romulus")
            await session.rows("using.release", "RELEASE SAVEPOINT romulus")
            raise
        await session.rows("using.release", "RELEASE SAVEPOINT romulus")
        return result


class _CallersSession:
    """A session on the caller's connection."""

    def __init__(self, host: Host, fetch: Callable[[LiteralString, tuple[Any, ...]], Awaitable[list[Row]]]) -> None:
        self.host, self._fetch = host, fetch

    async def rows(self, name: LiteralString, sql: LiteralString, *args: Any) -> list[Row]:
        """Execute one statement and return its rows."""
        self.host.crash_point(name)
        found = await self._fetch(sql, args)
        self.host.crash_point(name + ".done")
        return found

    async def row(self, name: LiteralString, sql: LiteralString, *args: Any) -> Row | None:
        """Execute one statement and return its first row."""
        found = await self.rows(name, sql, *args)
        return found[0] if found else None

    async def value(self, name: LiteralString, sql: LiteralString, *args: Any) -> Any:
        """Return the first column of the first row."""
        found = await self.rows(name, sql, *args)
        return found[0][0] if found else None


def _kind(connection: Any) -> str:
    """Return the package of the connection's class.

    Raises:
        ConfigurationError: it is none that is known here.
    """
    name = _name(connection)
    package = name.partition(".")[0]
    if package not in ("asyncpg", "psycopg", "sqlalchemy", "psycopg_pool"):
        raise ConfigurationError(f"a {name} cannot be used: give {KNOWN}")
    return package


def _name(given: Any) -> str:
    """Return the full name of a value's class."""
    kind = cast("type[object]", type(given))
    return f"{kind.__module__}.{kind.__qualname__}"


async def _session(given: Any, host: Host) -> Session:
    """Return a session on the driver's connection inside *given*, whose transaction is open."""
    connection = await _unwrapped(given, host) if _kind(given) == "sqlalchemy" else given
    return _asyncpg(connection, host) if _kind(connection) == "asyncpg" else _psycopg(connection, host)


async def _unwrapped(given: Any, host: Host) -> Any:
    """Return the driver's connection of a SQLAlchemy one, after it has really begun its transaction."""
    alchemy: Any = sys.modules["sqlalchemy"]
    asynchronous: Any = sys.modules.get("sqlalchemy.ext.asyncio")
    begun = alchemy.text("SELECT 1")
    if asynchronous is not None and isinstance(given, (asynchronous.AsyncSession, asynchronous.AsyncConnection)):
        connection = await given.connection() if isinstance(given, asynchronous.AsyncSession) else given
        _check(connection)
        await connection.execute(begun)
        return (await connection.get_raw_connection()).driver_connection
    connection = given if isinstance(given, alchemy.Connection) else await host.in_pool(given.connection)  # an ORM session has one
    _check(connection)
    await host.in_pool(lambda: connection.execute(begun))
    return connection.connection.driver_connection


def _check(connection: Any) -> None:
    """Refuse a SQLAlchemy connection to something else, or without a transaction."""
    if connection.dialect.driver not in ("asyncpg", "psycopg", "psycopg_async"):
        raise ConfigurationError(f"a SQLAlchemy connection on {connection.dialect.driver} is on another driver: give {KNOWN}")
    _require(connection.in_transaction())


def _require(in_transaction: bool) -> None:
    if not in_transaction:
        raise ConfigurationError(NO_TRANSACTION)


def _asyncpg(connection: Any, host: Host) -> Session:
    _require(connection.is_in_transaction())

    async def fetch(sql: LiteralString, args: tuple[Any, ...]) -> list[Row]:
        found: list[Row] = await connection.fetch(sql, *args)
        return found

    return _CallersSession(host, fetch)


def _psycopg(connection: Any, host: Host) -> Session:
    """psycopg takes our `$1` as they are in a raw cursor; a connection without autocommit begins by itself."""
    driver: Any = sys.modules["psycopg"]
    idle = connection.info.transaction_status == driver.pq.TransactionStatus.IDLE
    _require(not (idle and connection.autocommit))

    async def fetch_async(sql: LiteralString, args: tuple[Any, ...]) -> list[Row]:
        async with driver.AsyncRawCursor(connection, row_factory=driver.rows.tuple_row) as cursor:
            await cursor.execute(sql, _plain(args))
            return await cursor.fetchall() if cursor.description else []

    def fetch_here(sql: LiteralString, args: tuple[Any, ...]) -> list[Row]:
        with driver.RawCursor(connection, row_factory=driver.rows.tuple_row) as cursor:
            cursor.execute(sql, _plain(args))
            return cursor.fetchall() if cursor.description else []

    async def fetch_in_thread(sql: LiteralString, args: tuple[Any, ...]) -> list[Row]:
        future: asyncio.Future[list[Row]] = host.in_pool(lambda: fetch_here(sql, args))
        return await future

    return _CallersSession(host, fetch_async if isinstance(connection, driver.AsyncConnection) else fetch_in_thread)


def _plain(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    return args or None
