"""A transactional step's transaction: the step's own writes first, the run's guarded transition last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final, LiteralString

import asyncpg

from romulus.core.errors import CommitUnknown, StoreError, StoreUnavailable
from romulus.core.transition import Transition, Verdict
from romulus.store.contract import ENDED_ITSELF, BatchRejected

from .apply import STATEMENT_ERRORS, concerns_others, refuse, write_all
from .driver import PINNED
from .faults import is_lost, text_of, unavailable
from .pool import DRIVER_ERRORS, Pool
from .session import OwnSession

# The transaction's number, and how long it may be silent, and a statement of it take: a body that is frozen, or whose machine is
# gone, must not keep what it has locked.
NUMBER: Final[LiteralString] = (
    "SELECT pg_current_xact_id()::text, set_config('idle_in_transaction_session_timeout', $1, true), "
    "set_config('statement_timeout', $2, true), set_config('lock_timeout', $3, true)"
)
COMMITTED: Final[LiteralString] = "SELECT pg_xact_status($1::text::xid8) = 'committed'"
# The step's own statements are planned as everybody's are; ours, which come last, as ours, whatever its body has set.
THEIRS: Final[LiteralString] = (
    "SET TRANSACTION READ WRITE; SET LOCAL synchronous_commit = on; "
    "SET LOCAL enable_seqscan = DEFAULT; SET LOCAL enable_mergejoin = DEFAULT; SET LOCAL enable_bitmapscan = DEFAULT; "
    "SET LOCAL plan_cache_mode = DEFAULT; SET LOCAL jit = DEFAULT"
)
OURS: Final[LiteralString] = (
    "SET LOCAL statement_timeout = 0; SET CONSTRAINTS ALL IMMEDIATE; "  # what is deferred fails now, before the run goes on with the result
    "SET LOCAL session_authorization = DEFAULT; SET LOCAL role = DEFAULT; SET LOCAL search_path = DEFAULT; "
    + PINNED.replace("SET ", "SET LOCAL ")
)
CLEAN: Final[LiteralString] = (
    "CLOSE ALL; RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); "
    "DISCARD TEMP; DISCARD SEQUENCES; " + PINNED
)
CLEAN_S: Final = 5.0
GONE: Final = "the step's connection was lost, or closed by its body, before its transaction was committed"
SWALLOWED: Final = (
    "the body went on after an error of the database, which had undone its transaction: let such errors rise, or try what may fail "
    "in a savepoint, `async with connection.transaction()`"
)


class PostgresTransaction:
    """Holds one of the connections for steps from `begin` to `commit` or `rollback`."""

    def __init__(self, steps: Pool, pool: Pool, told: Callable[[], object], limit: int) -> None:
        """*told*: called when something was committed that others wait for. *limit*: µs that a body may take."""
        self._steps, self._pool, self._told = steps, pool, told
        self._limit = f"{limit * 6 // 5_000}ms"  # a little more: whose body takes too long finds out by itself
        self._stack = AsyncExitStack()
        self._session: OwnSession | None = None
        self._begun: Any = None  # the driver's transaction, in which others of its are savepoints; None: committed
        self._number = ""
        self._ready = self._kept = False
        self.connection: Any = None

    async def begin(self) -> None:
        """Begin the transaction; from now on only `commit` can commit it."""
        session = self._session = await self._stack.enter_async_context(self._steps.taken())
        try:
            await self._begin(session)
        except BaseException as error:
            await self._leave(error)
            fault = unavailable(error, self._steps.place.shown)
            raise fault or error from error
        self.connection = session.connection

    async def ready(self) -> None:
        """Check that the transaction can be committed, and that nothing the body has set holds for what follows.

        Raises:
            Exception: it cannot; nothing was committed, unless the body has ended the transaction itself (`rollback` says).
        """
        if self._session is None:
            raise BatchRejected("the step's transaction has ended")
        if not self._ready:
            await self._check(self._session)
            self._ready = True

    async def commit(self, transition: Transition) -> Verdict:
        """Write the guarded transition as the last statements and commit; REFUSED rolls everything back."""
        try:
            await self.ready()
            assert self._session is not None
            written = bool(await write_all(self._session, [transition]))
            if written:
                await self._commit(self._session)
        except DRIVER_ERRORS as error:
            await self._leave(error)
            raise unavailable(error, self._steps.place.shown) or BatchRejected(str(error)) from error
        except STATEMENT_ERRORS as error:
            await self._leave(error)
            raise BatchRejected(str(error)) from error
        except BaseException as error:
            await self._leave(error)
            raise
        await self._leave(None)
        if written:
            if concerns_others(transition):
                self._told()
            return Verdict.APPLIED
        return Verdict.APPLIED if await refuse(self._pool, [transition]) else Verdict.REFUSED

    async def rollback(self) -> bool:
        """Undo everything that is not committed. Idempotent. False: the body has ended the transaction itself, and something may be."""
        if self._session is not None:
            connection = self._session.connection
            ended = not connection.is_closed() and not connection.is_in_transaction()
            await self._leave(None)
            self._kept = ended or await self._is_committed()
        return not self._kept

    # ---- inside ----------------------------------------------------------------------------
    async def _begin(self, session: OwnSession) -> None:
        self._begun = session.connection.transaction(isolation="read_committed")
        session.host.crash_point("postgres.begin")
        await self._begun.start()
        session.host.crash_point("postgres.begin.done")
        await session.plain("step.theirs", THEIRS)
        self._number = await session.value("step.begin", NUMBER, self._limit, self._limit, None)

    async def _check(self, session: OwnSession) -> None:
        connection = session.connection
        if connection.is_closed():
            raise StoreUnavailable(f"{self._steps.place.shown}: {GONE}")
        if not connection.is_in_transaction():
            raise BatchRejected(ENDED_ITSELF)
        try:
            await session.plain("step.ours", OURS)
            number = await session.value("step.number", NUMBER, self._limit, "0", f"{self._steps.lock_ms}ms")
        except asyncpg.InFailedSQLTransactionError as error:
            raise asyncpg.InFailedSQLTransactionError(SWALLOWED) from error
        except DRIVER_ERRORS as error:
            if is_lost(error):
                raise StoreUnavailable(f"{self._steps.place.shown}: {GONE} ({text_of(error)})") from error
            raise
        if number != self._number:
            raise BatchRejected(ENDED_ITSELF)

    async def _commit(self, session: OwnSession) -> None:
        session.host.crash_point("postgres.commit")
        try:
            await self._begun.commit()
        except DRIVER_ERRORS as error:
            if is_lost(error):
                raise self._steps.unknown(error) from error
            raise
        self._begun = None
        session.host.crash_point("postgres.commit.done")

    async def _is_committed(self) -> bool:
        if not self._number:
            return False
        try:
            return bool((await self._pool.rows("step.committed", COMMITTED, self._number))[0][0])
        except StoreError:
            return False

    async def _leave(self, error: BaseException | None) -> None:
        """Give the connection back, its transaction undone unless committed, and nothing of the step's left in its session."""
        session, self._session = self._session, None
        if session is not None and not (
            error is not None and (is_lost(error) or isinstance(error, (CommitUnknown, asyncio.CancelledError)))
        ):
            await self._clean(session)
            error = None
        try:
            await self._stack.__aexit__(type(error) if error else None, error, None)
        except BaseException as raised:
            if raised is not error:
                raise

    async def _clean(self, session: OwnSession) -> None:
        """Leave nothing of the step's; a connection of which that is not certain is ended."""
        connection = session.connection
        try:
            async with asyncio.timeout(CLEAN_S):
                if self._begun is not None and connection.is_in_transaction():
                    await self._begun.rollback()
                    self._begun = None
                if self._begun is not None or connection.altered:
                    connection.terminate()
                elif not self._steps.pooled:
                    await connection.execute(CLEAN)
        except DRIVER_ERRORS:
            connection.terminate()
