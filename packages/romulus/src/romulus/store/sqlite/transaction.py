"""A transactional step's transaction: the step's own writes first, the run's guarded transition last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import apsw

from romulus.core.transition import Transition, Verdict
from romulus.store.contract import ENDED_ITSELF, BatchRejected

from .apply import refuse, write_all
from .faults import FileBusy, unavailable
from .session import Session


class SQLiteTransaction:
    """Holds the store's writer from `begin` to `commit` or `rollback`, on a connection of its own."""

    def __init__(self, session: Session, release: Callable[[], None]) -> None:
        self._session, self._release = session, release
        self._committing = self._committed = self._ended = False
        self._open = self._lent = True  # lent: the step's body may use the connection, from a thread that goes on past its time
        self.connection: Any = session.connection

    async def begin(self, patience: int) -> None:
        """Begin the transaction; from now on only `commit` can commit it. Waits up to *patience* µs for the file, off the thread."""
        host, session = self._session.host, self._session
        until, session.patience.limit = host.monotonic() + patience, 0
        while True:
            try:
                session.read(lambda s: s.run("step.begin", "BEGIN IMMEDIATE"))
                break
            except FileBusy:
                if host.monotonic() >= until:
                    raise
            await self._pause()
        self.connection.set_commit_hook(lambda: not self._committing)
        self.connection.set_rollback_hook(self._rolled_back)

    async def ready(self) -> None:
        """Check that the body has not ended the transaction: SQLite would commit each statement that follows by itself."""
        if self._ended:
            raise BatchRejected(ENDED_ITSELF)

    async def commit(self, transition: Transition) -> Verdict:
        """Write the guarded transition as the last statements and commit; REFUSED rolls everything back."""
        session, self._lent = self._session, False
        try:
            await self.ready()
            if not write_all(session, [transition], session.clock.now()):
                self._undo()
                return session.write(lambda s, now: refuse(s, transition, now))
            self._committing = True
            session.commit()
            self._committed = True
        except apsw.Error as error:
            raise unavailable(error, session.place.shown) or BatchRejected(str(error)) from error
        finally:
            await self.rollback()
        return Verdict.APPLIED

    async def rollback(self) -> bool:
        """Undo everything that is not committed, and give the writer free. Idempotent. A body can commit nothing: True."""
        if not self._open:
            return True
        self._open = False
        if self._lent and not self._taken_away():
            await asyncio.shield(self._session.host.spawn(self._take_away(), name="romulus-rollback"))
            return True
        self._undo()
        self._release()
        return True

    def _taken_away(self) -> bool:
        """Close the connection: what a body writes after its time would commit by itself. False: a statement runs on it now."""
        try:
            self.connection.interrupt()
            self._session.discard()
            self.connection.close(True)
        except (apsw.ThreadingViolationError, apsw.BusyError):
            return False
        return True

    async def _take_away(self) -> None:
        while not self._taken_away():
            await self._pause()
        self._release()

    def _undo(self) -> None:
        """Undo what is not committed, and close the connection then: something that the body has set in it may be why."""
        if not self._committed:
            self._session.discard()
            return
        self.connection.set_rollback_hook(None)
        self.connection.set_commit_hook(None)

    async def _pause(self) -> None:
        waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        handle = self._session.host.call_later(200 + self._session.host.random_bits(11), waited.set_result, None)
        try:
            await waited
        finally:
            handle.cancel()

    def _rolled_back(self) -> None:
        self._ended = True
