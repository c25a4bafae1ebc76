"""A transactional step's transaction: the step's own writes first, the run's guarded transition last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from romulus.core.transition import Transition, Verdict
from romulus.store.contract import BatchRejected

from .apply import write_all
from .session import Session
from .writer import Writer


class SQLiteTransaction:
    """Holds the store's writer from `begin` to `commit` or `rollback`, on a connection of its own."""

    def __init__(self, session: Session, writer: Writer, release: Callable[[], None]) -> None:
        self._session, self._writer, self._release = session, writer, release
        self._committing = self._ended = False
        self.connection: Any = session.connection

    def begin(self) -> None:
        """Begin the transaction; from now on only `commit` can commit it."""
        self._session.read(lambda s: s.run("step.begin", "BEGIN IMMEDIATE"))
        self.connection.set_commit_hook(lambda: not self._committing)
        self.connection.set_rollback_hook(self._rolled_back)

    async def commit(self, transition: Transition) -> Verdict:
        """Write the guarded transition as the last statements and commit; REFUSED rolls everything back."""
        if self._ended:
            raise BatchRejected("the step's body ended the transaction itself: leave BEGIN, COMMIT and ROLLBACK to the engine")
        try:
            if not write_all(self._session, [transition], self._session.host.wall()):
                return Verdict.REFUSED
            self._committing = True
            self._session.commit()
            return Verdict.APPLIED
        finally:
            await self.rollback()

    async def rollback(self) -> None:
        """Undo everything that is not committed, and give the writer free. Idempotent."""
        if self._session.connection is self.connection:
            self.connection.set_rollback_hook(None)
            self.connection.set_commit_hook(None)
        self._session.rollback()
        self._release()

    def _rolled_back(self) -> None:
        self._ended = True
