"""Opening connections: the driver's settings, what is pinned for every statement of ours, and who stands between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, LiteralString

import asyncpg

from romulus.core.errors import ConfigurationError, StoreUnavailable

from .faults import at_connect
from .place import Place

CONNECT_S: Final = 10.0
HEAD_START_S: Final = 1.0  # a host that has said nothing for so long is no longer waited for alone
COMMAND_S: Final = 10.0  # a statement without an answer for so long has lost its connection
IDLE_S: Final = 10.0  # a transaction of ours that asks for nothing for so long is undone: its process is frozen, or its machine gone
LOCK_MS: Final = 1500  # a statement waits for a lock for so long
SERVER_MIN: Final = 140000
CONNECT_ERRORS: Final = (
    OSError, EOFError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InternalClientError, asyncpg.InterfaceError,
)  # fmt: skip
# Pinned for all that runs on our connections. Plans are made once and never depend on statistics that may be missing: every table
# is reached through an index.
PINNED: Final[LiteralString] = (
    "SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off; "
    "SET synchronous_commit = on; SET plan_cache_mode = force_generic_plan; "
    "SET enable_seqscan = off; SET enable_mergejoin = off; SET enable_bitmapscan = off; SET jit = off; "
    "SET statement_timeout = 0; SET timezone = 'UTC'; "
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"  # a machine that is gone holds no locks
)
LIMITS: Final[LiteralString] = "SELECT set_config('lock_timeout', $1, false), set_config('idle_in_transaction_session_timeout', $2, false)"
# The same for one transaction, behind a pooler that hands each transaction another session.
BEGIN: Final[LiteralString] = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
BEGIN_POOLED: Final[LiteralString] = (
    BEGIN + "; SET LOCAL synchronous_commit = on; SET LOCAL idle_in_transaction_session_timeout = '10s'; "
    "SET LOCAL enable_seqscan = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off; "
    "SET LOCAL lock_timeout = "
)


@dataclass(slots=True)
class Link:
    """One connection, and what stands between it and the server."""

    connection: Any
    pooled: bool  # each transaction may get another session: nothing may be left in one
    lock_ms: int  # how long its statements wait for a lock; pooled: each transaction says it

    async def wait_for_locks(self, lock_ms: int) -> None:
        """Let statements wait for a lock for *lock_ms*, from now on."""
        if not self.pooled and self.lock_ms != lock_ms:
            await self.connection.execute(LIMITS, f"{lock_ms}ms", f"{IDLE_S * 1000:.0f}ms")
            self.lock_ms = lock_ms


def begin_sql(pooled: bool, lock_ms: int) -> LiteralString:
    """Return how a transaction of ours begins."""
    digits: Any = str(int(lock_ms))
    return BEGIN_POOLED + digits if pooled else BEGIN


async def reconnect(
    place: Place, *, pooled: bool | None, command_s: float = COMMAND_S, lock_ms: int = LOCK_MS, name: str = "romulus",
    kind: Any = asyncpg.Connection,
) -> Link:  # fmt: skip
    """Open one more connection to a place that was as it has to be: whatever is wrong with it now is waited for.

    Raises:
        StoreUnavailable: with what to do.
    """
    try:
        return await connect(place, pooled=pooled, command_s=command_s, lock_ms=lock_ms, name=name, kind=kind)
    except ConfigurationError as error:
        raise StoreUnavailable(str(error)) from error.__cause__


async def connect(
    place: Place, *, pooled: bool | None = None, command_s: float = COMMAND_S, lock_ms: int = LOCK_MS, name: str = "romulus",
    kind: Any = asyncpg.Connection,
) -> Link:  # fmt: skip
    """Open a connection of class *kind* with our settings. *pooled*: as a connection before found out.

    Raises:
        StoreUnavailable, ConfigurationError: with what to do.
    """
    try:
        opener: Any = asyncpg
        connection = await _first(place.dsns, lambda dsn: opener.connect(
            dsn, timeout=CONNECT_S, command_timeout=command_s, server_settings={"application_name": name}, connection_class=kind,
            statement_cache_size=0 if pooled else 200, max_cached_statement_lifetime=0, max_cacheable_statement_size=0,
        ))  # fmt: skip
    except CONNECT_ERRORS as error:
        raise at_connect(error, place.shown) from error
    try:
        return await _prepared(place, connection, pooled, command_s, lock_ms, name, kind)
    except CONNECT_ERRORS as error:
        connection.terminate()
        raise at_connect(error, place.shown) from error
    except BaseException:
        connection.terminate()
        raise


async def _first(dsns: tuple[str, ...], connected: Callable[[str], Awaitable[Any]]) -> Any:
    """Return a connection to the first host that takes us. The next is asked too where one refuses or says nothing: a lost machine does not
    refuse, and would be waited for by every connection.
    """
    if len(dsns) == 1:
        return await connected(dsns[0])
    left, asked = deque(dsns), set[asyncio.Future[Any]]()
    error: BaseException | None = None
    try:
        while left or asked:
            if left:
                asked.add(asyncio.ensure_future(connected(left.popleft())))
            done, asked = await asyncio.wait(asked, timeout=HEAD_START_S if left else None, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                error = each.exception() or error
            taken = [each.result() for each in done if each.exception() is None]
            for spare in taken[1:]:
                spare.terminate()
            if taken:
                return taken[0]
    finally:
        for each in asked:
            each.add_done_callback(_unwanted)
            each.cancel()
        if asked:
            await asyncio.wait(asked)  # left alone, one would be cut off with the event loop, its socket open
    assert error is not None
    raise error


def _unwanted(asked: asyncio.Future[Any]) -> None:
    """End a connection that came although it was no longer asked for."""
    if not asked.cancelled() and asked.exception() is None:
        asked.result().terminate()


async def _prepared(
    place: Place, connection: Any, pooled: bool | None, command_s: float, lock_ms: int, name: str, kind: Any
) -> Link:  # fmt: skip
    _check_version(place, connection)
    _check_encoding(place, connection)
    if pooled is None:
        pooled = await _is_pooled(place, connection)
        if pooled:  # again, without the prepared statements that a pooler would send elsewhere
            connection.terminate()
            return await connect(place, pooled=True, command_s=command_s, lock_ms=lock_ms, name=name, kind=kind)
    link = Link(connection, pooled, 0)
    if not pooled:
        await connection.execute(PINNED)
        await link.wait_for_locks(lock_ms)
    return link


def _check_version(place: Place, connection: Any) -> None:
    version = connection.get_server_version()
    if version.major * 10000 < SERVER_MIN:
        raise ConfigurationError(f"{place.shown}: the server is PostgreSQL {version.major}, at least {SERVER_MIN // 10000} is needed")


def _check_encoding(place: Place, connection: Any) -> None:
    """Refuse a database that cannot store every text: what it refused later would be a run's or a caller's."""
    encoding = getattr(connection.get_settings(), "server_encoding", "UTF8")
    if encoding != "UTF8":
        raise ConfigurationError(
            f"{place.shown}: the database's encoding is {encoding}, which cannot store every text: create one with ENCODING 'UTF8' "
            "(CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0)"
        )


async def _is_pooled(place: Place, connection: Any) -> bool:
    """Return whether a pooler that gives each transaction another session stands between: one answers the greeting itself."""
    if place.pooler is not None:
        return place.pooler == "transaction"
    (row,) = await _simple(connection, "SELECT pg_backend_pid()")
    return bool(int(row) != connection.get_server_pid())


async def _simple(connection: Any, sql: LiteralString) -> tuple[Any, ...]:
    async with connection.transaction():
        row = await connection.fetchrow(sql)
    return tuple(row)
