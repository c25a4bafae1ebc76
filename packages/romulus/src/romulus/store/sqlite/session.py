"""The one place where the store's statements are executed: transactions, crash points, and what an error means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, LiteralString, TypeVar

import apsw

from romulus.core.errors import StoreUnavailable
from romulus.core.ports import Host

from .clock import Clock
from .connection import Bindings, Fork, Patience, Place, Row, connect, execute
from .faults import BUSY, after_commit, unavailable

T = TypeVar("T")


class Session:
    """A connection, used by one thread at a time."""

    def __init__(
        self, place: Place, host: Host, patience: int, connection: apsw.Connection | None = None, *, clock: Clock | None = None
    ) -> None:
        self.place, self.host, self.clock = place, host, clock or Clock(host)
        self.patience = Patience(host, patience)
        self._connection = connection
        self._point = host.crash_point
        self._fork = Fork()

    @property
    def connection(self) -> apsw.Connection:
        """Return the connection, opened again if the last one was given up."""
        if self._connection is None:
            self._fork.check()
            self._connection = connect(self.place, self.patience)
        return self._connection

    def touch(self) -> None:
        """Open the connection now, so that a file that cannot be used is known now."""
        _ = self.connection

    def run(self, name: LiteralString, sql: LiteralString, bindings: Bindings = ()) -> list[Row]:
        """Execute one statement to its end and return its rows. The simulator may crash before and after it."""
        self._fork.check()
        self._point(name)
        rows = execute(self.connection, sql, bindings)
        self._point(name + ".done")
        return rows

    def count(self, name: LiteralString, sql: LiteralString, bindings: Bindings = ()) -> int:
        """Execute one statement to its end and return how many rows it changed."""
        self.run(name, sql, bindings)
        return self.connection.changes()

    def value(self, name: LiteralString, sql: LiteralString, bindings: Bindings = ()) -> Any:
        """Return the first column of the first row; None: there is no row."""
        rows = self.run(name, sql, bindings)
        return rows[0][0] if rows else None

    def read(self, work: Callable[[Session], T]) -> T:
        """Run *work*, which writes nothing.

        Raises:
            StoreUnavailable: the file cannot be read now.
        """
        try:
            return work(self)
        except apsw.Error as error:
            raise unavailable(error, self.place.shown) or error from error

    def write(self, work: Callable[[Session, int], T]) -> T:
        """Run *work(session, store now)* in one transaction; whatever it raises undoes it.

        Raises:
            StoreUnavailable: nothing was written. CommitUnknown: COMMIT failed in a way that tells nothing.
        """
        self.place.check()
        try:
            self.run("sqlite.begin", "BEGIN IMMEDIATE")
            result = work(self, self.clock.now())
        except apsw.Error as error:
            self.rollback()
            raise unavailable(error, self.place.shown) or error from error
        except BaseException:
            self.rollback()
            raise
        self.commit()
        return result

    def alone(self, name: LiteralString, sql: LiteralString, bindings: Bindings = ()) -> int:
        """Execute one statement as a transaction of its own and return how many rows it changed.

        SQLite does all of it in one call, so a thread that then waits for the interpreter holds up no other writer.

        Raises:
            StoreUnavailable: nothing was written. CommitUnknown: it failed in a way that tells nothing.
        """
        self.place.check()
        try:
            return self.count(name, sql, bindings)
        except apsw.Error as error:
            if not isinstance(error, BUSY):
                self.discard()
            raise unavailable(error, self.place.shown) or after_commit(error, self.place.shown) from error

    def commit(self) -> None:
        """Commit the open transaction; an error tells whether it may have been applied."""
        try:
            self.run("sqlite.commit", "COMMIT")
        except apsw.Error as error:
            fault = after_commit(error, self.place.shown)
            if isinstance(fault, StoreUnavailable):
                self.rollback()
            else:
                self.discard()
            raise fault from error

    def rollback(self) -> None:
        """Undo the open transaction, if there is one; a connection that cannot is given up, which undoes it too."""
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.in_transaction:
                execute(connection, "ROLLBACK")
        except apsw.Error:
            self.discard()

    def discard(self) -> None:
        """Close the connection; the next statement opens another. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(True)

    close = discard
