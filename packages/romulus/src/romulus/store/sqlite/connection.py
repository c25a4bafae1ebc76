"""Opening connections to the file: settings, the busy handler, and the refusal of forked children."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, LiteralString, TypeAlias

import apsw

from romulus.core.errors import ConfigurationError, StoreUnavailable
from romulus.core.ports import Host

from .faults import unavailable

Row: TypeAlias = tuple[Any, ...]
Bindings: TypeAlias = Sequence[Any]

MEMORY: Final = "memdb"
WAIT_MIN, WAIT_MAX = 0.0002, 0.002  # seconds between two tries for the file's lock: plain `busy_timeout` backs off until it starves
CHECKPOINT_PAGES: Final = 1000  # PASSIVE only: RESTART and TRUNCATE wait for readers while writers wait for them

_forks: list[int] = []  # PIDs of the forked children between this process and the one that imported this
os.register_at_fork(after_in_child=lambda: _forks.append(os.getpid()))


@dataclass(frozen=True, slots=True)
class Place:
    """Where the store is: a file, or memory shared by the connections of this process."""

    path: str  # absolute file path, or the name inside memory
    memory: bool = False
    _file: list[tuple[int, int]] = field(
        default_factory=list[tuple[int, int]], compare=False, repr=False
    )  # its device and inode, once opened

    @property
    def shown(self) -> str:
        """Return what messages call it."""
        return "the store in memory" if self.memory else self.path

    def check(self) -> None:
        """Refuse a file that is no longer the one that was opened: what is written to it would be lost with this process.

        Raises:
            StoreUnavailable: it was moved, replaced or deleted.
        """
        if self._file and self._identity() != self._file[0]:
            raise StoreUnavailable(
                f"{self.path} was moved, replaced or deleted while it was in use: nothing more is written; "
                "put the file back with its -wal and -shm beside it, or stop every process that uses it"
            )

    def opened(self) -> None:
        """Remember which file the path named when it was first opened."""
        if not self.memory and not self._file:
            identity = self._identity()
            if identity is not None:
                self._file.append(identity)

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)  # noqa: PTH116  twice as fast as Path.stat, and on the path of every commit
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def exists(self) -> bool:
        """Return whether there is a file with something in it."""
        return not self.memory and Path(self.path).exists() and Path(self.path).stat().st_size > 0


def execute(connection: apsw.Connection, sql: LiteralString, bindings: Bindings = ()) -> list[Row]:
    """Execute one statement to its end (apsw stops at the first row) and return its rows."""
    run: Any = getattr(connection, "execute")  # noqa: B009  # apsw's stubs name a type that not every Python has
    rows: list[Row] = run(sql, bindings).fetchall()
    return rows


class Patience:
    """The busy handler: tries again after a random 0.2 to 2 ms, in total no longer than `limit`."""

    def __init__(self, host: Host, limit: int) -> None:
        self.limit = limit  # µs; 0 gives up at once
        self._host = host
        self._until = 0
        self._random = random.Random(host.random_bits(32))  # noqa: S311

    def __call__(self, tries: int) -> bool:
        """Wait a little, or return False once the limit is reached."""
        if not self.limit:
            return False
        now = self._host.monotonic()
        if tries == 0:
            self._until = now + self.limit
        if now >= self._until or tries * WAIT_MIN * 1_000_000 >= self.limit:  # the second where the clock stands still
            return False
        time.sleep(self._random.uniform(WAIT_MIN, WAIT_MAX))
        return True


class Fork:
    """Remembers the process it was made in."""

    def __init__(self) -> None:
        self._made = len(_forks)

    def check(self) -> None:
        """Refuse a forked child: SQLite's locks do not survive a fork.

        Raises:
            ConfigurationError: this is a child of the process that opened the store.
        """
        if self._made != len(_forks):
            raise ConfigurationError("a store cannot be used in a forked child: open it after the fork, or spawn the process")


def connect(place: Place, patience: Patience, *, write: bool = True) -> apsw.Connection:
    """Open a connection with our settings; the file is made if there is none and *write* is set.

    Raises:
        StoreUnavailable, NotOurFile: with the file and the remedy.
    """
    place.check()
    try:
        connection = _raw(place, write)
        connection.set_busy_handler(patience)
        _settings(connection, place)
    except apsw.Error as error:
        raise unavailable(error, place.shown) or error from error
    place.opened()
    return connection


def _raw(place: Place, write: bool) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE if write else apsw.SQLITE_OPEN_READWRITE
    if place.memory:
        return apsw.Connection(place.path, flags=flags, vfs=MEMORY, statementcachesize=300)
    return apsw.Connection(place.path, flags=flags, statementcachesize=300)


def _settings(connection: apsw.Connection, place: Place) -> None:
    # With STAT4 compiled in, a statement is planned anew for new bindings at nearly every execution; our plans do not depend on them.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    execute(connection, "PRAGMA synchronous=FULL")
    execute(connection, "PRAGMA cache_size=-16000")
    execute(connection, "PRAGMA temp_store=MEMORY")
    if not place.memory:
        connection.wal_autocheckpoint(CHECKPOINT_PAGES)
