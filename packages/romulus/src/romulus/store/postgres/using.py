"""`Store.using`: starts, sends and changes inside the caller's own open transaction, on the driver the caller has."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, LiteralString, TypeAlias, TypeVar, cast

from romulus.core.errors import ConfigurationError
from romulus.core.ports import Host
from romulus.core.record import Run
from romulus.core.transition import Created, EventClash, EventRefused, Existing, NewEvent, NewRun, Received

from .changing import Decide, change
from .identity import Identity
from .rows import Row
from .sending import send
from .starting import start

T = TypeVar("T")
Fetch: TypeAlias = Callable[[LiteralString, tuple[Any, ...]], Awaitable[list[Row]]]

KNOWN: Final = "an asyncpg or psycopg 3 connection, or a SQLAlchemy connection or session on one of these"
NOTIFY: Final[LiteralString] = "SELECT pg_notify('romulus', 'using')"  # goes out with the caller's commit
NO_TRANSACTION: Final = "no transaction is open on this connection: begin one first, commit it after"
PIPELINED: Final = (
    "the connection is in psycopg's pipeline mode, where a statement's answer is not waited for: call this before `connection.pipeline()` "
    "is entered or after it was left, in the same transaction"
)


class Using:
    """What a client may do on a connection that is the caller's: nothing here begins or commits."""

    def __init__(self, store: Any, host: Host, identity: Identity, connection: Any) -> None:
        self._store, self._host, self._identity = store, host, identity
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

    async def _inside(self, work: Callable[[_CallersSession], Awaitable[T]]) -> T:
        session = await _session(self._given, self._host)
        await session.rows("using.savepoint", "SAVEPOINT romulus")
        try:
            await self._identity.check(session.connection, session)
            result = await work(session)
            if not session.two_phase:  # PREPARE is refused after a notice: workers find by polling what was written
                await session.rows("using.notify", NOTIFY)
        except BaseException:
            await session.rows("using.undo", "ROLLBACK TO SAVEPOINT romulus")
            await session.rows("using.release", "RELEASE SAVEPOINT romulus")
            raise
        await session.rows("using.release", "RELEASE SAVEPOINT romulus")
        return result


class _CallersSession:
    """A session on the caller's connection. *two_phase*: its transaction is one that PREPARE will be asked for."""

    def __init__(self, host: Host, connection: Any, fetch: Fetch, *, two_phase: bool) -> None:
        self.host, self.connection, self.two_phase = host, connection, two_phase
        self._fetch = fetch

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
    """Return the package of the connection's class, or of the nearest one that it is made from.

    Raises:
        ConfigurationError: it is none that is known here.
    """
    for kind in cast("type[object]", type(connection)).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in ("asyncpg", "psycopg", "sqlalchemy", "psycopg_pool"):
            return package
    raise ConfigurationError(f"a {_name(connection)} cannot be used: give {KNOWN}")


def _name(given: Any) -> str:
    """Return the full name of a value's class."""
    kind = cast("type[object]", type(given))
    return f"{kind.__module__}.{kind.__qualname__}"


async def _session(given: Any, host: Host) -> _CallersSession:
    """Return a session on the driver's connection inside *given*, whose transaction is open."""
    connection, two_phase = await _unwrapped(given, host) if _kind(given) == "sqlalchemy" else (given, False)
    return _asyncpg(connection, host, two_phase) if _kind(connection) == "asyncpg" else _psycopg(connection, host, two_phase)


async def _unwrapped(given: Any, host: Host) -> tuple[Any, bool]:
    """Return the driver's connection of a SQLAlchemy one, which has really begun its transaction, and whether that has two phases."""
    alchemy: Any = sys.modules["sqlalchemy"]
    asynchronous: Any = sys.modules.get("sqlalchemy.ext.asyncio")
    begun = alchemy.text("SELECT 1")
    if asynchronous is not None and isinstance(given, (asynchronous.AsyncSession, asynchronous.AsyncConnection)):
        outer = await given.connection() if isinstance(given, asynchronous.AsyncSession) else given
        connection = outer.sync_connection
        _check(connection)
        await outer.execute(begun)
    else:
        connection = given if isinstance(given, alchemy.Connection) else await host.in_pool(given.connection)  # an ORM session has one
        _check(connection)
        await host.in_pool(lambda: connection.execute(begun))
    return connection.connection.driver_connection, isinstance(connection.get_transaction(), alchemy.TwoPhaseTransaction)


def _check(connection: Any) -> None:
    """Refuse a SQLAlchemy connection to something else, without a transaction or in pipeline mode; None: one not even opened."""
    _require(connection is not None)
    if connection.dialect.driver not in ("asyncpg", "psycopg", "psycopg_async"):
        raise ConfigurationError(f"a SQLAlchemy connection on {connection.dialect.driver} is on another driver: give {KNOWN}")
    _require(connection.in_transaction())
    if connection.dialect.driver != "asyncpg":
        _require_answers(connection.connection.driver_connection)


def _require(in_transaction: bool) -> None:
    if not in_transaction:
        raise ConfigurationError(NO_TRANSACTION)


def _require_answers(connection: Any) -> None:
    """Refuse a psycopg connection in pipeline mode: nothing has been sent yet."""
    if connection.pgconn.pipeline_status:
        raise ConfigurationError(PIPELINED)


def _asyncpg(connection: Any, host: Host, two_phase: bool) -> _CallersSession:
    _require(connection.is_in_transaction())

    async def fetch(sql: LiteralString, args: tuple[Any, ...]) -> list[Row]:
        found: list[Row] = await connection.fetch(sql, *args)
        return found

    return _CallersSession(host, connection, fetch, two_phase=two_phase)


def _psycopg(connection: Any, host: Host, two_phase: bool) -> _CallersSession:
    """psycopg takes our `$1` as they are in a raw cursor; a connection without autocommit begins by itself."""
    driver: Any = sys.modules["psycopg"]
    _require_answers(connection)
    idle = connection.info.transaction_status == driver.pq.TransactionStatus.IDLE
    _require(not (idle and connection.autocommit))

    async def fetch_async(sql: LiteralString, args: tuple[Any, ...]) -> list[Row]:
        async with driver.AsyncRawCursor(connection, row_factory=driver.rows.tuple_row) as cursor:
            await cursor.execute(sql, _plain(args))
            return await cursor.fetchall() if _has_rows(cursor) else []

    def fetch_here(sql: LiteralString, args: tuple[Any, ...]) -> list[Row]:
        with driver.RawCursor(connection, row_factory=driver.rows.tuple_row) as cursor:
            cursor.execute(sql, _plain(args))
            return cursor.fetchall() if _has_rows(cursor) else []

    async def fetch_in_thread(sql: LiteralString, args: tuple[Any, ...]) -> list[Row]:
        future: asyncio.Future[list[Row]] = host.in_pool(lambda: fetch_here(sql, args))
        return await future

    fetch = fetch_async if isinstance(connection, driver.AsyncConnection) else fetch_in_thread
    begun_by_driver = getattr(connection, "_tpc", None) is not None  # by `tpc_begin`; the driver shows it nowhere else
    return _CallersSession(host, connection, fetch, two_phase=two_phase or begun_by_driver)


def _has_rows(cursor: Any) -> bool:
    """Return whether a statement's answer has rows; one without an answer was caught by a pipeline that another task has begun."""
    if cursor.pgresult is None:
        raise ConfigurationError(PIPELINED)
    return cursor.description is not None


def _plain(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    return args or None
