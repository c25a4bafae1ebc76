"""A transactional step's transaction: the step's own writes first, the run's guarded transition last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final, LiteralString

from romulus.core.transition import Transition, Verdict
from romulus.store.contract import BatchRejected

from .apply import STATEMENT_ERRORS, concerns_others, refuse, write_all
from .faults import is_lost, unavailable
from .pool import DRIVER_ERRORS, Pool
from .session import OwnSession

NUMBER: Final[LiteralString] = "SELECT pg_current_xact_id()::text"
# The step's own statements are planned as everybody's are; ours, which come last, as ours.
THEIRS: Final[LiteralString] = (
    "SET LOCAL enable_seqscan = DEFAULT; SET LOCAL enable_mergejoin = DEFAULT; SET LOCAL enable_bitmapscan = DEFAULT; "
    "SET LOCAL plan_cache_mode = DEFAULT; SET LOCAL jit = DEFAULT; "
    "SET LOCAL idle_in_transaction_session_timeout = 0"  # a body may take its time between two statements
)
OURS: Final[LiteralString] = (
    "SET LOCAL enable_seqscan = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off; "
    "SET LOCAL idle_in_transaction_session_timeout = '10s'"
)
CLEAN: Final[LiteralString] = "CLOSE ALL; UNLISTEN *; DISCARD TEMP; DISCARD SEQUENCES"


class PostgresTransaction:
    """Holds one of the connections for steps from `begin` to `commit` or `rollback`."""

    def __init__(self, steps: Pool, pool: Pool, told: Callable[[], object]) -> None:
        """*told*: called when something was committed that others wait for."""
        self._steps, self._pool, self._told = steps, pool, told
        self._stack = AsyncExitStack()
        self._session: OwnSession | None = None
        self._number = ""
        self.connection: Any = None

    async def begin(self) -> None:
        """Begin the transaction; from now on only `commit` can commit it."""
        session = await self._stack.enter_async_context(self._steps.taken())
        try:
            await self._steps.begin(session)
            await session.plain("step.theirs", THEIRS)
            self._number = await session.value("step.begin", NUMBER)
        except BaseException as error:
            await self._leave(error)
            fault = unavailable(error, self._steps.place.shown)
            raise fault or error from error
        self._session, self.connection = session, session.connection

    async def commit(self, transition: Transition) -> Verdict:
        """Write the guarded transition as the last statements and commit; REFUSED rolls everything back."""
        session = self._session
        if session is None:
            raise BatchRejected("the step's transaction has ended")
        try:
            written = await self._write(session, transition)
            if written:
                await self._steps.commit(session)
        except DRIVER_ERRORS as error:
            await self._leave(error)
            raise unavailable(error, self._steps.place.shown) or BatchRejected(str(error)) from error
        except STATEMENT_ERRORS as error:
            await self._leave(error)
            raise BatchRejected(str(error)) from error
        except BaseException as error:
            await self._leave(error)
            raise
        if written:
            await self._leave(None)
            if concerns_others(transition):
                self._told()
            return Verdict.APPLIED
        await self.rollback()
        return Verdict.APPLIED if await refuse(self._pool, [transition]) else Verdict.REFUSED

    async def rollback(self) -> None:
        """Undo everything that is not committed. Idempotent."""
        if self._session is not None:
            await self._leave(_Undo())

    async def _write(self, session: OwnSession, transition: Transition) -> bool:
        """Write the transition where the step wrote: in the transaction that was begun for it."""
        if not session.connection.is_in_transaction() or await session.value("step.number", NUMBER) != self._number:
            raise BatchRejected("the step's body ended the transaction itself: leave BEGIN, COMMIT and ROLLBACK to the engine")
        await session.plain("step.ours", OURS)
        return bool(await write_all(session, [transition]))

    async def _leave(self, error: BaseException | None) -> None:
        """Give the connection back, its transaction undone after an error, and nothing of the step's left in its session."""
        session, self._session = self._session, None
        if session is not None and not (error is not None and is_lost(error)):
            await self._clean(session)
        try:
            await self._stack.__aexit__(type(error) if error else None, error, None)
        except BaseException as raised:
            if raised is not error:
                raise

    async def _clean(self, session: OwnSession) -> None:
        connection = session.connection
        try:
            async with asyncio.timeout(5):
                if connection.is_in_transaction():
                    await connection.execute("ROLLBACK")
                if not self._steps.pooled:
                    await connection.execute(CLEAN)
        except DRIVER_ERRORS:
            connection.terminate()


class _Undo(Exception):
    """Undoes a transaction that nothing went wrong with."""
