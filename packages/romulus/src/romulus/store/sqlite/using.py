"""`Store.using`: starts, sends and changes inside the caller's own open transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from romulus.core.errors import ConfigurationError
from romulus.core.ports import Host
from romulus.core.record import Run
from romulus.core.transition import Created, EventClash, EventRefused, Existing, NewEvent, NewRun, Received

from .changing import Decide, change
from .connection import Place
from .matching import send
from .session import Session
from .starting import start

T = TypeVar("T")


class Using:
    """What a client may do on a connection that is the caller's: nothing here begins or commits."""

    def __init__(self, store: Any, place: Place, host: Host, connection: Any) -> None:
        check(place, connection)
        self._store = store
        self._session = Session(place, host, 0, connection, clock=store.clock)

    def __getattr__(self, name: str) -> Any:
        """Everything else (reads, listings) is the store's own."""
        return getattr(self._store, name)

    async def start(self, runs: Sequence[NewRun]) -> Sequence[Created | Existing]:
        """Create runs in the caller's transaction."""
        return self._inside(lambda s, now: start(s, runs, now))

    async def send(self, events: Sequence[NewEvent]) -> Sequence[Received | EventClash | EventRefused]:
        """Store events in the caller's transaction."""
        return self._inside(lambda s, now: send(s, events, now))

    async def change(self, namespace: str, run_id: str, decide: Decide) -> tuple[Run, Run] | None:
        """Change a run's row in the caller's transaction."""
        return self._inside(lambda s, now: change(s, namespace, run_id, decide, now))

    def _inside(self, work: Callable[[Session, int], T]) -> T:
        session = self._session
        if not session.connection.in_transaction:
            raise ConfigurationError("no transaction is open on this connection: execute BEGIN IMMEDIATE first, COMMIT after")
        session.place.check()  # it may be to the file that stood there before
        return session.read(lambda s: _savepoint(s, work))


def check(place: Place, connection: Any) -> None:
    """Refuse a connection that is not one of ours to the store's file.

    Raises:
        ConfigurationError: with the reason.
    """
    if not isinstance(connection, apsw.Connection):
        raise ConfigurationError(
            f"a {type(connection).__module__}.{type(connection).__qualname__} cannot be used, only an apsw.Connection: another SQLite "
            "library that opens and closes the same file in this process drops the locks that protect it"
        )
    if not _same(place, connection.filename):
        raise ConfigurationError(f"the connection is to {connection.filename or 'a private database'}, the store is {place.shown}")


def _same(place: Place, filename: str) -> bool:
    """Return whether that is the store's file; connections to memory have no name that tells one from another."""
    return not place.memory and Path(filename).exists() and Path(place.path).samefile(filename)


def _savepoint(session: Session, work: Callable[[Session, int], T]) -> T:
    session.run("using.savepoint", "SAVEPOINT romulus")
    try:
        result = work(session, session.clock.now())
    except BaseException:
        session.run("using.undo", "ROLLBACK TO romulus")
        session.run("using.release", "RELEASE romulus")
        raise
    session.run("using.release", "RELEASE romulus")
    return result
